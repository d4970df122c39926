"""The planner's numbers for CPUs, and how each was measured.

Ratios are of best times on a 2-core Xeon with AVX-512 that others used, too (2026-11): differences
below a tenth are noise.
"""

from shlo_disc.passes.machine_model import AttentionKernels, Capabilities, Costs, MachineModel

LONG_SUM = 4096
"""Two launches cost about as much as 4096 products for a tile of results."""

TALL_COLUMNS = 8192
"""Columns this tall leave L2 for any width that fills vectors; pieces stay in it."""

MODEL = MachineModel(
    Capabilities(
        # Scores and weights in scratch memory have the type they are computed in, which for 16-bit
        # floats is not the type of the result.
        attention=AttentionKernels(frozenset({"f32", "f64"})),
        rows_behind_products=True,
        computes_along_sums=True,
        shares_memory=True,
        raises_flags=True,
    ),
    Costs(
        # LLVM's time grows faster than the kernel: 160 element-wise ops take about 60 ms at O3.
        # Doubling the bound gains nothing on the models in `examples/`.
        most_ops=160,
        # Eight nested concatenations of [x * 1.5, -x] to 4096 columns take 0.6 of the time at half
        # of the bound, and 3 to 5 times as long at double. A row of 16 means with 12 ops between
        # each takes as long at any bound from 80 to 2560; layer norms with dropout and gelu take
        # 1.1 times as long at half, and as long at double.
        most_emitted_ops=320,
        # The sum of 120 arrays of 256 KiB takes 1.16 times as long at half of the bound, 1.2 at a
        # quarter, and as long at double. Sums of 16 KiB take as long at any bound from 10 on.
        most_inputs=40,
        # The host program has one array of 64 addresses for all launches (`lower/host/program.py`).
        # Launches with more get one of their own; packed operands and scratch are addresses, too.
        most_arrays=60,
        # Behind a product [16..2048, 256] x [256, 256], 14 added arrays and a layer norm take as
        # long in its launch as in one of their own (0.94 to 1.08); so do 36 (0.98 to 1.05).
        most_row_work_inputs=20,
        # About the time of a load from L2, both.
        index_ops=8,
        cheap_ops=8,
        # 256 KiB of float32 take about as long as waking a thread.
        small_elements=1 << 16,
        # Shorter ones would leave lanes of AVX-512 empty.
        least_columns=16,
        long_sum=LONG_SUM,
        tall_columns=TALL_COLUMNS,
        # Waking a thread takes 2 to 5 us on the machines tried (2026-11, 2-core Xeon). Half of it
        # halves the speed-up of 20 us kernels, double gains nothing.
        chunk_ns=6000,
        # A store and a load of a vector register that stays in L1, in additions.
        stored_cost=8,
    ),
)
