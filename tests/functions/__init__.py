"""The public functions of JAX beside `jax.jit`: `python -m tests.functions -j 2`.

`cases.py` says what a case is and makes its arrays from two sizes; `table_*.py` hold a case for
every function, or a reason why a function has none; `table.py` joins them and finds public names
that are in neither; `check.py` compares one function with `jax.jit` at four pairs of sizes.
"""
