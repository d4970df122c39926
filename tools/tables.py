"""Print the pages of `PAGES` from the tables that they show; `--check` compares."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shlo_disc.base.flags import FLAGS
from shlo_disc.ir.element_types import COMPLEX_TYPES, ELEMENT_TYPES
from shlo_disc.ir.ops import OPS
from shlo_disc.jax.versions.modes import USE_XLA, Event, Mode, next_mode
from shlo_disc.tools.op_row import coverage
from tools.acceptance_exceptions import CASES, MISSES
from tools.rooms import ROOMS, imports_between

_DOCS = Path(__file__).parents[1] / "docs"

_ENV = """# Environment variables

<!-- Printed by `tools/tables.py` from `base/flags.py`; do not edit. -->

Values are read when they are needed; a value that is not allowed raises ValueError. In Python,
`with shlo_disc.flags.overridden(debug=2):` sets one for a block.

| Variable | Default | Allowed | Meaning |
|---|---|---|---|
"""
_CALLS = """# How a call runs

<!-- Printed by `tools/tables.py`, with the tables of `jax/versions/modes.py`; do not edit. -->

The first point that fits a call of a function of `shlo_disc.jit` says what runs it.

1. Structure, types and sizes came before: its entry, in C++ (`ral.Dispatcher`). An argument that
   needs a conversion takes the way through Python. After some calls on a GPU, or with many
   results, XLA runs the entry as a custom call, which waits for nothing.
2. Its sizes fit a compiled version: the same, in C++.
3. It is made under `jax.disable_jit`: the function itself.
4. Its arrays are on several devices: `jax.jit` of our calls, one block on each device. Without such
   blocks: `jax.jit` of the function.
5. Its family is in mode `BY_JAX`: `jax.jit` of the function.
6. It has symbolic sizes, or is inside a trace of ours: the function is a part of that program.
7. It is inside another trace, and has tracers or reads variables of that trace: one equation, which
   calls the version or its parts.
8. With `background=True`, its version is not compiled yet: `jax.jit` of the function, while a
   thread compiles.
9. Any other: the version that fits, found or made. An entry of it is kept.

A function that has no meaning without the program around it (`PartOfOuterError`) is a part of that
program in this call. No mode changes by that.

## Modes

A family is the calls of one structure, types, static arguments, configuration and target. Its mode
says what a new version is.

| Mode | A new version is |
|---|---|
{modes}
## Events

| Event | |
|---|---|
{events}
The mode after each event. `error`: the mode stays, and the call raises. Modes with a star need
`on_unsupported="xla"`; without it the event is an error.

| Mode |{heads}
|---|{lines}
{rows}
A mode never goes back, so an event is about the mode in which its version was made: where another
thread has left that mode, the version is made anew in the next one. `cache_clear` forgets families
with their modes.

Two facts hold in any mode. `Family.checked`: every new shape is compared with a trace at its sizes.
`Family.may_capture`: calls inside a trace are searched for variables of that trace.
"""
_ROOMS = """# Rooms

<!-- Printed by `tools/tables.py` from the imports of the modules; do not edit. -->

A room is a package. It imports from itself and from rooms above it in this table.
[Architecture](architecture.md) says what each room holds.

| Room | Imports from |
|---|---|
"""
_COVERAGE = """# Coverage

<!-- Printed by `tools/tables.py` from `shlo_disc/ir/ops/`; do not edit. -->

Every op of StableHLO, with the way it is compiled. A program with a refused op raises
`UnsupportedError`; under `shlo_disc.jit` XLA runs that part, unless `on_unsupported="error"`.
`@name` is a target of `stablehlo.custom_call`.

Error is the largest one of a function of floats, in units in the last place (ULP) of the exact
result: in f32, then in f64. Tests sample each and hold it to this bound. Denormal results have the
unit of the smallest normal numbers. Narrower floats are computed in f32 and rounded once: their
error is below 0.51. `exact` is what IEEE 754 rounds correctly or the specification defines to the
bit.

| Op | Compiled as | Element types | Error | Note |
|---|---|---|---|---|
"""
_TAIL = """
Element types: {names}.

Signed and unsigned integers have 2 to 64 bits. Elements of fewer than 8 bits have a byte each in
memory; a call unpacks arrays of 2 and 4 bits, which JAX packs, and packs such results. Complex
numbers are computed as real and imaginary parts.

## Programs of others

`make acceptance` runs StableHLO's and JAX's own tests with their expected results, whole. It fails
on a program that misses the tolerance stated with it and is not listed here. It checks the cause of
every exception, too: one that passes, or that misses for another cause, fails. The list is that of
machines with AVX-512; on others, sums have another order, and misses of rounding differ. Where a
case of `torch_e2e` itself is wrong (its lowering, its input), the cause says so.

| Archive | Programs | Pass | Exceptions |
|---|---|---|---|
{archives}
{exceptions}"""


def archives() -> str:
    """The lines of the outside programs, and of their sum."""
    missed = dict.fromkeys(CASES, 0)
    for miss in MISSES:
        missed[miss.archive] += len(miss.names)
    rows = [(f"`{name}`", count, missed[name]) for name, count in CASES.items()]
    rows.append(("all", sum(CASES.values()), sum(missed.values())))
    return "".join(f"| {n} | {of:,} | {of - no:,} | {no} ({no / of:.1%}) |\n" for n, of, no in rows)


def exceptions() -> str:
    """Every cause, with reasons and the programs that miss for them."""
    text = ""
    for cause in dict.fromkeys(miss.cause for miss in MISSES):
        text += f"{cause.value[0].upper()}{cause.value[1:]}.\n\n"
        for miss in MISSES:
            if miss.cause is cause:
                names = "".join(f"  - `{name}`\n" for name in miss.names)
                text += f"- `{miss.archive}`: {miss.reason}\n{names}"
        text += "\n"
    return text.removesuffix("\n")


def env() -> str:
    """The whole text of `docs/env.md`."""
    rows = [
        f"| `{flag.name}` | {f'`{flag.default}`' if flag.default else 'unset'} "
        f"| {flag.kind.allowed} | {flag.doc} |\n"
        for flag in FLAGS.values()
    ]
    return _ENV + "".join(rows)


def calls() -> str:
    """The whole text of `docs/calls.md`."""

    def cell(mode: Mode | None) -> str:
        return "error" if mode is None else f"`{mode.name}`{'*' * (mode in USE_XLA)}"

    rows = [
        [cell(mode), *(cell(next_mode(mode, event, may_use_xla=True)) for event in Event)]
        for mode in Mode
    ]
    return _CALLS.format(
        modes="".join(f"| `{mode.name}` | {mode.value} |\n" for mode in Mode),
        events="".join(f"| `{event.name}` | {event.value} |\n" for event in Event),
        heads="".join(f" `{event.name}` |" for event in Event),
        lines="---|" * len(Event),
        rows="".join(f"| {' | '.join(row)} |\n" for row in rows),
    )


def rooms() -> str:
    """The whole text of `docs/rooms.md`."""
    between = imports_between()
    rows = [(room, [f"`{other}`" for other in ROOMS if (room, other) in between]) for room in ROOMS]
    return _ROOMS + "".join(f"| `{room}` | {', '.join(others)} |\n" for room, others in rows)


def coverage_page() -> str:
    """The whole text of `docs/coverage.md`."""
    ops = sorted(OPS.values(), key=lambda op: (op.name.split(".")[-1], op.name))
    names = ", ".join((*ELEMENT_TYPES, *COMPLEX_TYPES))
    tail = _TAIL.format(names=names, archives=archives(), exceptions=exceptions())
    return _COVERAGE + "".join(map(coverage, ops)) + tail


PAGES = {
    _DOCS / "env.md": env,
    _DOCS / "calls.md": calls,
    _DOCS / "coverage.md": coverage_page,
    _DOCS / "rooms.md": rooms,
}


def main() -> int:
    """See the module; 1 if a page is not as printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check, wrong = parser.parse_args().check, 0
    for path, page in PAGES.items():
        if not check:
            path.write_text(page(), encoding="utf-8")
        elif path.read_text(encoding="utf-8") != page():
            print(f"{path} is not as printed; run `make fix`", file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
