"""Models of PyTorch: ours beside eager, Inductor with and without freezing, and ONNX Runtime.

Every system makes one program for all sizes. Weights are random, widths are those of the published
models. All systems run in this process, in turn, with as many threads as there are cores.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from benchmarks.harness import PEER_SETTLE, Case, Thunk, compare
from benchmarks.torch_needs import has_modules

NEEDED = ("torch", "transformers", "timm", "onnxruntime", "onnxscript")


@dataclass(frozen=True)
class TorchModel:
    """A model, how its argument is made, and the sizes it is measured at."""

    make: Callable[[], Any]
    argument: Callable[..., Any]
    """From sizes to a tensor."""
    dims: tuple[str, ...]
    """Names of the leading dimensions, which are dynamic."""
    sizes: tuple[tuple[int, ...], ...]


def _transformer(model: str, config: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        import transformers
        from torch import nn

        class First(nn.Module):
            """The first result alone, so that all systems compute the same."""

            def __init__(self) -> None:
                super().__init__()
                self.inner = getattr(transformers, model)(getattr(transformers, config)(**options))

            def forward(self, x: Any) -> Any:
                return self.inner(x)[0]

        return First()

    return make


def _whisper_encoder() -> Any:
    import transformers

    config = transformers.WhisperConfig(
        d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536,
        decoder_layers=1, decoder_attention_heads=6, decoder_ffn_dim=1536,
    )  # fmt: skip

    class First(transformers.models.whisper.modeling_whisper.WhisperEncoder):
        def forward(self, x: Any) -> Any:
            return super().forward(x)[0]

    return First(config)


def _resnet() -> Any:
    from tests.torch.torchvision_names import without_torchvision

    with without_torchvision():
        import timm
    return timm.create_model("resnet50")


def _words(batch: int, length: int) -> Any:
    import torch

    return torch.randint(0, 30000, (batch, length))


def _images(batch: int) -> Any:
    import torch

    return torch.randn(batch, 3, 224, 224)


def _sounds(batch: int) -> Any:
    import torch

    return torch.randn(batch, 80, 3000)


TEXT = (1, 16), (1, 128), (3, 57), (8, 128)
BATCHES = (1,), (2,), (3,), (4,)

MODELS = {
    "BERT-base": TorchModel(_transformer("BertModel", "BertConfig"), _words, ("b", "t"), TEXT),
    "GPT-2": TorchModel(
        _transformer("GPT2Model", "GPT2Config", use_cache=False), _words, ("b", "t"), TEXT
    ),
    "ViT-B": TorchModel(_transformer("ViTModel", "ViTConfig"), _images, ("b",), BATCHES),
    "Whisper-tiny encoder": TorchModel(_whisper_encoder, _sounds, ("b",), BATCHES),
    "ResNet50": TorchModel(_resnet, _images, ("b",), BATCHES),
}


def torch_models(console: Console, quick: bool) -> None:
    """BERT-base, GPT-2, ViT-B, the encoder of Whisper-tiny and ResNet50."""
    if not has_modules(console, "torch_models", *NEEDED):
        return
    import torch

    def cases() -> Iterator[Case]:
        for name, model in list(MODELS.items())[: 1 if quick else None]:
            torch.manual_seed(0)
            torch._dynamo.reset()
            with torch.no_grad():
                calls = _systems(model)
                for sizes in model.sizes[: 1 if quick else None]:
                    x = model.argument(*sizes)
                    want = calls["torch"](x)
                    for system, call in calls.items():
                        torch.testing.assert_close(
                            call(x), want, rtol=1e-3, atol=1e-3, msg=lambda m, s=system: f"{s}: {m}"
                        )
                    bound = {system: _bound(call, x) for system, call in calls.items()}
                    title = " x ".join(map(str, sizes))
                    yield Case(f"{name} {title}", bound, settle=PEER_SETTLE)

    compare(console, "torch_models", "models of PyTorch", cases(), seconds=0.5 if quick else 2.0)


def _bound(call: Callable[[Any], Any], x: Any) -> Thunk:
    import torch

    def thunk() -> Any:
        with torch.no_grad():
            return call(x)

    return thunk


def _systems(model: TorchModel) -> dict[str, Callable[[Any], Any]]:
    """Every system's function of the argument, compiled for all sizes."""
    import torch

    import shlo_disc.torch

    module = model.make().eval()
    example = model.argument(*(max(n, 2) for n in model.sizes[-1]))
    dims = dict.fromkeys(range(len(model.dims)), torch.export.Dim.DYNAMIC)
    program = torch.export.export(module, (example,), dynamic_shapes=(dims,))
    ours = shlo_disc.torch.compile(program, freeze=True)
    inductor = torch.compile(copy.deepcopy(module), dynamic=True)
    frozen = torch.compile(copy.deepcopy(module), dynamic=True, options={"freezing": True})
    return {
        "ours": ours,
        "torch": module,
        "torch.compile": inductor,
        "torch.compile, frozen": frozen,
        "ONNX Runtime": _onnxruntime(program),
    }


def _onnxruntime(program: Any) -> Callable[[Any], Any]:
    import onnxruntime
    import torch

    exported = torch.onnx.export(program, dynamo=True, verbose=False)
    data = io.BytesIO()
    exported.save(data)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(data.getvalue(), options)
    (name,) = (x.name for x in session.get_inputs())

    def run(x: Any) -> Any:
        return torch.from_numpy(session.run(None, {name: x.numpy()})[0])

    return run
