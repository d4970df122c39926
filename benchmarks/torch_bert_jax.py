"""BERT-base of transformers through `shlo_disc.torch`, beside the same from JAX through `jit`.

The weights are the same, and so are the results. Both run in this process, with one pool of
threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from rich.console import Console

import shlo_disc
from benchmarks import bert
from benchmarks.harness import SETTLE, Case, compare
from benchmarks.torch_needs import has_modules

SIZES = ((1, 16), (1, 128), (3, 57), (8, 128), (1, 384))

ATTENTION_KERNELS = 12


def torch_bert_jax(console: Console, quick: bool) -> None:
    """Steady state of BERT-base from PyTorch beside its own time from JAX."""
    if not has_modules(console, "torch_bert_jax", "torch", "transformers"):
        return
    import torch

    model = torch_bert()
    ours = compiled(model)
    params = jax_weights(model)
    theirs = shlo_disc.jit(bert.model.bert)

    def cases() -> Iterator[Case]:
        for rows, length in SIZES[: 1 if quick else None]:
            ids, mask = bert.model.batch(rows, length)
            tensors = torch.from_numpy(ids), torch.from_numpy(mask)
            arrays = jax.device_put(ids), jax.device_put(mask)
            np.testing.assert_allclose(
                ours(*tensors).numpy(), np.asarray(theirs(params, *arrays)), rtol=0, atol=1e-4
            )
            calls = {
                "ours": lambda tensors=tensors: ours(*tensors),
                "JAX": lambda arrays=arrays: theirs(params, *arrays),
            }
            yield Case(f"{rows} x {length}", calls, bert.flops(rows, length), bert.weight_bytes(),
                       settle=SETTLE)  # fmt: skip

    with torch.no_grad():
        compare(console, "torch_bert_jax", "BERT-base from PyTorch, beside shlo_disc from JAX",
                cases(), seconds=2 if quick else 8)  # fmt: skip
    found = attention_kernels(ours)
    console.print(
        f"{found} attention kernels from PyTorch (target {ATTENTION_KERNELS}: "
        f"{'met' if found == ATTENTION_KERNELS else 'missed'}); {theirs.cache_info()}"
    )


def torch_bert(layers: int = bert.model.LAYERS) -> Any:
    """BERT-base with random weights; ids and mask int32 [b, t] -> last hidden state [b, t, 768]."""
    import torch
    import transformers
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = transformers.BertConfig(num_hidden_layers=layers)
            self.inner = transformers.BertModel(config, add_pooling_layer=False)

        def forward(self, ids: Any, mask: Any) -> Any:
            return self.inner(input_ids=ids, attention_mask=mask).last_hidden_state

    torch.manual_seed(0)
    return Encoder().eval()


def compiled(model: Any) -> Any:
    """The executable of an export of the model, with frozen weights."""
    import torch

    import shlo_disc.torch

    dims = dict.fromkeys(range(2), torch.export.Dim.DYNAMIC)
    example = tuple(map(torch.from_numpy, bert.model.batch(3, 17)))
    program = torch.export.export(model, example, dynamic_shapes=(dims, dims))
    return shlo_disc.torch.compile(program, freeze=True)


def attention_kernels(program: Any) -> int:
    """The number of kernels of kind `attention` that a program has."""
    return [use.kind for use in program.executable.host.uses].count("attention")


def jax_weights(model: Any) -> bert.model.Params:
    """The weights of :func:`torch_bert` as `examples/bert.py` has them."""
    state = {name.removeprefix("inner."): np.asarray(t) for name, t in model.state_dict().items()}

    def array(name: str) -> jax.Array:
        return jax.device_put(state[name])

    def linear(ours: str, theirs: str) -> dict[str, jax.Array]:
        weight = np.ascontiguousarray(state[f"{theirs}.weight"].T)
        return {ours: jax.device_put(weight), f"{ours}_bias": array(f"{theirs}.bias")}

    def norm(ours: str, theirs: str) -> dict[str, jax.Array]:
        return {f"{ours}_scale": array(f"{theirs}.weight"), f"{ours}_bias": array(f"{theirs}.bias")}

    def layer(number: int) -> dict[str, jax.Array]:
        at = f"encoder.layer.{number}"
        return {
            **linear("query", f"{at}.attention.self.query"),
            **linear("key", f"{at}.attention.self.key"),
            **linear("value", f"{at}.attention.self.value"),
            **linear("out", f"{at}.attention.output.dense"),
            **norm("norm1", f"{at}.attention.output.LayerNorm"),
            **linear("up", f"{at}.intermediate.dense"),
            **linear("down", f"{at}.output.dense"),
            **norm("norm2", f"{at}.output.LayerNorm"),
        }

    # All tokens are of type 0, which the positions take in.
    types = state["embeddings.token_type_embeddings.weight"][0]
    positions = state["embeddings.position_embeddings.weight"] + types
    return {
        "tokens": array("embeddings.word_embeddings.weight"),
        "positions": jax.device_put(positions),
        **norm("norm", "embeddings.LayerNorm"),
        "layers": [layer(number) for number in range(bert.model.LAYERS)],
    }
