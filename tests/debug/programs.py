"""A program with something of everything and a small one, dumped once for all tests here."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

import shlo_disc
from shlo_disc.base import flags
from shlo_disc.debug.arrays import random_arguments
from shlo_disc.debug.stage import stage_files

SIZES = {"b": 5, "t": 3}


def everything(x, w, n, h):
    """x: [b, t] f32, w: [t, t] f32, n: [b] i32, h: [b, t] bf16."""
    y = jnp.tanh(x @ w)

    def step(carry):
        k, rows = carry
        return k + 1, jax.nn.softmax(rows @ w, -1) + rows

    _, z = lax.while_loop(lambda carry: carry[0] < 4, step, (0, y))
    total = jnp.cumsum(z, 0)
    chosen = lax.cond(n.sum() > 3, jnp.abs, jnp.negative, total)
    taken = jnp.sort(x, 0)[n % x.shape[0]]
    updated = lax.dynamic_update_slice(chosen, taken[:1] * 2, (n[0] % 2, 0))
    half = (h * 2 + h.sum(0)).astype(jnp.bfloat16)
    counted = n * x.shape[0] + jnp.cumsum(n)
    return updated, half, counted


def small(x, w):
    """x: [b, t] f32, w: [t, t] f32."""
    return lax.fori_loop(0, 3, lambda k, y: jnp.tanh(y) + x, x) * 2, w + 1


@dataclass(frozen=True)
class Dumped:
    """What one compilation left."""

    folder: Path
    arguments: list[np.ndarray]
    results: list[np.ndarray]

    @property
    def files(self) -> list[Path]:
        return stage_files(self.folder)

    @property
    def names(self) -> list[str]:
        return [path.stem.partition("-")[2] for path in self.files]

    def path(self, name: str) -> Path:
        """The first file of this name."""
        return self.files[self.names.index(name)]


@functools.cache
def dumped(program=everything) -> Dumped:
    """A program of this module; its folder goes with the process."""
    b, t = export.symbolic_shape("b, t")
    f32, i32, bf16 = jnp.float32, jnp.int32, jnp.bfloat16
    shapes = [((b, t), f32), ((t, t), f32), ((b,), i32), ((b, t), bf16)]
    arguments = [jax.ShapeDtypeStruct(*s) for s in shapes]
    count = program.__code__.co_argcount
    exported = export.export(jax.jit(program))(*arguments[:count])
    room = tempfile.TemporaryDirectory()
    _rooms.append(room)
    with flags.overridden(dump=room.name):
        executable = shlo_disc.compile(exported)
    (folder,) = Path(room.name).iterdir()
    arguments = random_arguments(executable, SIZES)
    return Dumped(folder, arguments, executable.run_numpy(arguments))


_rooms: list[tempfile.TemporaryDirectory] = []


def bits(arrays) -> list[bytes]:
    return [array.tobytes() for array in arrays]
