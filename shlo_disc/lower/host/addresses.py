"""Where the values of a host program are, and whose memory the program uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shlo_disc.ir.mlir import ir
from shlo_disc.lower.values.typed import Pointer


class Addresses(Mapping[ir.Value, Pointer]):
    """The addresses of values.

    One can be had by indexing only, and that notes the use of an argument's memory. Code that gives
    a value the place of another one uses `same`, which hands out no address.
    """

    def __init__(self) -> None:
        self.used: set[int] = set()
        """The arguments of `main` whose addresses were handed out."""
        self._of: dict[ir.Value, Pointer] = {}
        self._arguments: dict[Pointer, int] = {}

    def argument(self, value: ir.Value, index: int, address: Pointer) -> None:
        """`value` is argument `index` of `main`; the caller's memory for it is at `address`."""
        self._of[value] = address
        self._arguments[address] = index

    def put(self, value: ir.Value, address: Pointer) -> None:
        """`value` is at `address`."""
        self._of[value] = address

    def same(self, value: ir.Value, of: ir.Value) -> None:
        """`value` is where `of` is."""
        self._of[value] = self._of[of]

    def __getitem__(self, value: ir.Value) -> Pointer:
        """The address of `value`, for use in the program. Raises KeyError if it has none."""
        address = self._of[value]
        if address in self._arguments:
            self.used.add(self._arguments[address])
        return address

    def __contains__(self, value: object) -> bool:
        return value in self._of

    def __iter__(self) -> Iterator[ir.Value]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)
