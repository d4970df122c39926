"""Products by the matrix units of AMD's GPUs (MFMA, WMMA): `instructions.py` has the types.

f32 is multiplied and added in f32: `precision="highest"` is the default. gfx90a takes f16 and bf16
that are not normal for zero. Source: AMD's MIOpen documentation, "MI200 MFMA behavior specifics".
"""

from __future__ import annotations

import functools
from dataclasses import replace

from shlo_disc.lower.gpu.fragment_products import (
    FragmentProduct,
    FragmentTile,
    FragmentTiles,
    MatrixUnit,
)
from shlo_disc.lower.plan import Step
from shlo_disc.lower.rocm.instructions import instruction_for
from shlo_disc.lower.rocm.machine import ARCHITECTURES

_STRIP = FragmentTile(16, 64, 256, 1, 1, 4)
_TILES = {
    64: FragmentTiles(
        FragmentTile(128, 128, 64, 2, 2),
        FragmentTile(64, 64, 128, 2, 2),
        _STRIP,
        FragmentTile(64, 64, 128, 2, 2),
        (2, 2),
    ),
    32: FragmentTiles(
        FragmentTile(128, 128, 64, 2, 4),
        FragmentTile(64, 64, 64, 2, 2),
        _STRIP,
        FragmentTile(64, 64, 64, 2, 4),
        (4, 2),
    ),
}
"""By the threads of a wave, 256 threads where registers allow it."""

_ROOM = 128 << 10
"""Bytes of shared memory from which on large tiles have stages of twice the depth.

Sums and elements of f64 have no registers left for that.
"""


class MatrixProduct(FragmentProduct):
    """Plans one problem: by matrix units where the types are theirs."""

    def steps(self) -> tuple[Step, ...]:
        """The launches, by sizes and strides."""
        return self.by_fragments()

    @functools.cached_property
    def unit(self) -> MatrixUnit | None:
        """See `FragmentProduct.unit`."""
        machine = self.machine
        element = self.operand
        one = instruction_for(machine.architecture, element) if element is not None else None
        if one is None:
            return None
        tiles, large = _TILES[machine.warp], _TILES[machine.warp].large
        if machine.shared_bytes >= _ROOM and self.p.a.bytes < 8:
            tiles = replace(tiles, large=replace(large, depth_bytes=2 * large.depth_bytes))
        return MatrixUnit(one, tiles, ARCHITECTURES[machine.architecture].units)
