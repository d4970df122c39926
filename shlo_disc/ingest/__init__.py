"""From a program in any form to one module in normal form (docs/architecture.md section 1).

Nothing after this stage knows which framework spoke.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shlo_disc.base.jax_module import JaxModule
from shlo_disc.ingest.chlo import KEPT_CHLO
from shlo_disc.ingest.normalize import normalize
from shlo_disc.ingest.rewrite import Known
from shlo_disc.ingest.sizes import OTHERS, Shapes
from shlo_disc.ingest.source import read
from shlo_disc.ingest.weights import put_weights
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.pipeline import PassLog

__all__ = ["KEPT_CHLO", "OTHERS", "ingest"]


def ingest(
    source: Any,
    context: ir.Context,
    *,
    shapes: Shapes | None = None,
    names: Sequence[str | None] | None = None,
    platforms: Sequence[str] = (),
    constraints: Sequence[str] = (),
    platform: str = "cpu",
    seen: Mapping[str, int] | None = None,
    log: PassLog | None = None,
    extern: bool = False,
) -> ir.Module:
    """The program in `source` as one module in normal form, verified, in `context`.

    `source`: a `jax.export.Exported`, a JaxModule, MLIR text, bytes (text, bytecode or portable
    artifact), or the path of a file with one of them. `context` is one of `mlir.new_context()`.

    `shapes[i]` are the sizes of array argument i in `jax.export` notation. None stands for the
    sizes in its type, a trailing "..." for the rest of them. `names[i]` is the argument's path for
    messages. An Exported has both, a JaxModule has shapes. A module from
    `jax.jit(f).trace(...).lower()` has leading size arguments and needs `shapes` to find them.
    `constraints` are relations of the sizes, such as "t >= 2" or "mod(t, 4) == 0". The compiler
    relies on them, and every call must satisfy them. Symbols of `shapes` are at least 1, unless a
    constraint such as "b >= 0" lowers that bound. Of an export for several platforms, whose
    names `platforms` gives in order, the one for `platform` is taken. `seen` are values of symbols
    in a call (`dynamic/seen.py`). `log` gets what each pass did.
    With `extern` FFI targets may be called that are not registered here.

    Raises InvalidModuleError (malformed, with the line), UnsupportedError (with the operation and
    its source line), OSError (a file that cannot be read).
    """
    module = read(source, context)
    own: Shapes | None = None
    sizes: Mapping[str, str] = {}
    if isinstance(source, JaxModule):
        own, sizes = source.own, source.sizes
        shapes = source.shapes if shapes is None else shapes
        constraints = (*source.constraints, *constraints)
    elif shapes is None:
        shapes = _exported_shapes(source)
    known = Known(
        module,
        platform=platform,
        platforms=platforms or tuple(getattr(source, "platforms", ())),
        shapes=shapes,
        constraints=constraints,
        own=own,
        sizes=sizes,
        seen=seen,
        extern=extern,
    )
    with context, ir.Location.unknown():
        if isinstance(source, JaxModule) and source.weights:
            put_weights(module, source.weights)
        normalize(module, known, names, log or PassLog())
    return module


def _exported_shapes(source: Any) -> list[list[str]] | None:
    """The argument shapes an Exported was made for; None for any other source."""
    avals = getattr(source, "in_avals", None)
    if avals is None:
        return None
    return [_sizes(avals[i]) for i in source.module_kept_var_idx]


def _sizes(aval: Any) -> list[str]:
    # An element of an extended type (a PRNG key) is an array of words: trailing sizes of its own.
    words = [] if isinstance(aval.dtype, np.dtype) else [OTHERS]
    return [*(str(size) for size in aval.shape), *words]
