"""What a function tells its user of calls that XLA runs in our place."""

from __future__ import annotations

import logging

_log = logging.getLogger("shlo_disc")

BY_JAX = "runs as jax.jit runs it, once compiled for every shape"


class Told:
    """Sentences about a function, each logged once.

    It holds nothing of the function but the name: programs may outlive their function.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.texts: dict[str, None] = {}
        """In the order in which they were told, for :meth:`JitFunction.explain`."""

    def __call__(self, text: str) -> None:
        """Log `text`, which begins with a verb, if it is new."""
        if text not in self.texts:
            self.texts[text] = None
            _log.warning("%s %s", self._name, text)
