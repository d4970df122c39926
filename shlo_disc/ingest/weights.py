"""Constants that JAX left beside the module become constants of it, which share their memory.

%0 = custom_call @shlo_disc.weight() {backend_config = "0"} : tensor<2048x2048xf32>
==>  %0 = constant dense_resource<shlo_disc_weight_0> : tensor<2048x2048xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from shlo_disc.base.jax_module import WEIGHT
from shlo_disc.ir.builders import create
from shlo_disc.ir.mlir import at, ir, ops_of, replace
from shlo_disc.ir.weights import weight_attribute


def put_weights(module: ir.Module, weights: Sequence[npt.NDArray[Any]]) -> None:
    """Every custom call WEIGHT of `module` becomes a constant with the array of its number."""
    made: dict[tuple[int, ir.Type], ir.Attribute] = {}
    for op in ops_of(module, "stablehlo.custom_call"):
        if ir.StringAttr(op.attributes["call_target_name"]).value != WEIGHT:
            continue
        number = int(ir.StringAttr(op.attributes["backend_config"]).value)
        kind = op.results[0].type
        key = number, kind
        if key not in made:
            made[key] = weight_attribute(weights[number], kind, number)
        with at(op):
            replace(op, create("stablehlo.constant", [], kind, value=made[key]))
