"""The stand-in driver as Python sees it: kernels are functions, failures come on demand.

A kernel that is no function of the test is interpreted where it is PTX. Code objects of AMD's run
on an emulator, where there is one (`tests/gpu/emulator.py`).

`StandIn.started()` builds `driver.c`, once for its text, and makes the runtime load it in place of
libcuda and libamdhip64. One process has one stand-in, for good.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import shlex
import struct
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc import ral
from tests.gpu import emulator
from tests.gpu.stand_in.host_memory import of_others
from tests.ptx.interpreter import launch_raw, parameters_of
from tests.ptx.tensor_map import address_of

__all__ = ["Kernel", "Launch", "StandIn", "shared_library"]

LAUNCH_FAILED = 719
REFUSED = b"refused"
"""An image that begins so is no image."""

CUBIN = b"\x7fELF\2\1\1"
"""How a cubin begins: no instructions of NVIDIA's can run here."""

_LOAD = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p)
_FIND = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)
)
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_uint64,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_uint,
    ctypes.POINTER(ctypes.c_void_p),
)


def shared_library(source: Path, *includes: str) -> Path:
    """`source` compiled by the C compiler; kept in the folder for temporary files by its text.

    `includes`: further folders of headers.
    """
    command = [*shlex.split(os.environ.get("CC", "cc")), "-O2", "-Wall", "-Wextra", "-Werror"]
    command += ["-shared", "-fPIC", "-fvisibility=hidden", f"-I{ral.include_dir()}"]
    command += [flag for folder in includes for flag in ("-isystem", folder)]
    header = Path(ral.include_dir(), "disc_ral.h").read_text()
    key = "\0".join([source.read_text(), header, *command])
    digest = hashlib.sha256(key.encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir(), f"shlo_disc_tests_{os.getuid()}")
    folder.mkdir(exist_ok=True)
    library = folder / f"{source.stem}_{digest}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as made:
            new = Path(made, library.name)
            subprocess.run([*command, "-o", str(new), str(source), "-pthread", "-lm"], check=True)
            new.rename(library)
    return library


@dataclass(frozen=True)
class Launch:
    """One run of a kernel."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    params: tuple[bytes, ...]
    module: bytes
    """The image the kernel is in."""

    def number(self, index: int, dtype: str = "int64") -> Any:
        """A parameter as a number."""
        return np.frombuffer(self.params[index], dtype)[0]

    def array(self, index: int, shape: Sequence[int], dtype: str = "float32") -> npt.NDArray[Any]:
        """The device's memory that a parameter points to."""
        return memory(int(self.number(index)), shape, dtype)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


def memory(address: int, shape: Sequence[int], dtype: str) -> npt.NDArray[Any]:
    """A NumPy array over memory at an address."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = (ctypes.c_char * size).from_address(address) if size else bytearray()
    return np.frombuffer(raw, dtype).reshape(shape)


@dataclass(frozen=True)
class Kernel:
    """A function that stands for a kernel, and the bytes of each of its parameters."""

    run: Callable[[Launch], object]
    sizes: tuple[int, ...]


def _emulate(loaded: emulator.Loaded, symbol: str, launch: Launch) -> None:
    sizes = launch.grid, launch.block, launch.shared_bytes
    emulator.launch(loaded, symbol, *sizes, launch.params)


class StandIn:
    """The driver. `kernels` says what launches run, by symbol; `errors` is what they raised."""

    def __init__(self) -> None:
        path = shared_library(Path(__file__).with_name("driver.c"))
        for variable in ("SHLO_DISC_CUDA_LIBRARY", "SHLO_DISC_ROCM_LIBRARY"):
            os.environ[variable] = str(path)
        os.environ["SHLO_DISC_GPU_HOST_MEMORY"] = "1"
        self.library = ctypes.CDLL(str(path))
        self.library.stand_in_count.restype = ctypes.c_int64
        self.library.stand_in_pending.restype = ctypes.c_int64
        self.library.stand_in_launches_on.restype = ctypes.c_int64
        self.kernels: dict[str, Kernel] = {}
        self.errors: list[BaseException] = []
        self.arrays: dict[int, int] = {}
        """Bytes of memory that is not the driver's, by address, where they are known."""
        self.asks_malloc = False
        """True if other memory that is not the driver's is as long as malloc says."""
        self.refused_images = 0
        self._images: dict[int, bytes] = {}
        self._loaded: dict[int, emulator.Loaded] = {}
        self._handles = itertools.count(1)
        self._callbacks = (_LOAD(self._load), _FIND(self._find), _LAUNCH(self._launch))
        self.library.stand_in_callbacks(*self._callbacks)
        self.reset()

    @classmethod
    @functools.cache
    def started(cls) -> StandIn:
        """The stand-in of this process."""
        return cls()

    def reset(self) -> None:
        """No failure is due any more; all work is done, no kernel known."""
        self.library.stand_in_reset()
        self.kernels.clear()
        self.errors.clear()
        self.arrays.clear()
        self.asks_malloc = False
        self.refused_images = 0

    def count(self, what: str) -> int:
        """A number of the driver: see `stand_in_count`."""
        count = int(self.library.stand_in_count(what.encode()))
        assert count >= 0, what
        return count

    @property
    def pending(self) -> int:
        """Pieces of work that nobody has waited for."""
        return int(self.library.stand_in_pending())

    @property
    def is_strict(self) -> bool:
        """True if kernels use memory of the driver alone; else also that of JAX's CPU arrays."""
        return bool(self.library.stand_in_is_strict())

    def memory(self, size: int) -> None:
        """How many bytes the device has."""
        self.library.stand_in_memory(ctypes.c_int64(size))

    def kernel(self, symbol: str, *sizes: int) -> Callable[[Callable[[Launch], object]], object]:
        """Decorates what runs for `symbol`; `sizes`: bytes of its parameters."""

        def add(run: Callable[[Launch], object]) -> Callable[[Launch], object]:
            self.kernels[symbol] = Kernel(run, sizes)
            return run

        return add

    def _load(self, is_hip: int, image: int) -> int:
        text = ctypes.string_at(image)
        if text.startswith(REFUSED) or (not is_hip and text.startswith(CUBIN)):
            self.refused_images += 1
            return 0
        handle = next(self._handles)
        if is_hip and text.startswith(emulator.MAGIC):
            text = emulator.image_at(image)
            try:
                self._loaded[handle] = emulator.Loaded.of(text)
            except (AssertionError, struct.error):
                return 0
        self._images[handle] = text
        return handle

    def _find(self, module: int, symbol: bytes, sizes: Any) -> int:
        kernel = self._kernel(module, symbol.decode())
        if kernel is None:
            return -1
        for i, size in enumerate(kernel.sizes):
            sizes[i] = size
        return len(kernel.sizes)

    def _kernel(self, module: int, symbol: str) -> Kernel | None:
        """What runs for a symbol: a function of the test, else the code of the module."""
        image, loaded = self._images[module], self._loaded.get(module)
        if symbol not in self.kernels and loaded is not None:
            if symbol not in loaded.code.kernels():
                return None
            return Kernel(functools.partial(_emulate, loaded, symbol), loaded.sizes(symbol))
        if symbol not in self.kernels and f".entry {symbol}(".encode() in image:
            sizes = tuple(size for _, size in parameters_of(image.decode(), symbol))
            return Kernel(lambda launch: self._interpret(symbol, launch), sizes)
        return self.kernels.get(symbol)

    def _interpret(self, symbol: str, launch: Launch) -> None:
        """Run the PTX of a kernel over the memory that its parameters point to."""
        text, values = launch.module.decode(), bytearray()
        for (offset, _), value in zip(parameters_of(text, symbol), launch.params, strict=True):
            values += bytes(offset - len(values)) + value
        pointers = {int.from_bytes(p, "little") for p in launch.params if len(p) == 8}
        maps = (address_of(p) for p in launch.params if len(p) == 128)
        pointers |= {address for address in maps if address is not None}
        places = {place for pointer in pointers if (place := self._memory_at(pointer))}
        if not self.is_strict:
            places |= set(of_others(pointers, places, self.arrays, self.asks_malloc))
        sizes = launch.grid, launch.block, launch.shared_bytes
        launch_raw(text, symbol, *sizes, bytes(values), sorted(places))

    def _memory_at(self, address: int) -> tuple[int, int] | None:
        """Address and bytes of the allocation that holds `address`."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        at = ctypes.c_void_p(address)
        found = self.library.stand_in_memory_at(at, ctypes.byref(data), ctypes.byref(size))
        return (int(data.value or 0), size.value) if found else None

    def _launch(
        self, module: int, symbol: bytes, grid: Any, block: Any, shared: int, params: Any
    ) -> int:
        kernel = self._kernel(module, symbol.decode())
        assert kernel is not None
        values = tuple(ctypes.string_at(params[i], size) for i, size in enumerate(kernel.sizes))
        try:
            kernel.run(
                Launch(tuple(grid[:3]), tuple(block[:3]), shared, values, self._images[module])
            )
        except Exception as error:
            traceback.print_exc()
            self.errors.append(error)
            return LAUNCH_FAILED
        return 0
