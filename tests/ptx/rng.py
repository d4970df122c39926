"""The emitter of `rng` fusions for PTX: a thread writes an element, or a block of Philox."""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.plan import Kernel, KernelPlan, Launch, Output
from shlo_disc.lower.values.elemental import Arguments, Elemental
from shlo_disc.lower.values.index import Group, Space
from shlo_disc.lower.values.random_bits import RandomBits, Word, three_fry_cipher
from shlo_disc.lower.values.typed import IndexValue, Register
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned
from tests.ptx.builder import PtxBuilder

__all__ = ["emit_rng"]


def emit_rng(fusion: Planned[SingleOpRecord], machine: object) -> KernelPlan:
    """The plan of an `rng_bit_generator`: its bits, then its new state."""
    record, shapes = fusion.record, fusion.shapes
    bits = RandomBits(record.op, shapes)
    state, values = (None if k is None else Output(k) for k in record.results)
    block = fusion.block

    def written(extent: Expr, body: Callable[[Elemental, Word], None]) -> Launch:
        b = PtxBuilder()
        e = Elemental(b, Space(b, shapes.constraints, [], 0), shapes, block, Arguments())
        sizes = e.shape(bits.state)

        def word(k: int) -> Register:
            at = e.space.uniform(b.index(k))
            return e.value_at(bits.state, (Group(sizes, at),))

        with b.if_(b.lo < b.hi):
            body(e, word)
        text, params = b.finish()
        buffers = tuple(e.arguments.buffers)
        return Launch(Kernel("rng", text), buffers, params, extent, Expr.const(1))

    def store(e: Elemental, value: Register, at: IndexValue) -> None:
        memory = e.b.memref(e.arguments.slot(values), bits.element.storage)
        memory.store(bits.stored(value), at)

    def three_fry(e: Elemental, word: Word) -> None:
        element = bits.three_fry(e.b, three_fry_cipher(word))
        store(e, element(e.b.lo), e.b.lo)

    def philox(e: Elemental, word: Word) -> None:
        b = e.b
        for k, value in enumerate(bits.philox(word)(b.lo)):
            at = b.lo * bits.per_block + k
            with b.if_(at < b.param(bits.count)):
                store(e, value, at)

    def new_state(e: Elemental, word: Word) -> None:
        memory = e.b.memref(e.arguments.slot(state), bits.state_element.storage)
        for k, value in enumerate(bits.new_state(e.b, word)):
            memory.store(value, k)

    launches = []
    if values is not None:
        of_bits = (bits.blocks, philox) if bits.is_philox else (bits.count, three_fry)
        launches.append(written(*of_bits))
    if state is not None:
        launches.append(written(Expr.const(1), new_state))
    return KernelPlan(tuple(launches))
