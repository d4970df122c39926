"""Between the runtime and JAX: how its arrays are read and made, and the FFI target.

The only module below the front end that imports JAX, and only when a call needs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shlo_disc import ral
from shlo_disc.base.errors import DeviceError
from shlo_disc.base.locks import once
from shlo_disc.executables.devices import Place, is_stand_in

_LEARN_STREAM = "shlo_disc.learn_stream"


@once
def jax_bridge(wide: bool = False) -> ral.JaxBridge:
    """How the runtime reads and makes `jax.Array`s; `wide` makes arrays of 64-bit elements, too."""
    import jax  # noqa: PLC0415 - the runtime works without JAX

    from shlo_disc import jax_private  # noqa: PLC0415

    device = jax.local_devices(backend="cpu")[0]
    return ral.JaxBridge(
        array_type=jax_private.arrays.ArrayImpl,
        shaped_array=jax_private.jaxprs.shaped_array,
        batched_device_put=(
            jax_private.arrays.wide_device_put if wide else jax_private.arrays.batched_device_put
        ),
        unguarded_device_put=jax_private.arrays.unguarded_device_put,
        device=device,
        cpu_sharding=jax_private.arrays.cpu_sharding,
        collect_garbage=jax_private.arrays.collect_garbage,
    )


def bridge_at(place: Place) -> ral.JaxBridge:
    """How the runtime reads and makes arrays of `place`.

    Raises DeviceError where the driver or the device is missing.
    """
    return jax_bridge() if place.is_cpu else _gpu_bridge(place)


@once
def _gpu_bridge(place: Place) -> ral.GpuBridge:
    from shlo_disc import jax_private  # noqa: PLC0415 - as above

    device = place.device
    stands_in = is_stand_in(place)

    def sharding(other: Any) -> Any:
        return jax_private.arrays.sharding_on(other) if other == device else None

    def wait(array: Any, _: int) -> None:
        array.block_until_ready()

    return ral.GpuBridge(
        platform=place.platform,
        ordinal=place.ordinal,
        stream=None if stands_in else _compute_stream(place),
        array_type=jax_private.arrays.ArrayImpl,
        shaped_array=jax_private.jaxprs.shaped_array,
        device=device,
        sharding=sharding,
        order=wait if stands_in else jax_private.arrays.order_on_stream,
        adopt=jax_private.arrays.adopt_memory,
        rewrap=jax_private.arrays.rewrap,
        to_host=np.asarray,
        collect_garbage=jax_private.arrays.collect_garbage,
        dlpack_device=_DLPACK_CPU if stands_in else None,
        # JAX 0.11 takes memory that it is given for ready at once, so `block_until_ready` would
        # not wait. A CPU that stands for a GPU has no stream.
        waits=True,
    )


_DLPACK_CPU = 1


def _compute_stream(place: Place) -> int:
    """The stream that XLA computes on: a call on the device tells its handler."""
    import jax  # noqa: PLC0415

    _register_learning()
    array_of: Any = jax.ShapeDtypeStruct
    call = jax.ffi.ffi_call(_LEARN_STREAM, array_of((1,), np.int32), has_side_effect=True)
    with jax.default_device(place.device):
        result: Any = jax.jit(call)()
    result.block_until_ready()
    stream = ral.gpu_learned_stream(place.ordinal)
    if stream is None:
        raise DeviceError(f"XLA has no stream for {place.device}, which shlo_disc could work on")
    return stream


@once
def _register_learning() -> None:
    import jax  # noqa: PLC0415

    for platform in ("CUDA", "ROCM"):
        jax.ffi.register_ffi_target(_LEARN_STREAM, ral.ffi_learn_stream(), platform=platform)


@once
def register_ffi_target() -> None:
    """Register the one FFI target of shlo_disc with XLA, for every platform, once per process."""
    import jax  # noqa: PLC0415

    jax.devices()  # a target registered before the backends exist can stop them from starting
    jax.ffi.register_ffi_target(ral.FFI_TARGET, ral.ffi_handler(on_gpu=False), platform="cpu")
    for platform in ("CUDA", "ROCM"):  # kept for later where there is no such backend
        jax.ffi.register_ffi_target(ral.FFI_TARGET, ral.ffi_handler(on_gpu=True), platform=platform)


@once
def _donated_twice() -> type[Exception]:
    import jax  # noqa: PLC0415

    from shlo_disc.base.errors import ShloDiscError  # noqa: PLC0415

    base: Any = jax.errors.JaxRuntimeError

    class DonatedTwiceError(base, ShloDiscError, TypeError):  # type: ignore[misc]
        """An array is donated and is another argument, too."""

    return DonatedTwiceError


def donated_twice(text: str) -> Exception:
    """The error for an array that is donated and is another argument, too; JAX's class."""
    return _donated_twice()(text)
