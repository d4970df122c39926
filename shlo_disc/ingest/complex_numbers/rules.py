"""One rule for every StableHLO op that may be complex, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.base.errors import ELSEWHERE, UnsupportedError
from shlo_disc.ingest.complex_numbers import arithmetic, boundary, products, regions, transforms
from shlo_disc.ingest.complex_numbers.planes import (
    Planes,
    is_complex,
    joined,
    pairs_of,
    pairs_type,
    plane_type,
    planes_of,
    taken,
)
from shlo_disc.ingest.complex_numbers.reals import Frame, Part, Truth
from shlo_disc.ingest.complex_numbers.rewriter import (
    New,
    Rewriter,
    Rule,
    attributes_of,
    on_each_plane,
)
from shlo_disc.ir.builders import convert, create
from shlo_disc.ir.comparisons import comparison
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.ops.ffi import is_ffi_call

# --- functions of elements ------------------------------------------------------------------------


def _function(function: Callable[..., Part]) -> Rule:
    def rule(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
        return [arithmetic.on_planes(function, *map(rewriter.planes, op.operands))]

    return rule


def _abs(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    z = rewriter.planes(op.operands[0])
    frame = Frame(z.re)
    return [arithmetic.absolute_of((frame.of(z.re), frame.of(z.im))).value]


def _complex(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    return [Planes(*op.operands)]


def _real(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    (z,) = op.operands
    return [rewriter.planes(z).re if is_complex(z.type) else z]


def _imag(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    (z,) = op.operands
    return [rewriter.planes(z).im if is_complex(z.type) else Frame(z).constant(0.0).value]


def _compare(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """Equality of both parts, or lexicographic order."""
    a, b = (rewriter.planes(v) for v in op.operands)
    frame = Frame(a.re)
    z, w = ((frame.of(p.re), frame.of(p.im)) for p in (a, b))
    return [_COMPARISONS[comparison(op)](z, w).value]


_COMPARISONS: dict[str, Callable[[Part, Part], Truth]] = {
    "EQ": lambda z, w: z[0].equals(w[0]) & z[1].equals(w[1]),
    "NE": lambda z, w: z[0].differs(w[0]) | z[1].differs(w[1]),
    "LT": arithmetic.less,
    "LE": lambda z, w: arithmetic.less(z, w, or_equal=True),
    "GT": lambda z, w: arithmetic.less(w, z),
    "GE": lambda z, w: arithmetic.less(w, z, or_equal=True),
}


def _clamp(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """min(max(x, low), high) in lexicographic order; low and high may be scalars."""
    low, x, high = (rewriter.planes(v) for v in op.operands)
    frame = Frame(x.re)

    def wide(z: Planes) -> Part:
        return frame.broadcast(z.re), frame.broadcast(z.im)

    above = arithmetic.BINARY["stablehlo.maximum"](wide(x), wide(low))
    re, im = arithmetic.BINARY["stablehlo.minimum"](above, wide(high))
    return [Planes(re.value, im.value)]


def _convert(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """Of a real number the imaginary part is zero; a complex number loses it."""
    (value,), kind = op.operands, op.results[0].type
    plane = plane_type(kind)
    if not is_complex(kind):
        return [convert(rewriter.planes(value).re, kind)]
    if is_complex(value.type):
        z = rewriter.planes(value)
        return [Planes(convert(z.re, plane), convert(z.im, plane))]
    re = convert(value, plane)
    return [Planes(re, Frame(re).constant(0.0).value)]


def _bitcast_convert(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """complex<f64> is two of complex<f32>: the bits of the real part, then of the imaginary one."""
    z = rewriter.planes(op.operands[0])
    plane = plane_type(op.results[0].type)
    if z.type == plane:
        return [z]
    if plane.rank > z.type.rank:  # each f64 is a pair of f32
        re, im = (create(op.name, [part], plane) for part in (z.re, z.im))
        last = plane.rank - 1
        low, high = (joined(taken(re, last, k), taken(im, last, k), last) for k in (0, 1))
        return [Planes(low, high)]
    last = z.type.rank - 1
    pairs = [joined(taken(z.re, last, k), taken(z.im, last, k), last) for k in (0, 1)]
    return [Planes(*(create(op.name, [pair], plane) for pair in pairs))]


# --- sources and shapes ---------------------------------------------------------------------------


def _iota(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    re = create(
        op.name, list(op.operands), plane_type(op.results[0].type), **dict(op.attributes.items())
    )
    return [Planes(re, Frame(re).constant(0.0).value)]


def _dimension_size(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    z = rewriter.planes(op.operands[0])
    return [create(op.name, [z.re], op.results[0].type, **dict(op.attributes.items()))]


def _custom_call(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """A call of an XLA FFI handler takes pairs, which are complex numbers in memory."""
    if is_ffi_call(op):
        new = ir.Operation.create(
            op.name,
            results=[pairs_type(r.type) if is_complex(r.type) else r.type for r in op.results],
            operands=[
                pairs_of(rewriter.planes(v)) if is_complex(v.type) else v for v in op.operands
            ],
            attributes=attributes_of(op),
        )
        return [
            planes_of(value) if is_complex(result.type) else value
            for result, value in zip(op.results, new.results, strict=True)
        ]
    target = ir.StringAttr(op.attributes["call_target_name"]).value
    if target == transforms.DYNAMIC_FFT:
        return transforms.dynamic_fft(rewriter, op)
    raise UnsupportedError(
        f"{source_line(op)}: custom_call @{target} of complex numbers is not compiled; {ELSEWHERE}"
    )


RULES: dict[str, Rule] = {
    **{name: _function(f) for name, f in (arithmetic.UNARY | arithmetic.BINARY).items()},
    **{
        f"stablehlo.{name}": on_each_plane
        for name in (
            "add", "broadcast_in_dim", "concatenate", "dynamic_broadcast_in_dim",
            "dynamic_gather", "dynamic_pad", "dynamic_reshape", "dynamic_slice",
            "dynamic_update_slice", "gather", "negate", "optimization_barrier", "pad",
            "real_dynamic_slice", "reshape", "reverse", "select", "slice", "subtract",
            "transpose",
        )
    },
    "stablehlo.abs": _abs,
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.case": regions.control_flow,
    "stablehlo.clamp": _clamp,
    "stablehlo.compare": _compare,
    "stablehlo.complex": _complex,
    "stablehlo.constant": boundary.constant,
    "stablehlo.convert": _convert,
    "stablehlo.convolution": products.convolution,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.dot_general": products.dot_general,
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.fft": transforms.fft,
    "stablehlo.get_dimension_size": _dimension_size,
    "stablehlo.if": regions.control_flow,
    "stablehlo.imag": _imag,
    "stablehlo.iota": _iota,
    "stablehlo.real": _real,
    "stablehlo.reduce": regions.reduction,
    "stablehlo.reduce_window": regions.reduction,
    "disc.reduce_window": regions.reduction,
    "stablehlo.return": regions.terminator,
    "stablehlo.scatter": regions.scatter,
    "stablehlo.sort": regions.sort,
    "stablehlo.while": regions.control_flow,
    "func.return": boundary.results_of_main,
}  # fmt: skip
"""What stands for the results of an op whose operands or results are complex."""
