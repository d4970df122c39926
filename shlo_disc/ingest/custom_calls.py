"""Operands, results and attributes of the custom calls that this compiler reads.

MLIR's verifier knows nothing of them. Every later stage may rely on what is checked here.
A call of a target in :data:`_CHECKS` has the form that its row states.
Indices of shape operands and size attributes name operands that the call has.
A target whose name only our passes write is refused.

Source: StableHLO's `ExperimentalOps.h`; JAX's lowering rules; `jax/_src/lax/ann.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shlo_disc.base.errors import InvalidModuleError
from shlo_disc.base.records import dataclass
from shlo_disc.ingest.computations import computations
from shlo_disc.ingest.present import CHLO_CALLS, CONFIGURATION, INTERNAL, target_of
from shlo_disc.ir.builders import element_of, rank_of
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, ops_of, stablehlo
from shlo_disc.ir.ops import ffi


def check_custom_calls(module: ir.Module) -> None:
    """Every custom call has the form that its target wants; raises InvalidModuleError."""
    functions = computations(module)
    for op in ops_of(module, "stablehlo.custom_call"):
        call = _Call(op, target_of(op), list(op.operands), list(op.results), functions)
        if call.target.startswith(INTERNAL):
            raise call.error("has a name that only passes of shlo_disc may use")
        if call.target in _CHECKS:
            _CHECKS[call.target](call)
        _check_shape_operands(call)
        _check_size_attributes(call)


@dataclass(frozen=True)
class _Call:
    op: ir.Operation
    target: str
    operands: Sequence[ir.Value]
    results: Sequence[ir.Value]
    functions: Mapping[str, Any]

    def error(self, what: str) -> InvalidModuleError:
        return InvalidModuleError(f"{source_line(self.op)}: custom_call @{self.target} {what}")

    def need(self, condition: bool, what: str) -> None:
        """Raise InvalidModuleError unless the call is as `what` says."""
        if not condition:
            raise self.error(f"must have {what}")

    def counts(self, operands: int, results: int) -> None:
        """So many operands and results."""
        self.need(
            (len(self.operands), len(self.results)) == (operands, results),
            f"{operands} operands and {results} results, not {len(self.operands)} and "
            f"{len(self.results)}",
        )

    def arrays(self) -> None:
        """Operands and results are ranked tensors: nothing else is asked for rank or element."""
        for value in (*self.operands, *self.results):
            self.need(
                isinstance(value.type, ir.RankedTensorType),
                f"tensors as operands and results, not {value.type}",
            )

    def attribute(self, name: str, kind: Any) -> Any:
        """The attribute `name`, of the class `kind` of the bindings."""
        self.need(name in self.op.attributes, f"an attribute {name}")
        return self.cast(self.op.attributes[name], kind, name)

    def cast(self, value: ir.Attribute, kind: Any, name: str) -> Any:
        # Attributes of StableHLO have no class of their own until they are cast.
        known = getattr(kind, "isinstance", lambda value: isinstance(value, kind))
        self.need(known(value), f"an attribute {name} of another type than {value}")
        return kind(value)

    def sizes(self, k: int, count: int | None, what: str) -> None:
        """Operand `k` is a vector of integers with `count` elements; None: one integer."""
        kind = ir.RankedTensorType(self.operands[k].type)
        shape = [] if count is None else [count]
        self.need(
            _is_integer(kind.element_type) and list(kind.shape) == shape,
            f"{what} as operand {k}: a tensor of integers with shape {shape}, not {kind}",
        )

    def computation(self) -> Any:
        """The one function that the call names."""
        called = self.attribute("called_computations", ir.ArrayAttr)
        self.need(len(called) == 1, f"one called computation, not {len(called)}")
        name = self.cast(called[0], ir.FlatSymbolRefAttr, "called_computations").value
        self.need(name in self.functions, f"a computation that the module defines, not @{name}")
        function = self.functions[name]
        self.need(
            not function.is_external and len(function.operation.regions[0].blocks) == 1,
            f"a computation of one block, which @{name} is not",
        )
        return function

    def like(self, result: int, operand: int, but: int | None = None) -> None:
        """The result has the element type and the sizes of the operand, save in dimension `but`."""
        given, made = (
            ir.RankedTensorType(v.type) for v in (self.operands[operand], self.results[result])
        )
        same = given.element_type == made.element_type and given.rank == made.rank
        self.need(
            same
            and all(
                k == but or n == m or ir.ShapedType.get_dynamic_size() in (n, m)
                for k, (n, m) in enumerate(zip(given.shape, made.shape, strict=True))
            ),
            f"result {result} of the type of operand {operand}"
            + (f" but for dimension {but}" if but is not None else "")
            + f", which is {given}, not {made}",
        )


def _is_integer(element: ir.Type) -> bool:
    return isinstance(element, ir.IntegerType) and ir.IntegerType(element).width > 1


# --- each target ----------------------------------------------------------------------------------


def _dynamic_reduce_window(call: _Call) -> None:
    """Inputs, initial values, window, strides, two dilations, padding; the reducer is named."""
    count = len(call.results)
    call.need(count > 0, "a result")
    call.counts(2 * count + 5, count)
    call.arrays()
    rank = rank_of(call.operands[0])
    for k, what in enumerate(("the window", "strides", "base dilations", "window dilations")):
        call.sizes(2 * count + k, rank, what)
    padding = ir.RankedTensorType(call.operands[-1].type)
    call.need(
        _is_integer(padding.element_type) and list(padding.shape) == [rank, 2],
        f"a padding of integers with shape {[rank, 2]}, not {padding}",
    )
    reducer = call.computation()
    scalars = [ir.RankedTensorType.get([], element_of(result)) for result in call.results]
    call.need(
        (list(reducer.type.inputs), list(reducer.type.results)) == (2 * scalars, scalars),
        f"a computation of the elements of its results, not of type {reducer.type}",
    )
    for k in range(count):
        x, init, result = call.operands[k], call.operands[count + k], call.results[k]
        call.need(
            (rank_of(x), rank_of(init), rank_of(result)) == (rank, 0, rank),
            f"inputs and results of one rank and initial values of rank 0 ({x.type}, {init.type}, "
            f"{result.type})",
        )
        for value in (x, init):
            call.need(
                _is_promotable(element_of(value), element_of(result)),
                f"element types that the computation takes: {element_of(value)} is none",
            )


def _is_promotable(given: ir.Type, wide: ir.Type) -> bool:
    """True where the verifier of `reduce_window` lets a region take `wide` for `given`."""
    if given == wide or (isinstance(given, ir.FloatType) and isinstance(wide, ir.FloatType)):
        return True
    if isinstance(given, ir.IntegerType) and isinstance(wide, ir.IntegerType):
        return bool(ir.IntegerType(given).width <= ir.IntegerType(wide).width)
    if isinstance(given, ir.ComplexType) and isinstance(wide, ir.ComplexType):
        parts = (ir.ComplexType(t).element_type for t in (given, wide))
        return _is_promotable(*parts)
    return False


def _approx_top_k(call: _Call) -> None:
    """Arrays, what pads them, how many are kept where no attribute says so, sizes of results."""
    count = len(call.results)
    call.need(count > 0, "a result")
    config = call.attribute(CONFIGURATION, ir.DictAttr)
    is_static = "top_k" in config
    own = 2 * count + (not is_static)
    places = _shape_operands(call)
    call.counts(own + len(places), count)
    call.need(all(place >= own for place in places), "the sizes of its results behind the others")
    call.arrays()
    call.need("reduction_dim" in config, f"reduction_dim in {CONFIGURATION}")
    axis = int(call.cast(config["reduction_dim"], ir.IntegerAttr, "reduction_dim").value)
    rank = rank_of(call.operands[0])
    call.need(0 <= axis < rank, f"a reduction_dim from 0 to {rank - 1}, not {axis}")
    if is_static:
        k = int(call.cast(config["top_k"], ir.IntegerAttr, "top_k").value)
        size = ir.RankedTensorType(call.operands[0].type).shape[axis]
        call.need(k >= 0 and (size < 0 or k <= size), f"a top_k from 0 to {size}, not {k}")
    else:
        call.sizes(2 * count, None, "the number of elements kept")
    for n in range(count):
        call.like(n, n, but=axis)
        call.need(
            list(ir.RankedTensorType(call.operands[n].type).shape)
            == list(ir.RankedTensorType(call.operands[0].type).shape),
            "arrays of one shape",
        )
        size = ir.RankedTensorType(call.results[n].type).shape[axis]
        call.need(not is_static or size >= 0, "results whose reduced size the type gives")
    comparator = call.computation()
    scalars = [ir.RankedTensorType.get([], element_of(x)) for x in call.operands[:count]]
    truth = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))
    call.need(
        (list(comparator.type.inputs), list(comparator.type.results))
        == ([kind for kind in scalars for _ in range(2)], [truth]),
        f"a computation that compares two elements of each array, not {comparator.type}",
    )


def _dynamic_top_k(call: _Call) -> None:
    call.counts(2, 2)
    call.arrays()
    rank = rank_of(call.operands[0])
    call.need(rank > 0, "an array of at least one dimension")
    call.sizes(1, None, "the number of elements kept")
    call.like(0, 0, but=rank - 1)
    call.need(
        ir.RankedTensorType(call.results[1].type)
        == ir.RankedTensorType.get(
            list(ir.RankedTensorType(call.results[0].type).shape),
            ir.IntegerType.get_signless(32),
        ),
        "a second result of i32 with the shape of the first",
    )


def _dynamic_rng_bit_generator(call: _Call) -> None:
    call.counts(2, 2)
    call.arrays()
    call.attribute("rng_algorithm", stablehlo.RngAlgorithmAttr)
    call.need(rank_of(call.operands[0]) == 1, "a state of one dimension")
    call.like(0, 0)
    call.sizes(1, rank_of(call.results[1]), "the sizes of the bits")


_TRANSFORMS = {"FFT": (True, True), "IFFT": (True, True), "RFFT": (False, True),
               "IRFFT": (True, False)}  # fmt: skip
"""Whether operand and result are complex."""


def _dynamic_fft(call: _Call) -> None:
    lengths = len(call.operands) - 1
    call.need(1 <= lengths <= 3, f"one to three lengths, not {lengths}")
    call.counts(1 + lengths, 1)
    call.arrays()
    kind = call.attribute("backend_config", ir.StringAttr).value
    call.need(kind in _TRANSFORMS, f"a backend_config of {', '.join(_TRANSFORMS)}, not {kind!r}")
    values = (call.operands[0], call.results[0])
    call.need(
        rank_of(values[0]) == rank_of(values[1]) >= lengths,
        f"operand and result of one rank, at least {lengths}",
    )
    for k in range(lengths):
        call.sizes(1 + k, None, "a length")
    parts = set()
    for value, is_complex in zip(values, _TRANSFORMS[kind], strict=True):
        element = element_of(value)
        call.need(
            isinstance(element, ir.ComplexType) == is_complex,
            f"{'complex' if is_complex else 'real'} elements where {kind} has them, not {element}",
        )
        parts.add(ir.ComplexType(element).element_type if is_complex else element)
    call.need(
        len(parts) == 1 and parts <= {ir.F32Type.get(), ir.F64Type.get()},
        "elements of f32 or of f64",
    )


def _shape_assertion(call: _Call) -> None:
    call.need(len(call.operands) > 0, "a condition")
    call.counts(len(call.operands), 0)
    call.arrays()
    truth = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))
    call.need(call.operands[0].type == truth, f"a condition of {truth} as operand 0")
    for k in range(1, len(call.operands)):
        call.sizes(k, None, "a size")
    if "error_message" in call.op.attributes:
        call.attribute("error_message", ir.StringAttr)


def _elementwise(call: _Call) -> None:
    """A function of floats."""
    call.counts(1, 1)
    call.arrays()
    call.like(0, 0)
    element = element_of(call.operands[0])
    call.need(isinstance(element, ir.FloatType), f"floats, not {element}")


_CHECKS: dict[str, Callable[[_Call], None]] = {
    "ApproxTopK": _approx_top_k,
    "shape_assertion": _shape_assertion,
    "stablehlo.dynamic_approx_top_k": _approx_top_k,
    "stablehlo.dynamic_fft": _dynamic_fft,
    "stablehlo.dynamic_reduce_window": _dynamic_reduce_window,
    "stablehlo.dynamic_rng_bit_generator": _dynamic_rng_bit_generator,
    "stablehlo.dynamic_top_k": _dynamic_top_k,
    **dict.fromkeys(CHLO_CALLS, _elementwise),
}


# --- attributes of any target ---------------------------------------------------------------------

_SHAPE_OPERANDS = "indices_of_shape_operands"


def _shape_operands(call: _Call) -> list[int]:
    if _SHAPE_OPERANDS not in call.op.attributes:
        return []
    indices = call.attribute(_SHAPE_OPERANDS, ir.DenseIntElementsAttr)
    return [int(i) for i in indices]


def _check_shape_operands(call: _Call) -> None:
    """One operand a result, which are its sizes."""
    places = _shape_operands(call)
    if _SHAPE_OPERANDS not in call.op.attributes:
        return
    call.arrays()
    call.need(
        len(places) == len(call.results) == len(set(places)),
        f"{_SHAPE_OPERANDS} with an operand of its own for each result",
    )
    for place, result in zip(places, call.results, strict=True):
        call.need(
            0 <= place < len(call.operands), f"{_SHAPE_OPERANDS} of operands that it has: {place}"
        )
        call.sizes(place, rank_of(result), "the sizes of a result")


def _check_size_attributes(call: _Call) -> None:
    """For each name of an integer attribute: an operand and one of its dimensions."""
    if ffi.SIZE_ATTRIBUTES not in call.op.attributes:
        return
    config = call.attribute(CONFIGURATION, ir.DictAttr)
    data = [k for k in range(len(call.operands)) if k not in _shape_operands(call)]
    for entry in call.attribute(ffi.SIZE_ATTRIBUTES, ir.DictAttr):
        given = call.cast(entry.attr, ir.DenseIntElementsAttr, ffi.SIZE_ATTRIBUTES)
        place = [int(i) for i in given]
        call.need(
            entry.name in config and isinstance(config[entry.name], ir.IntegerAttr),
            f"an integer {entry.name} in {CONFIGURATION}, since {ffi.SIZE_ATTRIBUTES} has one",
        )
        call.need(
            len(place) == 2
            and place[0] in data
            and isinstance(call.operands[place[0]].type, ir.RankedTensorType)
            and 0 <= place[1] < rank_of(call.operands[place[0]]),
            f"an operand and its dimension as {ffi.SIZE_ATTRIBUTES}.{entry.name}, not {place}",
        )
