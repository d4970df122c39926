"""Which equations of a program cannot be compiled.

Effects other than those of callbacks are seen at once. For all others the compiler is asked, for
parts and then for halves of parts, without generating code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.jax.equations.partition import (
    COMPILED,
    READ,
    XLA,
    Flat,
    Part,
    flatten,
    part_of,
    partition,
)
from shlo_disc.jax.sizes.fresh import read_size_p
from shlo_disc.jax_private.callbacks import is_callback_effect
from shlo_disc.jax_private.calls import CALLS, called
from shlo_disc.jax_private.extend import DropVar
from shlo_disc.jax_private.jaxprs import equation_line, equations_of, jaxprs_inside

_PLAIN = frozenset(("pjit", "jit", "closed_call", "core_call"))
"""Calls that mean no more than the equations inside."""

_LOCATION = re.compile(r"^\S+:\d+(:\d+)?: ")
"""`model.py:7: ` in front of a message."""

_RULES = frozenset(("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"))
"""Calls with a derivative of their own."""


class Kinds:
    """The equations of a program, calls inlined where necessary, with the kind of each."""

    def __init__(self, flat: Flat, reasons: dict[int, str], *, keeps_rules: bool) -> None:
        self.flat = flat
        self.reasons = reasons
        """Why an equation, by its index, is not compiled."""
        self.keeps_rules = keeps_rules
        """False if derivatives of the user's (`custom_jvp`, `custom_vjp`) had to be left out."""
        self.kinds = [
            READ if e.primitive is read_size_p else XLA if k in reasons else COMPILED
            for k, e in enumerate(flat.equations)
        ]
        self.fresh = {
            str(e.params["size"]): e.outvars[0]
            for e in flat.equations
            if e.primitive is read_size_p
        }

    @property
    def parts(self) -> list[Part]:
        """The program in parts."""
        return partition(self.flat, self.kinds, self.fresh)

    def with_reasons(self, late: Mapping[int, str]) -> Kinds:
        """The same with more equations that are not compiled, by their `id`."""
        more = {k: late[id(e)] for k, e in enumerate(self.flat.equations) if id(e) in late}
        return Kinds(self.flat, {**self.reasons, **more}, keeps_rules=self.keeps_rules)

    def told(self) -> list[str]:
        """`fft (model.py:7), abs (model.py:8): why`, once for each reason."""
        found: dict[str, dict[str, None]] = {}
        for index, reason in sorted(self.reasons.items()):
            equation = self.flat.equations[index]
            line = equation_line(equation)
            where = f"{equation.primitive.name}{f' ({line})' if line else ''}"
            found.setdefault(reason, {})[where] = None
        return [f"{', '.join(where)}: {reason}" for reason, where in found.items()]


def kinds_of(closed: Any, refuse: Callable[[Flat, Part], Exception | None]) -> Kinds:
    """The equations of a closed jaxpr with their kinds.

    `refuse` tells why a part cannot be compiled, or None. Raises UnsupportedError for a size that
    is read inside a loop or a branch.
    """
    opened: set[int] = set()
    keeps_rules = True

    def opens(equation: Any) -> bool:
        name = equation.primitive.name
        return name in _PLAIN or (name in CALLS and id(called(equation).jaxpr) in opened)

    while True:
        flat = flatten(closed, opens)
        kinds = Kinds(flat, _seen_at_once(flat), keeps_rules=keeps_rules)
        for part in kinds.parts:
            if part.kind == COMPILED:
                found = dict(_refused(flat, part.equations, refuse))
                index = {id(e): k for k, e in enumerate(flat.equations)}
                kinds.reasons.update((index[e], why) for e, why in found.items())
        calls = [e for k, e in enumerate(flat.equations)
                 if k in kinds.reasons and e.primitive.name in CALLS]  # fmt: skip
        if not calls:
            return Kinds(flat, kinds.reasons, keeps_rules=keeps_rules)
        opened.update(id(called(call).jaxpr) for call in calls)
        keeps_rules &= not any(call.primitive.name in _RULES for call in calls)


def _seen_at_once(flat: Flat) -> dict[int, str]:
    found: dict[int, str] = {}
    for index, equation in enumerate(flat.equations):
        if equation.primitive is read_size_p:
            continue
        nested = (e for jaxpr in jaxprs_inside(equation) for e in equations_of(jaxpr))
        for inner in (equation, *nested):
            if inner.primitive is read_size_p and equation.primitive.name not in CALLS:
                raise UnsupportedError(
                    f"{equation_line(inner)}: a size that depends on data is read inside "
                    f"{equation.primitive.name}; read it outside, or give a bound: size="
                )
            why = _plain_reason(inner)
            if why is not None:
                found[index] = why
                break
    return found


def _plain_reason(equation: Any) -> str | None:
    if equation.primitive is read_size_p:
        return "it reads a size from data"  # the call around it is opened
    others = {type(e).__name__ for e in equation.effects if not is_callback_effect(e)}
    return f"it has an effect ({', '.join(sorted(others))})" if others else None


def _refused(
    flat: Flat, equations: Sequence[Any], refuse: Callable[[Flat, Part], Exception | None]
) -> Iterator[tuple[int, str]]:
    """(id, why) of the equations that cannot be compiled."""
    made = (v for e in equations for v in e.outvars if not isinstance(v, DropVar))
    why = refuse(flat, part_of(flat, COMPILED, equations, made))
    if why is None:
        return
    half = len(equations) // 2
    found = [
        item
        for some in ((equations[:half], equations[half:]) if half else ())
        for item in _refused(flat, some, refuse)
    ]
    if found:
        yield from found
    else:  # one equation, or several that only fail together
        plain = _LOCATION.sub("", str(why).splitlines()[0].split(";")[0])
        yield from ((id(equation), plain) for equation in equations)
