"""For all tests: the CPU, and the IR verified after every pass."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("SHLO_DISC_SPEC", "1")
