"""One harness, called one way, under `shlo_disc.jit` beside `jax.jit`."""

from __future__ import annotations

import contextlib
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shlo_disc
from tests.gpu.as_gpu import as_gpu
from tests.harnesses.cases import group_of, harnesses
from tests.harnesses.ways import Call, NothingToDoError, call_of
from tests.models.harness import float64_of

Job = tuple[str, str]
"""The full name of a harness, and a key of `WAYS`."""

STATES = ("equal", "by XLA", "refused", "nothing", "differs", "error", "fault", "crash", "hang")
BAD = ("differs", "error", "fault", "crash", "hang")

UNITS = 4
"""Units in the last place of an element by which two good results may be apart."""


@dataclass(frozen=True)
class Finding:
    """What became of a job.

    `equal`: compiled, and as under `jax.jit`; `by XLA`: the same, but XLA ran it, as the message
    says; `refused`: `jax.jit` raises an error, and so do we; `nothing`: the transformation has
    nothing to transform; and the states of `BAD`. `fault`: of a kernel, on the stand-in of a GPU.
    """

    state: str
    message: str = ""


def check(job: Job) -> Finding:
    """Call the harness this way under both."""
    name, way = job
    with warnings.catch_warnings(), _silent():
        warnings.simplefilter("ignore")
        try:
            call, args = call_of(name, way)
        except NothingToDoError as why:
            return Finding("nothing", str(why))
        # Other numbers are drawn where floats are wider: float64 tells nothing of them.
        is_random = group_of(name).startswith(("random_", "rng_"))
        with as_gpu(in_parts=True) as gpu:
            found = check_call(harnesses()[name].dyn_fun, call, args, has_truth=not is_random)
            fault = gpu.fault() if gpu else None
        return Finding("fault", fault[1]) if fault else found


def check_call(
    function: Callable[..., Any], call: Call, args: Sequence[Any], has_truth: bool = True
) -> Finding:
    """The same for any function; `has_truth`: it computes the same in float64."""
    want = _run(jax.jit(function), call, args)
    if isinstance(want, NothingToDoError):
        return Finding("nothing", str(want))
    f = shlo_disc.jit(function, on_unsupported="xla")
    got = _run(f, call, args)
    if isinstance(want, Exception):
        if isinstance(got, type(want)):
            return Finding("refused", _text(want))
        ours = _text(got) if isinstance(got, Exception) else "no error"
        return Finding("differs", f"{ours} instead of {_text(want)}")
    if isinstance(got, Exception):
        return Finding("error", _text(got))
    truth = (lambda: _in_float64(function, call, args)) if has_truth else lambda: None
    note = ""
    if found := difference(got, want, truth):
        # XLA rounds once for a product and a sum of one kernel (x * x - 1 near 1): so does not JAX
        # without jit, which decides.
        with jax.disable_jit():
            apart = _run(function, call, args)
        if isinstance(apart, Exception) or difference(got, apart, truth):
            return Finding("differs", found)
        note = f"as JAX without jit; beside jax.jit {found}"
    if f.statistics()["by_xla"]:
        return Finding("by XLA", f.explain().split("\n")[0])
    return Finding("equal", note)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without the log lines for what XLA runs; findings tell it."""
    log = logging.getLogger("shlo_disc")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _run(function: Any, call: Call, args: Sequence[Any]) -> Any:
    try:
        return jax.block_until_ready(call(function, args))
    except Exception as error:
        return error


def _in_float64(
    function: Callable[..., Any], call: Call, args: Sequence[Any]
) -> list[np.ndarray] | None:
    """The results in float64; None where the function insists on another type."""
    with jax.enable_x64(True):
        results = _run(jax.jit(function), call, float64_of(list(args)))
    return None if isinstance(results, Exception) else [np.asarray(x) for x in results]


def difference(
    got: Sequence[Any], want: Sequence[Any], truth: Callable[[], list[np.ndarray] | None]
) -> str:
    """What is wrong with the results; the empty text if nothing is.

    Integers are equal. Floats are within `UNITS` of XLA's, or not much farther than XLA's from
    `truth()`; without a truth they are within that of the largest of XLA's.
    """
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    known: list[np.ndarray] | None = None
    for index, (g, w) in enumerate(zip(got, want, strict=True)):
        where = f"result {index}"
        if not isinstance(g, jax.Array):
            return f"{where} is a {type(g).__name__}"
        if (g.shape, g.dtype, g.weak_type) != (w.shape, w.dtype, w.weak_type):
            return f"{where} is {g.aval} instead of {w.aval}"
        if jnp.issubdtype(g.dtype, jax.dtypes.prng_key):
            g, w = jax.random.key_data(g), jax.random.key_data(w)
        g, w = np.asarray(g), np.asarray(w)
        if not jnp.issubdtype(g.dtype, jnp.inexact):
            if not np.array_equal(g, w):
                return f"{where}: {_apart(g, w, g != w)}"
            continue
        eps, tiny = float(jnp.finfo(g.dtype).eps), float(jnp.finfo(g.dtype).tiny)
        g, w = _as_float64(g), _as_float64(w)
        if (_error(g, w) <= eps * UNITS * _magnitude(w) + tiny).all():
            continue
        known = known or truth()
        if known is None or known[index].shape != w.shape:
            exact = w
            limit = 4 * UNITS * eps * _largest(w)
        else:
            exact = _as_float64(known[index])
            # What overflows the type is infinite in it.
            exact = np.where(abs(exact) > float(jnp.finfo(got[index].dtype).max), w, exact)
            theirs = _magnitude(_error(w, exact))
            limit = 4 * theirs + theirs.max(initial=0.0) + UNITS * eps * _largest(exact)
        wrong = ~(_error(g, exact) <= limit + tiny)
        if wrong.any():
            told = "" if known is not None else " (no float64)"
            return f"{where}{told}: {_apart(g, w, wrong)}; exactly {exact[wrong][:4]}"
    return ""


def _as_float64(array: np.ndarray) -> np.ndarray:
    """Real numbers in float64; complex ones as pairs."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return np.stack([array.real, array.imag], -1).astype(np.float64)
    return array.astype(np.float64)


def _error(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Absolute differences; 0 where both are the same infinity or NaN, infinite where one is."""
    with np.errstate(invalid="ignore"):
        apart = abs(got - exact)
    same = (got == exact) | (np.isnan(got) & np.isnan(exact))
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _magnitude(array: np.ndarray) -> np.ndarray:
    """Absolute values; 0 for infinities and NaN."""
    return np.where(np.isfinite(array), abs(array), 0.0)


def _largest(array: np.ndarray) -> float:
    return float(_magnitude(array).max(initial=0.0))


def _apart(got: np.ndarray, want: np.ndarray, wrong: np.ndarray) -> str:
    places = [tuple(int(k) for k in place) for place in np.argwhere(wrong)[:4]]
    return f"{wrong.sum()} of {wrong.size}: {got[wrong][:4]} instead of {want[wrong][:4]} {places}"


def _text(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "shlo_disc/" in f.filename] or frames
    where = f"{ours[-1].filename.split('shlo_disc/')[-1]}:{ours[-1].lineno}" if ours else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({where})"
