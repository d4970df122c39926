"""Register tiles and cache blocks for a target.

The register tile holds `rows` x `vectors` accumulators; a step along K loads `vectors` registers
of B and broadcasts `rows` elements of A. Two FMA units of latency 4 want 8 or more independent
accumulators, and loads must not outnumber FMAs.
"""

from __future__ import annotations

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.ir.element_types import ElementType
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.schedule.contraction import Problem


@dataclass(frozen=True)
class Tile:
    """Accumulators in registers."""

    rows: int
    vectors: int
    lanes: int
    least: int = 1
    """Rows of the smallest height."""

    @property
    def columns(self) -> int:
        """Elements along N."""
        return self.vectors * self.lanes

    @property
    def heights(self) -> list[int]:
        """Row counts there is code for, largest first; a remainder runs on the next larger one."""
        return sorted({self.rows, (self.rows + 1) // 2, self.least}, reverse=True)


# By vector registers: 32 (AVX-512, AArch64) or 16. Measured on a Sapphire-Rapids-like core at f32
# 1008 x 768 x 768: 8x3 97 %, 6x4 95 %, 14x2 94 % of peak.
_TILES_32 = {4: 6, 3: 8, 2: 12, 1: 12}
_TILES_16 = {2: 6, 1: 6}

M_BLOCK = 128
"""Rows of a task, about: A's block (128 x 1024 x 4 bytes) takes a quarter of L2. Double gains
nothing measurable and halves the number of tasks."""

K_BLOCK_BYTES = 384 * 4
"""Bytes of a row of A, of a column of B, worked on at once. With 256 floats 4 % are lost, with 2048
nothing until A and B leave L2. Every block is a sum of its own: 1024 double BERT's error against
384."""

MATRIX_ROWS = 16
"""Rows of a tile of AMX, and words in one; a product has two by two (`matrix_tiles.py`)."""

MATRIX_ROOM = (8 + 4) * MATRIX_ROWS * MATRIX_ROWS * 4
"""Bytes of scratch memory for them: all eight, then those of C for a block of K."""

MATRIX_K_BLOCK = 1024
"""Words of a row of A in a block. A's block then takes a quarter of L2, or half a MiB. With 192 to
256 words 5 to 20 % are lost: sums leave L1 (a core of a Sapphire Rapids). Rounding errors grow with
a sixteenth of it."""

N_BLOCK = 384
"""Columns of a task, about, in elements of 4 bytes."""

WHOLE_MASKS = 64
"""Bytes of vectors whose masks are in registers of their own."""

TASKS_PER_CORE = 4
"""Tasks to aim for where M is too small to give enough."""


def choose_tile(n: Expr, compute: ElementType, machine: Machine) -> Tile:
    """The tile that wastes the fewest columns of `n`; of equals the faster (see `_TILES_32`)."""
    lanes = machine.lanes(compute.bytes)
    table = _TILES_32 if machine.vector_registers == 32 else _TILES_16
    if not n.is_const:
        vectors = max(table)
    else:
        widths = sorted(table, key=lambda v: (v != 3, -v))
        vectors = min(widths, key=lambda v: ceil_div(n.value, v * lanes) * v * _penalty(v))
    return Tile(table[vectors], vectors, lanes)


def matrix_tile(machine: Machine) -> Tile:
    """Two by two tiles of AMX: sums of 32 rows and columns."""
    lanes = machine.lanes(4)
    return Tile(2 * MATRIX_ROWS, 2 * MATRIX_ROWS // lanes, lanes, least=MATRIX_ROWS)


def _penalty(vectors: int) -> float:
    """Time of a column relative to the best tile's."""
    return {1: 1.3, 2: 1.06}.get(vectors, 1.0)


@dataclass(frozen=True)
class Blocks:
    """Sizes of a task, in elements; all at least 1."""

    m: Expr
    n: Expr
    k: Expr
    m_count: Expr
    n_count: Expr
    k_count: Expr


def at_least_one(size: Expr) -> Expr:
    """`size`, or 1 where it is 0."""
    return Expr.max(size, 1)


def blocks(
    p: Problem, tile: Tile, cores: int, k: Expr, run: Expr, depth: int | None = None
) -> Blocks:
    """How a problem of `k` steps along K is cut into tasks.

    M and K are cut evenly (no small last block), K into whole multiples of `run`, about `depth`
    steps each. Columns are given to a task by panels: up to `N_BLOCK`, fewer when there would be
    less than `TASKS_PER_CORE` tasks for every core. Of several bands a task has the same columns of
    all.
    """
    m, n, item = p.rows, p.columns, p.compute.bytes
    rows = max(1, M_BLOCK // tile.rows) * tile.rows
    m_count = at_least_one(ceil_div(m, rows))
    m_block = at_least_one(ceil_div(ceil_div(m, m_count), tile.rows)) * tile.rows
    m_count = at_least_one(ceil_div(m, m_block))
    depth = depth or K_BLOCK_BYTES // item
    # Up to half more than the limit in one go: a second pass over C costs more.
    k_count = at_least_one(ceil_div(Expr.max(k - depth // 2, 0), depth))
    k_block = at_least_one(ceil_div(ceil_div(k, at_least_one(run)), k_count)) * at_least_one(run)
    k_count = at_least_one(ceil_div(k, k_block))
    panels = at_least_one(ceil_div(n, tile.columns))
    most = max(1, N_BLOCK * 4 // item // tile.columns // p.bands)
    share = (panels * m_count * at_least_one(p.batches)) // (TASKS_PER_CORE * cores)
    per_task = Expr.min(Expr.max(share, 1), most)
    n_count = ceil_div(panels, per_task)
    # Evenly: 9 panels in tasks of at most 8 are 5 and 4.
    per_task = at_least_one(ceil_div(panels, n_count))
    n_count = at_least_one(ceil_div(panels, per_task))
    return Blocks(m_block, per_task * tile.columns, k_block, m_count, n_count, k_count)
