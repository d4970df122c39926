"""The function of a `shlo_disc.jit` as `jax.jit` runs it, where XLA runs it in our place."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import jax

from shlo_disc.base.errors import DeviceError
from shlo_disc.jax.arguments.statics import Statics
from shlo_disc.jax.arguments.told import Told
from shlo_disc.jax.calls.call import Options

_log = logging.getLogger("shlo_disc")


_OURS = "INTERNAL: shlo_disc: "


def by_xla(jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any], again: Any) -> Any:
    """A call of ours that XLA runs: `jitted(*args, **kwargs)`.

    Raises DeviceError for what the driver refuses at once. `again(args, kwargs)` makes a call that
    has failed otherwise without XLA: it may find memory that XLA lacks, or says what is wrong.
    `again` is None where the arguments are gone; then JAX's error is raised.
    """
    try:
        return jitted(*args, **kwargs)
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        if text.startswith(_OURS):
            raise DeviceError(text[len(_OURS) :]) from None
        if again is None:
            raise
    _log.info("XLA could not run a call of shlo_disc, which is made again: %s", text)
    return again(args, kwargs)


class UnderJax:
    """`jax.jit` of a function, and what is told of the calls that run so."""

    def __init__(self, options: Options, statics: Statics, keep_unused: bool, tell: Told) -> None:
        self._options, self._statics, self._keep_unused = options, statics, keep_unused
        self.tell = tell
        """Logs that XLA runs something in our place, once."""

    @functools.cached_property
    def function(self) -> Any:
        """`jax.jit` of the function with its static and donated arguments."""
        return self._jitted(self._options.function)

    def calls_of(self, ours: Callable[..., Any]) -> Any:
        """`jax.jit` of `ours`, which takes what the function takes."""

        @functools.wraps(self._options.function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return ours(*args, **kwargs)

        return self._jitted(call)

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
