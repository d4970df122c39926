"""From a model of PyTorch and an example to the first result, with nothing compiled before.

Every attempt is a process of its own. No cache of Inductor's is read; we have none. Imports that a
system makes when it is first asked are counted; those of PyTorch are not.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.store import write
from benchmarks.torch_models import MODELS, TorchModel
from benchmarks.torch_needs import has_modules


def _perceptron() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))


def _rows(count: int) -> Any:
    import torch

    return torch.randn(count, 64)


CASES = {
    "perceptron": TorchModel(_perceptron, _rows, ("b",), ()),
    **{name: MODELS[name] for name in ("BERT-base", "GPT-2", "ResNet50")},
}

TARGET = 0.5
"""Of Inductor's time, at most."""


def torch_first_call(console: Console, quick: bool) -> None:
    """Seconds to the first result, and those of them that are spent in the compiler alone."""
    if not has_modules(console, "torch_first_call", "torch", "transformers", "timm"):
        return
    rows = []
    for name in list(CASES)[: 1 if quick else None]:
        found: dict[str, list[dict[str, float]]] = {system: [] for system in SYSTEMS}
        for _ in range(1 if quick else 3):
            for system in SYSTEMS:  # in turns: the machine's mood changes
                found[system].append(_in_a_process(name, system))
        row = {system: _medians(attempts) for system, attempts in found.items()}
        rows.append({"case": name, "seconds": row, "target": TARGET})
    console.print(_table(rows))
    console.print(str(write("torch_first_call", rows)))


def _medians(attempts: list[dict[str, float]]) -> dict[str, float]:
    """Of every step; the sum is a median of its own."""
    return {step: statistics.median(a[step] for a in attempts) for step in attempts[0]}


def _in_a_process(name: str, system: str) -> dict[str, float]:
    program = f"from benchmarks.torch_first_call import first; first({name!r}, {system!r})"
    command = [sys.executable, "-c", program]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[1],
            env={**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
                 "TORCHINDUCTOR_CACHE_DIR": folder},
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{name}, {system}: {done.stderr}")
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def first(name: str, system: str) -> None:
    """Compile once in this process, which has compiled nothing yet; print the seconds as JSON."""
    import torch

    torch.manual_seed(0)
    model = CASES[name]
    module = model.make().eval()
    x = model.argument(*(2, 17)[: len(model.dims)])
    with torch.no_grad():
        start = time.perf_counter()
        result, compiler = SYSTEMS[system](module, x, len(model.dims))
        whole = time.perf_counter() - start
        torch.testing.assert_close(result, module(x), rtol=1e-3, atol=1e-3)
    print(json.dumps({"whole": whole, "compiler": compiler, "PyTorch": whole - compiler}))


def _export(module: Any, x: Any, dims: int) -> tuple[Any, float]:
    import torch

    dynamic = dict.fromkeys(range(dims), torch.export.Dim.DYNAMIC)
    program = torch.export.export(module, (x,), dynamic_shapes=(dynamic,))
    start = time.perf_counter()
    import shlo_disc.torch

    result = shlo_disc.torch.compile(program)(x)
    return result, time.perf_counter() - start


def _backend(module: Any, x: Any, dims: int) -> tuple[Any, float]:
    return _compiled(module, x, "shlo_disc")


def _inductor(module: Any, x: Any, dims: int) -> tuple[Any, float]:
    return _compiled(module, x, "inductor")


def _compiled(module: Any, x: Any, backend: str) -> tuple[Any, float]:
    """The result, and the seconds in the backend's compiler of a functional graph."""
    import torch
    from torch._dynamo import utils

    result = torch.compile(module, backend=backend, dynamic=True)(x)
    metrics = utils.compilation_time_metrics
    if backend == "inductor":
        return result, sum(metrics["compile_fx_inner"])
    import shlo_disc.torch

    return result, sum(graph.seconds for graph in shlo_disc.torch.compilations())


SYSTEMS: dict[str, Callable[[Any, Any, int], tuple[Any, float]]] = {
    "export": _export,
    "backend": _backend,
    "Inductor": _inductor,
}
"""How each gets from a model, an example and the number of dynamic dimensions to a result."""


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="seconds to the first result (in the compiler alone); export and backend are ours"
    )
    for column in ("model", *SYSTEMS, "backend / Inductor", "target"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        seconds = row["seconds"]
        ratio = seconds["backend"]["whole"] / seconds["Inductor"]["whole"]
        met = f"{TARGET} met" if ratio <= TARGET else f"[red]{TARGET} missed[/red]"
        cells = (f"{s['whole']:.1f} ({s['compiler']:.1f})" for s in map(seconds.get, SYSTEMS))
        table.add_row(row["case"], *cells, f"{ratio:.2f}", met)
    return table
