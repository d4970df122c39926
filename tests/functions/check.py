"""One function through `shlo_disc.jit` beside `jax.jit`, at every pair of sizes of its case."""

from __future__ import annotations

import itertools
import re
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import shlo_disc
from shlo_disc.jax.calls.runs import CALLS_BEFORE_XLA
from tests.alarms import pinned
from tests.functions.cases import Case, arrays
from tests.functions.table import case_of, function_of
from tests.gpu.as_gpu import as_gpu
from tests.models.harness import allowed_error, error_of, in_float64, is_float, widened

GOOD = ("one compilation", "more compilations", "unsupported")

CALLS_ON_GPU = CALLS_BEFORE_XLA + 2
"""At each pair of sizes: calls from Python, then calls through XLA."""

UNSUPPORTED = re.compile(
    r"complex|stablehlo\.fft|custom_call @|calls back into Python|float8|lapack|type .* not"
)
"""An UnsupportedError has to name one of these: an operation or a type that is not compiled."""


@dataclass(frozen=True)
class Finding:
    """What became of a function."""

    state: str
    """One of `GOOD`, or: wrong, error, fault (of a kernel, on a GPU), refused (by
    `jax.jit`), crash, hang."""
    message: str = ""
    compilations: int = 0
    because: tuple[str, ...] = ()
    """What shlo_disc says of the sizes that made several compilations of one."""
    alarms: tuple[str, ...] = ()
    """Sizes that the comparison with numbers made constants (`tests/alarms.py`)."""


def check(name: str) -> Finding:
    """Call the function at every pair of sizes."""
    return check_case(case_of(name), function_of(name))


def check_case(case: Case, function: Callable[..., Any]) -> Finding:
    """The same for a case that is in no table."""
    with warnings.catch_warnings(), as_gpu() as gpu:
        warnings.simplefilter("ignore")
        found = _checked(case, function, CALLS_ON_GPU if gpu else 1)
        if gpu and (fault := gpu.fault()):
            return Finding("fault", fault[1])
        return found


def _checked(case: Case, function: Callable[..., Any], times: int) -> Finding:
    calls = [arrays(case, n, m) for n, m in case.sizes]
    reference = jax.jit(function)
    try:
        expected = [jax.block_until_ready(reference(*call)) for call in calls]
    except Exception as error:
        return Finding("refused", _text(error))
    f = shlo_disc.jit(function)
    for (call, want), _ in itertools.product(zip(calls, expected, strict=True), range(times)):
        try:
            got = jax.block_until_ready(f(*call))
        except shlo_disc.UnsupportedError as error:
            known = UNSUPPORTED.search(str(error))
            return Finding("unsupported" if known else "error", _text(error))
        except Exception as error:
            return Finding("error", _text(error))
        if found := _difference(case, function, call, got, want):
            return Finding("wrong", f"{[np.shape(a) for a in call]}: {found}")
    count = f.cache_info().misses
    if count > 1:
        why = case.reason and f"[{case.reason}] "
        text = why + "; ".join(f.guards())
        return Finding("more compilations", text, count, _because(f, calls), pinned(f))
    return Finding("one compilation", "", count, alarms=pinned(f))


def _because(f: Any, calls: list[list[Any]]) -> tuple[str, ...]:
    """What the first version assumes that another one does not, without sizes and places."""
    first, *others = ({str(note) for note in _assumed(f, call)} for call in calls)
    apart = first.difference(set.intersection(*others))
    found = (note.reason for note in _assumed(f, calls[0]) if str(note) in apart)
    return tuple(dict.fromkeys(map(_with_letters, found)))


def _with_letters(reason: str) -> str:
    """The symbols of a reason are n, m, ..., as they come."""
    symbols = dict.fromkeys(re.findall(r"\bd\d+\b", reason))
    letters = dict(zip(symbols, "nmkjhi", strict=False))
    return re.sub(r"\bd\d+\b", lambda match: letters.get(match[0], match[0]), reason)


def _assumed(f: Any, call: list[Any]) -> list[Any]:
    pattern = f.lower(*call).pattern
    return [*(guard.note for guard in pattern.guards), *pattern.notes]


def _difference(case: Case, function: Any, call: list[Any], got: Any, want: Any) -> str:
    """What is wrong with a result; the empty text if nothing is."""
    ours, theirs = jax.tree.structure(got), jax.tree.structure(want)
    if ours != theirs:
        return f"structure {ours} instead of {theirs}"
    truth: list[Any] = []
    for index, (g, w) in enumerate(zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)):
        if not isinstance(g, jax.Array):
            return f"result {index} is a {type(g).__name__}"
        if _type(g) != _type(w):
            return f"result {index} is {g.aval} instead of {w.aval}"
        if _is_key(g):
            g, w = jax.random.key_data(g), jax.random.key_data(w)
        g, w = np.asarray(g), np.asarray(w)
        if case.exact or not is_float(g):
            if not np.array_equal(g, w, equal_nan=is_float(g)):
                return f"result {index}: {_shown(g)} instead of {_shown(w)}"
            continue
        eps = float(jax.numpy.finfo(g.dtype).eps)
        apart = error_of(g, widened(w))
        if apart <= 4 * eps * _largest(w):
            continue
        if any(_is_key(argument) for argument in call):
            if apart > 64 * eps * _largest(w):  # other numbers would be drawn in float64
                return f"result {index} is off by {apart:.3g}: {_shown(g)} instead of {_shown(w)}"
            continue
        # Rounding that grows, as in linear algebra: we may err twice as much as XLA does.
        truth = truth or jax.tree.leaves((case.truth or in_float64(function))(*call))
        exactly = widened(truth[index])
        error, theirs_error = error_of(g, exactly), error_of(w, exactly)
        if not error <= 4 * allowed_error(theirs_error, exactly, eps):
            return (
                f"result {index} is off by {error:.3g}, XLA by {theirs_error:.3g}: "
                f"{_shown(g)} instead of {_shown(w)}"
            )
    return ""


def _type(array: jax.Array) -> tuple[Any, ...]:
    return array.shape, array.dtype, getattr(array, "weak_type", False)


def _is_key(array: Any) -> bool:
    return jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)


def _largest(array: np.ndarray) -> float:
    finite = array[np.isfinite(array)].astype(np.float64)
    return float(np.abs(finite).max(initial=0.0))


def _shown(array: np.ndarray) -> str:
    return np.array2string(array, threshold=12, edgeitems=3).replace("\n", "")


def _text(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "shlo_disc/" in f.filename] or frames
    where = f"{ours[-1].filename.split('shlo_disc/')[-1]}:{ours[-1].lineno}"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]} ({where})"
