"""Types of results under meshes with explicit axes, where an array's type says how it is sharded.

The rule is that of `splits.py`: a dimension of an argument that is sharded over a mesh axis makes
those of the results sharded alike that are split along the same symbol.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

from shlo_disc.jax.derived.program import Program
from shlo_disc.jax.derived.splits.splits import Split
from shlo_disc.jax.derived.splits.states import Kind

_spec: Any = PartitionSpec
_reshard: Any = jax.sharding.reshard


def may_be_sharded() -> bool:
    """False if no array can be sharded by its type: one device, and no mesh in force."""
    return _several_devices() or not jax.sharding.get_abstract_mesh().empty


@functools.cache
def _several_devices() -> bool:
    return jax.device_count() > 1


def is_sharded(*types: Any) -> bool:
    """True if a type among these abstract arrays names an axis of a mesh."""
    return any(
        any(spec) or spec.unreduced or spec.reduced
        for spec in (aval.sharding.spec for aval in types)
    )


def result_specs(program: Program, types: Sequence[Any]) -> list[PartitionSpec] | None:
    """The specs of the results for arguments of these types; None where they cannot be told.

    They can where each sharded dimension belongs to a symbol that the program may be split along,
    in one way for each symbol.
    """
    found = [split for split in program.splits.values() if isinstance(split, Split)]
    used: dict[str, Any] = {}
    for index, aval in enumerate(types):
        spec = aval.sharding.spec
        if spec.unreduced or spec.reduced:
            return None
        for axis, names in enumerate(spec):
            if not names:
                continue
            owner = next((s.symbol for s in found if s.arguments[index] == axis), None)
            if owner is None or used.setdefault(owner, names) != names:
                return None
    every = [name for names in used.values() for name in _listed(names)]
    if len(set(every)) < len(every):
        return None
    specs = []
    for index, aval in enumerate(program.out_avals):
        entries: list[Any] = [None] * len(aval.shape)
        for split in found:
            place = split.results[index]
            if split.symbol in used and not isinstance(place, Kind):
                if entries[place] is not None:
                    return None
                entries[place] = used[split.symbol]
        specs.append(_spec(*entries))
    return specs


def replicated(rank: int) -> PartitionSpec:
    """The spec of an array that is not sharded."""
    made: PartitionSpec = _spec(*([None] * rank))
    return made


def runs_in_blocks(program: Program, arrays: Sequence[Any]) -> bool:
    """True if the program may be split along every dimension in which these arrays are sharded."""
    found = [split for split in program.splits.values() if isinstance(split, Split)]
    for index, array in enumerate(arrays):
        if not isinstance(array, jax.Array):
            continue
        part = array.sharding.shard_shape(array.shape)
        for axis, (size, whole) in enumerate(zip(part, array.shape, strict=True)):
            if size != whole and not any(split.arguments[index] == axis for split in found):
                return False
    return True


def _listed(names: Any) -> Sequence[str]:
    return names if isinstance(names, tuple) else (names,)


def without_shards(value: Any) -> Any:
    """`value`, gathered if its type is sharded."""
    if not is_sharded(aval := jax.typeof(value)):
        return value
    return _reshard(value, replicated(aval.ndim))


def with_type_of(value: Any, other: Any) -> Any:
    """`value`, sharded as the type of `other` says: an array, or what stands for one in JAX."""
    if not may_be_sharded():
        return value
    mine, aval = jax.typeof(value), other.aval
    if not is_sharded(mine, aval) or mine.sharding == aval.sharding:
        return value
    return _reshard(value, aval.sharding.spec)
