"""Random chains of calls on the stand-in GPU."""

import pytest

from tests.gpu import endless
from tests.gpu.chains import Chains


@pytest.mark.filterwarnings("ignore:.*no result can use the memory:UserWarning")
def test_chains_of_ours_and_of_jax(stand_in, gpu):
    before = stand_in.count("launches")
    Chains().run_many(60)
    assert stand_in.count("launches") > before
    assert not stand_in.errors


def test_many_calls_take_no_memory():
    """On a CPU: what a machine with a GPU runs 100000 times."""
    endless.run(3000)
