"""Run a KernelPlan on numpy arrays at given sizes, without the host program or the runtime.

    plan = plan_of(emit, fusion_text("loop", ["x: n,4 f32"], BODY, ["y: n,4 f32"]))
    (y,) = run(plan, [x], {"n": 3})

Plans run as `shlo_disc/debug/launch.py` says: arrays lie flush against inaccessible memory, and
tasks run in uneven chunks, in a random order where a launch is not ordered. A fault, or a loop
without end, is the failure of a test: kernels run in a process of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from shlo_disc.debug.launch import run_plan
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.ir.mlir import ir, new_context, ops_of
from shlo_disc.lower.cpu.codegen import Function, compile_functions
from shlo_disc.lower.cpu.machine import Machine, host_machine
from shlo_disc.lower.plan import If, KernelPlan, Launch, Pack, Step
from shlo_disc.passes.records import Planned, planned

DTYPES: dict[str, np.dtype] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i1": np.dtype(np.bool_),
    **{f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"ui{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
}


@functools.lru_cache(maxsize=64)
def _compiled(text: str) -> Function:
    """Kept for the sizes a test runs one after the other."""
    (function,) = compile_functions([text])
    return function


def dtype_name(dtype: np.dtype) -> str:
    """`f32` of float32."""
    return next(name for name, d in DTYPES.items() if d == dtype)


def tensor(sizes: str, dtype: str) -> str:
    """`tensor<?x4xf32>` of `n,4` and `f32`."""
    dims = [s if s.strip().isdigit() else "?" for s in sizes.split(",") if s.strip()]
    return f"tensor<{'x'.join([d.strip() for d in dims] + [dtype])}>"


@dataclass(frozen=True)
class Tensor:
    """`x: n,4 f32`."""

    name: str
    sizes: str
    dtype: str

    @staticmethod
    def parse(text: str) -> Tensor:
        name, _, rest = text.partition(":")
        sizes, _, dtype = rest.strip().rpartition(" ")
        return Tensor(name.strip(), sizes.strip(), dtype)

    @property
    def type(self) -> str:
        return tensor(self.sizes, self.dtype)


def fusion_text(
    kind: str, operands: Sequence[str], body: str, results: Sequence[str], attrs: str = ""
) -> str:
    """A module with one `disc.fusion`; operands and results as `name: sizes dtype`.

    Symbols in operand sizes become the symbols of the program.
    """
    ins, outs = [Tensor.parse(t) for t in operands], [Tensor.parse(t) for t in results]

    def shape(t: Tensor) -> str:
        names = ", ".join(f'"{s.strip()}"' for s in t.sizes.split(",") if s.strip())
        return f"{{disc.shape = [{names}]}}"

    arguments = ", ".join(f"%a{i}: {t.type} {shape(t)}" for i, t in enumerate(ins))
    names = ", ".join(f"%a{i}" for i in range(len(ins)))
    block = ", ".join(f"%{t.name}: {t.type}" for t in ins)
    types_in, types_out = ", ".join(t.type for t in ins), ", ".join(t.type for t in outs)
    values = ", ".join(f"%{t.name}" for t in outs)
    extra = f", {attrs}" if attrs else ""
    count = f":{len(outs)}" if len(outs) > 1 else ""
    returned = ", ".join(f"%r#{i}" for i in range(len(outs))) if count else "%r"
    return f"""
func.func public @main({arguments}) -> ({types_out}) {{
  %r{count} = "disc.fusion"({names}) ({{
    ^bb0({block}):
    {body}
    "disc.yield"({values}) : ({types_out}) -> ()
  }}) {{kind = "{kind}"{extra}}} : ({types_in}) -> ({types_out})
  return {returned} : {types_out}
}}"""


@dataclass(frozen=True)
class Emitted:
    """A plan with what is needed to run it."""

    plan: KernelPlan
    results: list[tuple[tuple[Expr, ...], str]]
    """Sizes and element type of every result."""
    symbols: list[tuple[Expr, ...]]
    """Sizes of every operand."""


Emit = Callable[[Planned[Any], Machine], KernelPlan]


def plan_of(emit: Emit, text: str, machine: Machine | None = None) -> Emitted:
    """The plan `emit` gives for the one fusion in `text`."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        module.operation.verify()
        shapes = analyze(module)
        (fusion,) = ops_of(module, "disc.fusion")
        plan = emit(planned(fusion, shapes), machine or host_machine())
        results = [
            (tuple(shapes.shape(r)), str(ir.ShapedType(r.type).element_type))
            for r in fusion.results
        ]
        return Emitted(plan, results, [tuple(shapes.shape(o)) for o in fusion.operands])


def symbols_of(emitted: Emitted, inputs: Sequence[np.ndarray]) -> dict[str, int]:
    """Symbol values read from operand sizes that are a single symbol."""
    found: dict[str, int] = {}
    for sizes, array in zip(emitted.symbols, inputs, strict=True):
        for size, value in zip(sizes, array.shape, strict=True):
            if len(size.symbols()) == 1 and str(size) in size.symbols():
                found[str(size)] = value
    return found


def run(
    emitted: Emitted,
    inputs: Sequence[np.ndarray],
    symbols: dict[str, int] | None = None,
    seed: int = 0,
) -> list[np.ndarray]:
    """The results of the plan; `symbols` defaults to what the input shapes say.

    `seed` decides in which order independent tasks run. Raises KernelFault.
    """
    env = symbols_of(emitted, inputs) | (symbols or {})
    for sizes, array in zip(emitted.symbols, inputs, strict=True):
        assert tuple(s.evaluate(env) for s in sizes) == array.shape, (sizes, array.shape, env)
    results = [
        (tuple(s.evaluate(env) for s in sizes), DTYPES[name]) for sizes, name in emitted.results
    ]
    return run_plan(emitted.plan, env, inputs, results, _compiled_all, seed)


def _compiled_all(texts: Sequence[str]) -> list[Function]:
    return [_compiled(text) for text in texts]


def special_values(dtype: str) -> np.ndarray:
    """Values of a type where mistakes show: zeros, extremes, NaN, denormals, halves."""
    kind = DTYPES[dtype]
    if dtype == "i1":
        return np.array([False, True])
    if kind.kind in "iu":
        info = np.iinfo(kind)
        raw = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1, 5, 100, info.bits - 1]
        raw += [-1, -2, -3, -7] if kind.kind == "i" else [info.bits, info.bits + 1]
        return np.array(raw, kind)
    info = ml_dtypes.finfo(kind)
    tiny, big = float(info.tiny), float(info.max)
    raw = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 3.0, 7.25, 100.0, -100.0]
    raw += [tiny, -tiny, tiny / 4, big, -big, np.inf, -np.inf, np.nan, float(info.eps), 0.1, -0.3]
    return np.array(raw).astype(kind)


def sample(shape: Sequence[int], dtype: str, seed: int = 0, special: bool = False) -> np.ndarray:
    """Reproducible test data; `special` mixes in :func:`special_values`."""
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    if dtype == "i1":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        data = rng.integers(max(info.min, -100), min(info.max, 100), shape).astype(kind)
    else:
        data = (rng.standard_normal(shape) * 3).astype(kind)
    if special and data.size:
        flat = data.reshape(-1)
        values = special_values(dtype)
        where = rng.permutation(flat.size)[: max(1, flat.size // 2)]
        flat[where] = values[rng.integers(0, len(values), where.size)]
    return data


def launches(steps: Sequence[Step]) -> Iterator[Launch]:
    """Every launch in a plan, also those that fill packed copies."""
    for step in steps:
        if isinstance(step, Launch):
            yield step
        elif isinstance(step, If | Pack):
            yield from (part.fill for part in getattr(step, "parts", ()))
            yield from launches((*step.then, *step.otherwise, *getattr(step, "never", ())))
