"""Results that are numbers: of sizes, of elements, and of sizes that come from data."""

import pytest
import torch
from torch.export import Dim, export

import shlo_disc.torch
from tests.torch.models import Of

FUNCTIONS = {
    "a float": lambda x: x.sum().item(),
    "a whole number": lambda x: (x > 0).sum().item(),
    "a truth value": lambda x: (x.sum() > 0).item(),
    "arithmetic": lambda x: (x.amax().item() / 3 + 1, (x > 0).sum().item() * 2 + x.shape[0]),
    "sizes as floats": lambda x: (x.shape[0] * 1.5, x.shape[0] * 2.5 - 1),
    "a size from data": lambda x: x.nonzero().shape[0],
    "beside tensors": lambda x: (x + 1, x.sum().item(), x.shape[0] + 2, x * 2, None, 3),
    "of several": lambda x: x.sum().item() + x.nonzero().shape[0] * x.shape[0],
    "of an argument": lambda x: (x.reshape(-1).sum().item(), x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_that_are_numbers(name):
    function = FUNCTIONS[name]
    dims = ({0: Dim("b", min=1) if name == "arithmetic" else Dim("b")},)  # amax of no elements
    exe = shlo_disc.torch.compile(
        export(Of(function), (torch.randn(4, 3),), dynamic_shapes=(dims,))
    )
    for rows in (4, 1, 7, 0, 13):
        if rows == 0 and name == "arithmetic":
            continue
        x = torch.randn(rows, 3)
        got, want = exe(x), function(x.double())
        flat = [[r] if not isinstance(r, tuple) else list(r) for r in (got, want)]
        assert len(flat[0]) == len(flat[1])
        for a, b in zip(*flat, strict=True):
            assert type(a) is type(b)
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a.double(), b, rtol=1e-6, atol=1e-6)
            else:
                assert a == (pytest.approx(b, rel=1e-5, abs=1e-5) if type(a) is float else b)


def test_a_number_that_is_an_argument_and_a_result():
    exe = shlo_disc.torch.compile(
        export(Of(lambda x, i: (x * 2, i.item())), (torch.randn(4), torch.tensor(5)),
               dynamic_shapes=(({0: Dim("b")}, None),))
    )  # fmt: skip
    for rows, number in ((4, 5), (0, -1), (1, 2**40)):
        assert exe(torch.randn(rows), torch.tensor(number))[1] == number
