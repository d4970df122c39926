"""Shardings, meshes, and which device has which tile of an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src import core as _core
from jax._src import sharding_impls as _sharding_impls
from jax._src.lib import xla_client as _xla  # type: ignore[attr-defined]


def varying_alike(arguments: Any) -> list[Any]:
    """Arguments that all vary over the same manual axes; nothing changes outside `shard_map`."""
    core: Any = _core
    return list(core.auto_insert_reshard(*arguments))


def under_mesh(
    primitive: str, arguments: Any, results: list[Any], specs: Sequence[Any]
) -> list[Any]:
    """The avals `results` as they are under the mesh of the arguments, or else the one in force.

    `specs`: how each result is sharded over explicit axes.
    """
    core: Any = _core
    varying = core.standard_vma_rule(primitive, *arguments)
    manual = core.ManualAxisType(varying=varying)
    meshes = (aval.sharding.mesh for aval in arguments if not aval.sharding.mesh.empty)
    mesh = next(meshes, None) or jax.sharding.get_abstract_mesh()
    return [
        aval.update(sharding=jax.sharding.NamedSharding(mesh, spec), manual_axis_type=manual)
        for aval, spec in zip(results, specs, strict=True)
    ]


def device_count(context: Any) -> int:
    """How many devices XLA's partitioner has for an equation that is lowered; 1 without it."""
    axes = context.module_context.axis_context
    return int(axes.num_devices) if isinstance(axes, _sharding_impls.ShardingContext) else 1


def on_many_devices(context: Any, mesh: jax.sharding.Mesh) -> Any:
    """`context` for the lowering of `custom_partitioning`, which then gets `mesh`.

    JAX would have it know the program's devices and their only mesh. Our shardings speak of
    places in the program's list of devices, whichever they are.
    """
    axes = _sharding_impls.ShardingContext(mesh.size, tuple(mesh.devices.flat), mesh.abstract_mesh)
    return context.replace(module_context=context.module_context.replace(axis_context=axes))


def tiles_of(sharding: Any, rank: int) -> np.ndarray[Any, Any] | None:
    """The places in the list of devices, by tile: an array of `rank` dimensions and replicas.

    None where the array is not cut in tiles, or in others than an array of devices.
    """
    if sharding is None:
        return None
    tiles = sharding._to_xla_hlo_sharding(rank)
    if not tiles.is_tiled() or any(
        kind != _xla.OpSharding.Type.REPLICATED for kind in tiles.subgroup_types()
    ):
        return None
    shape = (*tiles.tile_assignment_dimensions()[:rank], -1)
    return np.array(tiles.tile_assignment_devices()).reshape(shape)


def sharding_of_tiles(
    tiles: np.ndarray[Any, Any], devices: Sequence[jax.Device]
) -> jax.sharding.Sharding:
    """The sharding of an array with such :func:`tiles_of`."""
    made = _xla.OpSharding()
    if tiles.size == tiles.shape[-1]:
        made.type = _xla.OpSharding.Type.REPLICATED
    else:
        made.type = _xla.OpSharding.Type.OTHER
        shape = tiles.shape if tiles.shape[-1] > 1 else tiles.shape[:-1]
        made.tile_assignment_dimensions = list(shape)
        made.tile_assignment_devices = [int(place) for place in tiles.flat]
        made.replicate_on_last_tile_dim = tiles.shape[-1] > 1
    sharding: jax.sharding.Sharding = _sharding_impls.GSPMDSharding(devices, made)
    return sharding
