"""Equal programs of one test are compiled once."""

import pytest

from shlo_disc.jax.calls import compiled_call


@pytest.fixture(autouse=True)
def kept_programs(monkeypatch):
    """Programs live as long as the test: its kernels are looked at, then its results are checked.

    `compiled_once` gives an equal program the executable of one that is alive.
    """
    monkeypatch.setattr(compiled_call, "_programs", dict(compiled_call._programs))
