"""Kind `dense`: one `dot_general` in any layout, through one packed, register-tiled kernel.

========================  ====================================================================
`emit.py`                 from the products of a fusion to one plan
`plan.py`                 variants by size, persistent packs, the launches
`tiles.py`                register and cache tiles for a machine, task sizes as expressions
`operands.py`             what is part of a kernel's text; sizes are all parameters
`gemm.py`                 the kernel
`tile_writer.py`          its register tile: sums of a few rows and one panel of columns
`walk.py`, `places.py`    how rows and elements along K follow each other; result places
`repack.py`               copies between layouts: panels of B, rows of A
`taps.py`                 panels of a convolution's kernel, whose taps are neighbours
`prologue.py`             element-wise work that computes B while a block of it is copied
`epilogue.py`             element-wise work on the sums while they are in cache
`inner_products.py`       few rows, B in place along K
`small.py`                small matrices, in batches and in loops
`narrow.py`               one row and column per batch entry: depthwise, inner products
`split.py`                long sums with few results: parts of K, which are then added
`horizontal.py`           several products with one left operand in one launch
`row_work.py`             row work behind a product, in its launch
========================  ====================================================================

`lower/schedule/contraction.py` says what is computed: batch, M, N and K axes with their strides.

Source: K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication" (2008);
F. Van Zee, R. van de Geijn, "BLIS: a framework for rapidly instantiating BLAS functionality"
(2015).
"""

from shlo_disc.lower.cpu.dense.emit import emit_dense
from shlo_disc.lower.cpu.dense.plan import Planner

__all__ = ["Planner", "emit_dense"]
