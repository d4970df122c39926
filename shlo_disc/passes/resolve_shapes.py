"""resolve-shapes: every size is a symbolic expression, the arithmetic that computed it is gone.

    %b = get_dimension_size %x, dim = 0
    %s = concatenate (reshape %b), %c4      ==>  %s = disc.shape {dims = ["b", "4"]}
    %y = dynamic_reshape %z, %s                  %y = dynamic_reshape %z, %s
    %f = convert %b : f32                        %d = disc.dim {dim = "b"};  %f = convert %d : f32
    custom_call @shape_assertion(%ok, ...)       disc.guard {lhs = "b", op = ">=", rhs = "1"}
    main {disc.constraints = ["b >= 2"]}         the same
    main {disc.constraints = ["b >= 0"]}         stays: it lowers a bound and is no guard

Why     Planning, buffer sizes and kernels need sizes as terms they can compare. The host program
        computes them once per call, so the arithmetic is of no use as data flow.
        Each integer has one owner. A `disc.shape` is read by shape rules alone and never lies in
        memory. A `disc.dim` or `disc.sizes` is data: whoever needs it computes it, on the host or
        in a kernel. Larger arrays of sizes are computed as the program says.
        A float made from sizes is rounded once, from 64 bits, as Python's integers would be.
Needs   the normal form of `ingest` and a shape analysis that succeeds.
Keeps   every result; guards keep their messages. A shape operand that depends on data stays.
Cost    O(ops), plus the analysis.
Source  StableHLO spec: the dynamic ops and their static counterparts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.arithmetic import exceeds
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.program import Check
from shlo_disc.dynamic.shapes import (
    CONSTRAINTS,
    IN_REGION,
    REGION_SIZES,
    SIGNED_SYMBOLS,
    SIZE_SYMBOLS,
    ShapeAnalysis,
)
from shlo_disc.ir import dialect
from shlo_disc.ir.builders import rank_of
from shlo_disc.ir.mlir import ir, producer, run_pipeline, walk
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.op_classes import RESULT_SHAPE_OPERAND, size_operands

Sizes = tuple[Expr, ...]

MAX_SIZES = 8
"""Elements of a `disc.sizes`, at most: a kernel that computes one chooses among all of them. More
are computed as the program says, mostly from an iota."""

_RESOLVED = frozenset({"disc.dim", "disc.shape", "disc.sizes", "stablehlo.constant"})


@dataclass(frozen=True)
class ResolveShapes(Pass):
    """See the module."""

    name: ClassVar[str] = "resolve-shapes"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of operands, guards and ops replaced."""
        (main,) = module.body.operations
        analysis = shapes.now()
        state = _State(analysis, main.operation.regions[0].blocks[0])
        asks_sizes = "stablehlo.get_dimension_size" in shapes.names
        ops: list[ir.Operation] = []
        walk(module, ops.append)
        changed = _mark_size_arguments(main.operation, analysis)
        changed += sum(_resolve(op, state) for op in ops)
        # Ops go only now: a value that is gone could lend its address to another in `analysis`.
        shapes.changed()  # guards are new ones, even where as many were there
        changed += _place_guards(ops, analysis.guards, state.block)
        if CONSTRAINTS in main.operation.attributes:
            _keep_lowered_bounds(main.operation, analysis)
        # No kernel computes a size, so one that nothing reads goes, too.
        if changed or asks_sizes:
            # Operands that became constants make some dynamic ops static.
            run_pipeline(
                module, "trivial-dce,func.func(stablehlo-canonicalize-dynamism),trivial-dce"
            )
            dialect.tidy(module)
        return changed


def _mark_size_arguments(main: ir.Operation, analysis: ShapeAnalysis) -> int:
    """Say which arguments hold sizes: what showed that is gone after this pass."""
    if not analysis.size_arguments:
        return 0
    count = len(main.regions[0].blocks[0].arguments)
    known = ir.ArrayAttr(main.attributes["arg_attrs"]) if "arg_attrs" in main.attributes else None
    rows = [
        {a.name: a.attr for a in ir.DictAttr(known[k])} if known is not None else {}
        for k in range(count)
    ]
    changed = 0
    for index, names in analysis.size_arguments.items():
        changed += SIZE_SYMBOLS not in rows[index]
        rows[index][SIZE_SYMBOLS] = ir.ArrayAttr.get([_text(name) for name in names])
        if signed := [_text(name) for name in names if name in analysis.constraints.signed]:
            rows[index][SIGNED_SYMBOLS] = ir.ArrayAttr.get(signed)
        if regional := [_text(name) for name in names if name in analysis.region_symbols]:
            rows[index][REGION_SIZES] = ir.ArrayAttr.get(regional)
    main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(row) for row in rows])
    return changed


def _keep_lowered_bounds(main: ir.Operation, analysis: ShapeAnalysis) -> None:
    """Drop what guards say from now on. A bound that is lowered is said nowhere else."""
    if analysis.lowered:
        texts = [_text(f"{name} >= 0") for name in analysis.lowered]
        main.attributes[CONSTRAINTS] = ir.ArrayAttr.get(texts)
    else:
        del main.attributes[CONSTRAINTS]


@dataclass
class _State:
    """The analysis, and the values that hold sizes made so far, at the top of main."""

    analysis: ShapeAnalysis
    block: ir.Block
    made: dict[tuple[Hashable, ...], ir.Value] = field(default_factory=dict)

    def build(
        self,
        sizes: Sizes,
        kind: ir.RankedTensorType,
        where: ir.Operation,
        is_size: bool = False,
    ) -> ir.Value:
        """A value of type `kind` (rank 0 or 1) that holds `sizes`, as data unless `is_size`; equal
        ones are shared.
        """
        key = (kind, is_size, sizes)
        if key not in self.made:
            with ir.InsertionPoint.at_block_begin(self.block), where.location:
                self.made[key] = _materialize(sizes, kind, is_size)
        return self.made[key]

    def truth(self, value: bool, kind: ir.RankedTensorType, where: ir.Operation) -> ir.Value:
        """A constant i1."""
        key = (kind, value)
        if key not in self.made:
            with ir.InsertionPoint.at_block_begin(self.block), where.location:
                self.made[key] = _constant([ir.BoolAttr.get(value)], kind)
        return self.made[key]


def _materialize(sizes: Sizes, kind: ir.RankedTensorType, is_size: bool) -> ir.Value:
    element = ir.IntegerType(kind.element_type)
    if all(s.is_const for s in sizes):
        return _constant(
            [ir.IntegerAttr.get(element, _wrapped(s.value, element)) for s in sizes], kind
        )
    if kind.rank == 0:
        return dialect.dim(sizes[0], element)
    if is_size:
        return dialect.shape(sizes, element)
    return dialect.sizes(sizes, element)


def _constant(elements: Sequence[ir.Attribute], kind: ir.RankedTensorType) -> ir.Value:
    if elements:
        value = ir.DenseElementsAttr.get(list(elements), kind)
    else:
        value = ir.Attribute.parse(f"dense<> : {kind}")
    op = ir.Operation.create("stablehlo.constant", results=[kind], attributes={"value": value})
    return op.results[0]


def _wrapped(number: int, element: ir.IntegerType) -> int:
    """`number` as the program's own arithmetic would have left it in this type.

    The bindings take an i64 for every element type, so ui64 from 2**63 on is given as its bits.
    """
    number %= 1 << element.width
    signed = not element.is_unsigned or element.width == 64
    return number - (1 << element.width) if signed and number >> (element.width - 1) else number


def _resolve(op: ir.Operation, state: _State) -> int:
    """Replace the operands of `op` that hold sizes, unless `op` is itself such arithmetic."""
    if op.name in _RESOLVED or op.name == "builtin.module":
        return 0
    if op.results and all(_is_known_scalar(r, state) for r in op.results):
        return 0
    changed = 0
    for index, value in enumerate(op.operands):
        new = _replacement(op, index, value, state)
        if new is not None and new != value:
            op.operands[index] = new
            changed += 1
    return changed


def _is_known_scalar(value: ir.Value, state: _State) -> bool:
    """True if every reader of `value` will read a `disc.dim` or a constant in its place."""
    return rank_of(value) == 0 and (
        state.analysis.contents(value) is not None or isinstance(state.analysis.truth(value), bool)
    )


def _replacement(op: ir.Operation, index: int, value: ir.Value, state: _State) -> ir.Value | None:
    if RESULT_SHAPE_OPERAND.get(op.name) == index:
        return _canonical_shape(op, producer(value), value, state)
    analysis = state.analysis
    sizes = analysis.contents(value)
    wide = None if sizes is None else _exact_type(op, value, sizes, state)
    if sizes is not None and wide is not None:
        return state.build(sizes, wide, op)
    source = producer(value)
    if source is not None and source.name in _RESOLVED:
        return None
    if sizes is not None:
        is_size = index in size_operands(op)
        if is_size or len(sizes) <= MAX_SIZES or all(s.is_const for s in sizes):
            return state.build(sizes, ir.RankedTensorType(value.type), op, is_size)
        return None
    truth = analysis.truth(value)
    if isinstance(truth, bool) and rank_of(value) == 0:
        return state.truth(truth, ir.RankedTensorType(value.type), op)
    return None


def _exact_type(
    op: ir.Operation, value: ir.Value, sizes: Sizes, state: _State
) -> ir.RankedTensorType | None:
    """The 64-bit type from which `op` makes floats of sizes that their own type may not hold."""
    kind = ir.RankedTensorType(value.type)
    if op.name != "stablehlo.convert" or not isinstance(kind.element_type, ir.IntegerType):
        return None
    width = int(kind.element_type.width)
    to_float = isinstance(ir.RankedTensorType(op.results[0].type).element_type, ir.FloatType)
    if not to_float or width >= 64 or kind.element_type.is_unsigned:
        return None
    limit = 1 << (width - 1)
    signed = state.analysis.constraints.signed
    if not any(not s.is_const and exceeds(s, -limit, limit - 1, signed) for s in sizes):
        return None
    return ir.RankedTensorType.get(kind.shape, ir.IntegerType.get_signless(64))


def _canonical_shape(
    op: ir.Operation, source: ir.Operation | None, value: ir.Value, state: _State
) -> ir.Value | None:
    """The shape operand in the terms the analysis chose for the result."""
    sizes = state.analysis.shape(op.results[0])
    if source is not None and source.name == "disc.shape":
        texts = [ir.StringAttr(d).value for d in ir.ArrayAttr(source.attributes["dims"])]
        if texts == [str(s) for s in sizes]:
            return None
    if source is not None and source.name == "stablehlo.constant":
        return None
    return state.build(sizes, ir.RankedTensorType(value.type), op, is_size=True)


def _place_guards(ops: Sequence[ir.Operation], guards: Sequence[Check], block: ir.Block) -> int:
    """`disc.guard`s at the top of main, once each, in place of assertions; how many are new."""
    old = [op for op in ops if op.name == "disc.guard"]
    assertions = [
        op
        for op in ops
        if op.name == "stablehlo.custom_call"
        and ir.StringAttr(op.attributes["call_target_name"]).value == "shape_assertion"
    ]
    locations = [op.location for op in assertions] or [ir.Location.unknown()]
    unique: dict[tuple[Expr, str, Expr], Check] = {}
    for guard in guards:
        unique.setdefault(guard.terms, guard)
    with ir.InsertionPoint.at_block_begin(block), locations[0]:
        for guard in unique.values():
            made = dialect.Guard(
                lhs=_text(str(guard.lhs)),
                op=_text(guard.op),
                rhs=_text(str(guard.rhs)),
                message=_text(guard.message),
            )
            if guard.in_region:
                made.attributes[IN_REGION] = ir.UnitAttr.get()
    for gone in (*old, *assertions):
        gone.erase()
    return len(assertions) + max(0, len(unique) - len(old))


def _text(text: str) -> ir.StringAttr:
    return ir.StringAttr.get(text)


register(ResolveShapes())
