"""How many kernels a whole model becomes, beside how many XLA makes of it at one shape."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

import shlo_disc
from benchmarks.bert import model as bert
from benchmarks.models.suite import MODELS
from benchmarks.store import write

MOST = {
    "BERT": 0.28,
    "DIEN": 0.32,
    "ASR encoder": 0.43,
    "CRNN": 0.28,
    "BERT training, 2 layers": 0.49,
    "Transformer training": 0.72,
}
"""Kernels of ours for one of XLA's, at most: the targets of issue 3."""

_WORK = re.compile(
    r" = \S+ (?:fusion|dot|convolution|custom-call|reduce|reduce-window|sort|scatter|gather|"
    r"transpose|copy|concatenate|pad|dynamic-slice|dynamic-update-slice|broadcast|slice)\("
)


def kernel_counts(console: Console, quick: bool) -> None:
    """Fusions of ours and instructions of XLA that are a kernel each, those in loops too."""
    programs: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "BERT": (bert.bert, (bert.init(), *bert.batch(1, 128)))
    }
    for name, model in list(MODELS.items())[: 1 if quick else None]:
        programs[name] = (model.function, (model.init(), *model.inputs(*model.SHAPES[-1])))
    table = Table(title="kernels of a whole model")
    for column in ("model", "ours", "XLA", "ours / XLA", "target"):
        table.add_column(column, justify="left" if column == "model" else "right")
    rows = []
    for name, (function, args) in programs.items():
        ours = _ours(function, args)
        theirs = _of_xla(function, args)
        ratio, most = ours / theirs, MOST[name]
        rows.append({"model": name, "ours": ours, "xla": theirs, "ratio": ratio, "target": most})
        table.add_row(name, str(ours), str(theirs), f"{ratio:.2f}",
                      f"{most} {'met' if ratio <= most else 'missed'}")  # fmt: skip
    console.print(table)
    console.print(str(write("kernel_counts", rows)))


def _ours(function: Callable[..., Any], args: tuple[Any, ...]) -> int:
    text = shlo_disc.jit(function).lower(*args).as_text("disc")
    return text.count('"disc.fusion"') - text.count('kind = "host"') - text.count("disc.stored")


def _of_xla(function: Callable[..., Any], args: tuple[Any, ...]) -> int:
    compiled = jax.jit(function).lower(*args).compile().as_text()
    # Computations that a fusion or a reduction calls are part of it; loops and the entry are not.
    inner = set(re.findall(r"(?:calls|to_apply)=%?([\w.\-]+)", compiled))
    count = 0
    for block in re.split(r"\n(?=(?:ENTRY )?%?[\w.\-]+ \()", compiled):
        head = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(", block)
        if head and head.group(1) not in inner:
            count += len(_WORK.findall(block))
    return count
