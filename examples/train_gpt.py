"""A byte-level GPT in flax, trained with batches of random size and length on real text.

    python examples/train_gpt.py                          # shlo_disc: one compilation
    python examples/train_gpt.py --compiler jax           # one compilation a shape
    python examples/train_gpt.py --compare --plot docs/images/train_gpt.svg --store

The model, the optimizer and the step are the same for all compilers: `jax.jit` is replaced by
`shlo_disc.jit`, nothing else. `padded` is `jax.jit` with batches padded to powers of two.

Needs the extra `libraries`, and `plot` for the plot: pip install '.[libraries,plot]'
"""

from __future__ import annotations

import functools
import importlib.metadata
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data import topics
from typing import Any

import click
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import shlo_disc

ROOT = Path(__file__).resolve().parents[1]

BATCHES, LENGTHS = (4, 16), (32, 128)
"""Smallest and largest size of a batch, and of its sequences."""


# ---------------------------------------------------------------- the program: plain flax and optax


class Block(nn.Module):
    """Attention and a perceptron, each behind a layer norm, each added to its input."""

    heads: int
    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array, training: bool) -> jax.Array:
        """Residual stream [B, T, width] -> the same."""
        width = x.shape[-1]
        drop = nn.Dropout(self.rate, deterministic=not training)
        y = nn.MultiHeadDotProductAttention(
            self.heads, dropout_rate=self.rate, deterministic=not training
        )(nn.LayerNorm()(x), mask=mask)
        x = x + drop(y)
        y = nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(x)))
        return x + drop(nn.Dense(width)(y))


class GPT(nn.Module):
    """Logits of the next byte, for every byte of a text."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    longest: int = 256
    rate: float = 0.1

    @nn.compact
    def __call__(self, text: jax.Array, training: bool = False) -> jax.Array:
        """Text [B, T] of bytes -> logits [B, T, 256]."""
        embed = nn.Embed(256, self.width)
        places = nn.Embed(self.longest, self.width)(jnp.arange(text.shape[1]))
        x = nn.Dropout(self.rate, deterministic=not training)(embed(text) + places)
        mask = nn.make_causal_mask(text)
        for _ in range(self.layers):
            x = Block(self.heads, self.rate)(x, mask, training)
        return embed.attend(nn.LayerNorm()(x))


def created(model: GPT, steps: int, seed: int = 0) -> TrainState:
    """Weights and optimizer before the first step."""
    params = model.init(jax.random.key(seed), jnp.zeros((1, 8), jnp.uint8))["params"]
    rate = optax.warmup_cosine_decay_schedule(0.0, 2e-3, min(50, steps // 4), steps, 2e-4)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(rate, b2=0.99, eps=1e-6, weight_decay=0.01)
    )
    return TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)


def train_step(
    state: TrainState, text: jax.Array, weights: jax.Array, key: jax.Array
) -> tuple[TrainState, jax.Array]:
    """One step on text [B, T + 1]; `weights` [B, T] are 0 where a batch is padded."""
    dropout = jax.random.fold_in(key, state.step)

    def loss_of(params: Any) -> jax.Array:
        logits = state.apply_fn(
            {"params": params}, text[:, :-1], training=True, rngs={"dropout": dropout}
        )
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, text[:, 1:])
        return (losses * weights).sum() / weights.sum()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


# ---------------------------------------------------------------- the data


@functools.cache
def corpus() -> np.ndarray:
    """Half a megabyte of English: the language reference that Python's `help()` shows."""
    text = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    return np.frombuffer(text.encode(), np.uint8)


def batches(
    count: int,
    seed: int = 0,
    sizes: tuple[int, int] = BATCHES,
    lengths: tuple[int, int] = LENGTHS,
    multiple: int = 1,
) -> Iterator[np.ndarray]:
    """Text [B, T + 1] at random places; B and T, a multiple, are drawn anew for every batch."""
    rng = np.random.default_rng(seed)
    text = corpus()
    for _ in range(count):
        size = int(rng.integers(sizes[0], sizes[1] + 1))
        length = multiple * int(
            rng.integers(-(-lengths[0] // multiple), lengths[1] // multiple + 1)
        )
        starts = rng.integers(0, len(text) - length - 1, (size, 1))
        yield text[starts + np.arange(length + 1)].astype(np.int32)


def ones(text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The batch as it is: all weights are 1."""
    return text, np.ones((text.shape[0], text.shape[1] - 1), np.float32)


def padded(text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The batch padded to powers of two; what was added has weight 0."""
    size, length = text.shape[0], text.shape[1] - 1
    whole_size, whole_length = (1 << (n - 1).bit_length() for n in (size, length))
    weights = np.zeros((whole_size, whole_length), np.float32)
    weights[:size, :length] = 1.0
    more = ((0, whole_size - size), (0, whole_length - length))
    return np.pad(text, more), weights


# ---------------------------------------------------------------- running it

COMPILERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "shlo_disc": (shlo_disc.jit, ones),
    "jax": (jax.jit, ones),
    "padded": (jax.jit, padded),
}
"""By name: what compiles the step, and what prepares a batch."""

TITLES = {"shlo_disc": "shlo_disc.jit", "jax": "jax.jit", "padded": "jax.jit, padded buckets"}


@dataclass
class Run:
    """A training run and what it took."""

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """Of each step, compilation included."""
    compiled: list[int] = field(default_factory=list)
    """The steps that compiled."""
    compilations: int = 0
    steady: float = 0.0
    """Median seconds of steps at shapes seen before."""

    @property
    def total(self) -> float:
        """Seconds of all steps."""
        return sum(self.seconds)


def train(
    compiler: str,
    data: list[np.ndarray],
    model: GPT,
    advance: Callable[[float], object] = lambda _: None,
    again: int = 0,
    forget: int = 0,
) -> Run:
    """Train `model` on `data`; `advance` is told the loss after each step.

    `again`: how many of the last batches are trained on once more, to time steps that do not
    compile. `forget`: after how many compilations `jax.jit` lets go of all it compiled (0: never).
    """
    jit, prepare = COMPILERS[compiler]
    traces = 0

    def counted(*args: Any) -> Any:
        nonlocal traces
        traces += 1  # while it is traced: `jax.jit` runs the function once a compilation
        return train_step(*args)

    step = jit(counted)
    state, key = created(model, len(data)), jax.random.key(1)
    run = Run()

    def one(text: np.ndarray) -> tuple[float, float]:
        nonlocal state
        start = time.perf_counter()
        state, loss = step(state, *prepare(text), key)
        return float(loss), time.perf_counter() - start

    for number, text in enumerate(data):
        before = traces
        loss, seconds = one(text)
        run.losses.append(loss)
        run.seconds.append(seconds)
        if traces > before:
            run.compiled.append(number)
            if forget and compiler == "jax" and len(run.compiled) % forget == 0:
                jax.clear_caches()
        advance(loss)
    run.compilations = step.cache_info().misses if compiler == "shlo_disc" else traces
    if again:
        run.steady = statistics.median(one(text)[1] for text in data[-again:])
    return run


def table_of(runs: dict[str, Run], shapes: int) -> Table:
    """One row a compiler: seconds of all steps, of those that compile, milliseconds of others."""
    steps = len(next(iter(runs.values())).losses)
    table = Table(title=f"{steps} steps, {shapes} different shapes")
    for column in ("compiler", "total s", "compiles", "compiling s", "later ms", "loss"):
        table.add_column(column, justify="left" if column == "compiler" else "right")
    for name, run in runs.items():
        table.add_row(
            TITLES[name],
            f"{run.total:.1f}",
            str(run.compilations),
            f"{sum(run.seconds[k] for k in run.compiled):.1f}",
            f"{run.steady * 1e3:.0f}",
            f"{statistics.mean(run.losses[-20:]):.3f}",
        )
    return table


def difference(a: Run, b: Run) -> float:
    """The largest difference of the losses of one step."""
    return max(abs(x - y) for x, y in zip(a.losses, b.losses, strict=True))


def draw(runs: dict[str, Run], path: Path) -> None:
    """Seconds since the start over steps, as an SVG."""
    import matplotlib as mpl  # noqa: PLC0415 - of another extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    mpl.rcParams.update({"svg.hashsalt": "shlo_disc", "svg.fonttype": "none"})
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, run in runs.items():
        seconds = np.cumsum(run.seconds)
        count = f"{run.compilations} compilation{'s' if run.compilations > 1 else ''}"
        label = f"{TITLES[name]}: {count}, {seconds[-1]:.0f} s"
        axes.plot(np.arange(1, len(seconds) + 1), seconds, label=label)
    axes.set_xlabel("training steps, each at a random batch size and length")
    axes.set_ylabel("seconds")
    axes.set_xlim(0)
    axes.set_ylim(0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def store(runs: dict[str, Run], shapes: int, model: GPT, multiple: int, forget: int) -> Path:
    """Write the figures to benchmarks/results/, with the machine and the versions."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.store import write  # noqa: PLC0415 - only in a checkout

    rows = [
        {
            "compiler": name,
            "total_s": round(run.total, 2),
            "compilations": run.compilations,
            "compiling_steps_s": round(sum(run.seconds[k] for k in run.compiled), 2),
            "steady_step_ms": round(run.steady * 1e3, 1),
            "losses": [round(loss, 4) for loss in run.losses[::25]],
        }
        for name, run in runs.items()
    ]
    libraries = {name: importlib.metadata.version(name) for name in ("flax", "optax")}
    sizes = {
        "layers": model.layers, "width": model.width, "batch": BATCHES, "length": LENGTHS,
        "multiple": multiple, "jax_forgets_after": forget,
    }  # fmt: skip
    steps = len(next(iter(runs.values())).losses)
    return write(
        "train_gpt", rows, libraries=libraries, model=sizes, steps=steps, shapes=shapes,
        loss_difference=difference(runs["shlo_disc"], runs["jax"]),
    )  # fmt: skip


@click.command()
@click.option("--compiler", type=click.Choice(list(COMPILERS)), default="shlo_disc")
@click.option("--compare", is_flag=True, help="Run all compilers and compare the losses.")
@click.option("--steps", default=300, show_default=True)
@click.option("--layers", default=4, show_default=True)
@click.option("--width", default=128, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--multiple", default=1, show_default=True, help="Lengths are multiples of this.")
@click.option(
    "--forget",
    default=0,
    help="jax.jit lets go of what it compiled after so many compilations: some hundreds take more "
    "memory mappings than a process may have. No steps are timed again.",
)
@click.option("--tolerance", default=0.02, show_default=True, help="Of the losses of a step.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw seconds over steps (SVG).")
@click.option("--store", "storing", is_flag=True, help="Write to benchmarks/results/.")
def main(
    compiler: str, compare: bool, steps: int, layers: int, width: int, seed: int,
    multiple: int, forget: int, tolerance: float, plot: Path | None, storing: bool,
) -> None:  # fmt: skip
    """Train the GPT, by one compiler or by all of them."""
    if plot is not None:
        import matplotlib as mpl  # noqa: F401, PLC0415 - missing, it is missed before the runs
    if storing and not compare:
        raise click.UsageError("--store needs --compare")
    console = Console()
    model = GPT(layers=layers, width=width)
    data = list(batches(steps, seed, multiple=multiple))
    shapes = len({text.shape for text in data})
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn(), TextColumn("loss {task.fields[loss]}"))  # fmt: skip
    runs: dict[str, Run] = {}
    with Progress(*columns, console=console) as progress:
        for name in COMPILERS if compare else (compiler,):
            task = progress.add_task(f"{TITLES[name]:22}", total=steps, loss="-")

            def advance(loss: float, task: Any = task) -> None:
                progress.update(task, advance=1, loss=f"{loss:.3f}")

            again = 0 if forget else min(20, steps)
            runs[name] = train(name, data, model, advance, again, forget)
    console.print(table_of(runs, shapes))
    if storing:
        console.print(f"written: {store(runs, shapes, model, multiple, forget)}")
    if plot is not None:
        draw(runs, plot)
    if compare:
        found = difference(runs["shlo_disc"], runs["jax"])
        console.print(f"largest difference of a loss, shlo_disc and jax.jit: {found:.2g}")
        if found > tolerance:
            raise click.ClickException(f"the losses differ by more than {tolerance}")


if __name__ == "__main__":
    main()
