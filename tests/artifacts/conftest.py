"""Artifacts of the programs of a module."""

from operator import itemgetter

import pytest

import shlo_disc


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
