"""Finding where a result goes wrong: running dumps of any stage, and fusions beside a reference.

The command line is `shlo_disc/tools/disc_run.py`; `docs/debugging.md` has a worked example.
"""
