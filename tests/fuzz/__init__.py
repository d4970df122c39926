"""Random typed programs, compiled by `shlo_disc.jit` beside `jax.jit`: `python -m tests.fuzz`.

`program.py` holds what a program is and how it prints; `facts.py` bounds magnitudes and rounding
errors; `ops.py` is the table of operations, `control.py` that of loops and branches; `generate.py`
draws a program from a seed; `check.py` compares; `shrink.py` makes a failing program small;
`batches.py` runs many in child processes.
"""
