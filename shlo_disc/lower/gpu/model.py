"""The planner's numbers for GPUs."""

from shlo_disc.passes.machine_model import AttentionKernels, Capabilities, Costs, MachineModel

MODEL = MachineModel(
    Capabilities(
        # Products and the rows between them are launches of their own.
        attention=AttentionKernels(frozenset()),
        rows_behind_products=False,
        # Threads of a warp compute neighbouring columns.
        computes_along_sums=False,
        shares_memory=False,
        raises_flags=False,
    ),
    Costs(
        # As on CPUs: a bound on what LLVM has to compile, and on the registers of a thread.
        most_ops=160,
        most_emitted_ops=320,
        # Parameters of a kernel: 4 KiB on the oldest of the machines.
        most_inputs=40,
        most_arrays=60,
        most_row_work_inputs=1,
        # Operations are nearly free beside a load: a multiprocessor starts 128 a cycle, and loads
        # 32 elements at most.
        index_ops=16,
        cheap_ops=16,
        # A launch takes about 2 us, in which memory moves some MB.
        small_elements=1 << 20,
        least_columns=32,
        long_sum=4096,
        tall_columns=1024,
        # No thread of a GPU waits to be woken.
        chunk_ns=1,
        stored_cost=16,
    ),
)
"""Not measured yet, but for what is said of a number."""
