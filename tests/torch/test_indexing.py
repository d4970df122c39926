"""`x[i, :, j]` and `x[i, :, j] = v`: indices that are broadcast, negative, or stand apart."""

import pytest
import torch
from torch.export import Dim

from tests.torch.test_indexed_ops import assert_right

aten = torch.ops.aten

SETS = [(5, 7), (3, 11), (2, 2), (13, 4)]


def of(high, *shape):
    """Indices of a dimension of size `high`, from either end."""
    return torch.randint(-high, high, shape)


INDICES = {
    "rows": lambda b, s: [of(b, 6)],
    "as many rows as columns": lambda b, s: [of(b, s)],
    "columns": lambda b, s: [None, of(s, b, 3)],
    "one row": lambda b, s: [of(b)],
    "i32": lambda b, s: [None, of(s, 4).int()],
    "two together": lambda b, s: [of(b, 6), of(s, 6)],
    "two together, broadcast": lambda b, s: [None, of(s, s, 1), of(4, 5)],
    "two apart": lambda b, s: [of(b, s), None, of(4, s)],
    "two apart, broadcast": lambda b, s: [of(b, 2, 1), None, None, of(s, s)],
    "all": lambda b, s: [of(b, 3, 1), of(s, 1, 1), of(4, s), of(s, 3, s)],
    "none of them": lambda b, s: [of(b, 0)],
}
EVERY = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC, 3: Dim.DYNAMIC}


def dims_of(indices):
    return [None if i is None else dict.fromkeys(range(i.dim()), Dim.AUTO) for i in indices]


@pytest.mark.parametrize("name", INDICES)
def test_reading(name):
    given = INDICES[name](5, 7)
    places = [k for k, i in enumerate(given) if i is not None]

    def function(x, *indices):
        every = [None] * len(given)
        for place, i in zip(places, indices, strict=True):
            every[place] = i
        return aten.index(x * 2, every)

    def make(b, s):
        indices = [i for i in INDICES[name](b, s) if i is not None]
        return (torch.randn(b, s, 4, s), *indices)

    assert_right(function, make, (EVERY, *dims_of(make(5, 7)[1:])), SETS)


@pytest.mark.parametrize("values", ["whole", "one"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("name", INDICES)
def test_writing(name, accumulate, values):
    given = INDICES[name](5, 7)
    places = [k for k, i in enumerate(given) if i is not None]
    # Where two values go to one place, PyTorch says nothing of which stays.
    is_one = values == "one" or not accumulate

    def function(x, v, *indices):
        every = [None] * len(given)
        for place, i in zip(places, indices, strict=True):
            every[place] = i
        return aten.index_put(x, every, v, accumulate)

    def make(b, s):
        x = torch.randn(b, s, 4, s).double()
        indices = INDICES[name](b, s)
        shape = aten.index(x, indices).shape
        v = torch.randn(()) if is_one else torch.randn(shape)
        return (x, v.double(), *(i for i in indices if i is not None))

    example = make(5, 7)
    assert_right(function, make, (EVERY, *dims_of(example[1:])), SETS)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.bfloat16])
def test_of_other_types(dtype):
    def make(b, s):
        return torch.randint(0, 2, (b, s)).to(dtype), of(b, 4), torch.ones(4, s).to(dtype)

    def function(x, i, v):
        return x[i], aten.index_put(x, [i], v), aten.index_put(x, [i], v, True)

    dims = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, None, {1: Dim.AUTO})
    assert_right(function, make, dims, SETS)


def test_assignments_of_a_model():
    def function(x, i, v):
        y = x.clone()
        y[:, i] = v
        y[i % 2] += 1
        y[-1, i] = y[0, i] * 2
        return y

    def make(b, s):
        return torch.randn(b, s), torch.randperm(s), torch.randn(b, s)

    dims = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO})
    assert_right(function, make, dims, SETS)
