"""Where a call runs: on the device its committed arrays are on, else on JAX's default device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from shlo_disc.base.errors import ArgumentPlaceError
from shlo_disc.executables.devices import Place, place_of, place_of_platform
from shlo_disc.jax.arguments.leaves import arrays_of
from shlo_disc.jax_private.arrays import KeyArray, key_of_words, on_device
from shlo_disc.jax_private.states import chosen_device


def usual_place() -> Place:
    """Where JAX puts what nothing says otherwise of."""
    return place_of(jax.local_devices()[0])


def default_place() -> Place:
    """Where `jax.default_device` puts results now.

    Raises ArgumentPlaceError for a device that no target is for.
    """
    chosen = chosen_device()
    if chosen is None:
        return usual_place()
    return place_of(jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen)


def place_of_arrays(values: Sequence[Any], default: Place) -> Place:
    """Where a call with these arguments runs: where arrays are committed to, or at `default`.

    Raises ArgumentPlaceError for an array that is spread over several devices, and for arrays that
    are committed to places of which one is a GPU.
    """
    chosen: Place | None = None
    for array in arrays_of(values):
        if array is None:
            continue
        devices = array.sharding.device_set
        if len(devices) > 1:
            raise ArgumentPlaceError(f"an argument is spread over {len(devices)} devices")
        if not array.committed:
            continue
        place = place_of(*devices)
        if chosen is None:
            chosen = place
        elif place != chosen and not (place.is_cpu and chosen.is_cpu):
            raise ArgumentPlaceError(
                f"arguments are committed to {chosen.device} and to {place.device}"
            )
    return default if chosen is None else chosen


def place_of_several(values: Sequence[Any]) -> Place | None:
    """The first device of the platform of all these arrays: what runs there runs on the others.

    None for arrays of several platforms, and for those of devices that no target is for. Devices of
    other processes do not count: nothing is known of their drivers.
    """
    shardings = [x.sharding for x in arrays_of(values) if x is not None]
    devices = {device for sharding in shardings for device in sharding.addressable_devices}
    try:
        platforms = {place_of(device).platform for device in devices}
    except ArgumentPlaceError:
        return None
    return place_of_platform(platforms.pop()) if len(platforms) == 1 else None


def moved(values: Sequence[Any], place: Place) -> list[Any]:
    """The values with uncommitted arrays of other devices where a program at `place` takes them.

    JAX moves them, too. What is on a CPU already is read where it is by all programs.
    """
    return [_moved(value, place) for value in values]


def _moved(value: Any, place: Place) -> Any:
    (array,) = arrays_of([value])
    if array is None or array.committed or array.is_deleted():
        return value
    (device,) = array.sharding.device_set
    here = place_of(device)
    if here == place or (here.is_cpu and place.is_cpu):
        return value
    if type(value) is KeyArray:
        return key_of_words(value._impl.name, _moved(array, place))
    return on_device(array, place.device)
