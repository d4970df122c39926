"""The stand-in driver, and executables of hand-made host programs."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from shlo_disc import jax_private, ral
from shlo_disc.executables.devices import stand_in_for
from tests.gpu.stand_in import StandIn, shared_library


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    driver = StandIn.started()
    driver.reset()
    yield driver
    driver.reset()


@pytest.fixture
def gpu(stand_in: StandIn) -> Iterator[Any]:
    """A CPU device of JAX, which stands for a GPU."""
    stand_in.library.stand_in_strict(0)
    device = jax.devices("cpu")[0]
    with stand_in_for(device, "cuda"):
        yield device
    gc.collect()


class Programs:
    """Makes executables of the host programs in `programs.c`."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(shared_library(Path(__file__).with_name("programs.c"))))

    def _address(self, name: str) -> int:
        address = ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value
        assert address is not None
        return address

    def executable(
        self,
        program: str,
        arguments: Any,
        results: Any,
        *,
        kernel: dict[str, Any] | None = None,
        platform: str = "cuda",
        architecture: str = "sm_80",
        images: Any = (b"image of the stand-in",),
        machine_code: Any = (),
        **options: Any,
    ) -> ral.Executable:
        """`kernel`: what differs from a kernel of two arguments and a size."""
        row = {
            "symbol": program,
            "image": 0,
            "threads": 128,
            "tasks_per_block": 256,
            "shared_bytes": 0,
            "args": 2,
            "params": 1,
            "name": f"{program}_kernel",
            "source": "model.py:7",
        }
        gpu = ral.GpuProgram(
            platform=platform,
            architecture=architecture,
            images=list(images),
            machine_code=list(machine_code),
            kernels=[ral.GpuKernel(**row | (kernel or {}))],
        )
        prepare, run = (
            ral.KernelCell(self._address(f"{program}_{name}")) for name in ("prepare", "run")
        )
        return ral.Executable(
            name=program,
            prepare=prepare,
            run=run,
            kernels=[],
            constants=options.pop("constants", ()),
            arguments=[(np.dtype(d), tuple(sizes), name) for d, sizes, name in arguments],
            results=[(np.dtype(d), rank, options.get("weak", False)) for d, rank in results],
            symbols=2,
            keep_alive=(self.library, prepare, run),
            gpu=gpu,
            **{k: v for k, v in options.items() if k != "weak"},
        )

    def add1(self, **options: Any) -> ral.Executable:
        """y = x + 1 for f32[n]; of the kernel `add1`."""
        return self.executable(
            "add1",
            [("float32", (-1,), "x")],
            [("float32", 1)],
            guards=["x.shape[0] != 13"],
            **options,
        )

    @property
    def add1_run(self) -> int:
        """The address of the host program of `add1`."""
        return self._address("add1_run")

    @property
    def tasks_run(self) -> int:
        """The address of the host program of `tasks`."""
        return self._address("tasks_run")


def new_bridge(
    *,
    waits: bool,
    order: Any = None,
    sharding: Any = None,
    array_type: type = jax_private.arrays.ArrayImpl,
    stream: int | None = None,
    platform: str = "cuda",
) -> ral.GpuBridge:
    """A bridge for which a CPU device of JAX is the stand-in's.

    Arrays that JAX has enqueued are waited for by the host: the stand-in has no stream of XLA.
    """
    place = jax.devices("cpu")[0]

    def wait(array: Any, stream: int) -> None:
        assert stream
        array.block_until_ready()

    return ral.GpuBridge(
        platform=platform,
        ordinal=0,
        stream=stream,
        array_type=array_type,
        shaped_array=jax_private.jaxprs.shaped_array,
        device=place,
        sharding=sharding or jax_private.arrays.sharding_on,
        order=order or wait,
        adopt=jax_private.arrays.adopt_memory,
        rewrap=jax_private.arrays.rewrap,
        to_host=np.asarray,
        collect_garbage=jax_private.arrays.collect_garbage,
        dlpack_device=1,
        waits=waits,
    )


@pytest.fixture(scope="session")
def programs() -> Programs:
    return Programs()
