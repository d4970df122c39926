"""What an emitter gives back: a plan of kernel launches for one `disc.fusion`.

The plan is data. The host program (`lower/host/`) turns it into native code; `explain()` and the
tests read it. Sizes are symbolic expressions (`shlo_disc.dynamic.expr.Expr`) over the
symbols of the program; nothing here knows a concrete size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Protocol

from shlo_disc.base.errors import InternalError
from shlo_disc.base.later import Later
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.relations import holds, spelled
from shlo_disc.lower.images import KernelSignature


@dataclass(frozen=True)
class Input:
    """Operand `index` of the fusion (dense, row-major)."""

    index: int


@dataclass(frozen=True)
class Output:
    """Result `index` of the fusion (dense, row-major)."""

    index: int


@dataclass(frozen=True)
class Workspace:
    """Temporary block `index` of `KernelPlan.workspaces` (64-byte aligned, uninitialised)."""

    index: int


@dataclass(frozen=True)
class Packed:
    """The packed copy of Input(operand), in `Part.fill` and `Pack.then`."""

    operand: int


Buffer = Input | Output | Workspace | Packed


PARAMETERS = {
    "%args": "!llvm.ptr",
    "%params": "!llvm.ptr",
    "%lo": "i64",
    "%hi": "i64",
    "%scratch": "!llvm.ptr",
}
"""Of a kernel of a CPU and of the host: their names and types."""
SIGNATURE = f"func.func @KERNEL({', '.join(f'{name}: {t}' for name, t in PARAMETERS.items())})"
"""How kernels of a CPU and of the host are called."""
FUNCTION_TYPE = f"({', '.join(PARAMETERS.values())}) -> ()"
"""The type of a function `SIGNATURE`."""
SMALL_STEPS = "small_steps"
"""The attribute of `run` in a host program whose loops mostly run copies of kernels.

Unoptimised, such a step takes up to twice as long, and one call may have millions of them. So a
first call waits for LLVM's passes. Steps of other loops wait for kernels.
"""

TILES = "{tiles}"
"""Attributes of a function that has tiles of AMX in registers (`cpu/matrix_unit.py`)."""
ONCE = "once"
"""An attribute of such a function that is best as it is written, so it has one code, made quickly.

LLVM's passes would double the time to compile it, and its calls would take as long."""


_KEPT_TEXTS = 128
"""Texts that a process keeps; a training step of an encoder and a decoder has 40. A text has 10 to
80 KB."""


@dataclass(frozen=True)
class LateText:
    """A text that is written when somebody reads it.

    It is plain data: equal ones are equal texts, and any thread can read it.
    """

    write: Callable[[Any, Mapping[str, Expr]], tuple[KernelText, tuple[Expr, ...]]]
    """From `what` and sizes by name to the text, and the sizes that it expects as params: all of
    them, in order. A function of a module; it refuses nothing."""
    what: Hashable
    names: tuple[str, ...]

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.write, self.what, self.names))

    def __hash__(self) -> int:
        return self._hash


@functools.lru_cache(_KEPT_TEXTS)
def _written(text: LateText) -> str:
    sizes = {name: Expr.symbol(name) for name in text.names}
    written, params = text.write(text.what, sizes)
    if params != tuple(sizes.values()):
        raise InternalError(f"a kernel of {text.what} has other params than its launch: {params}")
    return text_of(written)


class SignedText(Protocol):
    """A text with its signature: plain data; equal ones are equal texts."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def signature(self) -> KernelSignature:
        """What is known of the text."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class KeptText:
    """A text that an earlier process wrote, and where the store has its code."""

    identity: str
    """Equal for texts of which a program has one."""
    symbol: str
    key: bytes
    """Of the code."""
    late: Later[str] = field(compare=False, repr=False)
    """The text, which is read from the disk when somebody asks."""
    of_host: bool = False
    """It is that of a :class:`HostText`."""


@dataclass(frozen=True)
class HostText:
    """The function of a plan: host programs find it in the kernel table, and it has one code."""

    text: str


KernelText = str | LateText | KeptText | HostText | SignedText
"""The text of a kernel, or what it is written from."""


def is_of_host(source: KernelText) -> bool:
    """True for the function of a plan."""
    return source.of_host if isinstance(source, KeptText) else isinstance(source, HostText)


def text_of(source: KernelText) -> str:
    """The text."""
    if isinstance(source, str):
        return source
    if isinstance(source, KeptText):
        return source.late.value
    return _written(source) if isinstance(source, LateText) else source.text


def named(text: str, symbol: str) -> str:
    """The text of a kernel that is called `symbol`; functions of its own are called after it."""
    return text.replace("@KERNEL", f"@{symbol}")


@dataclass(frozen=True)
class Kernel:
    """One machine function, as MLIR text.

    `text` holds a function `SIGNATURE` that computes the tasks `lo <= i < hi` of its launch.
    `args` is an array of data pointers, `params` an array of i64, `scratch` per-worker memory of
    `Launch.scratch_bytes` (64-byte aligned). Identical texts are compiled once, so sizes enter
    as `params`, named by position.
    """

    name: str
    """A readable hint for `explain()` and profiles, e.g. "row_softmax"; need not be unique."""
    source: KernelText
    """What tells it from other kernels, whether its text is written or not."""

    @property
    def text(self) -> str:
        """The text, which is written now if it was not before."""
        return text_of(self.source)


@dataclass(frozen=True)
class Launch:
    """Run `kernel` over `extent` tasks, in parallel where it pays.

    Tasks are independent, in any order, unless `ordered`.
    """

    kernel: Kernel
    args: tuple[Buffer | Kernel, ...]
    """What the addresses in the kernel's `args` are of: it calls the kernels among these."""
    params: tuple[Expr, ...]
    extent: Expr
    cost: Expr
    """Estimated nanoseconds of one task on one core; the host derives the grain from it."""
    scratch_bytes: Expr = field(default_factory=lambda: Expr.const(0))
    zeroed: tuple[tuple[Buffer, Expr], ...] = ()
    """Buffers whose first bytes, so many, are zero when the launch begins."""
    ordered: bool = False
    """A task may wait until tasks of lower numbers are done. The runtime promises that these were
    begun before (see `parallel_for` in `ral/include/disc_ral.h`)."""

    @property
    def called(self) -> tuple[Kernel, ...]:
        """Kernels that `kernel` calls."""
        return tuple(arg for arg in self.args if isinstance(arg, Kernel))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """`kernel`, and those that it calls."""
        return self.kernel, *self.called

    def with_kernels(self, put: Callable[[Kernel], Kernel]) -> Launch:
        """The same with `put(kernel)` in place of every kernel."""
        args = tuple(put(arg) if isinstance(arg, Kernel) else arg for arg in self.args)
        return replace(self, kernel=put(self.kernel), args=args)

    def moved(self, places: Mapping[Buffer, Buffer]) -> Launch:
        """The same with `places[buffer]` in place of every buffer that `places` has."""
        args = (arg if isinstance(arg, Kernel) else places.get(arg, arg) for arg in self.args)
        return replace(self, args=tuple(args))


@dataclass(frozen=True)
class Condition:
    """`lhs op rhs` on run-time sizes; op is one of == != < <= > >=."""

    lhs: Expr
    op: str
    rhs: Expr

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Is it true for these values of the symbols?"""
        return holds(self.lhs, self.op, self.rhs, sizes)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Itself alone, as `All.conditions`."""
        return (self,)

    def rewritten(self, size: Callable[[Expr], Expr]) -> Condition:
        """The same of other sizes."""
        return Condition(size(self.lhs), self.op, size(self.rhs))

    def __str__(self) -> str:
        return spelled(self.lhs, self.op, self.rhs)


@dataclass(frozen=True)
class All:
    """Several conditions, at least one, that must all hold."""

    conditions: tuple[Condition, ...]

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Are all true for these values of the symbols?"""
        return all(condition.holds(sizes) for condition in self.conditions)

    def rewritten(self, size: Callable[[Expr], Expr]) -> All:
        """The same of other sizes."""
        return All(tuple(condition.rewritten(size) for condition in self.conditions))

    def __str__(self) -> str:
        return " and ".join(map(str, self.conditions))


@dataclass(frozen=True)
class If:
    """A choice between variants, made at run time: exactly one of the two sides runs."""

    condition: Condition | All
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]
    says: str = ""
    """What the condition asks, where `explain()` would show a long formula."""


@dataclass(frozen=True)
class Part:
    """An operand in another layout: `bytes` of it, written by `fill` as `Packed(operand)`."""

    operand: int
    key: str
    """Names the layout, together with `layout`: what is equal in both on one buffer shares one
    packed copy across kernels."""
    layout: tuple[Expr, ...]
    """The sizes and strides of the operand that the layout depends on."""
    bytes: Expr
    fill: Launch
    elements: Expr
    """How many elements of the operand are in it."""


@dataclass(frozen=True)
class Pack:
    """Use of operands in another layout, where the runtime can keep copies in it.

    When every operand is an immutable argument (or a constant), the runtime keeps a packed copy
    beside its buffer; `fill` runs at most once per buffer, and `then` reads the copies. Where the
    runtime has no copy in a call, `otherwise` runs; where it never can have one, `never`.

    Whether there is a copy depends on earlier calls, and results must not: `otherwise` rounds as
    `then` does. `never` is free to differ, because it is chosen when the program is compiled.
    """

    parts: tuple[Part, ...]
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]
    never: tuple[Step, ...]
    may_wait: Condition | All | None = None
    """Where the first call had better do without copies, which are made after it: `otherwise` takes
    little longer than `then`. None: nowhere."""


@dataclass(frozen=True)
class FfiAttribute:
    """An attribute of an FFI call, in the terms of `XLA_FFI_Attrs`."""

    name: str
    kind: int
    """`XLA_FFI_AttrType`."""
    data_type: int = 0
    """`XLA_FFI_DataType` of a scalar, or of the elements of an array."""
    size: int = 0
    """Elements of an array."""
    bytes: bytes = b""
    """The elements, or the text of a string."""
    entries: tuple[FfiAttribute, ...] = ()
    """Of a dictionary."""

    @classmethod
    def of_number(cls, name: str, value: int) -> FfiAttribute:
        """An attribute of type i64."""
        return cls(name, 3, 5, 1, value.to_bytes(8, "little"))

    @property
    def row(self) -> tuple[object, ...]:
        """As `ral.ForeignCall` takes it."""
        if self.entries or self.kind == 2:
            return self.name, self.kind, [entry.row for entry in self.entries]
        return self.name, self.kind, self.data_type, self.size, self.bytes


@dataclass(frozen=True)
class FfiAlias:
    """The handler finds operand `operand` where it writes result `result`."""

    operand: int
    result: int
    bytes: Expr


@dataclass(frozen=True)
class FfiCall:
    """Call a handler of XLA's FFI, on the thread that runs the host program."""

    target: str
    attributes: tuple[FfiAttribute, ...]
    """In the order of their names."""
    elements: tuple[str, ...]
    """The element types of the operands, then of the results."""
    ranks: tuple[int, ...]
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    sizes: tuple[Expr, ...]
    """The logical sizes of operands and results, one after the other."""
    aliases: tuple[FfiAlias, ...]
    size_attributes: tuple[tuple[int, Expr], ...] = ()
    """Attributes, by position, that are sizes."""


@dataclass(frozen=True)
class FftCall:
    """Fourier transforms of one dimension by the runtime, which uses all threads."""

    options: int
    """As `fft_transform` takes them (`ral/src/core/fft.h`)."""
    batch: Expr
    """The product of the sizes before the dimension, and `inner` of those behind it."""
    length: Expr
    """The size of the dimension; of the real side where one is real."""
    inner: Expr
    buffers: tuple[Buffer, ...]
    """Operands, then results."""


Call = FfiCall | FftCall
"""Steps in which the host program calls the runtime; a plan with one has no variants."""

Step = Launch | If | Pack | Call


def every(steps: tuple[Step, ...], *, never: bool = False) -> Iterator[Step]:
    """Every step, those of both sides of choices too; with `never` those in place of packs."""
    for step in steps:
        yield step
        if isinstance(step, If | Pack):
            yield from every((*step.then, *step.otherwise), never=never)
        if never and isinstance(step, Pack):
            yield from every(step.never, never=True)


def kernels_of(steps: tuple[Step, ...]) -> Iterator[Kernel]:
    """Every kernel in a plan, those that fill packed copies too."""
    for step in every(steps):
        for launch in _launches_in(step):
            yield from launch.kernels


def _launches_in(step: Step) -> tuple[Launch, ...]:
    if isinstance(step, Launch):
        return (step,)
    return tuple(part.fill for part in step.parts) if isinstance(step, Pack) else ()


def chosen_kernels(
    steps: tuple[Step, ...], sizes: Mapping[str, int] | None, lacks: Callable[[Pack], bool | None]
) -> Iterator[Kernel]:
    """The kernels that a call at `sizes` may run; None: any call.

    `lacks`: whether it does without the copies of a pack; None where it may or may not.
    """
    for step in steps:
        if isinstance(step, Launch):
            yield from step.kernels
        elif isinstance(step, If):
            holds = None if sizes is None else holds_at(step.condition, sizes)
            if holds is not False:
                yield from chosen_kernels(step.then, sizes, lacks)
            if not holds:
                yield from chosen_kernels(step.otherwise, sizes, lacks)
        elif isinstance(step, Pack):
            lacked = lacks(step)
            if not lacked:
                yield from chosen_kernels(tuple(part.fill for part in step.parts), sizes, lacks)
                yield from chosen_kernels(step.then, sizes, lacks)
            if sizes is None or lacked is not False:
                yield from chosen_kernels(step.otherwise, sizes, lacks)


def any_copies(_: Pack) -> None:
    """Of calls that ask for kernels before they know."""


def holds_at(condition: Condition | All, sizes: Mapping[str, int]) -> bool | None:
    """Whether `condition` holds at `sizes`; None where that is unknown."""
    asked = {s for c in condition.conditions for e in (c.lhs, c.rhs) for s in e.symbols()}
    return condition.holds(sizes) if asked <= sizes.keys() else None


def rewritten(
    steps: tuple[Step, ...],
    launch: Callable[[Launch], Launch],
    size: Callable[[Expr], Expr] = lambda size: size,
) -> tuple[Step, ...]:
    """The steps with other launches, and other sizes in conditions and of packed copies."""
    out: list[Step] = []
    for step in steps:
        if isinstance(step, Launch):
            out.append(launch(step))
            continue
        if isinstance(step, Call):  # a plan with one has no variants
            out.append(step)
            continue
        then, otherwise = (rewritten(side, launch, size) for side in (step.then, step.otherwise))
        if isinstance(step, If):
            out.append(If(step.condition.rewritten(size), then, otherwise, step.says))
            continue
        parts = tuple(
            replace(part, bytes=size(part.bytes), elements=size(part.elements),
                    layout=tuple(map(size, part.layout)), fill=launch(part.fill))
            for part in step.parts
        )  # fmt: skip
        never = rewritten(step.never, launch, size)
        may_wait = step.may_wait and step.may_wait.rewritten(size)
        out.append(Pack(parts, then, otherwise, never, may_wait))
    return tuple(out)


def with_sizes(plan: KernelPlan, size: Callable[[Expr], Expr]) -> KernelPlan:
    """The plan with `size(e)` in place of every size `e`."""

    def launch(step: Launch) -> Launch:
        return replace(
            step,
            params=tuple(map(size, step.params)),
            extent=size(step.extent),
            cost=size(step.cost),
            scratch_bytes=size(step.scratch_bytes),
            zeroed=tuple((buffer, size(count)) for buffer, count in step.zeroed),
        )

    return KernelPlan(
        rewritten(plan.steps, launch, size),
        tuple(map(size, plan.workspaces)),
        plan.copies_operand,
        short=tuple(map(size, plan.short)),
    )


def sizes_of(steps: tuple[Step, ...]) -> Iterator[Expr]:
    """Every size that decides what `steps` compute: of tasks, of parameters, in conditions."""
    for step in every(steps, never=True):
        for launch in _launches_in(step):
            yield from (launch.extent, *launch.params, *(count for _, count in launch.zeroed))
        if isinstance(step, FftCall):
            yield from (step.batch, step.length)
        elif isinstance(step, FfiCall):
            yield from (*step.sizes, *(size for _, size in step.size_attributes))
        elif isinstance(step, If):
            yield from (size for c in step.condition.conditions for size in (c.lhs, c.rhs))
        elif isinstance(step, Pack):
            yield from (part.bytes for part in step.parts)


@dataclass(frozen=True)
class KernelPlan:
    """Everything that computes one fusion, in order."""

    steps: tuple[Step, ...]
    workspaces: tuple[Expr, ...] = ()
    """Bytes of each temporary block; blocks live only during this plan."""
    copies_operand: bool = False
    """The first step copies Input(0) to Output(0), later steps change Output(0) only: the host
    drops that step when the buffer planner made both one buffer."""
    better_at: tuple[tuple[str, int], ...] = ()
    """Values of symbols for which the emitter writes kernels that are much faster, to be made where
    no call was seen."""
    short: tuple[Expr, ...] = ()
    """Sizes of which the emitter writes kernels that are much faster where they are short numbers.
    They are made for those of the call that was seen (`dynamic/seen.py`)."""
