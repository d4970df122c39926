"""What the StableHLO interpreter and XLA:CPU give for a module without arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Self

import jax
import numpy as np
from jax._src import compiler
from jax.extend import backend
from jaxlib._jax import DeviceList

from shlo_disc.debug import interpreter
from shlo_disc.debug.interpreter import NoReferenceError
from shlo_disc.ir.mlir import ir, new_context, parse_module, run_pipeline
from tests.children import Ended, Server

__all__ = ["Interpreter", "NoReferenceError", "Xla", "verify"]

_STATIC = "func.func(stablehlo-canonicalize-dynamism,chlo-legalize-to-stablehlo)"
"""XLA knows neither CHLO nor all dynamic operations."""


_QUANTIZED = (
    "func.func(stablehlo-legalize-quantized-op-to-qdq),func.func(stablehlo-legalize-quant-to-math)"
)


def _plain(text: str) -> str:
    """A module without quantized types, which XLA does not know and the interpreter not all."""
    if "!quant" not in text:
        return text
    try:
        with new_context(), ir.Location.unknown():
            module = parse_module(text)
            run_pipeline(module, _QUANTIZED)
            return str(module)
    except ir.MLIRError as error:
        raise NoReferenceError(str(error)) from None


def verify(text: str) -> str:
    """Why MLIR refuses a module; empty if it does not."""
    try:
        with new_context(), ir.Location.unknown():
            parse_module(text)
    except ir.MLIRError as error:
        return str(error)
    return ""


class Interpreter:
    """The StableHLO interpreter, in a process of its own."""

    def __init__(self) -> None:
        self._engine = interpreter.Interpreter(limit_s=30)

    def __enter__(self) -> Self:
        self._engine.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._engine.__exit__(*error)

    def results(self, text: str, dtypes: Sequence[np.dtype[Any]]) -> list[Any]:
        """The results as arrays of `dtypes`; raises NoReferenceError if it does not run them."""
        refused = verify(text)
        if refused:
            raise NoReferenceError(f"invalid: {refused}")
        if "stablehlo.select_and_scatter" in text:
            raise NoReferenceError("the interpreter selects other elements than the specification")
        text = _plain(text)
        with new_context(), ir.Location.unknown():
            module = parse_module(text)
            count = len(list(_main(module).regions[0].blocks[0].operations)[-1].operands)
            found = self._engine.run(module, [], [np.dtype(np.uint8)] * count)
        return _typed(found, dtypes)


class Xla:
    """XLA:CPU, in a process of its own: some constants and types end it."""

    def __init__(self) -> None:
        self._server = Server(_run_xla, limit_s=60, leaf=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._server.__exit__(*error)

    def results(self, text: str, dtypes: Sequence[np.dtype[Any]]) -> list[Any]:
        """The results as arrays of `dtypes`; raises NoReferenceError if XLA refuses the module."""
        if _SCATTER_OF_SEVERAL.search(text):
            raise NoReferenceError(
                "XLA adds to one operand of a scatter with several what is due to another"
            )
        found = self._server.outcome(_plain(text))
        if isinstance(found, Ended):
            raise NoReferenceError(found.message)
        if isinstance(found, str):
            raise NoReferenceError(found)
        return _typed(found, dtypes)


_SCATTER_OF_SEVERAL = re.compile(r'"stablehlo\.scatter"\(%\w+(, %\w+){3}')


def _run_xla(text: str) -> list[Any] | str:
    """The results of a module, or why there are none."""
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)  # it prints a stack before it ends
    client = backend.get_backend("cpu")
    try:
        with new_context(), ir.Location.unknown():
            module = parse_module(text)
            run_pipeline(module, _STATIC)
            static = str(module)
        options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
        devices = DeviceList(tuple(jax.devices("cpu")[:1]))
        executable = client.compile_and_load(static, devices, options)
        done = executable.execute_sharded([])
        return [np.asarray(a[0]) for a in done.disassemble_into_single_device_arrays()]
    except Exception as error:  # of any kind: it is not our program that fails
        return str(error)


def _main(module: ir.Module) -> ir.Operation:
    for op in module.body.operations:
        if ir.StringAttr(op.operation.attributes["sym_name"]).value == "main":
            return op.operation
    raise ValueError("no main")


def _typed(found: Sequence[Any], dtypes: Sequence[np.dtype[Any]]) -> list[Any]:
    """The results of a module as `module.oracle_result` returns them."""
    left = iter(found)
    arrays = []
    for dtype in dtypes:
        array = np.asarray(next(left))
        if dtype.kind == "c":
            parts, array = (array, np.asarray(next(left))), np.empty(array.shape, dtype)
            array.real, array.imag = parts
        elif array.dtype == dtype:
            pass
        elif array.dtype.kind == "u" and dtype.kind not in "iub" and "int" not in dtype.name:
            array = array.view(dtype)
        else:
            array = array.astype(dtype)
        arrays.append(array)
    return arrays
