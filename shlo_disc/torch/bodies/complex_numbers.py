"""Ops of complex numbers: torch-mlir lowers some of them as if the imaginary part were 0.

    %y = aten.mul(%z, %w)    ==>    %y = multiply %z, %w : complex<f32>

An op with complex operands is of this table, moves elements only, or is refused.
"""

from __future__ import annotations

from typing import Any

import torch

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import constant, converted, joined, sliced
from shlo_disc.ingest.size_arithmetic import product, reshaped, size_of, sizes_of, value_of
from shlo_disc.ingest.size_values import binary
from shlo_disc.ir.builders import compare, create, element_of, reduced, scalar
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import Body, BodyCall, aligned, spread, typed
from shlo_disc.torch.bodies.totals import cumprod

aten, prims = torch.ops.aten, torch.ops.prims


def is_complex(node: torch.fx.Node) -> bool:
    """True for a node that gives complex tensors."""
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(v, torch.Tensor) and v.dtype.is_complex for v in values)


def _unary(name: str) -> Body:
    def body(call: BodyCall) -> list[ir.Value]:
        x = call["self"]
        return [create(name, [x], x.type)]

    return body


def _part(name: str) -> Body:
    """`abs`, `real` or `imag`: a real result."""

    def body(call: BodyCall) -> list[ir.Value]:
        z = call["self"]
        return [create(f"stablehlo.{name}", [z], typed(z, _real(z)))]

    return body


def _real(z: ir.Value) -> ir.Type:
    return ir.ComplexType(element_of(z)).element_type


def _parts(z: ir.Value) -> tuple[ir.Value, ir.Value]:
    kind = typed(z, _real(z))
    return create("stablehlo.real", [z], kind), create("stablehlo.imag", [z], kind)


def _joined(re: ir.Value, im: ir.Value) -> ir.Value:
    return create("stablehlo.complex", [re, im], typed(re, ir.ComplexType.get(element_of(re))))


def _binary(name: str, *operands: str) -> Body:
    def body(call: BodyCall) -> list[ir.Value]:
        a, b = aligned(call, *operands)
        alpha = call.given("alpha") if "alpha" in call.names else 1
        if alpha != 1:
            b = binary("multiply", b, spread(scalar(alpha, element_of(b)), [], b))
        return [binary(name, a, b)]

    return body


def _reversed_subtract(call: BodyCall) -> list[ir.Value]:
    a, b = aligned(call, "other", "self")
    if call.given("alpha") != 1:
        raise UnsupportedError("with a factor is not covered")
    return [binary("subtract", a, b)]


def _equal(direction: str) -> Body:
    def body(call: BodyCall) -> list[ir.Value]:
        dtypes = [n.meta["val"].dtype for n in call.node.all_input_nodes]
        wide = torch.complex128 in dtypes
        element = ir.ComplexType.get(ir.F64Type.get() if wide else ir.F32Type.get())
        a, b = aligned(call, "self", "other", element=element)
        return [compare(direction, a, b)]

    return body


def _conjugate(call: BodyCall) -> list[ir.Value]:
    re, im = _parts(call["self"])
    return [_joined(re, create("stablehlo.negate", [im], im.type))]


def _angle(call: BodyCall) -> list[ir.Value]:
    re, im = _parts(call["self"])
    return [create("stablehlo.atan2", [im, re], re.type)]


def _reciprocal(call: BodyCall) -> list[ir.Value]:
    z = call["self"]
    return [binary("divide", spread(scalar(1, element_of(z)), [], z), z)]


def _complex(call: BodyCall) -> list[ir.Value]:
    element = ir.ComplexType(ir.RankedTensorType(call.results[0]).element_type).element_type
    re, im = aligned(call, "real", "imag", element=element)
    return [_joined(re, im)]


def _polar(call: BodyCall) -> list[ir.Value]:
    element = ir.ComplexType(ir.RankedTensorType(call.results[0]).element_type).element_type
    size, angle = aligned(call, "abs", "angle", element=element)
    parts = (create(f"stablehlo.{name}", [angle], angle.type) for name in ("cosine", "sine"))
    re, im = (binary("multiply", size, part) for part in parts)
    return [_joined(re, im)]


def _view_as_real(call: BodyCall) -> list[ir.Value]:
    parts = _parts(call["self"])
    sizes = sizes_of(parts[0])
    return [joined([reshaped(part, [*sizes, 1]) for part in parts], len(sizes))]


def _view_as_complex(call: BodyCall) -> list[ir.Value]:
    x = call["self"]
    *sizes, _ = sizes_of(x)
    none = [0] * len(sizes)
    parts = [sliced(x, [*none, place], [*sizes, place + 1]) for place in (0, 1)]
    return [_joined(*(reshaped(part, sizes) for part in parts))]


def _mean(call: BodyCall) -> list[ir.Value]:
    """`aten.mean` over `dim`, all without it."""
    z, (total,) = call["self"], _total(call)
    count = product([size_of(z, axis) for axis in _axes(call)])
    count = converted(value_of(count), element_of(total))
    return [binary("divide", total, spread(count, [], total))]


def _axes(call: BodyCall) -> list[int]:
    rank = ir.RankedTensorType(call["self"].type).rank
    dims = call["dim"] if "dim" in call.names else None
    dims = [dims] if isinstance(dims, int) else dims
    return sorted({d % rank for d in dims} if dims and rank else range(rank))


def _like(number: complex | None) -> Body:
    """`number` in the shape of an argument; None: the argument `fill_value`."""

    def body(call: BodyCall) -> list[ir.Value]:
        element = ir.RankedTensorType(call.results[0]).element_type
        value = call.given("fill_value") if number is None else number
        if isinstance(value, torch.fx.Node):
            raise UnsupportedError("of a size is not covered")
        is_one = isinstance(element, ir.ComplexType)
        one = constant(value if is_one else complex(value).real, element)
        return [spread(one, [], call["self"])]

    return body


def _number(call: BodyCall) -> list[ir.Value]:
    """`aten.scalar_tensor`, of a size too."""
    number, element = call["s"], ir.RankedTensorType(call.results[0]).element_type
    if isinstance(number, ir.Value):
        return [converted(number, element)]
    return [scalar(number, element)]


def _copy(call: BodyCall) -> list[ir.Value]:
    """To another element type, or the same; of a complex number the real part."""
    x = call["self" if "self" in call.names else "a"]
    element = ir.RankedTensorType(call.results[0]).element_type
    if isinstance(element_of(x), ir.ComplexType) and not isinstance(element, ir.ComplexType):
        x = _parts(x)[0]
    elif isinstance(element, ir.ComplexType) and not isinstance(element_of(x), ir.ComplexType):
        half = ir.ComplexType(element).element_type
        if ir.FloatType(half).width < 32:
            raise UnsupportedError("of 16-bit floats is not covered")
        re = converted(x, half)
        return [_joined(re, spread(constant(0, element_of(re)), [], re))]
    return [converted(x, element)]


def _reduction(name: str, start: int) -> Body:
    """An op over `dim`, all without it."""

    def body(call: BodyCall) -> list[ir.Value]:
        element = ir.RankedTensorType(call.results[0]).element_type
        z = converted(call["self"], element)
        axes = _axes(call)
        total = reduced(z, axes, name, scalar(start, element))
        if "keepdim" in call.names and call.given("keepdim"):
            total = reshaped(total, [1 if k in axes else n for k, n in enumerate(sizes_of(z))])
        return [total]

    return body


_total = _reduction("add", 0)


COMPLEX: dict[Any, Body] = {
    **{
        getattr(aten, name).default: _unary(f"chlo.{name}")
        for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh")
    },
    **{
        getattr(aten, name).default: _unary(f"stablehlo.{op}")
        for name, op in {
            "cos": "cosine",
            "exp": "exponential",
            "expm1": "exponential_minus_one",
            "log": "log",
            "log1p": "log_plus_one",
            "neg": "negate",
            "rsqrt": "rsqrt",
            "sgn": "sign",
            "sigmoid": "logistic",
            "sin": "sine",
            "sqrt": "sqrt",
            "tan": "tan",
            "tanh": "tanh",
        }.items()
    },
    aten.abs.default: _part("abs"),
    aten.add.Scalar: _binary("add", "self", "other"),
    aten.add.Tensor: _binary("add", "self", "other"),
    aten.angle.default: _angle,
    aten._conj.default: _conjugate,
    aten._conj_physical.default: _conjugate,
    aten.conj_physical.default: _conjugate,
    aten.complex.default: _complex,
    aten.cumprod.default: cumprod,
    aten.div.Scalar: _binary("divide", "self", "other"),
    aten.div.Tensor: _binary("divide", "self", "other"),
    aten.eq.Scalar: _equal("EQ"),
    aten.eq.Tensor: _equal("EQ"),
    aten.imag.default: _part("imag"),
    aten._to_copy.default: _copy,
    aten.full_like.default: _like(None),
    aten.mean.default: _mean,
    aten.mean.dim: _mean,
    aten.ones_like.default: _like(1),
    prims.convert_element_type.default: _copy,
    prims.imag.default: _part("imag"),
    prims.real.default: _part("real"),
    aten.to.dtype: _copy,
    aten.to.dtype_layout: _copy,
    aten.zeros_like.default: _like(0),
    aten.mul.Scalar: _binary("multiply", "self", "other"),
    aten.mul.Tensor: _binary("multiply", "self", "other"),
    aten.ne.Scalar: _equal("NE"),
    aten.ne.Tensor: _equal("NE"),
    aten.polar.default: _polar,
    aten.pow.Tensor_Scalar: _binary("power", "self", "exponent"),
    aten.pow.Tensor_Tensor: _binary("power", "self", "exponent"),
    aten.prod.default: _reduction("multiply", 1),
    aten.prod.dim_int: _reduction("multiply", 1),
    aten.real.default: _part("real"),
    aten.reciprocal.default: _reciprocal,
    aten.rsub.Scalar: _reversed_subtract,
    aten.scalar_tensor.default: _number,
    aten.sub.Scalar: _binary("subtract", "self", "other"),
    aten.sub.Tensor: _binary("subtract", "self", "other"),
    aten.sum.default: _total,
    aten.sum.dim_IntList: _total,
    aten.view_as_complex.default: _view_as_complex,
    aten.view_as_real.default: _view_as_real,
}
"""Overload -> its body where an argument or the result is complex."""

MOVES = frozenset({
    aten.alias.default, aten.bmm.default, aten.cat.default, aten.clone.default,
    aten.detach.default, aten.expand.default, aten.flip.default,
    aten.index_select.default, aten.matmul.default, aten.mm.default, aten.permute.default,
    aten.reshape.default, aten.select.int, aten.slice.Tensor, aten.split.Tensor,
    aten.split_with_sizes.default, aten.squeeze.dim, aten.squeeze.dims, aten.stack.default,
    aten.t.default, aten.transpose.int, aten.unsqueeze.default, aten.view.default,
    aten.where.self, aten._unsafe_view.default, prims.squeeze.default, prims.view_of.default,
})  # fmt: skip
"""Ops that torch-mlir lowers rightly for elements of any type: tests compare each with PyTorch."""
