"""The options of `shlo_disc.jit`: their names, types, defaults and checks, in one place.

`shlo_disc.jit` (`jit.py`) takes its signature from the fields here; its docstring explains them.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from shlo_disc.base.errors import UnsupportedError

_log = logging.getLogger("shlo_disc")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class JitOptions:
    """What :func:`shlo_disc.jit` is told; its docstring explains each option.

    Raises ValueError for a value that an option does not have, UnsupportedError for a place that is
    not the first CPU device.
    """

    shapes: Sequence[Any] | Mapping[str, Any] | None = None
    constraints: str | Iterable[str] = ()
    likely: Mapping[str, int | Iterable[int]] | None = None
    dynamic: bool | str = "auto"
    static_argnums: int | Iterable[int] | None = None
    static_argnames: str | Iterable[str] | None = None
    donate_argnums: int | Iterable[int] | None = None
    donate_argnames: str | Iterable[str] | None = None
    name: str | None = None
    on_unsupported: str | None = None
    background: bool = False
    in_shardings: Any = None
    out_shardings: Any = None
    keep_unused: bool = False
    device: jax.Device | None = None
    backend: str | None = None
    inline: bool = False
    compiler_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.dynamic not in (True, False, "auto", "checked"):
            raise ValueError(
                f"dynamic must be 'auto', 'checked', True or False, got {self.dynamic!r}"
            )
        if self.on_unsupported not in (None, "error", "xla"):
            raise ValueError(
                f"on_unsupported must be 'error' or 'xla', got {self.on_unsupported!r}"
            )
        if isinstance(self.constraints, str):
            object.__setattr__(self, "constraints", (self.constraints,))
        for name in _LISTS:  # an iterator can be read once
            value = getattr(self, name)
            if isinstance(value, Iterable) and not isinstance(value, str):
                object.__setattr__(self, name, tuple(value))
        if self.constraints and self.shapes is None:
            raise ValueError("constraints need shapes, which give the sizes their names")
        _refuse_placement(self.device, self.backend, self.in_shardings, self.out_shardings)
        if self.compiler_options:
            _log.warning("shlo_disc.jit does not read compiler_options: they are XLA's")

    def __reduce__(self) -> tuple[Any, ...]:
        """For `copy` and `pickle`: without what only had to be checked (devices have no copies)."""
        given = {name: value for name, value in vars(self).items() if name not in _CHECKED_ONLY}
        return _remade, (given,)


_CHECKED_ONLY = frozenset(("in_shardings", "out_shardings", "device", "compiler_options"))
_LISTS = ("constraints", "static_argnums", "static_argnames", "donate_argnums", "donate_argnames")


def _remade(given: dict[str, Any]) -> JitOptions:
    return JitOptions(**given)


def _refuse_placement(device: Any, backend: str | None, *shardings: Any) -> None:
    """Raise UnsupportedError for a place that is not the first CPU device."""
    home = jax.local_devices(backend="cpu")[0]
    places = [device, *jax.tree.leaves(shardings, is_leaf=lambda s: hasattr(s, "device_set"))]
    for place in places:
        found = getattr(place, "device_set", {place})
        if place is not None and found != {home}:
            raise UnsupportedError(
                f"shlo_disc.jit runs on {home}, not on {place}; use jax.jit there, or shard_map "
                "around the function"
            )
    if backend not in (None, "cpu"):
        raise UnsupportedError(f"shlo_disc.jit runs on the CPU, not on {backend!r}")
