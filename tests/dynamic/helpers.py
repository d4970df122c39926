"""Modules from a few lines, and what the analysis says of them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from shlo_disc.dynamic.shapes import ShapeAnalysis, analyze
from shlo_disc.ir.mlir import ir, new_context


@functools.cache
def context():
    return new_context()


@dataclass
class Analysed:
    """A module and its analysis, kept together: values die with their module."""

    module: ir.Module
    analysis: ShapeAnalysis

    @property
    def main(self):
        (func,) = self.module.body.operations
        return func.operation

    @property
    def returned(self):
        block = self.main.regions[0].blocks[0]
        return list(block.operations[len(block.operations) - 1].operation.operands)

    @property
    def shapes(self):
        """The shapes of the results of main, as text."""
        return [", ".join(map(str, self.analysis.shape(v))) for v in self.returned]

    @property
    def guards(self):
        return [f"{g.lhs} {g.op} {g.rhs}" for g in self.analysis.guards]


def run(text: str) -> Analysed:
    """Parse and analyse a module."""
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        return Analysed(module, analyze(module))


def function(arguments, body, results) -> str:
    """`arguments`: {name: (type, sizes or None)}; `results`: [(value, type)]."""
    heads = []
    for name, (kind, sizes) in arguments.items():
        written = ""
        if sizes is not None:
            quoted = ", ".join(f'"{s.strip()}"' for s in sizes.split(",") if s.strip())
            written = f" {{disc.shape = [{quoted}]}}"
        heads.append(f"%{name}: {kind}{written}")
    values = ", ".join(v for v, _ in results)
    kinds = ", ".join(k for _, k in results)
    return (
        f"func.func @main({', '.join(heads)}) -> ({kinds}) {{\n{body}\n"
        f"return {values} : {kinds}\n}}"
    )
