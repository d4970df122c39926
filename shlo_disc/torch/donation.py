"""Arguments of exported programs whose tensors a call gives up for results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils import _pytree as pytree


def donated_inputs(program: ExportedProgram, donated: Any) -> frozenset[int]:
    """The placeholders of `program` that hold the tensors of the `donated` arguments.

    A position is that of an argument of a call; a name is that of a keyword argument, or of a
    placeholder, such as `cache_0`. All tensors of a structure are donated.

    Raises TypeError for what is neither a position nor a name, and ValueError for an argument that
    does not exist or has no tensor.
    """
    given = [donated] if isinstance(donated, str) or not isinstance(donated, Iterable) else donated
    specs = program.graph_signature.input_specs
    users = [k for k, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT]
    args, kwargs = pytree.tree_unflatten(users, program.call_spec.in_spec)
    names = {specs[k].arg.name: k for k in users}
    found: set[int] = set()
    for one in given:
        places = pytree.tree_leaves(_argument(one, args, {**names, **kwargs}))
        tensors = [k for k in places if isinstance(specs[k].arg, TensorArgument)]
        if not tensors:
            raise ValueError(f"donated: the argument {one!r} has no tensor")
        found.update(tensors)
    return frozenset(found)


def _argument(one: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
    """The placeholders of an argument, in its structure."""
    if isinstance(one, str):
        if one in named:
            return named[one]
        known = ", ".join(map(repr, named))
        raise ValueError(f"donated names the argument {one!r}; there are {known}")
    if isinstance(one, bool) or not isinstance(one, int):
        raise TypeError(f"a donated argument must be a position or a name, got {one!r}")
    if 0 <= one < len(args):
        return args[one]
    raise ValueError(
        f"donated names the argument {one}, but the call has {len(args)} by position, counted "
        "from 0"
    )


Writes = list[tuple[int, torch.Tensor]]
"""Numbers of results, and the tensors that they are copied into."""


def apart_from_writes(results: Sequence[Any], writes: Writes) -> tuple[list[Any], Writes]:
    """Results that no write changes, and the writes that are still to be made.

    A write is done if its result lies in the memory of its tensor already. Another result that lies
    there is copied first.
    """
    places = {where.data_ptr(): number for number, where in writes if where.numel()}
    left = [
        (number, where)
        for number, where in writes
        if not where.numel() or results[number].data_ptr() != where.data_ptr()
    ]
    apart = [
        result.clone()
        if isinstance(result, torch.Tensor) and places.get(result.data_ptr(), k) != k
        else result
        for k, result in enumerate(results)
    ]
    return apart, left
