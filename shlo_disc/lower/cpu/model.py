"""The planner's numbers for CPUs, and how each was measured."""

from __future__ import annotations

from shlo_disc.passes.machine_model import MachineModel

__all__ = ["LONG_SUM", "MODEL", "TALL_COLUMNS"]

LONG_SUM = 4096
"""Two launches cost about as much as 4096 products for a tile of results."""

TALL_COLUMNS = 8192
"""Columns this tall leave L2 for any width that fills vectors; pieces stay in it."""

MODEL = MachineModel(
    # LLVM's time grows faster than the kernel: 160 element-wise ops take about 60 ms at O3.
    # Doubling the bound gains nothing on the models in `examples/`.
    most_ops=160,
    most_emitted_ops=640,
    most_inputs=40,
    # A launch passes at most 64 buffers (`ral/include/disc_ral.h`).
    most_arrays=60,
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
    attention_types=frozenset({"f32", "f64"}),
    # A store and a load of a vector register that stays in L1, in additions.
    stored_cost=8,
)
