"""Print `docs/env.md` and `docs/coverage.md` from the tables that they show; `--check` compares."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shlo_disc.base.flags import FLAGS
from shlo_disc.ir.element_types import COMPLEX_TYPES, ELEMENT_TYPES
from shlo_disc.ir.ops import OPS
from shlo_disc.tools.op_row import coverage
from tools.acceptance_exceptions import CASES, MISSES

_DOCS = Path(__file__).parents[1] / "docs"

_ENV = """# Environment variables

<!-- Printed by `tools/tables.py` from `base/flags.py`; do not edit. -->

Values are read when they are needed; a value that is not allowed raises ValueError. In Python,
`with shlo_disc.flags.overridden(debug=2):` sets one for a block.

| Variable | Default | Allowed | Meaning |
|---|---|---|---|
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


def coverage_page() -> str:
    """The whole text of `docs/coverage.md`."""
    ops = sorted(OPS.values(), key=lambda op: (op.name.split(".")[-1], op.name))
    names = ", ".join((*ELEMENT_TYPES, *COMPLEX_TYPES))
    tail = _TAIL.format(names=names, archives=archives(), exceptions=exceptions())
    return _COVERAGE + "".join(map(coverage, ops)) + tail


PAGES = {_DOCS / "env.md": env, _DOCS / "coverage.md": coverage_page}


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
