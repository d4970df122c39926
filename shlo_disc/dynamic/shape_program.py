"""How a call's sizes give its symbols, and what must hold of them: the shape program of `main`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.notation import shortened
from shlo_disc.dynamic.program import (
    Check,
    ShapeProgram,
    Solve,
    argument_places,
    linear,
    shape_text,
    size_symbol,
)
from shlo_disc.dynamic.relations import RELATIONS
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.dialect import complex_arguments, complex_results
from shlo_disc.ir.mlir import ir, terminator


def shape_program(
    main: ir.Operation, shapes: ShapeAnalysis, names: Sequence[str] = ()
) -> ShapeProgram:
    """The shape program of an analysed `main`.

    Raises UnsupportedError when a symbol cannot be worked out from the arguments, and
    InvalidModuleError for a symbol that is in no argument's shape.
    """
    block = main.regions[0].blocks[0]
    last = terminator(block)
    taken, given = complex_arguments(main), complex_results(main)
    # Callers see complex numbers where the program has pairs of numbers.
    results = tuple(
        shapes.shape(v)[:-1] if k in given else shapes.shape(v) for k, v in enumerate(last.operands)
    )
    arguments = tuple(
        shape[:-1] if k in taken else shape for k, shape in enumerate(shapes.arguments)
    )
    paths = tuple(names) or tuple(f"args[{i}]" for i in range(len(arguments)))
    steps = tuple(_solve(arguments, shapes.size_arguments))
    computed = frozenset(shapes.computed)
    checks = tuple(_checks(arguments, [*argument_places(paths, computed)], steps, shapes))
    known = {step.symbol for step in steps}
    used = [e for shape in results for e in shape] + [
        e for g in shapes.guards for e in (g.lhs, g.rhs)
    ]
    for size in used:
        if not size.symbols() <= known:
            names_text = ", ".join(sorted(size.symbols() - known))
            sizes = shortened(", ".join(sorted(known)) or "none")
            raise InvalidModuleError(
                f"the size {size} has {names_text}, no argument's size (these are: {sizes})"
            )
    return ShapeProgram(
        arguments,
        paths,
        results,
        steps,
        checks,
        tuple(sorted(shapes.size_arguments)),
        computed,
        tuple((s.symbol, *shapes.constraints.bounds(Expr.symbol(s.symbol))) for s in steps),
    )


def _solve(
    arguments: Sequence[Sequence[Expr]], elements: Mapping[int, Sequence[str]]
) -> list[Solve]:
    """The symbols in an order in which each follows from one size and those before it."""
    axes = [(i, k, e) for i, shape in enumerate(arguments) for k, e in enumerate(shape)]
    unknown = {name for _, _, size in axes for name in size.symbols()}
    steps = [
        Solve(name, argument, k, 1, Expr.const(0), is_element=True)
        for argument, names in sorted(elements.items())
        for k, name in enumerate(names)
    ]
    unknown -= {step.symbol for step in steps}
    plainness = 0
    while unknown:
        found = _next_steps(axes, unknown, plainness)
        steps += found
        axes = [axis for axis in axes if not unknown.isdisjoint(axis[2].symbols())]
        # A size that is a symbol is one from the start; others get plainer as symbols are solved.
        if found or plainness < 2:
            plainness = 1 if found else plainness + 1
            continue
        names = ", ".join(sorted(unknown))
        shapes = ", ".join(
            shape_text(shape) for shape in arguments if any(e.symbols() & unknown for e in shape)
        )
        raise UnsupportedError(
            f"the sizes {shortened(names)} cannot be worked out from the argument shapes "
            f"{shortened(shapes)}; give "
            "one argument a dimension such as s, 4*s or s + 1 for each of them"
        )
    return steps


def _next_steps(
    axes: Sequence[tuple[int, int, Expr]], unknown: set[str], plainness: int
) -> list[Solve]:
    """What sizes of the form s (0), s + known (1) or c*s + known (2) give; less is `unknown`."""
    steps = []
    for argument, axis, size in axes:
        found = linear(size, unknown)
        if found is None:
            continue
        name, scale, offset = found
        if plainness >= (0 if scale == 1 and offset == 0 else 1 if scale == 1 else 2):
            steps.append(Solve(name, argument, axis, scale, offset))
            unknown.discard(name)
    return steps


def _checks(
    arguments: Sequence[Sequence[Expr]],
    places: Sequence[str],
    steps: Sequence[Solve],
    shapes: ShapeAnalysis,
) -> list[Check]:
    """What a call must satisfy; positive symbols first, for they may be divisors in the others."""
    checks: list[Check] = []
    for step in steps:
        if step.symbol in shapes.positive:
            message = f"the size {step.symbol} must be at least 1"
            checks.append(Check(Expr.symbol(step.symbol), ">=", Expr.const(1), message))
    # Reading s = (size - offset) / 1 makes its own equation true.
    solved = {(s.argument, s.axis) for s in steps if s.scale == 1 and not s.is_element}
    for argument, shape in enumerate(arguments):
        for axis, size in enumerate(shape):
            if not size.is_const and (argument, axis) not in solved:
                read = Expr.symbol(size_symbol(argument, axis))
                message = f"{places[argument]}: dimension {axis} must be {size}"
                checks.append(Check(read, "==", size, message, argument, axis))
    seen = {check.terms for check in checks}
    for guard in shapes.guards:
        if guard.terms not in seen and not _trivial(guard):
            seen.add(guard.terms)
            checks.append(guard)
    return checks


def _trivial(guard: Check) -> bool:
    if guard.lhs.is_const and guard.rhs.is_const:
        return RELATIONS[guard.op](guard.lhs.value, guard.rhs.value)
    return guard.lhs == guard.rhs and guard.op in ("==", "<=", ">=")
