"""Kernel text whose sizes are parameters even where this program knows them.

Layers differ in sizes, not in kernels: with every size a parameter their texts are equal and are
compiled once. Parameters are kept apart even when their values are equal, since in another layer
they need not be.
"""

from __future__ import annotations

from collections.abc import Mapping

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.values.builder import KernelBuilder

__all__ = ["SizedBuilder"]


class SizedBuilder(KernelBuilder):
    """A builder with named sizes; :meth:`param` stays for sizes that are part of the text."""

    def __init__(self, sizes: Mapping[str, Expr]) -> None:
        super().__init__()
        self._named = dict(sizes)
        self._slots: dict[str | Expr, str] = {}
        self._order: list[Expr] = []

    def size(self, name: str) -> str:
        """The size called `name` (KeyError: not given), as index."""
        return self._slot(name, self._named[name])

    def param(self, size: Expr | int, opaque: bool = False) -> str:
        """As `KernelBuilder.param`: constants are part of the text unless `opaque`."""
        size = Expr.of(size)
        if size.is_const and not opaque:
            return self.constant(size.value, "index")
        return self._slot(size, size)

    def _slot(self, key: str | Expr, size: Expr) -> str:
        if key not in self._slots:
            right = f"llvm.getelementptr %params[{len(self._order)}]"
            at = self._enter("p", f"{right} : (!llvm.ptr) -> !llvm.ptr, i64", "!llvm.ptr")
            raw = self._enter("n", f"llvm.load {at} : !llvm.ptr -> i64", "i64")
            self._slots[key] = self._enter("n", f"arith.index_cast {raw} : i64 to index", "index")
            self._order.append(size)
        return self._slots[key]

    def finish(self) -> tuple[str, tuple[Expr, ...]]:
        """The text of the function, and the sizes it expects as params, in order."""
        text, _ = super().finish()
        return text, tuple(self._order)
