"""The CPU code generator; `target.py` has the emitter of every kind of fusion."""
