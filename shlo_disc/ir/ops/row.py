"""What a row of the op table says."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from shlo_disc.base.records import dataclass


class Role(Enum):
    """What the fusion planner may do with an op."""

    ELEMENTWISE = "elementwise"
    """Result element i depends on operand elements i only. Rank-0 operands of `select` and `clamp`
    are read by every element."""
    MOVING = "moving"
    """Result element i is one operand element at another index, or a padding value."""
    FREE = "free"
    """Costs nothing inside a kernel: cloned into every consumer, never computed by itself."""
    LOOP = "loop"
    """A result element needs a loop over operand elements."""
    OWN = "own kernel"
    """Has an emitter of its own, found by `Op.kind`."""
    CONTROL = "control flow"
    """Has regions that the host program runs."""
    HOST = "host"
    """Read by the host program only."""
    RETURN = "terminator"
    """Ends a region."""
    EXPANDED = "expanded"
    """Rewritten into other ops before the planner; `Op.note` says by which step."""
    UNSUPPORTED = "unsupported"
    """Refused; `Op.note` says why."""


class Flops(Enum):
    """How the arithmetic operations of an op are counted (`lower/work.py`)."""

    NONE = "none"
    """The op moves data."""
    ELEMENTS = "elements"
    """One an element of the result."""
    TRANSCENDENTAL = "transcendental"
    """Elements are counted as transcendental functions, not as operations."""
    OWN = "own"
    """A formula of the op's own."""


@dataclass(frozen=True)
class Op:
    """One StableHLO, CHLO or `disc` op, or one known target of `stablehlo.custom_call`."""

    name: str
    """Such as "stablehlo.add"; a custom call is "@" and its target."""
    role: Role
    kind: str = ""
    """Role OWN: the kind of the fusion, by which matchers and emitters are found."""
    materialized: tuple[int, ...] = ()
    """Operands read at arbitrary or repeated indices: never computed inside the consumer."""
    result_shape: int | None = None
    """The operand that is the shape of the result."""
    size_operands: tuple[int, ...] = ()
    """Other operands that kernels get as terms where they are computed from sizes."""
    cost: int = 1
    """Of one element, in additions; right within a factor of three on any machine."""
    flops: Flops = Flops.ELEMENTS
    exact_bits: bool = False
    """Every bit of the result is defined: moved, integers, or one operation of IEEE 754."""
    is_broadcast: bool = False
    """Every element of the result is one of operand 0, and each occurs: reshapes, too."""
    keeps_neighbours: bool = False
    """Moves elements so that neighbours in the last dimension stay neighbours."""
    picks: bool = False
    """Every element of the result is one of an operand, whatever the operands hold."""
    makes_types: bool = False
    """The result may be complex or quantized where no operand is."""
    in_f32: bool = False
    """Role EXPANDED: floats of less than 32 bits are computed in f32 and rounded once."""
    ulp: tuple[float, float] | None = None
    """A function of floats without a formula in `lower/values/math`: its largest error in units in
    the last place of the result, (f32, f64); tested."""
    reads_part: bool = False
    """Reads only as many elements of operand 0 as the result has."""
    on_host: bool = False
    """The host program computes the op on integer scalars (`lower/host/scalars.py`)."""
    math: str = ""
    """The function of `lower/values/math` that computes an element."""
    fold: Callable[..., Any] | None = None
    """The value on NumPy arrays; `fold-constants` rounds the value to the result's type once."""
    types: str = "bcfiu"
    """Kinds of element types that are compiled (`ElementType.kind`), and c(omplex): pairs of floats
    from `ingest/complex_numbers` on."""
    note: str = ""
    """Roles EXPANDED and UNSUPPORTED: by which step, or why. Otherwise what is not covered."""

    def __post_init__(self) -> None:
        if self.role is Role.OWN and not self.kind:
            raise ValueError(f"{self.name}: an op with a kernel of its own needs a kind")
        if self.role in (Role.EXPANDED, Role.UNSUPPORTED) and not self.note:
            raise ValueError(f"{self.name}: {self.role.value} needs a note")
