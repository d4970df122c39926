"""`f.trace(*args)`, `f.lower(*args)` and `.compile()`: a function seen stage by stage, as with
`jax.jit`; the objects have what those of `jax.stages` have.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Unpack

import jax
from jax.experimental.layout import Format, Layout

from shlo_disc import ral
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.executables.savable import SaveOptions
from shlo_disc.jax.arguments.plan import Pattern
from shlo_disc.jax.calls.compiled_call import CompiledCall
from shlo_disc.jax.calls.lowered import LoweredModule
from shlo_disc.jax.calls.under_jax import by_xla
from shlo_disc.jax.versions.tracing import InParts

FirstCall = Callable[
    [tuple[Any, ...], dict[str, Any]],
    tuple[Any, ral.DispatchEntry | None, tuple[ral.SizePattern, ral.DispatchEntry] | None],
]
"""`(args, kwargs) -> (results, what runs calls of these sizes, what runs those of others)`."""


class _OfCall:
    """Arguments and results at the sizes a stage was made for, as JAX describes them."""

    def __init__(self, trace: Callable[[], jax.stages.Traced]) -> None:
        self._trace = trace

    @cached_property
    def _traced(self) -> jax.stages.Traced:
        return self._trace()

    @property
    def in_tree(self) -> Any:
        """The structure of `(args, kwargs)`."""
        return self._traced.in_tree

    @property
    def in_avals(self) -> Any:
        """The types of the arguments, `(args, kwargs)`."""
        return self._traced.in_avals

    @property
    def args_info(self) -> Any:
        """`jax.stages.ArgInfo` of every argument, in their structure."""
        return self._traced.args_info

    @property
    def out_tree(self) -> Any:
        """The structure of the results."""
        return self._traced.out_tree

    @property
    def out_info(self) -> Any:
        """`jax.ShapeDtypeStruct` of every result, in their structure."""
        return self._traced.out_info

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The leaves of the arguments that a call deletes."""
        return tuple(self._traced.donate_argnums)


class Traced(_OfCall):
    """A function traced at the sizes of a call, before its sizes are made symbols."""

    def __init__(
        self, trace: Callable[[], jax.stages.Traced], lower: Callable[[], Lowered]
    ) -> None:
        super().__init__(trace)
        self._lower = lower

    @property
    def fun_name(self) -> str:
        """The function's name."""
        return str(self._traced.fun_name)

    @property
    def jaxpr(self) -> Any:
        """The program at these sizes, as `jax.make_jaxpr` gives it."""
        return self._traced.jaxpr

    @property
    def out_avals(self) -> Any:
        """The types of the results."""
        return self._traced.out_avals

    @property
    def effects(self) -> frozenset[Any]:
        """The side effects of the program, such as of `jax.debug.print`."""
        return frozenset(self._traced.jaxpr.effects)

    def lower(self, *, lowering_platforms: tuple[str, ...] | None = None) -> Lowered:
        """The version for these arguments.

        Raises UnsupportedError for platforms other than `cpu`.
        """
        if lowering_platforms is not None and tuple(lowering_platforms) != ("cpu",):
            raise UnsupportedError(f"shlo_disc compiles for the CPU, not for {lowering_platforms}")
        return self._lower()

    def __repr__(self) -> str:
        return f"<shlo_disc.Traced {self.fun_name}>"


class VersionCalls(ral.Dispatcher):
    """Calls of one version: those like an earlier one run without Python.

    `first(args, kwargs)` runs a call and returns its results and what the dispatcher needs for more
    like it: a `ral.DispatchEntry`, and the version with the pattern of its sizes; None for none.
    `jitted` is the version under `jax.jit`, for calls that XLA enqueues on a GPU. `can_repeat`: one
    that has failed there may be made once more.
    """

    def __init__(self, first: FirstCall, jitted: Any, *, can_repeat: bool, **setting: Any) -> None:
        super().__init__(**setting)
        self._first, self._jitted, self._can_repeat = first, jitted, can_repeat
        self.slow = 0
        """Calls that took Python."""

    def _call_slowly(self, *args: Any, **kwargs: Any) -> Any:
        self.slow += 1
        results, entry, offer = self._first(args, kwargs)
        if entry is not None:
            self._add(args, kwargs, entry)
        if offer is not None:
            self._offer(args, kwargs, [offer])
        return results

    def _call_through(self, *args: Any, **kwargs: Any) -> Any:
        again = (lambda a, k: self._first(a, k)[0]) if self._can_repeat else None
        return by_xla(self._jitted, args, kwargs, again)


class Compiled(_OfCall):
    """A compiled version: callable like the function, but never compiles another."""

    def __init__(
        self,
        name: str,
        executable: CompiledCall,
        pattern: Pattern,
        calls: VersionCalls,
        trace: Callable[[], jax.stages.Traced],
        sizes: Mapping[str, int],
    ) -> None:
        super().__init__(trace)
        self.name = name
        self.executable = executable
        """The `shlo_disc.executables.executable.Executable` under it."""
        self.pattern = pattern
        """What it assumes of the sizes."""
        self.sizes = dict(sizes)
        """The values of its symbols in the call it was lowered for."""
        self.calls = calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run; raises ShapeMismatchError for sizes this version is not for."""
        return self.calls(*args, **kwargs)

    call = __call__

    def save(
        self,
        path: str | os.PathLike[str],
        targets: Sequence[str] | None = None,
        **options: Unpack[SaveOptions],
    ) -> None:
        """Write an artifact: see :meth:`shlo_disc.Executable.save`.

        It takes the leaves of the arguments that the program reads, in order, and gives the leaves
        of the results.
        """
        self.executable.save(path, targets, **options)

    def runtime_executable(self) -> CompiledCall:
        """The object that runs, `executable`."""
        return self.executable

    def as_text(self, stage: str = "disc") -> str:
        """The program at a stage: "stablehlo", "disc", "kernels", "llvm" or "asm"."""
        return self.executable.as_text(stage)

    def cost_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Operations and bytes of a call at `sizes`; by default at those it was lowered for.

        See :meth:`shlo_disc.Executable.cost_analysis`, which also gives the formulas.
        """
        return dict(self.executable.cost_analysis(self.sizes if sizes is None else sizes))

    def memory_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Bytes of a call at `sizes`; by default at those it was lowered for.

        See :meth:`shlo_disc.Executable.memory_analysis`, which also gives the formulas.
        """
        return dict(self.executable.memory_analysis(self.sizes if sizes is None else sizes))

    @property
    def input_shardings(self) -> Any:
        """The sharding of every argument, `(args, kwargs)`: one CPU device."""
        return jax.tree.map(lambda _: _sharding(), self.args_info, is_leaf=_is_info)

    @property
    def output_shardings(self) -> Any:
        """The sharding of every result: one CPU device."""
        return jax.tree.map(lambda _: _sharding(), self.out_info)

    @property
    def input_formats(self) -> Any:
        """The layout and sharding of every argument, `(args, kwargs)`: row-major."""
        return jax.tree.map(lambda i: _format(i.shape), self.args_info, is_leaf=_is_info)

    @property
    def output_formats(self) -> Any:
        """The layout and sharding of every result: row-major."""
        return jax.tree.map(lambda i: _format(i.shape), self.out_info)

    def __repr__(self) -> str:
        return f"<shlo_disc.Compiled {self.name}>"


def _is_info(value: Any) -> bool:
    return isinstance(value, jax.stages.ArgInfo)


def _sharding() -> jax.sharding.Sharding:
    return jax.sharding.SingleDeviceSharding(jax.local_devices(backend="cpu")[0])


def _format(shape: tuple[int, ...]) -> Format:
    return Format(Layout(major_to_minor=tuple(range(len(shape)))), _sharding())


class Lowered(_OfCall):
    """A version of a function, traced; it is compiled when a later stage is asked for."""

    def __init__(
        self,
        name: str,
        lowered: LoweredModule | InParts,
        pattern: Pattern,
        compile: Callable[[], Compiled],
        trace: Callable[[], jax.stages.Traced],
    ) -> None:
        super().__init__(trace)
        self.name = name
        self.lowered = lowered
        """What the compiler gets."""
        self.pattern = pattern
        """What the version assumes of the sizes."""
        self._compile = compile

    def as_text(self, stage: str = "stablehlo") -> str:
        """The program at a stage: "stablehlo", "disc", "kernels", "llvm" or "asm".

        All but "stablehlo" compile the version, if a call has not done so.
        """
        if stage == "stablehlo":
            return self.lowered.mlir_module()
        return self._compile().as_text(stage)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The StableHLO module with symbolic sizes, as an object of `jax.extend.mlir.ir`.

        Raises ValueError for another `dialect` than "stablehlo".
        """
        if dialect not in (None, "stablehlo"):
            raise ValueError(f"there is no {dialect!r} of this program, only 'stablehlo'")
        return self.lowered.module()

    def cost_analysis(self) -> dict[str, Any]:
        """See :meth:`Compiled.cost_analysis`; compiles the version, if a call has not done so."""
        return self._compile().cost_analysis()

    def compile(self) -> Compiled:
        """The compiled version, shared with calls of the function."""
        return self._compile()

    def __repr__(self) -> str:
        return f"<shlo_disc.Lowered {self.name}>"
