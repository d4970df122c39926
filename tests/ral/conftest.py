"""Generated-code stand-ins in C, and the bridge to JAX that the front end would build."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

import jax
import numpy as np
import pytest
from jax._src import core
from jax._src.lib import _jax

from shlo_disc import ral

SOURCE = Path(__file__).with_name("standins.c")


def build(directory: Path, source: Path = SOURCE) -> Path:
    library = directory / f"{source.stem}.so"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ral.include_dir()}"]
    flags += ["-isystem", sysconfig.get_paths()["include"]]
    subprocess.run([*compiler, *flags, "-o", str(library), str(source), "-pthread"], check=True)
    return library


class Standins:
    """The library, its addresses, and executables made of it."""

    def __init__(self, path: Path):
        self.path = path
        self.library = ctypes.CDLL(str(path))

    def address(self, name: str) -> int:
        address = ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value
        assert address is not None
        return address

    def executable(self, program: str, arguments, results, *, prepare=None, **options):
        def row(dtype, sizes, name=""):
            return np.dtype(dtype), tuple(sizes), name

        entries = f"{prepare or program}_prepare", f"{program}_run"
        names = *entries, *options.pop("kernels", ())
        cells = [
            name if isinstance(name, ral.KernelCell) else ral.KernelCell(self.address(name))
            for name in names
        ]
        return ral.Executable(
            name=program,
            prepare=cells[0],
            run=cells[1],
            kernels=cells[2:],
            constants=options.pop("constants", ()),
            arguments=[row(*a) for a in arguments],
            results=[(np.dtype(d), rank, weak) for d, rank, weak in results],
            symbols=options.pop("symbols", 2),
            keep_alive=(self.library, cells),
            **options,
        )

    def add1(self, **options):
        return self.executable(
            "add1",
            [("float32", (-1, -1), "x")],
            [("float32", 2, False)],
            kernels=["add1_kernel"],
            guards=["x.shape[0] != 13", "x.shape[1] != 13"],
            **options,
        )

    def copy(self, dtype, rank, *, sizes=None, weak=False):
        return self.executable(
            "copy",
            [(dtype, sizes or (-1,) * rank, "x")],
            [(dtype, rank, weak)],
            prepare=f"copy{rank}",
            constants=[np.array([np.dtype(dtype).itemsize])],
        )

    def pack(self, layout="twice", **options):
        return self.executable(
            "pack",
            [("float32", (-1,), "x"), ("float32", (-1,), "w")],
            [("float32", 1, False), ("int32", 0, False)],
            pack_layouts=[layout],
            packable=[1],
            **options,
        )


@pytest.fixture(scope="session")
def standins(tmp_path_factory) -> Standins:
    return Standins(build(tmp_path_factory.mktemp("standins")))


def new_bridge(device) -> ral.JaxBridge:
    def cpu_sharding(device):
        return jax.sharding.SingleDeviceSharding(device) if device.platform == "cpu" else None

    return ral.JaxBridge(
        array_type=_jax.ArrayImpl,
        shaped_array=core.ShapedArray,
        batched_device_put=_jax.batched_device_put,
        device=device,
        cpu_sharding=cpu_sharding,
        collect_garbage=_jax.collect_garbage,
    )


@pytest.fixture(scope="session")
def bridge() -> ral.JaxBridge:
    return new_bridge(jax.devices("cpu")[0])


@pytest.fixture(scope="session")
def tensors(tmp_path_factory):
    """The module of tensors.c: a type of tensors, and tables for other types."""
    library = build(tmp_path_factory.mktemp("tensors"), SOURCE.with_name("tensors.c"))
    spec = importlib.util.spec_from_file_location("tensors", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
