"""How a model is checked: one compilation, every shape, errors measured against float64.

`SHLO_DISC_TEST_BACKEND=jax` runs the same checks with `jax.jit` in our place (without the count of
compilations), which shows that a model and its reference agree before shlo_disc is suspected.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import shlo_disc

Arguments = tuple[Any, ...]

USES_JAX = os.environ.get("SHLO_DISC_TEST_BACKEND") == "jax"


def compiled(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`fn` compiled by shlo_disc, or by `jax.jit` when the references themselves are tested."""
    return jax.jit(fn) if USES_JAX else shlo_disc.jit(fn, **options)


def assert_compiled(f: Any, times: int) -> None:
    """`f` was compiled exactly `times` times so far."""
    if not USES_JAX:
        assert f.cache_info().misses == times, f.cache_info()


def kernels(function, *args):
    """The kinds of the fusions a function becomes."""
    return kernels_of(shlo_disc.jit(function), *args)


def kernels_of(f, *args):
    """The same of a compiled function, in the version for these arguments."""
    text = f.lower(*args).as_text("disc")
    return [line.split('"')[1] for line in text.split("kind = ")[1:]]


def normal(rng: np.random.Generator, *sizes: int, scale: float = 1.0) -> np.ndarray:
    """Standard normal float32 of these sizes, times `scale`."""
    return (rng.standard_normal(sizes) * scale).astype(np.float32)


def rng_of(*sizes: int) -> np.random.Generator:
    """A generator that depends on the sizes only, so that a failing shape can be replayed."""
    return np.random.default_rng([len(sizes), *sizes])


def layer_norm(x):
    """Rows of `x` with mean 0 and variance 1."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def is_float(x: Any) -> bool:
    """Whether `x` holds floating-point or complex numbers, ml_dtypes' narrow ones included."""
    return jax.numpy.issubdtype(np.asarray(x).dtype, np.inexact)


def widened(x: Any) -> np.ndarray:
    """`x` in float64, or in complex128."""
    array = np.asarray(x)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def float64_of(tree: Any) -> Any:
    """`tree` with its floating-point leaves widened to float64."""
    return jax.tree.map(lambda x: widened(x) if is_float(x) else x, tree)


def in_float64(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` run by XLA with every floating-point argument and constant in float64."""

    def truth(*args: Any) -> Any:
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, jax.jit(fn)(*float64_of(args)))

    return truth


def error_of(got: Any, truth: np.ndarray) -> float:
    """Largest absolute difference where both are finite; infinite when NaN or inf differ."""
    got = widened(got)
    finite = np.isfinite(truth)
    if not np.array_equal(got[~finite], truth[~finite], equal_nan=True):
        return np.inf
    difference = np.abs(got[finite] - truth[finite])
    return float(difference.max(initial=0.0)) if not np.isnan(difference).any() else np.inf


def allowed_error(xla_error: float, truth: np.ndarray, eps: float) -> float:
    """Twice XLA's error, with a floor of four units of rounding at the largest value."""
    finite = np.abs(truth[np.isfinite(truth)])
    return 2 * xla_error + 4 * eps * float(finite.max(initial=0.0)) + float(np.finfo("f4").tiny)


def assert_close(got: Any, xla: Any, truth: Any, what: str) -> None:
    """Same structure, shapes and dtypes as XLA's; integers equal, floats within the rule."""
    got_leaves, got_tree = jax.tree.flatten(got)
    xla_leaves, xla_tree = jax.tree.flatten(xla)
    assert got_tree == xla_tree, f"{what}: {got_tree} instead of {xla_tree}"
    for i, (g, x, t) in enumerate(zip(got_leaves, xla_leaves, jax.tree.leaves(truth), strict=True)):
        where = f"{what}, result {i}"
        assert isinstance(g, jax.Array), f"{where}: {type(g)}"
        assert (g.shape, g.dtype) == (x.shape, x.dtype), f"{where}: {g.aval} instead of {x.aval}"
        if not is_float(g):
            np.testing.assert_array_equal(np.asarray(g), np.asarray(x), where)
            continue
        t = widened(t)
        ours, theirs = error_of(g, t), error_of(x, t)
        allowed = allowed_error(theirs, t, float(jax.numpy.finfo(g.dtype).eps))
        assert ours <= allowed, f"{where}: error {ours:.3g}, XLA {theirs:.3g}, limit {allowed:.3g}"


def sizes_of(args: Arguments) -> str:
    """The shapes of the array arguments, shortened, for messages."""
    shapes = [str(np.shape(leaf)) for leaf in jax.tree.leaves(args)]
    return " ".join(shapes[-6:])


def check(
    fn: Callable[..., Any],
    cases: Sequence[Arguments],
    *,
    truth: Callable[..., Any] | None = None,
    misses: int = 1,
    **options: Any,
) -> None:
    """`fn` compiled once gives the right results for the arguments of every case.

    `truth` computes the float64 reference from float64 arguments; by default it is `fn` itself
    run by XLA in float64. `options` go to `shlo_disc.jit`.
    """
    check_with(compiled(fn, **options), fn, cases, truth=truth, misses=misses)


def check_with(
    f: Callable[..., Any],
    fn: Callable[..., Any],
    cases: Sequence[Arguments],
    *,
    truth: Callable[..., Any] | None = None,
    misses: int = 1,
) -> None:
    """The same for `f`, which is `fn` compiled and may be used again."""
    reference = truth or in_float64(fn)
    for args in cases:
        got = f(*args)
        exact = reference(*(float64_of(args) if truth else args))
        assert_close(got, jax.jit(fn)(*args), exact, sizes_of(args))
    assert_compiled(f, misses)


def check_bits(
    fn: Callable[..., Any],
    cases: Sequence[Arguments],
    misses: int = 1,
    op_by_op: bool = False,
    **options: Any,
) -> None:
    """`fn` compiled once gives exactly the bits of `jax.jit` for the arguments of every case.

    `op_by_op`: of JAX without jit. On processors with float16 arithmetic XLA contracts a product
    and a sum to one operation with one rounding.
    """
    f = compiled(fn, **options)
    for args in cases:
        got = f(*args)
        want = fn(*map(jax.numpy.asarray, args)) if op_by_op else jax.jit(fn)(*args)
        assert jax.tree.structure(got) == jax.tree.structure(want), sizes_of(args)
        for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert (g.shape, g.dtype) == (w.shape, w.dtype), sizes_of(args)
            np.testing.assert_array_equal(np.asarray(g), np.asarray(w), sizes_of(args))
    assert_compiled(f, misses)


def small_bert() -> Any:
    """`examples/bert.py` with two layers of small sizes, as a module object of its own."""
    path = Path(__file__).parents[2] / "examples" / "bert.py"
    spec = importlib.util.spec_from_file_location("small_bert", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.LAYERS, module.HIDDEN, module.HEADS = 2, 48, 4
    module.VOCABULARY, module.POSITIONS = 211, 160
    return module
