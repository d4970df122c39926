"""Graphs on disk: an equal graph of a later process is found without being lowered."""

from __future__ import annotations

import gc
import importlib
import math
import operator
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

from shlo_disc import cache
from shlo_disc.base.errors import CacheMismatchError, IndexRangeError
from shlo_disc.driver import graphs, kept
from shlo_disc.store.entries import current
from shlo_disc.store.format import packed
from shlo_disc.torch import keys, program
from shlo_disc.torch.dynamo import CompiledGraph, compilations
from tests.children import python


@pytest.fixture(autouse=True)
def entries_at_once(monkeypatch, own_store):
    """Entries are there at once, in a store of the test's own."""
    for module in (graphs, kept):
        monkeypatch.setattr(module, "do_later", lambda job: job())


@pytest.fixture
def lowered(monkeypatch):
    """The graphs that were lowered."""
    found = []
    own = program._lowered
    monkeypatch.setattr(program, "_lowered", lambda begun: found.append(begun) or own(begun))
    return found


def forget():
    """Begin as another process does: programs are named by their numbers."""
    torch._dynamo.reset()
    gc.collect()
    torch.manual_seed(0)
    CompiledGraph._count = 0


def run(f, *args):
    """The results of `f`, compiled as if by another process."""
    forget()
    return torch.compile(f, backend="shlo_disc", dynamic=True)(*args)


def counts():
    return {k: n for k, n in cache.stats().items() if k.startswith("graphs_")}


def counted(f, *args):
    before = counts()
    found = run(f, *args)
    return found, {k: n - before[k] for k, n in counts().items() if n > before[k]}


def step(model, x):
    """A training step: the results and all gradients."""
    found = model(x)
    found.square().mean().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return [found.detach(), *grads]


class Net(nn.Module):
    """A table of rows, a dropout, and a tensor in the graph."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(7, 8)

    def forward(self, i):
        return F.dropout(self.rows(i), 0.25) * torch.tensor([0.5, 2.0]).sum()


def test_an_equal_graph_is_not_lowered(lowered):
    model, i = Net(), torch.arange(12).reshape(3, 4) % 7
    with torch.no_grad():
        wanted = run(model, i)
        found, told = counted(model, i)
    assert torch.equal(found, wanted)  # the same numbers, from the same state of the generator
    assert told == {"graphs_loaded": 1}
    assert len(lowered) == 1
    with torch.no_grad(), pytest.raises(IndexRangeError):
        run(model, i + 1)


def test_gradients_come_from_kept_graphs(lowered):
    model, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh()), torch.randn(4, 6)
    fast = []
    for _ in range(2):
        forget()
        fast.append(step(torch.compile(model, backend="shlo_disc", dynamic=True), x))
    assert len(lowered) == 2
    for one, other, wanted in zip(*fast, step(model, x), strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, wanted)
    assert len(compilations()) == 2
    assert compilations()[0].parts[0].executable.was_loaded


def test_a_kept_graph_runs_at_other_sizes(lowered):
    def f(x, y):
        return F.softmax(x @ y, -1), x.shape[0] * 2

    counts_ = []
    for _ in range(2):
        forget()
        fast = torch.compile(f, backend="shlo_disc", dynamic=True)
        for n in (5, 0, 9):
            x, y = torch.randn(n, 4), torch.randn(4, 7)
            found, wanted = fast(x, y), f(x, y)
            torch.testing.assert_close(found[0], wanted[0])
            assert found[1] == wanted[1]
        counts_.append(len(lowered))
    assert counts_[0] == counts_[1]


X = torch.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    ("one", "other", "args"),
    [
        (lambda x: x * 2.0, lambda x: x * -2.0, (X, X)),
        (lambda x: x.sum(0), lambda x: x.sum(1), (X, X)),
        (lambda x: x.sin(), lambda x: x.cos(), (X, X)),
        (lambda x: x + 1, lambda x: x + 1, (X, X.double())),
        (lambda x: x + 1, lambda x: x + 1, (X, X.t())),
        (lambda x: x.new_zeros(2), lambda x: x.new_zeros(3), (X, X)),
        (lambda x: x * torch.tensor(2.0), lambda x: x * torch.tensor(3.0), (X, X)),
        (lambda x: (x, x + 1), lambda x: (x + 1, x), (X, X)),
    ],
    ids=["number", "axis", "op", "dtype", "strides", "size", "held", "results"],
)
def test_another_graph_is_another_entry(one, other, args):
    for f, x in zip((one, other), args, strict=True):
        found = run(f, x)
        torch.testing.assert_close(found, f(x))


def test_settings_of_pytorch_are_in_the_key(lowered):
    def f(x):
        return x / 3 + torch.scalar_tensor(0.1)

    i = torch.arange(6).reshape(2, 3)
    try:
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            assert run(f, i).dtype == dtype
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(lowered) == 2


@torch.library.custom_op("shlo_disc_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def test_operations_of_others_have_no_key():
    graph = torch.fx.Graph()
    graph.call_function(torch.ops.shlo_disc_tests.twice.default, (graph.placeholder("x"),))
    module = torch.fx.GraphModule(nn.Module(), graph)
    with pytest.raises(keys.UnnamedError, match="no operation of PyTorch's own"):
        keys.named_graph(module, ["", ""])


@pytest.mark.parametrize(
    ("target", "said"),
    [(lambda x: x, "calls <lambda>"), (sys.getsizeof, "calls getsizeof")],
)
def test_functions_of_others_have_no_key(target, said):
    graph = torch.fx.Graph()
    graph.call_function(target, (graph.placeholder("x"),))
    with pytest.raises(keys.UnnamedError, match=said):
        keys.named_graph(torch.fx.GraphModule(nn.Module(), graph), ["", ""])


@pytest.mark.parametrize("value", [object(), {1}, range(3), torch.ones(2)])
def test_values_of_no_plain_kind_have_no_key(value):
    graph = torch.fx.Graph()
    node = graph.call_function(operator.add, (graph.placeholder("x"), 1))
    node.meta["val"] = value
    with pytest.raises(keys.UnnamedError, match="in its graph"):
        keys.named_graph(torch.fx.GraphModule(nn.Module(), graph), ["", ""])


def test_what_is_not_kept_is_told():
    def f(x):
        return x * math.trunc(x.shape[0] * 0.3 + 1.9)

    for _ in range(2):
        found, told = counted(f, X)
        torch.testing.assert_close(found, f(X))
        assert told["graphs_not_kept"] == 1
    (graph,) = compilations()
    said = "every process lowers it: it computes numbers from sizes"
    assert said in graph.parts[0].executable.explain()


def files(kind):
    return [entry.path for entry in current().entries() if entry.kind == kind]


def truncated(path):
    return path.read_bytes()[:-5]


def flipped(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    return bytes(data)


def foreign(path):
    return packed(bytes(32), b"something")


def senseless(path):
    return packed(bytes.fromhex(path.name), b"something")


@pytest.mark.parametrize("damage", [truncated, flipped, foreign, senseless])
def test_a_damaged_entry_is_none(damage, lowered):
    def f(x):
        return torch.tanh(x) * 3

    for number in range(2):
        found, told = counted(f, X)
        torch.testing.assert_close(found, f(X))
        assert told.get("graphs_loaded", 0) == 0
        assert len(lowered) == number + 1
        (path,) = files("graphs")
        path.write_bytes(damage(path))


def test_a_graph_without_its_program_is_lowered(lowered):
    def f(x):
        return torch.tanh(x) * 3

    wanted = run(f, X)
    for path in [*files("programs"), *files("sizes")]:
        path.unlink()
    found, told = counted(f, X)
    assert torch.equal(found, wanted)
    assert told["graphs_loaded"] == 1
    assert len(lowered) == 2


def test_verify_compares_what_a_graph_becomes(monkeypatch):
    def f(x):
        return torch.tanh(x) * 3

    run(f, X)
    monkeypatch.setenv("SHLO_DISC_CACHE", "verify")
    run(f, X)
    (path,) = files("graphs")
    run(lambda x: torch.tanh(x) * 4, X)
    (other,) = {*files("graphs")} - {path}
    store, key = current("graphs"), bytes.fromhex(path.name)
    store.write(key, current("graphs").read(bytes.fromhex(other.name)))
    forget()
    fast = torch.compile(f, backend="shlo_disc", dynamic=True)  # PyTorch does not run it instead
    with pytest.raises(BackendCompilerFailed, match="another module") as caught:
        fast(X)
    assert isinstance(caught.value.inner_exception, CacheMismatchError)


def test_messages_name_the_lines_of_today(tmp_path, monkeypatch, lowered):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    body = "import torch\n\ndef f(w, i):\n    return torch.tanh(w[i]) * 3\n"
    for number, lines in enumerate((0, 4)):
        (tmp_path / "moved.py").write_text("\n" * lines + body)
        import linecache

        linecache.checkcache()
        sys.modules.pop("moved", None)
        moved = importlib.import_module("moved")
        w, i = torch.randn(5, 4), torch.tensor([1, 3])
        torch.testing.assert_close(run(moved.f, w, i), moved.f(w, i))
        told = compilations()[0].parts[0].executable.explain()
        assert f"moved.py:{4 + lines}" in told
        assert f"moved.py:{4 + 4 - lines}" not in told
        with pytest.raises(IndexRangeError, match=f"moved.py:{4 + lines}"):
            run(moved.f, w, torch.tensor([1, 5]))
        assert len(lowered) == 1, number


CHILD = """
import torch, shlo_disc.torch
from shlo_disc import cache
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.LayerNorm(5))
fast = torch.compile(model, backend="shlo_disc", dynamic=True)
fast(torch.randn(4, 6)).square().mean().backward()
print(cache.stats()["graphs_loaded"], cache.stats()["programs_loaded"])
"""


@pytest.mark.slow
def test_another_process_finds_the_graphs():
    """Hash seeds, addresses and the order of sets are in no key."""
    for seed, wanted in (("1", "0 0"), ("2", "2 2")):
        assert python(CHILD, PYTHONHASHSEED=seed).strip().splitlines()[-1] == wanted
