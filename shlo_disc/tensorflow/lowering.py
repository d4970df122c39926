"""From the converter's module to one that `shlo_disc.compile` takes."""

from __future__ import annotations

import re
from collections.abc import Collection

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.threads import lets_others_run
from shlo_disc.ingest.mixed.rewriter import rewrite_mixture
from shlo_disc.ingest.mixed.take import RULES
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, new_context, parse_module, run_pipeline, walk
from shlo_disc.tensorflow.convert import Converted
from shlo_disc.tensorflow.ops import JOINED, PREFIX, STACKS, rules
from shlo_disc.tensorflow.ops.lists import find_element_sizes
from shlo_disc.tensorflow.ops.reductions import join_sums_to_shapes
from shlo_disc.tensorflow.ops.stacks import place_stacks


@lets_others_run
def lower(converted: Converted) -> ir.Module:
    """The module, with StableHLO in the place of the ops that the converter left.

    Raises UnsupportedError for one that has no lowering here.
    """
    with new_context(), ir.Location.unknown():
        try:
            # Bytecode has lines of the converter's file; the text is given those of the model.
            text = str(
                parse_module(converted.bytecode).operation.get_asm(
                    enable_debug_info=True, print_generic_op_form=True
                )
            )
            module = parse_module(converted.restored(text))
        except ir.MLIRError as error:
            raise _left(converted, error) from None
        _check(
            module, also={*JOINED, *STACKS}
        )  # first: passes of MLIR end the process on TensorFlow's graphs
        run_pipeline(module, "inline{default-pipeline=},symbol-dce")
        place_stacks(module, PREFIX)
        find_element_sizes(module, PREFIX)
        join_sums_to_shapes(module, PREFIX)
        _check(module)
        rewrite_mixture(module, {**RULES, **rules()})
        return module


def _left(converted: Converted, error: ir.MLIRError) -> UnsupportedError:
    """The error for a module that MLIR without TensorFlow's dialect cannot read."""
    names = ", ".join(f"{name} ({converted.told(node)})" for name, node in converted.left.items())
    what = f"it left the operations {names}" if names else f"MLIR cannot read it: {error}"
    return UnsupportedError(f"TensorFlow's converter gives no StableHLO alone: {what}")


def _check(module: ir.Module, also: Collection[str] = ()) -> None:
    """Raise UnsupportedError for ops of TensorFlow that have no row, and are not in `also`."""
    known = {*rules(), *(f"{PREFIX}{name}" for name in also)}
    found: dict[str, str] = {}

    def visit(op: ir.Operation) -> None:
        if op.name.startswith(("tf.", "tf_")) and op.name not in known:
            name = re.sub("^tf\\w*\\.", "", op.name.replace(PREFIX, "tf."))
            found.setdefault(name, source_line(op))

    walk(module, visit)
    if found:
        names = ", ".join(f"{name} ({where})" for name, where in found.items())
        raise UnsupportedError(
            f"TensorFlow's converter leaves {names}, which shlo_disc does not lower either"
        )
