"""Rows of all ops that are not element-wise, and of known custom calls."""

from __future__ import annotations

from typing import Any

from shlo_disc.ir.ops.ffi import ANY_TARGET
from shlo_disc.ir.ops.row import Flops, Op, Role


def _op(role: Role, name: str, **row: Any) -> Op:
    return Op(name if name.startswith(("@", "chlo.", "disc.", "func.")) else f"stablehlo.{name}",
              role, **row)  # fmt: skip


def _moving(name: str, **row: Any) -> Op:
    return _op(Role.MOVING, name, flops=Flops.NONE, exact_bits=True, **row)


def _free(name: str, **row: Any) -> Op:
    return _op(Role.FREE, name, flops=Flops.NONE, exact_bits=True, **row)


def _own(name: str, kind: str, flops: Flops = Flops.ELEMENTS, **row: Any) -> Op:
    return _op(Role.OWN, name, kind=kind, flops=flops, **row)


def _expanded(note: str, *names: str, **row: Any) -> tuple[Op, ...]:
    return tuple(_op(Role.EXPANDED, name, note=note, **row) for name in names)


def _function(name: str, ulp: tuple[float, float]) -> Op:
    """A function of floats that upstream expands, with the error measured."""
    note = "ingest: chlo-legalize-to-stablehlo"
    return _op(Role.EXPANDED, name, note=note, in_f32=True, ulp=ulp)


def _unsupported(note: str, *names: str, **row: Any) -> tuple[Op, ...]:
    return tuple(_op(Role.UNSUPPORTED, name, note=note, **row) for name in names)


_BROADCASTING = tuple(
    f"chlo.broadcast_{name}"
    for name in (
        "add", "and", "atan2", "compare", "divide", "maximum", "minimum", "multiply", "next_after",
        "or", "polygamma", "power", "remainder", "select", "shift_left", "shift_right_arithmetic",
        "shift_right_logical", "subtract", "xor", "zeta",
    )
)  # fmt: skip

ROWS = (
    # data movement
    _moving("concatenate", cost=4, picks=True),
    _moving("dynamic_gather", materialized=(0, 2), size_operands=(2,), reads_part=True),
    _moving("dynamic_pad", size_operands=(2, 3, 4)),
    _moving("dynamic_slice", reads_part=True, keeps_neighbours=True),
    _moving("gather", materialized=(0,), reads_part=True),
    _moving("pad", cost=4, keeps_neighbours=True),
    _moving("real_dynamic_slice", size_operands=(1, 2, 3), reads_part=True, keeps_neighbours=True,
            note="bounds computed from data give a result of unknown size"),
    _moving("reverse", picks=True),
    _moving("slice", reads_part=True, keeps_neighbours=True, picks=True),
    _moving("transpose", cost=4, picks=True),
    # free inside a kernel
    _free("disc.dim", on_host=True),
    _free("disc.sizes"),
    _free("broadcast_in_dim", on_host=True, is_broadcast=True, picks=True),
    _free("dynamic_broadcast_in_dim", result_shape=1, on_host=True, is_broadcast=True, picks=True),
    _free("dynamic_iota", result_shape=0, makes_types=True),
    _free("dynamic_reshape", result_shape=1, on_host=True, is_broadcast=True, picks=True),
    _free("iota", makes_types=True),
    _free("reshape", on_host=True, is_broadcast=True, picks=True),
    # reductions
    _op(Role.LOOP, "reduce", flops=Flops.OWN),
    _op(Role.LOOP, "reduce_window", materialized=(0,), flops=Flops.OWN),
    # kernels of their own
    _own("chlo.top_k", "top_k", Flops.NONE, types="bfiu"),
    _own(ANY_TARGET, "ffi", Flops.NONE,
         note="side effects; handlers of XLA's own runtime"),
    _own("@stablehlo.dynamic_top_k", "top_k", Flops.NONE, size_operands=(1,),
         types="bfiu"),
    _own("convolution", "conv", Flops.OWN, materialized=(0, 1)),
    _own("disc.fft", "fft", Flops.NONE, materialized=(0, 1), size_operands=(2,), types="f",
         note="f32 and f64"),
    _own("disc.scan", "scan"),
    _own("dot_general", "dense", Flops.OWN, materialized=(0, 1)),
    _own("dynamic_update_slice", "dynamic_update_slice", Flops.NONE, materialized=(0,)),
    _own("rng_bit_generator", "rng", Flops.NONE, types="iu"),
    _own("@stablehlo.dynamic_rng_bit_generator", "rng", Flops.NONE, size_operands=(1,),
         types="iu"),
    _own("scatter", "scatter", Flops.OWN, materialized=(0, 1),
         note="a window partly outside is left out whole, as XLA does; the specification writes "
              "the elements inside"),
    _own("select_and_scatter", "select_and_scatter", Flops.OWN),
    _own("sort", "sort", Flops.NONE),
    # host and control flow
    _op(Role.HOST, "constant", flops=Flops.NONE, exact_bits=True, makes_types=True, on_host=True),
    _op(Role.HOST, "disc.empty"),
    _op(Role.HOST, "disc.fusion"),
    _op(Role.HOST, "disc.guard"),
    _op(Role.HOST, "disc.shape", exact_bits=True, on_host=True),
    _op(Role.CONTROL, "case"),
    _op(Role.CONTROL, "if"),
    _op(Role.CONTROL, "while"),
    _op(Role.RETURN, "disc.yield", exact_bits=True),
    _op(Role.RETURN, "func.return"),
    _op(Role.RETURN, "return", exact_bits=True),
    # rewritten before planning
    *_expanded("ingest: sizes of arguments", "get_dimension_size"),
    *_expanded("ingest: linear_algebra, calls of LAPACK", "cholesky", "triangular_solve"),
    *_expanded("ingest: approx_top_k", "@stablehlo.dynamic_approx_top_k", "@ApproxTopK"),
    *_expanded("drop-barriers", "optimization_barrier"),
    *_expanded("ingest: inlined", "composite", makes_types=True),
    *_expanded("ingest: tokens order nothing here", "after_all", "create_token"),
    *_expanded("ingest: elements of tuples one by one", "get_tuple_element", "tuple"),
    *_expanded(
        "ingest: expand_ops",
        "batch_norm_grad", "batch_norm_inference", "batch_norm_training", "broadcast", "chlo.scan",
        "dot",
        "einsum", "map", "set_dimension_size", "torch_index_select",
        "unary_einsum",
    ),
    *_expanded("ingest: expand_ops; of one device", "all_gather", "all_reduce", "all_to_all",
               "async_done", "async_start",
               "collective_broadcast", "collective_permute", "collective_reduce",
               "cross-replica-sum", "partition_id", "reduce_scatter", "replica_id"),
    *_expanded("ingest: complex_numbers", "imag", "real"),
    *_expanded("ingest: complex_numbers", "@stablehlo.dynamic_fft", "complex", "fft",
               makes_types=True),
    *_expanded("ingest: quantized", "uniform_dequantize",
               "uniform_quantize", makes_types=True),
    *_expanded("ingest: windows", "dynamic_conv", "@stablehlo.dynamic_reduce_window"),
    *_expanded("expand-windows", "disc.reduce_window"),
    *_expanded(
        "ingest: chlo-legalize-to-stablehlo",
        "chlo._asin_acos_kernel", "chlo.conj", "chlo.constant_like", "chlo.ragged_dot",
    ),
    *_expanded("ingest: chlo-legalize-to-stablehlo", "chlo.next_after", "chlo.square",
               exact_bits=True),
    *_expanded("ingest: chlo-legalize-to-stablehlo", "chlo.is_inf", "chlo.is_neg_inf",
               "chlo.is_pos_inf", exact_bits=True, in_f32=True),
    _function("chlo.acos", (2.0, 1.5)),
    _function("chlo.acosh", (3.0, 2.5)),
    _function("chlo.asin", (2.0, 1.5)),
    _function("chlo.asinh", (2.0, 2.0)),
    _function("chlo.atan", (1.0, 1.0)),
    _function("chlo.atanh", (2.0, 2.0)),
    *_expanded("ingest: chlo-legalize-to-stablehlo", "chlo.constant", makes_types=True),
    *_expanded("ingest: chlo, as broadcasts and the op", *_BROADCASTING),
    *_expanded("ingest: chlo, as broadcasts and the op", "chlo.broadcast_complex",
               makes_types=True),
    # refused
    # XLA keeps a state from run to run. Numbers from a fixed start would be the same in each call
    # and each iteration of a loop: no sample of the distribution that the op names.
    *_unsupported("its numbers must differ from run to run, and a call's results depend on its "
                  "arguments alone; use rng_bit_generator, whose state is an argument", "rng"),
    *_unsupported("talks to another program", "infeed", "outfeed", "recv", "send"),
    *_unsupported("its target is unknown", "custom_call", makes_types=True),
)  # fmt: skip
