"""Artifacts of the programs of a module."""

from operator import itemgetter

import pytest

import shlo_disc
from tests.artifacts.cards import Card
from tests.gpu.stand_in import StandIn


@pytest.fixture(scope="module")
def saved(request, tmp_path_factory):
    """The artifact of a program of the module's `PROGRAMS`, made once."""
    folder = tmp_path_factory.mktemp("artifacts")

    def path_of(name):
        path = folder / f"{name.replace(' ', '-')}.disc"
        if not path.exists():
            source_of = getattr(request.module, "export", itemgetter(0))
            shlo_disc.compile(source_of(request.module.PROGRAMS[name])).save(path)
        return path

    return path_of


@pytest.fixture
def stand_in():
    """The stand-in of drivers of GPUs, in which no kernel fails."""
    driver = StandIn.started()
    driver.reset()
    yield driver
    assert not driver.errors
    driver.reset()


@pytest.fixture
def card(stand_in):
    """Its first GPU."""
    made = Card(stand_in)
    yield made
    made.close()
