"""Typed PRNG keys, which programs take and give as arrays of integers, their words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax

from shlo_disc.jax.arguments.leaves import is_key_dtype
from shlo_disc.jax_private.arrays import key_impl
from shlo_disc.jax_private.extend import jaxpr_as_fun


def as_words(value: Any, aval: Any) -> Any:
    """The words of `value`, which has the type `aval`, if it is an array of keys."""
    return jax.random.key_data(value) if is_key_dtype(aval.dtype) else value


def as_keys(value: Any, aval: Any) -> Any:
    """The array of keys with the words `value`, if `aval` is the type of one."""
    if not is_key_dtype(aval.dtype):
        return value
    return jax.random.wrap_key_data(value, impl=key_impl(aval.dtype))


def has_keys(jaxpr: Any) -> bool:
    """True if arguments or results of the program are arrays of keys."""
    return any(is_key_dtype(aval.dtype) for aval in (*jaxpr.in_avals, *jaxpr.out_avals))


def on_words(jaxpr: Any) -> Callable[..., list[Any]]:
    """The program as a function of arrays, with words in place of keys."""
    run, given, made = jaxpr_as_fun(jaxpr), jaxpr.in_avals, jaxpr.out_avals

    def function(*arguments: Any) -> list[Any]:
        return [*map(as_words, run(*map(as_keys, arguments, given)), made)]

    return function


def typed_keys_of(avals: Iterable[Any]) -> tuple[tuple[int, str], ...]:
    """(index, PRNG implementation) of those of `avals` that are arrays of keys."""
    return tuple((k, key_impl(a.dtype)) for k, a in enumerate(avals) if is_key_dtype(a.dtype))
