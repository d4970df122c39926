"""Large constants of a program that JAX lowers: they stay beside the module, and are not copied.

    %0 = stablehlo.constant dense<[...]> : tensor<2048x2048xf32>
    ==>  %0 = stablehlo.custom_call @shlo_disc.weight() {backend_config = "0"}

JAX would write the elements into the module, and every reader of the module would copy them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.interpreters.mlir as _public
import numpy as np
import numpy.typing as npt
from jax._src import core as _core
from jax._src import dtypes as _dtypes
from jax._src.array import ArrayImpl as _ArrayImpl
from jax._src.interpreters import mlir as _mlir
from jax._src.lib.mlir import ir as _ir  # type: ignore[attr-defined]
from jax._src.lib.mlir.dialects import hlo as _hlo  # type: ignore[attr-defined]

from shlo_disc.base.jax_module import WEIGHT

_LEAST_BYTES = 1 << 16
_SAMPLES = 64

Array = npt.NDArray[Any]


class Weights:
    """The large constants of one lowering, in the order of their numbers in the module."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._numbers: dict[int, int] = {}
        self._owners: list[Any] = []

    @property
    def rule(self) -> tuple[Any, Any]:
        """Among the rules of a lowering it keeps JAX from taking another one's module."""
        return _core.Primitive("shlo_disc_weights"), self

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Lowerings of this thread put their large constants here."""
        before, _state.weights = _state.weights, self
        try:
            yield
        finally:
            _state.weights = before

    def call(self, value: Any) -> Any:
        """The value that stands for a constant in the module at hand; None: it is to be in it."""
        if not is_large(value):
            return None
        number = self._numbers.get(id(value))
        if number is None:
            # An array of JAX never changes; one of NumPy may.
            array = np.asarray(value) if isinstance(value, jax.Array) else np.array(value)
            if _is_splat(array):
                return None
            number = self._numbers[id(value)] = len(self.arrays)
            self.arrays.append(np.ascontiguousarray(array))
            self._owners.append(value)  # so that no other one has its id
        kind = _ir.RankedTensorType.get(value.shape, _mlir.dtype_to_ir_type(np.dtype(value.dtype)))
        name = _ir.StringAttr.get(WEIGHT)
        call = _hlo.CustomCallOp(
            [kind], [], call_target_name=name, backend_config=_ir.StringAttr.get(str(number))
        )
        return call.results[0]


class _State(threading.local):
    weights: Weights | None = None


_state = _State()


def is_large(value: Any) -> bool:
    """True for an array that a module need not hold: of plain numbers, as the module has them."""
    if not isinstance(value, np.ndarray | _ArrayImpl) or value.nbytes < _LEAST_BYTES:
        return False
    if isinstance(value, np.ndarray) and 0 in value.strides:
        return False
    dtype = value.dtype
    if _dtypes.issubdtype(dtype, _dtypes.extended) or _dtypes.float0 == dtype:
        return False
    is_plain = dtype.kind in "biuf" or dtype == _dtypes.bfloat16
    return bool(is_plain and _dtypes.canonicalize_dtype(dtype) == dtype)


def _is_splat(array: Array) -> bool:
    """True for one element again and again: the compiler knows more of such a constant."""
    flat = array.reshape(-1).view(f"u{array.dtype.itemsize}")
    some = flat[:: max(1, flat.size // _SAMPLES)]
    return bool((some == flat[0]).all() and (flat == flat[0]).all())


def weights_of(jaxpr: Any) -> Weights | None:
    """Where the large constants of a closed jaxpr go; None if it has none."""
    if any(map(is_large, jaxpr.consts)):
        return Weights()
    for equation in jaxpr.jaxpr.eqns:
        for value in equation.params.values():
            for one in value if isinstance(value, tuple | list) else (value,):
                if isinstance(one, _core.ClosedJaxpr) and (found := weights_of(one)):
                    return found
    return None


def put_back(module: Any, arrays: Sequence[Array]) -> None:
    """The constants of a lowered module of JAX's bindings are in it, as JAX writes them."""
    calls: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "stablehlo.custom_call":
            target = _ir.StringAttr(op.attributes["call_target_name"]).value
            if target == WEIGHT:
                calls.append(op)
        return _ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in calls:
        number = int(_ir.StringAttr(op.attributes["backend_config"]).value)
        with op.location, _ir.InsertionPoint(op):
            op.results[0].replace_all_uses_with(_mlir.ir_constant(arrays[number]))
        op.erase()


def _beside(usual: Any) -> Any:
    """A handler of constants that leaves large ones out where somebody collects them."""

    def handler(value: Any, aval: Any) -> Any:
        found = None if _state.weights is None else _state.weights.call(value)
        return usual(value, aval) if found is None else found

    return handler


for _kind in (np.ndarray, _ArrayImpl):
    _public.register_constant_handler(_kind, _beside(_mlir.get_constant_handler(_kind)))
