"""A GPU beside `jax.jit` on it: `tools/on_gpu.sh python -m benchmarks.gpu RESULTS.json`.

Both take turns; a time is of calls that are given to the device one after the other, in
microseconds, and the median of the turns. Data is random. What a part prints is stored at once.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shlo_disc
from benchmarks.models.suite import MODELS
from benchmarks.store import host, versions
from examples import bert as example
from shlo_disc import ral

PARTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {}
ONLY_COMPILES = os.environ.get("SHLO_DISC_BENCHMARK_WARM") == "1"
"""Nothing is timed: XLA compiles into its persistent cache (`JAX_COMPILATION_CACHE_DIR`)."""
WARM_UP = 4
"""Calls behind the first one, in which XLA compiles calls of ours for the size."""
TURN = 0.03
"""Seconds of a turn, at least."""


def part(function: Callable[[], Iterator[dict[str, Any]]]) -> Callable[[], Any]:
    PARTS[function.__name__] = function
    return function


def values(*shape: int, dtype: Any = np.float32, seed: int = 0) -> jax.Array:
    """Normal random numbers."""
    array = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return jnp.asarray(array).astype(dtype)


def per_call(function: Callable[..., Any], args: tuple[Any, ...], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        result = function(*args)
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / calls * 1e6


def beside_xla(
    case: str, ours: Any, theirs: Any, *args: Any, turns: int = 5, error: bool = True
) -> dict[str, Any]:
    """A row: microseconds of both, and how far the results are apart."""
    if ONLY_COMPILES:
        jax.block_until_ready(theirs(*args))
        return {"case": case, "ours_us": math.inf, "xla_us": math.inf}
    first = []
    for function in (ours, theirs):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        first.append(time.perf_counter() - start)
        for _ in range(WARM_UP):
            jax.block_until_ready(function(*args))
    calls = [max(2, min(200, int(TURN * 1e6 / per_call(f, args, 2)))) for f in (ours, theirs)]
    times: list[list[float]] = [[], []]
    for _ in range(turns):
        for k, function in enumerate((ours, theirs)):
            times[k].append(per_call(function, args, calls[k]))
    a, b = (statistics.median(own) for own in times)
    row = {
        "case": case,
        "ours_us": a,
        "xla_us": b,
        "xla_over_ours": b / a,
        "first_s": [round(x, 3) for x in first],
    }
    if error:
        left, right = (
            np.asarray(jax.tree.leaves(f(*args))[0]).astype(np.float64) for f in (ours, theirs)
        )
        row["error"] = float(np.abs(left - right).max() / max(np.abs(right).max(), 1e-30))
    return row


def layer_norm(x: jax.Array) -> jax.Array:
    y = x.astype(jnp.float32)
    centered = y - y.mean(-1, keepdims=True)
    variance = (centered**2).mean(-1, keepdims=True)
    return (centered * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype)


def batch_norm(x: jax.Array) -> jax.Array:
    y = x.astype(jnp.float32)
    centered = y - y.mean(0)
    return (centered * jax.lax.rsqrt((centered**2).mean(0) + 1e-5)).astype(x.dtype)


MEMORY_BOUND: dict[str, Callable[[jax.Array], jax.Array]] = {
    "add one": lambda x: x + jnp.asarray(1, x.dtype),
    "gelu": jax.nn.gelu,
    "softmax": lambda x: jax.nn.softmax(x, -1),
    "layer norm": layer_norm,
    "batch norm": batch_norm,
    "transpose": lambda x: x.T + jnp.asarray(1, x.dtype),
    "column sums": lambda x: x.sum(0),
    "row sums": lambda x: x.sum(1),
    "sum": lambda x: x.sum(),
}


@part
def small_call() -> Iterator[dict[str, Any]]:
    """A call of one small kernel: what the host takes."""

    def f(x: jax.Array) -> jax.Array:
        return x + 1

    ours, theirs = shlo_disc.jit(f), jax.jit(f)
    yield beside_xla("x + 1, 16 elements", ours, theirs, values(16), turns=9)


@part
def memory_bound() -> Iterator[dict[str, Any]]:
    """8192 x 8192; bytes are those of the operand and the result."""
    for dtype in (jnp.float32, jnp.bfloat16):
        x = values(8192, 8192, dtype=dtype)
        for name, f in MEMORY_BOUND.items():
            ours = shlo_disc.jit(f)
            row = beside_xla(f"{name} {dtype.__name__}", ours, jax.jit(f), x)
            moved = x.nbytes + jax.eval_shape(f, x).size * x.dtype.itemsize
            yield row | {"gb_s": moved / row["ours_us"] / 1e3}


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    return a @ b


@part
def products() -> Iterator[dict[str, Any]]:
    """Matrix products at the default precision."""
    for dtype, sizes in (
        (jnp.bfloat16, (8192, 8192, 8192)),
        (jnp.bfloat16, (2048, 2048, 2048)),
        (jnp.bfloat16, (8191, 4095, 4097)),
        (jnp.bfloat16, (16, 8192, 8192)),
        (jnp.bfloat16, (1, 8192, 8192)),
        (jnp.bfloat16, (256, 768, 768)),
        (jnp.bfloat16, (128, 768, 768)),
        (jnp.bfloat16, (128, 768, 3072)),
        (jnp.float32, (4096, 4096, 4096)),
        (jnp.float32, (16, 8192, 8192)),
        (jnp.float32, (1, 8192, 8192)),
    ):
        m, n, k = sizes
        a, b = values(m, k, dtype=dtype), values(k, n, dtype=dtype, seed=1)
        name = f"{dtype.__name__} {m} x {n} x {k}"
        row = beside_xla(name, shlo_disc.jit(matmul), jax.jit(matmul), a, b)
        us = row["ours_us"]
        yield row | {"tflop_s": 2 * m * n * k / us / 1e6, "gb_s": b.nbytes / us / 1e3}


@part
def other_products() -> Iterator[dict[str, Any]]:
    """Products of f64, and of 8-bit integers summed in 32 bits."""

    def integers(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.matmul(a, b, preferred_element_type=jnp.int32)

    rng = np.random.default_rng(0)
    for sizes in ((8192, 8192, 8192), (4096, 4096, 4096), (256, 4096, 4096), (16, 8192, 8192)):
        m, n, k = sizes
        x, y = (jnp.asarray(rng.integers(-128, 128, s, "int8")) for s in ((m, k), (k, n)))
        row = beside_xla(f"int8 {m} x {n} x {k}", shlo_disc.jit(integers), jax.jit(integers), x, y)
        yield row | {"tera_operations_s": 2 * m * n * k / row["ours_us"] / 1e6}
        with jax.enable_x64(True):
            a, b = (values(*s, dtype=jnp.float64) for s in ((m, k), (k, n)))
            name = f"float64 {m} x {n} x {k}"
            row = beside_xla(name, shlo_disc.jit(matmul), jax.jit(matmul), a, b)
            yield row | {"tflop_s": 2 * m * n * k / row["ours_us"] / 1e6}


def attending(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.dot_product_attention(q, k, v)


def causal(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


@part
def attention() -> Iterator[dict[str, Any]]:
    """Attention beside XLA's own and, in bf16, beside cuDNN's.

    Operations of causal attention are those of the scores that a row sees. Bytes are those of
    queries, keys, values and the result.
    """
    for name, f, (b, t, s, h, d), dtype in (
        ("causal", causal, (1, 4096, 4096, 16, 128), jnp.bfloat16),
        ("all keys", attending, (1, 4096, 4096, 16, 128), jnp.bfloat16),
        ("causal", causal, (4, 2048, 2048, 16, 64), jnp.bfloat16),
        ("causal", causal, (1, 4096, 4096, 8, 256), jnp.bfloat16),
        ("one step", attending, (16, 1, 8192, 16, 128), jnp.bfloat16),
        ("one step", attending, (1, 1, 32768, 16, 128), jnp.bfloat16),
        ("f32, causal", causal, (4, 2048, 2048, 16, 64), jnp.float32),
        ("f32, all keys", attending, (1, 4096, 4096, 16, 128), jnp.float32),
        ("f32, causal", causal, (1, 4096, 4096, 8, 256), jnp.float32),
        ("f32, one step", attending, (16, 1, 8192, 16, 128), jnp.float32),
    ):
        q = values(b, t, h, d, dtype=dtype)
        k, v = (values(b, s, h, d, dtype=dtype, seed=n) for n in (1, 2))
        ours, operations = shlo_disc.jit(f), 4 * b * h * t * s * d
        if f is causal:
            operations = operations * (t + 1) // (2 * t)
        for theirs in ("xla", "cudnn") if dtype == jnp.bfloat16 else ("xla",):
            case = f"{name} {b} x {t} x {s}, {h} heads of {d}, beside {theirs}"
            try:
                row = beside_xla(case, ours, _jitted(f, theirs), q, k, v)
            except Exception as error:  # cuDNN need not be there, or know the case
                yield {"case": case, "failed": f"{type(error).__name__}: {error}"[:500]}
                continue
            for side in ("ours", "xla"):
                micros = row[f"{side}_us"]
                row[f"{side}_tflop_s"] = operations / micros / 1e6
                row[f"{side}_gb_s"] = (2 * q.nbytes + k.nbytes + v.nbytes) / micros / 1e3
            yield row


def _jitted(f: Callable[..., jax.Array], implementation: str) -> Callable[..., jax.Array]:
    """`f`, an attention, by `jax.jit` with an implementation of JAX's."""
    is_causal = f is causal
    return jax.jit(
        lambda q, k, v: jax.nn.dot_product_attention(
            q, k, v, is_causal=is_causal, implementation=implementation
        )
    )


@part
def bert() -> Iterator[dict[str, Any]]:
    """BERT-base: one compilation of ours for each type, one of XLA's for each row."""
    for dtype in (jnp.bfloat16, jnp.float32):
        params = jax.tree.map(
            lambda a, dtype=dtype: jnp.asarray(a, dtype if a.dtype == jnp.float32 else a.dtype),
            example.init(),
        )
        ours, theirs = shlo_disc.jit(example.bert), jax.jit(example.bert)
        for size in ((1, 16), (1, 128), (8, 128), (32, 384)):
            data = tuple(map(jnp.asarray, example.batch(*size)))
            yield beside_xla(f"{dtype.__name__} {size}", ours, theirs, params, *data)


@part
def models() -> Iterator[dict[str, Any]]:
    """The suite's models, training steps among them."""
    for name, model in MODELS.items():
        ours, theirs = shlo_disc.jit(model.function), jax.jit(model.function)
        params = model.init()
        for shape in model.SHAPES:
            yield beside_xla(f"{name} {shape}", ours, theirs, params, *model.inputs(*shape))


@part
def requests() -> Iterator[dict[str, Any]]:
    """BERT-base at lengths that neither has seen, one after the other: seconds in all."""
    params = jax.tree.map(jnp.asarray, example.init())
    ours, theirs = shlo_disc.jit(example.bert), jax.jit(example.bert)
    for function in (ours, theirs):
        jax.block_until_ready(function(params, *map(jnp.asarray, example.batch(1, 16))))
    lengths = np.random.default_rng(5).choice(np.arange(17, 380), 3, replace=False)
    data = [tuple(map(jnp.asarray, example.batch(1, int(t)))) for t in lengths]
    totals = []
    for function in (ours, theirs):
        start = time.perf_counter()
        for request in data:
            jax.block_until_ready(function(params, *request))
        totals.append(time.perf_counter() - start)
    yield {
        "case": f"{len(data)} requests of new lengths",
        "ours_s": totals[0],
        "xla_s": totals[1],
        "xla_over_ours": totals[1] / totals[0],
    }


@part
def recurrent() -> Iterator[dict[str, Any]]:
    """An LSTM layer of 256 by `lax.scan`."""

    def lstm(w: jax.Array, u: jax.Array, b: jax.Array, xs: jax.Array) -> jax.Array:
        def step(c: Any, x: jax.Array) -> Any:
            h, s = c
            i, f, g, o = jnp.split(x @ w + h @ u + b, 4, -1)
            s = jax.nn.sigmoid(f) * s + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(s)
            return (h, s), h

        zero = jnp.zeros((xs.shape[1], 256), xs.dtype)
        return jax.lax.scan(step, (zero, zero), xs)[1]

    w, u, b = values(256, 1024) / 16, values(256, 1024, seed=1) / 16, values(1024, seed=2)
    ours, theirs = shlo_disc.jit(lstm), jax.jit(lstm)
    for batch in (1, 16):
        row = beside_xla(
            f"256 steps, batch {batch}", ours, theirs, w, u, b, values(256, batch, 256)
        )
        yield row


def gradient_of_embedding(table: jax.Array, words: jax.Array, weights: jax.Array) -> jax.Array:
    def loss(table: jax.Array) -> jax.Array:
        return (table[words] * weights).sum()

    return jax.grad(loss)(table)


def words(count: int, vocabulary: int) -> jax.Array:
    """Words as frequent as in texts: the n-th one in proportion to 1 / n."""
    r = np.random.default_rng(3)
    return jnp.asarray(np.exp(r.uniform(0, np.log(vocabulary), count)).astype(np.int32) - 1)


def cases_of_data() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Name, function and arguments."""
    million = values(1_000_000)
    yield "sort 1e6", jnp.sort, (million,)
    yield "argsort 1e6", jnp.argsort, (million,)
    rows = values(4096, 1024)
    yield "sort 4096 x 1024", jnp.sort, (rows,)
    yield "argsort 4096 x 1024", jnp.argsort, (rows,)
    yield "cumsum 1e7", jnp.cumsum, (values(10_000_000),)
    square = values(8192, 8192)
    yield "cumsum 8192 x 8192 rows", lambda x: jnp.cumsum(x, 1), (square,)
    yield "cumsum 8192 x 8192 columns", lambda x: jnp.cumsum(x, 0), (square,)
    del square
    wide = jax.random.normal(jax.random.key(0), (4096, 32768))
    yield "top_k 4096 x 32768, 8", lambda x: jax.lax.top_k(x, 8), (wide,)
    del wide
    yield "top_k 1 x 1e6, 8", lambda x: jax.lax.top_k(x, 8), (million[None],)
    for dtype in (jnp.float32, jnp.bfloat16):
        table, weights = values(30522, 768, dtype=dtype), values(12288, 768, dtype=dtype)
        name = f"gradient of embedding {dtype.__name__}"
        yield name, gradient_of_embedding, (table, words(12288, 30522), weights)
    places = jnp.asarray(np.random.default_rng(4).integers(0, 1_000_000, 1_000_000, np.int32))
    yield "add at 1e6 places", lambda x, i, u: x.at[i].add(u), (million, places, values(1_000_000))
    bins = places % 100
    yield "histogram of 1e6", lambda i: jnp.zeros(100, jnp.int32).at[i].add(1), (bins,)


def difference(ours: Any, theirs: Any) -> float:
    """The largest difference of two results, relative to the largest element of each array."""
    found = 0.0
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        x, y = a.astype(jnp.float32), b.astype(jnp.float32)
        found = max(found, float(jnp.abs(x - y).max() / jnp.maximum(jnp.abs(y).max(), 1e-30)))
    return found


@part
def data_dependent() -> Iterator[dict[str, Any]]:
    """Sorts, scans, top-k and scatters; the difference is of all results."""
    for name, f, args in cases_of_data():
        ours, theirs = shlo_disc.jit(f), jax.jit(f)
        row = beside_xla(name, ours, theirs, *args, error=False)
        yield row | {"error": difference(ours(*args), theirs(*args))}


def main(path: str, names: list[str]) -> None:
    device = ral.gpu_devices("cuda")[0]
    out: dict[str, Any] = {
        "device": {k: v for k, v in device.items() if isinstance(v, str | int)},
        "driver": str(ral.gpu_driver("cuda")),
        "machine": host(),
        "versions": versions(),
        "rows": {},
    }
    for name in names or list(PARTS):
        rows = out["rows"][name] = []
        for row in _rows_of(name):
            rows.append({k: _rounded(v) for k, v in row.items()})
            print(name, rows[-1], flush=True)
            Path(path).write_text(_lines(out))


def _rows_of(name: str) -> Iterator[dict[str, Any]]:
    try:
        yield from PARTS[name]()
    except Exception as error:  # the other parts are still measured
        yield {"failed": f"{type(error).__name__}: {error}"[:2000]}


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _lines(out: dict[str, Any]) -> str:
    """JSON with a row a line."""
    head = json.dumps({k: v for k, v in out.items() if k != "rows"}, indent=1)[:-2]
    parts = [
        f' "{name}": [\n' + ",\n".join("  " + json.dumps(row) for row in rows) + "\n ]"
        for name, rows in out["rows"].items()
    ]
    return head + ',\n "rows": {\n' + ",\n".join(parts) + "\n }\n}\n"


if __name__ == "__main__":
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    main(sys.argv[1], sys.argv[2:])
