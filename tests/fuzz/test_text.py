"""A sample of the random StableHLO modules, and tests of their fuzzer."""

from types import SimpleNamespace

import numpy as np
import pytest

import shlo_disc
from shlo_disc.ir.ops import OPS
from tests.fuzz import batches
from tests.fuzz.shrink import shrunk, tidy
from tests.fuzz.text import check as text_check
from tests.fuzz.text import types as known
from tests.fuzz.text.generate import generate
from tests.fuzz.text.oracles import verify

SAMPLE = range(10)

NOT_WRITTEN = {
    "chlo._asin_acos_kernel", "chlo.broadcast_polygamma", "chlo.broadcast_zeta", "chlo.constant",
    "chlo.ragged_dot", "stablehlo.after_all", "stablehlo.async_done", "stablehlo.async_start",
    "stablehlo.collective_reduce", "stablehlo.create_token", "stablehlo.cross-replica-sum",
    "stablehlo.custom_call", "stablehlo.infeed", "stablehlo.outfeed", "stablehlo.recv",
    "stablehlo.rng", "stablehlo.send",
}  # fmt: skip
"""Ops of StableHLO and CHLO in no random module: tokens, what talks to others, custom calls."""


@pytest.mark.usefixtures("child_environment")
def test_random_modules_are_as_the_oracles_say():
    outcomes = dict(batches.check_seeds(SAMPLE, 1, kind="stablehlo"))
    failures = [f"{o.failure}\n{generate(s).text()}" for s, o in outcomes.items() if o.failure]
    assert not failures, "\n\n".join(failures)
    assert sum(not o.unjudged for o in outcomes.values()) > 7


def ops_of(block):
    """The names of the ops of a block and its bodies."""
    for step in block.steps:
        yield step.text.split()[0]
        for body in step.bodies:
            yield from ops_of(body.block)


def test_modules_have_every_op_and_are_valid():
    written = set()
    for seed in range(800):
        module = generate(seed)
        written.update(ops_of(module.block))
        if seed < 40:
            assert not verify(module.text()), module.text()
            assert not verify(module.oracle(0)), module.oracle(0)
    names = {name for name in OPS if name.startswith(("stablehlo.", "chlo."))}
    names -= {"stablehlo.return", "stablehlo.tuple", "stablehlo.get_tuple_element"}
    assert names - written <= NOT_WRITTEN | rare()
    assert not written & NOT_WRITTEN


def rare():
    """Functions that one of some hundred modules has."""
    return {name for name in OPS if name.startswith("chlo.") or OPS[name].math}


def test_a_module_is_a_function_of_its_seed():
    assert generate(7).script() == generate(7).script()
    assert len({generate(seed).text() for seed in range(20)}) == 20


@pytest.mark.parametrize("dtype", [*known.FLOAT, *known.INTEGER, *known.COMPLEX, "i1"])
def test_constants_have_the_elements_of_their_arrays(dtype):
    """What a call passes is what the oracles read from the text."""
    kind = "wide" if dtype in known.INTEGER else "grid"
    array = known.array(kind, dtype, (2, 3), 5)
    text = f"""func.func public @main() -> tensor<2x3x{dtype}> {{
      %0 = stablehlo.constant dense<{known.dense(array, dtype)}> : tensor<2x3x{dtype}>
      return %0 : tensor<2x3x{dtype}>
    }}"""
    (found,) = shlo_disc.compile(text).run_numpy([])
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


def first(wanted):
    """The first module of which this holds."""
    return next(m for m in map(generate, range(2000)) if wanted(m))


def is_small_and_exact(module):
    values = [module.values[name] for name in module.block.results]
    return len(module.block.steps) < 6 and all(v.dtype == "i32" and v.shapes[0] for v in values)


def test_a_wrong_element_is_found(monkeypatch):
    def wrong(text):
        executable = compile_(text)

        def run_numpy(inputs):
            results = executable.run_numpy(inputs)
            results[0].flat[-1:] += 1
            return results

        return SimpleNamespace(run_numpy=run_numpy)

    compile_ = shlo_disc.compile
    module = first(is_small_and_exact)
    assert text_check.check(module).failure is None
    monkeypatch.setattr(shlo_disc, "compile", wrong)
    failure = text_check.check(module).failure
    assert failure is not None
    assert (failure.kind, failure.signature) == ("difference", "exact i32 (both)")


def test_a_module_is_made_small():
    # A sort that results depend on: the others are taken out at once.
    module = first(
        lambda m: "stablehlo.sort" in list(ops_of(tidy(m).block)) and len(m.block.steps) > 8
    )

    def fails(candidate):
        return "stablehlo.sort" in list(ops_of(candidate.block)) and not verify(candidate.text())

    small = shrunk(module, fails)
    assert fails(small)
    assert len(small.block.steps) <= 3, small.text()
    assert small.calls == 1


@pytest.mark.parametrize(
    ("got", "want", "is_same"),
    [
        ([1.0, np.nan], [1.0, np.nan], True),
        ([0.0, np.inf], [-0.0, np.inf], False),
        ([1.0, 2.0], [1.0, 2.0000002], False),
    ],
)
def test_exact_results_are_compared_by_bits(got, want, is_same):
    value = next(
        v for m in map(generate, range(100)) for v in m.values.values()
        if v.dtype == "f32" and v.facts.exact
    )  # fmt: skip
    told = text_check.differs(value, np.float32(got), np.float32(want))
    assert (told == "") is is_same
