"""What kernels of an attention share before any text: sizes, steps, and what must be asked.

The second product is the problem of `TiledProduct`, with queries in place of the weights:

    C[batch, m, e] = sum over n of P[batch, m, n] * V[batch, n, e],  P = softmax(Q K^T)
"""

from __future__ import annotations

from dataclasses import replace

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.element_types import ELEMENT_TYPES
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.cuda.attention_tiles import Heads
from shlo_disc.lower.gpu.builder import ACCESS_BYTES
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.products import TiledProduct
from shlo_disc.lower.plan import Condition, Input, Output
from shlo_disc.lower.products.request import Request
from shlo_disc.lower.schedule.attention import Attention
from shlo_disc.lower.schedule.contraction import Axis, Dense, Problem
from shlo_disc.lower.schedule.visible_keys import visible_keys
from shlo_disc.lower.values.elements import element_of
from shlo_disc.passes.match_softmax import match_softmax

ONE = Expr.const(1)


class AttentionPlan(TiledProduct):
    """Plans one choice of rows of an attention."""

    def __init__(
        self, attention: Attention, block: ir.Block, shapes: ShapeAnalysis, machine: Machine
    ) -> None:
        a = self.attention = attention
        record = a.record
        self.block = block
        softmax = match_softmax(record, shapes)
        if isinstance(softmax, str):
            raise InternalError(f"an attention without softmax: {softmax}")
        self.softmax = softmax
        self.visible = visible_keys(softmax, a, shapes)
        inputs = list(block.arguments)
        views = record.queries, record.keys, record.values
        q, k, v = (inputs.index(view.base) for view in views)
        self.key_input = k
        problem = Problem(
            batch=tuple(Axis(x.size, x.q, x.v, x.c) for x in a.batch),
            m=(Axis(a.m.size, a=a.m.q, c=a.m.c),),
            n=(Axis(a.width, b=a.v_width, c=ONE),),
            k=(Axis(a.keys, a=ONE, b=a.v_key),),
            a_input=q,
            b_input=v,
            a=element_of(record.queries.base),
            b=element_of(record.values.base),
            c=element_of(record.mix.total),
            compute=ELEMENT_TYPES["f32"],
            a_first=record.queries.first,
            b_first=record.values.first,
        )
        dense = Dense(problem, record.mix, record.root)
        request = Request.of(dense, block, shapes, machine, Output(0))
        super().__init__(replace(request, label="attention"))

    @property
    def key_buffer(self) -> Input:
        """The array of the keys."""
        return Input(self.key_input)

    @property
    def element(self) -> str:
        """What matrix units multiply: "f16", "bf16" or "tf32"."""
        name = self.p.a.name
        return "tf32" if name == "f32" else name

    @property
    def heads(self) -> Heads:
        """The sizes of heads, rounded up to steps of matrix instructions."""
        a = self.attention
        return Heads(_steps(a.depth), _steps(a.width), self.p.a.bytes)

    def sizes(self) -> dict[str, Expr]:
        """See `TiledProduct.sizes`."""
        a = self.attention
        named = super().sizes()
        named |= {"key": a.k_key, "q_unit": a.q_depth, "k_unit": a.k_depth, "v_unit": a.v_width}
        named |= {"k_first": a.record.keys.first, "value": a.v_key, "query": a.m.q}
        if self.visible is not None:
            named["ahead"] = self.visible.ahead
        for i, axis in enumerate(a.batch):
            named[f"batch{i}k"] = axis.k
        return named

    def known(self, condition: Condition) -> bool | None:
        """Whether a comparison with <= or > of a size with a number is known to hold.

        None: it is not, or the comparison is another one.
        """
        if condition.op not in ("<=", ">") or not condition.rhs.is_const:
            return None
        least, most = self.shapes.constraints.bounds(condition.lhs)
        is_most = condition.op == "<="
        if most is not None and most <= condition.rhs.value:
            return is_most
        if least is not None and least > condition.rhs.value:
            return not is_most
        return None

    def asked_by_chunks(self) -> list[Condition] | None:
        """What must be asked for operands to be copied 16 bytes at once; None: they never are."""
        a = self.attention
        units = [(a.q_depth, a.depth), (a.k_depth, a.depth), (a.v_width, a.width)]
        if any(step != 1 and size.value > 1 for step, size in units):
            return None
        strides = [self.p.a_first, self.p.b_first, a.record.keys.first, a.m.q, a.k_key, a.v_key]
        strides += [step for x in a.batch for step in (x.q, x.k, x.v)]
        chunk = ACCESS_BYTES // self.p.a.bytes
        asked = [
            Condition(size % chunk, "==", Expr.const(0))
            for size in dict.fromkeys(strides)
            if not self.divisible(size, chunk)
        ]
        return None if any(condition.lhs.is_const for condition in asked) else asked


def _steps(size: Expr) -> int:
    """A known size in whole steps of 16, at least one."""
    return max(int(ceil_div(size, 16).value), 1) * 16
