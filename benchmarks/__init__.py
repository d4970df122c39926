"""Benchmarks of shlo_disc beside jax.jit: `python -m benchmarks --help`."""
