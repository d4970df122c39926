"""What is read from the environment when a GPU is first used: each in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from shlo_disc.lower.target import native_architecture
from tests.children import forked
from tests.gpu.stand_in import shared_library

_START = """
import numpy as np
from shlo_disc import ral
from shlo_disc.base.errors import DeviceError
from tests.gpu.conftest import Programs
from tests.gpu.stand_in import StandIn
from tests.gpu.test_runtime import add1
driver = StandIn.started()
driver.kernel("add1", 8, 8, 8, 8)(add1)
exe = Programs().add1()
x = np.arange(300, dtype="f4")
"""


def test_waiting_after_every_launch_names_the_kernel_of_a_fault():
    said = forked(
        _START
        + """
exe.run_gpu([x])
driver.library.stand_in_fault(0, 700)
try:
    exe.run_gpu([x])
except DeviceError as error:
    print(error)
""",
        SHLO_DISC_GPU_SYNC="1",
    )
    assert said == (
        "add1: kernel add1_kernel (model.py:7), grid 2x1 of blocks of 128 threads with 0 bytes of "
        "dynamic shared memory has failed on Stand-in 0 (cuda:0, sm_90): ERROR_ILLEGAL_ADDRESS "
        "(error 700)"
    )


def test_the_pool_keeps_no_more_than_it_may():
    said = forked(
        _START
        + """
assert (exe.run_gpu([x])[0] == x + 1).all()
stats = ral.gpu_pool_stats("cuda")
print(stats["limit_bytes"], stats["idle_bytes"], stats["in_use_bytes"], driver.count("bytes"))
""",
        SHLO_DISC_GPU_POOL_BYTES="2000",
    )
    limit, idle, used, held = map(int, said.split())
    assert limit == 2000
    assert idle <= 2000
    assert held == idle + used


def devices(library: str) -> str:
    return forked(
        """
        from shlo_disc import ral
        from shlo_disc.base.errors import DeviceError
        for _ in range(2):
            try:
                ral.gpu_devices("cuda")
            except DeviceError as error:
                print(error)
        """,
        SHLO_DISC_CUDA_LIBRARY=library,
    )


WORKS = (
    "; programs are still compiled for a named architecture (target='cuda:sm_90') and run on the "
    "CPU (target='cpu')"
)


def test_a_missing_driver_is_named_with_what_works():
    first, second = devices("/nowhere/libcuda.so.1").splitlines()
    assert (
        first
        == second
        == (
            "no CUDA driver: /nowhere/libcuda.so.1 cannot be loaded (/nowhere/libcuda.so.1: cannot "
            "open shared object file: No such file or directory)" + WORKS
        )
    )


def test_a_library_without_the_functions_is_too_old():
    library = str(shared_library(Path(__file__).with_name("programs.c")))
    assert devices(library).splitlines()[0] == (
        f"the CUDA driver {library} has no function cuInit: it is too old{WORKS}"
    )


@pytest.mark.parametrize(
    ("device", "architecture"),
    [
        ("sm_90", "sm_90a"),
        ("sm_80", "sm_80"),
        ("sm_87", "sm_86"),
        ("sm_103", "sm_100"),
        ("sm_121", "sm_120"),
        ("sm_70", "sm_70"),
    ],
)
def test_devices_run_the_newest_code_they_can(device: str, architecture: str) -> None:
    assert native_architecture("cuda", device) == architecture


def test_features_of_a_device_are_no_part_of_its_architecture() -> None:
    assert native_architecture("rocm", "gfx942:sramecc+:xnack-") == "gfx942"
