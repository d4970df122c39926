"""Products by matrix units, whoever makes them: kernels by sizes and strides, whole chunks.

A chunk is 16 bytes of an operand, neighbours in memory. The host program takes the first kernel
whose conditions hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.gpu.products import TiledProduct
from shlo_disc.lower.plan import All, Condition, If, Step

Write = Callable[[], tuple[Step, ...]]

Along = Callable[[str], str | None]
"""For A or B ("a", "b"), a walk of it; None: there is none."""

Least = tuple[tuple[Expr, int], ...]
"""Sizes, and what each must be at least."""


class VariantProduct(TiledProduct):
    """Plans one problem as several kernels, of which one runs."""

    # ---------------------------------------------------------------- choices

    def _by_size(
        self, options: Sequence[tuple[Least, Write]], last: Write, says: str = ""
    ) -> tuple[Step, ...]:
        """The first of `options` for which all sizes are large enough, else `last`.

        `says`: as `If.says`, of every option.
        """
        if not options:
            return last()
        (sizes, write), *rest = options
        return self._where(
            self._asked_of(sizes), write, lambda: self._by_size(rest, last, says), says
        )

    def _asked_of(self, sizes: Least) -> list[Condition] | None:
        """What must be asked for all of `sizes` to be large enough; None: they never are."""
        asked: list[Condition] = []
        for size, enough in sizes:
            least, most = self.shapes.constraints.bounds(size)
            if most is not None and most < enough:
                return None
            if least is None or least < enough:
                asked.append(Condition(size, ">=", Expr.const(enough)))
        return asked

    @staticmethod
    def _all(*asked: list[Condition] | None) -> list[Condition] | None:
        """What must be asked for all of `asked`; None: one of them never holds."""
        found: list[Condition] = []
        for conditions in asked:
            if conditions is None:
                return None
            found += conditions
        return found

    @staticmethod
    def _where(
        asked: list[Condition] | None, then: Write, otherwise: Write, says: str = ""
    ) -> tuple[Step, ...]:
        """`then` where all of `asked` holds; None never does. `says`: as `If.says`."""
        if asked is None:
            return otherwise()
        if not asked:
            return then()
        condition = asked[0] if len(asked) == 1 else All(tuple(asked))
        return (If(condition, then(), otherwise(), says),)

    def _multiples(self, sizes: Sequence[Expr]) -> list[Condition] | None:
        """What must be asked for all to be multiples of a chunk; None: one never is."""
        asked = [
            Condition(size % self.chunk, "==", Expr.const(0))
            for size in dict.fromkeys(sizes)
            if not self.divisible(size, self.chunk)
        ]
        return None if any(condition.lhs.is_const for condition in asked) else asked

    # ---------------------------------------------------------------- what a problem is

    @property
    def operand(self) -> str | None:
        """The type of both operands, where sums are f32, of f64 f64, or of 8-bit integers i32.

        None: types differ, B is computed, or products are rounded before they are added.
        """
        p = self.p
        sums = {"f64": "f64", "i8": "i32", "ui8": "i32"}.get(p.a.name, "f32")
        if p.a.name != p.b.name or p.compute.name != sums or p.is_short or self.fill is not None:
            return None
        return p.a.name

    @property
    def chunk(self) -> int:
        """Elements in one copy of 16 bytes."""
        return 16 // self.p.a.bytes

    def contiguous(self, array: str) -> str | None:
        """The walk along which neighbours of A or B follow each other in memory, all of them."""
        for side in "kr":
            walk = self.walks[f"{array}{side}"]
            if len(walk) == 1 and walk[0][1] == 1:
                return f"{array}{side}"
        return None

    def strides(self, along: Along | None = None) -> list[Expr]:
        """Steps between chunks, which must be multiples of one; `along`: see :meth:`strides_of`."""
        return [size for array in "ab" for size in self.strides_of(array, along)]

    def strides_of(self, array: str, along: Along | None = None) -> list[Expr]:
        """Steps between chunks of one operand.

        `along`: the walk whose neighbours are in one chunk; :meth:`contiguous` by default.
        """
        own = (along or self.contiguous)(array)
        found: list[Expr] = [getattr(self.p, f"{array}_first")]
        found += [getattr(axis, array) for axis in self.p.batch]
        for side in "kr":
            walk = self.walks[f"{array}{side}"]
            found += [stride for _, stride in (walk[:-1] if f"{array}{side}" == own else walk)]
        return found

    def whole_chunks(self, along: Along | None = None) -> list[Expr] | None:
        """What must be multiples of a chunk for all chunks to be whole; None: there are none.

        `along`: see :meth:`strides_of`.
        """
        found = self.strides(along)
        for array in "ab":
            walk = (along or self.contiguous)(array)
            if walk is None:
                return None
            found.append(self.walks[walk][-1][0])
        return found
