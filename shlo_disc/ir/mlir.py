"""The one door to MLIR: every other module imports the bindings from here.

The bindings come from the `torch-mlir` wheel, which carries a complete upstream MLIR plus
StableHLO and CHLO; StableHLO must be registered on request and CHLO is only loaded as a
dependent dialect of a pass, hence :func:`new_context`.
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from shlo_disc.base.locks import once
from shlo_disc.ir.mlir_libraries import PassManager, ir, quant, torch_mlir_binding
from shlo_disc.ir.mlir_libraries import stablehlo as _stablehlo

__all__ = [
    "PassManager",
    "at",
    "captures",
    "clone",
    "ir",
    "is_in_loop",
    "kernel_context",
    "new_context",
    "ops_of",
    "parse_module",
    "pointer",
    "producer",
    "quant",
    "reads",
    "replace",
    "run_pipeline",
    "stablehlo",
    "terminator",
    "walk",
]

stablehlo = _stablehlo
"""The raw StableHLO binding (attributes, portable artifacts, `eval_module`)."""


# The bindings look for Python classes of an op's dialect in `torch_mlir.dialects.<name>` and search
# the file system again for every op when there is no such module: 50 of 60 ms of a walk of BERT.
for _name in ("chlo", "disc", "stablehlo", "vhlo"):
    sys.modules.setdefault(
        f"torch_mlir.dialects.{_name}", types.ModuleType(f"torch_mlir.dialects.{_name}")
    )


_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype, _capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def pointer(owner: Any) -> int:
    """The address of what a Python object of MLIR's binding owns."""
    capsule = owner._CAPIPtr
    return int(_capsule_pointer(capsule, _capsule_name(capsule)))


def _hash(op: Any) -> int:
    """A hash of an operation that lasts while its operands and attributes change.

    That of the bindings depends on these, so sets and dictionaries lost operations that a pass
    changed. Equality compares operations by identity already.
    """
    results = op.results
    return hash(results[0]) if len(results) else pointer(op)


ir.Operation.__mro__[1].__hash__ = _hash


@once
def _register_passes() -> None:
    _stablehlo.register_stablehlo_passes()


_DIALECTS = (
    "builtin", "func", "arith", "math", "index", "scf", "cf", "vector", "memref", "tensor", "shape",
    "complex", "quant", "ub", "llvm",
)  # fmt: skip
"""Operations of these are built by name; parser and passes load other dialects when they meet them.
To load all 60 takes 5 ms."""

_KERNEL_DIALECTS = (
    "builtin", "func", "arith", "math", "index", "scf", "cf", "vector", "memref", "ub", "llvm",
)  # fmt: skip
"""Operations of kernels and host programs."""


@once
def _leave_out_classes() -> None:
    """Have the bindings take operations but functions as they are, without a class for each kind.

    The bindings look for the classes of a dialect once, when they first meet it. To import those of
    LLVM and the others takes longer than to compile a kernel. Who imports them later gets them.
    """
    modules = [f"torch_mlir.dialects.{name}" for name in _DIALECTS if name != "func"]
    empty = [name for name in modules if name not in sys.modules]
    sys.modules.update((name, types.ModuleType(name)) for name in empty)
    try:
        ir.Context(load_on_create_dialects=_DIALECTS)
    finally:
        for name in empty:
            del sys.modules[name]


def new_context() -> ir.Context:
    """An MLIR context that knows StableHLO and CHLO, and lets `disc` in."""
    _register_passes()
    _leave_out_classes()
    context = ir.Context(load_on_create_dialects=_DIALECTS)
    _stablehlo.register_dialect(context, load=True)
    torch_mlir_binding.register_dialect(context)
    with context, ir.Location.unknown():
        # CHLO has no registration hook of its own; this pass loads it as a dependency.
        pipeline = "builtin.module(func.func(convert-torch-to-stablehlo))"
        PassManager.parse(pipeline).run(ir.Module.parse("").operation)
    context.allow_unregistered_dialects = True  # for `disc`, see `dialect.py`
    return context


def kernel_context() -> ir.Context:
    """An MLIR context for the texts of kernels and host programs, without StableHLO and CHLO.

    Every kernel is compiled in a context of its own: this one takes 1 ms, `new_context` 4 ms.
    It starts no threads, because kernels are compiled on several threads already.
    """
    _leave_out_classes()
    context = ir.Context(load_on_create_dialects=_KERNEL_DIALECTS)
    context.enable_multithreading(False)
    context.allow_unregistered_dialects = True  # `codegen` refuses them, and says which
    return context


def parse_module(text: str | bytes) -> ir.Module:
    """The module in MLIR text or bytecode, in the current context; raises `ir.MLIRError`."""
    return ir.Module.parse(text)


def run_pipeline(module: ir.Module, pipeline: str) -> None:
    """Run an upstream pass pipeline (text between the parentheses of `builtin.module`)."""
    PassManager.parse(f"builtin.module({pipeline})").run(module.operation)


def walk(op: Any, visit: Callable[[ir.Operation], None]) -> None:
    """Call `visit` on every operation below and including `op`, children first.

    It may erase the operation it is called on. The walk of the bindings takes four times as long.
    """
    op = op.operation
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                inner = view.operation
                if len(inner.regions):
                    walk(inner, visit)
                else:
                    visit(inner)
    visit(op)


def ops_of(root: Any, *names: str) -> list[ir.Operation]:
    """Every operation under `root` with one of these names, collected before any rewrite."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> None:
        if op.name in names:
            found.append(op)

    walk(root, visit)
    return found


def producer(value: ir.Value) -> ir.Operation | None:
    """The operation that computes `value`; None for a block argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def captures(op: ir.Operation) -> list[ir.Value]:
    """Values that the regions of `op` read and do not define, in order."""
    inside: set[ir.Value] = set()
    used: dict[ir.Value, None] = {}
    _look_into(op, inside, used)
    return [value for value in used if value not in inside]


def _look_into(op: ir.Operation, inside: set[ir.Value], used: dict[ir.Value, None]) -> None:
    """Add the values that the regions of `op` define, and those that they use, in order."""
    for region in op.regions:
        for block in region.blocks:
            inside.update(block.arguments)
            for view in block.operations:
                inner = view.operation
                used.update(dict.fromkeys(inner.operands))
                inside.update(inner.results)
                _look_into(inner, inside, used)


def is_in_loop(op: ir.Operation) -> bool:
    """True if `op` runs in every step of a loop."""
    while op is not None and op.name != "stablehlo.while":
        op = op.parent
    return op is not None


def reads(op: ir.Operation) -> list[ir.Value]:
    """The operands of `op`, and what its regions capture."""
    return [*op.operands, *captures(op)] if len(op.regions) else list(op.operands)


def clone(op: ir.Operation, known: Mapping[ir.Value, ir.Value]) -> ir.Operation:
    """A copy of `op` at the insertion point; it and its regions read what `known` has instead."""
    copy = op.clone().operation

    def visit(inner: ir.Operation) -> None:
        for position, value in enumerate(inner.operands):
            if value in known:
                inner.operands[position] = known[value]

    walk(copy, visit)
    return copy


def terminator(block: ir.Block) -> ir.Operation:
    """The last operation of `block`, which has one."""
    return block.operations[len(block.operations) - 1].operation


class at:
    """Build in front of `op` and with its source location, so that no origin is lost."""

    def __init__(self, op: Any) -> None:
        self._contexts = ir.InsertionPoint(op), op.location

    def __enter__(self) -> None:
        for context in self._contexts:
            context.__enter__()

    def __exit__(self, *error: object) -> None:
        for context in reversed(self._contexts):
            context.__exit__(*error)


def replace(op: Any, *values: ir.Value) -> None:
    """Hand the uses of `op`'s results to `values` and erase `op`."""
    for result, value in zip(op.results, values, strict=True):
        result.replace_all_uses_with(value)
    op.operation.erase()
