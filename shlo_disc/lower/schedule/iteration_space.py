"""The iteration space of an element-wise kernel: which dimensions are loops of their own."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Protocol, TypeVar

from shlo_disc.dynamic.expr import Expr


class Accesses(Protocol):
    """How the accesses of a kernel cut its factors; see `values.index.Space`."""

    used: set[int]
    wanted: list[tuple[int, int, Expr]]


class Written(Protocol):
    """A kernel that was written over factors."""

    @property
    def space(self) -> Accesses:
        """What its accesses ask for."""


W = TypeVar("W", bound=Written)


def shape_tile_space(
    sizes: Sequence[Expr],
    write: Callable[..., W],
    lanes: int,
    equal: Callable[[Expr, Expr], bool],
    keeps: Callable[[W], bool],
    fitting: int,
) -> tuple[list[Expr], int, W]:
    """The factors of the tile space: `sizes` cut where accesses ask for it, else collapsed.

    With them the size of the last factor where lanes run over the last two, else 1. `keeps` says
    that a kernel has use for a constant innermost factor of its own. Of others, lanes run over the
    last two where `fitting` of the last one, or more, are a vector.
    """
    factors = list(sizes)
    written = write(factors)
    for _ in range(3):
        finer = refine(factors, written.space.wanted, equal)
        if finer == factors:
            break
        factors, written = finer, write(finer)
    out = merged(factors, written.space.used)
    factors, written = list(out), written if out == factors else write(out)
    # A tiny innermost factor leaves most lanes empty. One that divides the lanes has an index known
    # in every lane; else rather divide lane by lane.
    short = len(out) > 1 and out[-1].is_const
    if short and keeps(written):
        return out, 1, written
    if short and 1 < out[-1].value <= lanes // fitting and lanes % out[-1].value == 0:
        return out, out[-1].value, write(out, out[-1].value)
    while len(out) > 1 and out[-1].is_const and out[-1].value <= lanes // 4:
        last = out.pop()
        out[-1] = out[-1] * last
    return out, 1, written if out == factors else write(out)


def merged(factors: Sequence[Expr], used: Container[int]) -> list[Expr]:
    """`factors` of which those are one between which no boundary is `used`."""
    out: list[Expr] = []
    for k, factor in enumerate(factors):
        if k and k not in used:
            out[-1] = out[-1] * factor
        else:
            out.append(factor)
    return out


def _is_zero(size: Expr) -> bool:
    return size.is_const and size.value == 0


def refine(
    factors: Sequence[Expr],
    wanted: Iterable[tuple[int, int, Expr]],
    equal: Callable[[Expr, Expr], bool],
) -> list[Expr]:
    """`factors` cut finer where a wish falls inside one and divides it exactly; nothing is cut
    where a size is 0, for there is no element.
    """
    if any(_is_zero(factor) for factor in factors):
        return list(factors)
    cuts: dict[int, Expr] = {}
    for i, j, suffix in wanted:
        after = Expr.const(1)
        for k in range(j - 1, i - 1, -1):
            inner = suffix // after if not suffix.is_const or after.is_const else None
            if inner is None or _is_zero(inner) or not equal(inner * after, suffix):
                break
            factor = factors[k]
            if not (inner.is_const and factor.is_const) or inner.value < factor.value:
                outer = factor // inner
                if equal(outer * inner, factor) and k not in cuts:
                    if not (outer.is_const and outer.value == 1):
                        cuts[k] = inner
                    break
            after = after * factor
    out: list[Expr] = []
    for k, factor in enumerate(factors):
        out += [factor // cuts[k], cuts[k]] if k in cuts else [factor]
    return out
