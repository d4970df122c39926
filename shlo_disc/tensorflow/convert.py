"""From a graph to a module with StableHLO, in a child process: TensorFlow's converter may abort."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from shlo_disc.errors import UnsupportedError
from shlo_disc.tensorflow.freeze import Frozen

__all__ = ["convert"]

SECONDS = 600.0
"""For one conversion; those of ResNet50 and EfficientNetB0 take one to three."""

_CHILD = Path(__file__).with_name("child.py")

_MESSAGE_BYTES = 1 << 20
"""Of what the child writes; the first lines tell what is wrong."""


def convert(frozen: Frozen) -> str:
    """The text of the module. Raises UnsupportedError where TensorFlow cannot convert it."""
    inputs = {
        "names": frozen.names,
        "types": frozen.types,
        "sizes": [_sizes(shape) for shape in frozen.shapes],
        "results": frozen.results,
    }
    with tempfile.TemporaryDirectory(prefix="shlo_disc_tensorflow_") as name:
        folder = Path(name)
        (folder / "graph.pb").write_bytes(frozen.graph)
        (folder / "inputs.json").write_text(json.dumps(inputs))
        try:
            with (folder / "stderr").open("wb") as messages:
                child = subprocess.run(
                    [sys.executable, "-I", "-S", str(_CHILD), name, *_module_folders()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=messages,
                    timeout=SECONDS,
                    check=False,
                    cwd=name,
                    env={"TF_CPP_MIN_LOG_LEVEL": "2", "TMPDIR": name},
                )
        except subprocess.TimeoutExpired:
            raise UnsupportedError(
                f"TensorFlow's converter did not end in {SECONDS:.0f} s"
            ) from None
        if child.returncode == 0:
            text = (folder / "module.mlir").read_text()
            return _with_places(text, frozen.places)
        with (folder / "stderr").open("rb") as messages:
            said = messages.read(_MESSAGE_BYTES).decode(errors="replace")
        caught = folder / "error.txt"
        raised = caught.read_text() if caught.exists() else ""
    raise UnsupportedError(_failure(child.returncode, raised, said))


def _sizes(shape: Sequence[int | None]) -> str:
    return ",".join("-1" if size is None else str(size) for size in shape)


def _module_folders() -> list[str]:
    """Where this process has TensorFlow and what it imports."""
    roots = [str(Path(tf.__file__).resolve().parents[1]), *sys.path, sysconfig.get_path("purelib")]
    return list(dict.fromkeys(root for root in roots if root.startswith("/")))


def _failure(status: int, raised: str, said: str) -> str:
    """One line: what went wrong in the child."""
    if raised:
        lines = [line for line in raised.splitlines() if line.strip()]
        return f"TensorFlow cannot convert the function to StableHLO: {_first_error(lines)}"
    lines = [line for line in said.splitlines() if line.strip()]
    if status < 0:
        return (
            f"TensorFlow's converter to StableHLO ended with {signal.Signals(-status).name}: "
            f"{_first_error(lines)}"
        )
    return f"TensorFlow's converter to StableHLO failed: {lines[-1] if lines else 'no message'}"


def _first_error(lines: Sequence[str]) -> str:
    for line in lines:
        if found := re.search(r"(?:LLVM ERROR|error|Check failed):? ?(.*)", line):
            return found[0] if "Check" in found[0] else found[1]
    return lines[0] if lines else "no message"


_NODE = re.compile(r'(loc\(|\[|, )"([^"\\]+)"(?=[\]),])')


def _with_places(text: str, places: dict[str, tuple[str, int]]) -> str:
    """The locations of nodes, with the lines of Python that made them."""

    def line(match: re.Match[str]) -> str:
        found = places.get(match[2].partition("@")[0])
        if found is None:
            return match[0]
        file = json.dumps(found[0])
        return f'{match[1]}"{match[2]}"({file}:{found[1]}:1)'

    head, mark, tail = text.rpartition("\n#loc = ")  # behind the last line of the module
    return head + mark + _NODE.sub(line, tail) if mark else text
