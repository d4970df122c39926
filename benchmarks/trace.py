"""200 requests of random shapes to a 2-layer BERT: what waiting for compilation costs in all.

All systems get the same requests, each from nothing: ours, jax.jit (compiles every new shape),
jax.jit on inputs padded to powers of two (compiles every bucket), and the dynamic peers where
`make peers` has been run (their export and compilation are part of the first request).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import shlo_disc
from benchmarks.bert import model
from benchmarks.harness import milliseconds
from benchmarks.peers.client import Peers, available
from benchmarks.store import write


def _bucket(size: int) -> int:
    return 1 << (size - 1).bit_length()


def trace(console: Console, quick: bool) -> None:
    """Seconds for all requests, compilation included."""
    rng = np.random.default_rng(0)
    count = 10 if quick else 200
    shapes = np.exp(rng.uniform(np.log([1, 4]), np.log([9, 129]), (count, 2))).astype(int)
    params = jax.block_until_ready(model.init(layers=2))
    ours, theirs, padded = shlo_disc.jit(model.bert), jax.jit(model.bert), jax.jit(model.bert)

    def in_bucket(ids: np.ndarray, mask: np.ndarray) -> jax.Array:
        b, t = ids.shape
        room = ((0, _bucket(b) - b), (0, _bucket(t) - t))
        return padded(params, np.pad(ids, room), np.pad(mask, room))[:b, :t]

    totals = {"ours": 0.0, "jax.jit": 0.0, "jax.jit, padded": 0.0}
    for number, (b, t) in enumerate(shapes):
        ids, mask = model.batch(int(b), int(t), seed=number)
        calls = (
            lambda ids=ids, mask=mask: ours(params, ids, mask),
            lambda ids=ids, mask=mask: theirs(params, ids, mask),
            lambda ids=ids, mask=mask: in_bucket(ids, mask),
        )
        for name, call in zip(totals, calls, strict=True):
            totals[name] += milliseconds(call) / 1e3
    failed = _peers(totals, shapes, params, ours) if available() else {}
    distinct = len({tuple(map(int, s)) for s in shapes})
    table = Table(title=f"{count} requests, {distinct} different shapes, 2-layer BERT")
    for column in ("system", "seconds", "times ours"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for name, seconds in totals.items():
        table.add_row(name, f"{seconds:.2f}", f"{seconds / totals['ours']:.1f}")
    console.print(table)
    for name, reason in failed.items():
        console.print(f"{name}: {reason}")
    console.print(f"{ours.cache_info()}; {write('trace', [totals], shapes=shapes.tolist())}")


def _peers(
    totals: dict[str, float], shapes: np.ndarray, params: Any, ours: Callable[..., Any]
) -> dict[str, str]:
    """Add the seconds of every peer to `totals`; why those that failed did."""
    failed: dict[str, str] = {}
    for system in ("ONNX Runtime", "torch.compile", "torch.compile, frozen"):
        seconds = 0.0
        try:
            with Peers(from_nothing=True) as peers:
                peers.load("bert", params)
                for number, (b, t) in enumerate(shapes):
                    inputs = model.batch(int(b), int(t), seed=number)
                    expected = np.asarray(ours(params, *inputs))
                    seconds += peers.request(system, inputs, expected) / 1e3
            totals[system] = seconds
        except RuntimeError as error:
            failed[system] = str(error)
    return failed
