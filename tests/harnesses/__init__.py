"""JAX's own harnesses beside `jax.jit`: `python -m tests.harnesses --count 200 -j 2`.

A harness (`jax._src.internal_test_util.test_harnesses`) is one use of one primitive of JAX with its
arguments. `cases.py` finds harnesses and samples them; `ways.py` calls one by itself and under
`grad`, `vmap` and `jvp`; `check.py` compares such a call with `jax.jit`; `sweep.py` checks many in
child processes and counts.
"""
