"""The symbolic shape of every value of a module, and the facts and guards found on the way.

    analyze(module).shape(value)  ->  (Expr("b"), Expr("2*t"), Expr("768"))

A pure function of the IR: ask again after a rewrite. Shape rules are found by op name in
:data:`RULES`; sizes written as integer tensors are followed by `contents.py`.

Source: the shape constraints of the StableHLO specification, op by op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.contents import (
    MAX_ELEMENTS,
    SCALAR_RULES,
    Condition,
    Entry,
    compare,
    constant_entries,
    elementwise,
)
from shlo_disc.dynamic.expr import Expr
from shlo_disc.errors import InvalidModuleError, UnsupportedError
from shlo_disc.mlir import ir, stablehlo

__all__ = ["RULES", "Guard", "ShapeAnalysis", "analyze"]

Shape = tuple[Expr, ...]
ONE = Expr.const(1)
DYNAMIC = ir.ShapedType.get_dynamic_size()


@dataclass(frozen=True)
class Guard:
    """`lhs op rhs` must hold for the sizes of a call; op is one of == != < <= > >=."""

    lhs: Expr
    op: str
    rhs: Expr
    message: str


class ShapeAnalysis:
    """What :func:`analyze` found; queries are by SSA value."""

    def __init__(self) -> None:
        self.constraints = Constraints()
        self.guards: list[Guard] = []
        self.arguments: list[Shape] = []
        """The shape of every argument of `main`, as written or as made up."""
        self.positive: set[str] = set()
        """Symbols that JAX promises are at least 1."""
        self._shapes: dict[ir.Value, Shape] = {}
        self._contents: dict[ir.Value, tuple[Entry, ...]] = {}

    def shape(self, value: ir.Value) -> Shape:
        """The size of every dimension of a ranked tensor value."""
        known = self._shapes.get(value)
        if known is None:
            # A scalar argument of a reducer or comparator.
            known = self._shapes[value] = _static(value)
        return known

    def scalar(self, value: ir.Value) -> Expr | None:
        """What an integer tensor of one element holds, when it is computed from sizes only."""
        entries = self._contents.get(value)
        if entries is None or len(entries) != 1 or not isinstance(entries[0], Expr):
            return None
        return entries[0]

    def contents(self, value: ir.Value) -> tuple[Expr, ...] | None:
        """The elements of a small integer tensor computed from sizes only; None otherwise."""
        entries = self._contents.get(value)
        if entries is None or not all(isinstance(e, Expr) for e in entries):
            return None
        return tuple(e for e in entries if isinstance(e, Expr))

    def truth(self, value: ir.Value) -> Entry:
        """What is known of a rank-0 i1 computed from sizes."""
        entries = self._contents.get(value)
        return entries[0] if entries is not None and len(entries) == 1 else None

    def annotate(self, module: ir.Module) -> None:
        """Print shapes on the IR, as attribute `disc.shapes`, for tests and people."""

        def visit(op: ir.Operation) -> ir.WalkResult:
            shapes = [self._shapes[r] for r in op.results if r in self._shapes]
            if shapes:
                rows = [
                    ir.ArrayAttr.get(
                        [ir.StringAttr.get(str(self.constraints.canonical(d))) for d in s]
                    )
                    for s in shapes
                ]
                op.attributes["disc.shapes"] = ir.ArrayAttr.get(rows)
            return ir.WalkResult.ADVANCE

        with module.context:
            module.operation.walk(visit)

    # -- the walk -------------------------------------------------------------------------------

    def _function(self, func: ir.Operation) -> None:
        block = func.regions[0].blocks[0]
        given = (
            ir.ArrayAttr(func.attributes["arg_attrs"]) if "arg_attrs" in func.attributes else None
        )
        for index, argument in enumerate(block.arguments):
            attributes = ir.DictAttr(given[index]) if given is not None else {}
            shape = self._argument(argument, index, attributes)
            self._shapes[argument] = shape
            self.arguments.append(shape)
        self._block(block)

    def _argument(self, argument: ir.Value, index: int, attributes: ir.DictAttr) -> Shape:
        kind = ir.RankedTensorType(argument.type)
        written = (
            [Expr.parse(ir.StringAttr(d).value) for d in ir.ArrayAttr(attributes["disc.shape"])]
            if "disc.shape" in attributes
            else None
        )
        sizes = []
        for axis, size in enumerate(kind.shape):
            if size != DYNAMIC:
                sizes.append(Expr.const(size))
                if written is not None and not written[axis].is_const:
                    self.constraints.add_equal(written[axis], size)
            elif written is not None:
                sizes.append(written[axis])
                for name in sorted(written[axis].symbols()):
                    self.positive.add(name)
                    self.constraints.add_lower(Expr.symbol(name), 1)
            else:
                sizes.append(Expr.symbol(f"d{index}_{axis}"))
        return tuple(sizes)

    def _block(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            name = op.name
            region_rule = _REGION_RULES.get(name)
            if region_rule is not None:
                region_rule(self, op)
                continue
            if not len(op.results):
                if name in ("stablehlo.custom_call", "disc.guard"):
                    self._guard(op)
                continue
            self._set(op, self._result_shapes(op))
            self._follow(op)

    def _set(self, op: ir.Operation, shapes: Sequence[Shape]) -> None:
        for result, shape in zip(op.results, shapes, strict=True):
            self._shapes[result] = shape

    def _result_shapes(self, op: ir.Operation) -> list[Shape]:
        declared = [_declared(r) for r in op.results]
        if all(size != DYNAMIC for sizes in declared for size in sizes):
            check = _STATIC_CHECKS.get(op.name)
            if check is not None:
                check(self, op)
            return [tuple(Expr.const(s) for s in sizes) for sizes in declared]
        rule = RULES.get(op.name)
        if rule is None:
            raise UnsupportedError(
                f"no shape rule for {op.name} with a dynamic result (at {op.location}); give the "
                "dimensions static sizes or file an issue with this line"
            )
        shapes = rule(self, op)
        merged = []
        for sizes, shape in zip(declared, shapes, strict=True):
            if len(sizes) != len(shape):
                raise InvalidModuleError(f"{op.name} has a result of wrong rank (at {op.location})")
            merged.append(
                tuple(
                    e if s == DYNAMIC else Expr.const(s) for s, e in zip(sizes, shape, strict=True)
                )
            )
        return merged

    def sizes_operand(self, op: ir.Operation, index: int) -> Shape:
        """The contents of a shape operand; raises UnsupportedError when they depend on data."""
        found = self.contents(op.operands[index])
        if found is None:
            raise UnsupportedError(
                f"operand {index} of {op.name} is a size that depends on data, not only on argument "
                f"sizes (at {op.location}); pass the size as a static argument or keep this op "
                "outside"
            )
        return found

    def same_shape(self, op: ir.Operation, values: Sequence[ir.Value]) -> Shape:
        """The common shape of values the spec wants equal; what is not proved becomes a guard."""
        shapes = [self._shapes[v] for v in values]
        result = list(shapes[0])
        for shape in shapes[1:]:
            for axis, size in enumerate(shape):
                if size == result[axis]:
                    continue
                self.require_equal(op, result[axis], size)
                if size.is_const:
                    result[axis] = size
        return tuple(result)

    def require_equal(self, op: ir.Operation, a: Expr, b: Expr) -> None:
        """The spec wants `a == b`: a fact from now on, and a guard if it does not follow."""
        if self.constraints.equal(a, b):
            return
        if a.is_const and b.is_const:
            raise InvalidModuleError(
                f"{op.name} wants equal sizes, got {a} and {b} (at {op.location})"
            )
        message = f"{op.name} at {op.location} needs {a} == {b}"
        self.guards.append(Guard(a, "==", b, message))
        self.constraints.add_equal(a, b)

    # -- contents -------------------------------------------------------------------------------

    def _follow(self, op: ir.Operation) -> None:
        """Work out the contents of the result if it is a small integer tensor made from sizes."""
        kind = ir.RankedTensorType(op.results[0].type)
        element = kind.element_type
        if kind.rank > 1 or not isinstance(element, ir.IntegerType) or len(op.results) != 1:
            return
        if kind.rank == 1 and (kind.is_dynamic_dim(0) or kind.get_dim_size(0) > MAX_ELEMENTS):
            return
        entries = self._entries(op)
        if entries is not None and any(e is not None for e in entries):
            self._contents[op.results[0]] = entries

    def _entries(self, op: ir.Operation) -> tuple[Entry, ...] | None:
        name = op.name
        if name == "stablehlo.constant":
            return constant_entries(op)
        if name == "stablehlo.get_dimension_size":
            axis = int(ir.IntegerAttr(op.attributes["dimension"]).value)
            return (self._shapes[op.operands[0]][axis],)
        if name == "disc.shape":
            return tuple(
                Expr.parse(ir.StringAttr(d).value) for d in ir.ArrayAttr(op.attributes["dims"])
            )
        if name == "disc.dim":
            return (Expr.parse(ir.StringAttr(op.attributes["dim"]).value),)
        operands = [self._contents.get(v) for v in op.operands]
        if not operands or any(o is None for o in operands):
            return None
        known = [o for o in operands if o is not None]
        rule = SCALAR_RULES.get(name)
        if rule is not None:
            return elementwise(self.constraints, rule, known)
        if name == "stablehlo.compare":
            direction = str(op.attributes["comparison_direction"]).split()[-1].rstrip(">")
            return elementwise(self.constraints, lambda f, a, b: compare(f, direction, a, b), known)
        if name in _SAME_CONTENTS:
            return known[0]
        if name == "stablehlo.convert":
            from_bool = any(isinstance(e, bool | Condition) for e in known[0])
            width = ir.IntegerType(ir.RankedTensorType(op.results[0].type).element_type).width
            if from_bool == (width == 1):
                return known[0]
            if from_bool:
                return tuple(Expr.const(int(e)) if isinstance(e, bool) else None for e in known[0])
            return elementwise(
                self.constraints, lambda f, a: compare(f, "NE", a, Expr.const(0)), known
            )
        if name == "stablehlo.concatenate":
            return tuple(e for o in known for e in o)
        if name == "stablehlo.slice":
            start, limit, stride = (
                _ints(op, k)[0] for k in ("start_indices", "limit_indices", "strides")
            )
            return known[0][start:limit:stride]
        if name in ("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim"):
            count = self._shapes[op.results[0]]
            total = count[0].value if count and count[0].is_const else 1
            return known[0] * total if len(known[0]) == 1 else known[0]
        return None

    def _guard(self, op: ir.Operation) -> None:
        if op.name == "disc.guard":
            texts = {
                k: ir.StringAttr(op.attributes[k]).value for k in ("lhs", "op", "rhs", "message")
            }
            guard = Guard(
                Expr.parse(texts["lhs"]), texts["op"], Expr.parse(texts["rhs"]), texts["message"]
            )
            self._assume(guard)
            return
        if ir.StringAttr(op.attributes["call_target_name"]).value != "shape_assertion":
            return
        message = _assertion_message(self, op)
        for entry in _conjunction(self.truth(op.operands[0])):
            if entry is True:
                continue
            if entry is False:
                self._assume(Guard(ONE, "==", Expr.const(0), message))
                continue
            if not isinstance(entry, Condition) or not (
                isinstance(entry.lhs, Expr) and isinstance(entry.rhs, Expr)
            ):
                raise UnsupportedError(
                    f"a shape assertion that is not a comparison of sizes: {message} (at {op.location})"
                )
            self._assume(Guard(entry.lhs, _OPERATORS[entry.op], entry.rhs, message))

    def _assume(self, guard: Guard) -> None:
        """The call checks `guard`, so everything compiled may rely on it."""
        self.guards.append(guard)
        facts, (a, b) = self.constraints, (guard.lhs, guard.rhs)
        if guard.op == "==":
            if b == 0 and (mod := _lone_mod(a)) is not None:
                facts.add_divisible(*mod)
            elif not (a - b).is_const:
                facts.add_equal(a, b)
        elif guard.op == ">=":
            facts.add_lower(a - b, 0)
            _bound(facts, a, b, 0)
        elif guard.op == ">":
            _bound(facts, a, b, 1)
        elif guard.op == "<=":
            _bound(facts, b, a, 0)
        elif guard.op == "<":
            _bound(facts, b, a, 1)


_OPERATORS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}


def _bound(facts: Constraints, larger: Expr, smaller: Expr, by: int) -> None:
    """Record `larger >= smaller + by`."""
    if smaller.is_const:
        facts.add_lower(larger, smaller.value + by)
    elif larger.is_const:
        facts.add_upper(smaller, larger.value - by)
    else:
        facts.add_lower(larger - smaller, by)


def _lone_mod(expr: Expr) -> tuple[Expr, int] | None:
    if len(expr.terms) == 1 and len(expr.terms[0][0]) == 1:
        atom = expr.terms[0][0][0][0]
        if atom.op == "mod" and atom.args[1].is_const:
            return atom.args[0], atom.args[1].value
    return None


def _conjunction(entry: Entry) -> list[Entry]:
    if isinstance(entry, Condition) and entry.op == "AND":
        return [e for part in entry.parts for e in _conjunction(part)]
    return [entry]


def _assertion_message(shapes: ShapeAnalysis, op: ir.Operation) -> str:
    text = "shape assertion"
    if "error_message" in op.attributes:
        text = ir.StringAttr(op.attributes["error_message"]).value
    for index, value in enumerate(list(op.operands)[1:]):
        size = shapes.scalar(value)
        text = text.replace(f"{{{index}}}", str(size) if size is not None else "?")
    return text


_SAME_CONTENTS = frozenset(
    {
        "stablehlo.bitcast_convert",
        "stablehlo.dynamic_reshape",
        "stablehlo.optimization_barrier",
        "stablehlo.reshape",
    }
)


# -- helpers for rules --------------------------------------------------------------------------


def _declared(value: ir.Value) -> list[int]:
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType):
        kind = ir.RankedTensorType(kind) if ir.RankedTensorType.isinstance(kind) else None
    if kind is None:
        raise UnsupportedError(f"a value of type {value.type} is not a ranked tensor")
    return list(kind.shape)


def _static(value: ir.Value) -> Shape:
    return tuple(Expr.const(s) for s in _declared(value))


def _ints(op: ir.Operation, name: str) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name]))


def _int(op: ir.Operation, name: str) -> int:
    return int(ir.IntegerAttr(op.attributes[name]).value)


def _ints_or(op: ir.Operation, name: str, count: int, default: int) -> list[int]:
    return _ints(op, name) if name in op.attributes else [default] * count


def _pairs(op: ir.Operation, name: str, count: int) -> list[tuple[int, int]]:
    if name not in op.attributes:
        return [(0, 0)] * count
    attribute = ir.DenseIntElementsAttr(op.attributes[name])
    flat = [int(x) for x in attribute]
    if len(flat) == 1:
        flat *= 2 * count
    return [(flat[2 * i], flat[2 * i + 1]) for i in range(count)]


def _window(size: Expr, low: Expr | int, high: Expr | int, base: int, window: Expr, dilation: int,
            stride: int) -> Expr:  # fmt: skip
    """The number of window positions (spec: reduce_window, convolution)."""
    dilated = size if base == 1 else _dilate(size, base)
    padded = dilated + low + high
    reach = (window - 1) * dilation + 1
    return Expr.max((padded - reach) // stride + 1, 0)


def _dilate(size: Expr, by: int) -> Expr:
    return Expr.max((size - 1) * by + 1, 0)


# -- shape rules, one per op name ---------------------------------------------------------------

Rule = Callable[[ShapeAnalysis, ir.Operation], list[Shape]]
RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        for name in names:
            RULES[name] = rule
        return rule

    return add


_ELEMENTWISE = """abs add and atan2 cbrt ceil compare complex convert cosine count_leading_zeros divide
    exponential exponential_minus_one floor imag is_finite log log_plus_one logistic maximum minimum
    multiply negate not or popcnt power real reduce_precision remainder round_nearest_afz
    round_nearest_even rsqrt shift_left shift_right_arithmetic shift_right_logical sign sine sqrt
    subtract tan tanh xor reverse"""


@_rule(*(f"stablehlo.{n}" for n in _ELEMENTWISE.split()), "chlo.erf", "chlo.erfc", "chlo.erf_inv")
def _elementwise(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    return [s.same_shape(op, list(op.operands))]


@_rule("stablehlo.select")
def _select(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    values = list(op.operands)
    return [s.same_shape(op, values[1:] if not s.shape(values[0]) else values)]


@_rule("stablehlo.clamp")
def _clamp(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    low, value, high = op.operands
    return [s.same_shape(op, [value, *(v for v in (low, high) if s.shape(v))])]


@_rule("stablehlo.dynamic_update_slice", "stablehlo.select_and_scatter")
def _first(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    return [s.shape(op.operands[0])]


@_rule("stablehlo.optimization_barrier")
def _all(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    return [s.shape(v) for v in op.operands]


@_rule("stablehlo.sort")
def _sort(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    return [s.same_shape(op, list(op.operands))] * len(op.results)


@_rule("stablehlo.scatter")
def _scatter(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    return [s.shape(op.operands[i]) for i in range(len(op.results))]


@_rule("stablehlo.bitcast_convert")
def _bitcast(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    shape = s.shape(op.operands[0])
    declared = _declared(op.results[0])
    if len(declared) < len(shape):
        return [shape[:-1]]
    if len(declared) > len(shape):
        return [(*shape, Expr.const(declared[-1]))]
    return [shape]


@_rule("stablehlo.dynamic_broadcast_in_dim")
def _dynamic_broadcast(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    return [s.sizes_operand(op, 1)]


@_rule("stablehlo.dynamic_iota")
def _dynamic_iota(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    return [s.sizes_operand(op, 0)]


@_rule("stablehlo.dynamic_reshape")
def _dynamic_reshape(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    shape = s.sizes_operand(op, 1)
    declared = _declared(op.results[0])
    # A static size in the type is a promise of the producer: check it where it does not follow.
    exact = tuple(
        e if size == DYNAMIC else Expr.const(size) for size, e in zip(declared, shape, strict=True)
    )
    s.require_equal(op, Expr.product(s.shape(op.operands[0])), Expr.product(exact))
    return [exact]


@_rule("stablehlo.reshape")
def _reshape(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    declared = _declared(op.results[0])
    if declared.count(DYNAMIC) != 1:
        raise UnsupportedError(
            f"stablehlo.reshape to {declared} (at {op.location}): use dynamic_reshape"
        )
    known = 1
    for size in declared:
        known *= 1 if size == DYNAMIC else size
    rest = Expr.product(s.shape(op.operands[0])) // known if known else Expr.const(0)
    return [tuple(rest if size == DYNAMIC else Expr.const(size) for size in declared)]


@_rule("stablehlo.broadcast_in_dim")
def _broadcast(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    declared = _declared(op.results[0])
    source = s.shape(op.operands[0])
    sizes = [Expr.const(size) for size in declared]
    for axis, target in enumerate(_ints(op, "broadcast_dimensions")):
        if declared[target] == DYNAMIC:
            sizes[target] = source[axis]
    return [tuple(sizes)]


@_rule("stablehlo.transpose")
def _transpose(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    source = s.shape(op.operands[0])
    return [tuple(source[axis] for axis in _ints(op, "permutation"))]


@_rule("stablehlo.slice")
def _slice(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    bounds = zip(
        _ints(op, "start_indices"), _ints(op, "limit_indices"), _ints(op, "strides"), strict=True
    )
    return [tuple(Expr.const(max(0, -(-(b - a) // c))) for a, b, c in bounds)]


@_rule("stablehlo.real_dynamic_slice")
def _real_dynamic_slice(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    start, limit, stride = (s.sizes_operand(op, k) for k in (1, 2, 3))
    return [tuple((b - a + c - 1) // c for a, b, c in zip(start, limit, stride, strict=True))]


@_rule("stablehlo.dynamic_slice")
def _dynamic_slice(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    return [tuple(Expr.const(n) for n in _ints(op, "slice_sizes"))]


def _padded(
    source: Shape, low: Sequence[Expr], high: Sequence[Expr], inner: Sequence[Expr]
) -> Shape:
    return tuple(
        n + a + b + (Expr.max(n - 1, 0) * i if i != 0 else 0)
        for n, a, b, i in zip(source, low, high, inner, strict=True)
    )


@_rule("stablehlo.pad")
def _pad(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    keys = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, inner = ([Expr.const(n) for n in _ints(op, k)] for k in keys)
    return [_padded(s.shape(op.operands[0]), low, high, inner)]


@_rule("stablehlo.dynamic_pad")
def _dynamic_pad(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    low, high, inner = (s.sizes_operand(op, k) for k in (2, 3, 4))
    return [_padded(s.shape(op.operands[0]), low, high, inner)]


@_rule("stablehlo.concatenate")
def _concatenate(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    axis = _int(op, "dimension")
    shapes = [s.shape(v) for v in op.operands]
    result = list(shapes[0])
    for shape in shapes[1:]:
        for k, size in enumerate(shape):
            if k == axis:
                result[k] = result[k] + size
            else:
                s.require_equal(op, result[k], size)
    return [tuple(result)]


@_rule("stablehlo.reduce")
def _reduce(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    count = len(op.results)
    source = s.same_shape(op, list(op.operands)[:count])
    gone = set(_ints(op, "dimensions"))
    return [tuple(n for k, n in enumerate(source) if k not in gone)] * count


@_rule("stablehlo.reduce_window")
def _reduce_window(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    count = len(op.results)
    source = s.same_shape(op, list(op.operands)[:count])
    rank = len(source)
    window = _ints(op, "window_dimensions")
    stride = _ints_or(op, "window_strides", rank, 1)
    base = _ints_or(op, "base_dilations", rank, 1)
    dilation = _ints_or(op, "window_dilations", rank, 1)
    padding = _pairs(op, "padding", rank)
    shape = tuple(
        _window(n, *padding[k], base[k], Expr.const(window[k]), dilation[k], stride[k])
        for k, n in enumerate(source)
    )
    return [shape] * count


def _gather_shape(s: ShapeAnalysis, op: ir.Operation, slices: Sequence[Expr]) -> Shape:
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    offset = list(numbers.offset_dims)
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    vector = int(numbers.index_vector_dim)
    batch = [n for k, n in enumerate(s.shape(op.operands[1])) if k != vector]
    window = [n for k, n in enumerate(slices) if k not in gone]
    rank = len(batch) + len(window)
    return tuple(window.pop(0) if k in offset else batch.pop(0) for k in range(rank))


@_rule("stablehlo.gather")
def _gather(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    return [_gather_shape(s, op, [Expr.const(n) for n in _ints(op, "slice_sizes")])]


@_rule("stablehlo.dynamic_gather")
def _dynamic_gather(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    return [_gather_shape(s, op, s.sizes_operand(op, 2))]


@_rule("stablehlo.dot_general")
def _dot_general(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    lhs, rhs = (s.shape(v) for v in op.operands)
    n = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    lb, rb = list(n.lhs_batching_dimensions), list(n.rhs_batching_dimensions)
    lc, rc = list(n.lhs_contracting_dimensions), list(n.rhs_contracting_dimensions)
    for a, b in [*zip(lb, rb, strict=True), *zip(lc, rc, strict=True)]:
        s.require_equal(op, lhs[a], rhs[b])
    rows = [size for k, size in enumerate(lhs) if k not in (*lb, *lc)]
    columns = [size for k, size in enumerate(rhs) if k not in (*rb, *rc)]
    return [(*(lhs[k] for k in lb), *rows, *columns)]


def _convolved(s: ShapeAnalysis, op: ir.Operation, padding: Sequence[tuple[Expr, Expr]]) -> Shape:
    n = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    lhs, rhs = s.shape(op.operands[0]), s.shape(op.operands[1])
    spatial = len(n.input_spatial_dimensions)
    stride = _ints_or(op, "window_strides", spatial, 1)
    base = _ints_or(op, "lhs_dilation", spatial, 1)
    dilation = _ints_or(op, "rhs_dilation", spatial, 1)
    sizes: dict[int, Expr] = {
        n.output_batch_dimension: lhs[n.input_batch_dimension] // _int(op, "batch_group_count"),
        n.output_feature_dimension: rhs[n.kernel_output_feature_dimension],
    }
    for k in range(spatial):
        sizes[n.output_spatial_dimensions[k]] = _window(
            lhs[n.input_spatial_dimensions[k]],
            *padding[k],
            base[k],
            rhs[n.kernel_spatial_dimensions[k]],
            dilation[k],
            stride[k],
        )
    return tuple(sizes[k] for k in range(len(lhs)))


@_rule("stablehlo.convolution")
def _convolution(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    spatial = len(s.shape(op.operands[0])) - 2
    pairs = [(Expr.const(a), Expr.const(b)) for a, b in _pairs(op, "padding", spatial)]
    return [_convolved(s, op, pairs)]


@_rule("stablehlo.dynamic_conv")
def _dynamic_conv(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    spatial = len(s.shape(op.operands[0])) - 2
    found = s.contents(op.operands[2])
    if found is None:
        # d_padding has rank 2; JAX builds it from rank-1 rows, which resolve-shapes keeps apart.
        raise UnsupportedError(f"stablehlo.dynamic_conv with padding from data (at {op.location})")
    return [_convolved(s, op, [(found[2 * k], found[2 * k + 1]) for k in range(spatial)])]


@_rule("stablehlo.rng_bit_generator")
def _rng(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    raise UnsupportedError(f"stablehlo.rng_bit_generator of dynamic shape (at {op.location})")


@_rule("chlo.top_k")
def _top_k(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    shape = (*s.shape(op.operands[0])[:-1], Expr.const(_int(op, "k")))
    return [shape, shape]


@_rule("stablehlo.custom_call")
def _custom_call(s: ShapeAnalysis, op: ir.Operation) -> list[Shape]:
    """JAX's convention: `indices_of_shape_operands` names an operand per result."""
    if "indices_of_shape_operands" not in op.attributes:
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        raise UnsupportedError(f"custom_call @{target} of dynamic shape (at {op.location})")
    indices = [int(i) for i in ir.DenseIntElementsAttr(op.attributes["indices_of_shape_operands"])]
    return [s.sizes_operand(op, i) for i in indices]


# -- ops with regions of their own --------------------------------------------------------------


def _while(s: ShapeAnalysis, op: ir.Operation) -> None:
    shapes = [s.shape(v) for v in op.operands]
    for region in op.regions:
        for argument, shape in zip(region.blocks[0].arguments, shapes, strict=True):
            s._shapes[argument] = shape
        s._block(region.blocks[0])
    s._set(op, shapes)


def _branches(s: ShapeAnalysis, op: ir.Operation) -> None:
    shapes: list[Shape] = []
    for region in op.regions:
        block = region.blocks[0]
        s._block(block)
        last = block.operations[len(block.operations) - 1].operation
        own = [s.shape(v) for v in last.operands]
        for mine, theirs in zip(shapes, own, strict=False):
            for a, b in zip(mine, theirs, strict=True):
                s.require_equal(op, a, b)
        shapes = shapes or own
    s._set(op, shapes)


def _fusion(s: ShapeAnalysis, op: ir.Operation) -> None:
    block = op.regions[0].blocks[0]
    for argument, value in zip(block.arguments, op.operands, strict=True):
        s._shapes[argument] = s.shape(value)
        if value in s._contents:
            s._contents[argument] = s._contents[value]
    s._block(block)
    last = block.operations[len(block.operations) - 1].operation
    s._set(op, [s.shape(v) for v in last.operands])


_REGION_RULES: dict[str, Callable[[ShapeAnalysis, ir.Operation], None]] = {
    "disc.fusion": _fusion,
    "stablehlo.case": _branches,
    "stablehlo.if": _branches,
    "stablehlo.while": _while,
}

_STATIC_CHECKS: dict[str, Callable[[ShapeAnalysis, ir.Operation], object]] = {
    name: RULES[name]
    for name in (
        *(f"stablehlo.{n}" for n in _ELEMENTWISE.split()),
        "stablehlo.dot_general",
        "stablehlo.dynamic_reshape",
        "stablehlo.select",
    )
}
"""Rules whose equalities matter even when the result type is static: an operand's may not be."""


def analyze(module: ir.Module | ir.Operation) -> ShapeAnalysis:
    """The shapes, facts and guards of every function of a module (ingested form: of `main`).

    Raises UnsupportedError for a size that depends on data or an op without a shape rule, and
    InvalidModuleError for sizes that contradict the specification.
    """
    analysis = ShapeAnalysis()
    root = module.operation if isinstance(module, ir.Module) else module
    for view in root.regions[0].blocks[0].operations:
        if view.operation.name == "func.func":
            analysis._function(view.operation)
    return analysis
