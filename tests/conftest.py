"""For all tests: the CPU, the IR verified after every pass, and XLA without LLVM's optimisations.

XLA is what results are compared with; compiling it was a third of the time.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("SHLO_DISC_SPEC", "1")
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".lstrip()
)
