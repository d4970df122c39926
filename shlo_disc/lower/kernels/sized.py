"""Kernel builders with named sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.typed import IndexValue

__all__ = ["Sized", "Written", "written_once"]

Written = tuple[str, tuple[Expr, ...]]
"""The text of a kernel, and the sizes it expects as params, in order."""

H = TypeVar("H", bound=Hashable)

_KEPT_TEXTS = 128
"""Texts that a process keeps; a training step of an encoder and a decoder has 40. A text has 10 to
80 KB."""


def written_once(
    write: Callable[[H, Mapping[str, Expr]], Written], what: H, sizes: Mapping[str, Expr]
) -> Written:
    """`write(what, sizes)`, for a `write` that looks at the names of `sizes` only.

    Equal calls differ in their params alone, so the text is written once: a program has several
    times as many products as texts of products.
    """
    text, params = _written(write, what, tuple(sizes))
    values = {Expr.symbol(name): size for name, size in sizes.items()}
    return text, tuple(values.get(param, param) for param in params)


@functools.lru_cache(_KEPT_TEXTS)
def _written(
    write: Callable[[H, Mapping[str, Expr]], Written], what: H, names: tuple[str, ...]
) -> Written:
    return write(what, {name: Expr.symbol(name) for name in names})


class Sized(KernelBuilder):
    """Adds named sizes to a builder: parameters even where the program knows them.

    Layers differ in sizes, not in kernels: with every size a parameter their texts are equal and
    are compiled once. Parameters are kept apart even when their values are equal, since in another
    layer they need not be. :meth:`param` stays for sizes that are part of the text on purpose.
    """

    def name_sizes(self, sizes: Mapping[str, Expr]) -> None:
        """Give the sizes their names; a builder calls this once, before it is used."""
        self._named = dict(sizes)
        self._slots: dict[str | Expr, IndexValue] = {}
        self._order: list[Expr] = []

    def size(self, name: str) -> IndexValue:
        """The size called `name` (KeyError: not given), as index."""
        return self._slot(name, self._named[name])

    def number(self, name: str) -> int:
        """The position of the size called `name` among the params."""
        self.size(name)
        return list(self._slots).index(name)

    def param(self, size: Expr | int, opaque: bool = False) -> IndexValue:
        """As `KernelBuilder.param`: constants are part of the text unless `opaque`."""
        size = Expr.of(size)
        if size.is_const and not opaque:
            return self.index(size.value)
        return self._slot(size, size)

    def _slot(self, key: str | Expr, size: Expr) -> IndexValue:
        if key not in self._slots:
            self._slots[key] = self._load_param(len(self._order))
            self._order.append(size)
        return self._slots[key]

    def finish(self) -> Written:
        """The text of the function, and the sizes it expects as params, in order."""
        text, _ = super().finish()
        return text, tuple(self._order)
