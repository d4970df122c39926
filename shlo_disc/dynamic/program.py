"""The shape program: from the sizes of a call's arguments to symbols, checks and result sizes.

The host program emits the same steps and checks natively; this Python form explains failures and is the
oracle in tests. It runs once per new shape at most, never in the steady state.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import Guard, ShapeAnalysis
from shlo_disc.errors import InvalidModuleError, ShapeMismatchError
from shlo_disc.mlir import ir

__all__ = ["Check", "ShapeProgram", "Solve", "parse_constraint", "size_symbol"]

_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Solve:
    """`symbol = (size - offset) / scale`, where size is dimension `axis` of `argument`."""

    symbol: str
    argument: int
    axis: int
    scale: int
    offset: Expr
    """Over symbols solved before."""

    @property
    def size(self) -> str:
        """The name of the size read, as it occurs in checks."""
        return size_symbol(self.argument, self.axis)


@dataclass(frozen=True)
class Check:
    """`lhs op rhs` over symbols and size names (`size_symbol`)."""

    lhs: Expr
    op: str
    rhs: Expr
    message: str = ""
    """What to say when it fails; "" for the sizes of an argument, which explain themselves."""
    argument: int = -1
    axis: int = -1


def size_symbol(argument: int, axis: int) -> str:
    """The name of an argument's size in checks, distinct from every user symbol."""
    return f"size__{argument}__{axis}"


@dataclass(frozen=True)
class ShapeProgram:
    """Everything a call must work out from the sizes of its arguments."""

    arguments: tuple[tuple[Expr, ...], ...]
    names: tuple[str, ...]
    """Argument paths, for messages."""
    results: tuple[tuple[Expr, ...], ...]
    steps: tuple[Solve, ...]
    checks: tuple[Check, ...]

    @property
    def symbol_names(self) -> list[str]:
        """Symbols in solving order: their place in the symbol array."""
        return [step.symbol for step in self.steps]

    @staticmethod
    def of(main: ir.Operation, shapes: ShapeAnalysis, names: Sequence[str] = ()) -> ShapeProgram:
        """The shape program of an analysed `main`.

        Raises InvalidModuleError when a symbol cannot be worked out from the arguments.
        """
        block = main.regions[0].blocks[0]
        last = block.operations[len(block.operations) - 1].operation
        results = tuple(shapes.shape(v) for v in last.operands)
        arguments = tuple(shapes.arguments)
        if not names:
            names = [f"args[{i}]" for i in range(len(arguments))]
        steps = _solve(arguments)
        checks = _checks(arguments, steps, shapes)
        return ShapeProgram(arguments, tuple(names), results, tuple(steps), tuple(checks))

    def evaluate(
        self, sizes: Sequence[Sequence[int]]
    ) -> tuple[dict[str, int], list[tuple[int, ...]]]:
        """(symbol values, result shapes) for the shapes of all arguments.

        Raises ShapeMismatchError naming the argument, its sizes and the constraint it breaks.
        """
        for index, (shape, want) in enumerate(zip(sizes, self.arguments, strict=True)):
            if len(shape) != len(want):
                raise ShapeMismatchError(
                    f"argument {index} ({self.names[index]!r}): rank is {len(shape)}, but the "
                    f"program takes {_shape_text(want)}, rank {len(want)}"
                )
        env = {
            size_symbol(i, k): int(n) for i, shape in enumerate(sizes) for k, n in enumerate(shape)
        }
        for step in self.steps:
            env[step.symbol] = (env[step.size] - step.offset.evaluate(env)) // step.scale
        for check in self.checks:
            lhs, rhs = check.lhs.evaluate(env), check.rhs.evaluate(env)
            if not _COMPARE[check.op](lhs, rhs):
                raise ShapeMismatchError(self.explain(check, env))
        values = {name: env[name] for name in self.symbol_names}
        return values, [tuple(e.evaluate(env) for e in shape) for shape in self.results]

    def explain(self, check: Check, env: dict[str, int]) -> str:
        """The sentence for a check that fails with these sizes."""
        sources = [
            f"{s.symbol} = {env[s.symbol]} was read from dimension {s.axis} of argument "
            f"{s.argument} ({self.names[s.argument]!r})"
            for s in self.steps
            if s.symbol in (check.lhs.symbols() | check.rhs.symbols())
        ]
        because = f" ({'; '.join(sources)})" if sources else ""
        if check.message:
            return f"{check.message}: {check.lhs.evaluate(env)} {check.op} {check.rhs.evaluate(env)} " \
                   f"does not hold{because}"  # fmt: skip
        got = env[size_symbol(check.argument, check.axis)]
        wanted = self.arguments[check.argument][check.axis]
        where = f"argument {check.argument} ({self.names[check.argument]!r})"
        value = "" if wanted.is_const else f" = {wanted.evaluate(env)}"
        return f"{where}: dimension {check.axis} is {got}, but it must be {wanted}{value}{because}"


def _solve(arguments: Sequence[Sequence[Expr]]) -> list[Solve]:
    unknown = set().union(*(e.symbols() for shape in arguments for e in shape))
    axes = [(i, k, e) for i, shape in enumerate(arguments) for k, e in enumerate(shape)]
    steps: list[Solve] = []
    while unknown:
        found = _next_step(axes, unknown)
        if found is None:
            raise InvalidModuleError(
                f"the sizes {', '.join(sorted(unknown))} cannot be worked out from the argument "
                f"shapes; give one argument a dimension that is linear in each of them"
            )
        steps.append(found)
        unknown.discard(found.symbol)
    return steps


def _next_step(axes: Sequence[tuple[int, int, Expr]], unknown: set[str]) -> Solve | None:
    """The plainest axis that determines one unknown symbol: a lone symbol, else a*s + known."""
    best: tuple[int, Solve] | None = None
    for argument, axis, size in axes:
        left = size.symbols() & unknown
        if len(left) != 1:
            continue
        (name,) = left
        linear = [
            (m, c)
            for m, c in size.terms
            if any(name in Expr({((a, 1),): 1}).symbols() for a, _ in m)
        ]
        if len(linear) != 1:
            continue
        monomial, scale = linear[0]
        if len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0].key != name:
            continue
        offset = size - Expr.symbol(name) * scale
        rank = 0 if scale == 1 and offset == 0 else 1
        if best is None or rank < best[0]:
            best = (rank, Solve(name, argument, axis, scale, offset))
        if rank == 0:
            break
    return None if best is None else best[1]


def _checks(
    arguments: Sequence[Sequence[Expr]], steps: Sequence[Solve], shapes: ShapeAnalysis
) -> list[Check]:
    checks: list[Check] = []
    plain = {(s.argument, s.axis) for s in steps if s.scale == 1}
    for argument, shape in enumerate(arguments):
        for axis, size in enumerate(shape):
            if not size.is_const and (argument, axis) not in plain:
                read = Expr.symbol(size_symbol(argument, axis))
                checks.append(Check(read, "==", size, "", argument, axis))
    for step in steps:
        if step.symbol in shapes.positive:
            message = f"the size {step.symbol} must be at least 1"
            checks.append(Check(Expr.symbol(step.symbol), ">=", Expr.const(1), message))
    seen: set[tuple[Expr, str, Expr]] = {(c.lhs, c.op, c.rhs) for c in checks}
    for guard in shapes.guards:
        key = (guard.lhs, guard.op, guard.rhs)
        if key not in seen and not _trivial(guard):
            seen.add(key)
            checks.append(Check(guard.lhs, guard.op, guard.rhs, guard.message))
    return checks


def _trivial(guard: Guard) -> bool:
    if guard.lhs.is_const and guard.rhs.is_const:
        return bool(_COMPARE[guard.op](guard.lhs.value, guard.rhs.value))
    return guard.lhs == guard.rhs and guard.op in ("==", "<=", ">=")


def _shape_text(shape: Sequence[Expr]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def parse_constraint(text: str) -> tuple[Expr, str, Expr]:
    """(lhs, op, rhs) of a constraint in `jax.export` notation such as "mod(t, 4) == 0" or "b >= 4".

    Raises ValueError with the text when it is not one.
    """
    parts = re.split(r"(==|!=|<=|>=|<|>)", text)
    if len(parts) != 3:
        raise ValueError(f"{text!r} is not a constraint such as 'b >= 4' or 'mod(t, 4) == 0'")
    return Expr.parse(parts[0]), parts[1], Expr.parse(parts[2])
