"""Vector math of our own: elementary functions as `arith`, `math.fma` and `vector` operations.

No library calls, no tables in memory; branch-free but for the reduction of angles. All
functions take f32 or f64, scalar or any number of lanes. They are right for NaN, infinities, -0 and
denormals, as arguments and as results. The caller widens 16-bit floats.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence

from shlo_disc.base.errors import InternalError
from shlo_disc.lower.values.math.power import constant_power
from shlo_disc.lower.values.math.registry import FUNCTIONS
from shlo_disc.lower.values.typed import Register

__all__ = ["FUNCTIONS", "constant_power", "emit_math"]

for _module in pkgutil.iter_modules(__path__):  # each puts its functions into the table
    importlib.import_module(f"{__name__}.{_module.name}")


def emit_math(name: str, args: Sequence[Register]) -> Register:
    """Function `name` of registers of one type (f32, f64 or a vector of them).

    Raises InternalError for a function or type there is no expansion for.
    """
    if name not in FUNCTIONS or args[0].element not in ("f32", "f64"):
        raise InternalError(f"no vector math for {name} on {args[0].type}")
    return FUNCTIONS[name].formula(*args)
