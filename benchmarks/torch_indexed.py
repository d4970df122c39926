"""PyTorch programs that look rows up and join them: beside eager mode, with checks and without.

Checks are those of indices out of range (docs/from-torch.md, "Checks"); they may cost 2 %.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import interleaved
from benchmarks.store import write
from benchmarks.torch_needs import has_modules

Case = tuple[str, Any, tuple[Any, ...], Any, list[tuple[Any, ...]]]
"""Name, module, example arguments, dynamic shapes, arguments that are timed."""

_ROWS = 10_000
_TABLES = 26


def _of(function: Callable[..., Any], **parts: Any) -> Any:
    """A module that computes `function(self, *args)`."""
    from torch import nn

    class Of(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *args: Any) -> Any:
            return function(self, *args)

    return Of().eval()


def _bert() -> Case:
    """BERT-base: three embeddings, and twelve layers."""
    import torch
    from torch import nn
    from torch.export import Dim

    layer = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
    model = _of(
        lambda m, words, kinds: m.layers(
            m.norm(m.words(words) + m.kinds(kinds) + m.places.weight[: words.shape[1]])
        ),
        words=nn.Embedding(30522, 768), kinds=nn.Embedding(2, 768), places=nn.Embedding(512, 768),
        norm=nn.LayerNorm(768), layers=nn.TransformerEncoder(layer, 12, enable_nested_tensor=False),
    )  # fmt: skip

    def args(batch: int, length: int) -> tuple[Any, ...]:
        return tuple(torch.randint(0, n, (batch, length)) for n in (30522, 2))

    dims = {0: Dim("batch"), 1: Dim("length", max=512)}
    return "BERT-base", model, args(2, 7), ((dims, dims),), [args(1, 16), args(4, 64)]


def _dlrm() -> Case:
    """Rows of 26 tables, joined with what a small network makes of numbers."""
    import torch
    from torch import nn
    from torch.export import Dim

    def forward(m: Any, x: Any, indices: Any, offsets: Any) -> Any:
        bags = [bag(indices[k], offsets[k]) for k, bag in enumerate(m.bags)]
        return m.top(torch.cat([m.bottom(x), *bags], 1))

    model = _of(
        forward,
        bags=nn.ModuleList(nn.EmbeddingBag(_ROWS, 16, mode="sum") for _ in range(_TABLES)),
        bottom=nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU()),
        top=nn.Sequential(nn.Linear(16 * (_TABLES + 1), 64), nn.ReLU(), nn.Linear(64, 1)),
    )

    def args(batch: int, length: int) -> tuple[Any, ...]:
        offsets = torch.arange(0, batch * length, length)
        indices = torch.randint(0, _ROWS, (_TABLES, batch * length))
        return torch.randn(batch, 13), indices, offsets.repeat(_TABLES, 1)

    batch, count = Dim("batch"), Dim("count")
    dims = (({0: batch}, {1: count}, {1: batch}),)
    return "DLRM", model, args(4, 2), dims, [args(1, 1), args(1, 10), args(16, 10), args(512, 10)]


def _whisper() -> Case:
    """A step of decoding, of the size of Whisper-tiny."""
    import torch
    from torch import nn
    from torch.export import Dim

    layer = nn.TransformerDecoderLayer(384, 6, 1536, activation="gelu", batch_first=True)
    model = _of(
        lambda m, words, place, sound: m.out(
            m.layers(m.words(words) + m.places(place), sound)
        ).argmax(-1),
        words=nn.Embedding(51865, 384), places=nn.Embedding(448, 384),
        layers=nn.TransformerDecoder(layer, 4), out=nn.Linear(384, 51865, bias=False),
    )  # fmt: skip

    def args(length: int) -> tuple[Any, ...]:
        return torch.randint(0, 51865, (1, 1)), torch.tensor([[3]]), torch.randn(1, length, 384)

    dims = ((None, None, {1: Dim("length")}),)
    return "Whisper decoding", model, args(100), dims, [args(1500)]


def _bags(mode: str, width: int) -> Case:
    import torch
    import torch.nn.functional as F
    from torch.export import Dim

    model = _of(lambda _, w, i, o: F.embedding_bag(i, w, o, mode=mode))
    weight = torch.randn(_ROWS, width)

    def args(batch: int, length: int) -> tuple[Any, ...]:
        offsets = torch.arange(0, batch * length, length)
        return weight, torch.randint(0, _ROWS, (batch * length,)), offsets

    dims = ((None, {0: Dim("count", min=0)}, {0: Dim("batch")}),)
    sizes = [(1, 1), (1, 100), (128, 10), (4096, 10)]
    return f"bags, {mode} of {width}", model, args(4, 2), dims, [args(*size) for size in sizes]


def _rows(name: str, function: Callable[..., Any]) -> Case:
    """Rows of a graph's edges, joined at its nodes."""
    import torch
    from torch.export import Dim

    def args(edges: int) -> tuple[Any, ...]:
        return torch.zeros(2000, 64), torch.randint(0, 2000, (edges,)), torch.randn(edges, 64)

    edges = Dim("edges")
    dims = ((None, {0: edges}, {0: edges}),)
    return name, _of(lambda _, *a: function(*a)), args(5), dims, [args(100), args(40_000)]


def cases() -> Iterator[Case]:
    """What is timed."""
    yield _bert()
    yield _dlrm()
    yield _whisper()
    for mode in ("sum", "mean", "max"):
        for width in (16, 128):
            yield _bags(mode, width)
    yield _rows("index_add", lambda z, i, x: z.index_add(0, i, x))
    yield _rows("scatter_add", lambda z, i, x: z.scatter_add(0, i[:, None].expand_as(x), x))
    yield _rows("amax", lambda z, i, x: z.scatter_reduce(0, i[:, None].expand_as(x), x, "amax"))


def torch_indexed(console: Console, quick: bool) -> None:
    """Microseconds of one call with checks, without, and in eager mode."""
    if not has_modules(console, "torch_indexed", "torch"):
        return
    import torch

    import shlo_disc.torch

    rows: list[dict[str, Any]] = []
    for name, model, example, dims, calls in cases():
        torch.manual_seed(0)
        with torch.no_grad():
            program = torch.export.export(model, example, dynamic_shapes=dims)
            systems = {
                "checked": shlo_disc.torch.compile(program),
                "unchecked": shlo_disc.torch.compile(program, checks=False),
                "eager": model,
            }
            for args in calls:
                want = model(*args)
                for system, call in systems.items():
                    torch.testing.assert_close(
                        call(*args), want, rtol=1e-3, atol=1e-3,
                        msg=lambda m, s=system: f"{s}: {m}",
                    )  # fmt: skip
                thunks = {s: functools.partial(call, *args) for s, call in systems.items()}
                seconds = 0.2 if quick else 3
                eager = {s: thunks[s] for s in ("checked", "eager")}
                # Eager mode leaves the caches to others: what runs behind it is slower.
                times = {
                    **interleaved(eager, seconds=seconds, most=3000),
                    **interleaved(
                        {s: thunks[s] for s in ("unchecked", "checked")},
                        seconds=seconds, most=3000,
                    ),
                }  # fmt: skip
                rows.append({
                    "case": name, "shapes": [list(a.shape) for a in args],
                    **{f"{k}_us": v.median * 1e3 for k, v in times.items()},
                    "spread": {k: asdict(v) for k, v in times.items()},
                })  # fmt: skip
    console.print(_table(rows))
    console.print(str(write("torch_indexed", rows)))


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="rows that are looked up and joined, µs a call")
    for column in ("case", "shapes", "checked", "unchecked", "cost", "eager", "eager / ours"):
        table.add_column(column, justify="left" if column in ("case", "shapes") else "right")
    for row in rows:
        checked, unchecked, eager = (row[f"{s}_us"] for s in ("checked", "unchecked", "eager"))
        table.add_row(
            row["case"], " ".join("x".join(map(str, shape)) for shape in row["shapes"]),
            f"{checked:.1f}", f"{unchecked:.1f}", f"{checked / unchecked - 1:+.1%}",
            f"{eager:.1f}", f"{eager / checked:.2f}",
        )  # fmt: skip
    return table
