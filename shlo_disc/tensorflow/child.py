"""Runs in a child process: from a TensorFlow graph to a module with StableHLO.

    python -I -S child.py FOLDER MODULES...

FOLDER has `graph.pb` and `inputs.json`. It gets `module.mlirbc` and `nodes.json`, or `error.txt`.
MODULES are where Python finds TensorFlow. Its converter may end the process, which is why it has
one of its own. Only bindings are loaded, not TensorFlow's Python: that takes 4 seconds, these take
0.3.

Nothing of shlo_disc is imported here.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import types
from pathlib import Path
from typing import Any


class _Refused(Exception):
    """What the bindings raise for a status that is not OK, of any code."""

    def __init__(self, node: Any, op: Any, message: str, *more: Any) -> None:
        super().__init__(message)


def _bindings(folders: list[str]) -> tuple[Any, Any]:
    """TensorFlow's MLIR bindings and its converter, without the package around them."""
    sys.path += folders
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"no TensorFlow in {folders}")
    package = types.ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["tensorflow"] = package
    from tensorflow.compiler.mlir.tensorflow_to_stablehlo.python import (  # noqa: PLC0415
        pywrap_tensorflow_to_stablehlo as converter,
    )
    from tensorflow.python import _pywrap_mlir as mlir  # noqa: PLC0415
    from tensorflow.python import _pywrap_py_exception_registry as errors  # noqa: PLC0415

    errors.PyExceptionRegistry_Init(dict.fromkeys(range(1, 17), _Refused))

    return mlir, converter


def convert(
    mlir: Any, converter: Any, graph: bytes, inputs: dict[str, Any]
) -> tuple[bytes, dict[int, str], list[str]]:
    """The graph as bytecode of a module whose `@main` takes the inputs in order.

    Also the names of the nodes behind the lines in its locations, and of operations that are left.
    Those that `inputs` carries have a name that the converter does not know: it leaves them.
    """
    named = mlir.ImportGraphDef(
        graph,
        b"",
        True,
        ",".join(inputs["names"]).encode(),
        ",".join(inputs["types"]).encode(),
        ":".join(inputs["sizes"]).encode(),
        ",".join(inputs["results"]).encode(),
    )
    named = _carried(named, inputs["carried"], inputs["prefix"])
    # The converter prints the module to a file without locations, and reads it again: a location of
    # its result is a line of this text.
    plain = mlir.ExperimentalRunPassPipeline(named, b"", False)
    nodes = _nodes_by_line(mlir.ExperimentalRunPassPipeline(named, b"", True))
    converted = converter.tensorflow_module_to_stablehlo(module=plain, input_arg_shapes_str="")
    names = sorted(set(re.findall(r'"tf\.(\w+)"\(', plain)))
    left = [name for name in names if b"\0%s\0" % name.encode() in converted]
    return converted, nodes, left


def _carried(text: str, names: list[str], prefix: str) -> str:
    """`text` with another name for these operations, and plain attributes of theirs.

    "tf.Cumsum"(%x, %k) <{reverse = true}> {device = ""} : ...
    "tf.DiscCumsum"(%x, %k) {reverse = true, device = ""} : ...
    """
    call = re.compile(rf'"tf\.({"|".join(names)})"(\([^()]*\))(?: <\{{(.*?)\}}>)?( \{{)?')

    def renamed(match: re.Match[str]) -> str:
        name, operands, properties, opening = match.groups()
        if properties is None:
            attributes = opening or ""
        else:
            attributes = f" {{{properties}, " if opening else f" {{{properties}}}"
        return f'"{prefix}{name}"{operands}{attributes}'

    return call.sub(renamed, text)


def _nodes_by_line(text: str) -> dict[int, str]:
    """The name of the node behind each line, quoted, of a module printed with locations.

    Counts lines as if there were no locations.
    """
    known = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", text, re.M))
    lines = [line for line in text.split("\n") if not line.startswith("#loc")]
    found = {}
    for number, line in enumerate(lines, 1):
        place = re.search(r"loc\((#loc\d*|\".*\")\)$", line)
        if place is None:
            continue
        name = place[1]
        while name in known:
            name = known[name]
            if name.startswith("fused["):  # the type of the node, and its name
                name = name.removeprefix("fused[").removesuffix("]").split(", ")[-1]
        if name.startswith('"'):
            found[number] = name
    return found


def main() -> None:
    """Convert what the folder has; what goes wrong is in `error.txt`."""
    folder = Path(sys.argv[1])
    try:
        mlir, converter = _bindings(sys.argv[2:])
        inputs = json.loads((folder / "inputs.json").read_text())
        graph = (folder / "graph.pb").read_bytes()
        bytecode, nodes, left = convert(mlir, converter, graph, inputs)
    except Exception as error:
        (folder / "error.txt").write_text(f"{type(error).__name__}: {error}")
        raise
    (folder / "module.mlirbc").write_bytes(bytecode)
    (folder / "nodes.json").write_text(json.dumps({"nodes": nodes, "left": left}))


if __name__ == "__main__":
    main()
