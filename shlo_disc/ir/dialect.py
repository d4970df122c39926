"""The `disc` dialect: what the passes add to StableHLO.

========================  ====================================================================
`disc.shape`              a shape operand as symbolic sizes: `{dims = ["b", "2*t"]}` -> 1-D tensor;
                          never in memory
`disc.dim`                one symbolic size as a rank-0 tensor, as data: `{dim = "b*t"}`
`disc.sizes`              several as a 1-D tensor, as data: `{dims = ["b", "2*t"]}`
`disc.fusion`             a cluster of StableHLO ops that becomes one kernel plan; its region's
                          block arguments are its operands, `disc.yield` gives its results;
                          `kind` names the emitter in `lower/` ("loop", "row", "dense", ...)
`disc.yield`              terminator of a fusion
`disc.reduce_window`      a reduction over windows of run-time size along one dimension:
                          (inputs, initial values, window, low and high padding), `dimension`
`disc.scan`               element i is the reduction of elements up to i (from i on: `reverse`) of
                          `dimension`: (input, initial value)
`disc.fft`                the Fourier transform of the last dimension, on planes of real and
                          imaginary parts; `kind` as StableHLO has it: FFT and IFFT (re, im) ->
                          (re, im), RFFT (x) -> (re, im), IRFFT (re, im, length) -> (x); FFT and
                          IFFT may have another `dimension`, and one array of pairs for planes
`disc.empty`              an array whose elements nobody reads before they are written:
                          `{dims = ["b", "2*t"]}`
`disc.guard`              a condition on symbolic sizes checked before a call runs:
                          `{lhs = "b", op = "==", rhs = "4", message = "..."}`; `in_region` if
                          only a region needs it, which may not run
========================  ====================================================================

The operations are unregistered: IRDL, the way to define a dialect in Python, binds the constraint
of a variadic once, so a registered `disc.fusion` could not have operands of different types. MLIR
therefore knows nothing of them; :func:`verify` checks them and :func:`tidy` merges and removes
what `cse` and `dce` would if it knew that `disc.shape`, `disc.sizes` and `disc.dim` are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shlo_disc.ir.mlir import ir, walk

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "disc.dim": ("dim",),
    "disc.empty": ("dims",),
    "disc.fft": ("kind",),
    "disc.fusion": ("kind",),
    "disc.guard": ("lhs", "op", "rhs", "message"),
    "disc.reduce_window": ("dimension",),
    "disc.scan": ("dimension", "reverse"),
    "disc.shape": ("dims",),
    "disc.sizes": ("dims",),
    "disc.yield": (),
}
"""Every operation and the attributes it must have."""

COMPLEX = "disc.complex"
"""Mark of an argument or result of `main` with a last dimension of size 2.

Callers see complex numbers of one dimension less in the same memory.
"""

_PURE = ("disc.dim", "disc.shape", "disc.sizes")


def Fusion(inputs: Sequence[ir.Value], outputs: Sequence[ir.Type], *, kind: ir.Attribute) -> Any:
    """A new `disc.fusion` with an empty region; its block is for the caller to add."""
    return ir.Operation.create(
        "disc.fusion",
        results=list(outputs),
        operands=list(inputs),
        attributes={"kind": kind},
        regions=1,
    )


def Yield(values: Sequence[ir.Value]) -> Any:
    """A new `disc.yield`, the terminator of a fusion."""
    return ir.Operation.create("disc.yield", operands=list(values))


def Guard(*, lhs: ir.Attribute, op: ir.Attribute, rhs: ir.Attribute, message: ir.Attribute) -> Any:
    """A new `disc.guard`; all attributes are strings."""
    return ir.Operation.create(
        "disc.guard", attributes={"lhs": lhs, "op": op, "rhs": rhs, "message": message}
    )


def ReduceWindow(operands: Sequence[ir.Value], results: Sequence[ir.Type], dimension: int) -> Any:
    """A new `disc.reduce_window` with an empty region, for the caller to fill."""
    return ir.Operation.create(
        "disc.reduce_window",
        results=list(results),
        operands=list(operands),
        attributes={"dimension": _i64(dimension)},
        regions=1,
    )


def Scan(value: ir.Value, init: ir.Value, dimension: int, *, reverse: bool) -> Any:
    """A new `disc.scan` with an empty region, for the caller to fill."""
    return ir.Operation.create(
        "disc.scan",
        results=[value.type],
        operands=[value, init],
        attributes={"dimension": _i64(dimension), "reverse": ir.BoolAttr.get(reverse)},
        regions=1,
    )


def Fft(
    kind: str,
    operands: Sequence[ir.Value],
    results: Sequence[ir.Type],
    dimension: int | None = None,
) -> Any:
    """A new `disc.fft`; `kind` is FFT, IFFT, RFFT or IRFFT, `dimension` None the last one.

    The operands of FFT and IFFT are two planes, or one array of pairs (re, im), whose last
    dimension is 2; so are their results. IRFFT has the length of its result as a third operand.
    """
    attributes: dict[str, ir.Attribute] = {"kind": ir.StringAttr.get(kind)}
    if dimension is not None:
        attributes["dimension"] = _i64(dimension)
    return ir.Operation.create(
        "disc.fft", results=list(results), operands=list(operands), attributes=attributes
    )


def fft_dimension(op: ir.Operation) -> int:
    """The dimension that a `disc.fft` transforms."""
    if "dimension" in op.attributes:
        return int(ir.IntegerAttr(op.attributes["dimension"]).value)
    return int(ir.RankedTensorType(op.operands[0].type).rank) - 1 - fft_pairs(op)[0]


def fft_pairs(op: ir.Operation) -> tuple[bool, bool]:
    """Whether the operand, and the result, of a `disc.fft` is one array of pairs (re, im)."""
    if ir.StringAttr(op.attributes["kind"]).value not in ("FFT", "IFFT"):
        return False, False
    return len(op.operands) == 1, len(op.results) == 1


def _i64(number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def shape(dims: Sequence[object], element: ir.Type) -> ir.Value:
    """A new `disc.shape` at the insertion point: `tensor<len(dims) x element>`."""
    return _with_dims("disc.shape", dims, ir.RankedTensorType.get([len(dims)], element))


def sizes(dims: Sequence[object], element: ir.Type) -> ir.Value:
    """A new `disc.sizes` at the insertion point: `tensor<len(dims) x element>`."""
    return _with_dims("disc.sizes", dims, ir.RankedTensorType.get([len(dims)], element))


def empty(dims: Sequence[object], kind: ir.Type) -> ir.Value:
    """A new `disc.empty` of type `kind` at the insertion point."""
    return _with_dims("disc.empty", dims, kind)


def _with_dims(name: str, dims: Sequence[object], kind: ir.Type) -> ir.Value:
    attribute = ir.ArrayAttr.get([ir.StringAttr.get(str(d)) for d in dims])
    return ir.Operation.create(name, results=[kind], attributes={"dims": attribute}).results[0]


def dim(size: object, element: ir.Type) -> ir.Value:
    """A new `disc.dim` at the insertion point: `tensor<element>`."""
    kind = ir.RankedTensorType.get([], element)
    attribute = ir.StringAttr.get(str(size))
    return ir.Operation.create("disc.dim", results=[kind], attributes={"dim": attribute}).results[0]


def tidy(module: ir.Module) -> int:
    """No block holds two equal pure `disc` operations, or one without uses; how many went."""
    first: dict[tuple[object, ...], ir.Value] = {}
    gone: list[ir.Operation] = []
    blocks: dict[ir.Block, int] = {}

    def visit(op: ir.Operation) -> None:
        if op.name in _PURE:
            value = op.results[0]
            block = blocks.setdefault(op.block, len(blocks))
            key = (block, op.name, op.attributes[ATTRIBUTES[op.name][0]], value.type)
            if first.setdefault(key, value) != value:
                value.replace_all_uses_with(first[key])
                gone.append(op)

    walk(module, visit)
    unused = [v.owner for v in first.values() if not any(True for _ in v.uses)]
    for op in (*gone, *unused):
        op.erase()
    return len(gone) + len(unused)


def complex_arguments(main: ir.Operation) -> frozenset[int]:
    """The arguments that callers see as complex numbers."""
    return _marked(main, "arg_attrs")


def complex_results(main: ir.Operation) -> frozenset[int]:
    """The results that callers see as complex numbers."""
    return _marked(main, "res_attrs")


def _marked(main: ir.Operation, attributes: str) -> frozenset[int]:
    if attributes not in main.attributes:
        return frozenset()
    given = enumerate(ir.ArrayAttr(main.attributes[attributes]))
    return frozenset(k for k, own in given if COMPLEX in ir.DictAttr(own))


def written_sizes(op: ir.Operation) -> tuple[ir.Attribute, ...]:
    """The sizes in the attributes of a `disc` operation whose result they are, or have."""
    if op.name == "disc.dim":
        return (op.attributes["dim"],)
    is_row = op.name in ("disc.empty", "disc.shape", "disc.sizes")
    return tuple(ir.ArrayAttr(op.attributes["dims"])) if is_row else ()


def verify(module: ir.Module) -> None:
    """Raise ValueError, naming the operation, when a `disc` operation is not as described above."""
    wrong: list[str] = []

    def visit(op: ir.Operation) -> None:
        if op.name.startswith("disc."):
            problem = _problem(op)
            if problem:
                wrong.append(f"{op.name} at {op.location}: {problem}")

    walk(module, visit)
    if wrong:
        raise ValueError("\n".join(wrong))


def _problem(op: ir.Operation) -> str | None:
    if op.name not in ATTRIBUTES:
        return "there is no such operation"
    missing = [name for name in ATTRIBUTES[op.name] if name not in op.attributes]
    if missing:
        return f"attribute {missing[0]} is missing"
    if op.name in ("disc.shape", "disc.sizes") and len(ir.ArrayAttr(op.attributes["dims"])) != int(
        ir.RankedTensorType(op.results[0].type).get_dim_size(0)
    ):
        return "dims and the type of the result have different lengths"
    if op.name == "disc.fft":
        return _fft_problem(op)
    if op.name != "disc.fusion":
        return None
    if len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
        return "it must have one region of one block"
    block = op.regions[0].blocks[0]
    if [a.type for a in block.arguments] != [v.type for v in op.operands]:
        return "operands and block arguments have different types"
    last = block.operations[len(block.operations) - 1].operation if len(block.operations) else None
    if last is None or last.name != "disc.yield":
        return "its block must end in disc.yield"
    if [v.type for v in last.operands] != [r.type for r in op.results]:
        return "disc.yield and the results have different types"
    return None


_FFT = {"FFT": (2, 2), "IFFT": (2, 2), "IRFFT": (3, 1), "RFFT": (1, 2)}
"""Operands and results of a `disc.fft` on planes, by kind."""


def _fft_problem(op: ir.Operation) -> str | None:
    kind = ir.StringAttr(op.attributes["kind"]).value
    if kind not in _FFT:
        return f"kind must be one of {', '.join(_FFT)}"
    pairs = fft_pairs(op)
    operands, results = _FFT[kind]
    if (len(op.operands) + pairs[0], len(op.results) + pairs[1]) != (operands, results):
        return f"{kind} has {operands} operands and {results} results, or one of pairs for each two"
    types = [ir.RankedTensorType(value.type) for value in (*op.operands, *op.results)]
    sides = types[: min(2, len(op.operands))], types[len(op.operands) :]
    ranks = set[int]()
    for side, is_pairs in zip(sides, pairs, strict=True):
        if is_pairs and (side[0].rank < 2 or side[0].shape[-1] != 2):
            return "the last dimension of pairs must have 2 elements"
        ranks |= {plane.rank - is_pairs for plane in side}
    planes = [*sides[0], *sides[1]]
    if len(ranks) != 1 or len({plane.element_type for plane in planes}) != 1:
        return "real and imaginary parts have different ranks or element types"
    if "dimension" in op.attributes:
        if kind not in ("FFT", "IFFT"):
            return f"{kind} has no dimension: it is the last one"
        if not 0 <= fft_dimension(op) < min(ranks):
            return "it has no such dimension"
    if not isinstance(planes[0].element_type, ir.F32Type | ir.F64Type) or planes[0].rank == 0:
        return "real and imaginary parts must be f32 or f64, of rank 1 at least"
    return None
