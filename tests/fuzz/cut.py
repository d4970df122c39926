"""Programs cut into parts at random: XLA runs some equations, as if we could not compile them."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from unittest import mock

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.jax.equations import unsupported
from shlo_disc.jax.versions import tracing
from shlo_disc.jax_private.calls import CALLS

SHARE = "FUZZ_CUT"
"""The environment variable with the share of equations that XLA runs; child processes inherit it.
"""


@contextlib.contextmanager
def cut(seed: int) -> Iterator[bool]:
    """Programs traced inside run in parts if a share is given; yields whether one is."""
    share = float(os.environ.get(SHARE, "0"))
    if not share:
        yield False
        return
    original = unsupported._seen_at_once

    def seen(flat):
        rng = random.Random(seed)
        chosen = {
            k: "left out at random"
            for k, equation in enumerate(flat.equations)
            if rng.random() < share and equation.primitive.name not in CALLS
        }
        return chosen | original(flat)

    def refuse(options, *_):
        raise UnsupportedError(f"{options.name} is cut")

    with (
        mock.patch.object(unsupported, "_seen_at_once", seen),
        mock.patch.object(tracing, "_lowered", refuse),
    ):
        yield True
