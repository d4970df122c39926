"""Typed PRNG keys of exported programs: words in the program, keys for who calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from shlo_disc.base.records import dataclass


@dataclass(frozen=True)
class TypedKeys:
    """Which arguments and results are keys, with the dtype of each (`jax.random.key`)."""

    arguments: Mapping[int, Any] = field(default_factory=dict)
    results: Mapping[int, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Any) -> TypedKeys:
        """Those of a `jax.export.Exported`; none of other sources, which do not know keys."""
        kept = getattr(source, "module_kept_var_idx", None)
        if kept is None:
            return cls()
        avals = [source.in_avals[k] for k in kept]
        return cls(_keys_among(avals), _keys_among(source.out_avals))

    def words(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Arguments for the program; words in place of a key are taken as they are.

        Raises TypeError for a key of another implementation.
        """
        if not self.arguments:
            return arrays
        import jax  # noqa: PLC0415 - programs without keys run without JAX

        found = list(arrays)
        for index, dtype in self.arguments.items():
            given = getattr(found[index], "dtype", None) if index < len(found) else None
            if given is None or not jax.numpy.issubdtype(given, jax.dtypes.prng_key):
                continue
            if given != dtype:
                raise TypeError(f"argument {index} is of type {given}, not {dtype}")
            found[index] = jax.random.key_data(found[index])
        return found

    def keys(self, results: list[Any]) -> list[Any]:
        """Results of the program as their types say, in place."""
        if self.results:
            from shlo_disc.jax_private.arrays import key_impl, key_of_words  # noqa: PLC0415

            for index, dtype in self.results.items():
                results[index] = key_of_words(key_impl(dtype), results[index])
        return results


def _keys_among(avals: Sequence[Any]) -> dict[int, Any]:
    import jax  # noqa: PLC0415 - as above

    return {
        index: aval.dtype
        for index, aval in enumerate(avals)
        if jax.numpy.issubdtype(aval.dtype, jax.dtypes.prng_key)
    }
