"""Callbacks into Python beside `jax.jit`: results, what is called, in which order and how often.

The situations are those of JAX's own tests of callbacks, written anew for sizes that change.
"""

from __future__ import annotations

import functools
import gc
import random
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify, io_callback
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import mlir

import shlo_disc
import shlo_disc.numpy as snp
from tests.refused import unchanged

REAL = True

SCALAR = jax.ShapeDtypeStruct((), np.float32)
SIZES = (5, 1, 7)


class Log:
    """What callbacks were given, in order."""

    def __init__(self):
        self.rows = []

    def __call__(self, tag, *values):
        self.rows.append((tag, *(np.asarray(v).tolist() for v in values)))

    def times(self, factor, tag="times"):
        """A function that multiplies, and notes that."""

        def run(x):
            self(tag, x)
            return np.asarray(x) * np.asarray(x).dtype.type(factor)

        return run


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def pure(log, x, factor=2, **options):
    return jax.pure_callback(log.times(factor, "pure"), like(x), x, **options)


def io(log, x, factor=3, *, ordered=False):
    return io_callback(log.times(factor, "io"), like(x), x, ordered=ordered)


# ---- straight code -------------------------------------------------------------------------------


def straight_pure(log, x):
    return pure(log, x + 1) * 2


def straight_io(log, x):
    return io(log, x) + io(log, x * 2, ordered=False)


def ordered_io(log, x):
    y = io(log, x, ordered=True)
    io_callback(functools.partial(log, "sum"), None, y.sum(), ordered=True)
    return io(log, y - x, ordered=True)


def ordered_debug(log, x):
    jax.debug.callback(functools.partial(log, "first"), x.sum(), x, ordered=True)
    y = jnp.sin(x)
    jax.debug.callback(functools.partial(log, "second"), y, ordered=True)
    return y * 2


def several_results(log, x):
    def both(a, b):
        log("both", a, b)
        return {"sum": np.asarray(a) + np.asarray(b), "count": np.int32(np.size(a))}

    shapes = {"sum": like(x), "count": jax.ShapeDtypeStruct((), np.int32)}
    found = jax.pure_callback(both, shapes, x, x * 2)
    return found["sum"] * found["count"]


def other_shapes(log, x):
    n = x.shape[0]
    shapes = (
        jax.ShapeDtypeStruct((2, 2 * n + 1), np.float32),
        jax.ShapeDtypeStruct((3,), np.complex64),
        jax.ShapeDtypeStruct((n, 0), np.float32),
        jax.ShapeDtypeStruct((n,), np.bool_),
        jax.ShapeDtypeStruct((n,), jnp.bfloat16),
    )

    def run(x):
        log("run", x)
        x = np.asarray(x)
        return (
            np.tile(np.append(np.append(x, x), np.float32(1)), (2, 1)),
            np.full(3, 1 + 2j, np.complex64),
            np.zeros((len(x), 0), np.float32),
            x > 0,
            x.astype(jnp.bfloat16),
        )

    a, b, c, d, e = jax.pure_callback(run, shapes, x)
    return a.sum(0), b * x.sum(), c, jnp.where(d, x, 0), e + 1


def empty_operands_and_results(log, x):
    none = jnp.zeros((x.shape[0], 0), x.dtype)
    jax.debug.callback(functools.partial(log, "none"), none)
    a = jax.pure_callback(log.times(1), like(none), none)
    b = io_callback(log.times(1), like(none), none)
    return a, b, jax.pure_callback(lambda _: np.ones(2, "f"), jax.ShapeDtypeStruct((2,), "f"), none)


def complex_operands(log, x):
    z = lax.complex(x, x * 2)
    jax.debug.callback(functools.partial(log, "z"), jnp.abs(z.real), z.imag)
    return jax.pure_callback(lambda z: np.conj(np.asarray(z)), like(z), z)


def many_types(log, x):
    kinds = (np.bool_, np.int8, np.uint16, np.int32, np.uint32, np.float16, jnp.bfloat16)
    found = [pure(log, x.astype(kind), factor=1) for kind in kinds]
    return [y.astype(np.float32) for y in found]


def unused(log, x):
    pure(log, x)
    return x * 2


def nothing_else(log, x):
    jax.debug.callback(functools.partial(log, "seen"), x)


def sizes_as_values(log, x):
    jax.debug.callback(functools.partial(log, "size"), x.shape[0], x.shape[0] * 2 + 1)
    return pure(log, x * x.shape[0])


def keys(log, x):
    key = jax.random.key(x.shape[0])
    jax.debug.callback(functools.partial(log, "key"), key)
    return jax.random.normal(jax.random.fold_in(key, 1), x.shape) + x


def inner_jit(log, x):
    @jax.jit
    def step(x):
        jax.debug.callback(functools.partial(log, "step"), x[0])
        return pure(log, x)

    return step(step(x) + 1)


def structures(log, x):
    def run(a, *, b):
        log("run", a["x"], b)
        return [np.asarray(a["x"]) + np.asarray(b)]

    return jax.pure_callback(run, [like(x)], {"x": x}, b=x.sum())[0]


def sizes_held_by_functions(log, x):
    """The function's variables, defaults and arguments of a partial have sizes of this call."""
    n, spec = x.shape[0], like(x)

    def times(tag, v, k=n, *, other={"sizes": [n, (2 * n + 1, n)]}):  # noqa: B006
        log(tag, np.full(2, k), np.ones(spec.shape), other["sizes"][1][0])
        return (np.asarray(v) * n if n > 3 else np.asarray(v)).astype(np.float32)

    def again(k, v):
        return v if not k else again(k - 1, v + np.float32(n))

    y = jax.pure_callback(functools.partial(times, "y"), spec, x)
    z = jax.pure_callback(lambda v: again(2, np.asarray(v)), spec, y)
    jax.debug.callback(functools.partial(log, "n", n), z)
    return z


def sizes_held_in_rules_and_loops(log, x):
    n = x.shape[0]

    @jax.custom_jvp
    def f(x):
        return jax.pure_callback(lambda v: np.asarray(v) * np.float32(n), like(x), x)

    @f.defjvp
    def _(primals, tangents):
        (x,) = primals
        return f(x), tangents[0] * jax.pure_callback(
            lambda v: np.asarray(v) + np.float32(n), like(x), x
        )

    def step(c, v):
        return c + 1, io_callback(lambda c, v: np.float32(c * n + v), SCALAR, c, v)

    return jax.grad(lambda x: f(x).sum())(x), lax.scan(step, jnp.float32(0), x)


@dataclass(frozen=True)
class Scale:
    size: int

    def run(self, v):
        return np.asarray(v) * np.float32(self.size)


def sizes_held_by_methods(log, x):
    return jax.pure_callback(Scale(x.shape[0]).run, like(x), x)


def static_arguments(log, x):
    jax.debug.callback(log, "text", x, True)
    return x


# ---- loops and branches --------------------------------------------------------------------------


def in_scan(log, x):
    def step(carry, row):
        jax.debug.callback(functools.partial(log, "row"), carry, row)
        return carry + row, pure(log, row + carry)

    return lax.scan(step, jnp.float32(0), x)


def in_scan_ordered(log, x):
    def step(carry, row):
        io_callback(functools.partial(log, "before"), None, row, ordered=True)
        carry = io(log, carry + row, ordered=True)
        return carry, carry

    return lax.scan(step, jnp.float32(1), x, reverse=True)


def in_fori(log, x):
    def step(i, c):
        jax.debug.callback(functools.partial(log, "i"), i)
        return io(log, c + i, factor=1)

    return lax.fori_loop(0, x.shape[0], step, x)


def in_while_body_and_condition(log, x):
    def go_on(c):
        jax.debug.callback(functools.partial(log, "condition"), c[0])
        return jax.pure_callback(lambda i: np.asarray(i) < 4, jax.ShapeDtypeStruct((), bool), c[0])

    def step(c):
        i, x = c
        jax.debug.callback(functools.partial(log, "body"), i)
        return i + 1, pure(log, x)

    return lax.while_loop(go_on, step, (jnp.int32(0), x))


def ordered_in_while_condition(log, x):
    def go_on(c):
        io_callback(functools.partial(log, "condition"), None, c, ordered=True)
        return c < x.shape[0]

    def step(c):
        io_callback(functools.partial(log, "body"), None, c, ordered=True)
        return c + 2

    return lax.while_loop(go_on, step, jnp.int32(0)) + x


def ordered_scan_in_scan(log, x):
    def outer(carry, row):
        def inner(c, v):
            io_callback(functools.partial(log, "inner"), None, v, ordered=True)
            return c + v, io(log, c * v, ordered=True)

        io_callback(functools.partial(log, "outer"), None, carry, ordered=True)
        last, found = lax.scan(inner, carry, row + jnp.arange(3, dtype=np.float32))
        return last, found

    return lax.scan(outer, jnp.float32(1), x)


def in_branches(log, x):
    def yes(x):
        jax.debug.callback(functools.partial(log, "yes"), x)
        return pure(log, x)

    def no(x):
        io_callback(functools.partial(log, "no"), None, x[0])
        return x + 1

    y = lax.cond(x.sum() > 20, yes, no, x)
    z = lax.cond(x.sum() > 1000, yes, no, y)
    return lax.switch(jnp.int32(x[0]) % 3, [yes, no, lambda x: x], z)


def branch_in_loop(log, x):
    def step(c, v):
        c = lax.cond(v % 2 > 0.5, lambda: pure(log, c + v), lambda: c)
        return c, v

    return lax.scan(step, jnp.float32(0), x)


def same_values_in_a_loop(log, x):
    def step(i, c):
        jax.debug.callback(functools.partial(log, "same"), x[0])
        return c + 1

    return lax.fori_loop(0, 3, step, x)


def unused_in_a_loop(log, x):
    def step(c, v):
        jax.debug.callback(functools.partial(log, "v"), v)
        return c, None

    lax.scan(step, jnp.float32(0), x)
    return x


def no_rounds(log, x):
    def step(i, c):
        jax.debug.callback(functools.partial(log, "i"), i)
        return pure(log, c)

    return lax.fori_loop(0, x.shape[0] - 5, step, x)


# ---- transformations -----------------------------------------------------------------------------


def vmapped(method):
    def run(log, x):
        rows = x[:, None] + jnp.arange(3, dtype=np.float32)

        def times(a, b):
            log("times", a, b)
            return (np.asarray(a).T * np.asarray(b)).T

        def one(row):
            return jax.pure_callback(times, like(row), row, jnp.float32(2), vmap_method=method)

        return jax.vmap(one)(rows)

    run.__name__ = f"vmap_{method}"
    return run


def vmapped_io(log, x):
    return jax.vmap(lambda v: io(log, v))(x)


def vmapped_print_of_three(log, x):
    def one(v):
        jax.debug.callback(functools.partial(log, "v"), v, x.sum())
        return v * 2

    return jax.vmap(one)(x[:1] + jnp.arange(3, dtype=np.float32))


def vmapped_print(log, x):
    def one(v, w):
        jax.debug.callback(functools.partial(log, "v"), v, w, x.sum())
        jax.debug.callback(functools.partial(log, "w"), w, partitioned=True)
        return v * 2

    return jax.vmap(one, (0, 1))(x, jnp.stack([x, x + 1]))


def vmapped_loop(log, x):
    def one(n):
        def step(c):
            jax.debug.callback(functools.partial(log, "c"), c)
            return c + 1

        return lax.while_loop(lambda c: c < n, step, jnp.float32(0))

    return jax.vmap(one)(jnp.float32([2, 4]) + x[0] * 0)


def gradient(log, x):
    @jax.custom_jvp
    def twice(x):
        return pure(log, x)

    @twice.defjvp
    def _(primals, tangents):
        return twice(*primals), pure(log, primals[0] * 0 + 1) * tangents[0]

    def loss(x):
        jax.debug.callback(functools.partial(log, "loss"), x)
        return (twice(jnp.sin(x)) ** 2).sum()

    return jax.grad(loss)(x)


def gradient_of_a_loop(log, x):
    def loss(x):
        def step(c, v):
            jax.debug.callback(functools.partial(log, "step"), c)
            return jnp.sin(c) * v, None

        return lax.scan(step, jnp.float32(0.5), x)[0]

    return jax.value_and_grad(loss)(x)


def value_in_backward(log, x):
    @jax.custom_vjp
    def watched(x):
        return x

    def back(_, g):
        jax.debug.callback(functools.partial(log, "cotangent"), g)
        return (g,)

    watched.defvjp(lambda x: (x, None), back)
    return jax.grad(lambda x: (watched(jnp.cos(x)) ** 2).sum())(x)


def remat(log, x):
    @jax.checkpoint
    def block(x):
        jax.debug.callback(functools.partial(log, "block"), x)
        return jnp.sin(x)

    return jax.grad(lambda x: block(block(x)).sum())(x)


def remat_in_a_loop(log, x):
    """A loop whose callbacks the backward loop makes once more, with values of the first one."""

    @jax.checkpoint
    def step(c, v):
        jax.debug.callback(functools.partial(log, "step"), c)
        return jnp.sin(c) * v, c

    return jax.grad(lambda x: lax.scan(step, jnp.float32(1), x)[0])(x)


def ordered_loops_and_branches_in_a_row(log, x):
    def note(tag, v):
        io_callback(functools.partial(log, tag), None, v, ordered=True)

    def noted(tag, v):
        note(tag, v)
        return v + 1

    total = lax.fori_loop(0, 2, lambda i, c: noted("first", c), x.sum())
    total = lax.cond(total > 20, lambda c: noted("large", c), lambda c: noted("small", c), total)
    note("between", total)
    total, _ = lax.scan(lambda c, v: (noted("second", c + v), None), total, x)
    return lax.while_loop(lambda c: c < 60, lambda c: noted("third", c * 2), total)


def checked(log, x):
    def f(x):
        checkify.check(x[0] < 3, "too large: {}", x[0])
        jax.debug.callback(functools.partial(log, "in"), x)
        return jnp.sqrt(x)

    error, y = checkify.checkify(f, errors=checkify.user_checks)(x)
    return y, error._pred


SITUATIONS = [
    straight_pure, straight_io, ordered_io, ordered_debug, several_results, other_shapes,
    empty_operands_and_results, complex_operands, many_types, unused, nothing_else,
    sizes_as_values, keys, inner_jit, structures, sizes_held_by_functions,
    sizes_held_in_rules_and_loops, sizes_held_by_methods, static_arguments,
    in_scan, in_scan_ordered, in_fori, in_while_body_and_condition, ordered_in_while_condition,
    ordered_scan_in_scan, in_branches, branch_in_loop, same_values_in_a_loop, unused_in_a_loop,
    no_rounds, vmapped("sequential"), vmapped("expand_dims"), vmapped("broadcast_all"), vmapped_io,
    vmapped_print, vmapped_print_of_three, vmapped_loop, gradient, gradient_of_a_loop,
    value_in_backward, remat, remat_in_a_loop, ordered_loops_and_branches_in_a_row, checked,
]  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda f: f.__name__)
def test_as_jax_jit(situation, caplog):
    """Results, and what is called: all of it, in order, as often; compiled once."""
    logs = Log(), Log()
    ours = shlo_disc.jit(lambda x: situation(logs[0], x), on_unsupported="error")
    theirs = jax.jit(lambda x: situation(logs[1], x))
    for n in (*SIZES, SIZES[0]):
        x = np.arange(1, n + 1, dtype=np.float32)
        found, expected = ours(x), theirs(x)
        jax.effects_barrier()
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)
        rows = [rounded(log.rows) for log in logs]
        if "ordered" not in situation.__name__:  # XLA may run them in any order
            rows = [sorted(row, key=repr) for row in rows]
        assert rows[0] == rows[1]
    assert ours.cache_info().misses == 1, ours.explain()
    assert not caplog.messages


class Counted:
    """A function that changes, so no call may get a copy."""

    def __init__(self, size):
        self.size, self.calls = size, 0

    def __call__(self, v):
        self.calls += 1
        return np.asarray(v) * np.float32(self.size)


def test_a_size_held_by_an_object_is_a_constant():
    made = []

    def program(x):
        made.append(Counted(x.shape[0]))
        return jax.pure_callback(made[-1], like(x), x)

    f = shlo_disc.jit(program)
    for n in SIZES:
        np.testing.assert_array_equal(f(np.ones(n, np.float32)), np.full(n, n, np.float32))
    assert sum(each.calls for each in made) == len(SIZES)
    assert f.cache_info().misses == len(SIZES)


def test_sizes_held_by_functions_of_a_program_in_parts():
    def program(x):
        large = snp.flatnonzero(x > 2)
        n, m = x.shape[0], large.shape[0]
        return jax.pure_callback(lambda v: np.asarray(v) * n + np.float32(m), like(x), x)

    f = shlo_disc.jit(program)
    for n in (5, 3, 7):
        x = np.arange(1, n + 1, dtype=np.float32)
        np.testing.assert_array_equal(f(x), x * n + np.float32(n - 2))
    assert f.cache_info().misses == 1


# ---- errors that checkify collects ---------------------------------------------------------------


def checks_in_rows(x):
    def one(v):
        checkify.check(v > 2, "small {}", v)
        return v * 2

    return jax.vmap(one)(x)


def checks_in_a_branch(x):
    def yes(x):
        checkify.check(x.sum() < 4, "large {total}", total=x.sum())
        return x

    return lax.cond(x[0] > 0, yes, lambda x: x, x)


def checks_in_a_jit(x):
    @jax.jit
    def inner(x):
        checkify.check(x[0] > 5, "inner {}", x[0])
        return x

    return inner(inner(x) + 4)


def nans_of_a_gradient(x):
    return jax.grad(lambda x: jnp.sqrt(x - 2).sum())(x)


CHECKED = {
    checks_in_rows: checkify.user_checks,
    checks_in_a_branch: checkify.user_checks,
    checks_in_a_jit: checkify.user_checks,
    nans_of_a_gradient: checkify.float_checks,
}


@pytest.mark.parametrize("program", CHECKED)
def test_errors_of_checkify(program):
    """The first error is that of `jax.jit`; errors are numbered alike in every trace."""
    checked = checkify.checkify(program, errors=CHECKED[program])
    ours, theirs = shlo_disc.jit(checked, on_unsupported="error"), jax.jit(checked)
    for n in SIZES:
        x = np.arange(1, n + 1, dtype=np.float32)
        (error, y), (true_error, true) = ours(x), theirs(x)
        assert error.get() == true_error.get()
        np.testing.assert_allclose(y, true, rtol=1e-6)
    assert ours.cache_info().misses == 1, ours.explain()


def test_errors_of_two_functions_are_told_apart():
    def named(name):
        def program(x):
            checkify.check(x[0] < 0, name + " of {}", x[0])
            return x

        return shlo_disc.jit(checkify.checkify(program), name=name)

    def both(x):
        for f in (named("first"), named("second")):
            error, x = f(x)
            checkify.check_error(error)
        return x

    with jax.disable_jit():
        error, _ = checkify.checkify(both)(jnp.ones(3))
    assert str(error.get()).startswith("first of 1.0")


def test_printed_as_jax_jit_prints(capfd):
    def program(x):
        jax.debug.print("{a} and {b:.2f}", a=x.shape[0], b=x[0], ordered=True)
        jax.debug.print("{0}, {{braces}} {tree}", x.sum(), tree={"k": x[:1]}, ordered=True)
        return x

    f, g = shlo_disc.jit(program), jax.jit(program)
    for n in SIZES:
        said = []
        for h in (f, g):
            h(np.arange(1, n + 1, dtype=np.float32))
            jax.effects_barrier()
            said.append(capfd.readouterr().out)
        assert said[0] == said[1]
        assert said[0].startswith(f"{n} and 1.00")
    assert f.cache_info().misses == 1


REFUSED = {
    "jvp": lambda x: jax.jvp(lambda x: io(Log(), x), (x,), (x,)),
    "linearize": lambda x: jax.linearize(lambda x: io(Log(), x), x)[0],
    "transpose": lambda x: jax.linear_transpose(lambda x: io(Log(), x), x)(x),
    "branch of a batch": jax.vmap(
        lambda p: lax.cond(p > 0, lambda: io_callback(lambda: None, None), lambda: None)
    ),
    "loop of a batch": jax.vmap(
        lambda n: lax.while_loop(lambda c: c < n, lambda c: io(Log(), c), n * 0)
    ),
    "checkpoint": jax.grad(jax.checkpoint(lambda x: io(Log(), x).sum())),
    "no argument": lambda x: jax.pure_callback(lambda v: v, like(x)),
    "rows that are joined": jax.vmap(
        lambda v: jax.pure_callback(np.sum, like(v), v, vmap_method="expand_dims")
    ),
    "no such name": lambda x: jax.debug.print("{a}", x[0]),
    "too few values": lambda x: jax.debug.print("{} {}", x[0]),
    "nothing for a result": lambda x: io_callback(lambda v: None, like(x), x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_fails_fails_as_in_jax_jit(name):
    """The class of the error, and the last line of what it says."""
    said = []
    for jit in (jax.jit, shlo_disc.jit):
        with pytest.raises(Exception) as caught:  # noqa: PT011, PT012
            jax.block_until_ready(jit(REFUSED[name])(np.ones(3, np.float32)))
            jax.effects_barrier()
        said.append((type(caught.value), str(caught.value).splitlines()[-1]))
    assert said[0] == said[1]


# ---- programs of many callbacks ------------------------------------------------------------------


class Program:
    """Loops, branches and calls in each other, around ordered callbacks of a number."""

    LEAVES = ("debug", "io", "pure", "sine")
    HOLDERS = ("fori", "scan", "cond", "rounds", "jit")

    def __init__(self, seed, log):
        self.random, self.log = random.Random(seed), log
        self.body = self.some(0)

    def some(self, depth):
        steps = [self.one(depth) for _ in range(self.random.randrange(1, 4))]
        return lambda c: functools.reduce(lambda c, step: step(c).astype(np.float32), steps, c)

    def one(self, depth):
        number = self.random.randrange(100)
        kind = self.random.choice(self.LEAVES + (self.HOLDERS if depth < 3 else ()))
        if kind in self.HOLDERS:
            return getattr(self, kind)(self.some(depth + 1), number)
        return getattr(self, kind)(f"{kind} {number}")

    def debug(self, tag):
        return lambda c: io_callback(functools.partial(self.log, tag), None, c, ordered=True) or c

    def io(self, tag):
        return lambda c: io_callback(self.log.times(0.5, tag), SCALAR, c, ordered=True)

    def pure(self, _):
        return lambda c: jax.pure_callback(np.sin, SCALAR, c)

    def sine(self, _):
        return lambda c: jnp.sin(c) * 3

    def fori(self, body, number):
        return lambda c: lax.fori_loop(0, number % 3, lambda i, c: body(c + i), c)

    def scan(self, body, _):
        rows = np.arange(2, dtype=np.float32)
        return lambda c: lax.scan(lambda c, v: (body(c + v), c), c, rows)[0]

    def cond(self, body, number):
        return lambda c: lax.cond(c > number / 30 - 1, body, lambda c: c * 2, c)

    def rounds(self, body, number):
        return lambda c: lax.while_loop(
            lambda s: s[0] < number % 3, lambda s: (s[0] + 1, body(s[1])), (0, c)
        )[1]

    def jit(self, body, _):
        return jax.jit(body)

    def __call__(self, x):
        return self.body(x.sum())


@pytest.mark.parametrize(
    "seed", [k if k < 3 else pytest.param(k, marks=pytest.mark.slow) for k in range(15)]
)
def test_programs_of_many_callbacks(seed):
    logs = Log(), Log()
    ours = shlo_disc.jit(Program(seed, logs[0]), on_unsupported="error", name="program")
    theirs = jax.jit(Program(seed, logs[1]).__call__)
    for n in (3, 5):
        x = np.linspace(0, 1, n, dtype=np.float32)
        np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-3, atol=1e-3)
        jax.effects_barrier()
        tags = [[row[0] for row in log.rows] for log in logs]
        assert tags[0] == tags[1]
        for ours_row, theirs_row in zip(logs[0].rows, logs[1].rows, strict=True):
            np.testing.assert_allclose(ours_row[1:], theirs_row[1:], rtol=1e-3, atol=1e-3)
    assert ours.cache_info().misses == 1


def rounded(rows):
    """Rows with numbers to five digits."""
    return jax.tree.map(lambda v: float(f"{v:.5g}") if isinstance(v, float) else v, rows)


# ---- errors --------------------------------------------------------------------------------------


def wrong(kind, x):
    if kind == "raises":
        raise ValueError("not today")
    return {
        "shape": lambda: np.zeros(np.size(x) + 1, np.float32),
        "dtype": lambda: np.zeros(np.shape(x), np.int32),
        "count": lambda: (np.asarray(x), np.asarray(x)),
    }[kind]()


@pytest.mark.parametrize("kind", ["raises", "shape", "dtype", "count"])
def test_errors_as_those_of_jax(kind):
    """The class and the last line, which JAX's message ends with; the next call is right."""

    def program(x):
        y = jax.pure_callback(
            lambda v: wrong(kind, v) if v[0] < 0 else np.asarray(v), like(x), x + 1
        )
        return y * 2

    f, g = shlo_disc.jit(program), jax.jit(program)
    for n in (2, 3):
        bad = np.full(n, -5, np.float32)
        said = []
        for h in (f, g):
            with pytest.raises(
                jax.errors.JaxRuntimeError, match=r"^INTERNAL: CpuCallback"
            ) as caught:
                jax.block_until_ready(h(bad))
            said.append(str(caught.value).splitlines()[-1])
        assert said[0] == said[1]
        np.testing.assert_array_equal(f(-bad), g(-bad))
    if kind == "raises":
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            f(bad)
        assert isinstance(caught.value.__cause__, ValueError)


def test_nothing_is_called_after_an_error():
    log = Log()

    def program(x):
        io_callback(functools.partial(log, "before"), None, x, ordered=True)
        y = io_callback(lambda v: wrong("raises", v), like(x), x, ordered=True)
        io_callback(functools.partial(log, "after"), None, y, ordered=True)
        return y

    with pytest.raises(jax.errors.JaxRuntimeError, match="not today"):
        shlo_disc.jit(program)(np.ones(3, np.float32))
    assert [row[0] for row in log.rows] == ["before"]


def test_what_jax_refuses_is_refused_in_its_words():
    x = np.ones(3, np.float32)
    with pytest.raises(ValueError, match="Pure callbacks do not support JVP"):
        shlo_disc.jit(jax.grad(lambda x: pure(Log(), x).sum()))(x)
    with pytest.raises(ValueError, match="Cannot `vmap` ordered IO callback"):
        shlo_disc.jit(jax.vmap(lambda x: io(Log(), x, ordered=True)))(x)
    wide = jax.ShapeDtypeStruct((), np.float64)
    with pytest.raises(ValueError, match="cannot specify 64-bit types"):
        shlo_disc.jit(lambda x: jax.pure_callback(lambda _: np.float64(1), wide, x))(x)


# ---- around the program --------------------------------------------------------------------------


def test_inside_transformations_of_jax():
    """Effects become a part of the program around them, which is told; pure functions do not."""
    log = Log()

    def program(x):
        jax.debug.callback(functools.partial(log, "x"), x)
        return jnp.sin(x) * 2

    f, x = shlo_disc.jit(program), jnp.float32([1, 2, 3])
    ways = {
        "jit": lambda f: jax.jit(lambda x: f(x) + 1)(x),
        "grad": lambda f: jax.grad(lambda x: f(x).sum())(x),
        "vmap": lambda f: jax.vmap(f)(x),
        "ours": lambda f: shlo_disc.jit(lambda x: f(x + 1) * f(x))(x),
    }
    for name, way in ways.items():
        rows = []
        for function in (f, jax.jit(program)):
            log.rows = []
            found = way(function)
            jax.effects_barrier()
            rows.append((sorted(rounded(log.rows), key=repr), found))
        assert rows[0][0] == rows[1][0], name
        np.testing.assert_allclose(rows[0][1], rows[1][1], rtol=1e-6)
    assert "part of the program around it" in f.explain()
    g = shlo_disc.jit(lambda x: pure(log, x))
    np.testing.assert_array_equal(jax.jit(lambda x: g(x) + 1)(x), x * 2 + 1)
    assert "part of" not in g.explain()


def test_a_callback_that_only_lowering_shows():
    """A primitive whose implementation calls back, as `lineax.linear_solve` does for its errors."""
    hidden = Primitive("hidden")

    def implementation(x):
        return jax.pure_callback(lambda x: np.asarray(x) * 3, like(x), x)

    hidden.def_impl(implementation)
    hidden.def_abstract_eval(lambda x: x)
    mlir.register_lowering(hidden, mlir.lower_fun(implementation, multiple_results=False))
    f = shlo_disc.jit(lambda x: jnp.tanh(hidden.bind(x * 2)) + x.shape[0])
    for size in (3, 5):
        x = jnp.linspace(-1, 1, size)
        np.testing.assert_allclose(f(x), np.tanh(x * 6) + size, rtol=1e-5)
    assert f.cache_info().misses == 1


def test_calls_of_several_threads_and_calls_in_callbacks():
    """A callback takes the GIL that its call gave up; it may call compiled functions itself."""
    inner = shlo_disc.jit(lambda x: x * 2)
    f = shlo_disc.jit(lambda x: jax.pure_callback(inner, like(x), x) + 1)
    rows = [np.full(k + 1, k, np.float32) for k in range(8)]
    f(rows[0])
    with ThreadPoolExecutor(4) as pool:
        for x, y in zip(rows * 4, pool.map(f, rows * 4), strict=True):
            np.testing.assert_array_equal(y, x * 2 + 1)


def test_arrays_given_to_a_callback_stay_as_they_are():
    kept = []
    f = shlo_disc.jit(lambda x: (jax.debug.callback(kept.append, x * 2), x.sum())[1])
    rows = [np.full(16, k, np.float32) for k in range(6)]
    for x in rows:
        f(x)
    assert all(isinstance(array, jax.Array) for array in kept)
    np.testing.assert_array_equal(kept, np.stack(rows) * 2)


def test_a_callback_goes_with_its_function():
    class Held:
        def __call__(self, x):
            return np.asarray(x) * 2

    held = Held()
    gone = weakref.ref(held)
    f = shlo_disc.jit(lambda x, held=held: jax.pure_callback(held, like(x), x) + 1)
    np.testing.assert_array_equal(f(np.ones(3, np.float32)), np.full(3, 3))
    del held, f
    jax.clear_caches()
    gc.collect()
    assert gone() is None


def test_donated_arguments():
    f = shlo_disc.jit(lambda x: pure(Log(), x) + 1, donate_argnums=0)
    x = jnp.ones(3)
    np.testing.assert_array_equal(f(x), np.full(3, 3))
    assert x.is_deleted()


def test_prints_come_at_once(capfd):
    f = shlo_disc.jit(lambda x: (jax.debug.print("n {} sum {s}", x.shape[0], s=x.sum()), x)[1])
    for n in (2, 3):
        f(np.ones(n, np.float32))
        assert capfd.readouterr().out == f"n {n} sum {float(n)}\n"
    assert f.cache_info().misses == 1


def test_programs_in_parts_call_once_and_in_order():
    """A size from data that breaks an assumption has the program run anew; XLA runs a part."""
    log = Log()

    def program(x):
        jax.debug.callback(functools.partial(log, "before"), x.sum())
        y = pure(log, unchanged(x))
        i = snp.flatnonzero(y > 2)
        jax.debug.callback(functools.partial(log, "after"), i)
        return i.shape[0] + y.sum()

    f = shlo_disc.jit(program, on_unsupported="xla")
    for given in ([1, 2, 3], [0, 0, 0], [0, 0, 5], [1, 1, 1, 1], [3]):
        log.rows, x = [], np.array(given, np.float32)
        places = np.flatnonzero(x * 2 > 2)
        np.testing.assert_allclose(f(x), len(places) + 2 * x.sum())
        after = ("after", places.tolist())
        assert log.rows == [("before", x.sum()), ("pure", x.tolist()), after]


def test_a_callback_that_only_xla_can_make(caplog):
    """`buffer_callback` is called by another interface of XLA, which runs it; that is told."""

    def program(x):
        def write(_, out, given):
            np.asarray(out)[...] = np.asarray(given) * 4

        return buffer_callback(write, like(x))(x) + 1

    f = shlo_disc.jit(program, on_unsupported="xla")
    for n in (3, 5):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f(x), x * 4 + 1)
    (told,) = caplog.messages
    assert "buffer_callback" in told
    with pytest.raises(shlo_disc.UnsupportedError, match="in a way that shlo_disc does not"):
        shlo_disc.jit(program)(x)


def test_where_xla_places_arrays_is_told_by_xla():
    """Once a shape, as XLA compiles."""
    seen = {jax.jit: [], shlo_disc.jit: []}
    for jit, found in seen.items():

        def f(x, found=found):
            jax.debug.inspect_array_sharding(x, callback=found.append)
            return x * 2

        compiled = jit(lambda x, f=f: f(x))
        for n in (3, 5, 3):
            np.testing.assert_array_equal(compiled(np.ones(n, np.float32)), np.full(n, 2.0))
    assert seen[jax.jit] == seen[shlo_disc.jit]
    assert len(seen[jax.jit]) == 2
