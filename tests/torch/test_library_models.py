"""Models of PyTorch's libraries do beside eager mode what docs/torch-models.md says."""

from __future__ import annotations

import importlib.util

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `torch`: make test-torch")

from tests.torch.library_models import MODELS, PAGE, line, row  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_the_page_has_every_model():
    names = [text.split(" | ")[0].removeprefix("| ") for text in PAGE.read_text().splitlines()]
    assert [name for name in names if name in MODELS] == list(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_does_what_the_page_says(name):
    library = MODELS[name].library
    if library and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library}: make test-torch-models")
    found = row(name)
    assert line(name, found).rpartition(" | ")[0] in PAGE.read_text()
