"""What the product wants to reach: how many times faster than the others, by suite and case.

Medians on two cores with AVX-512. The first number is against `jax.jit`, which compiles every
shape, the second against the best system that serves all shapes with one compilation.
"""

from __future__ import annotations

DYNAMIC = frozenset({
    "JAX", "ONNX Runtime", "OpenBLAS", "tf.function", "torch", "torch.compile",
    "torch.compile, frozen",
})  # fmt: skip
"""Systems that serve all shapes with one compilation; "JAX" is ours from JAX."""

TARGETS: dict[tuple[str, str], tuple[float | None, float | None]] = {
    ("bert", "1 x 16"): (2.0, 1.1),
    ("bert", "1 x 128"): (1.4, 1.1),
    ("bert", "8 x 128"): (1.35, 1.1),
    ("bert", "1 x 384"): (1.45, 1.1),
    ("micro", "softmax 4096 x 768"): (4.0, 1.3),
    ("micro", "layer-norm 4096 x 768"): (4.0, 1.3),
    ("micro", "gelu 4096 x 768"): (4.0, 1.3),
    ("micro", "softmax 64 x 64"): (1.0, 1.3),
    ("micro", "layer-norm 64 x 64"): (1.0, 1.3),
    ("micro", "gelu 64 x 64"): (1.0, 1.3),
    ("micro", "element-wise 4096 x 2048"): (8.0, 2.0),
    ("gemm", "2048 x 2048 x 2048"): (1.08, 1.05),
    ("gemm", "128 x 768 x 3072"): (1.15, 1.05),
    ("gemm", "1 x 768 x 3072"): (1.5, 1.05),
    ("attention", "1 x 128"): (1.3, 1.0),
    ("attention", "1 x 1024"): (1.5, 1.0),
    ("attention", "1 x 4096"): (2.0, 1.0),
    ("recurrent", "LSTM 256 steps, batch 1"): (1.6, 1.5),
    ("models", "DIEN 128 x 100"): (2.0, None),
    ("models", "ASR encoder 4 x 300"): (2.0, None),
    ("models", "CRNN 4 x 160"): (2.0, None),
    ("models", "BERT training, 2 layers 4 x 64"): (1.3, None),
    ("models", "Transformer training 8 x 48 x 40"): (1.3, None),
}

FOR_ALL: dict[str, tuple[float | None, float | None]] = {
    "callbacks": (0.5, None),
    "ops": (1.0, None),
    "small_steps": (0.9, None),
    "torch_bert_jax": (None, 0.95),
    "torch_models": (None, 0.95),
    "torch_training": (None, 1.1),
}
"""For every case of a suite."""


def wanted(suite: str, case: str) -> tuple[float | None, float | None]:
    """The targets of a case; None where there is none."""
    return TARGETS.get((suite, case), FOR_ALL.get(suite, (None, None)))
