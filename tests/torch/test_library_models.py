"""Models of PyTorch's libraries do beside eager mode what docs/torch-models.md says."""

import importlib.util

import pytest

from tests.torch.library_models import MODELS, PAGE, page, row


def test_the_page_is_that_of_the_models():
    assert PAGE.read_text() == page()


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_does_what_eager_mode_does(name):
    model = MODELS[name]
    if model.library and importlib.util.find_spec(model.library) is None:
        pytest.skip(f"{model.library}: make test-torch-models")
    found = row(name)
    assert (found.forward, found.training) == ("right", "right")
    assert found.export == ("right" if model.exports else "PyTorch cannot")
    assert model.counts in (None, (found.graphs, found.breaks, found.eager))
