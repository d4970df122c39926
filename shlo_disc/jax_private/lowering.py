"""A function lowered for our ingest, by JAX's lowering rules and some of ours."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src import config as _config
from jax._src import core as _core
from jax._src.interpreters import mlir as _mlir
from jax._src.lax import fft as _fft
from jax._src.lax import lax as _lax
from jax._src.lax import linalg as _linalg_module
from jax._src.lax import parallel as _parallel
from jax._src.lax import special as _special
from jax._src.lax import windowed_reductions as _windowed
from jax._src.lax.control_flow import conditionals as _conditionals
from jax._src.lib.mlir import ir as _ir  # type: ignore[attr-defined]
from jax._src.lib.mlir.dialects import chlo as _chlo
from jax._src.lib.mlir.dialects import hlo as _hlo  # type: ignore[attr-defined]
from jaxlib import lapack as _lapack_module

from shlo_disc.base.callbacks import PythonCallback
from shlo_disc.base.errors import ForkError
from shlo_disc.jax_private.callbacks import FOR_US
from shlo_disc.jax_private.calls import CALLS, called
from shlo_disc.jax_private.extend import Literal
from shlo_disc.jax_private.jaxprs import bind_equation, shaped_array
from shlo_disc.jax_private.sizes import DimExpr, min_size
from shlo_disc.jax_private.weights import weights_of


def _whole(name: str, op: Any) -> Any:
    """A lowering rule: a custom call that our ingest turns into the op `name`, which `op` makes."""
    target = name

    def rule(context: Any, x: Any, **asked: Any) -> Any:
        if any(value is not None for value in asked.values()):
            # An accuracy or a result type (JAX 0.12): JAX's own rule knows what to do.
            return _lax._nary_lower_hlo(op, context, x, **asked)
        call = _hlo.CustomCallOp([x.type], [x], call_target_name=_ir.StringAttr.get(target))
        return list(call.results)

    return rule


def _reduction(reducer: Any, prim: Any, function: Any) -> Any:
    """A lowering rule of a collective: over axes of the array alone it is a plain reduction.

    `jax.vmap` with an `axis_name` makes such collectives. JAX's own rule reads their shape as
    numbers.
    """

    def rule(context: Any, x: Any, *, axes: Any, axis_index_groups: Any) -> Any:
        if all(isinstance(axis, int) for axis in axes):
            lowered = _mlir.lower_fun(lambda x: function(x, axes), multiple_results=False)
            return lowered(context, x)
        original: Any = _parallel._allreduce_lowering
        return original(
            reducer, function, context, x, axes=axes, axis_index_groups=axis_index_groups
        )

    return prim, rule


_REDUCTIONS = (
    _reduction(_lax.add_p, _parallel.psum_p, _lax.reduce_sum),
    _reduction(_lax.max_p, _parallel.pmax_p, _lax.reduce_max),
    _reduction(_lax.min_p, _parallel.pmin_p, _lax.reduce_min),
)


def _inlined(context: Any, *args: Any, **params: Any) -> Any:
    """The lowering rule of `lax.composite`: what it computes; JAX's own has no symbolic sizes."""
    jaxpr = params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"]  # since JAX 0.11
    rule = _mlir.lower_fun(_core.jaxpr_as_fun(jaxpr), multiple_results=True)
    return rule(context, *args)


def _window(context: Any, *args: Any, jaxpr: Any, consts: Any, **params: Any) -> Any:
    """JAX's lowering rule of `reduce_window`, of a reducer without calls.

    For a window of symbolic size the reducer is a function. JAX corrupts memory where that one
    calls another.
    """
    kinds = [shaped_array(v.aval.shape, v.aval.dtype) for v in jaxpr.invars]
    flat = jax.make_jaxpr(lambda *values: _run_inlined(jaxpr, consts, values))(*kinds)
    rule: Any = _windowed._generic_reduce_window_lower
    return rule(context, *args, jaxpr=flat.jaxpr, consts=flat.consts, **params)


def _run_inlined(jaxpr: Any, consts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr, whose calls are not equations of the trace."""
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, values, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        if equation.primitive.name in CALLS:
            body = called(equation)
            results = _run_inlined(body.jaxpr, body.consts, inputs)
        else:
            results = bind_equation(equation, inputs)
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


_linalg: Any = _linalg_module  # untyped

_lapack: Any = _lapack_module


def _qr(a: Any, *, pivoting: bool, full_matrices: bool, use_magma: bool | None) -> Any:
    """What JAX's `_qr_lowering` computes, without asking which of the sizes is the larger one."""
    *batch, m, n = a.shape
    if all(map(_core.is_constant_dim, (m, n))):
        return _linalg._qr_lowering(
            a, pivoting=pivoting, full_matrices=full_matrices, use_magma=use_magma
        )
    order: tuple[Any, ...] = ()
    if pivoting:
        free = jax.lax.full((*batch, n), 0, np.dtype(np.int32))
        r, pivots, taus = _linalg.geqp3(a, free, use_magma=use_magma)
        order = (jax.lax.max(pivots - 1, np.int32(0)),)  # LAPACK is not called for no rows
    else:
        r, taus = _linalg.geqrf(a)
    k = min_size(m, n)
    q = r[..., :k]
    if full_matrices:
        pads = [(0, 0, 0)] * (len(batch) + 1) + [(0, m - k, 0)]
        q = jax.lax.pad(q, np.zeros((), r.dtype), pads)
    else:
        r = r[..., :k, :]
    return _linalg.householder_product(q, taus), _linalg._triu(r), *order


def _hessenberg(context: Any, a: Any) -> Any:
    """JAX's `_hessenberg_cpu_lowering`, for symbolic sizes, too: LAPACK takes the size as an
    attribute, which `shlo_disc.size_attributes` gives as (operand, dimension).
    """
    (given,) = context.avals_in
    *batch, n, _ = given.shape
    if _core.is_constant_dim(n):
        return _linalg._hessenberg_cpu_lowering(context, a)
    info = _core.ShapedArray(tuple(batch), np.dtype(np.int32))
    rule = _linalg._linalg_ffi_lowering(
        _lapack.prepare_lapack_call("gehrd_ffi", given.dtype),
        avals_out=[*context.avals_out, info],
        operand_output_aliases={0: 0},
    )
    results = rule(context, a, low=np.int32(1), high=np.int32(0))
    place = _mlir.dense_int_elements([0, len(batch)])
    results[0].owner.attributes["shlo_disc.size_attributes"] = _ir.DictAttr.get({"high": place})
    zero = _mlir.full_like_aval(context, 0, info)
    ok = _mlir.compare_hlo(results[2], zero, "EQ", "SIGNED")
    return [
        _linalg._replace_not_ok_with_nan(context, tuple(batch), ok, x, aval)
        for x, aval in zip(results[:2], context.avals_out, strict=True)
    ]


def _dynamic_fft(context: Any, x: Any, *, fft_type: Any, fft_lengths: Any) -> Any:
    """JAX's lowering rule of `fft`; a custom call of ours where a length is a symbol."""
    if all(map(_core.is_constant_dim, fft_lengths)):
        return _fft._fft_lowering(context, x, fft_type=fft_type, fft_lengths=fft_lengths)  # type: ignore[no-untyped-call]
    (result,) = context.avals_out
    lengths = _mlir.eval_dynamic_shape_as_vals(context, fft_lengths)
    call = _mlir.custom_call(
        "stablehlo.dynamic_fft",
        result_types=[_mlir.aval_to_ir_type(context.module_context, result)],
        operands=[x, *lengths],
        backend_config=fft_type.name,
    )
    return call.results


def _branch_on(platform: str, platforms: Sequence[Any]) -> int:
    """Which branch of `lax.platform_dependent` a platform takes: its own, else the default."""
    for index, named in enumerate(platforms):
        if named is None or platform in named:
            return index
    known = ", ".join(sorted(name for named in platforms for name in named))
    raise NotImplementedError(
        f"lax.platform_dependent has no branch for {platform}, and no default; it has {known}"
    )


@functools.cache  # JAX keeps what it lowered by these rules
def _platform_rules(platform: str) -> tuple[tuple[Any, Any], ...]:
    """Lowering rules by which `lax.platform_dependent` is the branch for `platform`.

    JAX's own take the branch of the platform for which all else is lowered, here the CPU.
    """

    def index(_context: Any, *, platforms: Any) -> Any:
        return [_mlir.ir_constant(np.int32(_branch_on(platform, platforms)))]

    def branch(context: Any, which: Any, *args: Any, branches: Any, **params: Any) -> Any:
        if (platforms := params.get("branches_platforms")) is None:
            original: Any = _conditionals._cond_lowering
            return original(context, which, *args, branches=branches, **params)
        chosen = _core.jaxpr_as_fun(branches[_branch_on(platform, platforms)])
        rule = _mlir.lower_fun(lambda _, *values: chosen(*values), multiple_results=True)
        return rule(context, which, *args)

    return (_conditionals.platform_index_p, index), (_conditionals.cond_p, branch)


_WHOLE = (
    (_fft.fft_p, _dynamic_fft),
    (_linalg.qr_p, _mlir.lower_fun(_qr)),
    (_linalg.hessenberg_p, _hessenberg),
    (_lax.composite_p, _inlined),
    (_windowed.reduce_window_p, _window),
    (_special.erfc_p, _whole("chlo.erfc", _chlo.erfc)),
    (_special.erf_inv_p, _whole("chlo.erf_inv", _chlo.erf_inv)),
)


class _Parameters(_mlir.LoweringParameters):
    """The parameters of a lowering for us."""

    __slots__ = ()


_eval_dynamic_shape: Any = _mlir.eval_dynamic_shape


def _sizes_as_values(context: Any, shape: Sequence[Any]) -> tuple[Any, ...]:
    """The sizes as numbers, and as operations on the symbols of the program.

    JAX traces `jnp` functions for every shape, which takes half of the time of a lowering.
    """
    module = context.module_context
    values = dict(zip(module.shape_poly_state.dim_vars, context.dim_var_values, strict=False))
    sizes = [size for size in shape if isinstance(size, DimExpr)]
    if not isinstance(module.lowering_parameters, _Parameters) or any(
        symbol not in values for size in sizes for symbol in size._get_vars()
    ):
        return tuple(_eval_dynamic_shape(context, shape))
    return tuple(
        _size_as_value(size, values) if isinstance(size, DimExpr) else operator.index(size)
        for size in shape
    )


_mlir.eval_dynamic_shape = _sizes_as_values  # type: ignore[assignment]


def _size_as_value(size: Any, values: Mapping[str, Any]) -> Any:
    total = None
    for term, coefficient in size._sorted_terms:
        product = None
        for factor, power in term._factors:
            if factor.var is not None:
                value = values[factor.var]
            else:
                operands = [_size_as_value(operand, values) for operand in factor.operands]
                value = _FUNCTIONS[factor.operation](*operands)
            for _ in range(power):
                product = value if product is None else _hlo.multiply(product, value)
        if product is None:
            product = _number(coefficient)
        elif coefficient != 1:
            product = _hlo.multiply(product, _number(coefficient))
        total = product if total is None else _hlo.add(total, product)
    return total


def _number(number: int) -> Any:
    return _mlir.ir_constant(_core.dim_constant(number))


def _floordiv(x: Any, y: Any) -> Any:
    """What `jnp.floor_divide` is lowered to."""
    quotient, zero = _hlo.divide(x, y), _number(0)
    signs = _mlir.compare_hlo(_hlo.sign(x), _hlo.sign(y), "NE", "SIGNED")
    rest = _mlir.compare_hlo(_hlo.remainder(x, y), zero, "NE", "SIGNED")
    return _hlo.select(_hlo.and_(signs, rest), _hlo.subtract(quotient, _number(1)), quotient)


def _mod(x: Any, y: Any) -> Any:
    """What `jnp.remainder` is lowered to."""
    zero = _number(0)
    y = _hlo.select(_mlir.compare_hlo(y, zero, "EQ", "SIGNED"), _number(1), y)
    rest = _hlo.remainder(x, y)
    of_rest, of_y = (_mlir.compare_hlo(value, zero, "LT", "SIGNED") for value in (rest, y))
    differ = _mlir.compare_hlo(of_rest, of_y, "NE", "UNSIGNED")
    is_not_whole = _mlir.compare_hlo(rest, zero, "NE", "SIGNED")
    return _hlo.select(_hlo.and_(differ, is_not_whole), _hlo.add(rest, y), rest)


_FUNCTIONS: dict[str, Any] = {
    "floordiv": _floordiv,
    "mod": _mod,
    "max": _hlo.maximum,
    "min": _hlo.minimum,
}


_lowers_in: list[int] = []
"""The process in which JAX first lowered for us: its threads for MLIR exist only there."""


class Lowering(NamedTuple):
    """A function that JAX has lowered for the CPU."""

    module: Any
    """Of JAX's MLIR bindings; JAX keeps it, too. `main` takes the symbols, by name, then arrays."""
    in_avals: tuple[Any, ...]
    """The arguments of the function, in order."""
    out_avals: tuple[Any, ...]
    out_tree: Any
    kept: tuple[int, ...]
    """The arguments that `main` takes."""
    callbacks: tuple[PythonCallback, ...]
    """The Python functions that it calls."""
    calls_back: bool
    """True if it calls Python in a way that only XLA can."""
    weights: tuple[Any, ...]
    """Its large constants, as arrays of NumPy (`weights.py`)."""


def lower_whole(
    jitted: Any, args: Sequence[Any], kwargs: dict[str, Any], platform: str = "cpu"
) -> Lowering:
    """A call traced and lowered for a CPU, for our ingest only.

    `platform` ("cpu", "cuda", "rocm") chooses the branch of `lax.platform_dependent`.

    Raises ForkError in a child forked since the first one: JAX would wait for threads of its parent
    for ever.
    """
    if not _lowers_in:
        _lowers_in.append(os.getpid())
    if _lowers_in[0] != os.getpid():
        name = getattr(jitted, "__name__", "the function")
        raise ForkError(
            f"{name} needs a compilation in a forked process, where JAX's threads do not exist. "
            "Call it with such arguments before the fork (or JitFunction.warmup), or "
            "start the process by multiprocessing's 'spawn' or 'forkserver'"
        )
    rules: Any = (*_WHOLE, *_REDUCTIONS, FOR_US, *_platform_rules(platform))
    traced = jitted.trace(*args, **kwargs)
    weights = weights_of(traced.jaxpr)
    parameters = _Parameters(
        override_lowering_rules=rules if weights is None else (*rules, weights.rule),
        for_export=True,
        hoist_constants_as_args=False,
        export_ignore_forward_compatibility=_config.export_ignore_forward_compatibility.value,
    )
    # A message has the innermost line of the user's. To write all takes a tenth of the lowering.
    lines = _config.traceback_in_locations_limit(1)
    with nullcontext() if weights is None else weights.collected(), lines:
        lowered = traced.lower(lowering_platforms=("cpu",), _private_parameters=parameters)
    found = lowered._lowering.compile_args
    in_avals = tuple(jax.tree.leaves(lowered.in_avals))
    owned = [x for x in found["keepalive"] or () if x is not None]
    callbacks = tuple(x for x in owned if isinstance(x, PythonCallback))
    return Lowering(
        lowered._lowering.stablehlo(),
        in_avals,
        tuple(found["global_out_avals"]),
        lowered.out_tree,
        tuple(sorted(found["kept_var_idx"])),
        callbacks,
        bool(found["host_callbacks"]) or len(callbacks) < len(owned),
        () if weights is None else tuple(weights.arrays),
    )
