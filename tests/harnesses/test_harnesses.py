"""A sample of JAX's harnesses, and tests of how they are checked."""

import os
import signal
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("absl", reason="JAX's harnesses need it: pip install '.[test]'")

from tests.harnesses import check as checks
from tests.harnesses import sweep
from tests.harnesses.cases import arguments, group_of, harnesses, sample
from tests.harnesses.check import Finding, check, check_call, difference
from tests.harnesses.sweep import jobs, run, summary
from tests.harnesses.ways import WAYS, call_of

FEW = (
    "reduce_window_add_dtypes_shape_float32",
    "scatter_min_no_xla_unique_indices_shape_float16",
    "eig_shape_float32",
)
"""One harness of each beginning is in the default tests: windows of a function that JAX may not
know, scatters with a derivative, and LAPACK."""


def test_a_few_harnesses_in_all_ways():
    names = [next(n for n in sorted(harnesses()) if n.startswith(start)) for start in FEW]
    found = {job: check(job) for job in jobs(names, [*WAYS])}
    text, good = summary(found)
    assert good, "\n".join([*map(str, found.items()), text])
    states = Counter(finding.state for finding in found.values())
    assert states["equal"] >= 7
    assert "by XLA" not in states


@pytest.mark.slow(minutes=10)
@pytest.mark.usefixtures("child_environment")
def test_two_harnesses_of_every_group_in_all_ways():
    found = dict(run(jobs(sample(264), [*WAYS]), processes=2))
    text, good = summary(found)
    assert good, text


def test_a_sample_has_every_group_twice_and_is_the_same_everywhere():
    sizes = Counter(group_of(name) for name in harnesses())
    taken = Counter(group_of(name) for name in sample(264))
    assert all(taken[group] >= min(2, size) for group, size in sizes.items())
    assert len(set(sample(264))) == 264
    assert sample(300)[:264] == sample(264)
    assert sorted(sample(len(sizes) ** 2)) == sorted(harnesses())


def test_arguments_are_drawn_alike_and_batches_from_several_draws():
    name = next(n for n in sample(300) if group_of(n) == "atan2")
    for first, second in zip(arguments(name), arguments(name), strict=True):
        np.testing.assert_array_equal(first, second)
    _, batched = call_of(name, "vmap")
    shapes = [x.shape for x in arguments(name)]
    sizes = {b.shape[0] for b, s in zip(batched, shapes, strict=True) if b.shape != s}
    assert sizes in ({2}, {3})
    assert any(
        b.shape[1:] == s and (b[0] != b[1]).any() for b, s in zip(batched, shapes, strict=True)
    )


@pytest.fixture
def ours(monkeypatch):
    """Sets what `shlo_disc.jit` gives instead of a compiled function."""

    def use(function):
        function.statistics = lambda: {"by_xla": False}
        monkeypatch.setattr(checks.shlo_disc, "jit", lambda *_, **__: function)

    return use


X = np.linspace(0.1, 2, 7, dtype=np.float32)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda x: jnp.exp(x) * (1 + 1e-5), "7 of 7"),
        (lambda x: jnp.exp(x).at[3].set(jnp.nan), "1 of 7"),
        (lambda x: jnp.exp(x).astype("float16"), "float16[7]"),
        (np.exp, "ndarray"),
        (lambda x: [jnp.exp(x)] * 2, "2 results instead of 1"),
    ],
)
def test_a_difference_is_found(ours, wrong, said):
    ours(wrong)
    found = check_call(jnp.exp, WAYS["jit"], [X])
    assert found.state == "differs"
    assert said in found.message


def test_errors_are_told_apart(ours, monkeypatch):
    def refuse(x):
        raise ValueError("no such thing")

    def other(x):
        raise KeyError("no such thing")

    ours(refuse)
    assert check_call(refuse, WAYS["jit"], [X]).state == "refused"
    assert check_call(other, WAYS["jit"], [X]).state == "differs"
    assert check_call(jnp.exp, WAYS["jit"], [X]).state == "error"
    monkeypatch.setattr(checks.shlo_disc, "jit", lambda *_, **__: jnp.exp)
    assert check_call(refuse, WAYS["jit"], [X]).state == "differs"
    assert check_call(jnp.exp, WAYS["grad"], [X.astype("int32")]).state == "nothing"
    assert check_call(jnp.argmax, WAYS["grad"], [X]).state == "nothing"


def test_float64_decides_where_two_roundings_differ():
    exact = np.array([1.0, 1e-3])
    want, good, bad = (
        jnp.asarray(exact + np.array([0, d]), jnp.float32) for d in (1e-5, -2e-5, -2e-4)
    )
    assert not difference([good], [want], lambda: [exact])
    assert "1 of 2" in difference([bad], [want], lambda: [exact])
    assert "no float64" in difference([good], [want], lambda: None)


def test_what_overflows_is_infinite():
    want = jnp.asarray([jnp.inf, 1.0], jnp.float16)
    truth = lambda: [np.array([1e6, 1.0])]  # noqa: E731
    assert not difference([want], [want * 1], truth)
    assert difference([jnp.asarray([6e4, 1.0], jnp.float16)], [want], truth)


def test_a_crash_is_counted(monkeypatch, child_environment):
    monkeypatch.setattr(sweep, "check", crash)
    (only,) = run([("exp_shape_float32_20_20_", "jit")], processes=1)
    assert only[1].state == "crash"
    text, good = summary(dict([only]))
    assert not good
    assert "0.00% of 1 calls" in text


def crash(_):
    os.kill(os.getpid(), signal.SIGSEGV)


def test_one_wrong_value_or_two_failures_in_a_hundred_are_too_many():
    names = sample(101)
    equal = {(name, "jit"): Finding("equal") for name in names}
    assert summary(equal)[1]
    assert summary({**equal, (names[0], "jit"): Finding("error", "")})[1]
    assert not summary({**equal, **{(n, "jit"): Finding("error", "") for n in names[:2]}})[1]
    assert not summary({**equal, (names[0], "jit"): Finding("differs", "")})[1]


def test_jax_has_no_other_ways():
    from tests.harnesses.__main__ import WAYS as names

    assert names == tuple(WAYS)
    assert jax.devices()[0].platform == "cpu"
