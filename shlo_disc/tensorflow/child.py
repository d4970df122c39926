"""Runs in a child process: from a TensorFlow graph to a module with StableHLO.

    python -I -S child.py FOLDER MODULES...

FOLDER has `graph.pb` and `inputs.json`. It gets `module.mlirbc` and `nodes.json`, or `error.txt`
and `node.txt`. MODULES are where Python finds TensorFlow. Its converter may end the process,
which is why it has one of its own. Only bindings are loaded, not TensorFlow's Python: that takes 4
seconds, these take 0.3.

Nothing of shlo_disc is imported here.
"""

from __future__ import annotations

import importlib.util
import json
import re
import struct
import sys
import types
from pathlib import Path
from typing import Any


class _Refused(Exception):
    """What the bindings raise for a status that is not OK, of any code."""

    def __init__(self, node: Any, op: Any, message: str, *more: Any) -> None:
        super().__init__(message)


class _UncoveredError(ValueError):
    """What is wrong with a node, whose name is quoted, or empty."""

    def __init__(self, message: str, node: str) -> None:
        super().__init__(message)
        self.node = node


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
) -> tuple[bytes, dict[str, Any]]:
    """The graph as bytecode of a module whose `@main` takes the inputs in order, and what is told.

    "nodes": the names of the nodes behind the lines in its locations. "left": the operations that
    are left, each with its first node. Those that `inputs` carries have a name that the converter
    does not know: it leaves them. Some are carried in a second try,
    where it left them anyway. "wide": float64 stands for bfloat16.
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
    if _LIST in named:
        named = _with_types_of_elements(mlir, named)
        named = _lists_as_arrays(named, inputs["carried"])
    named = _with_ranks_of_results(mlir, named)
    if is_wide := bool(_BRAIN.search(named)):
        named = _without_bfloat16(named, inputs["prefix"])
    carried = [name for name in inputs["carried"] if name != "Cast"]
    named = _carried(named, carried, inputs["prefix"])
    # The converter's means of integers overflow, and divide by 0 for no integers.
    named = re.sub(
        r'^.*"tf\.Mean"\(.*-> tensor<(?:[\d?]+x)*u?i\d+>.*$',
        lambda line: _carried(line[0], ["Mean"], inputs["prefix"]),
        named,
        flags=re.M,
    )
    while True:
        # The converter prints the module to a file without locations, and reads it again: a
        # location of its result is a line of this text.
        plain = mlir.ExperimentalRunPassPipeline(named, b"", False)
        nodes = _nodes_by_line(mlir.ExperimentalRunPassPipeline(named, b"", True))
        converted = converter.tensorflow_module_to_stablehlo(module=plain, input_arg_shapes_str="")
        first: dict[str, str] = {}
        for number, line in enumerate(plain.split("\n"), 1):
            for name in re.findall(rf'"tf\.(?!{inputs["prefix"][3:]})(\w+)"\(', line):
                first.setdefault(name, nodes.get(number, ""))
        left = {n: node for n, node in first.items() if b"\0%s\0" % n.encode() in converted}
        if not (more := left.keys() & set(inputs["carried_if_left"])):
            return converted, {"nodes": nodes, "left": left, "wide": is_wide}
        named = _carried(named, sorted(more), inputs["prefix"])


_RESULTS = re.compile(r"func\.func @main\(.*\) -> (.*) attributes")
"""The types of the results of a module."""


def _with_ranks_of_results(mlir: Any, text: str) -> str:
    """`text`, after TensorFlow's shape inference where the type of a result has no rank.

    Raises _UncoveredError, with the first operation without a rank, where that finds none.
    """

    def lacks_rank(text: str) -> bool:
        head = _RESULTS.search(text)
        return head is not None and "tensor<*x" in head[1]

    if not lacks_rank(text):
        return text
    inferred = str(mlir.ExperimentalRunPassPipeline(text, b"tf-shape-inference", True))
    if not lacks_rank(inferred):
        return inferred
    for line in inferred.splitlines():
        if op := re.search(r'"tf\.(\w+)"\(.* -> \(?tensor<\*x', line):
            raise _UncoveredError(
                f"{op[1]} gives a result whose rank is not known; have branches give the same "
                "rank, or state it by tf.ensure_shape",
                _node_of_line(line, inferred),
            )
    raise ValueError("a result has no known rank")


# -- bfloat16 --------------------------------------------------------------------------------------

_BRAIN = re.compile(r"(?<=[x<,\s(=\[])bf16(?=[>,\s)\]}])")


def _without_bfloat16(text: str, prefix: str) -> str:
    """`text` with float64 in the place of bfloat16: the converter computes bfloat16 in float32.

    Every number of bfloat16 is one of float64. Casts to bfloat16 round, so they are carried: a cast
    to float64 and back would be left out. Raises ValueError beside float64.
    """
    if re.search(r"(?<=[x<,\s(=\[])f64(?=[>,\s)\]}])", text):
        raise ValueError("a program of both bfloat16 and float64 is not covered")

    def widened(match: re.Match[str]) -> str:
        elements, shape = match.groups()
        hexes = re.sub(
            r"0x([0-9A-Fa-f]+)",
            lambda found: "0x" + _widened(found[1], is_string=elements.startswith('"')),
            elements,
        )
        return f"dense<{hexes}> : tensor<{shape}bf16>"

    text = re.sub(r"dense<([^<>]*)> : tensor<([\dx]*)bf16>", widened, text)
    text = re.sub(
        r'^.*"tf\.Cast"\(.*-> tensor<[^<>]*bf16>.*$',
        lambda line: _carried(line[0], ["Cast"], prefix),
        text,
        flags=re.M,
    )
    return _BRAIN.sub("f64", text)


def _widened(digits: str, *, is_string: bool) -> str:
    """Hexadecimal digits of bfloat16 as those of float64: little-endian ones in a string."""
    order = "<" if is_string else ">"
    raw = bytes.fromhex(digits)
    halves = struct.unpack(f"{order}{len(raw) // 2}H", raw)
    numbers = [struct.unpack(">f", struct.pack(">HH", half, 0))[0] for half in halves]
    return struct.pack(f"{order}{len(numbers)}d", *numbers).hex().upper()


# -- lists of tensors ------------------------------------------------------------------------------

_LIST = "!tf_type.variant"
_ELEMENT = r"(?:[\d?]+x)*(?!\*)(?![\d?]+x)[\w.]+"
"""A type of elements whose rank is known: `?x4xf32`."""


_ADVICE = {
    "Optional": ": the gradient of tf.cond or tf.switch_case; choose from both results by tf.where",
    "TensorListPushBack": "; give the TensorArray its size, and no dynamic_size",
    "TensorListScatter": "; use TensorArray.unstack, or write the elements in a loop",
    "TensorListSplit": "; use TensorArray.unstack of parts of equal sizes",
}
"""Start of the name of an operation -> what to do instead."""


def _lists_as_arrays(text: str, carried: list[str]) -> str:
    """`text` with an array in the place of every list of tensors: an entry for each element.

    tensor<!tf_type.variant<tensor<?x4xf32>>>    ==>    tensor<?x?x4xf32>

    Raises _UncoveredError for operations on lists that are not `carried`, and ValueError where the
    elements of a list have no rank.
    """
    known = {"If", "Case", "Identity", "PartitionedCall", "StatefulPartitionedCall", "While"}
    known |= {"StatelessIf", "StatelessCase", "StatelessWhile", "AddN", "ZerosLike", *carried}
    for line in text.splitlines():
        name = re.search(r'"tf\.(\w+)"\(', line)
        if name is not None and _LIST in line and name[1] not in known:
            node = _node_of_line(line, text)
            what = "list of tensors (TensorArray)" if "TensorList" in name[1] else "variant"
            advice = next((told for key, told in _ADVICE.items() if name[1].startswith(key)), "")
            raise _UncoveredError(f"{name[1]} of a {what} is not covered{advice}", node)
    text = re.sub(rf"tensor<!tf_type\.variant<tensor<({_ELEMENT})>>>", r"tensor<?x\1>", text)
    # An attribute that says again what the types of operands say.
    text = re.sub(rf"\bT(?:in|out)? = \[[^\]]*{_LIST}[^\]]*\],? ?", "", text)
    if _LIST in text:
        raise ValueError(
            "the elements of a list of tensors (TensorArray) have no known rank; give it an "
            "element_shape"
        )
    return text


def _with_types_of_elements(mlir: Any, text: str) -> str:
    """`text` after TensorFlow's shape inference, with the types of the elements of lists.

    TensorFlow knows a list that begins empty by its element_shape, which may be left out. Then the
    element that is written first tells it.
    """
    known: dict[int, str] = {}
    while True:
        # From the text as it was: inference narrows no type of elements that it gave itself.
        given = _with_shapes(text, known)
        inferred = str(mlir.ExperimentalRunPassPipeline(given, b"tf-shape-inference", True))
        functions = _functions(inferred)
        if slices := _types_of_slices(functions):
            text = _with_types_of_slices(text, slices)
            continue
        found = {}
        for number, (name, op) in enumerate(_reserved(functions)):
            if number not in known and "variant<tensor<*x" in op.line:
                element = _written(functions, name, op.result, set())
                if element is not None:
                    found[number] = element
        if not found:
            return inferred
        known |= found


def _slices(functions: dict[str, list[_Op]]) -> list[_Op]:
    """The slices of a module, in the order of the text."""
    return [op for ops in functions.values() for op in ops if op.name == "StridedSlice"]


def _types_of_slices(functions: dict[str, list[_Op]]) -> dict[int, str]:
    """The types of slices that TensorFlow finds no rank of, where the array has one.

    It looks for the strides, which a body of a loop may be given. By number in the text.
    """
    found = {}
    for number, op in enumerate(_slices(functions)):
        array = re.fullmatch(rf"tensor<({_ELEMENT})>", op.types[0])
        if array is not None and re.search(r"-> tensor<\*x\w+>", op.line):
            *own, element = array[1].split("x")
            length = int(op.types[1].removeprefix("tensor<").partition("x")[0])
            sizes = _sizes_of_slice(op.line, own, length)
            found[number] = f"tensor<{'x'.join([*sizes, element])}>"
    return found


def _sizes_of_slice(line: str, own: list[str], length: int) -> list[str]:
    masks = {name: int(value) for name, value in re.findall(r"(\w+)_mask = (\d+)", line)}
    added = sum(masks["new_axis"] >> k & ~masks["ellipsis"] >> k & 1 for k in range(length))
    found: list[str] = []
    axis = 0
    for k in range(length):
        if masks["ellipsis"] >> k & 1:
            count = len(own) - (length - 1 - added)
            found += own[axis : axis + count]
            axis += count
        elif masks["new_axis"] >> k & 1:
            found.append("1")
        else:
            found += [] if masks["shrink_axis"] >> k & 1 else ["?"]
            axis += 1
    return found + own[axis:]


def _with_types_of_slices(text: str, types: dict[int, str]) -> str:
    """`text` with these types of slices, by number; an Identity has the type that users read."""
    slices = _slices(_functions(text))
    for number, kind in types.items():
        line, result = slices[number].line, slices[number].result
        end = re.search(r" -> (tensor<\*x\w+>)(.*)$", line)
        if end is None:
            continue
        old, place = end.groups()
        raw = f"{result}_ranked_{number}"
        control = re.search(r"(%\w+) = tf_executor", line)
        name = control[1] if control else f"{raw}_control"
        new = line.replace(result, raw, 1).replace(f"{name} =", f"{raw}_control =", 1)
        new = new.replace(f" -> {old}", f" -> {kind}", 1)
        identity = (
            f'      {result}, {name} = tf_executor.island wraps "tf.Identity"({raw}) '
            f'{{device = ""}} : ({kind}) -> {old}{place}'
        )
        text = text.replace(line, f"{new}\n{identity}", 1)
    return text


_EMPTY = ("EmptyTensorList", "TensorListReserve")
_WRITES = {"TensorListSetItem": 2, "TensorListPushBack": 1}
"""Operations that write an element into a list -> which operand that is."""


def _reserved(functions: dict[str, list[_Op]]) -> list[tuple[str, _Op]]:
    """The lists that begin empty, with their functions, in the order of the text."""
    return [(name, op) for name, ops in functions.items() for op in ops if op.name in _EMPTY]


def _with_shapes(text: str, known: dict[int, str]) -> str:
    """`text` with the types of elements of some lists, by their numbers in the text."""
    for number, (_, op) in enumerate(_reserved(_functions(text))):
        if number in known:
            text = text.replace(op.line, _with_shape(op, known[number], number), 1)
    return text


def _with_shape(op: _Op, element: str, number: int) -> str:
    """The line of an empty list whose element_shape is that of `element`, with its constant.

    TensorFlow's shape inference follows it from there.
    """
    sizes = re.findall(r"([\d?]+)x", element)
    kind = f"tensor<{len(sizes)}xi32>"
    dense = "dense<{}>".format(
        f"[{', '.join('-1' if size == '?' else size for size in sizes)}]" if sizes else ""
    )
    new = f"%element_shape_{number}"
    line = op.line.replace(f"({op.operands[0]}, ", f"({new}, ", 1)
    line = line.replace(f": ({op.types[0]}, ", f": ({kind}, ", 1)
    return (
        f'      {new}, {new}_control = tf_executor.island wraps "tf.Const"() '
        f'<{{value = {dense} : {kind}}}> {{device = ""}} : () -> {kind}\n{line}'
    )


class _Op:
    """An operation of TensorFlow in a line of its own."""

    def __init__(self, line: str, result: str, name: str, operands: str, types: str) -> None:
        self.line, self.result, self.name = line, result, name
        self.operands = [operand.strip() for operand in operands.split(",")]
        self.types: list[str] = re.findall(r"tensor<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>", types)

    def called(self) -> list[str]:
        """The functions that its attributes name, but for the condition of a loop."""
        return re.findall(r"(?:body|then_branch|else_branch|f) = @([\w.]+)", self.line)


def _functions(text: str) -> dict[str, list[_Op]]:
    """The operations of every function of a module."""
    found: dict[str, list[_Op]] = {}
    ops: list[_Op] = []
    line_of_op = re.compile(
        r'^ *(%[\w]+)[^=]* = tf_executor\.island.* wraps "tf\.(\w+)"\(([^()]*)\).* : '
        r"\((.*)\) -> "
    )
    for line in text.splitlines():
        if head := re.match(r" *func\.func (?:private )?@([\w.]+)\(", line):
            ops = found.setdefault(head[1], [])
        elif op := line_of_op.match(line):
            ops.append(_Op(line, *op.groups()))
    return found


def _written(
    functions: dict[str, list[_Op]], name: str, value: str, seen: set[tuple[str, str]]
) -> str | None:
    """The type of an element that the function writes into a list; None where it is not known."""
    if (name, value) in seen:
        return None
    seen.add((name, value))
    for op in functions.get(name, ()):
        for place, operand in enumerate(op.operands):
            if operand not in (value, f"{value}#0"):
                continue
            found: str | None = None
            if op.name in _WRITES and place == 0:
                found = op.types[_WRITES[op.name]]
            elif op.name == "Identity":
                found = _written(functions, name, op.result, seen)
            for called in op.called():
                skipped = 1 if op.name in ("If", "StatelessIf") else 0
                found = found or _written(functions, called, f"%arg{place - skipped}", seen)
            if found is not None and "*" not in found:
                return found
    return None


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
        if name.startswith('"') and name.endswith('"'):  # no line of a text, which is ours
            found[number] = name
    return found


def _node_of_line(line: str, text: str) -> str:
    """The name of the node behind a line of `text`, quoted; empty where it is not known."""
    locations = "\n".join(re.findall(r"^#loc.*", text, re.M))
    return next(iter(_nodes_by_line(f"{line}\n{locations}").values()), "")


def main() -> None:
    """Convert what the folder has; what goes wrong is in `error.txt`."""
    folder = Path(sys.argv[1])
    try:
        mlir, converter = _bindings(sys.argv[2:])
        inputs = json.loads((folder / "inputs.json").read_text())
        graph = (folder / "graph.pb").read_bytes()
        bytecode, told = convert(mlir, converter, graph, inputs)
    except Exception as error:
        kind = "" if isinstance(error, _UncoveredError) else f"{type(error).__name__.lstrip('_')}: "
        (folder / "error.txt").write_text(f"{kind}{error}")
        (folder / "node.txt").write_text(getattr(error, "node", ""))
        raise
    (folder / "module.mlirbc").write_bytes(bytecode)
    (folder / "nodes.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
