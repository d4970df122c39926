"""The function of a `shlo_disc.jit` as `jax.jit` runs it, where XLA runs it in our place."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import jax

from shlo_disc.frontend.call import Options
from shlo_disc.frontend.statics import Statics

__all__ = ["UnderJax"]

_log = logging.getLogger("shlo_disc")


class UnderJax:
    """`jax.jit` of a function, and what is told of the calls that run so."""

    def __init__(self, options: Options, statics: Statics, keep_unused: bool) -> None:
        self._options, self._statics, self._keep_unused = options, statics, keep_unused
        self.told: dict[str, None] = {}
        """What XLA runs, and why: each once, for :meth:`JitFunction.explain`."""
        self._around: Any = None

    def tell(self, text: str) -> None:
        """Log that XLA runs something in our place, once."""
        if text not in self.told:
            self.told[text] = None
            _log.warning("%s %s", self._options.name, text)

    @functools.cached_property
    def function(self) -> Any:
        """`jax.jit` of the function with its static and donated arguments."""
        return self._jitted(self._options.function)

    def around(self, ours: Callable[..., Any]) -> Any:
        """`jax.jit` of calls of `ours`, the same function compiled by us."""
        if self._around is None:

            @functools.wraps(self._options.function)
            def call(*args: Any, **kwargs: Any) -> Any:
                return ours(*args, **kwargs)

            self._around = self._jitted(call)
        return self._around

    def _jitted(self, function: Callable[..., Any]) -> Any:
        options = self._options
        return jax.jit(
            function,
            static_argnums=self._statics.nums or None,
            static_argnames=self._statics.names or None,
            donate_argnums=tuple(options.donate_nums) or None,
            donate_argnames=tuple(options.donate_names) or None,
            keep_unused=self._keep_unused,
        )
