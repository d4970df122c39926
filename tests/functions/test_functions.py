"""The sweep over public functions: a sample by default, all of them as a slow test."""

import os
import signal
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.children import Ended, outcomes
from tests.functions import check as checks
from tests.functions import results
from tests.functions.cases import SIZES, arrays, case
from tests.functions.check import check, check_case
from tests.functions.sweep import SHARE, run, summary
from tests.functions.table import MODULES, case_of, function_of, names, unlisted

SAMPLE = {
    "vectors": "convolve diag geomspace/size hanning interp linspace/size polyadd polyval roll "
    "resize searchsorted take_along_axis tri",
    "matrices": "cumsum diagonal einsum fill_diagonal matvec pad/reflect pad/wrap put "
    "resize/larger roll/less stack vecdot where",
}
"""Functions of `jax.numpy`, compiled together; many once needed a compilation for each size."""


def together(listed):
    """One case that computes all of them."""
    cases = [case_of(f"jax.numpy.{name}") for name in listed.split()]
    functions = [function_of(f"jax.numpy.{name}") for name in listed.split()]

    def function(*values):
        left = list(values)
        results = []
        for one, compute in zip(cases, functions, strict=True):
            count = len(one.arguments)
            results.append(compute(*left[:count]))
            del left[:count]
        return results

    return case(function, *(text for one in cases for text in one.arguments))


@pytest.mark.parametrize("listed", SAMPLE.values(), ids=SAMPLE)
def test_a_sample_is_right_with_one_compilation(listed):
    one = together(listed)
    found = check_case(one, one.function)
    assert found.state == "one compilation", found


@pytest.mark.slow(minutes=30)
@pytest.mark.usefixtures("child_environment")
def test_every_function_is_right_and_nearly_all_need_one_compilation():
    found = dict(run(names(), jobs=2))
    text, good = summary(found)
    assert good, text
    assert results.entries(found) == results.read(), "python -m tests.functions --store"


@pytest.mark.skipif(not jax.__version__.startswith("0.10."), reason="the table is of JAX 0.10")
def test_every_public_function_is_in_the_table_or_left_out_with_a_reason():
    assert not unlisted()


@pytest.mark.skipif(not jax.__version__.startswith("0.10."), reason="the table is of JAX 0.10")
def test_a_new_public_function_is_found(monkeypatch):
    monkeypatch.setattr(jnp, "brand_new", lambda x: x, raising=False)
    assert unlisted() == ["jax.numpy.brand_new: neither in the table nor left out"]


def test_sizes_include_one_and_odd_ones_and_begin_with_an_ordinary_pair():
    for name in names():
        sizes = case_of(name).sizes
        assert len(set(sizes)) == 4
        assert any(n % 2 and n > 1 for n, _ in sizes)
        assert 1 not in sizes[0]
        assert sizes[0][0] != sizes[0][1]
        assert callable(function_of(name))
    assert any(1 in pair for pair in SIZES)


def test_arguments_are_those_of_the_sizes():
    found = arrays(case("n 2*m", "index(n): m", "bool:", "int: 3"), 4, 3)
    assert [x.shape for x in found] == [(4, 6), (3,), (), (3,)]
    assert found[1].max() < 4
    again = arrays(case("n 2*m", "index(n): m"), 4, 3)
    assert np.array_equal(found[0], again[0])


def wrong(monkeypatch, function):
    """What the check says of `jnp.exp` where shlo_disc gives the results of `function`."""
    monkeypatch.setattr(checks.shlo_disc, "jit", lambda _: function)
    return check("jax.numpy.exp")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: jnp.exp(x) * 1.001, "is off by"),
        (lambda x: jnp.exp(x).astype("float16"), "float16"),
        (lambda x: (jnp.exp(x),), "structure"),
        (lambda x: jnp.where(x > 0, jnp.nan, jnp.exp(x)), "is off by inf"),
    ],
)
def test_a_difference_is_found(monkeypatch, function, said):
    found = wrong(monkeypatch, function)
    assert found.state == "wrong"
    assert said in found.message


def test_an_error_is_unsupported_only_if_it_names_what_is_not_compiled(monkeypatch):
    def refuse(x):
        raise checks.shlo_disc.UnsupportedError(message)

    message = "model.py:7: stablehlo.fft: element type complex<f32> is not compiled"
    assert wrong(monkeypatch, refuse).state == "unsupported"
    message = "model.py:7: stablehlo.add with an odd number of rows"
    assert wrong(monkeypatch, refuse).state == "error"


def test_the_summary_asks_for_nearly_one_compilation_each():
    one = checks.Finding("one compilation", "", 1)
    more = checks.Finding("more compilations", "[a Python loop] d0 = 3", 4)
    many = {f"f{k}": one for k in range(100)}
    assert summary(many)[1]
    assert summary({**many, "g": more})[1]
    assert not summary({**many, **{f"g{k}": more for k in range(5)}})[1]
    assert not summary({**many, "g": checks.Finding("more compilations", "d0 = 3", 4)})[1]
    assert not summary({**many, "g": checks.Finding("wrong", "off by 1")})[1]
    assert SHARE == 0.97


def test_what_is_kept_of_the_sweep():
    refused = (
        "UnsupportedError: /a/table.py:55: stablehlo.fft: element type complex<f32> is not "
        "compiled (these are: f32); compute with real parts (ingest/check.py:158)"
    )
    found = {
        "one": checks.Finding("one compilation", "", 1),
        "more": checks.Finding("more compilations", "[why] d0 = 3", 4, ("uses int of n",)),
        "fft": checks.Finding("unsupported", refused),
    }
    assert results.entries(found) == {
        "fft": {"unsupported": "element type complex<f32> is not compiled"},
        "more": {"compilations": 4, "because": ["uses int of n"]},
    }


@pytest.mark.skipif(not jax.__version__.startswith("0.10."), reason="the table is of JAX 0.10")
def test_stored_results_are_of_cases():
    entries = results.read()
    assert entries.keys() <= set(names())
    several = {name for name, entry in entries.items() if "compilations" in entry}
    assert several == {name for name in names() if case_of(name).reason}


def test_the_reason_is_what_another_call_breaks():
    one = case(lambda x: x * x.shape[0] if x.shape[0] < 6 else x.sum(int(x.shape[1]) - 4), "n m")
    finding = check_case(replace(one, sizes=((5, 4), (7, 4))), one.function)
    assert finding.compilations == 2
    assert finding.because == ("the program asks whether n < 6",)


def crash_or_hang(job):
    if job == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    while job == "hang":
        time.sleep(1)
    return job.upper()


@pytest.mark.unsanitized
@pytest.mark.usefixtures("child_environment")
def test_a_crash_or_a_hang_costs_one_job():
    jobs = ["a", "crash", "b", "hang", "c"]
    found = dict(outcomes(crash_or_hang, jobs, 1, limit_s=3))
    assert {k: v for k, v in found.items() if isinstance(v, str)} == {"a": "A", "b": "B", "c": "C"}
    assert found["crash"] == Ended("crash", "the process ended with -11")
    assert found["hang"].kind == "hang"


def test_tables_name_their_module():
    assert all(cases or leave for cases, leave in MODULES.values())
