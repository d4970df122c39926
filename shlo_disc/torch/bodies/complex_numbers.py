"""Ops of complex numbers: torch-mlir lowers some of them as if the imaginary part were 0.

    %y = aten.mul(%z, %w)    ==>    %y = multiply %z, %w : complex<f32>

An op with complex operands is of this table, moves elements only, or is refused.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import Array
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import Body, BodyCall, aligned, by_op
from shlo_disc.torch.bodies.totals import cumprod

aten, prims = torch.ops.aten, torch.ops.prims


def is_complex(node: torch.fx.Node) -> bool:
    """True for a node that gives complex tensors."""
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(v, torch.Tensor) and v.dtype.is_complex for v in values)


def _unary(name: str) -> Body:
    """A function of `self`; `abs`, `real` and `imag` have real results."""
    return lambda call: [call["self"].apply(name, element=call.element)]


def _has_parts(element: ir.Type) -> bool:
    return isinstance(element, ir.ComplexType)


def _real(element: ir.Type) -> ir.Type:
    return ir.ComplexType(element).element_type


def _parts(z: Array) -> tuple[Array, Array]:
    element = _real(z.element)
    return z.apply("real", element=element), z.apply("imag", element=element)


def _joined(re: Array, im: Any) -> Array:
    return re.apply("complex", im, element=ir.ComplexType.get(re.element))


def _binary(name: str, *operands: str) -> Body:
    def body(call: BodyCall) -> list[Array]:
        a, b = aligned(call, *operands)
        alpha = call.get("alpha", 1)
        return [a.apply(name, b if alpha == 1 else b * alpha)]

    return body


def _reversed_subtract(call: BodyCall) -> list[Array]:
    if call["alpha"] != 1:
        raise UnsupportedError("with a factor is not covered")
    a, b = aligned(call, "other", "self")
    return [a - b]


def _equal(call: BodyCall) -> tuple[Array, Array]:
    dtypes = [n.meta["val"].dtype for n in call.node.all_input_nodes]
    wide = torch.complex128 in dtypes
    element = ir.ComplexType.get(ir.F64Type.get() if wide else ir.F32Type.get())
    a, b = aligned(call, "self", "other", element=element)
    return a, b


def _eq(call: BodyCall) -> list[Array]:
    a, b = _equal(call)
    return [a.equals(b)]


def _ne(call: BodyCall) -> list[Array]:
    a, b = _equal(call)
    return [a.differs(b)]


def _conjugate(call: BodyCall) -> list[Array]:
    re, im = _parts(call["self"])
    return [_joined(re, -im)]


def _angle(call: BodyCall) -> list[Array]:
    re, im = _parts(call["self"])
    return [im.apply("atan2", re)]


def _complex(call: BodyCall) -> list[Array]:
    return [_joined(*aligned(call, "real", "imag", element=_real(call.element)))]


def _polar(call: BodyCall) -> list[Array]:
    size, angle = aligned(call, "abs", "angle", element=_real(call.element))
    return [_joined(size * angle.apply("cosine"), size * angle.apply("sine"))]


def _view_as_real(call: BodyCall) -> list[Array]:
    parts = _parts(call["self"])
    return [Array.join([part.reshape([*part.sizes, 1]) for part in parts], parts[0].rank)]


def _view_as_complex(call: BodyCall) -> list[Array]:
    x = call["self"]
    *sizes, _ = x.sizes
    none = [0] * len(sizes)
    parts = (x.slice([*none, place], [*sizes, place + 1]).reshape(sizes) for place in (0, 1))
    return [_joined(*parts)]


def _mean(call: BodyCall) -> list[Array]:
    """`aten.mean` over `dim`, all without it."""
    sizes, (total,) = call["self"].sizes, _total(call)
    count = Array.size(math.prod(sizes[axis] for axis in _axes(call)))
    return [total / count.to(total.element)]


def _axes(call: BodyCall) -> list[int]:
    rank, dims = call["self"].rank, call.get("dim", None)
    dims = [dims] if isinstance(dims, int) else dims
    return sorted({d % rank for d in dims} if dims and rank else range(rank))


def _like(number: complex | None) -> Body:
    """`number` in the shape of an argument; None: the argument `fill_value`."""

    def body(call: BodyCall) -> list[Array]:
        value = call["fill_value"] if number is None else number
        if isinstance(value, Array):
            raise UnsupportedError("of a size is not covered")
        own = value if _has_parts(call.element) else complex(value).real
        return [Array.constant(own, call.element).spread([], call["self"])]

    return body


def _number(call: BodyCall) -> list[Array]:
    """`aten.scalar_tensor`, of a size too."""
    number = call["s"]
    is_array = isinstance(number, Array)
    return [number.to(call.element) if is_array else Array.constant(number, call.element)]


def _copy(call: BodyCall) -> list[Array]:
    """To another element type, or the same; of a complex number the real part."""
    x, element = call.get("self", None) or call["a"], call.element
    if _has_parts(x.element) and not _has_parts(element):
        x = _parts(x)[0]
    elif _has_parts(element) and not _has_parts(x.element):
        if ir.FloatType(_real(element)).width < 32:
            raise UnsupportedError("of 16-bit floats is not covered")
        return [_joined(x.to(_real(element)), 0)]
    return [x.to(element)]


def _reduction(name: str) -> Body:
    """An op over `dim`, all without it."""

    def body(call: BodyCall) -> list[Array]:
        z, axes = call["self"].to(call.element), _axes(call)
        total = z.reduce(name, axes)
        if call.get("keepdim", False):
            total = total.reshape([1 if k in axes else n for k, n in enumerate(z.sizes)])
        return [total]

    return body


_total = _reduction("add")


_FUNCTIONS = {
    "abs": "abs", "cos": "cosine", "exp": "exponential", "expm1": "exponential_minus_one",
    "imag": "imag", "log": "log", "log1p": "log_plus_one", "neg": "negate", "real": "real",
    "rsqrt": "rsqrt", "sgn": "sign", "sigmoid": "logistic", "sin": "sine", "sqrt": "sqrt",
    "tan": "tan", "tanh": "tanh",
}  # fmt: skip
"""Op -> the same of StableHLO."""

_CHLO = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh")

COMPLEX = by_op(
    *((_unary(name), (getattr(aten, op).default,)) for op, name in _FUNCTIONS.items()),
    *((_unary(f"chlo.{op}"), (getattr(aten, op).default,)) for op in _CHLO),
    (_angle, (aten.angle.default,)),
    (_binary("add", "self", "other"), (aten.add.Scalar, aten.add.Tensor)),
    (_binary("divide", "self", "other"), (aten.div.Scalar, aten.div.Tensor)),
    (_binary("multiply", "self", "other"), (aten.mul.Scalar, aten.mul.Tensor)),
    (_binary("power", "self", "exponent"), (aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor)),
    (_binary("subtract", "self", "other"), (aten.sub.Scalar, aten.sub.Tensor)),
    (_complex, (aten.complex.default,)),
    (_conjugate, (aten._conj.default, aten._conj_physical.default, aten.conj_physical.default)),
    (_copy, (aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout,
             prims.convert_element_type.default)),
    (_eq, (aten.eq.Scalar, aten.eq.Tensor)),
    (_like(0), (aten.zeros_like.default,)),
    (_like(1), (aten.ones_like.default,)),
    (_like(None), (aten.full_like.default,)),
    (_mean, (aten.mean.default, aten.mean.dim)),
    (_ne, (aten.ne.Scalar, aten.ne.Tensor)),
    (_number, (aten.scalar_tensor.default,)),
    (_polar, (aten.polar.default,)),
    (_reduction("multiply"), (aten.prod.default, aten.prod.dim_int)),
    (_reversed_subtract, (aten.rsub.Scalar,)),
    (_total, (aten.sum.default, aten.sum.dim_IntList)),
    (_unary("imag"), (prims.imag.default,)),
    (_unary("real"), (prims.real.default,)),
    (_view_as_complex, (aten.view_as_complex.default,)),
    (_view_as_real, (aten.view_as_real.default,)),
    (cumprod, (aten.cumprod.default,)),
    (lambda call: [1 / call["self"]], (aten.reciprocal.default,)),
)  # fmt: skip
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
