"""Attention in one launch: ways people write it, around tiles, against float64."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import shlo_disc
from shlo_disc.lower.cuda.attention_parts import MOST_ROWS
from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.plan import If, KernelPlan, Step, kernels_of
from tests.cases import slow
from tests.gpu import device, emulator
from tests.gpu.attention import Planned, fusions_of, plan_attention
from tests.gpu.run import MACHINE
from tests.lower.helpers import Emitted

pytestmark = pytest.mark.skipif(
    emulator.ARCHITECTURE != "", reason="AMD's kernels of attention are two products"
)

on_hopper = pytest.mark.skipif(
    device.ON_DEVICE and device.architecture() != "sm_90", reason="needs a GPU of Hopper"
)

UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-11}
"""How much an operand of a product near 1 is rounded: f32 to tf32."""

MOST = float(np.finfo(np.float32).max)


def softmax_of(scores, v):
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores).astype(v.dtype), v)


def products(q, k):
    return jnp.einsum("bthd,bshd->bhts", q, k, preferred_element_type=jnp.float32) * 0.25


def masked(q, k, v, bias):
    """In the type of the arguments, every step rounded."""
    return softmax_of(jnp.einsum("bthd,bshd->bhts", q, k) / 4 + bias[:, None, None, :], v)


def causal(q, k, v, bias, hidden=-0.7 * MOST, ahead=0):
    scores = products(q, k) + bias[:, None, None, :]
    t, s = scores.shape[-2:]
    seen = jnp.arange(t)[:, None] + ahead >= jnp.arange(s)[None, :]
    return softmax_of(jnp.where(seen, scores, hidden), v)


def causal_at_the_end(q, k, v, mask):
    """The last query sees all keys that `mask` leaves."""
    scores = jnp.where(mask[:, None, None, :], products(q, k), -jnp.inf)
    t, s = scores.shape[-2:]
    seen = jnp.arange(t)[:, None] + (s - t) >= jnp.arange(s)[None, :]
    return softmax_of(jnp.where(seen, scores, -jnp.inf), v)


def causal_and_masked(q, k, v, mask):
    """One mask for all heads, of padding and positions."""
    scores = products(q, k)
    t, s = scores.shape[-2:]
    seen = jnp.arange(t)[:, None] >= jnp.arange(s)[None, :]
    return softmax_of(jnp.where(seen & mask[:, None, None, :], scores, -jnp.inf), v)


def masked_and_causal(q, k, v, mask):
    """One mask behind the other."""
    scores = products(q, k)
    t, s = scores.shape[-2:]
    seen = jnp.arange(t)[:, None] >= jnp.arange(s)[None, :]
    scores = jnp.where(seen, scores, -1e30)
    return softmax_of(jnp.where(mask[:, None, None, :], scores, -1e30), v)


def strictly_causal(q, k, v, bias):
    """The first query sees no key."""
    scores = products(q, k) + bias[:, None, None, :]
    t, s = scores.shape[-2:]
    seen = jnp.arange(s)[None, :] < jnp.arange(t)[:, None]
    return softmax_of(jnp.where(seen, scores, -1e30), v)


def capped(q, k, v, mask):
    """Scores within 5 of 0, a mask, and work behind."""
    scores = 5 * jnp.tanh(products(q, k) / 5)
    scores = jnp.where(mask[:, None, None, :], scores, -jnp.inf)
    return jax.nn.gelu(softmax_of(scores, v)) * 2


def with_heads_first(q, k, v, bias):
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    scores = q @ jnp.swapaxes(k, -1, -2) + bias[:, None, None, :]
    scores = scores.astype(jnp.float32)
    high = jnp.max(scores, -1, keepdims=True)
    high = jnp.where(jnp.isfinite(high), high, 0.0)
    e = jnp.exp(scores - high)
    total = e.sum(-1, keepdims=True)
    weights = e * (1 / jnp.where(total == 0, 1.0, total))
    return jnp.swapaxes(weights.astype(v.dtype) @ v, 1, 2)


causal_with_infinity = functools.partial(causal, hidden=-jnp.inf, ahead=-2)

WAYS = {
    "masked": masked,
    "causal": causal,
    "causal_with_infinity": causal_with_infinity,
    "causal_at_the_end": causal_at_the_end,
    "causal_and_masked": causal_and_masked,
    "masked_and_causal": masked_and_causal,
    "strictly_causal": strictly_causal,
    "capped": capped,
    "with_heads_first": with_heads_first,
}

ROUNDED = ("masked", "with_heads_first")
"""Ways in which scores have the type of the arguments."""

WITH_MASK = ("causal_at_the_end", "causal_and_masked", "masked_and_causal", "capped")
"""Ways whose last argument says which keys there are."""

CASES = [
    (2, 5, 9, 2),
    (1, 64, 64, 1),
    (1, 65, 130, 2),
    (1, 131, 63, 1),
    (3, 1, 1, 1),
    (2, 16, 70, 1),
]
"""b, t, s, h."""


@functools.cache
def planned(way: str, dtype: str, depth: int, width: int, machine: Machine = MACHINE) -> Planned:
    shapes = [f"b, t, h, {depth}", f"b, s, h, {depth}", f"b, s, h, {width}", "b, s"]
    last = "bool" if way in WITH_MASK else dtype if way in ROUNDED else "float32"
    types = [dtype, dtype, dtype, last]
    return plan_attention(WAYS[way], list(zip(shapes, types, strict=True)), machine)


HOPPER = machine_of("sm_90a")


def by_warpgroups(way: str, dtype: str, depth: int, width: int) -> Iterator[Planned]:
    """The kernel of warpgroups alone, of any number of rows."""
    for plan in variants(planned(way, dtype, depth, width, HOPPER), MOST_ROWS + 1):
        if any("wgmma" in kernel.text for kernel in kernels_of(plan.emitted.plan.steps)):
            yield plan


def all_kernels(way: str, dtype: str, rows: int) -> Iterator[Planned]:
    """Every kernel for an attention with so many rows."""
    yield from variants(planned(way, dtype, 16, 24), rows)
    if not device.ON_DEVICE or device.architecture() == "sm_90":
        yield from by_warpgroups(way, dtype, 16, 24)


def arrays(b: int, t: int, s: int, h: int, d: int, e: int, dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng(17 * t + s)
    shapes = [(b, t, h, d), (b, s, h, d), (b, s, h, e), (b, s)]
    return [rng.standard_normal(x).astype(jnp.dtype(dtype)) for x in shapes]


def expected(way: Callable[..., Any], x: Sequence[np.ndarray]) -> np.ndarray:
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        wide = [a if a.dtype == bool else jnp.asarray(a, jnp.float64) for a in x]
        return np.asarray(jax.jit(way)(*wide))


def check(plan: Planned, way: str, x: Sequence[np.ndarray], dtype: str) -> None:
    """Scores and weights are rounded to `dtype` at most once for each operation."""
    if way in WITH_MASK:
        x = [*x[:3], x[3] > -1]
    elif way not in ROUNDED:
        x = [*x[:3], x[3].astype(np.float32)]
    got, want = plan.run(x, seed=3), expected(WAYS[way], x)
    room = 8 * UNIT[dtype] * (1 + np.abs(x[2].astype(float)).max(initial=0))
    sizes = [a.shape for a in x]
    assert got.shape == want.shape
    np.testing.assert_array_equal(np.isnan(got.astype(float)), np.isnan(want), err_msg=str(sizes))
    np.testing.assert_allclose(got.astype(float), want, rtol=0, atol=room, err_msg=str(sizes))


def variants(plan: Planned, rows: int) -> Iterator[Planned]:
    """A plan for each choice that the host program may make for so many rows."""

    def of(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
        if len(steps) == 1 and isinstance(steps[0], If):
            yield from of(steps[0].then)
            yield from of(steps[0].otherwise)
        else:
            yield steps

    whole = plan.emitted
    for steps in of(whole.plan.steps):
        if len(steps) == 2 and rows > MOST_ROWS:
            continue
        made = KernelPlan(steps, whole.plan.workspaces)
        yield Planned(Emitted(made, whole.results, whole.symbols), plan.order, plan.machine)


@pytest.mark.parametrize(
    ("way", "dtype"),
    [(way, "bfloat16") for way in WAYS]
    + [("masked", "float16"), ("causal", "float32"), ("with_heads_first", "float32")]
    + slow((way, "float16") for way in WAYS if way != "masked")
    + slow((way, "float32") for way in ("masked", "capped")),
)
def test_attention(way: str, dtype: str) -> None:
    plan = planned(way, dtype, 16, 24)
    for b, t, s, h in CASES:
        x = arrays(b, t, s, h, 16, 24, dtype)
        for one in variants(plan, t):
            check(one, way, x, dtype)


@on_hopper
@pytest.mark.parametrize(
    ("way", "dtype"),
    [(way, "bfloat16") for way in ("causal", "capped", "with_heads_first")]
    + slow((way, "bfloat16") for way in WAYS if way.startswith(("causal_", "masked", "strictly")))
    + slow((way, "float16") for way in ("masked", "causal")),
)
def test_attention_by_warpgroups(way: str, dtype: str) -> None:
    (plan,) = by_warpgroups(way, dtype, 16, 24)
    for b, t, s, h in (*CASES, (1, 129, 257, 1)):
        check(plan, way, arrays(b, t, s, h, 16, 24, dtype), dtype)


@on_hopper
@pytest.mark.parametrize(("depth", "width"), [(128, 128), (64, 72), *slow([(80, 64)])])
@pytest.mark.parametrize("way", [*slow([("masked",)]), "causal"])
def test_head_sizes_by_warpgroups(way: str, depth: int, width: int) -> None:
    (plan,) = by_warpgroups(way, "bfloat16", depth, width)
    for b, t, s, h in ((1, 140, 67, 2), (2, 3, 129, 1)):
        check(plan, way, arrays(b, t, s, h, depth, width, "bfloat16"), "bfloat16")


@pytest.mark.parametrize(("depth", "width"), [*slow([(128, 128)]), (64, 72), (1, 3), (20, 100)])
def test_head_sizes(depth: int, width: int) -> None:
    """Also those whose rows do not begin at multiples of 16 bytes."""
    plan = planned("causal", "bfloat16", depth, width)
    for b, t, s, h in ((1, 70, 67, 2), (2, 3, 129, 1)):
        check(plan, "causal", arrays(b, t, s, h, depth, width, "bfloat16"), "bfloat16")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("sizes", [(0, 3, 4, 1), (2, 0, 4, 1), (2, 3, 4, 0), (2, 3, 0, 2)])
def test_nothing(sizes: tuple[int, int, int, int], dtype: str) -> None:
    """No keys give 0, as an empty sum does."""
    x = arrays(*sizes, 16, 24, dtype)
    for plan in all_kernels("masked", dtype, sizes[1]):
        got = plan.run(x)
        np.testing.assert_array_equal(got.astype(float), np.zeros(got.shape))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_rows_without_a_key_are_nan_as_in_softmax(dtype: str) -> None:
    for rows in (70, 3):
        x = arrays(2, rows, 66, 1, 16, 24, dtype)
        x[3][0] = -np.inf
        for way in ("masked", "causal_with_infinity"):
            for plan in all_kernels(way, dtype, rows):
                check(plan, way, x, dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_keys_behind_a_finite_mask_count_where_nothing_else_does(dtype: str) -> None:
    """The scores that a row sees are lower than those of the mask."""
    for rows in (130, 9):
        x = arrays(1, rows, 150, 1, 16, 24, dtype)
        x[3] = x[3].astype(np.float32)
        x[3][0, :80] = -1e38
        for plan in all_kernels("strictly_causal", dtype, rows):
            check(plan, "strictly_causal", x, dtype)


@pytest.mark.parametrize(
    ("way", "dtype"),
    [
        ("causal", "bfloat16"),
        ("causal", "float32"),
        ("causal_with_infinity", "bfloat16"),
        ("causal_and_masked", "bfloat16"),
        ("masked_and_causal", "bfloat16"),
    ],
)
def test_tiles_of_hidden_keys_are_not_read(way: str, dtype: str) -> None:
    """Zero times NaN would be NaN. The first two rows see nothing in one of the ways."""
    x = arrays(1, 66, 400, 1, 16, 24, dtype)
    x[2][0, 128:] = np.nan
    for plan in all_kernels(way, dtype, 66):
        last = np.ones_like(x[3], bool) if way in WITH_MASK else x[3].astype(np.float32)
        got = plan.run([*x[:3], last]).astype(float)
        assert np.isfinite(got[:, 2:]).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_nan_spreads_along_its_row(dtype: str) -> None:
    for rows in (67, 6):
        x = arrays(1, rows, 70, 2, 16, 24, dtype)
        x[0][0, 5, 1, 3] = np.nan
        for plan in all_kernels("masked", dtype, rows):
            got = plan.run(x).astype(float)
            assert np.isnan(got[0, 5, 1]).all()
            assert np.isnan(got).sum() == got.shape[-1]


@pytest.mark.parametrize(
    ("way", "dtype"),
    [("masked", "bfloat16"), ("capped", "bfloat16"), ("causal", "float32"),
     *slow([("causal", "bfloat16")])],
)  # fmt: skip
def test_parts_of_keys(way: str, dtype: str) -> None:
    """Around parts and their tiles, and around 16 rows."""
    (plan,) = (p for p in variants(planned(way, dtype, 16, 24), 1) if is_parts(p))
    for b, t, s, h in ((1, 1, 1300, 2), (2, 16, 513, 1), (1, 2, 512, 1), (3, 15, 64, 2)):
        check(plan, way, arrays(b, t, s, h, 16, 24, dtype), dtype)


def test_more_parts_than_threads_add_at_once() -> None:
    (plan,) = (p for p in variants(planned("masked", "bfloat16", 16, 128), 1) if is_parts(p))
    check(plan, "masked", arrays(1, 2, 4700, 1, 16, 128, "bfloat16"), "bfloat16")


def is_parts(plan: Planned) -> bool:
    return len(plan.emitted.plan.steps) == 2


def test_groups_of_queries_share_keys() -> None:
    """Of one position the rows are the queries of a group."""
    shapes = ["b, t, 6, 16", "b, s, 2, 16", "b, s, 2, 16"]

    def function(q, k, v):
        k, v = (jnp.repeat(x, 3, axis=2) for x in (k, v))
        return softmax_of(products(q, k), v)

    plan = plan_attention(function, [(shape, "bfloat16") for shape in shapes])
    for t, s in ((5, 70), (66, 9), (1, 600), (2, 7)):
        q, k, v, _ = arrays(2, t, s, 6, 16, 16, "bfloat16")
        x = [q, k[:, :, :2], v[:, :, :2]]
        got, want = plan.run(x), expected(function, x)
        np.testing.assert_allclose(got.astype(float), want, rtol=0, atol=0.1, err_msg=f"{t} {s}")


def values_first(q, k, v):
    weights = jax.nn.softmax(products(q, k)).astype(v.dtype)
    return jnp.einsum("bshd,bhts->bthd", v, weights)


def keys_first(q, k, v):
    scores = jnp.einsum("bshd,bthd->bhts", k, q, preferred_element_type=jnp.float32)
    return softmax_of(scores * 0.25, v)


def multi_query(q, k, v):
    """One head of keys and values for all of queries."""
    scores = jnp.einsum("bthd,bsd->bhts", q, k[:, :, 0], preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(scores * 0.25).astype(v.dtype)
    return jnp.einsum("bhts,bsd->bthd", weights, v[:, :, 0])


def to_f32(q, k, v):
    weights = jax.nn.softmax(products(q, k)).astype(v.dtype)
    return jnp.einsum("bhts,bshd->bthd", weights, v, preferred_element_type=jnp.float32)


OTHER_FORMS = [values_first, keys_first, multi_query, to_f32]


@pytest.mark.parametrize(
    ("function", "machine"),
    [(function, MACHINE) for function in OTHER_FORMS]
    + ([(multi_query, HOPPER), (to_f32, HOPPER)] if not device.ON_DEVICE else [])
    + (slow([(values_first, HOPPER), (keys_first, HOPPER)]) if not device.ON_DEVICE else []),
    ids=lambda value: value.__name__ if callable(value) else value.name,
)
def test_other_forms(function: Callable[..., Any], machine: Machine) -> None:
    shapes = ["b, t, 3, 16", "b, s, 3, 16", "b, s, 3, 24"]
    plan = plan_attention(function, [(shape, "bfloat16") for shape in shapes], machine)
    for t, s in ((3, 300), (70, 67)):
        x = arrays(2, t, s, 3, 16, 24, "bfloat16")[:3]
        got, want = plan.run(x), expected(function, x)
        assert (got.dtype == np.float32) == (function is to_f32)
        np.testing.assert_allclose(got.astype(float), want, rtol=0, atol=0.05)


def test_order_of_blocks_does_not_matter() -> None:
    for rows in (70, 16):
        x = arrays(2, rows, 600, 2, 16, 24, "bfloat16")
        for plan in all_kernels("masked", "bfloat16", rows):
            np.testing.assert_array_equal(plan.run(x, seed=1), plan.run(x, seed=2))


def plain(q, k, v):
    return softmax_of(jnp.einsum("bthd,bshd->bhts", q, k), v)


def exact(q, k, v):
    with jax.default_matmul_precision("highest"):
        return plain(q, k, v)


def exact_values(q, k, v):
    weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k))
    return jnp.einsum("bhts,bshd->bthd", weights, v, precision="highest")


def by_sums(q, k, v):
    scores = jnp.abs(jnp.einsum("bthd,bshd->bhts", q, k)) + 1
    return jnp.einsum("bhts,bshd->bthd", scores / scores.sum(-1, keepdims=True), v)


@pytest.mark.parametrize(
    ("function", "head", "dtype", "reason"),
    [
        (exact, "64", "float32", "its products keep more digits of f32"),
        (exact_values, "64", "float32", "its products keep more digits of f32"),
        (plain, "64", "float64", "the target has no attention of f64"),
        (plain, "d", "bfloat16", "its head size is not known before a call"),
        (plain, "257", "bfloat16", "its head size is more than 256"),
        (by_sums, "64", "bfloat16", "a softmax has two reductions, the rows have 1"),
    ],
)
def test_what_is_two_products_is_explained(
    function: Callable[..., Any], head: str, dtype: str, reason: str
) -> None:
    with jax.enable_x64(dtype == "float64"):
        text = str(fusions_of(function, [(f"b, {n}, h, {head}", dtype) for n in "tss"]))
    assert reason in text
    assert 'kind = "attention"' not in text


def test_self_attention_has_no_parts_of_keys() -> None:
    """As many keys as rows are few keys."""
    shapes = ["b, t, h, 16", "b, t, h, 16", "b, t, h, 16"]
    plan = plan_attention(plain, [(shape, "bfloat16") for shape in shapes])
    assert not any(map(is_parts, variants(plan, 1)))
    assert plan.emitted.plan.workspaces == ()


def test_attention_of_bert() -> None:
    """The example's, padding mask included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "examples")
        bert = importlib.import_module("bert")

    def function(x, mask, w, b):
        names = ["query", "key", "value", "out"]
        weights = dict.fromkeys(names, w) | {f"{name}_bias": b for name in names}
        bias = (1.0 - mask[:, None, None, :].astype(x.dtype)) * -1e9
        return bert.attention(weights, x, bias)

    types = ["bfloat16", "int32", "bfloat16", "bfloat16"]
    for dtype in ("bfloat16", "float32"):
        given = [t.replace("bfloat16", dtype) for t in types]
        shapes = ["b, t, 768", "b, t", "768, 768", "768"]
        module = fusions_of(function, list(zip(shapes, given, strict=True)))
        assert str(module).count('kind = "attention"') == 1


@pytest.mark.parametrize(
    ("dtype", "size", "architecture"),
    [("bfloat16", 64, "sm_80"), *slow([("float32", 64, "sm_80")]), ("float32", 64, "sm_90a"),
     ("bfloat16", 160, "sm_90a")],
)  # fmt: skip
def test_scores_are_in_no_array(dtype: str, size: int, architecture: str) -> None:
    scope = export.SymbolicScope()
    specs = [
        jax.ShapeDtypeStruct(export.symbolic_shape(f"b, {n}, h, {size}", scope=scope), dtype)
        for n in "tss"
    ]
    program = shlo_disc.compile(
        export.export(jax.jit(plain))(*specs), target=f"cuda:{architecture}"
    )
    text = program.explain()
    assert f"attention_64x{size}_warps" in text
    assert "s*t" not in text.partition("temporary memory")[2].partition("\n")[0]
    ptx = program.as_text("ptx")
    assert "mma.sync" in ptx
    assert "wgmma" not in ptx


@pytest.mark.skipif(device.ON_DEVICE, reason="the stand-in's")
def test_attention_of_jax_under_jit(gpu: Any) -> None:
    """One compilation for positions and heads of any number, a step of decoding included."""

    def function(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=q.shape[1] > 1)

    ours = shlo_disc.jit(function)
    rng = np.random.default_rng(0)
    for t, s, heads, shared in ((20, 70, 2, 2), (5, 9, 4, 2), (130, 130, 1, 1)):
        q = jnp.asarray(rng.standard_normal((2, t, heads, 16)), "bfloat16")
        k, v = (jnp.asarray(rng.standard_normal((2, s, shared, 16)), "bfloat16") for _ in "kv")
        got, want = ours(q, k, v), jax.jit(function)(q, k, v)
        np.testing.assert_allclose(
            np.asarray(got, np.float32), np.asarray(want, np.float32), rtol=0, atol=0.05
        )
    assert ours.cache_info().misses == 1
    assert "attention_" in ours.explain()
