"""All cases by name, and the public names of JAX that have none."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from tests.functions import (
    table_lax,
    table_linalg,
    table_nn,
    table_numpy,
    table_random,
    table_scipy,
)
from tests.functions.cases import Case, Leave

MODULES: dict[str, tuple[dict[str, Case], Leave]] = {
    "jax.numpy": (table_numpy.NUMPY, table_numpy.LEFT_OUT),
    **table_linalg.MODULES,
    **table_nn.MODULES,
    "jax.lax": (table_lax.LAX, table_lax.LEFT_OUT),
    **table_scipy.MODULES,
    "jax.random": (table_random.RANDOM, table_random.LEFT_OUT),
}
"""The cases of every module, and its names that have none."""


def names() -> list[str]:
    """`jax.numpy.pad`, or `jax.numpy.pad/edge` for one more case of a function."""
    return [f"{module}.{name}" for module, (cases, _) in MODULES.items() for name in cases]


def _split(name: str) -> tuple[str, str]:
    path, slash, variant = name.partition("/")
    module, _, last = path.rpartition(".")
    return module, last + slash + variant


def case_of(name: str) -> Case:
    """The case of a function."""
    module, last = _split(name)
    return MODULES[module][0][last]


def function_of(name: str) -> Callable[..., Any]:
    """What is compiled: the function of arrays of a case."""
    module, last = _split(name)

    def public_function(*values: Any) -> Any:
        return getattr(importlib.import_module(module), last.partition("/")[0])(*values)

    return case_of(name).function or public_function


def public(module: str) -> dict[str, Any]:
    """The public functions of a module, by name."""
    found = vars(importlib.import_module(module))
    return {
        name: value
        for name, value in found.items()
        if not name.startswith("_")
        and callable(value)
        and not inspect.isclass(value)
        and not type(value).__module__.startswith("typing")
    }


def unlisted() -> list[str]:
    """Names in neither the table nor the lists of what is left out, and names that do not exist."""
    found = []
    for module, (cases, leave) in MODULES.items():
        covered = {name.partition("/")[0] for name in cases}
        left_out = {name for several in leave.values() for name in several.split()}
        known = public(module).keys()
        found += [
            f"{module}.{n}: neither in the table nor left out"
            for n in sorted(known - covered - left_out)
        ]
        found += [f"{module}.{n}: not public" for n in sorted((covered | left_out) - known)]
        found += [f"{module}.{n}: in the table and left out" for n in sorted(covered & left_out)]
    return found
