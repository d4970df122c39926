"""Code that comes after the first call: better code, and variants that other calls need."""

import json
import math
import random
import textwrap
import threading
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from shlo_disc import ral
from shlo_disc.base.errors import InternalError
from shlo_disc.base.threads import lets_others_run
from shlo_disc.lower import background
from shlo_disc.lower.cpu import codegen, object_code
from shlo_disc.lower.cpu.dense import gemm
from shlo_disc.lower.plan import ONCE
from shlo_disc.lower.refused import KernelsRefused
from shlo_disc.store.entries import COUNTS
from tests.children import at_once, python
from tests.lower.test_codegen import ANSWER, called

SIZES = ((1, 40, 48), (7, 4096, 9), (30, 5, 300), (200, 64, 1), (0, 3, 3))


def layer(x, w):
    return jnp.tanh(x @ w)


def operands(n, k, m):
    rng = np.random.default_rng(n * k * m)
    return [jnp.asarray(rng.normal(size=shape) / 8, jnp.float32) for shape in ((n, k), (k, m))]


def late(function):
    found = json.loads(function.explain(format="json"))
    return (found[0] if isinstance(found, list) else found)["late_kernels"]


@pytest.fixture
def first_called():
    """`layer`, called at sizes that need few of its kernels."""
    function = shlo_disc.jit(layer)
    function(*operands(200, 40, 48))
    return function


def broken(*_):
    raise ValueError("no code today")


def near(got, x, w):
    want = np.tanh(np.asarray(x, np.float64) @ np.asarray(w, np.float64))
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6)


def test_other_variants_come_when_calls_need_them(compiled_anew, first_called):
    before = late(first_called)
    assert before > 0
    for sizes in SIZES:
        x, w = operands(*sizes)
        near(first_called(x, w), x, w)
        near(jax.jit(first_called)(x, w), x, w)
    assert late(first_called) < before


def test_results_do_not_depend_on_the_first_call(compiled_anew, first_called):
    other = shlo_disc.jit(layer)
    for sizes in SIZES:
        given = operands(*sizes)
        assert np.array_equal(first_called(*given), other(*given))


def test_many_threads_ask_for_one_kernel(compiled_anew, first_called):
    given = operands(*SIZES[0])
    at_once(lambda _: near(first_called(*given), *given), range(8))


def test_a_kernel_that_does_not_compile_fails_the_call_alone(compiled_anew, monkeypatch):
    @shlo_disc.jit
    def function(x, w):
        return jnp.tanh(x @ w) * 0.8125

    function(*operands(200, 40, 48))
    given = operands(*SIZES[0])
    with monkeypatch.context() as patched:
        patched.setattr(object_code, "_object_code", broken)
        with pytest.raises(InternalError, match=r"kernel \d+: .*test_late.py:\d+.*: no code today"):
            function(*given)
        with pytest.raises(jax.errors.JaxRuntimeError, match="no code today"):
            jax.jit(function)(*given).block_until_ready()
    x, w = (np.asarray(one, np.float64) for one in given)
    np.testing.assert_allclose(function(*given), 0.8125 * np.tanh(x @ w), rtol=0, atol=4e-6)


def test_what_loops_run_is_asked_for_before_them(compiled_anew, monkeypatch):
    def repeated(x, w):
        def body(state):
            k, y = state
            return k + (y.max() < 2), jnp.tanh(y @ w) * 0.78125

        return lax.while_loop(lambda state: state[0] < 3, body, (0, x))[1]

    function, other = shlo_disc.jit(repeated), shlo_disc.jit(repeated)
    sizes = [(200, 40, 40), (1, 40, 40), (7, 300, 300), (1, 1, 1)]
    function(*operands(*sizes[0]))
    with monkeypatch.context() as patched:
        patched.setattr(object_code, "_object_code", broken)
        with pytest.raises(InternalError, match="no code today"):
            function(*operands(*sizes[1]))
    for some in sizes:
        given = operands(*some)
        x, w = (np.asarray(one, np.float64) for one in given)
        for _ in range(3):
            x = np.tanh(x @ w) * 0.78125
        np.testing.assert_allclose(function(*given), x, rtol=0, atol=4e-6)
    for some in reversed(sizes):
        given = operands(*some)
        assert np.array_equal(function(*given), other(*given))


def counted_steps(scale):
    """A loop of as many steps as its last argument has elements, with kernels of its own."""

    def repeated(x, w, steps):
        return lax.fori_loop(0, steps.shape[0], lambda _, y: jnp.tanh(y @ w) * scale, x)

    return shlo_disc.jit(repeated)


def compiled_products(function, *given):
    """Of the kernels of a product in it, those with code."""
    executable = function.lower(*given).compile().executable
    pairs = zip(executable.host.kernels, executable._kernels, strict=True)
    return {kernel.name for kernel, code in pairs if code.address and "dense" in kernel.name}


OF_BOTH = {"dense_pack", "dense_packed", "dense_scratch"}
"""Kernels of calls with packed copies and without; others may have come with other programs."""


def test_counted_loops_make_packed_copies_at_once(compiled_anew, no_packs, monkeypatch):
    function, other = counted_steps(0.7734375), counted_steps(0.7734375)
    x, w = map(np.asarray, operands(200, 40, 40))
    given = {steps: (x, w, np.zeros(steps, np.int8)) for steps in (0, 1, 2, 3, 20)}
    results = {20: function(*given[20])}
    assert compiled_products(function, *given[20]) & OF_BOTH == OF_BOTH - {"dense_scratch"}
    with monkeypatch.context() as patched:
        patched.setattr(object_code, "_object_code", broken)
        results[3] = function(*given[3])  # no other kernel
        with pytest.raises(InternalError, match="no code today"):
            function(*given[2])  # few steps make no copy, and a failure ends the loop
    results |= {steps: function(*given[steps]) for steps in (2, 1, 0)}
    assert compiled_products(function, *given[20]) >= OF_BOTH
    for steps in (1, 2, 3, 0, 20):
        want = np.asarray(x, np.float64)
        for _ in range(steps):
            want = np.tanh(want @ w) * 0.7734375
        np.testing.assert_allclose(results[steps], want, rtol=0, atol=4e-6)
        assert np.array_equal(results[steps], other(*given[steps]))  # which began with others


def test_a_branch_in_a_counted_loop_makes_no_copy_at_once(compiled_anew, no_packs):
    @shlo_disc.jit
    def function(x, w):
        def step(k, y):
            return lax.cond(k < 2, lambda y: jnp.tanh(y @ w) * 0.76953125, lambda y: y, y)

        return lax.fori_loop(0, 9, step, x)

    x, w = map(np.asarray, operands(200, 40, 40))
    want = np.asarray(x, np.float64)
    for _ in range(2):
        want = np.tanh(want @ w) * 0.76953125
    np.testing.assert_allclose(function(x, w), want, rtol=0, atol=4e-6)
    assert "dense_scratch" in compiled_products(function, x, w)


def test_a_counted_loop_without_room_for_copies(no_packs):
    run(
        """
        from jax import lax

        @shlo_disc.jit
        def g(x, w):
            return lax.fori_loop(0, 9, lambda _, y: jnp.tanh(y @ w), x)

        x, w = np.ones((200, 40), np.float32), np.full((40, 40), 1 / 64, np.float32)
        want = x
        for _ in range(9):
            want = np.tanh(want @ w)
        assert np.allclose(g(x, w), want)
        executable = g.lower(x, w).compile().executable
        pairs = zip(executable.host.kernels, executable._kernels)
        assert "dense_scratch" in {kernel.name for kernel, code in pairs if code.address}
        """,
        SHLO_DISC_PACK_BYTES="0",
    )


PROGRAM = """
    import json, os, time
    import jax, jax.numpy as jnp, numpy as np
    import shlo_disc

    @shlo_disc.jit
    def f(x, w):
        return jnp.tanh(x @ w)

    def late():
        return json.loads(f.explain(format="json"))["late_kernels"]

    def same(n):
        x, w = np.ones((n, 40), np.float32), np.full((40, 48), 1 / 64, np.float32)
        return np.allclose(f(x, w), np.tanh(x @ w))

    assert same(200) and late() > 0
"""


def run(code, **env):
    text = textwrap.dedent(PROGRAM) + textwrap.dedent(code)
    python(text, 300, SHLO_DISC_CACHE="0", SHLO_DISC_COMPILE_AHEAD="1", **env)


def test_in_the_background_once_a_call_of_other_sizes_needs_one():
    run("""
        assert shlo_disc.finish_compiling(120)
        before = late()
        assert same(201) and shlo_disc.finish_compiling(120)
        assert late() == before > 1  # the same kernels
        assert same(1) and late() > 0
        assert shlo_disc.finish_compiling(120)
        assert late() == 0
    """)


def test_in_the_background_where_a_program_is_compiled_before_calls():
    run("""
        f.warmup((np.ones((200, 40), np.float32), np.ones((40, 48), np.float32)))
        assert shlo_disc.finish_compiling(120)
        assert late() == 0
    """)


def test_a_process_ends_and_forks_while_kernels_are_compiled():
    run("""
        time.sleep(0.6)  # the thread is at work
        child = os.fork()
        if child == 0:
            os._exit(0 if same(1) else 1)
        assert os.waitpid(child, 0)[1] == 0
    """)


@pytest.fixture
def in_background(compiled_anew, monkeypatch):
    monkeypatch.setenv("SHLO_DISC_COMPILE_AHEAD", "1")
    yield
    assert shlo_disc.finish_compiling(120)


def test_better_code_takes_the_place_of_quick_code(in_background):
    @shlo_disc.jit
    def function(x, w):
        return jax.nn.softmax(x @ w) * 0.6875

    given = operands(200, 40, 48)
    first = np.asarray(function(*given))
    executable = function.lower(*given).compile().executable
    assert shlo_disc.finish_compiling(120)
    kernels = executable._kernels
    assert {kernel.is_finished for kernel in kernels if kernel.address} == {True}
    assert any(not kernel.address for kernel in kernels)
    executable.compile_for_all_sizes()
    assert shlo_disc.finish_compiling(120)
    assert all(kernel.is_finished for kernel in kernels)
    shared = [getattr(kernel, "_shared", kernel) for kernel in kernels]
    assert len({len(kernel._codes) for kernel in shared}) == 2  # those that ran have both
    assert np.array_equal(function(*given), first)


@pytest.mark.parametrize(
    ("shape", "levels"), [((), ["best"]), ((50, 70), ["quick", "best"])], ids=["scalar", "array"]
)
def test_a_host_program_with_loops_gets_better_code(in_background, monkeypatch, shape, levels):
    """At once where its steps are small: unoptimised, these take twice as long."""
    made, original = [], object_code._object_code

    def noted(module, name, level):
        if name == "prepare":
            made.append({object_code._QUICK: "quick", object_code._LOOPS: "best"}[level])
        return original(module, name, level)

    monkeypatch.setattr(object_code, "_object_code", noted)

    @shlo_disc.jit
    def function(x, trips):
        return lax.fori_loop(0, trips, lambda _, y: jnp.sin(y) * 0.59375, x)

    x = jnp.linspace(-1, 1, math.prod(shape)).reshape(shape)
    first = np.asarray(function(x, 5))
    want = np.linspace(-1, 1, math.prod(shape)).reshape(shape)
    for _ in range(5):
        want = np.sin(want) * 0.59375
    np.testing.assert_allclose(first, want, rtol=0, atol=1e-6)
    assert made == levels[:1]
    assert shlo_disc.finish_compiling(120)
    assert made == levels
    assert np.array_equal(function(x, 5), first)
    assert np.array_equal(jax.jit(function)(x, 5), first)


@pytest.mark.parametrize(("rows", "depth"), [(200, 600), (600, 600), (200, 40)])
def test_products_are_compiled_once_and_weights_packed(in_background, no_packs, rows, depth):
    """After the first call where it has few rows and they are large."""
    factor = 0.5625 + rows / 4096 + depth / 32768
    function = shlo_disc.jit(lambda x, w: jnp.tanh(x @ w) * factor)
    given = operands(rows, depth, 480)
    first = np.asarray(function(*given))
    near(first / factor, *given)
    executable = function.lower(*given).compile().executable
    named = {k.name: f for k, f in zip(executable.host.kernels, executable._kernels, strict=True)}
    names = {"dense_pack", "dense_packed"}
    waits = (rows, depth) == (200, 600)
    assert {named[name].is_finished for name in names} == {not waits}
    assert named["dense_scratch"].is_finished == waits
    assert ral.pack_stats()["packs"] == (not waits)
    assert np.array_equal(function(*given), first)
    assert shlo_disc.finish_compiling(120)
    assert {named[name].is_finished for name in names} == {True}
    assert ral.pack_stats()["packs"] == 1
    assert np.array_equal(function(*given), first)
    product = named["dense_packed"]
    assert len(getattr(product, "_shared", product)._codes) == 1


def test_the_store_keeps_what_is_compiled_once(in_background, own_store):
    text = ANSWER.format(883).replace(" {", f" attributes {{{ONCE}}} {{", 1)
    with codegen.Builder() as builder:
        (function,) = builder.functions([text])
    assert function.is_finished
    (kept,) = codegen._kept(codegen._kernel_source(text, 3, None))
    assert kept.is_best
    assert kept.from_store


def test_the_store_keeps_the_best_code_alone(in_background, own_store):
    text = ANSWER.format(881)
    with codegen.Builder() as builder:
        (function,) = builder.functions([text])
    assert function.address
    assert not function.is_finished
    key_count = COUNTS.now()["stored"]
    function.finish()
    assert function.is_finished
    assert COUNTS.now()["stored"] == key_count + 1


def test_short_kernels_are_quickly_made_in_one_module(in_background, monkeypatch):
    made, original = [], object_code._object_code

    def noted(module, name, level):
        made.append(level)
        return original(module, name, level)

    monkeypatch.setattr(object_code, "_object_code", noted)
    texts = [ANSWER.format(n) for n in range(8100, 8120)]
    known = codegen.compile_functions(texts[4:5])
    made.clear()
    with codegen.Builder() as builder:
        for text in texts:
            builder.add(text)
        functions = builder.functions(texts)
    assert made == [object_code._QUICK]
    assert functions[4:5] == known
    assert [called(function) for function in functions] == [*range(8100, 8120)]
    assert not functions[0].is_finished
    assert shlo_disc.finish_compiling(120)
    assert all(function.is_finished for function in functions)
    assert [called(function) for function in functions] == [*range(8100, 8120)]


def test_of_kernels_made_together_those_that_do_not_compile_are_told(in_background):
    bad = "func.func @KERNEL(%args: !llvm.ptr) -> i64 { wrong }"
    texts = [ANSWER.format(8201), bad, ANSWER.format(8202)]
    with pytest.raises(KernelsRefused) as raised, codegen.Builder() as builder:
        builder.functions(texts)
    assert [*raised.value.errors] == [bad]
    assert called(codegen.compile_functions(texts[2:])[0]) == 8202


@pytest.mark.parametrize("after", [lambda x: x[:, 1:], lambda x: 3 * x + 1], ids=["", "epilogue"])
def test_a_text_is_written_when_a_call_chooses_its_kernel(compiled_anew, monkeypatch, after):
    written, write = [], gemm._gemm

    def noted(what, sizes):
        written.append(what.b_mode)
        return write(what, sizes)

    monkeypatch.setattr(gemm, "_gemm", noted)
    function = shlo_disc.jit(lambda x, w: after(x @ w))  # compiled for this test
    given = operands(200, 40, 48)
    np.testing.assert_allclose(function(*given), after(given[0] @ given[1]), rtol=0, atol=1e-5)
    assert written == ["packed"]

    def call(sizes):
        x, w = map(np.asarray, operands(*sizes))  # of NumPy's arrays no copy is kept
        np.testing.assert_allclose(function(x, w), after(x @ w), rtol=0, atol=1e-4)

    at_once(call, [*SIZES[1:4], SIZES[1]])
    assert sorted(set(written)) == ["direct", "packed", "scratch"]
    assert len(written) < len(function.lower(*given).compile().executable.host.kernels)


class Late:
    """A function that notes when it is finished."""

    name, address = "late", 0

    def __init__(self):
        self.finished = threading.Event()

    def finish(self):
        self.finished.set()


@pytest.fixture
def impatient(in_background, monkeypatch):
    """The background waits a shorter time for callers than it does elsewhere."""
    assert shlo_disc.finish_compiling(120)
    monkeypatch.setattr(background, "_PAUSE_S", 0.01)


def test_processes_that_begin_together_take_turns_of_their_own():
    before = random.getstate()
    orders = []
    for _ in range(2):
        queue = deque(range(50))
        orders.append([background._taken(queue) for _ in range(50)])
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == [*range(50)]
    assert random.getstate() == before  # which the program may have seeded


def test_nothing_begins_in_the_background_while_a_caller_waits(impatient):
    function = Late()

    @lets_others_run
    def compiles():
        background.finish_later(function)
        return function.finished.wait(0.3)

    assert not compiles()
    assert function.finished.wait(60)


def test_finish_compiling_does_not_wait_for_other_compilations(impatient):
    function = Late()

    @lets_others_run
    def compiles():
        background.finish_later(function)
        return shlo_disc.finish_compiling(60)

    assert compiles()
    assert function.finished.is_set()


def test_a_stream_of_compilations_does_not_starve_the_background(impatient, monkeypatch):
    monkeypatch.setattr(background, "_LONGEST_WAIT_S", 0.05)
    function = Late()

    @lets_others_run
    def compiles():
        background.finish_later(function)
        return function.finished.wait(60)

    assert compiles()
