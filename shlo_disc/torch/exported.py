"""`compile`: an exported program, compiled once for every size that its signature allows."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export._remove_effect_tokens_pass import _remove_effect_tokens
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import statically_known_true

from shlo_disc.base.errors import CacheMismatchError, UnsupportedError
from shlo_disc.driver.options import stated_likely
from shlo_disc.torch.argument_checks import ArgumentChecks
from shlo_disc.torch.arguments import inputs_of
from shlo_disc.torch.donation import donated_inputs
from shlo_disc.torch.executables import (
    WRITTEN,
    CutExecutable,
    TorchExecutable,
    WholeExecutable,
)
from shlo_disc.torch.options import Options, stated_on_unsupported
from shlo_disc.torch.places import where
from shlo_disc.torch.prepare import Known, needs_retracing
from shlo_disc.torch.program import lower_graph
from shlo_disc.torch.random_numbers import TAKEN_APART
from shlo_disc.torch.regions import Regions
from shlo_disc.torch.running_statistics import instance_norm
from shlo_disc.torch.sizes import environment_of

__all__ = ["TorchExecutable", "compile"]


def compile(
    program: ExportedProgram,
    *,
    likely: Mapping[str, int | Sequence[int]] | None = None,
    freeze: bool = False,
    constraints: str | Sequence[str] = (),
    donated: int | str | Sequence[int | str] = (),
    target: str = "cpu",
    checks: bool = True,
    on_unsupported: str = "eager",
) -> TorchExecutable:
    """The executable of an exported program, for every size its dynamic dimensions allow.

    Parameters and buffers are read at every call, so that changes of the module are seen. With
    `freeze` packed copies of them are made once: they must not change any more. `likely` gives
    values of sizes to have specialised kernels for. `constraints` are relations of sizes, such as
    "x_0 >= 4", that every call must satisfy. `x_0` is the size of dimension 0 of the argument `x`;
    of equal sizes the first one has the name. `target`: see :func:`shlo_disc.compile`.

    `donated` are arguments whose tensors a call may overwrite with results, such as caches: by
    position, or by name. Only the result may be used afterwards; it shares the tensor's memory. A
    tensor that is not dense is left as it is. A warning names tensors that no result can replace.

    With `checks`, a call raises for indices and labels that are out of range, and for integers
    divided by 0, as eager mode does. Without, reads are of the nearest element in range, writes out
    of range are dropped, and results of the others are undefined.

    PyTorch runs operations that are not covered, between compiled regions: it is logged once, and
    the result has them in `eager`. Then no tensor is donated. PyTorch runs all of a program that it
    cannot retrace. With `on_unsupported="error"` and for another target than "cpu" these raise.

    Raises UnsupportedError for such an operation, with its source line, and for a program that no
    call can be made of. Raises TypeError for anything but an ExportedProgram, ValueError for
    options as `shlo_disc.compile`.
    """
    if not isinstance(program, ExportedProgram):
        raise TypeError(
            f"expected a torch.export.ExportedProgram, got {type(program).__name__}; make one with "
            "torch.export.export(model, args, dynamic_shapes=...)"
        )
    if program.example_inputs is None and program.call_spec is None:
        raise UnsupportedError("the program has no call signature")
    given = [constraints] if isinstance(constraints, str) else constraints
    if not isinstance(given, Sequence) or not all(isinstance(text, str) for text in given):
        raise TypeError(f"constraints must be strings such as 'x_0 >= 4', got {constraints!r}")
    for name, value in (("freeze", freeze), ("checks", checks)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r}")
    is_cut = stated_on_unsupported(on_unsupported) == "eager" and target == "cpu"
    cannot_trace = None
    try:
        program = _functional(program)
    except UnsupportedError as error:
        if not is_cut:
            raise
        cannot_trace = error
    else:
        _refuse_resizing(program)
    inputs = inputs_of(program)
    taken = donated_inputs(program, donated)
    conditions = _conditions(program)
    if cannot_trace is None:
        try:
            names = [i.weight or i.name for i in inputs]
            known = Known(ranges=program.range_constraints, conditions=conditions)
            lowered = lower_graph(program.graph_module, names, known, checks=checks)
            executable = lowered.compiled(
                constraints=given,
                likely=likely,
                donated=[k for k, place in enumerate(lowered.binding.inputs) if place in taken],
                target=target,
            )
            return WholeExecutable(
                program, inputs, lowered, executable, freeze=freeze, donated=taken
            )
        except CacheMismatchError:
            raise
        except Exception:  # also a mistake of the compiler
            if not is_cut:
                raise
    argument_checks = ArgumentChecks(program, inputs, conditions, constraints=given, likely=likely)
    regions = Regions(
        argument_checks.executable.name,
        Known(argument_checks.symbols, program.range_constraints, conditions),
        Options(stated_likely(likely), freeze, on_unsupported, checks),
    )
    return CutExecutable(program, inputs, argument_checks, regions, cannot_trace=cannot_trace)


def _functional(program: ExportedProgram) -> ExportedProgram:
    """`program` as a functional graph. Raises UnsupportedError where PyTorch cannot make it one."""
    if needs_retracing(program.graph_module):
        program = _taken_apart(program)
    if any(spec.kind is InputKind.TOKEN for spec in program.graph_signature.input_specs):
        program = _remove_effect_tokens(copy.deepcopy(program))
    return program


def _taken_apart(program: ExportedProgram) -> ExportedProgram:
    """`program` without writes, retraced by PyTorch.

    Raises UnsupportedError with the line of the first op that writes, where PyTorch fails.
    """
    try:
        return program.run_decompositions(
            {**TAKEN_APART, torch.ops.aten.instance_norm.default: instance_norm}
        )
    except (AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        for node in program.graph.nodes:
            is_op = isinstance(node.target, torch._ops.OpOverload)
            if is_op and node.target._schema.is_mutable:
                at = f"{where(node)}: "
                break
        else:
            at = ""
        said = str(error).partition("\n")[0]
        raise UnsupportedError(f"{at}PyTorch cannot retrace the program: {said}") from error


def _refuse_resizing(program: ExportedProgram) -> None:
    """Raise UnsupportedError if a result is written into an argument or weight of another shape."""
    graph = program.graph_module.graph
    values = {node.name: node.meta.get("val") for node in graph.nodes}
    signature = program.graph_signature
    holders = {spec.target or spec.arg.name: spec.arg.name for spec in signature.input_specs}
    for out in signature.output_specs:
        if out.kind not in WRITTEN:
            continue
        name = holders.get(str(out.target), str(out.target))
        new, own = values.get(out.arg.name), values.get(name)
        if not isinstance(new, torch.Tensor) or not isinstance(own, torch.Tensor):
            continue
        if new.dim() != own.dim() or any(
            statically_known_true(n != m) for n, m in zip(new.shape, own.shape, strict=True)
        ):
            raise UnsupportedError(
                f"the program gives {name} the shape {tuple(new.shape)}, it has "
                f"{tuple(own.shape)}: tensors that get another size (`resize_`, `out=`) are not "
                "covered; return the new tensor"
            )


def _conditions(program: ExportedProgram) -> list[Any]:
    """What the program requires of sizes: PyTorch refuses calls without it, too.

    Of the symbols in its values: a derived dimension, `2*s`, has a symbol of its own in guards.
    """
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    environment = environment_of(values)
    if environment is None:
        return []
    return [environment.replace(guard.expr) for guard in environment.guards]
