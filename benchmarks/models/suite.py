"""Whole models: steady state at several shapes, one compilation of ours for all."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import jax
from rich.console import Console

import shlo_disc
from benchmarks.harness import SETTLE, Case, compare
from benchmarks.models import asr, bert_training, crnn, dien, transformer_training

MODELS: dict[str, ModuleType] = {
    "DIEN": dien,
    "ASR encoder": asr,
    "CRNN": crnn,
    "BERT training, 2 layers": bert_training,
    "Transformer training": transformer_training,
}


def models(console: Console, quick: bool) -> None:
    """Ratios to jax.jit, which compiles every shape."""
    caches: list[str] = []

    def cases() -> Iterator[Case]:
        for name, model in MODELS.items():
            ours, theirs = shlo_disc.jit(model.function), jax.jit(model.function)
            params = model.init()
            for shape in model.SHAPES[: 1 if quick else None]:
                inputs = model.inputs(*shape)
                calls = {
                    "ours": lambda f=ours, p=params, x=inputs: f(p, *x),
                    "jax.jit": lambda f=theirs, p=params, x=inputs: f(p, *x),
                }
                yield Case(f"{name} {' x '.join(map(str, shape))}", calls, settle=SETTLE)
            caches.append(f"{name}: {ours.cache_info()}")

    compare(console, "models", "models", cases(), seconds=1 if quick else 4)
    for line in caches:
        console.print(line)
