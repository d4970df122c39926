"""Print `docs/coverage.md` from the op table; `--check FILE` compares instead."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shlo_disc.ir.element_types import COMPLEX_TYPES, ELEMENT_TYPES
from shlo_disc.ir.ops import OPS, Op, Role
from shlo_disc.lower.values.math import FUNCTIONS
from shlo_disc.tools.acceptance_exceptions import CASES, MISSES

_HEAD = """# Coverage

<!-- Printed by `python -m shlo_disc.tools.coverage_table` from `shlo_disc/ops/`; do not edit. -->

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
_KINDS = {"b": "i1", "c": "complex", "f": "floats", "i": "signed", "u": "unsigned"}
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


def error(op: Op) -> str:
    """The error of a function of floats, as the page says it; empty for other ops."""
    if op.math:
        function = FUNCTIONS[op.math]
        single, double = function.ulp
        return f"{single}, {double}" + (f" ({function.beside_zeros})" * bool(function.beside_zeros))
    if op.ulp:
        return f"{op.ulp[0]}, {op.ulp[1]}"
    is_function = op.role in (Role.ELEMENTWISE, Role.EXPANDED) and "f" in op.types
    return "exact" if op.exact_bits and is_function else ""


def row(op: Op) -> str:
    """The line of one op."""
    refused = op.role is Role.UNSUPPORTED
    how = "refused" if refused else f"`{op.kind}` kernel" if op.kind else op.role.value
    types = "any" if set(op.types) == set(_KINDS) else ", ".join(_KINDS[k] for k in op.types)
    covered = "" if refused or op.role in (Role.EXPANDED, Role.CONTROL, Role.RETURN) else types
    return f"| `{op.name}` | {how} | {covered} | {error(op)} | {op.note} |\n"


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


def page() -> str:
    """The whole text of `docs/coverage.md`."""
    ops = sorted(OPS.values(), key=lambda op: (op.name.split(".")[-1], op.name))
    names = ", ".join((*ELEMENT_TYPES, *COMPLEX_TYPES))
    tail = _TAIL.format(names=names, archives=archives(), exceptions=exceptions())
    return _HEAD + "".join(map(row, ops)) + tail


@click.command(help=__doc__)
@click.option("--check", "path", type=click.Path(exists=True, dir_okay=False))
def main(path: str | None) -> None:
    """See the module."""
    if path is None:
        click.echo(page(), nl=False)
    elif Path(path).read_text(encoding="utf-8") != page():
        click.echo(f"{path} is not what shlo_disc/ops says; run `make fix`", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
