"""A jaxpr cut into parts: those we compile, those XLA runs, and reads of sizes from data.

    a = tanh x         -> part 0, compiled
    b = fft a          -> part 1, by XLA
    c = mul b b
    d = real c
    e = exp d          -> part 2, compiled

Equations go to the earliest part of their kind that their operands allow, so that there are few
parts. Equations without operands (`iota`, broadcasts of numbers) are repeated in every part that
reads them. Equations with effects keep their order, and so do reads of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from shlo_disc.base.records import dataclass
from shlo_disc.jax.equations.at_sizes import symbols_in, symbols_of
from shlo_disc.jax_private.calls import called
from shlo_disc.jax_private.extend import ClosedJaxpr, DebugInfo, Jaxpr, Literal, Var

COMPILED, XLA, READ = "compiled", "XLA", "read"
"""Kinds of parts: a program of ours, equations that XLA runs, a size that is read from data."""


@dataclass(frozen=True)
class Flat:
    """The equations of a closed jaxpr with calls inlined."""

    equations: tuple[Any, ...]
    arguments: tuple[Any, ...]
    results: tuple[Any, ...]
    """Variables or literals."""
    constants: dict[Any, Any]
    """The values of variables that are constants."""


@dataclass(frozen=True)
class Part:
    """Equations that run together, in order."""

    kind: str
    equations: tuple[Any, ...]
    inputs: tuple[Any, ...]
    """Variables that are arguments of the program or outputs of earlier parts."""
    outputs: tuple[Any, ...]
    """Variables that later parts or the results of the program read."""


def flatten(closed: Any, opens: Callable[[Any], bool]) -> Flat:
    """The equations of a closed jaxpr, with the bodies of those calls for which `opens` is true."""
    constants: dict[Any, Any] = {}
    equations, results = _body(closed, None, opens, constants)
    arguments = tuple(closed.jaxpr.invars)
    return Flat(tuple(equations), arguments, tuple(results), constants)


def _body(
    closed: Any,
    operands: Sequence[Any] | None,
    opens: Callable[[Any], bool],
    constants: dict[Any, Any],
) -> tuple[list[Any], list[Any]]:
    """The equations of a jaxpr that is called with `operands`, and its results, in variables of the
    whole; its constants are added to `constants`. No operands: it is the whole.
    """
    jaxpr = closed.jaxpr
    known: dict[Any, Any] = {}
    if operands is not None:  # a body may be shared by several calls
        known.update(zip(jaxpr.invars, operands, strict=True))
    constants.update(zip(jaxpr.constvars, closed.consts, strict=True))

    def named(atom: Any) -> Any:
        return atom if isinstance(atom, Literal) else known.get(atom, atom)

    found: list[Any] = []
    for equation in jaxpr.eqns:
        inputs = [named(atom) for atom in equation.invars]
        if opens(equation):
            inside, results = _body(called(equation), inputs, opens, constants)
            found += inside
            known.update(zip(equation.outvars, results, strict=True))
            continue
        outputs = list(equation.outvars)
        if operands is not None:
            outputs = [Var(variable.aval) for variable in outputs]
            known.update(zip(equation.outvars, outputs, strict=True))
        found.append(equation.replace(invars=inputs, outvars=outputs))
    return found, [named(atom) for atom in jaxpr.outvars]


def partition(flat: Flat, kinds: Sequence[str], fresh: Mapping[str, Any]) -> list[Part]:
    """The parts of a program, in an order in which they can run.

    `kinds`: one of `COMPILED`, `XLA` and `READ` for every equation. `fresh`: the variable whose
    equation reads a size from data, for every symbol of such a size.
    """
    equations = flat.equations
    maker = {v: k for k, equation in enumerate(equations) for v in equation.outvars}
    needs = [_needs(equation, maker, fresh) for equation in equations]
    free = [False] * len(equations)
    depth = [0] * len(equations)
    last_effect = last_read = 0
    for k, equation in enumerate(equations):
        makers = _placed(needs[k], needs, free)
        free[k] = (
            kinds[k] == COMPILED
            and not equation.effects
            and equation.primitive.name != "pure_callback"
            and all(isinstance(a, Literal) or (a in maker and free[maker[a]])
                    for a in equation.invars)
        )  # fmt: skip
        alone = kinds[k] == READ
        depth[k] = max((depth[m] + (alone or kinds[m] != kinds[k]) for m in makers), default=0)
        if equation.effects:
            depth[k] = last_effect = max(depth[k], last_effect)
        if kinds[k] == READ:  # which sizes are read may depend on those read before
            depth[k] = last_read = max(depth[k], last_read)
    groups: dict[tuple[int, str], list[int]] = {}
    for k in range(len(equations)):
        if not free[k]:
            groups.setdefault((depth[k], kinds[k]), []).append(k)
    parts = [
        (kind, sorted({*group, *_free_makers(group, needs, free)}))
        for (_, kind), group in sorted(groups.items())
    ]
    results = [v for v in flat.results if not isinstance(v, Literal)]
    left = [maker[v] for v in results if v in maker and free[maker[v]]]
    if left:  # results that depend on no argument
        parts.append((COMPILED, sorted({*left, *_free_makers(left, needs, free)})))
    return _with_boundaries(flat, parts)


def _needs(equation: Any, maker: Mapping[Any, int], fresh: Mapping[str, Any]) -> list[int]:
    """The equations that make the operands of an equation, and the sizes it speaks of."""
    found = [maker[a] for a in equation.invars if not isinstance(a, Literal) and a in maker]
    read = (fresh[s] for s in symbols_of(equation) if s in fresh)
    found += [maker[v] for v in read if v not in equation.outvars]
    return list(dict.fromkeys(found))


def _placed(direct: Sequence[int], needs: Sequence[Sequence[int]], free: Sequence[bool]
            ) -> list[int]:  # fmt: skip
    """The equations with a place of their own that `direct` are, or depend on."""
    found, todo = [], list(direct)
    while todo:
        k = todo.pop()
        if free[k]:
            todo += needs[k]
        else:
            found.append(k)
    return found


def _free_makers(group: Iterable[int], needs: Sequence[Sequence[int]], free: Sequence[bool]
                 ) -> Iterator[int]:  # fmt: skip
    todo = [m for k in group for m in needs[k]]
    while todo:
        k = todo.pop()
        if free[k]:
            yield k
            todo += needs[k]


def _with_boundaries(flat: Flat, groups: Sequence[tuple[str, Sequence[int]]]) -> list[Part]:
    """Parts with what they read and what later ones need."""
    read_later: set[Any] = {v for v in flat.results if not isinstance(v, Literal)}
    parts: list[Part] = []
    for kind, group in reversed(groups):
        equations = [flat.equations[k] for k in group]
        outputs = [v for e in equations for v in e.outvars if v in read_later]
        part = part_of(flat, kind, equations, outputs)
        parts.append(part)
        read_later -= set(outputs)  # earlier parts that repeat an equation keep it to themselves
        read_later |= set(part.inputs)
    return parts[::-1]


def part_of(flat: Flat, kind: str, equations: Sequence[Any], outputs: Iterable[Any]) -> Part:
    """A part with what its equations read from others; constants of the program aside."""
    made = {v for equation in equations for v in equation.outvars}
    inputs = dict.fromkeys(
        a
        for equation in equations
        for a in equation.invars
        if not isinstance(a, Literal) and a not in made and a not in flat.constants
    )
    return Part(kind, tuple(equations), tuple(inputs), tuple(outputs))


def closed_part(flat: Flat, part: Part) -> ClosedJaxpr:
    """A part as a closed jaxpr from its inputs to its outputs."""
    used = {a for e in part.equations for a in e.invars if not isinstance(a, Literal)}
    constants = [v for v in flat.constants if v in used]
    info = DebugInfo("part", "shlo_disc", None, None)
    effects = {effect for equation in part.equations for effect in equation.effects}
    jaxpr: Any = Jaxpr(
        constants, part.inputs, part.outputs, part.equations, effects, debug_info=info
    )
    return ClosedJaxpr(jaxpr, [flat.constants[v] for v in constants])


def symbols_of_part(part: Part) -> set[str]:
    """The symbols in the types of a part's inputs and in its equations."""
    found = {s for v in part.inputs for s in symbols_in(v.aval)}
    return found | {s for equation in part.equations for s in symbols_of(equation)}
