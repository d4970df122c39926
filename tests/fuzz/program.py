"""A random program: typed values, steps in Python, bodies of loops; and how it prints."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.fuzz import facts as known
from tests.fuzz.facts import Facts

Shapes = tuple[tuple[int, ...], ...]
"""The shape at every call of the program."""


@dataclass(frozen=True)
class Value:
    name: str
    dtype: str
    shapes: Shapes
    facts: Facts

    @property
    def rank(self) -> int:
        return len(self.shapes[0])

    def sizes(self, axis: int) -> tuple[int, ...]:
        """The sizes of a dimension, one a call."""
        return tuple(shape[axis] for shape in self.shapes)


@dataclass(frozen=True)
class Argument:
    name: str
    dtype: str
    shapes: Shapes
    kind: str
    seed: int


@dataclass(frozen=True)
class Block:
    """Steps in order and the names of what they give."""

    steps: tuple[Step, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class Body:
    """A function inside a program. `$0` in `returns` is the first result of its block."""

    name: str
    signature: str
    unpack: str
    defined: tuple[str, ...]
    block: Block
    returns: str
    is_fixed: bool = False
    """Another function would not do, such as one that is not associative."""


@dataclass(frozen=True)
class Step:
    """`results = text`; in the text `$0` is the first operand, `$F0` the first body."""

    results: tuple[str, ...]
    text: str
    operands: tuple[str, ...]
    bodies: tuple[Body, ...] = ()
    several: bool = False
    """The text gives a tuple, even of one."""


@dataclass(frozen=True)
class Program:
    seed: int
    x64: bool
    arguments: tuple[Argument, ...]
    block: Block
    values: Mapping[str, Value] = field(repr=False)
    structure: str = "tuple"
    """How the results are returned: tuple, dict or nested."""
    all_digits: bool = True
    """False: products are of the default precision, which rounds f32 to tf32 on a GPU."""

    is_typed_later: ClassVar[bool] = True
    """Values get their types when the program runs, not when it is written."""

    @property
    def calls(self) -> int:
        return len(self.arguments[0].shapes)

    def tolerances(self) -> list[float]:
        """How far every result may be from `jax.jit`'s: both may be off by the error."""
        return [2 * self.values[name].facts.error for name in self.block.results]

    def source(self) -> str:
        """The function as Python text."""
        names = ", ".join(a.name for a in self.arguments)
        lines = [f"def program({names}):", *_lines(self.block.steps, "    ")]
        return "\n".join([*lines, f"    return {self._returned()}"]) + "\n"

    def _returned(self) -> str:
        names = self.block.results
        if self.structure == "dict":
            return "{" + ", ".join(f"'r{i}': {n}" for i, n in enumerate(names)) + "}"
        if self.structure == "nested":
            return f"[{names[0]}, ({', '.join(names[1:])},)]" if names[1:] else f"[{names[0]}]"
        return f"({', '.join(names)},)"

    def function(self) -> Callable[..., Any]:
        return function(self.source(), "program")

    def inputs(self, call: int) -> list[np.ndarray]:
        """The arguments of a call."""
        return [array(a.kind, a.dtype, a.shapes[call], a.seed + call) for a in self.arguments]

    def argument_of(self, value: Value) -> Argument | None:
        """An argument instead of a value that a step gives; None: there is none like it."""
        seed = int(re.sub(r"\D", "", value.name)) * 7
        if known.is_bool(value.dtype):
            kind = "bool"
        elif known.is_float(value.dtype):
            kind = "unit" if value.facts.grain is None or value.facts.grain >= 3 else "sign"
        else:
            kind = "small" if value.facts.magnitude >= 9 else "sign"
        return Argument(value.name, value.dtype, value.shapes, kind, seed)

    def spelled_inputs(self, call: int) -> str:
        """The arrays of a call as a file makes them."""
        arrays = (
            f"array({a.kind!r}, {a.dtype!r}, {a.shapes[call]}, {a.seed + call})"
            for a in self.arguments
        )
        return f"[{', '.join(arrays)}]"

    def script(self) -> str:
        """The whole as a file that runs by itself and prints both sides."""
        calls = [f"    {self.spelled_inputs(call)}," for call in range(self.calls)]
        return _SCRIPT.format(
            seed=self.seed,
            x64="jax.config.update('jax_enable_x64', True)\n" if self.x64 else "",
            array=inspect.getsource(array),
            source=self.source(),
            calls="\n".join(calls),
            tolerances=self.tolerances(),
        )


_SCRIPT = '''"""Random program {seed}, made small."""
import os
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
import shlo_disc

{x64}

{array}

{source}

CALLS = [
{calls}
]
TOLERANCES = {tolerances}
f, g = shlo_disc.jit(program), jax.jit(program)
for inputs in CALLS * 2:
    ours, theirs = jax.tree.leaves(f(*inputs)), jax.tree.leaves(g(*inputs))
    for ours, theirs, tolerance in zip(ours, theirs, TOLERANCES):
        same = (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        wide = "c16" if ours.dtype.kind == "c" else "f8"
        close = same and np.allclose(
            np.asarray(ours, wide), np.asarray(theirs, wide), 0, tolerance, equal_nan=True
        )
        print("ok   " if close else "WRONG", ours.aval, theirs.aval)
        if not close:
            print(ours, theirs, sep="\\n")
'''


def array(kind, dtype, shape, seed):
    """Numbers of a kind: grid and unit (multiples of 1/8), sign, normal, special, small, wide."""
    rng, dtype = np.random.default_rng(seed), jnp.dtype(dtype)
    if dtype.kind == "c":
        numbers = np.empty(shape, dtype)
        numbers.real, numbers.imag = (
            array(kind, f"float{4 * dtype.itemsize}", shape, seed + k) for k in (0, 1)
        )
        return numbers
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if kind == "wide":
        low, high = int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)
        ends = rng.choice(np.array([low, low + 1, high - 1, high, 0, 1], dtype), shape)
        numbers = rng.integers(low, high, shape, dtype, endpoint=True)
        return np.asarray(np.where(rng.random(shape) < 0.4, ends, numbers), dtype)
    if kind == "sign":
        return np.asarray(rng.integers(0 if dtype.kind == "u" else -1, 2, shape), dtype)
    if kind == "small":
        low = 0 if dtype.kind == "u" else -9
        return np.asarray(rng.integers(low, 10, shape), dtype)
    if kind == "normal":
        return np.asarray(np.clip(rng.standard_normal(shape), -4, 4), dtype)
    numbers = rng.integers(*((-8, 9) if kind == "unit" else (-32, 33)), shape) / 8
    if kind == "special":
        odd = rng.choice([np.nan, np.inf, -np.inf, -0.0], shape)
        numbers = np.where(rng.random(shape) < 0.2, odd, numbers)
    return np.asarray(numbers, dtype)


def function(source: str, name: str) -> Callable[..., Any]:
    """The function a text defines."""
    scope: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": lax, "np": np}
    exec(compile(source, f"<{name}>", "exec"), scope)
    return scope[name]


def _lines(steps: tuple[Step, ...], indent: str) -> Iterator[str]:
    for step in steps:
        for body in step.bodies:
            yield f"{indent}def {body.name}({body.signature}):"
            inner = indent + "    "
            if body.unpack:
                yield inner + body.unpack
            yield from _lines(body.block.steps, inner)
            yield f"{inner}return {_filled(body.returns, body.block.results, ())}"
        text = _filled(step.text, step.operands, step.bodies)
        names = ", ".join(step.results) + ("," if step.several and len(step.results) == 1 else "")
        yield f"{indent}{names} = {text}"


def _filled(text: str, operands: tuple[str, ...], bodies: tuple[Body, ...]) -> str:
    def name(match: re.Match[str]) -> str:
        index = int(match[2])
        return bodies[index].name if match[1] else operands[index]

    return re.sub(r"\$(F?)(\d+)", name, text)


def step_source(step: Step, parameters: tuple[str, ...]) -> str:
    """A function of `parameters` that is this step alone."""
    lines = [f"def step({', '.join(parameters)}):", *_lines((step,), "    ")]
    return "\n".join([*lines, f"    return ({', '.join(step.results)},)"]) + "\n"


def free_names(step: Step) -> list[str]:
    """The names a step reads that it does not define."""
    names = dict.fromkeys(step.operands)
    for body in step.bodies:
        names |= dict.fromkeys(free_of_block(body.block, body.defined))
    return list(names)


def free_of_block(block: Block, defined: tuple[str, ...]) -> list[str]:
    """The names a block reads that neither it nor `defined` defines."""
    known, names = set(defined), {}
    for step in block.steps:
        names |= {n: None for n in free_names(step) if n not in known}
        known.update(step.results)
    return [*names, *(n for n in block.results if n not in known and n not in names)]
