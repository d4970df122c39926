"""Modules of JAX's MLIR bindings as text and bytes, and back."""

from __future__ import annotations

from typing import Any

from jax._src.export import _export as _export_module
from jax._src.interpreters import mlir as _mlir
from jax._src.lib.mlir import ir as _ir  # type: ignore[attr-defined]
from jax._src.lib.mlir.dialects import hlo as _hlo  # type: ignore[attr-defined]
from jaxlib import _jax


def generic_text(module: Any, large: int) -> str:
    """The text of a module in generic form with locations; constants of more than `large` elements
    are LEFT_OUT.
    """
    text: bytes = module.operation.get_asm(
        binary=True,  # takes three fourths of the time of a str
        enable_debug_info=True,
        print_generic_op_form=True,
        large_elements_limit=large,
    )
    return text.decode()


def plain_text(module: Any) -> str:
    """The text of a module as people write it, with locations and every constant."""
    text: str = module.operation.get_asm(enable_debug_info=True)
    return text


LEFT_OUT = "dense_resource<__elided__>"
"""How a constant is printed that is left out."""


def portable_artifact(module: Any) -> bytes:
    """The module as bytes that other versions of StableHLO can read."""
    data: bytes = _export_module._module_to_bytecode(module)
    return data


def stablehlo_version() -> str:
    """Of JAX's MLIR, such as "1.17.0"."""
    version: str = _hlo.get_current_version()
    return version


def parsed_module(data: str | bytes) -> Any:
    """A module of StableHLO text or a portable artifact, as an object of JAX's MLIR bindings."""
    with _mlir.make_ir_context():
        if isinstance(data, bytes):
            return _jax.mlir.deserialize_portable_artifact(data)
        return _ir.Module.parse(data)
