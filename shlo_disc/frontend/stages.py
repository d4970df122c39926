"""`f.lower(*args)` and `.compile()`: a version of a function, seen stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jax import export

from shlo_disc.frontend.plan import Pattern
from shlo_disc.frontend.program import CompiledCall

__all__ = ["Compiled", "Lowered"]


class Compiled:
    """A compiled version: callable like the function, but never compiles another."""

    def __init__(
        self, name: str, executable: CompiledCall, pattern: Pattern, call: Callable[..., Any]
    ) -> None:
        self.name = name
        self.executable = executable
        """The `shlo_disc.executable.Executable` under it."""
        self.pattern = pattern
        """What it assumes of the sizes."""
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run; raises ShapeMismatchError for sizes this version is not for."""
        return self._call(args, kwargs)

    def as_text(self, stage: str = "disc") -> str:
        """The program at a stage: "stablehlo", "disc", "kernels", "llvm" or "asm"."""
        return self.executable.as_text(stage)

    def cost_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """See :meth:`shlo_disc.Executable.cost_analysis`."""
        return self.executable.cost_analysis(sizes)

    def memory_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """See :meth:`shlo_disc.Executable.memory_analysis`."""
        return self.executable.memory_analysis(sizes)

    def __repr__(self) -> str:
        return f"<shlo_disc.Compiled {self.name}>"


class Lowered:
    """A version of a function, traced; it is compiled when a later stage is asked for."""

    def __init__(
        self,
        name: str,
        exported: export.Exported,
        pattern: Pattern,
        compile: Callable[[], Compiled],
    ) -> None:
        self.name = name
        self.exported = exported
        """The `jax.export.Exported` that the compiler gets."""
        self.pattern = pattern
        """What the version assumes of the sizes."""
        self._compile = compile

    def as_text(self, stage: str = "stablehlo") -> str:
        """The program at a stage: "stablehlo", "disc", "kernels", "llvm" or "asm".

        All but "stablehlo" compile the version, if a call has not done so.
        """
        if stage == "stablehlo":
            return str(self.exported.mlir_module())
        return self._compile().as_text(stage)

    def compile(self) -> Compiled:
        """The compiled version, shared with calls of the function."""
        return self._compile()

    def __repr__(self) -> str:
        return f"<shlo_disc.Lowered {self.name}>"
