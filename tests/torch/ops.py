"""The ops that tests try, each with the way it is compiled; docs/torch-ops.md is printed from them.

python -m tests.torch.ops > docs/torch-ops.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from shlo_disc.torch.bodies import _ONLY, _WIDENED, BODIES
from shlo_disc.torch.decompositions import KEPT, is_composite, table
from shlo_disc.torch.rewrites import REWRITES

PAGE = Path("docs/torch-ops.md")

LIBRARIES = Path(__file__).with_name("library_ops.txt")

_SPARSE = "of sparse tensors, which PyTorch itself runs"

NOT_TRIED: dict[str, str] = {}
"""Op -> why no test calls it."""

ELSEWHERE = frozenset({
    "mkldnn_rnn_layer.default", "mkldnn_rnn_layer_backward.default", "rnn_relu.input",
})  # fmt: skip
"""Ops that tests/torch/test_recurrent.py tries, in layers."""

EAGER = {
    "linalg_eig.default": "no rule for it",
    "igamma.default": "no rule for it",
    "bernoulli.default": "its numbers depend on data",
    "multinomial.default": "its numbers depend on data",
    "equal.default": "its result decides what Python does",
    "resize_.default": "writes its operand, and PyTorch cannot trace it",
    "randn.generator": "takes a generator",
    **dict.fromkeys(
        ("set_.source_Storage", "set_.source_Storage_storage_offset"),
        "gives a tensor other memory"),
    **dict.fromkeys(
        ("_sparse_coo_tensor_with_dims_and_tensors.default",
         "sparse_compressed_tensor.comp_plain_value_size", "_to_sparse.default",
         "_to_sparse_csr.default", "indices.default", "values.default", "crow_indices.default",
         "col_indices.default"), _SPARSE),
}  # fmt: skip
"""Op -> why PyTorch runs it."""

NOT_EXPORTED = {
    "equal.default": "DataDependentOutputException",
    "randn.generator": "SymIntArrayRef expected to contain only concrete integers",
    "set_.source_Storage": "argument of type: <class 'torch.storage.UntypedStorage'>",
    "set_.source_Storage_storage_offset": "argument of type: "
    "<class 'torch.storage.UntypedStorage'>",
    "sparse_compressed_tensor.comp_plain_value_size": "Values and compressed tensor instance need "
    "to be on the same device",
    "_to_sparse.default": "UnsupportedOperatorException",
    "_to_sparse_csr.default": "UnsupportedOperatorException",
}
"""Op -> what `torch.export` raises for it: PyTorch itself does not export it."""


def listed() -> dict[str, list[str]]:
    """`add.Tensor` -> the libraries whose models use it."""
    rows = (line.split() for line in LIBRARIES.read_text().splitlines() if line[0] != "#")
    return {op: libraries for op, *libraries in rows}


def core_ops() -> Iterator[str]:
    """`add.Tensor` and every other op that PyTorch calls core, in order of names."""
    for full in sorted(torch._C._dispatch_get_all_op_names()):  # `dir` has those used before
        space, _, name = full.partition("::")
        name = name if "." in name else f"{name}.default"
        if space != "aten" or name.partition(".")[2].endswith("out"):
            continue
        if torch.Tag.core in op_of(name).tags:
            yield name


def op_of(name: str) -> torch._ops.OpOverload:
    """The overload that `add.Tensor` names."""
    packet, _, overload = name.rpartition(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def way(name: str) -> str:
    """How an op is compiled, in words."""
    op = op_of(name)
    if name in NOT_TRIED:
        return f"not tried: {NOT_TRIED[name]}"
    if name in EAGER:
        said = f"; PyTorch cannot export it: {NOT_EXPORTED[name]}" if name in NOT_EXPORTED else ""
        return f"PyTorch runs it: {EAGER[name]}{said}"
    if torch.Tag.nondeterministic_seeded in op.tags:
        return "PyTorch itself draws the numbers, before the program runs"
    if op in BODIES and (op not in _ONLY or op in _WIDENED):
        return "StableHLO written here"
    if op in REWRITES:
        return "other ops, written here"
    if op._schema.is_mutable:
        return "the op without the write"
    if (op in table() and op._overloadpacket not in KEPT) or is_composite(op):
        return "other ops, by PyTorch's decomposition"
    return "torch-mlir"


def page() -> str:
    """The text of docs/torch-ops.md."""
    core, used = set(core_ops()), listed()
    sets = {"core": core} | {
        library: {op for op, by in used.items() if library in by}
        for library in sorted({library for by in used.values() for library in by})
    }
    kinds = {
        "Operations": core | set(used),
        "Run by PyTorch": set(EAGER),
        "Not exported by PyTorch": set(NOT_EXPORTED),
        "Not tried": set(NOT_TRIED),
    }
    rows = [
        f"| `{name}` | {', '.join(['core'] * (name in core) + used.get(name, []))} | {way(name)} |"
        for name in sorted(core | set(used))
    ]
    return "\n".join([
        "# Operations of PyTorch",
        "",
        "Tests run each of these at four sizes in three ways: exported with inputs that require",
        "gradients, by `torch.compile`, and by `torch.compile` with gradients. They are those that",
        "PyTorch calls core, and those that models of some libraries use, forward and backward.",
        "Printed by `tests/torch/ops.py`; `tests/torch/library_ops.txt` lists those of libraries.",
        "",
        "| | all | " + " | ".join(sets) + " |",
        "|---|" + "---|" * (1 + len(sets)),
        *(
            f"| {kind} | {len(names & kinds['Operations'])} | "
            + " | ".join(str(len(names & own)) for own in sets.values()) + " |"
            for kind, names in kinds.items()
        ),
        "",
        "PyTorch runs what is not covered, between compiled regions of `torch.compile` and of",
        'exported programs. With `on_unsupported="error"` these raise UnsupportedError, with the',
        "line of the model.",
        "",
        "| Operation | Used by | Compiled by |",
        "|---|---|---|",
        *rows,
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(page())
