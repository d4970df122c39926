"""Arrays and typed keys: made from memory, put on devices, without a primitive's call."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax._src import array as _array
from jax._src import config as _config
from jaxlib import _jax

try:
    from jax._src.random import prng as _prng
except ImportError:  # where other versions have it
    from jax._src import prng as _prng  # type: ignore[attr-defined,no-redef]

ArrayImpl = _array.ArrayImpl

KeyArray: Any = _prng.PRNGKeyArray
"""The class of concrete arrays of typed keys: `_base_array` has the words, `_impl` the PRNG."""


def on_device(array: Any, device: jax.Device) -> Any:
    """`array`, uncommitted, as an uncommitted array of another device; CPUs share the memory."""
    sharding = sharding_on(device)
    return unguarded_device_put(array.aval, sharding, [np.asarray(array)], [device], False)


batched_device_put = _jax.batched_device_put
"""`(aval, sharding, [ndarray], [device], committed) -> array`; aliases 64-byte aligned memory."""


def wide_device_put(*args: Any) -> Any:
    """`batched_device_put` that keeps 64-bit elements whatever `jax_enable_x64` says.

    The array is as one made under `jax.enable_x64(True)`: its buffer holds what its dtype says.
    """
    x64: Any = _config.enable_x64
    if x64.value:
        return batched_device_put(*args)
    with x64(True):
        return batched_device_put(*args)


def unguarded_device_put(*args: Any) -> Any:
    """`wide_device_put` under any transfer guard: our results already are where they belong."""
    with jax.transfer_guard_host_to_device("allow"):
        return wide_device_put(*args)


def order_on_stream(array: Any, stream: int) -> None:
    """Let work that a GPU's stream gets from now on see `array`; the host waits for nothing.

    The export goes at once: while one is outstanding, the array cannot be donated.
    """
    _jax.buffer_to_dlpack_managed_tensor(array, stream=stream)


def adopt_memory(capsule: Any, device: jax.Device) -> Any:
    """A committed array over the memory of a DLPack capsule, without a copy.

    It is ready when what XLA's stream has been given by now is done.
    """
    return _jax.dlpack_managed_tensor_to_buffer(capsule, device, None)


_HANDLERS_CHECK = "_skip_checks" in (_jax.array_result_handler.__doc__ or "")
"""Before JAX 0.11 handlers of results check them unless told not to."""


def rewrap(aval: Any, sharding: Any, committed: bool) -> Any:
    """`((array,) -> array)`: arrays of one device as arrays of type `aval`, with its weak type."""
    options = {"_skip_checks": True} if _HANDLERS_CHECK else {}
    return _jax.array_result_handler(aval, sharding, committed=committed, **options)


@functools.cache
def sharding_on(device: jax.Device) -> jax.sharding.Sharding:
    """The sharding of `device` alone."""
    return jax.sharding.SingleDeviceSharding(device)


collect_garbage = _jax.collect_garbage
"""`() -> None`: frees what JAX holds for arrays that are gone."""


@functools.cache
def cpu_sharding(device: jax.Device) -> jax.sharding.Sharding | None:
    """The sharding of `device` alone; None when its memory is not the host's."""
    return jax.sharding.SingleDeviceSharding(device) if device.platform == "cpu" else None


def key_of_words(implementation: str, words: jax.Array) -> Any:
    """`jax.random.wrap_key_data` of a concrete array, without a primitive's call."""
    return KeyArray(_prng.prngs[implementation], words)


def key_impl(dtype: Any) -> str:
    """The name of the PRNG of a typed key dtype, as `jax.random.wrap_key_data(impl=)` takes it."""
    name: str = dtype._impl.name
    return name
