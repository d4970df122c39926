"""`Executable`: a compiled program with its signature and the text of every stage."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from shlo_disc import ral
from shlo_disc.base import locks
from shlo_disc.base.callbacks import is_callback
from shlo_disc.base.errors import (
    ArgumentPlaceError,
    ChangedArrayError,
    DeletedArrayError,
    DeviceError,
    NumberRangeError,
    ShapeMismatchError,
)
from shlo_disc.base.later import Later
from shlo_disc.dynamic.expr import Expr
from shlo_disc.executables.bridge import bridge_at, donated_twice, jax_bridge, register_ffi_target
from shlo_disc.executables.devices import Place, place_of_platform
from shlo_disc.executables.foreign_errors import foreign_call_error
from shlo_disc.executables.native import copies_for_handlers, ffi_targets_of, native_executable
from shlo_disc.executables.record import ProgramRecord
from shlo_disc.executables.savable import Savable
from shlo_disc.executables.signature import is_known_to_jax, signature_of
from shlo_disc.executables.tensor_call import TensorCall
from shlo_disc.executables.typed_keys import TypedKeys
from shlo_disc.ir.pass_record import PassRecord
from shlo_disc.lower.background import finish_all_later
from shlo_disc.lower.host.record import Unfused
from shlo_disc.lower.plan import any_copies, chosen_kernels, named
from shlo_disc.lower.target import Function, Target
from shlo_disc.report.describe import describe, memory_formula, total_work
from shlo_disc.report.profile import Profile, profile
from shlo_disc.report.render import render
from shlo_disc.report.reported import ArgumentCopies, GpuCalls, MarkedCall

_log = logging.getLogger("shlo_disc")

_CLASSES: dict[str, Callable[[str], Exception]] = {
    "changed": ChangedArrayError,
    "deleted": DeletedArrayError,
    "device": ArgumentPlaceError,
    "donated": donated_twice,
    "overlap": ValueError,
    "rank": ShapeMismatchError,
    "size": ShapeMismatchError,
    "value": NumberRangeError,
}
"""The error of each kind of `ral.ArgumentError`; of others it is TypeError."""


class RegionsApart(Protocol):
    """A program whose regions are programs, for calls that break what some of them need."""

    def call_leaves(self, leaves: Sequence[Any]) -> list[Any]:
        """As :meth:`Executable.call_leaves`."""

    def run_numpy(self, leaves: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """As :meth:`Executable.run_numpy`."""

    def tensor_call(self, tensor_type: type | None) -> Callable[[Sequence[Any]], list[Any]]:
        """As :meth:`Executable.tensor_call`."""


_FAILURES = (MemoryError, ral.ArgumentError, ral.ForeignError, ral.GuardError)
"""What a call of a native program raises."""


def warn_of_donated(executable: Executable) -> None:
    """Warn of donated arguments whose memory no result can use."""
    used = {argument for argument, _ in executable.host.reuses}
    wasted = [
        str(executable.signature.arguments[k]) for k in executable.record.donated if k not in used
    ]
    if wasted:
        warnings.warn(
            f"{executable.name}: no result can use the memory of donated arguments "
            f"{', '.join(wasted)}; a jax.Array is deleted all the same",
            stacklevel=3,
        )


class Executable(Savable):
    """A program compiled once for every shape its signature allows.

    Stateless in calls: any number of threads may call one executable, at different shapes.
    """

    def __init__(
        self,
        record: ProgramRecord,
        *,
        target: Later[Target],
        kernels: Sequence[Function],
        plans: Sequence[Function] = (),
        entry_points: tuple[Function, Function],
        apart: Callable[[], RegionsApart] | None = None,
    ) -> None:
        self.record = record
        self.name, self.program, self.host = record.name, record.program, record.host
        self._target = target
        self.platform = platform = record.target.partition(":")[0]
        """JAX's name of what it runs on: "cpu"."""
        self.kept_at: bytes | None = None
        """The key that it is kept under on disk."""
        self.weights: frozenset[str] = frozenset()
        """Names of large constants that its entry on disk has none of."""
        self.not_kept = ""
        """Why no later process can load it, behind "it"; "" if one can, or if nothing is kept."""
        self.lowered_anew = ""
        """Why every process lowers it to StableHLO, behind "it"; "" if it need not."""
        self.was_loaded = False
        """True if it was not compiled in this process, but kept on disk."""
        self.stands_in = False
        """True if its kernels for short sizes are for those of another first call."""
        self.keys = TypedKeys()
        """Arguments and results that are typed keys where the executable is called; `call_leaves`
        takes and gives their words."""
        self.donated = frozenset(record.donated)
        """Arguments whose arrays a call deletes."""
        self._kernels = tuple(kernels)
        self._known_to_jax = all(is_known_to_jax(result.element) for result in record.results)
        self.signature = signature_of(record)
        self._has_wide_results = any(
            r.dtype.itemsize == (16 if r.dtype.kind == "c" else 8) for r in self.signature.results
        )
        targets = ffi_targets_of(record)
        self.on_host = frozenset(
            name
            for name, found in targets.items()
            if found.platform != platform and not is_callback(name)
        )
        """FFI targets that a program for a GPU calls on the host, with copies; not Python, which is
        called there anyway."""
        if self.on_host:
            _log.warning(*copies_for_handlers(record, self.on_host))
        self._native = native_executable(record, self._kernels, plans, entry_points, targets)
        self._fingerprint: int | None = None
        self._make_apart: Callable[[], RegionsApart] | None = None
        self._apart: RegionsApart | None = None
        self._making = locks.lock()
        if apart is not None:
            self.run_apart_by(apart)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Run on arrays in the order of `signature.arguments`; the results as `jax.Array`s.

        Takes `jax.Array`, numpy, Python scalars and CPU arrays with `__dlpack__`, without copying
        where layout and alignment allow. JAX packs elements of 2 and 4 bits, so that its arrays of
        them are copied, and so are results. 64-bit results are 64-bit arrays, also while
        `jax_enable_x64` is off. Results are numpy arrays if one has a type that JAX lacks (6-bit
        floats). Typed keys are taken and given where the exported program has them. Raises
        ShapeMismatchError (sizes that break a constraint), TypeError (number, dtype
        or rank of arguments).
        """
        return tuple(self.keys.keys(self.call_leaves(self.keys.words(arrays))))

    def run_apart_by(self, apart: Callable[[], RegionsApart]) -> None:
        """Have calls that break a guard of a region run by what `apart` gives, once."""
        self._make_apart = apart

    def packs(self) -> list[tuple[int, int, npt.NDArray[np.uint8]]]:
        """The packed copies of constants: a constant, a slot of `host.pack_keys`, and bytes."""
        found = self._native.packs()
        return [(constant, slot, np.frombuffer(data, np.uint8)) for constant, slot, data in found]

    def add_pack(self, constant: int, slot: int, data: npt.NDArray[np.uint8]) -> None:
        """Have calls read this packed copy of a constant. Raises IndexError."""
        self._native.add_pack(constant, slot, data)

    def call_leaves(self, leaves: Sequence[Any], place: Place | None = None) -> list[Any]:
        """As calling, from and to lists.

        `place`: where a program for GPUs runs; by default where its first `jax.Array` is, or else
        on JAX's first device of the platform.
        """
        if not self._known_to_jax:
            return self.run_numpy(leaves)
        bridge = self._bridge(leaves, place)
        return self._run(lambda apart: apart.call_leaves(leaves), self._native.call, bridge, leaves)

    def _bridge(self, leaves: Sequence[Any] = (), place: Place | None = None) -> ral.JaxBridge:
        if self.platform == "cpu":
            return jax_bridge(self._has_wide_results)
        return bridge_at(place or place_of_platform(self.platform, leaves))

    def run_numpy(self, leaves: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """As `call_leaves` with numpy arrays as results; does not touch JAX."""
        return self._run(lambda apart: apart.run_numpy(leaves), self._native.run_numpy, leaves)

    def tensor_call(
        self,
        tensor_type: type | None,
        *,
        versioned: Sequence[int] = (),
        frozen: Sequence[int] = (),
        weights: ral.Weights | None = None,
        over: Callable[[Any, tuple[int, ...]], Any] | None = None,
        flag: int | None = None,
    ) -> TensorCall:
        """How a framework calls the program: with tensors in, and new `tensor_type`s out.

        Without a `tensor_type` the results are capsules of DLPack (named "dltensor"), from which a
        framework makes a tensor each.

        Tensors are read and made through DLPack's C table of their types, without a copy. Dense
        ones are read in place, others are copied once per call (see :attr:`copies`). Arguments may
        also be numpy arrays, Python numbers and whatever `__call__` takes.

        `versioned` and `frozen` number arguments whose packed copies `weights` keeps from call to
        call. Copies of a versioned argument serve calls with the same version of the same memory.
        Copies of a frozen argument serve calls with the same memory. The caller vouches that the
        elements are the same then. Other arguments are packed anew in each call.

        `over` makes a tensor of a donated one and of sizes, in the memory of the donated one, which
        holds the result by then. Without it donated tensors are read only. Calls raise ValueError
        for a donated tensor that shares memory with another argument.

        The result `flag`, a scalar of bool or int32, is a Python integer instead. It is a tensor
        where a call runs its regions apart.

        Raises TypeError for a type without a table, for a result type that DLPack lacks, and for a
        flag of another type. So it does for numbers of weights without `weights`. Raises IndexError
        for an argument or a flag that does not exist, and ValueError for one that is named twice.
        """
        if weights is None:
            if versioned or frozen:
                raise TypeError("versioned and frozen arguments need weights to keep copies in")
            weights = ral.Weights(_never_kept)
        native = ral.TensorCall(
            self._native,
            ral.TensorBridge(tensor_type),
            weights,
            versioned=list(versioned),
            frozen=list(frozen),
            over=over,
            flag=flag,
        )

        def call(leaves: Sequence[Any], versions: Sequence[int]) -> list[Any]:
            try:
                return native(leaves, versions)
            except _FAILURES as error:
                apart = self._apart_for(error)
            return apart.tensor_call(tensor_type)(leaves)

        return TensorCall(tensor_type, call)

    @property
    def target(self) -> Target:
        """What it was compiled for."""
        return self._target.value

    @property
    def symbols(self) -> frozenset[str]:
        """The names of its sizes."""
        return frozenset(self.program.symbol_names)

    @property
    def unfused(self) -> tuple[Unfused, ...]:
        """Fusions no kernel could be written for, which became smaller ones: mistakes of ours."""
        return self.record.unfused

    @property
    def passes(self) -> tuple[PassRecord, ...]:
        """What every pass did, in order."""
        return self.record.passes

    @property
    def stage_ms(self) -> tuple[tuple[str, float], ...]:
        """The stages of its compilation, and how long each took."""
        return self.record.stage_ms

    @property
    def code_bytes(self) -> int:
        """Machine code of its kernels so far, constants aside; other programs may share them."""
        return sum(kernel.size_bytes for kernel in self._kernels)

    @property
    def loaded_kernels(self) -> int:
        """Kernels whose code was not compiled in this process, but kept on disk."""
        return sum(kernel.from_store for kernel in self._kernels)

    def compile_for_all_sizes(self) -> None:
        """Have the kernels that no call has needed compiled in the background."""
        finish_all_later(self._kernels)

    def compile_near(self, sizes: Mapping[str, int]) -> None:
        """Have the kernels compiled in the background that calls near `sizes` need.

        These are sizes larger by one: few rows have kernels of their own. A later process whose
        first call is there then loads all of its code.
        """
        near = {name: size + 1 for name, size in sizes.items()}
        plans = (use.plan for use in self.host.uses)
        wanted = {k.source for plan in plans for k in chosen_kernels(plan.steps, near, any_copies)}
        kernels = zip(self.host.kernels, self._kernels, strict=True)
        finish_all_later(function for kernel, function in kernels if kernel.source in wanted)

    @property
    def late_kernels(self) -> int:
        """Kernels that no call has needed so far, and that have no code yet."""
        return sum(kernel.size_bytes == 0 for kernel in self._kernels)

    @property
    def packable(self) -> tuple[int, ...]:
        """Arguments of which the program may keep packed copies, in order."""
        return tuple(sorted(self.host.packed_arguments))

    @property
    def copies(self) -> ArgumentCopies:
        """The arguments that calls have copied since the program was compiled."""
        calls, size = self._native.copies
        named = zip(self.program.names, calls, strict=True)
        return ArgumentCopies({name: count for name, count in named if count}, size)

    @property
    def gpu_calls(self) -> GpuCalls:
        """How calls on GPUs were made since the program was compiled."""
        return GpuCalls(*self._native.gpu_calls)

    @property
    def unused_donations(self) -> dict[str, int]:
        """By the argument's path: calls in which no result was written into a donated tensor.

        Only dense tensors with elements take results. Arguments without such calls are left out.
        """
        named = zip(self.program.names, self._native.unused_donations, strict=True)
        return {name: count for name, count in named if count}

    def _run(
        self,
        again: Callable[[RegionsApart], list[Any]],
        call: Callable[..., list[Any]],
        *args: Any,
    ) -> list[Any]:
        """`call(*args)`; or, where `_apart_for` says so, `again` with the regions apart."""
        try:
            return call(*args)
        except _FAILURES as error:
            apart = self._apart_for(error)
        return again(apart)

    def _apart_for(self, error: Exception) -> RegionsApart:
        """The program with its regions apart, for a call that a guard of a region has refused.

        So it is where there is no memory for regions that may not run. Raises any other failure, as
        an error of a user.
        """
        if isinstance(error, MemoryError):
            runs_apart = self._make_apart is not None and not self.donated
        else:
            is_guard = isinstance(error, ral.GuardError) and self._make_apart is not None
            runs_apart = is_guard and self._counts_in_region(error.args[0])
        if not runs_apart:
            told = self._told(error)
            raise told from told.__cause__
        return self._with_regions_apart()

    def dispatch_entry(
        self,
        unflatten: Callable[[list[Any]], Any] | None,
        dtypes: tuple[np.dtype[Any] | None, ...],
        place: Place | None = None,
        through_after: int | None = None,
    ) -> ral.DispatchEntry:
        """For `ral.Dispatcher`: calls without a Python frame of ours. They raise errors of `ral`;
        `call_leaves` explains them. `place` as there, `through_after` as of `ral.DispatchEntry`.
        """
        bridge = self._bridge((), place)
        return ral.DispatchEntry(self._native, bridge, unflatten, dtypes, through_after)

    def as_users_call(self, leaves: Sequence[Any]) -> Callable[[], object]:
        """A call as users make it, waited for; on a GPU arrays are there, where JAX has it."""
        if self.platform == "cpu":
            return lambda: self.call_leaves(leaves)
        try:
            device = place_of_platform(self.platform).device
        except DeviceError:
            return lambda: self.run_numpy(leaves)
        import jax  # noqa: PLC0415 - only where JAX has the device

        there = [jax.device_put(leaf, device) for leaf in leaves]
        ready: Callable[[object], object] = jax.block_until_ready
        return lambda: ready(self.call_leaves(there))

    def call_marked(self, run: Function, leaves: Sequence[Any]) -> MarkedCall:
        """As `call_leaves`, by the host program `run` (see `report.profile`).

        Arrays are copied to a GPU, whose own times the marks then are.
        """
        bridge = self._bridge(leaves) if self.platform == "cpu" else None
        try:
            return MarkedCall(*self._native.profile(run.address, bridge, leaves))
        except _FAILURES as error:
            told = self._told(error)
            raise told from told.__cause__

    def _told(self, error: Exception) -> Exception:
        """The error of a user for one of the runtime."""
        if isinstance(error, MemoryError):
            return error
        if isinstance(error, ral.GuardError):
            return self._explained(error)
        if isinstance(error, ral.ForeignError):
            return foreign_call_error(error)
        index, kind, what = error.args
        where = f"argument {index} ({self.program.names[index]!r}): " if index >= 0 else ""
        return _CLASSES.get(kind, TypeError)(f"{self.name}: {where}{what}")

    def _explained(self, error: ral.GuardError) -> ShapeMismatchError:
        """What the user is told of a guard that does not hold."""
        shapes: Any = error.args[2]
        elements: Sequence[Any] = error.args[3:]
        try:
            self.program.evaluate(shapes, *elements)
        except ShapeMismatchError as explained:
            return explained
        got = f"{shapes}" + "".join(f", sizes {e}" for e in elements if e)
        return ShapeMismatchError(f"{self.name}: {error.args[1]}, got {got}")

    @property
    def checked(self) -> list[str]:
        """What must hold of the sizes of a call, in words."""
        is_apart = self._make_apart is not None
        return [
            f"{check.message} (if its region runs)"
            if is_apart and check.in_region
            else check.message
            for check in self.program.checks
        ]

    def _counts_in_region(self, guard: int) -> bool:
        """True if a call may break the guard and be valid: regions that need it may not run."""
        checks = self.program.checks
        return guard >= len(checks) or checks[guard].in_region  # behind them is TOO_LARGE

    def _with_regions_apart(self) -> RegionsApart:
        """The program with each region as a program, compiled when first needed."""
        assert self._make_apart is not None
        with self._making:
            if self._apart is None:
                self._apart = self._make_apart()
            return self._apart

    @property
    def fingerprint(self) -> int:
        """The attribute `executable` of an XLA FFI custom call of this program.

        Registers the program on first use. An XLA executable made while this object lives keeps
        the program alive.
        """
        if self._fingerprint is None:
            register_ffi_target()
            # A hash of the machine-independent program: XLA's compilation cache on disk outlives
            # this process and must find this program or none.
            texts = [self.record.target, str(self.signature), self.host.text]
            texts.append(dict(self.record.texts.value)["disc"])  # it determines the kernels
            texts += [repr(call) for call, _ in self.host.foreign]
            digest = hashlib.sha256("\0".join(texts).encode())
            for constant in self.host.constants:
                digest.update(constant.nbytes.to_bytes(8, "little"))
                digest.update(constant.data)
            self._fingerprint = int.from_bytes(digest.digest()[:8], "little") >> 1
            self._native.register_ffi(self._fingerprint)
        return self._fingerprint

    def as_text(self, stage: str = "disc") -> str:
        """The program at a stage: "stablehlo" (as ingested), "disc" (fusions and buffers planned),
        "host" (the host program), "kernels" (MLIR of every kernel) or "llvm".

        The last stage is "asm" on CPUs, "ptx" and "sass" (machine code) for NVIDIA's GPUs and
        "amdgcn" for AMD's.

        Raises ValueError for another stage and UnsupportedError where a tool is missing: `objdump`
        ("asm"), `nvdisasm` or `ptxas` ("sass").
        """
        kept = dict(self.record.texts.value) if stage in STAGES else {}
        if stage in kept:
            return kept[stage]
        if stage == "host":
            return self.host.whole()
        if stage == "kernels":
            return "\n".join(
                f"// {k.name}\n{named(k.text, self.target.function_name(k.text))}"
                for k in self.host.kernels
            )
        if stage in self.target.views:
            return self.target.views[stage]([kernel.source for kernel in self.host.kernels])
        stages = ", ".join((*STAGES, *self.target.views))
        raise ValueError(f"no stage {stage!r}; stages: {stages}")

    def explain(
        self,
        sizes: Mapping[str, int] | None = None,
        *,
        format: str = "text",
    ) -> str:
        """Every kernel with kind, source lines, ops, the variants that sizes choose from, bytes and
        operations as formulas, and why it was not fused with what it reads; checks; memory.

        `sizes`: values of the symbols of the signature, for numbers beside the formulas. `format`:
        "text", "json" or "html" (one self-contained page).

        Raises KeyError for a symbol without a value, ValueError for another format.
        """
        return render([self.describe(sizes)], format)

    def describe(
        self,
        sizes: Mapping[str, int] | None = None,
        calls: Sequence[tuple[Mapping[str, int], int]] = (),
    ) -> dict[str, Any]:
        """What `explain` shows, as data; `calls` as in :func:`shlo_disc.report.describe.describe`.

        Raises KeyError for a symbol without a value.
        """
        return describe(self, sizes, calls)

    def profile(self, *arrays: Any, calls: int | None = None) -> Profile:
        """Time every kernel of a call on these arguments, beside the floor of this machine.

        `calls`: how many are timed; by default those of about a second, 5 to 50. Raises what a
        call raises, and ValueError for less than one call.
        """
        return profile(self, arrays, calls)

    def cost_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """Arithmetic operations, transcendentals and bytes accessed by a call (bodies of loops
        once): formulas over the symbols of the signature, numbers when `sizes` gives their values.

        The keys are those of `jax.stages.Compiled.cost_analysis`. Raises KeyError for a symbol
        without a value.
        """
        work = total_work(self.host)
        return {
            "flops": _value(work.flops, sizes),
            "transcendentals": _value(work.transcendentals, sizes),
            "bytes accessed": _value(work.reads + work.writes, sizes),
        }

    def memory_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """Bytes of arguments, results, results in donated arguments' memory, temporary memory, the
        peak of a call (without copies kept packed) and machine code; formulas, or numbers at
        `sizes`.

        The keys are those of `jax.stages.Compiled.memory_analysis`. Raises KeyError for a symbol
        without a value.
        """
        widths = [spec.dtype.itemsize for spec in self.signature.arguments]
        given = _total(zip(widths, self.program.arguments, strict=True))
        widths = [spec.dtype.itemsize for spec in self.signature.results]
        made = _total(zip(widths, self.program.results, strict=True))
        pairs = [result for _, result in self.host.reuses]
        shared = _total((widths[k], self.program.results[k]) for k in pairs)
        temporary = memory_formula(self.host)
        return {
            "argument_size_in_bytes": _value(given, sizes),
            "output_size_in_bytes": _value(made, sizes),
            "alias_size_in_bytes": _value(shared, sizes),
            "temp_size_in_bytes": _value(temporary, sizes),
            "peak_memory_in_bytes": _value(given + made + temporary - shared, sizes),
            "generated_code_size_in_bytes": self.code_bytes,
        }

    def __repr__(self) -> str:
        return f"<shlo_disc.Executable {self.name}{self.signature}>"


STAGES = ("stablehlo", "disc", "host", "kernels")
"""What `as_text` shows of every target, in the order of compilation."""


def _total(arrays: Iterable[tuple[int, Sequence[Expr]]]) -> Expr:
    total = Expr.const(0)
    for width, shape in arrays:
        total = total + Expr.product(shape) * width
    return total


def _value(size: Expr, sizes: Mapping[str, int] | None) -> str | int:
    if sizes is None:
        return size.value if size.is_const else str(size)
    return size.evaluate(sizes)


def _never_kept(array: Any) -> NoReturn:
    raise AssertionError(f"no argument is a weight, but {array!r} was taken for one")
