"""Indices, labels and divisors that eager mode refuses raise here, too."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops import scan, while_loop
from torch.export import Dim, export

import shlo_disc.torch
from shlo_disc.torch.checks import check_indices
from tests.torch.models import Of
from tests.torch.test_backend import compiled


def written(x, i):
    x = x.clone()
    x[i] = 2.0
    return x


def divided(x, i):
    return torch.arange(3) // i, torch.arange(3) % i


def of_two(x, i):
    return x[i].sum() + F.embedding(i - 1, x).sum() + x[i, i - 2].sum()


# Of a matrix [5, 3] and three numbers: the first list is legal, eager mode refuses the others.
CASES = {
    "embedding": (lambda x, i: F.embedding(i, x), [0, 4, 1], [0, 5, 1], [0, -1, 1]),
    "bag": (lambda x, i: F.embedding_bag(i[None], x, mode="sum"), [0, 4, 1], [5, 0, 1], [0, 1, -1]),
    "gather": (
        lambda x, i: x.gather(0, i[:, None].expand_as(x[:3])), [0, 4, 1], [0, 5, 1], [0, -1, 1],
    ),
    "words of 32 bits": (
        lambda x, i: F.embedding(i.to(torch.int32), x), [0, 4, 1], [0, 5, 1], [0, -1, 1],
    ),
    "rows": (lambda x, i: x[i] * 2, [0, -5, 4], [0, 5, 1], [0, -6, 1]),
    "columns": (lambda x, i: x[:, i], [0, -3, 2], [0, 3, 1], [0, 1, -4]),
    "written": (written, [0, -5, 4], [0, 5, 1], [0, -6, 1]),
    "several": (of_two, [2, 3, 1], [2, 5, 1], [0, 1, 2]),
    "select": (lambda x, i: x.index_select(1, i), [0, 2, 1], [0, 3, 1], [0, 1, -1]),
    "take": (lambda x, i: x.take(i), [0, -15, 14], [0, 15, 1], [0, -16, 1]),
    "scatter": (
        lambda x, i: x.scatter_add(1, i[None], x[:1]), [0, 2, 1], [0, 3, 1], [0, 1, -1],
    ),
    "added": (lambda x, i: x.index_add(0, i, x[:3]), [0, 4, 1], [0, 5, 1], [0, 1, -1]),
    "filled": (lambda x, i: x.index_fill(0, i, 2.0), [0, 4, -5], [0, 5, 1], [0, 1, -6]),
    "labels": (
        lambda x, i: F.cross_entropy(x[:3], i), [0, 2, -100], [0, 3, 1], [0, 1, -3],
    ),
    "labels of pixels": (
        lambda x, i: F.cross_entropy(x[None, :, :3], i[None], ignore_index=255),
        [0, 4, 255], [0, 5, 1], [0, 1, -100],
    ),
    "one hot": (lambda x, i: F.one_hot(i, 5), [0, 4, 1], [0, 5, 1], [0, 1, -1]),
    "counts": (lambda x, i: torch.bincount(i, minlength=9), [0, 4, 1], [0, 5, -1]),
    "divided": (divided, [1, -1, 2], [1, 0, 2]),
    "repeats": (
        lambda x, i: x[:3].repeat_interleave(i, 0, output_size=4), [2, 0, 2], [2, 1, 2], [3, -1, 2],
    ),
}  # fmt: skip

EXPORTED = ["embedding", "bag", "rows", "several", "labels", "divided"]


def assert_raises_as_eager(run, name):
    function, legal, *others = CASES[name]
    x = torch.randn(5, 3)
    torch.testing.assert_close(run(x, torch.tensor(legal)), function(x, torch.tensor(legal)))
    for numbers in others:
        i = torch.tensor(numbers)
        with pytest.raises((IndexError, RuntimeError)) as eager:
            function(x, i)
        with pytest.raises(type(eager.value)):
            run(x, i)
    torch.testing.assert_close(run(x, torch.tensor(legal)), function(x, torch.tensor(legal)))


@pytest.mark.parametrize("name", CASES)
def test_a_call_raises_what_eager_mode_raises(name):
    with torch.no_grad():
        assert_raises_as_eager(compiled(CASES[name][0]), name)


@pytest.mark.parametrize("name", EXPORTED)
def test_a_call_of_an_exported_program_raises_it(name):
    function, legal, *_ = CASES[name]
    args = torch.randn(5, 3), torch.tensor(legal)
    assert_raises_as_eager(shlo_disc.torch.compile(export(Of(function), args)), name)


def test_training_raises_in_the_forward_and_names_the_line():
    table = torch.nn.Parameter(torch.randn(5, 3))
    fast = compiled(lambda w, i: F.embedding(i, w).sin().sum())
    fast(table, torch.tensor([1, 4, 1])).backward()
    own = torch.autograd.grad(F.embedding(torch.tensor([1, 4, 1]), table).sin().sum(), table)
    torch.testing.assert_close(table.grad, own[0])
    says = r"test_checks\.py:\d+: aten\.embedding\.default: an index is out of range: not from 0 to"
    with pytest.raises(shlo_disc.IndexRangeError, match=says):
        fast(table, torch.tensor([1, 5]))


def in_three_ways(x, i, j, k):
    wide = k[:, None].expand(-1, 3)
    return F.embedding(j, x) + x.index_select(0, i) + x.gather(0, wide)


def of_bags(mode, **given):
    def function(x, i):
        offsets = torch.arange(i.shape[0]) // 3 * 3  # two empty ones, then three rows
        return F.embedding_bag(i, x, offsets, mode=mode, **given)

    return function


def largest(x, i):
    wide = i[:, None].expand(-1, 3)
    return x.scatter_reduce(0, wide, torch.ones(i.shape[0], 3), "amax")


# Of a matrix [n, 3] and any number of indices, with what is legal below 0.
BY_ROWS = {
    "embedding": (lambda x, i: F.embedding(i, x), 0),
    "sums": (of_bags("sum"), 0),
    "means": (of_bags("mean"), 0),
    "padded": (of_bags("sum", padding_idx=1), 0),
    "maxima": (of_bags("max"), 0),
    "rows": (lambda x, i: x[i] + 1, -1),
    "elements": (lambda x, i: x[:, 0][i], -1),
    "pairs": (lambda x, i: x[:, :2].index_select(0, i), 0),
    "gather": (lambda x, i: x.gather(0, i[:, None]), 0),
    "added": (lambda x, i: x.index_add(0, i, torch.ones(i.shape[0], 3)), 0),
    "largest": (largest, 0),
}


@pytest.mark.parametrize("name", BY_ROWS)
def test_one_index_of_many_is_found(name):
    """Where it is first, in the middle or last; by calls of several threads at the same time."""
    function, sign = BY_ROWS[name]
    x = torch.randn(50, 3)
    height = {0: Dim("rows", min=1)} if name != "padded" else None  # PyTorch would fix it
    dims = (height, {0: Dim("n", min=0)})
    program = export(Of(function), (x, torch.arange(9)), dynamic_shapes=(dims,))
    exe = shlo_disc.torch.compile(program)
    assert "it tells whether indices are in range" in exe.explain()
    assert exe(x, torch.arange(0)).shape == function(x, torch.arange(0)).shape

    def of(n, rows, wrong=None, at=0):
        i = torch.randint(0, rows, (n,))
        i[1:2] *= 1 if sign == 0 else -1
        if wrong is not None:
            i[at] = wrong
            with pytest.raises(shlo_disc.IndexRangeError):
                exe(x[:rows], i)
        else:
            torch.testing.assert_close(exe(x[:rows], i), function(x[:rows], i))

    for n, rows in ((1, 1) if height else (1, 50), (13, 50), (1300, 50)):
        of(n, rows)
        for at, wrong in ((0, rows), (n // 2, sign * rows - 1), (n - 1, 2**62), (n - 1, -(2**63))):
            of(n, rows, wrong, at)
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(of, 1300, 50, (None, 50)[k % 2], k) for k in range(40)]
    for call in calls:
        call.result()


OF_PARTS = {
    "rows": (lambda x, i: in_three_ways(x, i[0], i[-2], i[2]), 0),
    "columns": (lambda x, i: in_three_ways(x, *i.unbind(1)), 1),
    "some": (lambda x, i: x.index_select(0, i[0]) + F.embedding(i[1], x), 0),
}


@pytest.mark.parametrize("name", OF_PARTS)
def test_the_op_of_a_part_of_a_tensor_is_named(name):
    function, axis = OF_PARTS[name]
    x, dims = torch.randn(5, 3), (None, {1 - axis: Dim("n")})
    shape = (3, 4) if axis == 0 else (4, 3)
    exe = shlo_disc.torch.compile(
        export(Of(function), (x, torch.zeros(shape, dtype=torch.int64)), dynamic_shapes=(dims,))
    )
    for n in (1, 2, 67):
        i = torch.randint(0, 5, (3, n) if axis == 0 else (n, 3))
        torch.testing.assert_close(exe(x, i), function(x, i))
        for part, op in enumerate(("index_select", "embedding", "gather")):
            wrong = i.clone()
            wrong.select(axis, part)[-1] = (5, -1, 2**62)[part]
            if name == "some" and op == "gather":
                torch.testing.assert_close(exe(x, wrong), function(x, wrong))
            else:
                with pytest.raises(shlo_disc.IndexRangeError, match=rf"aten\.{op}\."):
                    exe(x, wrong)
    assert exe(x, i[:, :0] if axis == 0 else i[:0]).shape == (0, 3)


def test_an_expanded_index_is_read_as_it_was():
    def function(x, i):
        wide = i[:, None]
        ways = wide.expand_as(x), wide.expand(-1, 3), wide.broadcast_to(x.shape)
        return [x.gather(0, way) for way in ways]

    n = Dim("n")
    program = export(Of(function), (torch.randn(4, 3), torch.arange(4)),
                     dynamic_shapes=(({0: n}, {0: n}),))  # fmt: skip
    module = torch.fx.GraphModule(program.graph_module, copy.deepcopy(program.graph))
    check_indices(module.graph)
    read = [n.args[0] for n in module.graph.nodes if n.target is torch.ops.aten.any.default]
    assert [node.meta["val"].dim() for node in read] == [1]


def branch(p, x, i):
    def positive(x, i):
        return F.embedding(i, x) + x.index_select(0, i + 1)

    y = torch.cond(p.sum() > 0, positive, lambda x, i: x.index_select(0, i) * 2, (x, i))
    return y + x[i - 1]


def nested(p, x, i):
    def positive(x, i):
        return torch.cond(i.sum() > 9, lambda x, i: x.index_select(0, i), of_two_steps, (x, i))

    return torch.cond(p.sum() > 0, positive, lambda x, i: x[: i.shape[0]] * 2, (x, i))


def of_two_steps(x, i):
    start = (i * 0).sum(), x, i
    step = lambda k, x, i: (k + 1, x + x[i].sum(), i + 1)  # noqa: E731
    return while_loop(lambda k, x, i: k < 2, step, start)[1][: i.shape[0]]


def in_steps(p, x, i):
    def step(total, k):
        row = x.index_select(0, k[None])[0]
        return total + row, row * total

    return scan(step, p, i)


@pytest.mark.parametrize("function", [branch, nested, in_steps])
def test_branches_and_loops_raise_for_what_they_run(function):
    x, dims = torch.randn(5, 3), (None, None, {0: Dim("n", min=2, max=5)})
    example = torch.ones(3), x, torch.tensor([0, 1, 2])
    program = export(Of(function), example, dynamic_shapes=(dims,))
    run = compiled(function) if function is in_steps else shlo_disc.torch.compile(program)
    raised = 0
    for sign in (1, -1):
        for numbers in ([0, 1, 2], [3, 4], [0, 3, 2, 3], [0, 5], [4, 0], [-1, 2], [-5, 0, 0]):
            args = torch.full([3], float(sign)), x, torch.tensor(numbers)
            try:
                want = function(*args)
            except (IndexError, RuntimeError) as error:
                raised += 1
                with pytest.raises(type(error)):
                    run(*args)
            else:
                torch.testing.assert_close(run(*args), want)
    assert 2 < raised < 12


@pytest.mark.parametrize("checks", [True, False])
def test_checks_are_an_option_and_places_that_ops_find_have_none(checks):
    def found(x):
        order = x.argsort(1)
        places = torch.arange(x.shape[0])
        return x.gather(1, order), x[places], x.gather(1, x.topk(2, 1)[1])

    def given(x, i):
        return x[i], x.gather(0, i[:, None].expand(-1, 3))

    x, i = torch.randn(5, 3), torch.tensor([0, 4, 7])
    program = export(Of(found), (x,), dynamic_shapes=(({0: Dim("b")},),))
    exe = shlo_disc.torch.compile(program, checks=checks)
    assert len(exe.executable.signature.results) == 3
    torch.testing.assert_close(exe(x), found(x))
    exe = shlo_disc.torch.compile(export(Of(given), (x, i[:2])), checks=checks)
    assert len(exe.executable.signature.results) == 2 + checks
    with torch.no_grad():
        fast = compiled(given, checks=checks)
        if checks:
            with pytest.raises(shlo_disc.IndexRangeError):
                fast(x, i)
        else:
            torch.testing.assert_close(fast(x, i)[0], x[[0, 4, 4]])
    with pytest.raises(TypeError, match="checks must be True or False"):
        shlo_disc.torch.compile(program, checks="no")


MAXIMA = {
    "amax": lambda x: x.amax(1), "max": lambda x: x.max(), "min of rows": lambda x: x.min(1)[0],
    "argmax": lambda x: x.argmax(), "argmin": lambda x: x.argmin(1, keepdim=True),
}  # fmt: skip


@pytest.mark.parametrize("name", MAXIMA)
def test_there_is_no_largest_of_no_elements(name):
    program = export(
        Of(MAXIMA[name]), (torch.randn(3, 4),), dynamic_shapes=(({0: Dim("b"), 1: Dim("n")},),)
    )
    exe = shlo_disc.torch.compile(program)
    for shape in ((3, 4), (0, 5), (1, 1), (2, 0)):
        x = torch.randn(shape)
        try:
            want = MAXIMA[name](x)
        except (IndexError, RuntimeError):
            with pytest.raises(shlo_disc.ShapeMismatchError):
                exe(x)
        else:
            torch.testing.assert_close(exe(x), want)


@pytest.mark.parametrize("running", [torch.cumsum, torch.cumprod])
@pytest.mark.parametrize("dim", [0, 1])
def test_running_totals_are_as_exact_as_those_of_eager_mode(running, dim):
    function = lambda x: running(x, dim)  # noqa: E731
    dims = ({dim: Dim("n")},)

    def make(n):
        x = torch.rand((n, 3) if dim == 0 else (3, n))
        return x if running is torch.cumsum else 1 + 1e-4 * x

    exe = shlo_disc.torch.compile(export(Of(function), (make(7),), dynamic_shapes=(dims,)))
    for n in (0, 1, 509, 200_003):
        x = make(n)
        true = function(x.double())
        own, eager = ((y.double() - true).abs() / true for y in (exe(x), function(x)))
        assert (own <= 1e-7).all()
        assert (own <= eager + 1e-8).all()
