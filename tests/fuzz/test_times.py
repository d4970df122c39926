"""A sample of the programs of the fuzzer of times: their results; times are not for tests."""

import jax
import pytest

from tests.fuzz.times import SMALL, Timed, Times, measured, problem

SAMPLE = (3, 11, 23)


@pytest.mark.parametrize("seed", SAMPLE)
def test_random_programs_of_loops_are_as_jax_jit(seed):
    program = Timed.of(seed)
    _, wrong = measured(Timed(program.source, program.columns, 37), seconds=0.0)
    assert not wrong, program.source


def test_programs_are_written_alike_and_can_be_traced():
    assert Timed.of(7) == Timed.of(7)
    for seed in range(30):
        program = Timed.of(seed)
        jax.make_jaxpr(program.function())(*program.arguments(SMALL))


def test_what_is_slow_at_the_larger_size_is_reported():
    small, fast, slow = Times(1e-5, 1e-5), Times(1e-2, 0.9e-2), Times(1e-2, 1e-3)
    assert not problem([small, fast])
    assert problem([small, slow]).startswith("grows 10.0 times")
    assert problem([Times(1e-3, 1e-4), slow]).startswith("0.10 of the speed")
