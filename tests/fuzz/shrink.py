"""Makes a failing program small: fewer results, steps, calls, and smaller sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from tests.fuzz.program import (
    Block,
    Body,
    Program,
    Step,
    free_names,
    free_of_block,
)

Fails = Callable[[Program], bool]


def shrunk(program: Program, fails: Fails, most: int = 300) -> Program:
    """The smallest program found that fails; `fails` is asked at most `most` times."""
    asked = 0
    seen: set[str] = set()

    def still(candidate: Program) -> bool:
        nonlocal asked
        text = candidate.script()
        if asked >= most or text in seen:
            return False
        seen.add(text)
        asked += 1
        return fails(candidate)

    if still(tidy(program)):
        program = tidy(program)
    while asked < most:
        before = program.script()
        for ways in (_calls, _results, _prefixes, _steps, _bodies, _sizes, _kinds):
            program = _descend(program, ways, still)
        if program.script() == before:
            break
    return program


def _descend(
    program: Program, ways: Callable[[Program], Iterator[Program]], still: Fails
) -> Program:
    """Follow the ways as long as one leads down."""
    while True:
        for candidate in ways(program):
            smaller = tidy(candidate)
            if still(smaller):
                program = smaller
                break
        else:
            return program


def _results(program: Program) -> Iterator[Program]:
    names = program.block.results
    if len(names) > 1:
        for name in names:
            yield _returning(program, (name,))
        for name in names:
            yield _returning(program, tuple(n for n in names if n != name))


def _returning(program: Program, names: tuple[str, ...]) -> Program:
    return replace(program, block=replace(program.block, results=names), structure="tuple")


def _prefixes(program: Program) -> Iterator[Program]:
    """The first half of the steps becomes arguments; a quarter; ..."""
    count = len(program.block.steps)
    for length in (count - 1, count - 2, 3 * count // 4, count // 2, count // 4):
        if 1 < length < count:
            cut = program
            for step in program.block.steps[:length]:
                cut = _as_arguments(cut, step) or cut
            if cut is not program:
                yield cut


def _as_arguments(program: Program, step: Step) -> Program | None:
    """The results of a step become arguments."""
    if any(name not in program.values for name in step.results):
        return None
    added = tuple(
        a for name in step.results if (a := program.argument_of(program.values[name])) is not None
    )
    if len(added) != len(step.results):
        return None
    block = _mapped(program.block, lambda s: () if s.results == step.results else (s,))
    return replace(program, arguments=program.arguments + added, block=block)


def _steps(program: Program) -> Iterator[Program]:
    """One step less: its results are values that are there, or arguments."""
    for step in reversed(program.block.steps):
        cut = _as_arguments(program, step)
        if cut is not None:
            yield cut
    for step in reversed(list(_all_steps(program.block))):
        for operand in step.operands:
            yield from _instead(program, step, operand)
        if step.results[0] in program.values:
            for value in program.values.values():
                if value.name not in step.operands:
                    yield from _instead(program, step, value.name)


def _instead(program: Program, step: Step, name: str) -> Iterator[Program]:
    values = program.values
    if len(step.results) != 1 or step.results[0] not in values or name not in values:
        return
    old, new = values[step.results[0]], values[name]
    if (old.dtype, old.shapes) != (new.dtype, new.shapes) or not new.facts.implies(old.facts):
        return
    if name not in _defined_before(program, step):
        return
    block = _mapped(program.block, lambda s: () if s.results == step.results else (s,))
    yield replace(program, block=_renamed(block, {step.results[0]: name}))


def _defined_before(program: Program, step: Step) -> set[str]:
    """The names visible at a step."""

    def inside(block: Block, names: set[str]) -> set[str] | None:
        names = set(names)
        for s in block.steps:
            if s.results == step.results:
                return names
            for body in s.bodies:
                found = inside(body.block, names | set(body.defined))
                if found is not None:
                    return found
            names |= set(s.results)
        return None

    return inside(program.block, {a.name for a in program.arguments}) or set()


def _all_steps(block: Block) -> Iterator[Step]:
    for step in block.steps:
        yield step
        for body in step.bodies:
            if not body.is_fixed:
                yield from _all_steps(body.block)


def _bodies(program: Program) -> Iterator[Program]:
    """A body returns its parameter instead; a step of a body becomes an argument."""
    for step in _all_steps(program.block):
        for body in step.bodies:
            if body.is_fixed:
                continue
            for inner in body.block.steps:
                cut = _as_arguments(program, inner)
                if cut is not None:
                    yield cut
            for index, result in enumerate(body.block.results):
                for name in body.defined:
                    old, new = program.values.get(result), program.values.get(name)
                    if name == result or old is None or new is None:
                        continue
                    if (old.dtype, old.shapes) != (new.dtype, new.shapes):
                        continue
                    results = list(body.block.results)
                    results[index] = name
                    block = replace(body.block, results=tuple(results))
                    yield replace(program, block=_with_body(program.block, body, block))


def _with_body(block: Block, body: Body, new: Block) -> Block:
    def changed(step: Step) -> tuple[Step, ...]:
        bodies = tuple(replace(b, block=new) if b.name == body.name else b for b in step.bodies)
        return (replace(step, bodies=bodies),)

    return _mapped(block, changed)


def _calls(program: Program) -> Iterator[Program]:
    if program.calls == 1:
        return
    for call in range(program.calls):
        yield _with_calls(program, [call])
    for call in range(program.calls):
        yield _with_calls(program, [c for c in range(program.calls) if c != call])


def _with_calls(program: Program, kept: list[int]) -> Program:
    """Only these calls. The seeds of arguments move along for one call."""
    shift = kept[0]
    arguments = tuple(
        replace(a, shapes=tuple(a.shapes[c] for c in kept), seed=a.seed + shift)
        for a in program.arguments
    )
    values = {
        name: replace(v, shapes=tuple(v.shapes[c] for c in kept))
        for name, v in program.values.items()
    }
    return replace(program, arguments=arguments, values=values)


def _sizes(program: Program) -> Iterator[Program]:
    """One size smaller, wherever it occurs in a call; the types of values are not told."""
    if not program.is_typed_later:
        return
    for call in range(program.calls):
        for size in sorted({s for a in program.arguments for s in a.shapes[call]}, reverse=True):
            for smaller in (1, 2, 3, size // 2, size - 1):
                if 0 < smaller < size:
                    yield _resized(program, call, {size: smaller})


def _resized(program: Program, call: int, sizes: Mapping[int, int]) -> Program:
    def shape(shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(sizes.get(s, s) for s in t) if c == call else t for c, t in enumerate(shapes)
        )

    arguments = tuple(replace(a, shapes=shape(a.shapes)) for a in program.arguments)
    # The shapes of values in between are only read to make arguments of them: none from now on.
    values = {n: v for n, v in program.values.items() if n in program.block.results}
    return replace(program, arguments=arguments, values=values)


def _kinds(program: Program) -> Iterator[Program]:
    """Simpler numbers."""
    simpler = {"special": "grid", "normal": "grid", "wide": "small", "grid": "unit"}
    for index, a in enumerate(program.arguments):
        if a.kind in simpler:
            new = replace(a, kind=simpler[a.kind])
            arguments = (*program.arguments[:index], new, *program.arguments[index + 1 :])
            yield replace(program, arguments=arguments)


def _mapped(block: Block, change: Callable[[Step], tuple[Step, ...]]) -> Block:
    """The block with every step changed, those of bodies first."""

    def inside(step: Step) -> tuple[Step, ...]:
        bodies = tuple(replace(b, block=_mapped(b.block, change)) for b in step.bodies)
        return change(replace(step, bodies=bodies))

    return replace(block, steps=tuple(s for step in block.steps for s in inside(step)))


def _renamed(block: Block, names: Mapping[str, str]) -> Block:
    rename = partial(tuple[str, ...])

    def change(step: Step) -> tuple[Step, ...]:
        bodies = tuple(
            replace(
                b, block=replace(b.block, results=rename(names.get(n, n) for n in b.block.results))
            )
            for b in step.bodies
        )
        operands = rename(names.get(n, n) for n in step.operands)
        return (replace(step, operands=operands, bodies=bodies),)

    block = _mapped(block, change)
    return replace(block, results=rename(names.get(n, n) for n in block.results))


def tidy(program: Program) -> Program:
    """Without steps and arguments nothing reads."""
    block = _without_dead(program.block)
    read = set(free_of_block(block, ()))
    arguments = tuple(a for a in program.arguments if a.name in read)
    return replace(program, block=block, arguments=arguments or program.arguments[:1])


def _without_dead(block: Block) -> Block:
    live = set(block.results)
    kept: list[Step] = []
    for step in reversed(block.steps):
        if live & set(step.results):
            bodies = tuple(replace(b, block=_without_dead(b.block)) for b in step.bodies)
            step = replace(step, bodies=bodies)
            kept.append(step)
            live |= set(free_names(step))
    return replace(block, steps=tuple(reversed(kept)))
