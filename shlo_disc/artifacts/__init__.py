"""Artifacts: a compiled program as one file, which the runtime alone loads and runs."""
