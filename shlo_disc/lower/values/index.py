"""Where a value is read: indices of values in terms of the tile space of a kernel.

The *tile space* is a list of sizes (factors); the loops of a kernel run over it, the last factor in
vector lanes. An index of a value is a tuple of *groups*: consecutive dimensions with one flat
index. Groups are cut only where an operation needs a dimension of its own. Dimensions that every
access keeps together stay one factor, and most reshapes only regroup.

A flat index (:class:`Ix`) is `base + stride * lane` with a stride known now, or any value per lane.
`Ix.tile = (i, j)` says that it counts exactly the factors i..j-1 of the tile space. Cutting it
where a factor ends costs nothing, elsewhere it costs a division. The class `Space` records the
boundaries used (the others need not be loops) and those wished for (factors to cut finer).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.typed import IndexValue


@dataclass(frozen=True)
class Ix:
    """A flat index in every lane; see the module."""

    start: IndexValue | None
    """`base`; None where :meth:`Space.force` is still to compute it."""
    stride: int = 0
    vector: IndexValue | None = None
    """Lanes of index when they are not affine; `base` and `stride` then mean nothing."""
    multiple: int = 1
    """A known divisor of `base` (0: base is 0)."""
    tile: tuple[int, int] | None = None
    offsets: tuple[int, ...] | None = None
    """What `vector` adds to `base` in every lane, where that is known now."""

    @property
    def base(self) -> IndexValue:
        """What `stride` and `vector` add to (InternalError: not computed yet)."""
        if self.start is None:
            raise InternalError(f"the index over the factors {self.tile} is not computed yet")
        return self.start

    @property
    def is_uniform(self) -> bool:
        """The same in every lane."""
        return self.vector is None and self.stride == 0


@dataclass(frozen=True)
class Group:
    """Consecutive dimensions of `sizes` and the flat index over them."""

    sizes: tuple[Expr, ...]
    at: Ix


Index = tuple[Group, ...]
"""Where a value is read: groups that cover its dimensions in order."""


class Space:
    """The tile space of a kernel being written, and arithmetic on indices."""

    def __init__(
        self, b: KernelBuilder, constraints: Constraints, factors: Sequence[Expr], lanes: int
    ) -> None:
        self.b, self.constraints, self.lanes = b, constraints, lanes
        self.factors = list(factors)
        self.tiles: list[Ix] = []
        """The index of each factor; set by whoever writes the loops."""
        self.flats: dict[tuple[int, int], IndexValue] = {}
        """Flat bases that need no arithmetic (the task number)."""
        self.columns: tuple[int, Ix] | None = None
        """(k, index): the flat index over factor k and all behind it, where lanes run over them."""
        self.used: set[int] = set()
        """Boundaries between factors that some access needs."""
        self.wanted: list[tuple[int, int, Expr]] = []
        """(i, j, suffix): a cut of factors i..j-1 where what follows has `suffix` elements."""

    # ---------------------------------------------------------------- sizes

    def product(self, sizes: Iterable[Expr]) -> Expr:
        """Number of elements."""
        return Expr.product(sizes)

    def same(self, a: Expr, b: Expr) -> bool:
        """Proved equal."""
        return bool(a == b or self.constraints.equal(a, b))

    def same_count(self, xs: Sequence[Expr], ys: Sequence[Expr]) -> bool:
        """Proved to have equally many elements."""
        return tuple(xs) == tuple(ys) or bool(self.constraints.product_equal(xs, ys))

    def divisible(self, size: Expr, by: int) -> bool:
        """Proved divisible."""
        if size.is_const:
            return bool(size.value % by == 0)
        return bool(self.constraints.divisible(size, by))

    def fills_vectors(self, size: Expr) -> bool:
        """True if `size` is proved a whole number of vectors; False where an element is computed
        alone.
        """
        return bool(self.lanes) and self.divisible(size, self.lanes)

    def positive(self, size: Expr) -> IndexValue:
        """The size as index, 1 when it is 0 (a divisor that cannot trap)."""
        name = self.b.param(size)
        low = self.constraints.bounds(size)[0]
        if low is not None and low >= 1:
            return name
        return self.b.max(name, 1)

    # ---------------------------------------------------------------- indices

    def zero(self) -> Ix:
        """Index 0."""
        return Ix(self.b.index(0), multiple=0)

    def uniform(self, name: IndexValue) -> Ix:
        """The scalar or vector index `name`."""
        if name.lanes:
            return Ix(self.b.index(0), vector=name)
        value = name.known
        return Ix(name, multiple=1 if value is None else value)

    def steps(self, base: IndexValue, offsets: Sequence[int], multiple: int = 1) -> Ix:
        """`base + offsets[lane]`; `multiple` is a known divisor of `base`."""
        first, step = offsets[0], offsets[1] - offsets[0]
        if all(o == first + step * k for k, o in enumerate(offsets)):
            return Ix(base + first, step, multiple=math.gcd(multiple, first))
        known = self.b.dense_index(offsets)
        vector = known if base.known == 0 else base + known
        return Ix(base, vector=vector, multiple=multiple, offsets=tuple(offsets))

    def lanes_of(self, ix: Ix) -> IndexValue:
        """The index as one vector."""
        if ix.vector is not None:
            return ix.vector
        base = self.b.broadcast(ix.base, self.lanes)
        if ix.stride == 0:
            return base
        steps = self.b.dense_index([ix.stride * k for k in range(self.lanes)])
        return base + steps if ix.base.known != 0 else steps

    def name_of(self, ix: Ix) -> IndexValue:
        """The index as one name: scalar when uniform, else a vector."""
        return ix.base if ix.is_uniform else self.lanes_of(ix)

    def add(self, x: Ix, y: Ix | int | IndexValue) -> Ix:
        """Their sum; `y` may also be the name of an index."""
        if isinstance(y, int):
            y = Ix(self.b.index(y), multiple=y)
        elif isinstance(y, IndexValue):
            y = self.uniform(y)
        if y.multiple == 0 and y.is_uniform:
            return x
        if x.multiple == 0 and x.is_uniform:
            return y
        if x.vector is None and y.vector is None:
            base = x.base + y.base
            return Ix(base, x.stride + y.stride, multiple=math.gcd(x.multiple, y.multiple))
        a, c = self._offsets(x), self._offsets(y)
        if a is not None and c is not None:
            multiple = math.gcd(x.multiple, y.multiple)
            return self.steps(x.base + y.base, [p + q for p, q in zip(a, c, strict=True)], multiple)
        return self.uniform(self.name_of(x) + self.name_of(y))

    def _offsets(self, x: Ix) -> Sequence[int] | None:
        if x.vector is not None:
            return x.offsets
        return [x.stride * lane for lane in range(self.lanes)]

    def scale(self, x: Ix, by: Expr | int) -> Ix:
        """The product `x * by`."""
        if isinstance(by, Expr) and by.is_const:
            by = by.value
        if by == 1:
            return x
        if by == 0 or (x.multiple == 0 and x.is_uniform):
            return self.zero()
        if isinstance(by, int):
            if x.vector is None:
                return Ix(x.base * by, x.stride * by, multiple=abs(x.multiple * by))
            if x.offsets is not None:
                scaled = [o * by for o in x.offsets]
                return self.steps(x.base * by, scaled, abs(x.multiple * by))
            return self.uniform(x.vector * by)
        known = self.lanes if self.fills_vectors(by) else 1
        if x.is_uniform:
            return Ix(x.base * self.b.param(by), multiple=x.multiple * known)
        return self.uniform(self.lanes_of(x) * self.b.param(by))

    def negate_from(self, top: IndexValue, x: Ix) -> Ix:
        """The difference `top - x`."""
        if x.vector is None:
            return Ix(top - x.base, -x.stride)
        if x.offsets is not None:
            return self.steps(top - x.base, [-o for o in x.offsets])
        return self.uniform(top - x.vector)

    def divide(self, x: Ix, by: Expr | int) -> tuple[Ix, Ix]:
        """(x // by, x mod by), x not negative; by 0 is taken for 1."""
        if isinstance(by, int):
            by = Expr.const(by)
        if by.is_const and by.value == 1:
            return x, self.zero()
        divisor = self.positive(by)
        aligned = math.gcd(x.multiple, by.value) if by.is_const else 1
        if not by.is_const and self.fills_vectors(by) and x.multiple % self.lanes == 0:
            aligned = self.lanes
        if x.is_uniform:
            return Ix(x.base // divisor), Ix(x.base % divisor, multiple=aligned)
        if x.vector is None and x.stride == 1 and aligned % self.lanes == 0:
            return Ix(x.base // divisor), Ix(x.base % divisor, 1, multiple=aligned)
        offsets = self._offsets(x)
        if by.is_const and aligned == by.value and offsets is not None and min(offsets) >= 0:
            quotients, rests = zip(*(divmod(offset, by.value) for offset in offsets), strict=True)
            zero = self.b.index(0)
            return self.steps(x.base // divisor, quotients), self.steps(zero, rests, multiple=0)
        whole = self.lanes_of(x)
        quotient = self._vector_quotient(whole, divisor)
        rest = whole - quotient * divisor
        return self.uniform(quotient), self.uniform(rest)

    def _vector_quotient(self, x: IndexValue, divisor: IndexValue) -> IndexValue:
        """Lanes of x // divisor through f64: exact below 2^51; vectors have no integer division."""
        b = self.b
        value = divisor.known
        if value is not None and value & (value - 1) == 0:
            return b.op("arith.shrui", x, x.constant(value.bit_length() - 1))
        top = b.cast("arith.sitofp", b.cast("arith.index_cast", x, "i64"), "f64")
        raw = b.cast("arith.index_cast", divisor, "i64")
        bottom = b.broadcast(b.cast("arith.sitofp", raw, "f64"), self.lanes)
        quotient = b.cast("arith.fptosi", top / bottom, "i64")
        return b.to_index("arith.index_cast", quotient)

    def flat(self, i: int, j: int) -> Ix:
        """The flat index over factors i..j-1."""
        if i == j:
            return self.zero()
        if (i, j) in self.flats:
            base = self.flats[i, j]
            return Ix(base, multiple=1, tile=(i, j))
        if j == i + 1:
            return replace(self.tiles[i], tile=(i, j))
        if self.columns is not None and j == len(self.factors) and i <= self.columns[0]:
            k, columns = self.columns
            head = self.scale(replace(self.flat(i, k), tile=None), self.product(self.factors[k:]))
            return replace(self.add(head, columns), tile=(i, j))
        head = self.flat(i, j - 1)
        ix = self.add(self.scale(replace(head, tile=None), self.factors[j - 1]), self.tiles[j - 1])
        return replace(ix, tile=(i, j))

    # ---------------------------------------------------------------- groups

    def root(self, sizes: Sequence[Expr], i: int, j: int) -> Index:
        """A value whose elements are counted by factors i..j-1."""
        return (Group(tuple(sizes), self.flat_lazy(i, j)),)

    def flat_lazy(self, i: int, j: int) -> Ix:
        """Like :meth:`flat`, but computed only where it is used (`base` is empty until then)."""
        return Ix(None, tile=(i, j))

    def force(self, ix: Ix) -> Ix:
        """`ix` with its base computed."""
        if ix.start is None and ix.tile is not None:
            return self.flat(*ix.tile)
        return ix

    def cut_group(self, group: Group, at: int) -> tuple[Group, Group]:
        """`group` in two, the second from its dimension `at` on."""
        left, right = group.sizes[:at], group.sizes[at:]
        x = group.at
        if _is_one(left):
            return Group(left, self.zero()), Group(right, x)
        if _is_one(right):
            return Group(left, x), Group(right, self.zero())
        if x.tile is not None:
            i, j = x.tile
            if (k := self._factor_at(group, at)) is not None:
                self.used.add(k)
                return Group(left, self.flat_lazy(i, k)), Group(right, self.flat_lazy(k, j))
            self.wanted.append((i, j, self.product(right)))
        quotient, rest = self.divide(self.force(x), self.product(right))
        return Group(left, quotient), Group(right, rest)

    def _factor_at(self, group: Group, at: int) -> int | None:
        """The factor that begins where dimension `at` of `group` does; None: there is none."""
        if group.at.tile is None:
            return None
        i, j = group.at.tile
        right = group.sizes[at:]
        return next(
            (k for k in range(j - 1, i, -1) if self.same_count(self.factors[k:j], right)), None
        )

    def cut(self, index: Index, boundaries: Iterable[int]) -> Index:
        """`index` with a group boundary in front of each of these dimensions.

        First where factors end: a division of what is left has fewer lanes, or none.
        """
        cuts, start = set(boundaries), 0
        out: list[Group] = []
        for group in index:
            out += self._pieces(group, [k for k in range(1, len(group.sizes)) if start + k in cuts])
            start += len(group.sizes)
        return tuple(out)

    def _pieces(self, group: Group, cuts: Sequence[int]) -> list[Group]:
        """`group` cut in front of each of these dimensions."""
        if not cuts:
            return [group]
        free = (k for k in cuts if self._factor_at(group, k) is not None)
        at = next(free, cuts[0]) if len(cuts) > 1 else cuts[0]
        left, right = self.cut_group(group, at)
        after = [k - at for k in cuts if k > at]
        return [*self._pieces(left, [k for k in cuts if k < at]), *self._pieces(right, after)]

    def dims(self, index: Index) -> list[Ix]:
        """The index of every dimension on its own."""
        rank = sum(len(g.sizes) for g in index)
        pieces = self.cut(index, range(1, rank))
        return [self.force(g.at) for g in pieces if g.sizes]

    def of_dims(self, sizes: Sequence[Expr], dims: Sequence[Ix]) -> Index:
        """One group a dimension."""
        return tuple(Group((s,), d) for s, d in zip(sizes, dims, strict=True))

    def merge(self, a: Group, b: Group) -> Group:
        """Two neighbours as one group."""
        sizes = a.sizes + b.sizes
        if _is_one(a.sizes):
            return Group(sizes, b.at)
        if _is_one(b.sizes):
            return Group(sizes, a.at)
        ta, tb = a.at.tile, b.at.tile
        if ta is not None and tb is not None and ta[1] == tb[0]:
            return Group(sizes, self.flat_lazy(ta[0], tb[1]))
        scaled = self.scale(self.force(a.at), self.product(b.sizes))
        return Group(sizes, replace(self.add(scaled, self.force(b.at)), tile=None))

    def reshape(self, index: Index, sizes: Sequence[Expr]) -> Index:
        """The index of the same element in a value of `sizes` with equally many elements."""
        groups, out, taken = list(index), [], 0
        while groups:
            group = groups.pop(0)
            end = self._aligned(group.sizes, sizes, taken, last=not groups)
            while end is None:
                group = self.merge(group, groups.pop(0))
                end = self._aligned(group.sizes, sizes, taken, last=not groups)
            out.append(Group(tuple(sizes[taken:end]), group.at))
            taken = end
        if not out:
            return (Group(tuple(sizes), self.zero()),) if sizes else ()
        return tuple(g for g in out if g.sizes)

    def _aligned(
        self, sizes: Sequence[Expr], new: Sequence[Expr], start: int, last: bool
    ) -> int | None:
        """Where the dimensions of `new` from `start` on have as many elements as `sizes`."""
        if last:
            return len(new)
        return next(
            (e for e in range(start, len(new) + 1) if self.same_count(sizes, new[start:e])), None
        )

    def joined(self, index: Index) -> Index:
        """Neighbouring groups merged where that is free."""
        out: list[Group] = []
        for group in index:
            if out and (m := self._free_merge(out[-1], group)) is not None:
                out[-1] = m
            else:
                out.append(group)
        return tuple(out)

    def _free_merge(self, a: Group, b: Group) -> Group | None:
        ta, tb = a.at.tile, b.at.tile
        neighbours = ta is not None and tb is not None and ta[1] == tb[0]
        return self.merge(a, b) if neighbours or _is_one(a.sizes) or _is_one(b.sizes) else None

    def linear(self, index: Index) -> Ix:
        """The offset of an element in a dense row-major buffer."""
        groups = self.joined(index)
        total, after = self.zero(), Expr.const(1)
        for group in reversed(groups):
            total = self.add(self.scale(self.force(group.at), after), total)
            after = after * self.product(group.sizes)
        return total


def _is_one(sizes: Sequence[Expr]) -> bool:
    """True if these dimensions certainly hold one element."""
    return all(s.is_const and s.value == 1 for s in sizes)
