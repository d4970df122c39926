"""The core ATen ops, each with the way it is compiled; docs/torch-ops.md is printed from it.

python -m shlo_disc.torch.ops > docs/torch-ops.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from shlo_disc.torch.bodies import BODIES, only_some
from shlo_disc.torch.decompositions import KEPT, table
from shlo_disc.torch.rewrites import REWRITES

__all__ = ["NOT_TRIED", "PAGE", "core_ops", "page", "way"]

PAGE = Path("docs/torch-ops.md")

NOT_TRIED = {
    "resize_.default": "writes its operand, and PyTorch cannot trace it",
}
"""Core op -> why no test calls it."""


def core_ops() -> Iterator[tuple[str, torch._ops.OpOverload]]:
    """(`add.Tensor`, the overload) of every op that PyTorch calls core, in order of names."""
    for full in sorted(torch._C._dispatch_get_all_op_names()):  # `dir` has those used before
        space, _, name = full.partition("::")
        packet, _, overload = name.partition(".")
        if space != "aten" or overload.endswith("out"):
            continue
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        if torch.Tag.core in op.tags:
            yield f"{packet}.{overload or 'default'}", op


def way(name: str, op: torch._ops.OpOverload) -> str:
    """How an op is compiled, in words."""
    if name in NOT_TRIED:
        return f"not tried: {NOT_TRIED[name]}"
    if torch.Tag.nondeterministic_seeded in op.tags:
        return "PyTorch itself draws the numbers, before the program runs"
    if op in BODIES and not only_some(op):
        return "StableHLO written here"
    if op in REWRITES:
        return "other ops, written here"
    if op in table() and op._overloadpacket not in KEPT:
        return "other ops, by PyTorch's decomposition"
    return "torch-mlir"


def page() -> str:
    """The text of docs/torch-ops.md."""
    rows = [f"| `{name}` | {way(name, op)} |" for name, op in core_ops()]
    covered = sum("| not" not in row for row in rows)
    return "\n".join([
        "# Operations of PyTorch",
        "",
        f"Tests try each of these at four sizes: {covered} of the {len(rows)} operations that",
        "PyTorch calls core. It decomposes others into these, or torch-mlir takes them whole.",
        "Printed from `shlo_disc/torch/ops.py`.",
        "",
        "PyTorch runs what is not covered, between compiled regions of `torch.compile`. It raises",
        "UnsupportedError, with the line of the model, for exported programs and with",
        '`options={"on_unsupported": "error"}`.',
        "",
        "| Operation | Compiled by |",
        "|---|---|",
        *rows,
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(page())
