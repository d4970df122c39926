"""Between the runtime and JAX: how its arrays are read and made, and the FFI target.

The only module below the front end that imports JAX, and only when a call needs it.
"""

from __future__ import annotations

import functools
from typing import Any

from shlo_disc import ral

__all__ = ["donated_twice", "jax_bridge", "register_ffi_target"]


@functools.cache
def jax_bridge(wide: bool = False) -> ral.JaxBridge:
    """How the runtime reads and makes `jax.Array`s; `wide` makes arrays of 64-bit elements, too."""
    import jax  # noqa: PLC0415 - the runtime works without JAX

    from shlo_disc import jax_private  # noqa: PLC0415

    device = jax.local_devices(backend="cpu")[0]
    return ral.JaxBridge(
        array_type=jax_private.ArrayImpl,
        shaped_array=jax_private.shaped_array,
        batched_device_put=(
            jax_private.wide_device_put if wide else jax_private.batched_device_put
        ),
        unguarded_device_put=jax_private.unguarded_device_put,
        device=device,
        cpu_sharding=jax_private.cpu_sharding,
        collect_garbage=jax_private.collect_garbage,
    )


@functools.cache
def register_ffi_target() -> None:
    """Register the one FFI target of shlo_disc with XLA, for every platform, once per process."""
    import jax  # noqa: PLC0415

    jax.devices("cpu")  # a target registered before the backend exists can stop it from starting
    jax.ffi.register_ffi_target(ral.FFI_TARGET, ral.ffi_handler(), platform="cpu")
    for platform in ("CUDA", "ROCM"):  # kept for later where there is no such backend
        jax.ffi.register_ffi_target(ral.FFI_TARGET, ral.ffi_handler(on_gpu=True), platform=platform)


@functools.cache
def _donated_twice() -> type[Exception]:
    import jax  # noqa: PLC0415

    from shlo_disc.errors import ShloDiscError  # noqa: PLC0415

    base: Any = jax.errors.JaxRuntimeError

    class DonatedTwiceError(base, ShloDiscError, TypeError):  # type: ignore[misc]
        """An array is donated and is another argument, too."""

    return DonatedTwiceError


def donated_twice(text: str) -> Exception:
    """The error for an array that is donated and is another argument, too; JAX's class."""
    return _donated_twice()(text)
