"""Run a KernelPlan on numpy arrays at given sizes, without the host program or the runtime.

    plan = plan_of(emit, fusion_text("loop", ["x: n,4 f32"], BODY, ["y: n,4 f32"]))
    (y,) = run(plan, [x], {"n": 3})

Arrays lie flush against inaccessible memory, so that reading or writing one element too many
ends the test run; tasks are run in several uneven pieces, so that they must be independent.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import ml_dtypes
import numpy as np

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.lower.cpu.codegen import Function, compile_functions
from shlo_disc.lower.cpu.machine import Machine, host_machine
from shlo_disc.lower.plan import (
    Buffer,
    If,
    Input,
    KernelPlan,
    Launch,
    Output,
    Pack,
    Packed,
    Step,
)
from shlo_disc.mlir import ir, new_context, ops_of

DTYPES: dict[str, np.dtype] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i1": np.dtype(np.bool_),
    **{f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"ui{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_FUNCTION = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
_FILL = 0xA5


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


Emit = Callable[[ir.Operation, object, Machine], KernelPlan]


def plan_of(emit: Emit, text: str, machine: Machine | None = None) -> Emitted:
    """The plan `emit` gives for the one fusion in `text`."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        module.operation.verify()
        shapes = analyze(module)
        (fusion,) = ops_of(module, "disc.fusion")
        plan = emit(fusion, shapes, machine or host_machine())
        results = [
            (tuple(shapes.shape(r)), str(ir.ShapedType(r.type).element_type))
            for r in fusion.results
        ]
        return Emitted(plan, results, [tuple(shapes.shape(o)) for o in fusion.operands])


class Guarded:
    """Memory of `size` bytes that ends where inaccessible memory begins."""

    def __init__(self, size: int, align: int = 1) -> None:
        page = mmap.PAGESIZE
        room = (size + align + page - 1) // page * page
        self._map = mmap.mmap(-1, room + page)
        whole = np.frombuffer(self._map, np.uint8)
        start = whole.ctypes.data
        if _libc.mprotect(start + room, page, 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
        offset = (room - size) // align * align
        self.bytes = whole[offset : offset + size]
        self.bytes[:] = _FILL
        self.address = start + offset
        self._before = whole[:offset]
        self._before[:] = _FILL

    def check(self) -> None:
        """Nothing was written in front of it."""
        assert (self._before == _FILL).all(), "a kernel wrote in front of its buffer"


def symbols_of(emitted: Emitted, inputs: Sequence[np.ndarray]) -> dict[str, int]:
    """Symbol values read from operand sizes that are a single symbol."""
    found: dict[str, int] = {}
    for sizes, array in zip(emitted.symbols, inputs, strict=True):
        for size, value in zip(sizes, array.shape, strict=True):
            if len(size.symbols()) == 1 and str(size) in size.symbols():
                found[str(size)] = value
    return found


def run(
    emitted: Emitted, inputs: Sequence[np.ndarray], symbols: dict[str, int] | None = None
) -> list[np.ndarray]:
    """The results of the plan; `symbols` defaults to what the input shapes say."""
    env = symbols_of(emitted, inputs) | (symbols or {})
    for sizes, array in zip(emitted.symbols, inputs, strict=True):
        assert tuple(s.evaluate(env) for s in sizes) == array.shape, (sizes, array.shape, env)
    memory: dict[Buffer, Guarded] = {}
    for i, array in enumerate(inputs):
        memory[Input(i)] = Guarded(array.nbytes)
        memory[Input(i)].bytes[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    shapes = [tuple(s.evaluate(env) for s in sizes) for sizes, _ in emitted.results]
    for i, (shape, (_, name)) in enumerate(zip(shapes, emitted.results, strict=True)):
        memory[Output(i)] = Guarded(int(np.prod(shape, dtype=np.int64)) * DTYPES[name].itemsize)
    runner = _Runner(env, memory, [w.evaluate(env) for w in emitted.plan.workspaces])
    runner.steps(emitted.plan.steps)
    for i, array in enumerate(inputs):
        same = memory[Input(i)].bytes.tobytes() == np.ascontiguousarray(array).tobytes()
        assert same, f"a kernel wrote to operand {i}"
    for guarded in memory.values():
        guarded.check()
    return [
        memory[Output(i)].bytes.view(DTYPES[name]).reshape(shape).copy()
        for i, (shape, (_, name)) in enumerate(zip(shapes, emitted.results, strict=True))
    ]


class _Runner:
    def __init__(
        self, env: dict[str, int], memory: dict[Buffer, Guarded], workspaces: Sequence[int]
    ) -> None:
        from shlo_disc.lower.plan import Workspace

        self.env, self.memory = env, memory
        for i, size in enumerate(workspaces):
            memory[Workspace(i)] = Guarded(size, align=64)

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Launch):
                self.launch(step)
            elif isinstance(step, If):
                self.steps(step.then if step.condition.holds(self.env) else step.otherwise)
            elif isinstance(step, Pack):
                for part in step.parts:
                    room = Guarded(part.bytes.evaluate(self.env), align=64)
                    self.memory[Packed(part.operand)] = room
                    self.launch(part.fill)
                self.steps(step.then)

    def launch(self, launch: Launch) -> None:
        function = _compiled(launch.kernel.text)
        extent = launch.extent.evaluate(self.env)
        assert launch.cost.evaluate(self.env) >= 0
        if extent <= 0:
            return
        pointers = (ctypes.c_void_p * max(1, len(launch.args)))(
            *(self.memory[a].address for a in launch.args)
        )
        values = [p.evaluate(self.env) for p in launch.params]
        params = (ctypes.c_int64 * max(1, len(values)))(*values)
        kernel = _FUNCTION(function.address)
        cuts = sorted({0, extent // 3, extent - extent // 4, extent})
        for lo, hi in pairwise(cuts):
            scratch = Guarded(launch.scratch_bytes.evaluate(self.env), align=64)
            kernel(ctypes.addressof(pointers), ctypes.addressof(params), lo, hi, scratch.address)
            scratch.check()


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
