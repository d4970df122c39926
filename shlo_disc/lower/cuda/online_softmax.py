"""The softmax between both products of an attention, on scores in the registers of a warp.

A warp has 16 rows of scores, as its matrix instructions leave them (`fragments.py`): a thread has
two rows, and of 8 keys two. Of every row a thread keeps the maximum so far, and the sum of
`exp(score - maximum)` over the keys that it has seen itself. Where a maximum grows, earlier sums
and results are scaled. The four threads of a row agree on its maximum for each tile of keys, and
add their sums at the end.

A row of nothing but -inf has the maximum -inf. 0 is subtracted then: no exponential is NaN before
the end. There a factor of `exp(0 - -inf)` makes the row NaN, as in the program.

Source: T. Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning",
2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.element_types import ELEMENT_TYPES
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.cuda.instructions import power_of_two
from shlo_disc.lower.gpu.builder import GroupBuilder
from shlo_disc.lower.products.places import tile_space
from shlo_disc.lower.schedule.attention import Attention
from shlo_disc.lower.schedule.visible_keys import VisibleKeys
from shlo_disc.lower.values.elemental import Arguments, Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.elementwise import convert
from shlo_disc.lower.values.index import Index, Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register, vector_type
from shlo_disc.passes.match_softmax import Softmax

F32 = ELEMENT_TYPES["f32"]
LOG2_E = math.log2(math.e)
PAIR = 2
"""Keys that lie beside each other in a thread."""


@dataclass(frozen=True)
class RowState:
    """Of each of the two rows of a thread: the maximum, and its own part of the sum."""

    maximum: tuple[Register, Register]
    total: tuple[Register, Register]

    @property
    def registers(self) -> list[Register]:
        """What a loop carries."""
        return [*self.maximum, *self.total]

    @staticmethod
    def of(registers: Sequence[Register]) -> RowState:
        """What :attr:`registers` gave."""
        a, b, c, d = registers
        return RowState((a, b), (c, d))


class OnlineSoftmax:
    """Writes the row work of one attention."""

    def __init__(
        self,
        b: GroupBuilder,
        softmax: Softmax,
        problem: Attention,
        visible: VisibleKeys | None,
        block: ir.Block,
        shapes: ShapeAnalysis,
        arguments: Arguments,
    ) -> None:
        self.b, self.softmax, self.problem, self.visible = b, softmax, problem, visible
        self.block, self.shapes, self.arguments = block, shapes, arguments
        self.raw = problem.record.score.total

    def start(self) -> RowState:
        """The state in front of the first key."""
        low, zero = self.b.constant(-math.inf, "f32"), self.b.constant(0.0, "f32")
        return RowState((low, low), (zero, zero))

    # ---------------------------------------------------------------- scores

    def scores(
        self,
        sums: Sequence[Register],
        place: Sequence[IndexValue],
        rows: Sequence[IndexValue],
        column: IndexValue,
        keys: IndexValue,
        *,
        is_inner: bool,
    ) -> list[Register]:
        """The scores (f32) of the softmax from `sums` of products.

        `rows`: the two rows of the thread; `column`: its first key. `is_inner`: all keys exist, and
        each row sees all of them. Else keys that do not exist get -inf.
        """
        b, found = self.b, []
        pair = vector_type(PAIR, "f32")
        low = b.constant(-math.inf, pair)
        for at in range(0, len(sums), PAIR):
            group, half = divmod(at // PAIR, 2)
            both = b.joined(sums[at : at + PAIR])
            key = column + 8 * group
            mask = None if is_inner else b.mask(keys - key, PAIR)
            value = self._score(both, place, rows[half], key, mask, is_inner=is_inner)
            if mask is not None:
                value = b.select(mask, value, low)
            found += [b.extract(value, lane) for lane in range(PAIR)]
        return found

    def _score(
        self,
        raw: Register,
        place: Sequence[IndexValue],
        row: IndexValue,
        key: IndexValue,
        mask: Mask | None,
        *,
        is_inner: bool,
    ) -> Register:
        """Two scores beside each other."""
        b, p = self.b, self.problem
        axes = [
            (x.size, x.row * p.keys, Ix(at))
            for x, at in zip((*p.batch, p.m), (*place, row), strict=True)
        ]
        axes.append((p.keys, Expr.const(1), Ix(key, 1, multiple=PAIR)))
        space, count = tile_space(b, self.shapes, axes, PAIR)
        emitter = Elemental(b, space, self.shapes, self.block, self.arguments)
        value = convert(b, raw, F32, element_of(self.raw))

        def known(index: Index, _: Mask | None) -> Register:
            groups = space.joined(index)
            if len(groups) != 1 or groups[0].at.tile != (0, count):
                raise InternalError(f"an attention reads its scores at another place: {self.raw}")
            return value

        emitter.overrides[self.raw] = known
        if is_inner and self.visible is not None:
            emitter.overrides[self.visible.comparison] = lambda *_: b.flags(True)
        wanted = self.softmax.scores
        index = space.root(self.shapes.shape(wanted), 0, count)
        found = b.broadcast(emitter.value_at(wanted, index, mask), PAIR)
        return convert(b, found, element_of(wanted), F32)

    # ---------------------------------------------------------------- a tile of keys

    def step(
        self, scores: Sequence[Register], state: RowState
    ) -> tuple[list[Register], list[Register], RowState]:
        """Exponentials of a tile of scores; what each row's results so far are scaled by; the state
        behind it.
        """
        b = self.b
        weights = list(scores)
        maximum, total, scales = list(state.maximum), list(state.total), []
        for half in range(2):
            mine = [k for k in range(len(scores)) if k // PAIR % 2 == half]
            most = self._tree("arith.maximumf", [scores[k] for k in mine])
            for distance in (1, 2):
                most = b.op("arith.maximumf", most, b.from_lane(most, distance))
            most = b.op("arith.maximumf", maximum[half], most)
            base = self.safe(most)
            scale = self.exponential(maximum[half] - base)
            for k in mine:
                weights[k] = self.exponential(scores[k] - base)
            own = self._tree("arith.addf", [weights[k] for k in mine])
            maximum[half], total[half] = most, total[half] * scale + own
            scales.append(scale)
        return weights, scales, RowState.of([*maximum, *total])

    def _tree(self, name: str, values: Sequence[Register]) -> Register:
        """All of `values`, as a balanced tree."""
        found = list(values)
        while len(found) > 1:
            pairs = [self.b.op(name, *found[k : k + 2]) for k in range(0, len(found) - 1, 2)]
            found = pairs + ([found[-1]] if len(found) % 2 else [])
        return found[0]

    def safe(self, maximum: Register) -> Register:
        """What is subtracted from the scores of a row: its maximum, or 0 if that is -inf."""
        is_none = maximum.equals(-math.inf)
        return self.b.select(is_none, maximum.constant(0.0), maximum)

    def exponential(self, x: Register) -> Register:
        """The exponential of an f32, within 2 units of the last digit of f32 for small ones."""
        return power_of_two(self.b, x * LOG2_E)

    def across_quad(self, value: Register) -> Register:
        """The sum of a value of the four threads of a row."""
        for distance in (1, 2):
            value = value + self.b.from_lane(value, distance)
        return value

    # ---------------------------------------------------------------- the end

    def factor(
        self,
        maximum: Register,
        total: Register,
        place: Sequence[IndexValue],
        row: IndexValue,
        keys: IndexValue,
    ) -> Register:
        """What the results of a row are multiplied with (f32) where all its keys have been seen.

        `total`: the sum of all exponentials of the row.
        """
        b, p, s = self.b, self.problem, self.softmax
        axes = [
            (x.size, x.row, Ix(at)) for x, at in zip((*p.batch, p.m), (*place, row), strict=True)
        ]
        space, count = tile_space(b, self.shapes, axes, 0)
        emitter = Elemental(b, space, self.shapes, self.block, self.arguments)

        def of_row(value: ir.Value) -> Register:
            shape = self.shapes.shape(value)
            index = space.root(shape, 0, count) if shape else ()
            return convert(b, emitter.value_at(value, index), element_of(value), F32)

        def known(op: ir.Operation, value: Register) -> None:
            made = convert(b, value, F32, element_of(op.results[0]))
            emitter.overrides[op.results[0]] = lambda *_: made

        known(s.maximum, maximum)
        again = self.exponential(self.safe(maximum) - of_row(s.reference))
        known(s.total, total * again)
        factor = of_row(s.factor)
        found = again / factor if s.divides else again * factor
        # No keys give 0: nothing is added up.
        return b.select(keys > 0, found, b.constant(0.0, "f32"))
