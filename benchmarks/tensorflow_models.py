"""A model of Keras: ours beside TensorFlow, which XLA compiles for every shape or which runs ops.

The model is a BERT-base of layers of Keras alone: 12 layers, the published widths, random weights.
Ours is one compilation for all sizes. XLA's time is of a shape it has compiled before.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console

from benchmarks.harness import PEER_SETTLE, Case, compare

NEEDED = ("tensorflow", "keras")

SIZES = (1, 16), (1, 128), (3, 57), (8, 128)

WORDS, PLACES, WIDTH, HEADS, INNER = 30522, 512, 768, 12, 3072


def bert(layers: int = 12) -> Any:
    """From words, i32[b, t], to what the last layer gives, f32[b, t, 768]."""
    import keras
    from keras import layers as of

    class Positions(of.Layer):
        """Adds an embedding of the place in the text."""

        def __init__(self) -> None:
            super().__init__()
            self.table = of.Embedding(PLACES, WIDTH)

        def call(self, x: Any) -> Any:
            return x + self.table(keras.ops.arange(keras.ops.shape(x)[1]))

    words = keras.Input((None,), dtype="int32")
    x = of.LayerNormalization()(Positions()(of.Embedding(WORDS, WIDTH)(words)))
    for _ in range(layers):
        x = of.LayerNormalization()(x + of.MultiHeadAttention(HEADS, WIDTH // HEADS)(x, x))
        inner = of.Dense(INNER, activation="gelu")(x)
        x = of.LayerNormalization()(x + of.Dense(WIDTH)(inner))
    return keras.Model(words, x)


def tensorflow_models(console: Console, quick: bool) -> None:
    """BERT-base of layers of Keras."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        console.print(f"tensorflow_models needs {', '.join(missing)}: run `make bench-tensorflow`")
        return
    import keras
    import numpy as np

    def cases() -> Iterator[Case]:
        keras.utils.set_random_seed(0)
        calls = _systems(bert())
        for sizes in SIZES[: 1 if quick else None]:
            x = _words(*sizes)
            want = calls["tf.function"](x).numpy()
            for system, call in calls.items():
                np.testing.assert_allclose(
                    call(x).numpy(), want, rtol=1e-3, atol=1e-3, err_msg=system
                )
            bound = {system: _bound(call, x) for system, call in calls.items()}
            yield Case(f"BERT-base {' x '.join(map(str, sizes))}", bound, settle=PEER_SETTLE)

    compare(console, "tensorflow_models", "a BERT of Keras", cases(), seconds=0.5 if quick else 2.0)


def _words(batch: int, length: int) -> Any:
    import tensorflow as tf

    return tf.random.uniform((batch, length), 0, WORDS, tf.int32)


def _systems(model: Any) -> dict[str, Callable[[Any], Any]]:
    """Every system's function of the words; ours is compiled for all sizes."""
    import tensorflow as tf

    import shlo_disc.tensorflow

    def predict(x: Any) -> Any:
        return model(x, training=False)

    return {
        "ours": shlo_disc.tensorflow.compile(model),
        "tf.function, XLA": tf.function(predict, jit_compile=True),
        "tf.function": tf.function(
            predict, input_signature=[tf.TensorSpec([None, None], tf.int32)]
        ),
    }


def _bound(call: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    return lambda: call(x)
