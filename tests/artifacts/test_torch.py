"""Exported programs of PyTorch as artifacts, which need no PyTorch."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("llvmlite")
torch = pytest.importorskip("torch")

import shlo_disc.torch  # noqa: E402
import shlo_disc_runtime  # noqa: E402
from shlo_disc.base.errors import UnsupportedError  # noqa: E402
from tests.torch.models import Of  # noqa: E402
from tests.torch.test_data_sizes import OF_DATA  # noqa: E402

pytestmark = pytest.mark.torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(24, 64)
        self.norm = torch.nn.LayerNorm(64)
        self.second = torch.nn.Linear(64, 5, bias=False)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x):
        h = torch.nn.functional.gelu(self.first(x))
        return self.second(self.norm(h)) * self.scale, h.sum(-1)


BATCH = torch.export.Dim("batch", min=2)


def exported(model, *args):
    shapes = tuple({0: BATCH} for _ in args)
    return torch.export.export(model, args, dynamic_shapes=shapes)


@pytest.mark.parametrize("weights", ["inside", "separate", "arguments"])
def test_a_model_runs_without_pytorch(weights, tmp_path):
    model = Model().eval()
    compiled = shlo_disc.torch.compile(exported(model, torch.randn(4, 24)))
    compiled.save(tmp_path / "m.disc", weights=weights)
    inputs = [torch.randn(n, 24) for n in (2, 3, 17, 64, 301)]
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    np.savez(tmp_path / "x.npz", *[x.numpy() for x in inputs])
    np.savez(tmp_path / "w.npz", **{k: v.detach().numpy() for k, v in tensors.items()})
    script = f"""
import sys
import numpy as np, shlo_disc
loaded = shlo_disc.load({str(tmp_path / "m.disc")!r})
weights, out = np.load({str(tmp_path / "w.npz")!r}), []
for x in np.load({str(tmp_path / "x.npz")!r}).values():
    named = [spec.name for spec in loaded.signature.arguments]
    out += loaded.run_numpy([weights[name] if name in weights else x for name in named])
np.savez({str(tmp_path / "y.npz")!r}, *out)
assert not {{"jax", "torch", "torch_mlir"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    found = [*np.load(tmp_path / "y.npz").values()]
    assert len(found) == 2 * len(inputs)
    with torch.no_grad():
        for number, x in enumerate(inputs):
            for result, want in zip(found[2 * number :], (*compiled(x),), strict=False):
                # Weights that are known are computed with before: rounding differs.
                tolerance = 0 if weights == "arguments" else 1e-5
                np.testing.assert_allclose(result, want.numpy(), rtol=tolerance, atol=tolerance)


def test_halves(tmp_path):
    model = Model().eval().bfloat16()
    compiled = shlo_disc.torch.compile(exported(model, torch.randn(4, 24).bfloat16()))
    compiled.save(tmp_path / "m.disc", ["x86-64-v3"])
    loaded = shlo_disc.load(tmp_path / "m.disc")
    x = torch.randn(7, 24).bfloat16()
    with torch.no_grad():
        want = compiled(x)
    got = loaded.run_numpy([x.view(torch.int16).numpy().view(loaded.signature.arguments[0].dtype)])
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.astype("f4"), b.float().numpy(), atol=0.1, rtol=0.05)


class Random(torch.nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


class Table(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)

    def forward(self, x):
        return self.table(x)


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return x * self.count


class Unique(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.eigvals(x.T @ x).real + 1


REFUSED = {
    "takes random numbers that PyTorch draws": (Random(), torch.randn(4, 3)),
    "compile it with checks=False": (Table(), torch.ones(4, dtype=torch.int64)),
    "writes tensors of the model": (Counter(), torch.randn(4, 3)),
    "has operations that PyTorch runs: .*eig": (Unique(), torch.randn(4, 3)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_a_call_does_beyond_the_program_is_refused(message, tmp_path):
    compiled = shlo_disc.torch.compile(exported(*REFUSED[message]))
    with pytest.raises(UnsupportedError, match=f"cannot be saved: it .*{message}"):
        compiled.save(tmp_path / "m.disc")


def test_a_table_is_saved_without_checks(tmp_path):
    model = Table()
    compiled = shlo_disc.torch.compile(
        exported(model, torch.ones(4, dtype=torch.int64)), checks=False
    )
    compiled.save(tmp_path / "m.disc", ["x86-64-v3"])
    (got,) = shlo_disc.load(tmp_path / "m.disc").run_numpy([np.array([3, 9], np.int64)])
    np.testing.assert_array_equal(got, model(torch.tensor([3, 9])).detach().numpy())


OTHER_LAYOUTS = {"places of a number", "masked columns"}
"""An artifact gives results by rows, PyTorch these otherwise."""


@pytest.mark.parametrize("name", OF_DATA)
def test_sizes_that_come_from_data(name, tmp_path):
    function = OF_DATA[name]

    def make(count, share=0.5):
        torch.manual_seed(count)
        return torch.randn(count, 6), torch.rand(count, 6) < share

    program = torch.export.export(
        Of(function),
        make(4),
        dynamic_shapes=(({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO}),),
    )
    compiled = shlo_disc.torch.compile(program, checks=False)
    if name in OTHER_LAYOUTS:
        with pytest.raises(UnsupportedError, match="gives results in another layout"):
            compiled.save(tmp_path / "m.disc")
        return
    compiled.save(tmp_path / "m.disc", ["x86-64-v3"])
    alone = shlo_disc_runtime.load(tmp_path / "m.disc")
    for given in (make(4), make(3), make(61), make(5, 0.0), make(5, 1.1)):
        want = compiled(*given)
        found = alone(*(tensor.numpy() for tensor in given))
        for ours, theirs in zip(found, want if isinstance(want, tuple) else (want,), strict=True):
            torch.testing.assert_close(torch.from_numpy(ours), theirs, rtol=1e-6, atol=1e-6)


class Rows(torch.nn.Module):
    """Weights in front of the rows that are chosen by data, and behind."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.before, self.behind = torch.nn.Linear(24, 64), torch.nn.Linear(64, 5)

    def forward(self, x):
        x = torch.tanh(self.before(x))
        return self.behind(x[x[:, 0] > 0])


@pytest.mark.parametrize("weights", ["inside", "separate", "arguments"])
def test_weights_before_and_behind_rows_of_data(weights, tmp_path):
    model = Rows().eval()
    compiled = shlo_disc.torch.compile(exported(model, torch.randn(4, 24)))
    compiled.save(tmp_path / "m.disc", ["x86-64-v3"], weights=weights)
    alone = shlo_disc_runtime.load(tmp_path / "m.disc")
    named = {k: v.detach().numpy() for k, v in model.named_parameters()}
    with torch.no_grad():
        for n in (2, 7, 64):
            x = torch.randn(n, 24)
            given = [named.get(spec.name, x.numpy()) for spec in alone.signature.arguments]
            (found,) = alone(*given)
            torch.testing.assert_close(torch.from_numpy(found), compiled(x), rtol=1e-5, atol=1e-5)
