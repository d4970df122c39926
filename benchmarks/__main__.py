"""Run benchmarks by name: `python -m benchmarks [NAME]... [--quick]`."""

from __future__ import annotations

import os
from collections.abc import Callable

import click
from rich.console import Console

from benchmarks import (
    bert,
    callbacks,
    dispatch,
    hand_over,
    kernel_counts,
    kernels,
    memory,
    micro,
    ops,
    quantised,
    ragged,
    report_all,
    small_steps,
    sweep,
    tensorflow_models,
    torch_bert_jax,
    torch_first_call,
    torch_indexed,
    torch_models,
    torch_overhead,
    torch_training,
    trace,
)
from benchmarks.compile_time import compile_time
from benchmarks.deploy import deploy
from benchmarks.harness import report
from benchmarks.models import suite
from benchmarks.store import host, versions

SUITES: dict[str, Callable[[Console, bool], None]] = {
    "attention": kernels.attention,
    "bert": bert.steady,
    "callbacks": callbacks.callbacks,
    "compile_time": compile_time,
    "conv": kernels.convolutions,
    "deploy": deploy,
    "dispatch": dispatch.dispatch,
    "gemm": kernels.gemm,
    "hand_over": hand_over.hand_over,
    "kernel_counts": kernel_counts.kernel_counts,
    "memory": memory.memory,
    "micro": micro.micro,
    "models": suite.models,
    "new_shape": bert.new_shape,
    "ops": ops.ops,
    "quantised": quantised.quantised,
    "ragged": ragged.ragged,
    "recurrent": kernels.recurrent,
    "small_steps": small_steps.small_steps,
    "sweep": sweep.sweep,
    "tensorflow_models": tensorflow_models.tensorflow_models,
    "torch_bert_jax": torch_bert_jax.torch_bert_jax,
    "torch_first_call": torch_first_call.torch_first_call,
    "torch_indexed": torch_indexed.torch_indexed,
    "torch_models": torch_models.torch_models,
    "torch_overhead": torch_overhead.torch_overhead,
    "torch_training": torch_training.torch_training,
    "trace": trace.trace,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(SUITES)))
@click.option("--quick", is_flag=True, help="Fewer repetitions: to see that it runs.")
def main(names: tuple[str, ...], quick: bool) -> None:
    """Run the suites NAMES (all by default) and store the results in benchmarks/results/."""
    os.environ.setdefault("SHLO_DISC_CACHE", "0")  # what is compiled is timed
    console = report()
    machine = host()
    console.print(f"{machine['cpu']}, {machine['cores']} cores, {' '.join(machine['flags'])}")
    console.print(", ".join(f"{name} {version}" for name, version in versions().items()))
    if machine["load"] > 0.5 * machine["cores"]:
        console.print(f"load average {machine['load']:.1f}: other work makes these times worthless",
                      style="bold red")  # fmt: skip
    for name in names or SUITES:
        SUITES[name](console, quick)
    report_all.targets(console, names or SUITES)


if __name__ == "__main__":
    main()
