"""Kind `dense`: one `dot_general` in any layout, through one packed, register-tiled kernel.

========================  ====================================================================
`problem.py`              what is computed: batch, M, N and K axes with their strides
`tiles.py`                register and cache tiles for a machine, task sizes as expressions
`text.py`                 kernel text whose sizes are all parameters
`repack.py`               copies between layouts: panels of B, rows of A
`gemm.py`                 the kernel
`dots.py`                 few rows, B in place along K
`narrow.py`               one row and column per batch entry: depthwise, inner products
`epilogue.py`             element-wise work on the sums while they are in cache
`plan.py`                 variants by size, persistent packs, the launches
========================  ====================================================================

Source: K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication" (2008);
F. Van Zee, R. van de Geijn, "BLIS: a framework for rapidly instantiating BLAS functionality"
(2015).
"""

from __future__ import annotations

from shlo_disc.lower.cpu.dense.plan import Planner, emit_dense

__all__ = ["Planner", "emit_dense"]
