"""Questions a program asks about sizes: answered as under `jax.jit`, guarded, always heard."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import operator
import random
import threading
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.signal as jsp
import numpy as np
import pytest
from jax import export, lax
from jax._src import util

import shlo_disc
from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.calls import compiled_call
from shlo_disc.jax.sizes import policy
from shlo_disc.jax.sizes.symbolic import SizeScope, evaluate, is_size
from shlo_disc.jax.versions.symbols import methods
from tests.cases import slow
from tests.children import python
from tests.frontend.asking import random_function


def F(*shape):
    return np.sin(np.arange(1, 1 + int(np.prod(shape))) * 0.7).astype(np.float32).reshape(shape)


def same(function, *calls, misses=None, rtol=1e-4, **options):
    compiled_call._programs.clear()  # the stand-in keeps those of earlier functions alive
    f = shlo_disc.jit(function, **options)
    for args in calls:
        want, got = jax.jit(function)(*args), f(*args)
        assert jax.tree.structure(got) == jax.tree.structure(want)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5)
    if misses is not None:
        assert f.cache_info().misses == misses, f.guards()
    return f


def sizes(f):
    return [(F(n),) for n in f]


def test_repeats_are_one_in_no_version_of_their_own():
    """`jnp.tile` of a learned token for each of a batch, as vision transformers have it."""

    def function(x, token):
        return jnp.concatenate([jnp.tile(token, (x.shape[0], 1)), x], 1)

    same(function, *[(F(n, 4), F(1, 2)) for n in (3, 1, 5)], misses=1)


@pytest.mark.parametrize("sizes", [(4, 8, 20), (8, 4, 20)])
def test_sizes_of_one_are_no_version_of_their_own(sizes):
    """The gradient of a bias beside data, where a batch or a quotient of a size is 1."""

    def function(x, bias):
        def loss(bias):
            half = x[:, : x.shape[1] // 4]
            mean = half - half.mean(1, keepdims=True)
            return jnp.sum(jnp.tanh(half + bias.reshape(1, 1, -1))) + jnp.sum(mean - bias)

        return jax.grad(loss)(bias)

    same(function, *[(F(1 + n % 8, n, 3), F(3)) for n in sizes], misses=1)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_numbers_of_sizes_in_narrow_floats(dtype):
    """They are rounded where the size is a number, and where it is a symbol."""

    def function(x):
        n, h = x.shape[1], x.astype(dtype)
        return h / n**0.5, h * (n * 1.01), h - n**-0.5, h / (3 * n), h * (1 / n)

    same(function, (F(2, 37),), (F(3, 5),), (F(1, 999),), misses=1, rtol=1e-2)


def test_functions_that_modules_have_from_jax_take_symbols():
    """`from jax.numpy import diagonal`, before the first trace replaces functions of JAX."""
    told = python("""
        import numpy as np
        from jax import lax
        from jax.numpy import add, diagonal
        from jax.numpy import diagonal as ends
        import shlo_disc

        prefixes = lax.associative_scan
        f = shlo_disc.jit(lambda x: diagonal(x) + prefixes(add, ends(x)))
        for n in (4, 5):
            np.testing.assert_array_equal(f(np.ones((n, n), np.float32)), 2 + np.arange(n))
        print(f.cache_info().misses)
    """)
    assert told == "1"


def test_resized_to_a_size_that_it_has():
    def function(x):
        return jax.image.resize(x, (x.shape[0], 5), "nearest")

    same(function, (F(3, 4),), (F(2, 5),), (F(1, 7),), misses=1)


def test_weak_types_of_results_are_those_of_numbers():
    def function(x):
        return x, np.prod(x.shape), round(x.shape[0] / 2), x.shape[0] / 2

    f, g = shlo_disc.jit(function), jax.jit(function)
    for n in (3, 4):
        for ours, theirs in zip(f(F(n, 2)), g(F(n, 2)), strict=True):
            assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type)
            np.testing.assert_array_equal(ours, theirs)


QUESTIONS = {  # the program, and how many versions the sizes 3, 6, 4, 9 need
    "quotient": (lambda x: x * 2 if x.shape[0] // 6 else x, 2),
    "remainder": (lambda x: x * (x.shape[0] % 3 or 7), 2),
    "multiple": (lambda x: -x if not x.shape[0] % 3 else x, 2),
    "float": (lambda x: x * 2 if x.shape[0] == 6.0 else x, 2),
    "half": (lambda x: x * 2 if x.shape[0] < 4.5 else x, 2),
    "numpy": (lambda x: x * 2 if np.int16(4) == x.shape[0] else x, 2),
    "order of tuples": (lambda x: x * 2 if (x.shape[0], 1) < (5, 0) else x, 2),
    "bits": (lambda x: x * 2 if x.shape[0] & 1 else x, 2),
    "rounded": (lambda x: x[: round(x.shape[0]) // 2], 1),
    "rounded up": (lambda x: jnp.resize(x, math.ceil(x.shape[0] / 4)), 1),
    "rounded down": (lambda x: x * math.floor((x.shape[0] - 5) / 2.0), 1),
    "rounded, asked": (lambda x: x * (2 if math.ceil(x.shape[0] / 4) > 1 else 3), 2),
    "multiple below": (lambda x: x * ((x.shape[0] - 5) & ~3) + (x.shape[0] & -8), 1),
    "tiled": (lambda x: jnp.tile(x, (2, x.shape[0] - 2)), 1),  # the first call once
    "repeated": (lambda x: jnp.repeat(x, x.shape[0] - 2, total_repeat_length=20), 1),
    "deleted": (lambda x: jnp.delete(x, x.shape[0] // 2), 1),
    "deleted from the end": (lambda x: jnp.delete(x, 2 - x.shape[0]), 1),
    "partition": (lambda x: jnp.partition(x, x.shape[0] // 2)[x.shape[0] // 2], 1),
    "argpartition": (lambda x: x[jnp.argpartition(x, x.shape[0] - 1)][-1], 1),
    "power modulo": (lambda x: x * pow(x.shape[0] - 5, 3, 7), 1),
    "traced": (lambda x: jnp.where(x.shape[0] == x.argmax() + 3, x, -x), 1),
    "array": (lambda x: (np.arange(5) == x.shape[0]) * x[0], 1),
    "power": (lambda x: x * x.shape[0] ** -0.5, 1),
    "root": (lambda x: x / np.sqrt(x.shape[0]), 1),
    "isinstance": (lambda x: x * (2 if isinstance(x.shape[0], int) else 3), 4),
    "type": (lambda x: x * {int: 2.0}.get(type(x.shape[0]), 3.0), 4),
    "set": (lambda x: x * (2 if x.shape[0] in {4, 9} else 3), 4),
    "range": (lambda x: x * (2 if x.shape[0] in range(1, 100) else 3), 1),
    "steps": (lambda x: x * (2 if x.shape[0] in range(3, 8, 3) else 3), 3),
    "text": (lambda x: x * len(f"{x.shape[0] * 3}"), 4),
    "index": (lambda x: x * [5, 6, 7][operator.index(x.shape[0]) % 3], 4),
    "weak index": (lambda x: x * [5, 6, 7][x.shape[0] % 3], 2),
    "caught": (lambda x: x * caught(lambda: int(x.shape[0])), 4),
}


def caught(question):
    try:
        return question()
    except Exception:
        return 0


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_answered_with_the_size_of_the_call(name):
    function, versions = QUESTIONS[name]
    same(function, *sizes((3, 6, 4, 9)), misses=versions)


PADDINGS = {  # how programs spell the distance to the next multiple of 8
    "negative": lambda n: -n % 8,
    "twice": lambda n: (8 - n % 8) % 8,
    "difference": lambda n: (8 - n) % 8,
    "mask": lambda n: ((n + 7) & ~7) - n,
    "ceil": lambda n: math.ceil(n / 8) * 8 - n,
    "floor": lambda n: (n + 7) // 8 * 8 - n,
    "one more": lambda n: 8 - n % 8,
}


def test_what_is_padded_or_cut_to_a_multiple_has_an_even_reshape():
    def program(x, y):
        n, m = x.shape[0], y.shape[1]
        rows = {k: jnp.pad(x, (0, p(n))).reshape(-1, 8).sum(0) for k, p in PADDINGS.items()}
        cut = x[: n - n % 8]
        blocks = jnp.pad(y, ((0, -y.shape[0] % 4), (0, (4 - m % 4) % 4)))
        blocks = blocks.reshape(-1, 4, blocks.shape[1] // 4, 4).sum((1, 3))
        return rows, cut.reshape(-1, 8), cut.reshape(8, -1), blocks

    calls = [(F(n), F(a, b)) for n, a, b in ((8, 4, 4), (5, 2, 8), (1, 1, 1), (33, 3, 6))]
    same(program, *calls, misses=1)


def test_a_reshape_to_rows_of_8_does_not_make_8_a_constant():
    same(lambda x: x.reshape(-1, 8), *[(F(n),) for n in (8, 16, 8)], misses=1)
    same(lambda x: x.reshape(-1, 8), *[(F(*s),) for s in ((3, 8), (5, 16), (2, 24))], misses=1)


def test_copies_of_sizes_are_sizes():
    @dataclasses.dataclass
    class Plan:
        n: Any

    def program(x):
        plan = Plan(x.shape[0])
        return x * dataclasses.asdict(plan)["n"] + copy.deepcopy([plan.n])[0] + copy.copy(plan).n

    same(program, *sizes((3, 6, 4)), misses=1)


DIVISIONS = {  # the program of n and m, and how many versions the sizes below need
    "quotient": (lambda n, m: n // (m - 4), 2),
    "question": (lambda n, m: 2 if n // (m - 1) > 2 else 3, 2),
    "remainder": (lambda n, m: 2 if n % (m - 4) >= 1 else 3, 2),
    "both": (lambda n, m: sum(divmod(n, m - 4)), 2),
    "of a number": (lambda n, m: 7 // (m - 4), 2),
    "fraction": (lambda n, m: n / (m - 4), 1),
    "inverse": (lambda n, m: (m - 4) ** -1, 1),
    "root": (lambda n, m: (m - 1) ** -0.5, 1),
    "caught": (lambda n, m: caught(lambda: n // (m - 4)), 3),
    "constant": (lambda n, m: n // 0, 0),
    "shape": (lambda n, m: jnp.ones(n // (m - 1)), 1),
    "rows": (lambda n, m: jnp.ones(n * (m - 1)).reshape(m - 1, -1).sum(0), 1),
    "places": (lambda n, m: jnp.roll(jnp.arange(n - 1), 1), 1),
    "wide numbers": (lambda n, m: 2 if n * 10**12 > 2**43 else 3, 2),
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_divisions_are_those_of_numbers(name):
    function, versions = DIVISIONS[name]

    def program(x, y):
        return jnp.asarray(function(x.shape[0], y.shape[0]), np.float32) + x.sum()

    f = shlo_disc.jit(program)
    for n, m in ((8, 3), (9, 7), (5, 4), (12, 6), (8, 1), (9, 2)):
        args = F(n), F(m)
        want, got = outcome(jax.jit(program), args), outcome(f, args)
        if isinstance(want, Exception):
            assert type(got) is type(want) is ZeroDivisionError
        else:
            np.testing.assert_allclose(got, want, rtol=1e-5)
    assert f.cache_info().misses == versions, f.guards()


def test_a_loop_over_a_question_ends():
    def f(x):
        n = x.shape[0]
        while n % 2 == 0:
            n, x = n // 2, x + 1
        return x

    same(f, *sizes((4, 12, 5, 20)), misses=2)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_question_from_another_thread_is_heard():
    def f(x):
        found = []
        thread = threading.Thread(target=lambda: found.append(x.shape[0] == 4))
        thread.start()
        thread.join()
        return x * 2 if found[0] else x

    made = same(f, *sizes((5, 4, 3)), misses=2)
    assert any("d0 != 4: the program compares d0 with 4" in guard for guard in made.guards())


def test_a_guard_names_its_question_and_line():
    def f(x):
        return x * 2 if x.shape[0] % 4 == 1 else x

    made = same(f, *sizes((4, 8, 6)), misses=1)
    line = f.__code__.co_firstlineno + 1
    assert made.guards() == [
        f"mod(d0, 4) != 1: the program compares mod(d0, 4) with 1 ({__file__}:{line})"
    ]


def test_ordinary_programs_have_no_guards():
    def f(x, w):
        y = jax.nn.softmax(x @ w / x.shape[1])
        return (y - y.mean(0)) * jnp.tril(jnp.ones((y.shape[0], y.shape[1])))

    made = same(f, (F(3, 4), F(4, 5)), (F(1, 2), F(2, 1)), (F(6, 6), F(6, 6)), misses=1)
    assert made.guards() == ["d1 == d2 (dimension 0 of w): _dot_general_shape_rule of JAX compares "
                             f"d1 with d2 ({__file__}:{f.__code__.co_firstlineno + 1})"] or (
        not made.guards()
    )  # fmt: skip


def test_static_fields_hold_the_size_of_each_call():
    @dataclasses.dataclass
    class Box:
        x: Any
        n: Any

    jax.tree_util.register_dataclass(Box, data_fields=["x"], meta_fields=["n"])
    f = shlo_disc.jit(lambda x: Box(x, (x.shape[0] * 2, {"half": x.shape[0] // 2})))
    for n in (5, 8):
        assert f(F(n)).n == (2 * n, {"half": n // 2})
    assert f.cache_info().misses == 1


def test_a_size_kept_by_the_program_is_named(caplog):
    kept = []
    f = shlo_disc.jit(lambda x: kept.append(x.shape[0]) or x + 1)
    f(F(3))
    assert kept[-1] == 3
    assert type(kept[-1]) is int  # the last trace of a new version is one with numbers
    with caplog.at_level("WARNING", "shlo_disc"):
        assert int(kept[0]) == 3
    assert "was kept by the program beyond its trace" in caplog.text


@pytest.mark.parametrize("kind", ["vjp", "jvp", "vmap"])
def test_rules_of_derived_programs_ask(kind):
    made = {"vjp": _with_vjp, "jvp": _with_jvp, "vmap": _with_vmap}[kind]()
    f = shlo_disc.jit(lambda x: made(x).sum() if kind != "vmap" else made(x) + 0)
    g = jax.jit(lambda x: made(x).sum() if kind != "vmap" else made(x) + 0)
    for n in (5, 4, 3, 4):
        if kind == "vmap":
            np.testing.assert_allclose(jax.vmap(f)(F(n, 3)), jax.vmap(g)(F(n, 3)), rtol=1e-5)
        else:
            np.testing.assert_allclose(jax.grad(f)(F(n)), jax.grad(g)(F(n)), rtol=1e-5)
    assert any("in derived programs" in guard for guard in f.guards())


def _with_vjp():
    @jax.custom_vjp
    def op(x):
        return x * 2

    op.defvjp(lambda x: (x * 2, x), lambda x, g: (g * 10,) if x.shape[0] == 4 else (g * 3,))
    return op


def _with_jvp():
    @jax.custom_jvp
    def op(x):
        return x * 2

    op.defjvp(lambda p, t: (op(*p), t[0] * (10.0 if p[0].shape[0] == 4 else 3.0)))
    return op


def _with_vmap():
    @jax.custom_batching.custom_vmap
    def op(x):
        return x * 2

    op.def_vmap(lambda size, _, x: (x * (10.0 if size == 4 else 2.0), True))
    return op


def test_a_function_that_asked_unheard_is_checked_at_every_new_shape():
    four = 4

    def unheard(x):  # an identity is no question
        return x * 2 if x.shape[0] is four else x

    same(unheard, *sizes((4, 6, 4, 5)), misses=2)
    f = same(unheard, *sizes((6,)), misses=1)
    f(F(4))  # only `dynamic="checked"` would know before it was found once
    assert f.cache_info().misses == 1


def test_a_bound_that_is_not_reached_costs_no_trace(caplog):
    def program(x, mask):
        return (x + jnp.ones(16)[: x.shape[0]]) * mask

    with caplog.at_level("DEBUG", "shlo_disc"):
        f = same(program, *((F(n), F(n)) for n in (5, 3, 16)), misses=1)
    assert "program: 1 traces" in caplog.text
    assert any(line.startswith("16 >= d0") for line in f.guards())


@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint32", "int16"])
def test_places_far_outside_in_64_bit_mode(dtype):
    far = np.array([2, -1, 0, 7, 2**31, 2**31 + 1, 2**32 + 1, 2**62 + 3, -(2**31)])

    def program(x, i):
        along = jnp.take_along_axis(x, i[: x.shape[0]], 0, mode="clip")
        return (
            x[i],
            x.at[i].set(0.0, mode="drop"),
            along,
            x[i[0]],
            jnp.argsort(x),
            jnp.unique(x, size=2),
        )

    with jax.enable_x64(True):
        same(program, *((F(n), far.astype(dtype)) for n in (3, 9, 8)), misses=1)


def test_shapes_that_do_not_fit_may_be_caught():
    def fits(x, y):
        try:
            return x @ y, x[:, 0] + y
        except (TypeError, ValueError):
            return x.sum(), jnp.array_equiv(x, y)

    same(
        fits,
        *((F(n, m), F(k)) for n, m, k in ((3, 4, 5), (3, 4, 4), (8, 8, 8), (1, 4, 4), (2, 7, 3))),
    )


def test_objects_of_jax_that_have_shapes_are_compared():
    def program(x):
        mine = jax.eval_shape(lambda v: v, x)
        three, four = (jax.ShapeDtypeStruct((n,), np.float32) for n in (3, 4))
        if mine == three or mine in {four}:
            return x * 2
        return x

    same(program, *sizes((6, 3, 5, 4, 9)))


def test_checked_compares_at_every_new_shape():
    known = {5}  # what is asked of the program itself, not of a size, is not seen

    def f(x):
        return x * (2 if type(x.shape[0]) is not int or x.shape[0] in known else 3)

    g = shlo_disc.jit(f, dynamic="checked")
    for n in (5, 6, 7, 5):
        np.testing.assert_allclose(g(F(n)), jax.jit(f)(F(n)), rtol=1e-6)

    lowered = shlo_disc.jit(f, dynamic="checked")
    lowered.lower(F(5))
    np.testing.assert_allclose(lowered(F(6)), jax.jit(f)(F(6)), rtol=1e-6)


# ---- functions of JAX that want constant sizes ---------------------------------------------------

GENERIC = {
    "squeeze": lambda x: jnp.squeeze(x[:, None]),
    "scan": lambda x: lax.scan(lambda c, _: (c * 0.5 + 1, None), 0.0, None, length=x.shape[0])[0],
    "scan of rows": lambda x: lax.scan(lambda c, v: (c + v, c), 0.0, x, length=x.shape[0])[1],
    "associative_scan": lambda x: lax.associative_scan(jnp.add, x),
    "reverse": lambda x: lax.associative_scan(jnp.maximum, x, reverse=True),
    "pairs": lambda x: lax.associative_scan(
        lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (jnp.cos(x), x)
    )[1],
    "searchsorted": lambda x: jnp.searchsorted(jnp.sort(x), x),
    "from the right": lambda x: jnp.searchsorted(jnp.sort(x), x, side="right"),
    "permutation": lambda x: jax.random.permutation(jax.random.key(0), x),
    "convolve": lambda x: jnp.convolve(x, jnp.arange(3.0), "same"),
    "correlate": lambda x: jnp.correlate(x, jnp.arange(3.0), "full"),
    "interp": lambda x: jnp.interp(0.3, jnp.arange(x.shape[0]) * 1.0, x),
    "wrap": lambda x: jnp.pad(x, 2, mode="wrap"),
    "logspace": lambda x: jnp.logspace(0.0, 1.0, x.shape[0]) * x,
}


@pytest.mark.parametrize("name", GENERIC)
def test_functions_of_jax_are_generic(name):
    same(GENERIC[name], *sizes((6, 7, 12, 33)), misses=1)


def mapped(function):
    return jax.vmap(function, axis_name="batch")


def over_a_batch(x):
    """Collectives over a mapped axis, and its size."""
    psum, pmean, pmax, pmin = lax.psum, lax.pmean, lax.pmax, lax.pmin
    return (
        mapped(lambda v: v - pmean(v, "batch"))(x),
        mapped(lambda v: pmax(v, "batch") * v - pmin(v, "batch"))(x),
        mapped(lambda v: v / psum(1, "batch") + psum(1.0, "batch") * lax.axis_index("batch"))(x),
        mapped(lambda v: lax.all_gather(v, "batch").sum() * lax.axis_size("batch") - v)(x),
        jax.grad(lambda x: (mapped(lambda v: psum(v**2, "batch") * v)(x) ** 2).sum())(x),
        mapped(jax.grad(lambda v: pmean(jnp.sin(v), "batch") ** 2))(x),
    )


def test_collectives_over_a_mapped_axis():
    same(over_a_batch, *sizes((6, 7, 3, 33)), misses=1)
    same(jax.vmap(over_a_batch), *[(F(n, n + 2),) for n in (4, 3, 7)], misses=1)


@pytest.mark.parametrize("first", [3, *slow([1])])
def test_derivatives_of_an_associative_scan(first):
    """The two ways to write a scan keep different values for the derivative."""

    def f(x):
        scanned = lax.associative_scan(jnp.multiply, x)
        constant = lax.associative_scan(jnp.add, jnp.cos(x[0]) * jnp.arange(4.0))
        return (scanned**2).sum() + (constant**2).sum()

    same(jax.value_and_grad(f), *sizes((first, 5, 8, 2)), misses=1)


def test_a_question_in_the_function_of_an_associative_scan():
    def f(x):
        times = 2 if isinstance(x.shape[0], int) else 3
        return lax.associative_scan(lambda a, b: jnp.maximum(a, b * times), x)

    for order in ((4, 2, 5), (1, 4)):
        same(f, *sizes(order))


def test_a_first_batch_of_one_row():
    """Nothing is broadcast at these sizes, so JAX sums nothing in the derivative."""

    def loss(w, b, x):
        return (jnp.tanh(x @ w + b) ** 2).sum()

    calls = [(F(4, 3), F(3), F(n, 4)) for n in (1, 5, 2)]
    same(jax.value_and_grad(loss, argnums=(0, 1)), *calls, misses=1)


class Layer:
    """A callable that shows its arrays, as modules of equinox do."""

    def __init__(self, data):
        self.data = data

    def __call__(self, x):
        return (self.data * x).sum()

    def __repr__(self):
        return f"Layer({self.data.shape})"


def test_a_function_is_described_without_a_guard():
    f = same(lambda x, y: jax.vmap(Layer(x))(y), *[(F(n), F(n, n)) for n in (3, 5, 4)], misses=1)
    assert not any("text" in guard for guard in f.guards())
    g = shlo_disc.jit(lambda x: x * len(repr(Layer(x))))
    g(F(3))
    assert any("text" in guard for guard in g.guards())


@dataclasses.dataclass
class Described:
    data: jax.Array

    def __call__(self, x):
        return (self.data * x).sum()


def test_the_text_of_a_dataclass_is_no_question_of_jax():
    shapes = [(F(n), F(n, n)) for n in (3, 5, 4)]
    f = same(lambda x, y: jax.vmap(Described(x.shape[0] * x))(y), *shapes, misses=1)
    assert not any("text" in guard for guard in f.guards())


@pytest.mark.parametrize("text", [str, lambda n: repr(slice(n)), lambda n: f"{n:02d}"])
def test_texts_in_forward_rules_are_heard(text):
    known = text(4)

    @jax.custom_vjp
    def scaled(x):
        return x * 1

    def forward(x):
        return x * (2 if text(x.shape[0]) == known else 3), x

    scaled.defvjp(forward, lambda x, g: (g * 5,))
    same(jax.value_and_grad(lambda v: scaled(v).sum()), *sizes((3, 4, 5, 4)))


def test_batches_in_different_places():
    """JAX moves a batch to the front where the places differ: no size is asked for."""
    f = jax.vmap(lambda a, b: jnp.where(a > 0, a * b, b).sum(), in_axes=(1, 0))
    same(f, *[(F(n, m), F(m, n)) for n, m in ((4, 4), (3, 5), (6, 2))], misses=1)
    same(f, *[(F(n, m), F(m, n)) for n, m in ((2, 5), (3, 3))], misses=1)


ALL_SIZES = {  # right for one element too
    "borders": lambda x: [
        jnp.pad(x, (2, 3), mode=mode) for mode in ("reflect", "symmetric", "wrap", "linear_ramp")
    ],
    "repeats": lambda x: [jnp.resize(x, 7), jnp.resize(x, (x.shape[0] + 1, 2))],
    "intervals": lambda x: [
        jnp.linspace(0.0, x[0], x.shape[0]),
        jnp.linspace(x[:2].max(), 9, x.shape[0], endpoint=False),
        jnp.linspace(x, x + 1, x.shape[0], axis=-1),
        jnp.linspace(x[0], 1, x.shape[0], retstep=True),
        jnp.linspace(0, 9, x.shape[0], dtype=int),
    ],
    "windows": lambda x: [
        jnp.hanning(x.shape[0]) + jnp.hamming(x.shape[0]) + jnp.bartlett(x.shape[0]),
        jnp.blackman(x.shape[0]) * jnp.kaiser(x.shape[0], 3.0),
    ],
    "polynomials": lambda x: [
        jnp.polyadd(x, jnp.ones(3)),
        jnp.polysub(jnp.ones(4), x),
        jnp.polyval(x, 0.5),
        jnp.polyval(jnp.outer(x, jnp.arange(3)), jnp.arange(6.0).reshape(2, 3)),
    ],
    "diagonals": lambda x: [
        jnp.diagonal(jnp.outer(x, jnp.arange(4.0))),
        jnp.fill_diagonal(jnp.outer(x, jnp.arange(5.0)), 7.0, inplace=False),
        jnp.diag(jnp.outer(jnp.arange(6.0), x), -1),
    ],
    "permutation": lambda x: jax.random.permutation(jax.random.key(0), x),
    "bits": lambda x: [
        jnp.packbits(x > 0),
        jnp.packbits(jnp.outer(x, jnp.arange(3)) < 0, axis=0, bitorder="little"),
    ],
    "vectorized": lambda x: jnp.vectorize(jnp.dot, signature="(k),(k)->()")(x[:, None], x[:, None]),
    "an unrolled loop": lambda x: lax.scan(lambda c, v: (c * v, c), 1.0, x, unroll=4),
    "a composite": lax.composite(lambda y: y * 2 + 1, "my.line"),
    "constant sizes": lambda x: [  # whose functions are written in two ways all the same
        x * lax.associative_scan(jnp.add, jnp.arange(4.0))[-1],
        x + jnp.linspace(0.0, 1.0, 3).sum(),
        x + jnp.pad(jnp.arange(3.0), 2, mode="reflect").sum(),
    ],
}


@pytest.mark.parametrize("name", ALL_SIZES)
def test_functions_of_jax_are_generic_for_one_element_too(name):
    same(ALL_SIZES[name], *sizes((6, 1, 16, 33)), misses=1)


@pytest.mark.parametrize("op", ["convolve", "correlate"])
def test_convolutions_of_two_symbolic_sizes(op):
    def f(x, y):
        found = [getattr(jnp, op)(x, y, mode=mode) for mode in ("full", "same", "valid")]
        return [*found, getattr(jsp, op)(x, y, mode="full"), getattr(jnp, op)(x, jnp.arange(4))]

    same(f, *[(F(n), F(m)) for n, m in ((6, 4), (1, 5), (5, 1), (4, 6), (3, 4), (33, 7))], misses=1)


def test_convolutions_in_two_dimensions():
    def f(x, y):
        return [jsp.convolve2d(x, y, mode=mode) for mode in ("full", "same", "valid")]

    same(f, *[(F(n, n + 1), F(m, 2)) for n, m in ((6, 4), (4, 1), (7, 3), (9, 4))], misses=1)


def test_a_function_taken_before_it_was_replaced_is_right_too():
    shlo_disc.jit(jnp.sin)  # replaces them
    early = jnp.hanning.__wrapped__

    def f(x):
        return jnp.hanning(x.shape[0]) + early(x.shape[0])

    same(f, *sizes((6, 1, 12, 33)), misses=2)


def test_diagonals_of_a_square_first():
    calls = [(F(n, m),) for n, m in ((4, 4), (3, 5), (6, 1))]
    same(lambda x: (jnp.diagonal(x) * 2, jnp.diag(x), jnp.trace(x)), *calls, misses=1)


def test_sizes_that_jax_wants_equal_are_one_symbol():
    def f(x, y):
        return jnp.lexsort((x, y)), jnp.diag_indices_from(jnp.outer(x, y))

    same(f, *[(F(n), F(n)) for n in (6, 1, 12, 33)], misses=1)


def test_a_size_with_a_bound_that_is_not_reached_is_the_size_within():
    def f(x):
        window = lax.reduce_window(x, -jnp.inf, lax.max, (3,), (1,), "VALID")
        return lax.cond(x[0] > 0, lambda: window + 1, lambda: jnp.ones(2))

    (guard,) = same(f, *sizes((4,)), misses=1).guards()
    assert guard.startswith("d0 - 2 == 2 ")


@dataclasses.dataclass(frozen=True)
class AxisData:
    """A key of JAX's caches: those of different sizes have one hash, and are compared."""

    size: Any

    def __hash__(self):
        return 0


def test_a_cache_of_jax_asks_no_question():
    source = "def look_up(cache, anchor, key):\n    return cache(anchor, key)\n"
    scope = {}
    exec(compile(source, f"{jax.__path__[0]}/_src/invented.py", "exec"), scope)
    cache = util.weakref_lru_cache(lambda anchor, key: key)
    anchor = Layer(0)

    def f(x):
        scope["look_up"](cache, anchor, AxisData(6))
        scope["look_up"](cache, anchor, AxisData(x.shape[0]))
        return x * 2

    assert same(f, *sizes((6, 7)), misses=1).guards() == []


def test_bisection_of_the_smallest_arrays_and_of_nan():
    def f(x, q):
        return jnp.searchsorted(x, q), jnp.searchsorted(x, q, side="right")

    q = np.array([-9.0, 0.0, 0.5, 9.0, np.nan, np.inf], np.float32)
    arrays = [np.sort(F(n)) for n in (1, 2, 5)]
    arrays.append(np.array([0.0, 0.5, np.nan, np.nan], np.float32))
    same(f, *[(x, q) for x in arrays])


@pytest.mark.parametrize("n", [7, 2])  # of the first call
def test_functions_of_what_may_be_empty(n):
    def f(x):
        rows = jax.vmap(lambda r: jnp.searchsorted(r[2:], x))(jnp.stack([x, x + 1]))
        places = jnp.searchsorted(x[2:], x, side="right"), jnp.digitize(x, x[2:])
        table = jnp.stack([x, jnp.round(x)])
        columns = jnp.unique(table[:, 2:], size=3, axis=1, fill_value=9.0)
        return rows, *places, jnp.unique(x[2:], size=4, fill_value=-7.0), columns

    same(f, *[(F(k),) for k in (n, 1, 2, 7)], misses=1)


# ---- arguments with many leaves ------------------------------------------------------------------


def test_a_cache_of_many_leaves_is_no_set_of_parameters():
    def f(cache, x):
        for k in cache:
            x = x + jnp.einsum("bt,btd->bd", jax.nn.softmax(jnp.einsum("bd,btd->bt", x, k)), k)
        return x

    calls = [([F(b, t, 4)] * 18, F(b, 4)) for b, t in ((1, 5), (1, 6), (3, 9))]
    same(f, *calls, misses=1)


def test_few_leaves_of_floats_are_parameters_until_their_sizes_change():
    def f(layers, x):
        for w, b in layers:
            x = jnp.tanh(x @ w + b)
        return x

    def layers(d):
        return [(F(d, d), F(d))] * 3

    same(f, *[(layers(4), F(b, 4)) for b in (2, 3, 7)], misses=1)
    same(f, *[(layers(d), F(2, d)) for d in (4, 5, 7)], misses=2)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_a_batch_of_few_leaves_is_no_set_of_parameters(dtype):
    def f(batch, w):
        total = sum((v if v.ndim == 1 else v.sum(1)) for v in batch.values())
        return total[:, None] * w + batch["x"] @ w[: batch["x"].shape[1], None]

    def batch(n, m):
        of_one = {name: np.arange(n).astype(dtype) for name in "abcde"}
        return {**of_one, "x": F(n, m).astype(dtype), "y": F(n, m).astype(dtype)}

    same(f, *[(batch(n, m), F(8)) for n, m in ((2, 5), (3, 4), (7, 6))], misses=1)


def test_sizes_equal_by_accident_are_symbols_of_their_own():
    calls = [(F(8, 8), F(8, 8)), (F(3, 8), F(8, 5)), (F(2, 4), F(4, 7))]
    same(lambda x, w: jnp.tanh(x @ w), *calls, misses=1)


# ---- the scope itself ----------------------------------------------------------------------------


def test_sizes_of_plain_exports_behave_as_before():
    methods.install()
    (b,) = export.symbolic_shape("b")
    assert bool(b)
    assert not b == 4  # noqa: SIM201 - the operator is what is tested
    assert str(b) == "b"
    assert not is_size(b)
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        range(b)
    with pytest.raises(TypeError, match=r"float\(\) argument"):
        float(b)
    with pytest.raises(jax.errors.InconclusiveDimensionOperation):
        _ = b > 4
    assert not hasattr(b, "real")


def test_values_of_sizes_are_exact():
    hints = {"a": 70000, "b": 3}
    scope = SizeScope((), hints)
    texts = ["a*a*a + b", "floordiv(a, b) - mod(a, b)", "max(a, b)*min(a, b)", "-a + 5", "a^4"]
    for text in texts:
        (size,) = export.symbolic_shape(text, scope=scope)
        assert evaluate(size, hints) == Expr.parse(text).evaluate(hints)


# ---- random functions ----------------------------------------------------------------------------

SIZES = (1, 2, 3, 4, 5, 7, 8, 9)


def check_random(seed):
    made = random_function(seed)
    f, rng = shlo_disc.jit(made.function), random.Random(seed)
    for _ in range(4):
        n, m, p = (rng.choice(SIZES) for _ in range(3))
        args = F(n, m), F(m if rng.random() < 0.2 else p), np.int32(rng.randrange(10))
        want, got = outcome(jax.jit(made.function), args), outcome(f, args)
        assert type(got) is type(want) or isinstance(got, Exception) == isinstance(want, Exception)
        if not isinstance(want, Exception):
            note = f"seed {seed}, shapes {[a.shape for a in args]}\n{made.text}"
            assert (got.shape, got.dtype) == (want.shape, want.dtype), note
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4, err_msg=note)


def outcome(f, args):
    try:
        return f(*args)
    except Exception as error:
        return error


@pytest.mark.parametrize("seed", [*range(6), *slow(range(6, 12))])
def test_random_functions_ask(seed):
    check_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 50))
def test_many_random_functions_ask(first):
    for seed in range(first, first + 50):
        check_random(seed)


def test_keys_of_jaxs_table_of_bounds_are_no_question():
    """Python's hashes of -1 and -2 are equal, so `n - 1` and `n - 2` are compared as keys of it."""
    decision = pytest.importorskip("jax._src.export.shape_poly_decision")
    names = {}
    code = "import sys\ndef bounds():\n    return sys._getframe()"
    exec(compile(code, decision.__file__, "exec"), names)
    assert policy.of_equality(names["bounds"]()) == "unknown"


def test_a_cache_of_the_program_gives_sizes_of_other_traces_to_nobody():
    """A size that an older trace left in a cache is no size of this one, nor a number."""

    @functools.lru_cache
    def half(n):
        return n // 2

    f = shlo_disc.jit(lambda x: x[: half(x.shape[0])] * 2)
    g = shlo_disc.jit(lambda x: x[half(x.shape[0]) :] + half(x.shape[0]))
    for n in (6, 9, 6):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f(x), x[: n // 2] * 2)
        np.testing.assert_array_equal(g(x), x[n // 2 :] + n // 2)
    assert (f.cache_info().misses, g.cache_info().misses) == (1, 1)
    assert half(6) == 3
