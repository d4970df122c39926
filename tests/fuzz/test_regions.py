"""A sample of the random programs of regions with sizes from data."""

import pytest

from tests.fuzz.regions import WRONG, Env, Program, TooLargeError, _calls

SAMPLE = (3, 4, 10, 12, 17, 26)


@pytest.mark.parametrize("seed", SAMPLE)
def test_random_programs_of_regions_are_as_their_model(seed):
    program = Program.of(seed)
    assert not program.problem(seed), program.text()


def test_programs_have_valid_calls_and_wrong_ones():
    valid = wrong = 0
    for seed in range(100):
        program = Program.of(seed)
        for arguments in _calls(seed):
            env = Env(dict(zip("xysk", arguments, strict=True)))
            try:
                program.block.run(env)
            except TooLargeError:
                continue
            valid += not env.wrong
            wrong += any(env.values[r] is WRONG for r in program.results)
    assert valid > 300
    assert wrong > 100
