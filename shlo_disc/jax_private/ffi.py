"""The FFI targets that XLA knows, and those it does not tell of."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import sys
from typing import Any

import jax
import numpy as np
from jax._src.lib import xla_client as _xla  # type: ignore[attr-defined]
from jaxlib import lapack as _lapack_module

from shlo_disc.base.locks import once

_lapack: Any = _lapack_module  # untyped

_Ffi = tuple[str, str]
"""The name of an FFI target, and XLA's name of its platform."""

_ffi_noted: dict[_Ffi, Any] = {}
"""What was registered since this module exists, or waits for its platform: capsules by stage; one
capsule for a target of the API before FFI. XLA tells of the last stage alone, and of no target that
the plugin of a GPU has."""

_ffi_types: list[tuple[str, Any, Any]] = []
"""Of the states of handlers, registered since this module exists: XLA's name of the platform,
capsules of the type's id and info."""


def _ffi_platform(platform: str) -> str:
    """XLA's name of a platform, which users may write otherwise."""
    name = _xla.xla_platform_names.get(platform, platform)
    return next(
        (known for known in ("Host", "CUDA", "ROCM") if known.lower() == name.lower()), name
    )


def _note_target(name: Any, fn: Any, platform: str, api_version: int) -> None:
    if api_version == 1 and not isinstance(fn, dict):
        fn = {"execute": fn}
    text = name if isinstance(name, str) else name.decode()
    _ffi_noted[text, _ffi_platform(platform)] = dict(fn) if isinstance(fn, dict) else fn


def _record_ffi() -> None:
    """Note what is registered from here on, besides registering it."""
    register_target, register_type = _xla.register_custom_call_target, _xla.register_custom_type

    @functools.wraps(register_target)
    def target(
        name: Any, fn: Any, platform: str = "cpu", api_version: int = 0, *rest: Any, **named: Any
    ) -> Any:
        done = register_target(name, fn, platform, api_version, *rest, **named)
        _note_target(name, fn, platform, api_version)
        return done

    @functools.wraps(register_type)
    def type_(type_name: str, type_id: Any, platform: str = "cpu") -> Any:
        done = register_type(type_name, type_id, platform)
        if isinstance(type_id, dict) and type_id.get("type_info") is not None:
            platform = _ffi_platform(platform)
            _ffi_types.append((platform, type_id["type_id"], type_id["type_info"]))
        return done

    for platform, waiting in list(_xla._custom_callback.items()):
        for name, fn, api_version, *_ in waiting:
            _note_target(name, fn, platform, api_version)
    _xla.register_custom_call_target = target
    _xla.register_custom_type = type_


_record_ffi()


_TABLES = ("scipy.linalg.cython_blas", "scipy.linalg.cython_lapack")
"""What jaxlib takes the addresses of LAPACK from."""


@once
def _find_lapack() -> None:
    """Have jaxlib find the functions of LAPACK.

    It would import all of `scipy.linalg`, which takes 125 ms; the two modules alone take 10. Who
    imports them later gets the same modules.
    """
    if "scipy.linalg" in sys.modules:
        _first_call_of_lapack("potrf", np.dtype(np.float32))
        return
    scipy = importlib.import_module("scipy")
    folders = [f"{folder}/linalg" for folder in scipy.__path__]
    specs = [importlib.machinery.PathFinder.find_spec(name, folders) for name in _TABLES]
    load: Any = importlib._bootstrap._load  # type: ignore[attr-defined]  # holds their locks
    tables = {spec.name: load(spec) for spec in specs if spec is not None}
    try:
        _first_call_of_lapack("potrf", np.dtype(np.float32))
    finally:
        package = sys.modules.get("scipy.linalg")  # another thread may have imported it meanwhile
        for name, table in tables.items():
            if package is None:
                sys.modules.pop(name, None)
            else:
                setattr(package, name.rpartition(".")[2], table)


_first_call_of_lapack = _lapack.prepare_lapack_call


@functools.wraps(_first_call_of_lapack)
def _prepare_lapack_call(*args: Any, **named: Any) -> Any:
    _find_lapack()
    return _first_call_of_lapack(*args, **named)


_lapack.prepare_lapack_call = _prepare_lapack_call


def ffi_handlers(name: str, platform: str) -> Any:
    """What is registered with XLA as FFI target `name` for a platform, by XLA's name, or None.

    Capsules by stage; one capsule for a target of the API before FFI. Stages other than `execute`,
    and targets of GPUs, are known if they were registered since this module was imported, or before
    JAX had a backend.
    """
    if platform == "Host":
        jax.devices("cpu")  # until there is a backend, registrations wait in Python
        if name.startswith("lapack_"):
            _find_lapack()
    noted = _ffi_noted.get((name, platform))
    return _xla.custom_call_targets(platform).get(name) if noted is None else noted


def ffi_types(platform: str) -> list[tuple[Any, Any]]:
    """Capsules (type id, type info) of the states of handlers for a platform, by XLA's name."""
    return [(type_id, info) for of, type_id, info in _ffi_types if of == platform]
