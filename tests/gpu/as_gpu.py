"""Runs our side of a comparison for a GPU that is not there, by the stand-in driver.

    with as_gpu("cuda:sm_90a") as gpu:
        ...  # programs of shlo_disc run for the GPU, others on the CPU
        gpu.fault()  # what the interpreter of kernels said

    python -m tests.gpu.as_gpu cuda:sm_90a SCRIPT [--default-precision]

runs a script in this way. A CPU device of JAX stands for the GPU. The random programs
(`tests/fuzz`) and the sweep over functions (`tests/functions`) ask for it by the environment, which
their child processes inherit.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax

from shlo_disc.base import flags
from shlo_disc.executables import devices
from shlo_disc.ir.mlir import ir, new_context, ops_of
from tests.gpu.stand_in import StandIn

TARGET = "SHLO_DISC_TEST_TARGET"
"""The environment variable with the target, as "cuda:sm_90a"; unset: the CPU."""


@dataclass(frozen=True)
class AsGpu:
    """What runs our programs in place of a GPU."""

    target: str
    driver: StandIn

    def set_bounds(self, arrays: Any) -> None:
        """Kernels may use these arrays of JAX, of any structure, to their last byte and no further.

        The arrays must live as long as programs run.
        """
        self.driver.arrays = {
            array.unsafe_buffer_pointer(): array.nbytes
            for array in jax.tree.leaves(arrays)
            if array.nbytes  # else it may begin where another one does
        }

    def fault(self) -> tuple[str, str] | None:
        """What the first bad launch has in common with its like, and what was said of it."""
        if not self.driver.errors:
            return None
        text = f"{type(self.driver.errors[0]).__name__}: {self.driver.errors[0]}"
        return re.sub(r"0x[0-9a-f]+|%?[a-z]*[0-9]+", "#", text.split("\n", maxsplit=1)[0])[
            :120
        ], text


def asked() -> str:
    """The target that the environment asks for; empty: the CPU."""
    return os.environ.get(TARGET, "")


@contextlib.contextmanager
def as_gpu(
    target: str | None = None, *, all_digits: bool = True, in_parts: bool = False
) -> Iterator[AsGpu | None]:
    """Inside, arrays of JAX's first CPU device are on a GPU for shlo_disc; yields None for a CPU.

    `target`: None takes what the environment asks for. `all_digits`: so do products, on both
    sides; at the default precision NVIDIA's GPUs alone round f32 to tf32. `in_parts`: XLA may run
    some of a program, and give us pieces of its memory, whose bounds malloc does not know.

    Raises ValueError where the driver was started in this process for another target.
    """
    target = asked() if target is None else target
    if not target:
        yield None
        return
    driver, (platform, _, architecture) = StandIn.started(), target.partition(":")
    driver.reset()
    driver.library.stand_in_strict(0)
    driver.asks_malloc = not in_parts
    if platform == "cuda":
        number = int(re.sub(r"\D", "", architecture))
        driver.library.stand_in_capability(number // 10, number % 10)
    else:
        driver.library.stand_in_architecture(architecture.encode())
    device = jax.devices("cpu")[0]
    with (
        devices.stand_in_for(device, platform) as place,
        jax.default_matmul_precision("highest" if all_digits else "default"),
        flags.overridden(gpu_cubins=0),
    ):
        if place.target != target:
            raise ValueError(f"the stand-in is {place.target}, and not {target}")
        yield AsGpu(target, driver)
    driver.reset()


_PRODUCTS = ("dot", "dot_general", "convolution", "dynamic_conv")


def with_all_digits(text: str) -> str:
    """A module with its products at the highest precision, but for those that name an algorithm."""
    if not any(f"stablehlo.{name}" in text for name in _PRODUCTS):
        return text
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        highest = ir.Attribute.parse(
            "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"
        )
        for op in ops_of(module, *(f"stablehlo.{name}" for name in _PRODUCTS)):
            if "algorithm" not in op.attributes:
                op.attributes["precision_config"] = highest
        return str(module)


def _run(target: str, script: str, *options: str) -> int:
    """Run a script; the exit status is 1 if a launch was bad."""
    with as_gpu(target, all_digits="--default-precision" not in options) as gpu:
        runpy.run_path(script, run_name="__main__")
        fault = gpu.fault() if gpu else None
    print(fault[1] if fault else "no fault")
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(_run(*sys.argv[1:]))
