"""Vectors of integers in even steps, which JAX computes for `x[a:b:c]` of a symbolic size."""

from __future__ import annotations

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.passes.rules import Facts


@dataclass(frozen=True)
class Steps:
    """The integers `first + i * step`."""

    first: Expr
    step: int


def even_steps(value: ir.Value, facts: Facts) -> Steps | None:
    """What a vector of integers, or a column of them, consists of; None: of something else."""
    op = producer(value)
    if op is None:
        return None
    name = op.name.removeprefix("stablehlo.")
    if name in ("reshape", "dynamic_reshape", "convert"):
        return even_steps(op.operands[0], facts)
    if name in ("iota", "dynamic_iota"):
        return Steps(Expr.const(0), 1) if len(facts.shape(value)) == 1 else None
    if name in ("broadcast_in_dim", "dynamic_broadcast_in_dim"):
        single = all(size.is_one for size in facts.shape(op.operands[0]))
        known = facts.contents(op.operands[0]) if single else None
        return None if known is None else Steps(known[0], 0)
    if name == "reverse":
        inner, (count, *more) = even_steps(op.operands[0], facts), facts.shape(value)
        if inner is None or any(not size.is_one for size in more):
            return None
        return Steps(inner.first + (count - 1) * inner.step, -inner.step)
    if name not in ("add", "multiply", "subtract"):
        return None
    a, b = (even_steps(v, facts) for v in op.operands)
    if a is None or b is None:
        return None
    if name == "add":
        return Steps(a.first + b.first, a.step + b.step)
    if name == "subtract":
        return Steps(a.first - b.first, a.step - b.step)
    if b.step:
        a, b = b, a
    if b.step or not b.first.is_const:
        return None
    return Steps(a.first * b.first, a.step * b.first.value)
