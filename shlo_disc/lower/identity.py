"""What tells kernels and plans apart without their texts, which may not be written yet."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from types import FunctionType
from typing import Any

import numpy as np

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.plan import KeptText, Kernel, KernelPlan, KernelText, rewritten


class NamelessError(ValueError):
    """A fusion has elements of which its text has the name alone."""


def with_sources(plan: KernelPlan, source: Callable[[KernelText], KernelText]) -> KernelPlan:
    """`plan` with `source` of each kernel's own source."""

    def put(kernel: Kernel) -> Kernel:
        return Kernel(kernel.name, source(kernel.source))

    return replace(plan, steps=rewritten(plan.steps, lambda step: step.with_kernels(put)))


def identity(source: KernelText) -> str:
    """Equal for sources of which a program has one."""
    if isinstance(source, KeptText):
        return source.identity
    return hashlib.blake2b(spelled(source).encode(), digest_size=16).hexdigest()


def spelled(value: Any) -> str:
    """`value` in full: no two records of plain data, types or attributes are spelled alike.

    Raises NamelessError, and TypeError for what is none of these.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes | np.dtype):
        return repr(value)
    kind = type(value).__name__
    if isinstance(value, tuple | list):
        return f"{kind}({','.join(map(spelled, value))})"
    if isinstance(value, frozenset | set):
        return f"set({','.join(sorted(map(spelled, value)))})"
    if isinstance(value, Expr | ir.Type | ir.Attribute):
        text = str(value)
        if "dense_resource" in text:  # a name of elements
            raise NamelessError(text)
        return f"{kind}({text!r})"
    if isinstance(value, FunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if is_dataclass(value):
        own = [spelled(getattr(value, field.name)) for field in fields(value)]
        return f"{type(value).__module__}.{kind}({','.join(own)})"
    raise TypeError(f"a {kind} cannot be named in full: {value!r}")
