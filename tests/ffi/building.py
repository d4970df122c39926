"""The library of handlers.cpp, built, and registered with JAX."""

from __future__ import annotations

import atexit
import ctypes
import functools
import shlex
import shutil
import subprocess
import tempfile
from os import environ
from pathlib import Path

import jax

import shlo_disc

PLAIN = "affine bump checked dump memory pooled later streamed later_api"


def built(folder: Path) -> Path:
    """The library, in `folder`."""
    library = folder / "handlers.so"
    source = Path(__file__).with_name("handlers.cpp")
    compiler = shlex.split(environ.get("CXX", "c++"))
    ours = Path(shlo_disc.__file__).parent / "ral" / "src" / "core"
    flags = ["-std=c++17", "-shared", "-fPIC", "-pthread", f"-I{ours}"]
    flags.append(f"-I{jax.ffi.include_dir()}")
    subprocess.run([*compiler, *flags, str(source), "-o", str(library)], check=True)
    return library


@functools.cache
def registered() -> ctypes.CDLL:
    """All handlers, registered under `test_ffi.NAME`: once, as JAX takes no other one of a name."""
    folder = tempfile.mkdtemp(prefix="ffi-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    loaded = ctypes.CDLL(str(built(Path(folder))))
    jax.devices("cpu")
    for name in PLAIN.split():
        capsule = jax.ffi.pycapsule(getattr(loaded, name))
        jax.ffi.register_ffi_target(f"test_ffi.{name}", capsule, platform="cpu")
    loaded.power_id.restype = loaded.power_info.restype = ctypes.c_void_p
    ids = {"type_id": loaded.power_id(), "type_info": loaded.power_info()}
    type_ = {key: jax.ffi.pycapsule(ctypes.c_void_p(value)) for key, value in ids.items()}
    jax.ffi.register_ffi_type("test_ffi.Power", type_, platform="cpu")
    stages = {"instantiate": loaded.power_instantiate, "execute": loaded.power}
    capsules = {stage: jax.ffi.pycapsule(function) for stage, function in stages.items()}
    jax.ffi.register_ffi_target("test_ffi.power", capsules, platform="cpu")
    return loaded
