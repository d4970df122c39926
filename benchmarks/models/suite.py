"""Whole models: steady state at several shapes, one compilation of ours for all, and kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

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
    """Ratios to jax.jit, which compiles every shape, and numbers of kernels."""
    counts: list[str] = []

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
            counts.append(_kernels(name, ours, theirs, (params, *inputs)))

    compare(console, "models", "models", cases(), seconds=1 if quick else 4)
    for line in counts:
        console.print(line)


_WORK = re.compile(
    r" = \S+ (?:fusion|dot|convolution|custom-call|reduce|reduce-window|sort|scatter|gather|"
    r"transpose|copy|concatenate|pad|dynamic-slice|dynamic-update-slice|broadcast|slice)\("
)


def _kernels(name: str, ours: Any, theirs: Any, args: tuple[Any, ...]) -> str:
    """Fusions of ours and instructions of XLA that are a kernel each, those in loops too."""
    text = ours.lower(*args).as_text("disc")
    mine = text.count('"disc.fusion"') - text.count('kind = "host"') - text.count("disc.stored")
    compiled = theirs.lower(*args).compile().as_text()
    # Computations that a fusion or a reduction calls are part of it; loops and the entry are not.
    inner = set(re.findall(r"(?:calls|to_apply)=%?([\w.\-]+)", compiled))
    count = 0
    for block in re.split(r"\n(?=(?:ENTRY )?%?[\w.\-]+ \()", compiled):
        head = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(", block)
        if head and head.group(1) not in inner:
            count += len(_WORK.findall(block))
    ratio = mine / count if count else float("nan")
    return f"{name}: {mine} kernels, XLA {count} ({ratio:.2f}); {ours.cache_info()}"
