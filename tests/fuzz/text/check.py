"""Runs a random module through `shlo_disc.compile` beside the oracles; says what went wrong."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import shlo_disc
from tests.fuzz.check import Failure, Outcome, blamed, error_of
from tests.fuzz.program import Value
from tests.fuzz.text import types as known
from tests.fuzz.text.generate import facts
from tests.fuzz.text.module import Module
from tests.fuzz.text.oracles import Interpreter, NoReferenceError, Xla, verify
from tests.gpu.as_gpu import AsGpu, as_gpu, with_all_digits

_ENGINES: dict[str, Any] = {}


def check(module: Module, compare: bool = True) -> Outcome:
    """Every call twice, or as often as makes it a graph; without `compare` only errors."""
    text = module.text()
    refused = verify(text)
    if refused:
        return Outcome(Failure("illegal", "illegal", refused), legal=False)
    with as_gpu() as gpu:
        return blamed(_checked(module, text, gpu, compare), gpu)


def _checked(module: Module, text: str, gpu: AsGpu | None, compare: bool) -> Outcome:
    try:
        if gpu is None:
            executable = shlo_disc.compile(text)
        else:
            executable = shlo_disc.compile(with_all_digits(text), target=gpu.target)
    except shlo_disc.UnsupportedError as error:
        return Outcome(Failure("unsupported", *_short(error)))
    except Exception as error:
        return Outcome(error_of(error, 0))
    unjudged = ""
    for call in range(module.calls):
        inputs = module.inputs(call)
        try:
            found, *others = (executable.run_numpy(inputs) for _ in range(4 if gpu else 2))
        except Exception as error:
            return Outcome(error_of(error, call))
        if not compare:
            continue
        for again, index in itertools.product(others, range(len(found))):
            if found[index].tobytes() != again[index].tobytes():
                dtype = str(found[index].dtype)
                return Outcome(Failure("unstable", dtype, f"call {call}, result {index}"))
        failure = _judged(module, call, found)
        if failure is not None and failure.kind == "no oracle":
            unjudged = failure.message
        elif failure is not None:
            return Outcome(failure)
    return Outcome(None, 1, unjudged=unjudged)


def _short(error: Exception) -> tuple[str, str]:
    failure = error_of(error, 0)
    return failure.signature, failure.message


def _judged(module: Module, call: int, found: list[Any]) -> Failure | None:
    """None if an oracle gives these results."""
    text = module.oracle(call)
    dtypes = [known.dtype_of(module.values[n].dtype) for n in module.block.results]
    told: list[str] = []
    reasons: list[str] = []
    first = ""
    for name, kind in (("interpreter", Interpreter), ("XLA", Xla)):
        engine = _ENGINES.setdefault(name, kind())
        try:
            expected = engine.results(text, dtypes)
        except NoReferenceError as error:
            reasons.append(f"{name}: {' '.join(str(error).split())[:300]}")
            continue
        wrong = _first_difference(module, call, found, expected, flushes=name == "XLA")
        if wrong is None:
            return None
        told.append(f"{name}: {wrong[1]}")
        first = first or wrong[0]
    if not told:
        return Failure("no oracle", "no oracle", "\n".join(reasons))
    both = "both" if len(told) == 2 else told[0].partition(":")[0]
    return Failure("difference", f"{first} ({both})", "\n".join([f"call {call}", *told, *reasons]))


def _first_difference(
    module: Module, call: int, found: list[Any], expected: list[Any], flushes: bool
) -> tuple[str, str] | None:
    for index, name in enumerate(module.block.results):
        value = module.values[name]
        got, want = found[index], expected[index]
        if got.shape != want.shape or got.dtype != want.dtype:
            message = f"result {index}: {got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
            return "type", message
        told = differs(value, got, want, flushes)
        if told:
            exact = "exact" if facts(value).exact else "rounded"
            return f"{exact} {value.dtype}", f"result {index} (%{name}): {told}\n{got}\n{want}"
    return None


def differs(value: Value, got: Any, want: Any, flushes: bool = False) -> str:
    """How a result differs from an expected one by more than its facts allow; empty: it does not.

    `flushes`: denormals may be zeros.
    """
    if got.dtype.kind == "c":
        parts = ((got.real, want.real), (got.imag, want.imag))
        real = dataclasses.replace(value, dtype=known.real_of(value.dtype))
        return next((t for t in (differs(real, a, b, flushes) for a, b in parts) if t), "")
    if not known.is_float(value.dtype):
        same = np.asarray(got == want)
        return "" if same.all() else f"{int((~same).sum())} of {same.size} differ"
    found = facts(value)
    a, b = got.astype(np.float64), want.astype(np.float64)
    nan = np.isnan(a) & np.isnan(b)
    with np.errstate(invalid="ignore"):
        if found.exact:
            same = nan | ((a == b) & (np.signbit(a) == np.signbit(b)))
        else:
            scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
            eps = known.epsilon(value.dtype)
            limit = 2 * found.error + 16 * eps * np.maximum(np.abs(b), known.smallest(value.dtype))
            limit = limit + 4 * eps * scale
            same = nan | (a == b) | (np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= limit))
            # A number that rounding took beyond the largest one.
            edge = known.largest(value.dtype) * (1 - 32 * eps)
            same |= (np.abs(a) >= edge) & (np.abs(b) >= edge) & (np.sign(a) == np.sign(b))
    if flushes:
        tiny = 2 * known.smallest(value.dtype)
        same |= (np.abs(a) <= tiny) & (np.abs(b) <= tiny)
    if same.all():
        return ""
    index = tuple(int(k) for k in np.argwhere(~np.atleast_1d(same))[0])
    x, y = np.atleast_1d(got)[index], np.atleast_1d(want)[index]
    return f"{int((~same).sum())} of {same.size} differ, first at {index}: {x} instead of {y}"


@contextmanager
def environment(**names: str) -> Iterator[None]:
    """Environment variables for a while."""
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
