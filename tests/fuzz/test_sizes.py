"""A sample of the random programs that write one size in two ways."""

import numpy as np
import pytest

from tests.fuzz.check import check
from tests.fuzz.program import function
from tests.fuzz.sizes import LENGTHS, generate

SAMPLE = (1, 5, 8, 250)


@pytest.mark.parametrize("seed", SAMPLE)
def test_one_compilation_is_enough_for_a_size_in_two_ways(seed):
    program = generate(seed)
    outcome = check(program)
    assert outcome.failure is None, f"{outcome.failure}\n{program.script()}"
    assert outcome.compilations == 1, program.script()


@pytest.mark.slow(minutes=10)
def test_ninety_nine_of_a_hundred_programs_are_compiled_once():
    outcomes = [check(generate(seed)) for seed in range(500)]
    assert not [outcome.failure for outcome in outcomes if outcome.failure]
    assert sum(outcome.compilations > 1 for outcome in outcomes) <= 5


@pytest.mark.parametrize("name", LENGTHS)
def test_every_way_has_the_length(name):
    row = LENGTHS[name]
    for n, k in ((17, 3), (row.least(2), 2), (24, 4)):
        x = np.arange(n, dtype="f4")
        for way in row.ways:
            text = way.format(x="x", n="x.shape[0]", k=k)
            found = function(f"def length(x):\n    return {text}\n", "length")(x)
            assert np.shape(found) == (row.of(n, k),), way
