"""Runs a program through `shlo_disc.jit` beside `jax.jit`; says what went wrong."""

from __future__ import annotations

import json
import re
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shlo_disc
from shlo_disc.base import flags
from shlo_disc.jax.calls.runs import CALLS_BEFORE_XLA
from tests.alarms import pinned
from tests.fuzz.cut import cut
from tests.fuzz.program import Program
from tests.gpu.as_gpu import AsGpu, as_gpu

ROUNDS = 3
ROUNDS_ON_GPU = CALLS_BEFORE_XLA + 3
"""Calls from Python, then calls through XLA, then graphs of the driver (docs/gpu.md)."""


@dataclass(frozen=True)
class Failure:
    kind: str
    """error, fault (of a kernel, on a GPU), difference, unstable, crash or hang."""
    signature: str
    """What failures of one cause have in common, as far as can be told from outside."""
    message: str


@dataclass(frozen=True)
class Outcome:
    failure: Failure | None
    compilations: int = 0
    legal: bool = True
    """False: JAX itself refuses the program."""
    optimised: bool = False
    """True where `jax.jit` differs from JAX op by op, with which shlo_disc agrees."""
    unjudged: str = ""
    """Why no oracle runs the program; empty: one does."""
    alarms: tuple[str, ...] = ()
    """Sizes that the comparison with numbers made constants (`tests/alarms.py`)."""


def check(program: Program, compare: bool = True) -> Outcome:
    """Every call three times, the calls interleaved; NumPy arrays first, JAX's afterwards.

    Without `compare` every call is made once and only errors are told, which is cheaper.
    """
    with (
        jax.enable_x64(program.x64),
        warnings.catch_warnings(),
        cut(program.seed) as is_cut,
        as_gpu(all_digits=program.all_digits, in_parts=is_cut) as gpu,
    ):
        warnings.simplefilter("ignore")
        options = {"on_unsupported": "xla"} if is_cut else {}
        found = _checked(program, options, gpu) if compare else _called(program)
        return blamed(found, gpu)


def blamed(outcome: Outcome, gpu: AsGpu | None) -> Outcome:
    """`outcome`; or, where a launch on the stand-in was bad, what was said of it."""
    if gpu is None or (fault := gpu.fault()) is None:
        return outcome
    return replace(outcome, failure=Failure("fault", *fault), legal=True)


def _checked(program: Program, options: dict[str, str], gpu: AsGpu | None) -> Outcome:
    inputs = [program.inputs(call) for call in range(program.calls)]
    reference = jax.jit(program.function())
    try:
        expected = [jax.block_until_ready(reference(*arrays)) for arrays in inputs]
    except Exception as error:
        return Outcome(Failure("illegal", type(error).__name__, str(error)), legal=False)
    f = shlo_disc.jit(program.function(), **options)
    found: list[Any] = []
    optimised = False
    for turn in range(ROUNDS_ON_GPU if gpu else ROUNDS):
        for call, arrays in enumerate(inputs):
            try:
                got = jax.block_until_ready(f(*arrays))
            except Exception as error:
                return Outcome(error_of(error, call))
            if turn == 0:
                found.append(got)
                failure = _difference(program, got, expected[call], call)
                if failure and _agrees_op_by_op(program, got, arrays):
                    failure, optimised = None, True
            else:
                failure = _instability(got, found[call], call, turn)
            if failure:
                return Outcome(failure)
        if turn == 0:
            inputs = [[jnp.asarray(a) for a in arrays] for arrays in inputs]
            if gpu:
                gpu.set_bounds(inputs)
            elif failure := _unfinished(f, inputs):
                return Outcome(failure)
    return Outcome(None, f.cache_info().misses, optimised=optimised, alarms=pinned(f))


def _unfinished(f: Any, inputs: Sequence[Any]) -> Failure | None:
    """Have all kernels compiled; further turns run the best code, whose bits are the same."""
    f.warmup(*map(tuple, inputs))
    shlo_disc.finish_compiling()
    if not flags.compile_ahead():
        return None
    programs = json.loads(f.explain(format="json"))
    for program in programs if isinstance(programs, list) else [programs]:
        if late := program.get("late_kernels"):
            return Failure("error", "late kernels", f"{late} kernels do not compile")
    return None


def _agrees_op_by_op(program: Program, got: Any, arrays: list[Any]) -> bool:
    """XLA's simplifications of whole programs are not always right: JAX without `jit` decides."""
    try:
        want = program.function()(*map(jnp.asarray, arrays))
    except Exception:  # loops and branches of Python's making: there is nothing to compare with
        return False
    want = jax.tree.map(jnp.asarray, want)
    return _difference(program, got, want, 0) is None


def _called(program: Program) -> Outcome:
    inputs = [program.inputs(call) for call in range(program.calls)]
    try:
        for arrays in inputs:
            jax.eval_shape(program.function(), *arrays)
    except Exception as error:
        return Outcome(Failure("illegal", type(error).__name__, str(error)), legal=False)
    f = shlo_disc.jit(program.function())
    for call, arrays in enumerate(inputs):
        try:
            jax.block_until_ready(f(*arrays))
        except Exception as error:
            return Outcome(error_of(error, call))
    return Outcome(None, f.cache_info().misses)


def error_of(error: Exception, call: int) -> Failure:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "shlo_disc/" in f.filename] or frames
    where = f"{ours[-1].filename.split('shlo_disc/')[-1]}:{ours[-1].name}"
    first = str(error).split("\n")[0]
    plain = " ".join(first.split())
    plain = re.sub(r"<[^>]*>|\d+|v\d+|program:\d+|%\w+", "#", plain)[:90]
    text = "".join(traceback.format_exception(error))
    return Failure("error", f"{type(error).__name__} {where} {plain}", f"call {call}: {text}")


def _difference(program: Program, got: Any, want: Any, call: int) -> Failure | None:
    ours, theirs = jax.tree.structure(got), jax.tree.structure(want)
    if ours != theirs:
        return Failure("difference", "structure", f"call {call}: {ours} instead of {theirs}")
    leaves = zip(jax.tree.leaves(got), jax.tree.leaves(want), program.tolerances(), strict=True)
    for result, (g, w, tolerance) in enumerate(leaves):
        where = f"call {call}, result {result}"
        if (g.shape, g.dtype, g.weak_type) != (w.shape, w.dtype, w.weak_type):
            return Failure("difference", "type", f"{where}: {g.aval} instead of {w.aval}")
        worst = _distance(np.asarray(g), np.asarray(w))
        if worst > tolerance:
            exact = "exact" if tolerance == 0 else "rounded"
            message = f"{where}: {g.aval}, off by {worst:.3g}, allowed {tolerance:.3g}\n{g}\n{w}"
            return Failure("difference", f"{exact} {g.dtype}", message)
    return None


def _distance(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference; infinite where integers, NaN or infinities differ."""
    if got.dtype.kind == "c":
        parts = ((got.real, want.real), (got.imag, want.imag))
        return max(_distance(a, b) for a, b in parts)
    if not jnp.issubdtype(got.dtype, np.floating):
        return 0.0 if np.array_equal(got, want) else np.inf
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    if not np.array_equal(finite, np.isfinite(got)):
        return np.inf
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return np.inf
    return float(np.abs(got[finite] - want[finite]).max(initial=0.0))


def _instability(got: Any, first: Any, call: int, turn: int) -> Failure | None:
    for result, (g, w) in enumerate(zip(jax.tree.leaves(got), jax.tree.leaves(first), strict=True)):
        if np.asarray(g).tobytes() != np.asarray(w).tobytes():
            wide = np.complex128 if g.dtype.kind == "c" else np.float64
            if np.isnan(np.asarray(g, wide)).any() and not _distance(np.asarray(g), np.asarray(w)):
                continue  # a NaN's payload is nobody's promise
            message = (
                f"call {call}, result {result}, turn {turn}: not the first turn's bits\n{g}\n{w}"
            )
            return Failure("unstable", f"{g.dtype}", message)
    return None
