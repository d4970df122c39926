"""A fusion planned again as smaller ones: what becomes of one no kernel can be written for.

    %1 = "disc.fusion"(%0, %w) ({                  %a = "disc.fusion"(%0, %w) ({ dot_general })
      dot_general, add, tanh              ==>      %1 = "disc.fusion"(%a) ({ add, tanh })
    }) {kind = "dense"}                               {kind = "loop"}

Why     A mistake in one emitter then costs some speed, not the program.
Needs   `plan-fusion`.   Keeps  every result; every other fusion.
Cost    O(ops of the fusion).

Contractions and other ops with kernels of their own leave first; what is left is cut in halves in
program order. Each part has fewer ops than the whole, so at the end there is one op a fusion.
"""

from __future__ import annotations

from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.emit_fusions import emit_fusions
from shlo_disc.passes.fusion import producers
from shlo_disc.passes.fusion.driver import run, start
from shlo_disc.passes.fusion.graph import Graph, Node
from shlo_disc.passes.fusion.partition import Partition
from shlo_disc.passes.kinds import contraction_kind
from shlo_disc.passes.machine_model import MachineModel

_WORK = ("elementwise", "loop", "data_movement", "opaque")


def split_fusion(
    fusion: ir.Operation, shapes: ShapeAnalysis, machine: MachineModel, singly: bool = False
) -> list[ir.Operation]:
    """Put smaller fusions in the place of `fusion`, which is erased; they in order.

    None are made of a fusion that computes one op, and it stays. `singly`: one op a fusion.
    """
    block = fusion.regions[0].blocks[0]
    graph = Graph(block, shapes, machine)
    work = _work(graph)
    if len(work) < 2:  # indices are computed in every kernel, unless that is what cannot be written
        graph = Graph(block, shapes, machine, free_indices=False)
        work = _work(graph)
    if len(work) < 2:
        return []
    if singly:
        parts = {node.index: k for k, node in enumerate(work)}
    elif any(_has_own_kernel(node) for node in work):
        parts = {}
    else:
        parts = {node.index: 2 * k // len(work) for k, node in enumerate(work)}
    partition = Partition(graph, parts)
    start(partition)
    run(partition, [producers.rule])
    emit_fusions(partition)
    return _hoisted(fusion)


def _work(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.role in _WORK]


def _has_own_kernel(node: Node) -> bool:
    return node.role == "opaque" or contraction_kind(node.op) is not None


def _hoisted(fusion: ir.Operation) -> list[ir.Operation]:
    """The body of `fusion` in its place; the fusions in it."""
    block = fusion.regions[0].blocks[0]
    for argument, operand in zip(block.arguments, fusion.operands, strict=True):
        argument.replace_all_uses_with(operand)
    *ops, last = [view.operation for view in block.operations]
    for op in ops:
        op.move_before(fusion)
    for result, value in zip(fusion.results, last.operands, strict=True):
        result.replace_all_uses_with(value)
    fusion.erase()
    return [op for op in ops if op.name == "disc.fusion"]
