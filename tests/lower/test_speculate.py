"""Variants: likely sizes, those that cannot occur, and that exactly one runs."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shlo_disc
from shlo_disc.jax.calls import compiler
from shlo_disc.lower.plan import If, Launch, Pack
from shlo_disc.lower.speculate import MAX_VARIANTS


def normalise(x):
    return jax.nn.softmax(x * 2.0, axis=-1)


def mixed(x, w):
    y = jax.nn.gelu(x @ w)
    return jax.nn.softmax(y), jnp.sort(y, -1), y.sum(0), jax.lax.top_k(y, 1)[0]


def executable(function, *args, **options):
    f = shlo_disc.jit(function, **options)
    f(*args)
    return f, f.lower(*args).compile().executable


def data(*shape):
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def variants(use):
    return [reason for reason in use.why if "variant" in reason]


def paths(steps, kept):
    """Every way through a plan: the conditions taken, as (condition, is true)."""
    found = [()]
    for step in steps:
        if isinstance(step, Launch):
            continue
        if isinstance(step, If):
            ways = [((step.condition, True), *p) for p in paths(step.then, kept)]
            ways += [((step.condition, False), *p) for p in paths(step.otherwise, kept)]
        else:
            ways = paths(step.then if kept else step.otherwise, kept)
        found = [(*a, *b) for a in found for b in ways]
    return found


@settings(max_examples=200, deadline=None)
@given(st.data())
@pytest.mark.parametrize("kept", [False, True])
def test_exactly_one_variant_runs_for_any_sizes(kept, data):
    exe = EXECUTABLES["mixed"]
    sizes = {
        name: data.draw(st.one_of(st.integers(0, 300), st.integers(0, 1 << 40)), label=name)
        for name in exe.program.symbol_names
    }
    for use in exe.host.uses:
        ways = paths(use.plan.steps, kept)
        taken = [way for way in ways if all(c.holds(sizes) == truth for c, truth in way)]
        assert len(taken) == 1, (use.name, sizes)


EXECUTABLES = {}


@pytest.fixture(autouse=True, scope="module")
def compiled():
    options = {"shapes": ("b, t", "t, n"), "likely": {"b": [1, 8], "t": [16], "n": [8, 64]}}
    EXECUTABLES["mixed"] = executable(mixed, data(4, 16), data(16, 8), **options)[1]
    yield
    EXECUTABLES.clear()


def test_likely_sizes_have_kernels_and_all_sizes_the_same_results():
    f, exe = executable(normalise, data(3, 5), shapes=("b, t",), likely={"t": [64, 100]})
    plain = shlo_disc.jit(normalise, shapes=("b, t",))
    (use,) = exe.host.uses
    assert variants(use) == ["variant for t == 64: likely", "variant for t == 100: likely"]
    for shape in [(2, 64), (7, 100), (3, 63), (1, 1), (5, 1000)]:
        x = data(*shape)
        np.testing.assert_allclose(f(x), jax.nn.softmax(x * 2.0), rtol=3e-6, atol=1e-7)
        np.testing.assert_allclose(f(x), plain(x), rtol=1e-6, atol=1e-7)
    assert f.cache_info().misses == 1


def test_derivatives_and_batches_have_kernels_for_likely_sizes(monkeypatch):
    compiled = []

    compile_ = compiler._compile

    def recording(*args, **options):
        compiled.append(compile_(*args, **options))
        return compiled[-1]

    monkeypatch.setattr(compiler, "_compile", recording)

    def loss(x):
        return jnp.sum(normalise(x) ** 2)

    f = shlo_disc.jit(loss, shapes=("b, t",), likely={"t": [64]})
    for shape in [(3, 64), (5, 17)]:
        x = data(*shape)
        np.testing.assert_allclose(jax.grad(f)(x), jax.grad(loss)(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(jax.vmap(f)(x[None]), jax.vmap(loss)(x[None]), rtol=1e-5)
    assert {executable.name for executable in compiled} >= {"loss_forward", "loss_vmap"}
    for executable in compiled:
        found = [reason for use in executable.host.uses for reason in variants(use)]
        assert "variant for t == 64: likely" in found, executable.name


def test_calls_are_counted_by_variant():
    f, _ = executable(normalise, data(3, 64), shapes=("b, t",), likely={"t": 64})
    f(data(9, 64))
    f(data(9, 65))
    program = json.loads(f.explain("json"))
    choice = program["kernels"][0]["variants"][0]
    assert choice["if"] == "t == 64"
    assert choice["calls"] == [2, 1]


def test_equal_code_makes_no_variant():
    _, exe = executable(lambda x: x + 1.0, data(3, 5), shapes=("b, t",), likely={"b": 4})
    (use,) = exe.host.uses
    assert variants(use) == ["no variant for b == 4: it would be the same code"]
    assert all(isinstance(step, Launch) for step in use.plan.steps)


def test_constraints_remove_variants():
    options = {"shapes": ("b, t",), "constraints": "t >= 100"}
    _, exe = executable(normalise, data(3, 128), **options, likely={"t": [64, 128]})
    (use,) = exe.host.uses
    assert "no variant for t == 64: the constraints exclude it" in use.why
    assert "variant for t == 128: likely" in use.why


def test_choices_the_constraints_decide_are_gone():
    def product(x, w):
        return x @ w

    def conditions(constraints):
        options = {"shapes": ("b, k", "k, n"), "constraints": constraints}
        _, exe = executable(product, data(100, 8), data(8, 16), **options)
        (use,) = exe.host.uses
        (cut,) = use.plan.steps
        assert isinstance(cut, If)  # long sums of few results
        (few,) = cut.otherwise
        assert isinstance(few, If)  # few columns
        (pack,) = few.otherwise
        assert isinstance(pack, Pack)
        return use.why, [step for step in pack.otherwise if isinstance(step, If)]

    why, choices = conditions(())
    assert not [reason for reason in why if "variant" in reason]
    assert len(choices) == 1
    why, choices = conditions("b >= 100")
    assert not choices
    assert why[0].startswith("one variant: b <= ")
    assert why[0].endswith("never holds")


def attend(q, k):
    return jax.nn.softmax(q @ jnp.swapaxes(k, 1, 2) * 0.1) @ k


def test_attention_of_few_rows_is_a_variant():
    few, many = data(3, 2, 8), data(3, 40, 8)
    f = shlo_disc.jit(attend, shapes=("h, t, d", "h, s, d"))
    for q in (few, many, many):
        np.testing.assert_allclose(f(q, many), attend(q, many), rtol=1e-5, atol=1e-6)
    (kernel,) = json.loads(f.explain("json"))["kernels"]
    (choice,) = kernel["variants"]
    assert (choice["if"], choice["calls"]) == ("t <= 2", [1, 2])


@pytest.mark.parametrize(
    ("constraints", "names"),
    [("t >= 3", ["attention"]), ("t <= 2", ["attention_rows"]), ("t == 1", ["attention_rows"])],
)
def test_attention_has_no_variant_that_cannot_occur(constraints, names):
    options = {"shapes": ("h, t, d", "h, s, d"), "constraints": constraints}
    rows = 4 if constraints == "t >= 3" else 1
    _, exe = executable(attend, data(3, rows, 8), data(3, 40, 8), **options)
    (use,) = exe.host.uses
    assert [step.kernel.name for step in use.plan.steps] == names


def test_a_likely_size_has_no_variant_that_cannot_occur():
    options = {"shapes": ("h, t, d", "h, s, d"), "likely": {"d": [8], "t": [1, 40]}}
    f, exe = executable(attend, data(3, 40, 8), data(3, 40, 8), **options)
    (use,) = exe.host.uses
    assert variants(use) == [
        "no variant for d == 8 and t == 1: it would be the same code",
        "variant for d == 8 and t == 40: likely",
    ]
    (choice,) = use.plan.steps
    assert [step.kernel.name for step in choice.then] == ["attention"]
    for rows in (1, 2, 40):
        q, k = data(3, rows, 8), data(3, 33, 8)
        np.testing.assert_allclose(f(q, k), attend(q, k), rtol=1e-5, atol=1e-6)


def test_the_number_of_variants_is_bounded():
    likely = {"t": list(range(16, 16 * 12, 16))}
    _, exe = executable(normalise, data(3, 5), shapes=("b, t",), likely=likely)
    (use,) = exe.host.uses
    assert sum(reason.startswith("variant") for reason in use.why) == MAX_VARIANTS
    assert sum("are the most" in reason for reason in use.why) == 11 - MAX_VARIANTS


def test_wrong_names_and_values_are_refused():
    with pytest.raises(ValueError, match="likely names the size 'c', but shapes does not"):
        shlo_disc.jit(normalise, shapes=("b, t",), likely={"c": 3})
    with pytest.raises(ValueError, match="likely names the size 'b'"):
        shlo_disc.jit(normalise, likely={"b": 3})
    with pytest.raises(ValueError, match="must be whole numbers"):
        shlo_disc.jit(normalise, shapes=("b, t",), likely={"b": [1.5]})
    text = "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }"
    with pytest.raises(ValueError, match="the symbols of the program are: n"):
        shlo_disc.compile(text, shapes=[["n"]], likely={"m": [1]})


def test_branches_of_small_matrices_are_kernels_for_their_size():
    """Compiled first where none of them runs."""
    f, exe = executable(jnp.linalg.det, data(5, 4, 4))
    for shape in [(7, 3, 3), (4097, 3, 3), (9, 2, 2), (4099, 2, 2), (3, 1, 1), (2, 5, 5)]:
        x = data(*shape)
        np.testing.assert_allclose(f(x), np.linalg.det(np.float64(x)), rtol=1e-4, atol=1e-5)
    assert f.cache_info().misses == 1
    where = "it runs where d1 == "
    known = [(why.removeprefix(where), use.plan) for use in exe.host.uses for why in use.why
             if why.startswith(where)]  # fmt: skip
    assert {size for size, _ in known} == {"1", "2", "3"}
    assert [size for size, _ in known].count("3") == 1, "the padding is in the kernel"
    for _, plan in known:
        (launch,) = plan.steps
        assert isinstance(launch, Launch)
        assert "arith.cmpi ult" not in launch.kernel.text, "no element is asked whether it exists"
