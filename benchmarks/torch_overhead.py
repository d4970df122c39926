"""What a call of a PyTorch program costs around the work: one small tensor, and 200 parameters.

Parameters are arguments of the program, read and checked at every call.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import interleaved
from benchmarks.store import write
from benchmarks.torch_needs import has_modules


@dataclass(frozen=True)
class Overhead:
    """A model of next to no work, and the microseconds that a call of it may take."""

    make: Callable[[], Any]
    target_us: float | None = None


def _one() -> Any:
    from torch import nn

    class Double(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    return Double()


def _sum() -> Any:
    """Its 200 parameters are added up: one kernel."""
    import torch
    from torch import nn

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.terms = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(200)])

        def forward(self, x: Any) -> Any:
            for term in self.terms:
                x = x + term
            return x

    return Sum()


def _layers() -> Any:
    """A kernel for each of 100 layers, and 100 weights whose packed copies are looked up."""
    from torch import nn

    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(100)))


CASES = {
    "one tensor": Overhead(_one, 12.0),
    "200 parameters": Overhead(_sum, 40.0),
    "100 linear layers": Overhead(_layers),
}

OURS = "export"


def torch_overhead(console: Console, quick: bool) -> None:
    """Microseconds of one call of a compiled model of PyTorch."""
    if not has_modules(console, "torch_overhead", "torch"):
        return
    import torch

    rows: list[dict[str, Any]] = []
    for name, case in CASES.items():
        torch.manual_seed(0)
        torch._dynamo.reset()
        x = torch.randn(3, 4)
        with torch.no_grad():
            calls = _systems(case.make().eval(), x)
            want = calls["eager"](x)
            thunks = {}
            for system, call in calls.items():
                torch.testing.assert_close(call(x), want, msg=lambda m, s=system: f"{s}: {m}")
                thunks[system] = functools.partial(call, x)
            times = interleaved(thunks, seconds=0.5 if quick else 4, most=2000)
        rows.append({
            "case": name, **{f"{k}_us": v.median * 1e3 for k, v in times.items()},
            "target_us": case.target_us, "spread": {k: asdict(v) for k, v in times.items()},
        })  # fmt: skip
    console.print(_table(rows))
    console.print(str(write("torch_overhead", rows)))


def _systems(model: Any, x: Any) -> dict[str, Callable[[Any], Any]]:
    import torch

    import shlo_disc.torch

    rows = torch.export.Dim("rows")
    program = torch.export.export(model, (x,), dynamic_shapes=({0: rows},))
    return {
        OURS: shlo_disc.torch.compile(program),
        "backend": torch.compile(copy.deepcopy(model), backend="shlo_disc", dynamic=True),
        "eager": model,
        "Inductor": torch.compile(copy.deepcopy(model), dynamic=True),
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="one call of a model of PyTorch, µs; export and backend are ours")
    systems = list(rows[0]["spread"])
    for column in ("call", *systems, "target"):
        table.add_column(column, justify="left" if column == "call" else "right")
    for row in rows:
        target = row["target_us"]
        met = "" if target is None else _verdict(row[f"{OURS}_us"], target)
        table.add_row(row["case"], *(f"{row[f'{s}_us']:.1f}" for s in systems), met)
    return table


def _verdict(micro: float, most: float) -> str:
    return f"{most:.0f} met" if micro <= most else f"[red]{most:.0f} missed[/red]"
