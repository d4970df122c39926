"""A call of a compiled version inside a transformation of JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from shlo_disc.jax.arguments.leaves import abstract
from shlo_disc.jax.calls.call import Call
from shlo_disc.jax.derived.primitive import call_in_place, call_program
from shlo_disc.jax.derived.sharding_types import is_sharded, may_be_sharded, result_specs
from shlo_disc.jax.sizes.nesting import PartOfOuterError
from shlo_disc.jax.versions.versions import Version


def run_in_trace(call: Call, version: Version) -> Any:
    """The results: one equation that calls the program of `version`, or those of its parts.

    Raises PartOfOuterError for arguments sharded where the function has no blocks.
    """
    raw = _raw(call, version)
    if may_be_sharded():
        _refuse_shards(version, [jax.typeof(x) for x in raw])
    dims = tuple(version.pattern.values(call.shapes).items())
    if call.captured:
        version.remember(dims, call.at_numbers.jaxpr)
    if version.is_in_parts:
        results = version.in_parts.run(raw, dict(dims))
    else:
        results = list(call_program(raw, version.program, dims))
    return _finished(call, version, results)


def run_in_place(call: Call, version: Version) -> Any:
    """The results, inside a `jax.jit` that donates what the function does; see `version.in_place`.

    Donated memory holds results, as outside of `jax.jit`.
    """
    assert version.in_place is not None
    sizes = tuple(version.pattern.values(call.shapes).items())
    types = [abstract(x.shape, x.dtype) for x in version.program.result_avals(sizes)]
    found = call_in_place(version.executable, types, version.in_place, _raw(call, version))
    return _finished(call, version, list(found))


def _raw(call: Call, version: Version) -> list[Any]:
    """The arguments as arrays, typed keys as integers."""
    return [
        jax.random.key_data(value) if leaf.is_key else _as_array(value)
        for value, leaf in zip(call.values, version.leaves, strict=True)
    ]


def _finished(call: Call, version: Version, results: list[Any]) -> Any:
    """Results of the program in the function's structure."""
    for index, implementation in version.keys:
        results[index] = jax.random.wrap_key_data(results[index], impl=implementation)
    return jax.tree.unflatten(version.out_tree(call.shapes), results)


def _refuse_shards(version: Version, types: Sequence[Any]) -> None:
    """Raise PartOfOuterError for types that are sharded where the function has no blocks."""
    if is_sharded(*types) and (version.is_in_parts or result_specs(version.program, types) is None):
        raise PartOfOuterError(
            "arguments are sharded, by their types, over dimensions that blocks of the "
            f"function do not have: {', '.join(str(t) for t in types if is_sharded(t))}"
        )


def _as_array(value: Any) -> Any:
    # JAX makes an equation of `asarray` of a tracer: a derivative then takes a third longer.
    return value if isinstance(value, jax.core.Tracer) else jax.numpy.asarray(value)
