"""Bytes from outside are read once in a child process, which may crash in the place of this one.

MLIR's bytecode reader trusts its input and may crash, loop or ask for terabytes on damaged bytes
(one of about 200 random bit flips did). The child is alone with the bytes. Its working directory is
the root, and of the environment only the loader's path reaches it. Python's variables are ignored
(`-I -S`), and modules come from where this process has them. Time, memory and files are bounded.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch_mlir

from shlo_disc.base.errors import InvalidModuleError, UnsupportedError

SECONDS = 20.0
"""For reading; a second more for each MiB."""

MEMORY_BYTES = 1 << 30
"""For reading; 64 bytes more for each byte: operations take 10 bytes in a file, 300 in memory."""

_MESSAGE_BYTES = 1 << 20
"""Of what the child writes; the first lines tell what is wrong."""

_MALFORMED, _OUT_OF_MEMORY = 3, 4

# Runs in the child: exit status 0 and no output when the bytes can be read.
_CHILD = f"""
import re, resource, sys
form, seconds, room = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.path += sys.argv[4:]
from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo, _torchMlir
from torch_mlir.passmanager import PassManager
data = sys.stdin.buffer.read()
context = ir.Context()
context.enable_multithreading(False)
_stablehlo.register_stablehlo_passes()
_stablehlo.register_dialect(context, load=True)
_torchMlir.register_dialect(context)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
for what, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, used + room),
                   (resource.RLIMIT_FSIZE, {_MESSAGE_BYTES}), (resource.RLIMIT_CORE, 0)):
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))
try:
    with context:
        PassManager.parse("builtin.module(func.func(convert-torch-to-stablehlo))").run(
            ir.Module.parse("").operation)
        if form == "portable":
            module = _stablehlo.deserialize_portable_artifact(context, data)
        else:
            module = ir.Module.parse(data)
        module.operation.verify()
        text = module.operation.get_asm(enable_debug_info=True, large_elements_limit=16)
    for literal in re.findall(r'"((?:[^"\\\\\\n]|\\\\.)*)"', text):
        raw = re.sub(rb"\\\\(?:([0-9A-Fa-f]{{2}})|.)",
                     lambda m: bytes.fromhex(m[1].decode()) if m[1] else b" ", literal.encode())
        try:
            raw.decode()
        except UnicodeDecodeError:
            raise ValueError(f"error: the string {{literal[:80]!r}} is not UTF-8") from None
except (ValueError, ir.MLIRError) as error:
    sys.stderr.write(str(error))
    sys.exit({_MALFORMED})
except MemoryError:
    sys.exit({_OUT_OF_MEMORY})
"""


def try_in_child(data: bytes, form: str) -> None:
    """Return when a child process could read `data`.

    `form` is "portable", "bytecode" or "text".

    Raises InvalidModuleError with what MLIR said, or how the child ended.
    """
    what = "portable artifact" if form == "portable" else form
    seconds = SECONDS + len(data) / 2**20
    room = MEMORY_BYTES + 64 * len(data)
    with tempfile.TemporaryFile() as messages:
        try:
            child = subprocess.run(
                [_python(), "-I", "-S", "-c", _CHILD, form, str(int(seconds) + 1), str(room),
                 *_module_folders()],
                input=data,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                timeout=seconds,
                check=False,
                cwd="/",
                env=_environment(),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise InvalidModuleError(
                f"the {what} is damaged: reading it did not end in {seconds:.0f} s"
            ) from None
        messages.seek(0)
        said = messages.read(_MESSAGE_BYTES).decode(errors="replace")
    if child.returncode == 0:
        return
    if child.returncode == _OUT_OF_MEMORY or any(
        text in said for text in ("std::bad_alloc", "out of memory", "std::length_error")
    ):
        raise InvalidModuleError(
            f"the {what} is damaged: reading its {len(data)} bytes took more than "
            f"{room >> 20} MiB of memory"
        )
    if child.returncode < 0:
        raise InvalidModuleError(
            f"the {what} is damaged: MLIR's reader crashed on it (signal {-child.returncode})"
        )
    if child.returncode != _MALFORMED:
        raise UnsupportedError(
            f"the {what} could not be tried in a child process of {_python()}: "
            f"{_last_line(said)}. Set SHLO_DISC_TRUST_BYTECODE=1 if you trust it."
        )
    unknown = _UNKNOWN_DIALECT.search(said)
    if unknown is not None:
        advice = _ADVICE.get(unknown[1], "lower its operations to StableHLO")
        raise UnsupportedError(
            f"the {what} has the dialect {unknown[1]}, which shlo_disc does not read; {advice}"
        )
    lines = [line for line in said.splitlines() if line.strip()]
    raise InvalidModuleError(f"the {what} is damaged: {_first_error(lines)}")


_UNKNOWN_DIALECT = re.compile(r"dialect '(\w+)' is unknown")

_ADVICE = {
    "sdy": "pass the jax.export.Exported itself, or its text (`str(exported.mlir_module())`)"
}
"""What to do instead, by dialect. JAX alone has the dialect of its partitioner."""


def _python() -> str:
    if not sys.executable:
        raise UnsupportedError(
            "bytecode is tried in a child process first, but this process does not know its Python "
            "(sys.executable is empty). Set SHLO_DISC_TRUST_BYTECODE=1 if you trust it."
        )
    return sys.executable


def _environment() -> dict[str, str]:
    # The interpreter itself may need a library from there; an empty or relative entry would be the
    # working directory.
    paths = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    kept = ":".join(path for path in paths if path.startswith("/"))
    return {"LD_LIBRARY_PATH": kept} if kept else {}


def _module_folders() -> list[str]:
    """Where this process has the modules the child needs, behind the standard library."""
    roots = [Path(module.__path__[0]).resolve().parent for module in (torch_mlir, np)]
    return list(dict.fromkeys(map(str, roots)))


def _first_error(lines: list[str]) -> str:
    for line in lines:
        if "error:" in line:
            return line.split("error:", 1)[1].strip()
    return lines[-1] if lines else "MLIR's reader refused it"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
