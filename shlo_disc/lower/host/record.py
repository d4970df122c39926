"""A host program as data: what runs, and what `explain()` and `profile()` tell of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from shlo_disc.base.later import Later
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.plan import FfiCall, HostText, KeptText, Kernel, KernelPlan, named
from shlo_disc.passes.place import Place

T = TypeVar("T")

MOST_BYTES = 2**46
"""Of an array of a program with size arguments; no machine has more, and 2**63 is far."""

TOO_LARGE = f"an array of this call would take more than 2**{MOST_BYTES.bit_length() - 1} bytes"
"""The check behind all others, where products of sizes may wrap."""


@dataclass(frozen=True)
class Work:
    """Of one run of a fusion."""

    reads: Expr
    """Bytes."""
    writes: Expr
    """Bytes."""
    flops: Expr
    """Arithmetic operations, on integers too; a transcendental function is not among them."""
    transcendentals: Expr
    """Elements a transcendental function is computed of."""


@dataclass(frozen=True)
class KernelUse:
    """One fusion of the host program."""

    name: str
    kind: str
    where: tuple[str, ...]
    """Source lines of what it computes, without repetition."""
    ops: tuple[tuple[str, int], ...]
    """StableHLO ops in it and how many of each."""
    not_fused: tuple[str, ...]
    """Why what it reads is not computed in it."""
    why: tuple[str, ...]
    """What was decided for it and why: by the fusion planner, and about its variants."""
    plan: KernelPlan
    work: Work
    reads: tuple[str, ...]
    """Where its operands come from: `kernel N` (from 0), `argument N` or `constant N`."""
    places: tuple[Place, ...]
    """Where its results go."""
    inside: tuple[str, ...]
    """The control flow around it, outermost first: `while model.py:7`."""


@dataclass(frozen=True)
class Site:
    """One launch in the text of a host program."""

    use: int
    kernel: str
    packs: bool
    """Does it fill a packed copy that is kept, not compute?"""


@dataclass(frozen=True)
class Mark:
    """Where a launch begins or ends in the text of a host program."""

    site: int
    """The launch, by its place in `HostDetails.sites`."""
    first: str = ""
    """What `site` is counted from in a function that several plans share: a value of the text."""
    ends: bool = False

    def __str__(self) -> str:
        return f"{self.first} + {self.site}" if self.first else str(self.site)


@dataclass(frozen=True)
class PlanCall:
    """Where the host program calls the function of a plan."""

    function: int
    """By its place in `HostDetails.functions`."""
    by_table: str
    """The call of the entry of the kernel table."""
    operands: str
    """The operands and their types."""

    @property
    def by_name(self) -> str:
        """The call for texts that have the function, too."""
        return f"func.call @{plan_name(self.function)}{self.operands} -> ()\n"


Part = str | Mark | PlanCall
Parts = tuple[Part, ...]
"""A text in pieces. With marks made calls it tells when launches begin and end."""


def plan_name(function: int) -> str:
    """What a plan's function is called where its text is beside others."""
    return f"plan{function}"


@dataclass(frozen=True)
class Unfused:
    """A fusion that was planned again as smaller ones."""

    name: str
    kind: str
    where: tuple[str, ...]
    """Source lines of what it computes, without repetition."""
    reason: str
    parts: int
    """How many smaller fusions it became."""

    def __str__(self) -> str:
        more = f" and {len(self.where) - 1} more lines" if len(self.where) > 1 else ""
        return (
            f"{self.name} of kind {self.kind} ({self.where[0]}{more}) became {self.parts} smaller "
            f"kernels: {self.reason}"
        )


@dataclass(frozen=True)
class CodeNames:
    """Where machine code is: the symbol of each function, and the key that the store has it under.

    A symbol names a text, a key also the code generator and the machine.
    """

    host: tuple[str, bytes]
    """Of the text whose functions are `prepare` and `run`."""
    kernels: tuple[tuple[str, bytes], ...]
    """In the order of their indices."""
    functions: tuple[tuple[str, bytes], ...] = ()
    """Of plans."""

    @property
    def symbols(self) -> list[str]:
        """All symbols."""
        return [symbol for symbol, _ in (self.host, *self.kernels, *self.functions)]


@dataclass(frozen=True)
class PlanFunction:
    """The function of a plan, which is compiled like a kernel."""

    parts: Later[Parts]
    """Its text, with marks."""
    kept: KeptText | None = None
    """If an earlier process wrote it."""

    @property
    def source(self) -> HostText | KeptText:
        """What is compiled."""
        return self.kept or HostText(text_of_parts(self.parts.value))


@dataclass(frozen=True)
class HostDetails:
    """What machine code is made of, and what it is for. Calls need neither."""

    parts: Parts
    """The functions `prepare` and `run`, as MLIR, with a mark where a launch begins or ends."""
    functions: tuple[PlanFunction, ...]
    kernels: tuple[Kernel, ...]
    """In the order of their indices."""
    uses: tuple[KernelUse, ...]
    """Every fusion, in the order of the text."""
    sites: tuple[Site, ...]
    """Every launch in the text, in order of its marks."""
    arena: tuple[Expr, ...]
    """Bytes of every slot."""
    workspaces: tuple[tuple[Expr, ...], ...]
    """Bytes of the temporary blocks of a kernel, for every kernel that has some."""

    @property
    def text(self) -> str:
        """The functions `prepare` and `run`, as MLIR."""
        return text_of_parts(self.parts)

    def whole(self, marked: Callable[[Mark], str] = lambda _: "") -> str:
        """The functions `prepare` and `run` and those of plans, which they call by name.

        `marked`: the text of a mark.
        """

        def text(part: Part) -> str:
            if isinstance(part, PlanCall):
                return part.by_name
            return part if isinstance(part, str) else marked(part)

        plans = (
            named("".join(map(text, function.parts.value)), plan_name(number))
            for number, function in enumerate(self.functions)
        )
        return "".join([*map(text, self.parts), *plans])


def texts_of(host: HostProgram) -> tuple[str, list[str], list[str]]:
    """All that is compiled: the text of the host program, those of kernels, those of plans."""
    functions = [text_of_parts(function.parts.value) for function in host.functions]
    return host.text, [kernel.text for kernel in host.kernels], functions


def text_of_parts(parts: Parts) -> str:
    """The text that is compiled."""
    return "".join(
        part.by_table if isinstance(part, PlanCall) else part
        for part in parts
        if not isinstance(part, Mark)
    )


class _Detail(Generic[T]):
    """What the details of a host program have, read as if the program had it."""

    def __init__(self, read: Callable[[HostDetails], T]) -> None:
        self._read = read

    def __get__(self, host: HostProgram, _: object) -> T:
        return self._read(host.details.value)


@dataclass(frozen=True)
class HostProgram:
    """Native host code, and what it refers to by index."""

    details: Later[HostDetails]
    table: tuple[int, ...]
    """The kernel of every entry of the kernel table, or the function of a plan: they are counted
    on behind kernels. A plan's kernels are in a row, so some are there several times."""
    short_sizes: tuple[Expr, ...]
    """Sizes of which short values in the first call have kernels of their own."""
    unasked_kernels: tuple[int, ...]
    """Kernels that must have code before a call; others are asked for when a call needs them."""
    packing_kernels: tuple[int, ...]
    """Kernels that pack what the first call did without, and that calls like it run from then."""
    constants: tuple[npt.NDArray[np.uint8], ...]
    constant_types: tuple[tuple[str, tuple[int, ...]], ...]
    """The element type and the sizes of each constant."""
    pack_keys: tuple[str, ...]
    packed_arguments: frozenset[int]
    """Main arguments some kernel wants packed."""
    unread_arguments: tuple[int, ...]
    """Main arguments whose memory the program does not touch; it may ask for their sizes."""
    reuses: tuple[tuple[int, int], ...]
    """(donated argument, result): the result may be in the argument's memory."""
    foreign: tuple[tuple[FfiCall, str], ...] = ()
    """Calls of FFI handlers, each with its source line."""

    text = _Detail(lambda details: details.text)
    functions = _Detail(lambda details: details.functions)
    kernels = _Detail(lambda details: details.kernels)
    uses = _Detail(lambda details: details.uses)
    sites = _Detail(lambda details: details.sites)
    arena = _Detail(lambda details: details.arena)
    workspaces = _Detail(lambda details: details.workspaces)
    whole = _Detail(lambda details: details.whole)
