"""Makes `model.disc`: an encoder layer with its weights inside, for any batch and length.

python examples/deploy/make_model.py model.disc
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

import shlo_disc

WIDTH, HIDDEN = 64, 256


def weights() -> dict[str, np.ndarray]:
    """Random weights, the same in every run."""
    rng = np.random.default_rng(0)
    shapes = {
        "query": (WIDTH, WIDTH), "key": (WIDTH, WIDTH), "value": (WIDTH, WIDTH),
        "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH),
    }  # fmt: skip
    return {name: rng.standard_normal(s).astype("f4") / 8 for name, s in shapes.items()}


WEIGHTS = weights()


@shlo_disc.jit
def encoder(x):
    """One layer: [batch, time, 64] to the same."""
    q, k, v = (x @ WEIGHTS[name] for name in ("query", "key", "value"))
    x = x + jax.nn.softmax(q @ k.transpose(0, 2, 1) / 8) @ v
    return x + jax.nn.gelu(x @ WEIGHTS["up"]) @ WEIGHTS["down"]


def main() -> None:
    """Save the function for processors with AVX2 and with AVX-512."""
    path = sys.argv[1] if len(sys.argv) > 1 else "model.disc"
    example = jax.ShapeDtypeStruct((2, 16, WIDTH), jnp.float32)
    encoder.lower(example).compile().save(path)
    print(shlo_disc.load(path).signature)


if __name__ == "__main__":
    main()
