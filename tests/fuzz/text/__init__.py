"""Random StableHLO modules over the whole op table, beside two oracles that share no code of ours.

`generate.py` writes programs of typed values, `ops.py`, `windows.py` and others have the makers of
single ops. A program prints with `?` for the compiler and with the sizes of a call for the oracles.
"""
