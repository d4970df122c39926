"""From a graph to a module with StableHLO, in a child process: TensorFlow's converter may abort."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.tensorflow.freeze import Frozen
from shlo_disc.tensorflow.places import Place, place_of_node, told

SECONDS = 600.0
"""For one conversion; those of ResNet50 and EfficientNetB0 take one to three."""

_CHILD = Path(__file__).with_name("child.py")

_MESSAGE_BYTES = 1 << 20
"""Of what the child writes; the first lines tell what is wrong."""


@dataclass(frozen=True)
class Converted:
    """What TensorFlow's converter gives."""

    bytecode: bytes
    """A module with StableHLO, sizes in other dialects, and operations of TensorFlow."""
    left: dict[str, str]
    """The operations that are left though they were not carried -> the node of the first."""
    nodes: dict[str, str]
    """Line in the locations -> name of the node, quoted."""
    is_wide: bool
    """float64 stands for bfloat16, which the converter would compute in float32."""
    places: dict[str, Place]
    """Name of a node -> what made it; see :mod:`shlo_disc.tensorflow.places`."""

    def restored(self, text: str) -> str:
        """`text`, the module printed with locations, with those of nodes; and with bfloat16."""
        if self.is_wide:
            text = _WIDE.sub("bf16", _CONSTANT.sub(_narrowed, text))
        return _LINE.sub(self._place, text)

    def told(self, node: str) -> str:
        """The place of a node, quoted or "", for a message."""
        return told(place_of_node(json.loads(node), self.places)) if node else "unknown location"

    def _place(self, match: re.Match[str]) -> str:
        node = self.nodes.get(match[1])
        if node is None:
            return "loc(unknown)"
        where, line = place_of_node(json.loads(node), self.places)
        return f"loc({node}({json.dumps(where)}:{line}:1))"


_WIDE = re.compile(r"(?<=[x<,\s(=\[])f64(?=[>,\s)\]}])")
_CONSTANT = re.compile(r"dense<([^<>]*)> : tensor<([\dx]*)f64>")


def _narrowed(match: re.Match[str]) -> str:
    """A constant of float64 as one of bfloat16."""
    elements, shape = match.groups()
    is_string = elements.startswith('"')

    def digits(found: re.Match[str]) -> str:
        numbers = np.frombuffer(bytes.fromhex(found[1]), "<f8" if is_string else ">f8")
        halves = numbers.astype(tf.bfloat16.as_numpy_dtype).view(np.uint16)
        return "0x" + halves.astype("<u2" if is_string else ">u2").tobytes().hex().upper()

    return f"dense<{re.sub('0x([0-9A-Fa-f]+)', digits, elements)}> : tensor<{shape}bf16>"


_LINE = re.compile(r'loc\("[^"]*tmp_file_tensorflow[^"]*":(\d+):\d+\)')


def convert(
    frozen: Frozen, carried: Collection[str], if_left: Collection[str], prefix: str
) -> Converted:
    """The module of a graph; operations that are `carried` have `prefix` before their names.

    So have those of `if_left` where the converter leaves one of their name.

    Raises UnsupportedError where TensorFlow cannot convert it.
    """
    inputs = {
        "names": frozen.names,
        "types": frozen.types,
        "sizes": [_sizes(shape) for shape in frozen.shapes],
        "results": frozen.results,
        "carried": sorted(carried),
        "carried_if_left": sorted(if_left),
        "prefix": prefix,
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
            notes = json.loads((folder / "nodes.json").read_text())
            bytecode = (folder / "module.mlirbc").read_bytes()
            return Converted(bytecode, notes["left"], notes["nodes"], notes["wide"], frozen.places)
        with (folder / "stderr").open("rb") as messages:
            said = messages.read(_MESSAGE_BYTES).decode(errors="replace")
        caught = folder / "error.txt"
        raised = caught.read_text() if caught.exists() else ""
        node = (folder / "node.txt").read_text() if caught.exists() else ""
    message = _failure(child.returncode, raised, said)
    if node:
        message = f"{told(place_of_node(json.loads(node), frozen.places))}: {message}"
    raise UnsupportedError(message)


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


_LOG = re.compile(r"[IWEF]\d{4} [^\]]*\] ?")


def _first_error(lines: Sequence[str]) -> str:
    """The first line that is no advice, without the place in TensorFlow's sources."""
    told = [line for line in lines if not re.match(r"[IW]\d{4} |WARNING: ", line)]
    for line in told:
        if found := re.search(r"(?:LLVM ERROR|error): (.*)", line):
            return found[1]
    return _LOG.sub("", told[0]) if told else "no message"
