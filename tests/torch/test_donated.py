"""`compile(program, donated=...)`: results in the memory of tensors that a call gives up."""

import gc

import pytest
import torch
from torch import nn
from torch.export import Dim, export

import shlo_disc.torch
from shlo_disc.torch.donation import apart_from_writes
from tests.children import at_once
from tests.torch.models import Of

B, T = Dim("b"), Dim("t", min=2)
WIDTH = 8


class Decoder(nn.Module):
    """A step of attention that writes keys and values at `place` of caches [b, t, 8]."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x, place, keys, values):
        q, k, v = self.qkv(x).chunk(3, -1)
        keys = keys.index_copy(1, place, k[:, None])
        values = values.index_copy(1, place, v[:, None])
        scores = (q[:, None] @ keys.transpose(1, 2))[:, 0]
        seen = torch.arange(keys.shape[1]) <= place
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return (weights[:, None] @ values)[:, 0], keys, values


def decoder(donated=("keys", "values")):
    torch.manual_seed(0)
    model = Decoder().eval()
    dims = ({0: B}, None, {0: B, 1: T}, {0: B, 1: T})
    program = export(model, step_arguments(3, 5), dynamic_shapes=dims)
    return model, shlo_disc.torch.compile(program, donated=donated)


def step_arguments(batch, length, place=0):
    caches = torch.zeros(batch, length, WIDTH), torch.zeros(batch, length, WIDTH)
    return torch.randn(batch, WIDTH), torch.tensor([place]), *caches


class One(Of):
    def forward(self, x):
        return self.function(x)


class Two(Of):
    def forward(self, x, y):
        return self.function(x, y)


def of(function, *arguments, dims, **options):
    module = (One, Two)[len(arguments) - 1](function)
    return shlo_disc.torch.compile(export(module, arguments, dynamic_shapes=dims), **options)


def doubled(**options):
    """x [n, 4] -> 2 x, in the memory of x."""
    return of(lambda x: x * 2, torch.randn(3, 4), dims=({0: Dim("n")},), **options)


def added(donated):
    """x, y [n, 4] -> x + y."""
    n = Dim("n")
    return of(lambda x, y: x + y, torch.randn(3, 4), torch.randn(3, 4), dims=({0: n}, {0: n}),
              donated=donated)  # fmt: skip


@torch.no_grad()
def test_decoding_writes_into_the_caches_that_it_is_given():
    model, run = decoder()
    for batch, length in ((2, 6), (1, 2), (5, 13)):
        x, _, keys, values = step_arguments(batch, length)
        places = keys.data_ptr(), values.data_ptr()
        own = keys.clone(), values.clone()
        for place in range(length):
            index = torch.tensor([place])
            want, *own = model(x, index, *own)
            got, keys, values = run(x, index, keys, values)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close((keys, values), tuple(own))
            assert (keys.data_ptr(), values.data_ptr()) == places
            x = got
    assert run.executable.unused_donations == {}


@torch.no_grad()
def test_a_result_is_a_tensor_as_any_other():
    run = doubled(donated=0)
    x = torch.ones(5, 4)
    place = x.data_ptr()
    y = run(x)
    del x
    gc.collect()
    assert type(y) is torch.Tensor
    assert y.data_ptr() == place
    assert y.shape == (5, 4)
    assert y.is_contiguous()
    assert not y.requires_grad
    y += 1
    w = torch.ones(4, requires_grad=True)
    with torch.enable_grad():
        (y * w).sum().backward()
    assert w.grad.tolist() == [15.0] * 4


@torch.no_grad()
def test_a_long_chain_of_calls_keeps_one_tensor():
    """No result refers to the tensors before it: their destructors would nest."""
    run = doubled(donated=0)
    x = torch.zeros(3, 4)
    for _ in range(3000):
        x = run(x)
    count = sum(isinstance(o, torch.Tensor) and o.shape == (3, 4) for o in gc.get_objects())
    del x
    assert count < 20


@pytest.mark.parametrize("donated", [(0,), 0, "x", ["x", 0]])
@torch.no_grad()
def test_arguments_are_named_by_position_or_name(donated):
    run = added(donated)
    x, y = torch.ones(2, 4), torch.ones(2, 4)
    place = x.data_ptr()
    assert run(x, y).data_ptr() == place
    assert y.tolist() == [[1.0] * 4] * 2


@torch.no_grad()
def test_all_tensors_of_a_structure_are_donated():
    class Step(nn.Module):
        def forward(self, x, caches, *, bias):
            place = torch.tensor([1])
            return [c.index_copy(0, place, x) for c in caches["both"]], bias * x.sum()

    caches = {"both": [torch.zeros(2, 3), torch.zeros(5, 3)]}
    program = export(Step(), (torch.ones(1, 3), caches), {"bias": torch.ones(7)})
    run = shlo_disc.torch.compile(program, donated=(1, "bias"))
    places = [c.data_ptr() for c in caches["both"]]
    bias = torch.ones(7)
    made, other = run(torch.ones(1, 3), caches, bias=bias)
    assert [c.data_ptr() for c in made] == places
    assert other.data_ptr() == bias.data_ptr()
    assert other.tolist() == [3.0] * 7
    assert [c.sum(1).tolist() for c in made] == [[0.0, 3.0], [0.0, 3.0, 0.0, 0.0, 0.0]]


def test_what_is_no_argument_cannot_be_donated():
    for donated, message in (
        (2, "donated names the argument 2, but the call has 2 by position"),
        (-1, "donated names the argument -1"),
        ("z", r"donated names the argument 'z'; there are 'x', 'y'"),
    ):
        with pytest.raises(ValueError, match=message):
            added(donated)
    for donated in (1.5, None, True, [0.5]):
        with pytest.raises(TypeError, match="a donated argument must be a position or a name"):
            added(donated)

    class Scaled(nn.Module):
        def forward(self, x, factor):
            return x * factor

    program = export(Scaled(), (torch.ones(3), 2))
    with pytest.raises(ValueError, match="donated: the argument 1 has no tensor"):
        shlo_disc.torch.compile(program, donated=1)


def test_an_argument_that_no_result_can_replace_is_named():
    with pytest.warns(UserWarning, match=r"no result can use the memory.* x: float32\[x_0, 4\]"):
        of(lambda x: x.sum(), torch.randn(3, 4), dims=({0: Dim("n")},), donated=0)


@torch.no_grad()
def test_memory_that_two_arguments_share_is_not_overwritten():
    run = added("y")
    base = torch.arange(40.0)
    whole = base[:16].view(4, 4)
    for other in (whole, base[4:20].view(4, 4), base[:16].view(4, 4)):
        before = base.clone()
        with pytest.raises(ValueError, match=r"'y'.*shares memory with argument 0 \('x'\)"):
            run(whole, other)
        assert torch.equal(base, before)
    apart = base[16:32].view(4, 4)
    want = whole + apart
    got = run(whole, apart)  # disjoint views of one tensor
    assert torch.equal(got, want)
    assert got.data_ptr() == apart.data_ptr()
    assert torch.equal(base[16:32].view(4, 4), want)
    assert base[32:].tolist() == list(range(32, 40))


@torch.no_grad()
def test_a_weight_is_not_overwritten_through_an_argument():
    model = nn.Linear(4, 4)
    program = export(model, (torch.randn(4, 4),))
    with pytest.warns(UserWarning, match="no result can use the memory of donated arguments input"):
        run = shlo_disc.torch.compile(program, donated=0)
    with pytest.raises(ValueError, match="shares memory with argument"):
        run(model.weight.detach())


@torch.no_grad()
def test_strided_tensors_stay_and_are_counted():
    run = doubled(donated="x")
    base = torch.arange(24.0).view(4, 6)
    for x in (base.t(), base[:, :4], torch.ones(1, 4).expand(3, 4)):
        if x.shape[1] != 4:
            continue
        before = x.clone()
        assert torch.equal(run(x), before * 2)
        assert torch.equal(x, before)
    assert run(torch.ones(0, 4)).shape == (0, 4)
    assert run.executable.unused_donations == {"x": 4}
    assert "donated, but not overwritten: x in 4 calls" in run.explain()


def test_a_donated_tensor_has_no_gradient():
    run = doubled(donated="x")
    x = torch.ones(2, 4, requires_grad=True)
    with torch.no_grad(), pytest.raises(RuntimeError, match="x is donated and requires a gradient"):
        run(x)
    assert x.tolist() == [[1.0] * 4] * 2


def test_pytorch_tells_when_an_overwritten_tensor_is_needed_again():
    run = doubled(donated="x")
    x, w = torch.ones(2, 4), torch.ones(2, 4, requires_grad=True)
    loss = (x * w).sum()  # backward reads x
    run(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_call_that_is_refused_changes_nothing():
    run = added("x")
    x, w = torch.ones(2, 4), torch.ones(2, 4, requires_grad=True)
    loss = (x * w).sum()
    with pytest.raises(shlo_disc.ShapeMismatchError):
        run(x, torch.ones(3, 4))
    loss.backward()
    assert torch.equal(w.grad, torch.ones(2, 4))


def test_tensors_of_inference_mode_can_be_donated():
    run = doubled(donated="x")
    with torch.inference_mode():
        x = torch.ones(2, 4)
        y = run(x)
        assert y.data_ptr() == x.data_ptr()
        assert y.tolist() == [[2.0] * 4] * 2
        z = run(y)
        assert z.data_ptr() == x.data_ptr()


@torch.no_grad()
def test_an_argument_that_the_module_writes_is_written_in_place():
    class Counting(nn.Module):
        def forward(self, cache, x):
            cache.add_(x)
            return cache * 2, x + 1

    n = Dim("n")
    program = export(Counting(), (torch.zeros(3), torch.ones(3)),
                     dynamic_shapes=({0: n}, {0: n}))  # fmt: skip
    for donated in ("cache", "x", ("cache", "x")):
        run = shlo_disc.torch.compile(program, donated=donated)
        for size in (4, 1, 0, 7):
            cache, x = torch.randn(size), torch.randn(size)
            want = cache + x, x + 1
            doubled_, more = run(cache, x)
            torch.testing.assert_close(cache, want[0])
            torch.testing.assert_close(doubled_, want[0] * 2)
            torch.testing.assert_close(more, want[1])


def test_a_result_in_the_memory_of_a_write_is_copied_first():
    first, second, apart = torch.zeros(3), torch.ones(3), torch.full((3,), 2.0)
    # Result 0 is to be written into `first`, where result 1 lies; result 2 lies where it belongs.
    results = [apart, first.detach(), second.detach()]
    kept, left = apart_from_writes(results, [(0, first), (2, second)])
    for number, where in left:
        where.copy_(kept[number])
    assert [number for number, _ in left] == [0]
    assert [r.tolist() for r in kept] == [[2.0] * 3, [0.0] * 3, [1.0] * 3]
    assert (first.tolist(), second.tolist()) == ([2.0] * 3, [1.0] * 3)


@torch.no_grad()
def test_threads_donate_tensors_of_their_own():
    model, run = decoder()

    @torch.no_grad()
    def decode(seed):
        generator = torch.Generator().manual_seed(seed)
        batch, length = 1 + seed % 3, 3 + seed
        keys = torch.zeros(batch, length, WIDTH)
        values = torch.zeros(batch, length, WIDTH)
        own = keys.clone(), values.clone()
        for place in range(length):
            x = torch.randn(batch, WIDTH, generator=generator)
            index = torch.tensor([place])
            want, *own = model(x, index, *own)
            got, keys, values = run(x, index, keys, values)
            torch.testing.assert_close(got, want)
        torch.testing.assert_close((keys, values), tuple(own))

    at_once(decode, range(8))


@torch.no_grad()
def test_a_program_of_several_parts_overwrites_in_its_last():
    run = of(lambda x, y: (torch.nonzero(x), y + 1), torch.ones(5), torch.ones(5),
             dims=({0: Dim("n")}, {0: Dim("m")}), donated="y")  # fmt: skip
    y = torch.ones(4)
    found, more = run(torch.tensor([0.0, 1.0, 2.0]), y)
    assert found.tolist() == [[1], [2]]
    assert more.tolist() == [2.0] * 4
    assert more.data_ptr() == y.data_ptr()
