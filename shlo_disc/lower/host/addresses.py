"""Where the values of a host program are, and whose memory the program uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shlo_disc.mlir import ir

__all__ = ["Addresses"]


class Addresses(Mapping[ir.Value, str]):
    """The SSA names of the addresses of values.

    A name can be had by indexing only, and that notes the use of an argument's memory. Code that
    gives a value the place of another one uses `same`, which hands out no name.
    """

    def __init__(self) -> None:
        self.used: set[int] = set()
        """The arguments of `main` whose addresses were handed out."""
        self._names: dict[ir.Value, str] = {}
        self._arguments: dict[str, int] = {}

    def argument(self, value: ir.Value, index: int, name: str) -> None:
        """`value` is argument `index` of `main`; the caller's memory for it is at `name`."""
        self._names[value] = name
        self._arguments[name] = index

    def put(self, value: ir.Value, name: str) -> None:
        """`value` is at `name`."""
        self._names[value] = name

    def same(self, value: ir.Value, of: ir.Value) -> None:
        """`value` is where `of` is."""
        self._names[value] = self._names[of]

    def __getitem__(self, value: ir.Value) -> str:
        """The address of `value`, for use in the program. Raises KeyError if it has none."""
        name = self._names[value]
        if name in self._arguments:
            self.used.add(self._arguments[name])
        return name

    def __contains__(self, value: object) -> bool:
        return value in self._names

    def __iter__(self) -> Iterator[ir.Value]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
