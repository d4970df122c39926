"""Every environment variable shlo_disc reads: name, default, allowed values, one sentence.

`docs/env.md` is printed from this table (`tools/tables.py`), and a test holds
the two together. Values are read when asked, so a change of `os.environ` is seen at once; `with
overridden(debug=2):` changes a value for one block of one thread. A value that is not allowed
raises ValueError.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from shlo_disc.base.records import dataclass


@dataclass(frozen=True)
class Kind:
    """What a flag may be set to."""

    allowed: str
    """For messages, behind "must be"."""
    pattern: str
    """A regular expression for the whole value."""
    most: int | None = None
    """The largest number allowed."""

    def accepts(self, text: str) -> bool:
        """Is `text` an allowed value?"""
        if re.fullmatch(self.pattern, text, re.DOTALL) is None:
            return False
        return self.most is None or int(text) <= self.most


_SWITCH = Kind("0 or 1", "[01]")
_AMX = Kind("0, 1 or soft", "[01]|soft")
_CACHE = Kind("0, 1, kernels or verify", "[01]|kernels|verify")
_LEVEL = Kind("0, 1, 2, 3, 4 or 5", "[0-5]")
_THREADS = Kind("a whole number from 0 to 1024", "[0-9]{1,9}", 1024)
_BYTES = Kind("a whole number of bytes from 0 to 2^63 - 1", "[0-9]{1,30}", 2**63 - 1)
_PATH = Kind("the path of a directory", ".+")
_ABSOLUTE_PATH = Kind("the path of a directory from / or ~ on", "[/~].*")
_ON_UNSUPPORTED = Kind("xla or error", "xla|error")
_LIBRARY = Kind("the path or name of a shared library (.so)", r".*\.so[^/]*")


@dataclass(frozen=True)
class Flag:
    """One environment variable."""

    name: str
    default: str
    kind: Kind
    doc: str

    @property
    def key(self) -> str:
        """The short name: `SHLO_DISC_DEBUG` is `debug`."""
        return self.name.removeprefix("SHLO_DISC_").lower()


_TABLE = (
    Flag(
        "SHLO_DISC_AMX",
        "1",
        _AMX,
        "0 does without AMX, and does not ask Linux for the permission to use it "
        "(docs/architecture.md, AMX); `soft` has its tiles in memory, slow and with the same bits, "
        "for tests. Read when the CPU is first used.",
    ),
    Flag(
        "SHLO_DISC_CACHE",
        "1",
        _CACHE,
        "0 keeps no compiled code on disk, and uses none that is there; `kernels` keeps machine "
        "code, but has every process compile its programs from it; `verify` compiles what it finds "
        "once more, and raises CacheMismatchError for an entry that differs (docs/cache.md).",
    ),
    Flag(
        "SHLO_DISC_CACHE_BYTES",
        str(1 << 30),
        _BYTES,
        "Upper bound of the compiled code on disk; what was not used for longest goes first.",
    ),
    Flag(
        "SHLO_DISC_CACHE_DIR",
        "",
        _ABSOLUTE_PATH,
        "The folder of compiled code; unset: `shlo_disc` in JAX's compilation cache "
        "(`JAX_COMPILATION_CACHE_DIR`) if there is one, else in the user's caches "
        "(`~/.cache/shlo_disc`).",
    ),
    Flag(
        "SHLO_DISC_COMPILE_AHEAD",
        "1",
        _SWITCH,
        "0 compiles nothing in the background: the first call waits for the best code of what it "
        "needs, not for quickly made one, and later calls wait for variants that they need. The "
        "first call packs weights, too.",
    ),
    Flag(
        "SHLO_DISC_CUDA_LIBRARY",
        "",
        _LIBRARY,
        "The CUDA driver, loaded when a GPU is first needed; unset: `libcuda.so.1`.",
    ),
    Flag(
        "SHLO_DISC_DEBUG",
        "0",
        _LEVEL,
        "What goes to stderr: 1 one line a compilation, 2 one line a pass, 3 the IR that passes "
        "changed, 4 the whole IR after every pass, 5 also LLVM IR (before LLVM's passes) and "
        "assembly of every kernel.",
    ),
    Flag(
        "SHLO_DISC_DUMP",
        "",
        _PATH,
        "Directory that gets a folder for each compilation with `NN-pass.mlir` after every pass, "
        "with source locations; each file is a valid input of `disc-opt` and `disc-run`. "
        "`ingest-NN-pass.mlir` is the program after a pass of `ingest`. The text of each kernel is "
        "`kernel-NAME.mlir` there, the host program `host.mlir` (`host-2.mlir` after fusions were "
        "split), a text that LLVM refuses `refused-NAME.mlir`, below the error.",
    ),
    Flag(
        "SHLO_DISC_FUSION",
        "1",
        _SWITCH,
        "0 gives every operation a kernel of its own: to see whether a wrong result comes from "
        "fusion.",
    ),
    Flag(
        "SHLO_DISC_GPU_CUBINS",
        "",
        _SWITCH,
        "1 makes machine code (cubins) of programs for NVIDIA's GPUs when they are compiled, by "
        "`ptxas` or nvJitLink, 0 leaves it to the driver in the first call; unset: 1 where a CUDA "
        "driver is installed.",
    ),
    Flag(
        "SHLO_DISC_GPU_GRAPHS",
        "1",
        _SWITCH,
        "0 launches the kernels of every call one by one, also of calls that come again and could "
        "be a graph of the driver; read when a GPU is first used.",
    ),
    Flag(
        "SHLO_DISC_GPU_HOST_MEMORY",
        "0",
        _SWITCH,
        "For tests: 1 says that the driver is a stand-in whose memory is the host's, so that "
        "programs for GPUs run on arrays of the CPU; read when a GPU is first used.",
    ),
    Flag(
        "SHLO_DISC_GPU_OVERLAP",
        "1",
        _SWITCH,
        "0 starts each kernel when the one in front of it has ended, also where it could start "
        "before (from sm_90 on); read when a GPU is first used.",
    ),
    Flag(
        "SHLO_DISC_GPU_POOL_BYTES",
        "",
        _BYTES,
        "Upper bound of the memory of each GPU that its pool keeps for later calls; unset: a "
        "quarter of the GPU's memory.",
    ),
    Flag(
        "SHLO_DISC_GPU_SYNC",
        "0",
        _SWITCH,
        "1 waits after every launch on a GPU, so that the error of a fault names the kernel and "
        "its source line; read when a GPU is first used.",
    ),
    Flag(
        "SHLO_DISC_NUM_THREADS",
        "0",
        _THREADS,
        "Threads of the process-wide pool, the caller included; 0 means the cores this process may "
        "run on.",
    ),
    Flag(
        "SHLO_DISC_ON_UNSUPPORTED",
        "xla",
        _ON_UNSUPPORTED,
        "What `shlo_disc.jit` does with operations that it does not compile where the option "
        "`on_unsupported` says nothing: `xla` has XLA run them, told once; `error` raises "
        "UnsupportedError.",
    ),
    Flag(
        "SHLO_DISC_PACK_BYTES",
        "",
        _BYTES,
        "Upper bound of the memory that keeps packed copies of weights; unset: a quarter of the "
        "machine's memory.",
    ),
    Flag(
        "SHLO_DISC_POOL_BYTES",
        "",
        _BYTES,
        "Upper bound of the memory the buffer pool keeps for later calls; unset: a quarter of the "
        "machine's memory.",
    ),
    Flag(
        "SHLO_DISC_ROCM_LIBRARY",
        "",
        _LIBRARY,
        "The HIP runtime, loaded when an AMD GPU is first needed; unset: `libamdhip64.so`.",
    ),
    Flag(
        "SHLO_DISC_SPEC",
        "0",
        _SWITCH,
        "1 verifies the module after passes that change it (on in the tests); one that breaks the "
        "IR is named. It also compares what planner and emitter make of every fusion, and a shape "
        "analysis that is kept with a new one.",
    ),
    Flag(
        "SHLO_DISC_SPLIT",
        "",
        _SWITCH,
        "What becomes of a fusion that, by a mistake of ours, has no kernel: 1 plans it again as "
        "smaller ones with a warning, 0 raises the error; unset: 1, or 0 with SHLO_DISC_SPEC=1.",
    ),
    Flag(
        "SHLO_DISC_TRUST_BYTECODE",
        "0",
        _SWITCH,
        "1 reads bytecode and portable artifacts without trying them in a child process first; "
        "damaged bytes may then crash this process.",
    ),
)

_OF_RUNTIME = (
    "cuda_library",
    "gpu_host_memory",
    "gpu_pool_bytes",
    "gpu_sync",
    "num_threads",
    "pack_bytes",
    "pool_bytes",
    "rocm_library",
)

FLAGS: dict[str, Flag] = {flag.key: flag for flag in _TABLE}
"""Every flag by its short name, sorted."""

_NO_OVERRIDES: dict[str, str] = {}
_overrides: contextvars.ContextVar[dict[str, str]] = contextvars.ContextVar(
    "shlo_disc_flags", default=_NO_OVERRIDES
)


def value(key: str) -> str:
    """The text of flag `key`: an override, else the environment, else the default.

    Raises ValueError, with what is allowed, for another value.
    """
    flag = FLAGS[key]
    text = _overrides.get().get(key)
    if text is None:
        text = os.environ.get(flag.name, "")
    _check(key, text)
    return text or flag.default


@functools.lru_cache  # asked for in every call that is new
def _check(key: str, text: str) -> None:
    flag = FLAGS[key]
    if text and not flag.kind.accepts(text):
        raise ValueError(f"{flag.name} is {text!r}; it must be {flag.kind.allowed}, or unset")


def check() -> None:
    """Raise ValueError for a bad value of any flag."""
    for key in FLAGS:
        value(key)


def check_runtime() -> None:
    """Raise ValueError for a bad value of a flag that the C++ runtime reads by itself."""
    for key in _OF_RUNTIME:
        value(key)


@contextlib.contextmanager
def overridden(**values: object) -> Iterator[None]:
    """Other values for some flags inside a `with` block, in this thread: `overridden(debug=2)`."""
    unknown = values.keys() - FLAGS.keys()
    if unknown:
        raise ValueError(f"no such flag: {', '.join(sorted(unknown))}; flags: {', '.join(FLAGS)}")
    texts = {key: str(given) for key, given in values.items()}
    for key, text in texts.items():
        _check(key, text)
    token = _overrides.set(_overrides.get() | texts)
    try:
        yield
    finally:
        _overrides.reset(token)


def _number(key: str) -> int:
    return int(value(key))


def amx() -> str:
    """`SHLO_DISC_AMX`."""
    return value("amx")


def cache() -> bool:
    """Whether `SHLO_DISC_CACHE` lets code be kept on disk."""
    return value("cache") != "0"


def cache_programs() -> bool:
    """Whether `SHLO_DISC_CACHE` lets programs be kept on disk."""
    return value("cache") in ("1", "verify")


def cache_verifies() -> bool:
    """Whether `SHLO_DISC_CACHE` has what is found on disk compared with what is compiled anew."""
    return value("cache") == "verify"


def compile_ahead() -> bool:
    """`SHLO_DISC_COMPILE_AHEAD`."""
    return _number("compile_ahead") > 0


def cache_bytes() -> int:
    """`SHLO_DISC_CACHE_BYTES`."""
    return _number("cache_bytes")


def cache_dir() -> str:
    """`SHLO_DISC_CACHE_DIR`; "" where nothing is said."""
    return value("cache_dir")


def debug_level() -> int:
    """`SHLO_DISC_DEBUG`."""
    return _number("debug")


def fusion() -> bool:
    """`SHLO_DISC_FUSION`."""
    return _number("fusion") > 0


def gpu_cubins() -> bool | None:
    """`SHLO_DISC_GPU_CUBINS`; None where nothing is said."""
    return _number("gpu_cubins") > 0 if value("gpu_cubins") else None


def num_threads() -> int:
    """`SHLO_DISC_NUM_THREADS`; 0 leaves the choice to the runtime."""
    return _number("num_threads")


def on_unsupported() -> str:
    """`SHLO_DISC_ON_UNSUPPORTED`."""
    return value("on_unsupported")


def dump_dir() -> Path | None:
    """`SHLO_DISC_DUMP`; None when nothing is to be dumped."""
    text = value("dump")
    if not text:
        return None
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise ValueError(f"SHLO_DISC_DUMP is {text!r}, which is no directory")
    return path


def spec_checks() -> bool:
    """`SHLO_DISC_SPEC`."""
    return _number("spec") > 0


def trust_bytecode() -> bool:
    """`SHLO_DISC_TRUST_BYTECODE`."""
    return _number("trust_bytecode") > 0


def split() -> bool:
    """`SHLO_DISC_SPLIT`."""
    return _number("split") > 0 if value("split") else not spec_checks()
