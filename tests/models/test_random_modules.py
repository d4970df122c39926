"""Random trainable modules: all compile as planned and are right; see `random_modules.py`.

The whole: `pytest -m slow tests/models/test_random_modules.py`, or part of it by
`python -m tests.models.random_modules --seeds 0:100`.
"""

import jax
import pytest

from tests.models.random_modules import check, report, shrink, spec_of

JAX_PROGRAMS, FLAX_PROGRAMS = 400, 100


def run(seed, flavour):
    spec = spec_of(seed, flavour)
    try:
        check(spec)
    except Exception:
        found, error = shrink(spec)
        pytest.fail(report(seed, found, error), pytrace=False)


def test_a_sample():
    run(3, "jax")


@pytest.mark.slow
def test_a_sample_of_flax():
    pytest.importorskip("flax")
    run(1, "flax")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, JAX_PROGRAMS, 20))
def test_many(first):
    for seed in range(first, first + 20):
        run(seed, "jax")
    jax.clear_caches()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, FLAX_PROGRAMS, 20))
def test_many_of_flax(first):
    pytest.importorskip("flax")
    for seed in range(first, first + 20):
        run(seed, "flax")
    jax.clear_caches()


def test_programs_are_made_small():
    """The shrinker finds the one layer at fault, and what it prints is a program."""
    from tests.models import random_modules as of

    layers = (("rotary", False), ("no such layer", True), ("rotary", False))
    spec = of.Spec(layers, 4, embeds=False, loss="squares", mode="forward", shapes=((2, 3),))
    small, error = of.shrink(spec)
    assert small.layers == (("no such layer", False),)
    assert "check(Spec(layers=(('no such layer', False),)" in of.report(5, small, error)
