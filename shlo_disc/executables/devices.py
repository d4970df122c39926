"""JAX's devices as places where programs run: which target they need, which device of a driver.

Used by the front end and by executables; imports JAX only when a device is asked about.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shlo_disc import ral
from shlo_disc.base.errors import ArgumentPlaceError, DeviceError
from shlo_disc.base.records import dataclass
from shlo_disc.lower.target import native_architecture


@dataclass(frozen=True)
class Place:
    """A device of JAX."""

    device: Any
    platform: str
    """The family of its target: "cpu", "cuda", "rocm"."""
    ordinal: int = 0
    """Its number among the devices of the driver; 0 for a CPU."""

    @property
    def is_cpu(self) -> bool:
        """True if memory of the place is the host's."""
        return self.platform == "cpu"

    @property
    def target(self) -> str:
        """The target of programs that run here. Raises DeviceError where the driver is missing."""
        return target_of(self.platform, self.ordinal)


_stand_ins: dict[Any, Place] = {}


def place_of(device: Any) -> Place:
    """The place that `device` is. Raises ArgumentPlaceError where no target is for it."""
    return _stand_ins.get(device) or _place_of(device)


@functools.cache
def _place_of(device: Any) -> Place:
    if device.platform == "cpu":
        return Place(device, "cpu")
    if device.platform in ("gpu", "cuda", "rocm"):
        version = str(getattr(device.client, "platform_version", "")).lower()
        is_rocm = device.platform == "rocm" or "rocm" in version
        return Place(device, "rocm" if is_rocm else "cuda", int(device.local_hardware_id))
    raise ArgumentPlaceError(
        f"{device} is of the platform {device.platform!r}; programs run on CPUs and on GPUs of "
        "NVIDIA and AMD"
    )


def full_target(text: str) -> str:
    """`text`, with the architecture of the first device where it names GPUs alone: "cuda".

    Raises DeviceError where the driver or a device is missing.
    """
    return target_of(text, 0) if text in ("cuda", "rocm") else text


def target_of(platform: str, ordinal: int) -> str:
    """The target of a device of a driver: "cuda:sm_90". Raises DeviceError as `ral.gpu_devices`."""
    return platform if platform == "cpu" else _gpu_target(platform, ordinal)


@functools.cache
def _gpu_target(platform: str, ordinal: int) -> str:
    devices = ral.gpu_devices(platform)
    if ordinal >= len(devices):
        raise DeviceError(f"there is no device {platform}:{ordinal}; devices: {len(devices)}")
    return f"{platform}:{native_architecture(platform, devices[ordinal]['architecture'])}"


def place_of_platform(platform: str, leaves: Sequence[Any] = ()) -> Place:
    """Where a program for `platform` runs: where the first of these arrays is, else the first one.

    Raises DeviceError where JAX has no device of the platform.
    """
    import jax  # noqa: PLC0415 - the runtime works without JAX

    for leaf in leaves:
        if isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) == 1:
            (device,) = leaf.sharding.device_set
            if (place := place_of(device)).platform == platform:
                return place
    for place in _stand_ins.values():
        if place.platform == platform:
            return place
    try:
        return place_of(jax.local_devices(backend=platform)[0])
    except RuntimeError as error:
        raise DeviceError(
            f"JAX has no device of the platform {platform!r}: {error}; install jax[{platform}], or "
            "call run_numpy, which does without JAX"
        ) from None


@contextmanager
def stand_in_for(device: Any, platform: str, ordinal: int = 0) -> Iterator[Place]:
    """For tests: inside, a CPU device of JAX is a GPU; its driver is a stand-in on host memory."""
    place = _stand_ins[device] = Place(device, platform, ordinal)
    try:
        yield place
    finally:
        del _stand_ins[device]


def is_stand_in(place: Place) -> bool:
    """True inside :func:`stand_in_for` of this place."""
    return place.device in _stand_ins
