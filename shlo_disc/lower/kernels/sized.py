"""Kernel builders with named sizes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.plan import KernelText, LateText
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.typed import IndexValue

Written = tuple[KernelText, tuple[Expr, ...]]
"""The text of a kernel, and the sizes it expects as params, in order."""


def written_late(
    write: Callable[[Any, Mapping[str, Expr]], Written], what: Hashable, sizes: Mapping[str, Expr]
) -> tuple[LateText, tuple[Expr, ...]]:
    """The text that `write(what, sizes)` gives, which looks at the names of `sizes` only.

    A program has several times as many products as texts of them, and calls choose few of these.
    """
    return LateText(write, what, tuple(sizes)), tuple(sizes.values())


class Sized(KernelBuilder):
    """Adds named sizes to a builder: parameters even where the program knows them.

    Layers differ in sizes, not in kernels: with every size a parameter their texts are equal and
    are compiled once. Parameters are kept apart even when their values are equal, since in another
    layer they need not be. :meth:`param` stays for sizes that are part of the text on purpose.
    """

    def name_sizes(self, sizes: Mapping[str, Expr], *, in_order: bool = False) -> None:
        """Give the sizes their names; a builder calls this once, before it is used.

        `in_order`: all of them are params, in this order, whether the kernel reads them or not.
        """
        self._named = dict(sizes)
        self._slots: dict[str | Expr, IndexValue] = {}
        self._places = {name: place for place, name in enumerate(sizes)} if in_order else {}
        self._order: list[Expr] = [*sizes.values()] if in_order else []

    @property
    def param_count(self) -> int:
        """Sizes that the kernel takes so far."""
        return len(self._order)

    def size(self, name: str) -> IndexValue:
        """The size called `name` (KeyError: not given), as index."""
        return self._slot(name, self._named[name])

    def number(self, name: str) -> int:
        """The position of the size called `name` among the params."""
        self.size(name)
        return self._places[name] if self._places else list(self._slots).index(name)

    def param(self, size: Expr | int, opaque: bool = False) -> IndexValue:
        """As `KernelBuilder.param`: constants are part of the text unless `opaque`."""
        size = Expr.of(size)
        if size.is_const and not opaque:
            return self.index(size.value)
        return self._slot(size, size)

    def _slot(self, key: str | Expr, size: Expr) -> IndexValue:
        if key not in self._slots:
            place = self._places.get(key) if isinstance(key, str) else None
            if place is None:
                place = len(self._order)
                self._order.append(size)
            self._slots[key] = self._load_param(place)
        return self._slots[key]

    def finish(self) -> Written:
        """The text of the function, and the sizes it expects as params, in order."""
        text, _ = super().finish()
        return text, tuple(self._order)
