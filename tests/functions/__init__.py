"""Every public function of `jax.numpy`, `nn`, `lax`, `scipy` and `random`: `python -m tests.functions`.

`cases.py` says what a case is and makes its arrays from two sizes; `table_*.py` hold a case for
every function, or a reason why a function has none; `table.py` joins them and finds public names
that are in neither; `check.py` compares one function with `jax.jit` at four pairs of sizes.
"""
