"""Steps of training from PyTorch: forward, backward and AdamW, beside eager and Inductor.

Each system has a copy of the model and an optimizer of its own, which is PyTorch's for all of them.
Dropout is off, so that all compute the same; the losses of the first step are compared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from benchmarks.harness import PEER_SETTLE, Case, Thunk, compare
from benchmarks.torch_needs import has_modules


@dataclass(frozen=True)
class Trained:
    """A model whose result is a loss, how its batch is made, and the sizes it is measured at."""

    make: Callable[[], Any]
    batch: Callable[..., tuple[Any, ...]]
    """From sizes to the arguments."""
    sizes: tuple[tuple[int, ...], ...]
    first: tuple[int, ...]
    """Sizes of the step that compiles: none equals another, or a number of channels."""


def _with_loss(
    model: Any, take: Callable[[Any, Any], Any], labels: Callable[[Any, Any], Any]
) -> Any:
    """`model` with the cross entropy of its rows behind it, compiled as one."""
    import torch.nn.functional as F
    from torch import nn

    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any, y: Any) -> Any:
            return F.cross_entropy(take(self.model, x), labels(x, y))

    return WithLoss()


def _bert() -> Any:
    import transformers

    config = transformers.BertConfig(
        num_hidden_layers=2, num_labels=5,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    return _with_loss(model, lambda m, x: m(x).logits, lambda _, y: y)


WORDS = 8000


def _gpt() -> Any:
    import transformers

    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=384, n_layer=4, n_head=6, n_positions=512, use_cache=False,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    return _with_loss(
        model, lambda m, x: m(x).logits[:, :-1].flatten(0, 1), lambda x, _: x[:, 1:].flatten()
    )


def _resnet() -> Any:
    from tests.torch.torchvision_names import without_torchvision

    with without_torchvision():
        import timm
    return _with_loss(
        timm.create_model("resnet18", num_classes=100), lambda m, x: m(x), lambda _, y: y
    )


def _text(classes: int) -> Callable[..., tuple[Any, ...]]:
    def batch(rows: int, length: int) -> tuple[Any, ...]:
        import torch

        return torch.randint(0, WORDS, (rows, length)), torch.randint(0, classes, (rows,))

    return batch


def _images(rows: int, size: int) -> tuple[Any, ...]:
    import torch

    return torch.randn(rows, 3, size, size), torch.randint(0, 100, (rows,))


MODELS = {
    "BERT, 2 layers": Trained(_bert, _text(5), ((2, 32), (4, 64), (8, 57), (8, 128)), (6, 19)),
    "GPT, 4 layers": Trained(_gpt, _text(1), ((2, 32), (4, 64), (8, 57), (8, 128)), (5, 19)),
    "ResNet18": Trained(_resnet, _images, ((2, 64), (4, 96), (8, 128), (2, 224)), (5, 72)),
}


def torch_training(console: Console, quick: bool) -> None:
    """BERT of 2 layers, GPT of 4 layers and ResNet18: a step of training."""
    if not has_modules(console, "torch_training", "torch", "transformers", "timm"):
        return
    import torch

    def cases() -> Iterator[Case]:
        for name, model in list(MODELS.items())[: 1 if quick else None]:
            torch.manual_seed(0)
            torch._dynamo.reset()
            steps, update = _systems(model)
            for sizes in model.sizes[: 1 if quick else None]:
                batch = model.batch(*sizes)
                calls: dict[str, Thunk] = {
                    system: lambda step=step, batch=batch: step(*batch)
                    for system, step in steps.items()
                }
                title = " x ".join(map(str, sizes))
                yield Case(f"{name} {title}", {**calls, "AdamW": update}, settle=PEER_SETTLE)

    compare(console, "torch_training", "steps of training from PyTorch; AdamW is a part of each",
            cases(), seconds=0.5 if quick else 3.0)  # fmt: skip


def _systems(model: Trained) -> tuple[dict[str, Callable[..., Any]], Thunk]:
    """Every system's step, which has been run at the first sizes; the optimizer's step alone."""
    import torch

    module = model.make().train()
    steps, losses, update = {}, {}, None
    batch = model.batch(*model.first)
    for system, options in (
        ("ours", {"backend": "shlo_disc"}),
        ("torch", None),
        ("torch.compile", {"backend": "inductor"}),
    ):
        own = copy.deepcopy(module)
        run = own if options is None else torch.compile(own, dynamic=True, **options)
        optimizer = torch.optim.AdamW(own.parameters(), 1e-4)
        steps[system] = _step(run, optimizer)
        losses[system] = steps[system](*batch)
        update = optimizer.step
    for system, loss in losses.items():
        torch.testing.assert_close(
            loss, losses["torch"], rtol=1e-4, atol=1e-4, msg=lambda m, s=system: f"{s}: {m}"
        )
    assert update is not None
    return steps, update


def _step(run: Any, optimizer: Any) -> Callable[..., Any]:
    def step(*batch: Any) -> Any:
        loss = run(*batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
