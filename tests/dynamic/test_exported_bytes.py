"""Sizes of an exported program read from its bytes alone, or lowered, beside `Exported.call`.

Bytes do not tell the argument shapes: JAX solves them in the program, by divisions whose
remainders it asserts to be 0.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from shlo_disc.base.errors import ShapeMismatchError
from shlo_disc.driver.stages import main_function
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.program import ShapeProgram
from shlo_disc.dynamic.shape_program import shape_program
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.jax.calls.lowered import lowered_module
from shlo_disc.passes.resolve_shapes import ResolveShapes

SPECS = [
    ("2*b",),
    ("a, 2*b",),
    ("3*b + 1",),
    ("3*b + 5",),
    ("7*b - 20",),
    ("b - 1, b",),
    ("b - 3",),
    ("10 - b",),
    ("10 - 2*b, b",),
    ("b + c, c",),
    ("2*b + 3*c, c",),
    ("b + c, b - c, c",),
    ("b + c + 18, 2*b, 4*c",),
    ("b, c, b*c",),
    ("b, floordiv(b + 3, 4)",),
    ("b, mod(b, 3)",),
    ("b, max(b, 3), min(b, 8)",),
    ("4*b", "mod(b, 2) == 0"),
    ("b, c", "b == 2*c"),
    ("2*b, c", "c == 2*b"),
    ("b, c", "floordiv(b, 2) >= c"),
    ("b, c", "max(b, c) >= 4"),
]
NOT_SOLVED = ("10 - b",)
"""The front end adds an argument that shows such sizes."""
SIZES = (0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 22)


@pytest.mark.parametrize(
    "spec",
    [pytest.param(s, marks=[pytest.mark.slow] if k % 3 else []) for k, s in enumerate(SPECS)],
    ids=" | ".join,
)
def test_sizes_are_taken_and_refused_as_by_jax(spec):
    sizes = export.symbolic_shape(spec[0], constraints=spec[1:])
    jitted = jax.jit(lambda x: jnp.concatenate([x, x]))
    abstract = jax.ShapeDtypeStruct(sizes, np.float32)
    exported = export.export(jitted)(abstract)
    sources = [exported, exported.mlir_module_serialized]
    if spec[0] not in NOT_SOLVED:
        sources.append(lowered_module("f", jitted, (abstract,), {}).source())
    context = new_context()
    programs = []
    for source in sources:
        module = ingest(source, context)
        with context, ir.Location.unknown():
            ResolveShapes().run(module, KnownShapes(module))
            main = main_function(module)
            programs.append(shape_program(main, analyze(module)))
    taken = refused = 0
    for shape in itertools.product(SIZES, repeat=len(sizes)):
        of_exported, of_bytes, *of_lowered = (_result(p, shape) for p in programs)
        assert of_exported == of_bytes, shape
        assert of_lowered in ([], [of_bytes]), shape
        taken += of_bytes is not None
        refused += of_bytes is None
        if taken == 1 and of_bytes is not None:
            assert exported.call(np.zeros(shape, np.float32)).shape == of_bytes
        if refused == 1 and of_bytes is None:
            with pytest.raises(ValueError, match="shape"):
                exported.call(np.zeros(shape, np.float32))
    assert taken


def _result(program: ShapeProgram, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return program.evaluate([shape])[1][0]
    except ShapeMismatchError:
        return None
