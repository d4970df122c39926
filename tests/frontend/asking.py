"""Random functions that ask Python questions about sizes, as source text."""

from __future__ import annotations

import enum
import functools
import math
import numbers
import operator
import random
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


@functools.lru_cache
def cached(n):
    return 2 if n == 3 else 3


def in_thread(question):
    """The answer to a question that another thread asks."""
    found = []
    thread = threading.Thread(target=lambda: found.append(question()))
    thread.start()
    thread.join()
    return found[0]


def attempt(question, otherwise):
    try:
        return question()
    except Exception:
        return otherwise


class Holder:
    """A size in an attribute, compared by `==`."""

    def __init__(self, size):
        self.size = size

    def __eq__(self, other):
        return self.size == other.size

    def __hash__(self):
        return hash(self.size)


NAMES: dict[str, Any] = {
    "Holder": Holder,
    "attempt": attempt,
    "cached": cached,
    "in_thread": in_thread,
    "jax": jax,
    "jnp": jnp,
    "math": math,
    "np": np,
    "numbers": numbers,
    "operator": operator,
}


class Grade(enum.IntEnum):
    TWO = 2
    FIVE = 5


def matched(n):
    match n:
        case 2 | 3:
            return 2
        case 4:
            return 4
    return 0


@functools.singledispatch
def single(n):
    return type(n).__name__


class Asking(NamedTuple):
    """A function of `x: f32[n, m]`, `y: f32[p]`, `k: i32[]`, and its text."""

    text: str
    function: Callable[..., Any]


def random_function(seed: int) -> Asking:
    """The function of a seed."""
    text = _Writer(random.Random(seed)).function()
    names = dict(NAMES)
    # As `python -c` and `exec` of a text name it, or by a name of its own.
    exec(compile(text, f"<asking {seed}>" if seed % 2 else "<string>", "exec"), names)
    return Asking(text, names["f"])


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def function(self) -> str:
        lines = [
            "def f(x, y, k):",
            "    n, m = x.shape",
            "    (p,) = y.shape",
            "    r = x.sum() + y.sum()",
        ]
        for _ in range(self.rng.randint(1, 3)):
            lines += self.statement("    ")
        return "\n".join([*lines, "    return r", ""])

    def statement(self, indent: str) -> list[str]:
        pick = self.rng.random()
        if pick < 0.62:
            then, other = self.rng.sample(["r * 2", "r + 1", "r - x.max()", "jnp.tanh(r)", "-r"], 2)
            return [
                f"{indent}if {self.question()}:",
                f"{indent}    r = {then}",
                f"{indent}else:",
                f"{indent}    r = {other}",
            ]
        if pick < 0.7:
            return [
                f"{indent}s = {self.size(1)} + 16",
                f"{indent}while s % 2 == 0:",
                f"{indent}    s, r = s // 2, r + 1",
            ]
        if pick < 0.76:
            return [f"{indent}r = r * ({self.size(1)} % 4 or 7)"]
        return [f"{indent}r = {self.value()}"]

    def size(self, depth: int = 2) -> str:
        if depth == 0 or self.rng.random() < 0.35:
            return self.rng.choice(["n", "m", "p", "len(x)", "y.size", "x.shape[-1]"])
        a, b, c = self.size(depth - 1), self.size(depth - 1), self.rng.randint(1, 5)
        return self.rng.choice(
            [
                f"({a} + {b})", f"({a} - {b})", f"({a} * {c})", f"({a} // {c})", f"({a} % {c})",
                f"({a} - {c})", f"max({a}, {b})", f"min({a}, {c})", f"-(-{a} // {c})",
                f"{a} ** 2", f"abs({a} - {b})", f"({a} >> 1)", f"({a} & 3)", f"({a} << 1)",
                f"divmod({a}, {c})[0]", f"round({a})", f"math.floor({a})", f"({a} * {b})",
                f"sum([{a}, {c}])", f"sorted([{a}, {b}])[0]", f"({a} ^ {c})",
                f"({a} // ({b} - {c}))", f"({c} * {a} % ({b} + 1 - {c}))",
            ]
        )  # fmt: skip

    def question(self) -> str:
        e, g, c = self.size(), self.size(1), self.rng.randint(0, 9)
        d = self.rng.randint(1, 9)
        return self.rng.choice(
            [
                e, f"not {e}", f"{e} % {d}", f"{e} == {c}", f"{e} != {c}", f"{c} == {e}",
                f"{e} == {g}", f"{e} != {g}", f"{e} < {c}", f"{e} >= {g}", f"{c} > {e}",
                f"{e} < {c}.5", f"{e} == {c}.0", f"{e} == np.int64({c})", f"np.int32({c}) == {e}",
                f"{e} == np.prod((2, {c}))", f"{e} in {{2, {c}}}", f"{e} in (3, {c})",
                f"{e} in [{g}, {c}]", f"{e} not in {{{c}: 1}}", f"{{4: 0, {c}: 1}}.get({e}, 0)",
                f"{e} in range({c}, 12)", f"str({e}) == '{c}'", f"f'{{{e}}}' == '{c}'",
                f"'%d' % {e} == '{c}'", f"repr({e}) == '{c}'", f"int({e}) > {c}",
                f"float({e}) == {c}", f"operator.index({e}) == {c}", f"isinstance({e}, int)",
                f"type({e}) is int", f"isinstance({e}, numbers.Integral)",
                f"hash({e}) == hash({c})", f"len({{{e}, {g}}}) == 1", "x.shape == (y.size, 3)",
                "len({x.shape, y.shape + (2,)}) == 1", "np.array_equal(x.shape, y.shape * 2)",
                f"math.sqrt(abs({e})) > 2", f"cached({e}) == 2", f"Holder({e}) == Holder({g})",
                f"Holder({e}) in {{Holder({c})}}", f"in_thread(lambda: {e} == {c})",
                f"in_thread(lambda: bool({e}))", f"attempt(lambda: int({e}), 0) == {c}",
                f"attempt(lambda: {e} > {c}, None)", f"attempt(lambda: {{{c}: 1}}[{e}], 0)",
                f"any([{e} == {c}, {g} > 4])", f"all(s > 1 for s in x.shape)", f"({e}).bit_length() > 2",
                f"np.arange(abs({e})).sum() > {c}", f"sum(1 for _ in range({e})) == {c}",
                f"[1, 2, 3, 4][{e} % 4] == 2", f"('a' * abs({e})) == 'aaa'", f"min({e}, {g}) == {c}",
                f"np.ones(3)[{e} % 3] > 0 and {g} > 2", f"bool(np.asarray({e}) == {c})",
                f"{e} is not None and {g} != {c}", f"({e}, {g}) == ({c}, {d})", f"({e}, 1) < ({c}, 2)",
                f"round({e} / 2) == {c}", f"{e} / 2 > {c}", f"int({e} * 0.5) == {c}",
                f"np.log2(abs({e}) + 1) > 2", f"{e} <= {c} <= {g}", f"divmod({e}, 3) == (1, {c})",
                f"{c} in {{{e}, {g}}}", f"dict.fromkeys([{e}]).keys() == {{{c}}}",
                f"jnp.array_equal(x[0], y) is None or {e} == {c}", f"slice({e}) == slice({c})",
                f"{e} == {c} + 0j", f"np.complex64({c}) == {e}", f"{e} == Fraction({c})",
                f"{e} < Fraction({c}, 2)", f"Fraction({c}, 2) <= {e}", f"{e} == Decimal({c})",
                f"Decimal('{c}.5') > {e}", f"{e} < 2**70", f"{e} == 1e300", f"{e} < float('nan')",
                f"{e} == np.float16({c})", f"ml_dtypes.bfloat16({c}.5) > {e}", f"np.float32({c}.5) > {e}",
                f"{e} == True", f"{e} == Grade.TWO", f"matched({e}) == 2", f"single({e}) == 'int'",
                f"operator.eq({e}, {c})", f"({e}).__eq__({c}) is True", f"sorted([{e}, {g}, 4])[1] == {c}",
                f"[1, 2, {c}].count({e}) == 1", f"bisect.bisect([1, 4, 8], {e}) == 2",
                f"collections.Counter([{e}, {g}])[{c}] == 1", f"json.dumps({e}) == '{c}'",
                f"np.isclose({e}, {c})", f"np.any(np.array([1, {c}]) == {e})", f"np.isin({e}, [1, {c}])",
                f"np.unique([{e}, {g}]).size == 1", f"np.equal({e}, {c})", f"np.maximum({e}, {g}) == {c}",
                f"math.prod(x.shape) % {d} == 1", f"statistics.mean([{e}, {g}]) == {c}",
                f"Decimal({e}) == {c}", f"Fraction({e}, 2) == {c}", f"random.Random(0).randrange(abs({e}) + 1) > 1",
                f"pow({e}, 2, 5) == 1", f"math.gcd({e}, {d}) == {d}", f"math.isqrt(abs({e})) == {c}",
                f"{e} & 1", f"{e} | 1 == {c}", f"{e} ^ {c}", f"{e} >> 1 == {c}", f"~({e}) == -{d}",
                f"{d} // (abs({e}) + 1) == 1", f"{d} % (abs({e}) + 1) == 1", f"({e} == {c}) is True",
                f"copy.deepcopy({e}) == {c}", f"pickle.loads(pickle.dumps({e})) == {c}", f"f'{{{e}:>3d}}' == '  {c}'",
                "x.shape[::-1] == (3, 4)", "x.shape < (4, 4)", f"{c} in x.shape", "max(x.shape) == 4",
                f"functools.reduce(operator.mul, x.shape) == {c}", f"x[1:].shape[0] == {c}",
                f"jnp.arange(abs({e})).shape == ({c},)", f"len(range({e})) == {c}", f"range({e}) == range({c})",
                f"np.abs({e}) == {c}", f"np.clip({e}, 1, 3) == 3", f"np.power({e}, 2) == {c}", f"np.gcd({e}, 6) == 2",
                f"2.0 ** ({e}) == 8", f"bin({e}) == '0b11'", f"'abcdefgh'[:{e}] == 'abc'",
                f"jax.ShapeDtypeStruct(x.shape, x.dtype) == jax.ShapeDtypeStruct(({c}, 3), x.dtype)",
                f"eval('n == {c}', {{'n': {e}}})", f"attempt(lambda: {e} // {g}, 0) == {c}",
                f"{e} * 2**{4 * c} > 2**{8 * d}", f"attempt(lambda: {d} / {e}, 0) > 1",
            ]
        )  # fmt: skip

    def value(self) -> str:
        e, g, c = self.size(1), self.size(1), self.rng.randint(1, 5)
        return self.rng.choice(
            [
                f"r * ({e})", f"r / ({e} + 1)", f"r + ({e}) ** 2 / 1e6", f"r * (abs({e}) + 1) ** -0.5",
                f"jnp.where({e} == k, r, -r)", f"jnp.where(np.arange(4) == {e}, 1.0, 2.0).sum() * r",
                f"r + jnp.array_equal(x[0], y)", f"r + jnp.array_equiv(x, y)",
                f"r + y[: {e} % 3].sum()", f"r + jnp.full((3,), {e}).sum()", f"r * jnp.arange(p).sum()",
                f"r + jnp.stack([jnp.asarray({e}), jnp.asarray({g})]).sum()",
                f"r + (x[{e} % 2] if {g} > {c} else x[0]).sum()", f"r / float(abs({e}) + 1)",
                f"r + np.sqrt(abs({e}) + 1)", f"r * jnp.zeros(({e}) % 5).size", f"r + (k < {e})",
                f"r * jnp.ones((abs({e}) % 4, 2)).sum()", f"r + jnp.float32({e})", f"r + k * ({e})",
                f"r * attempt(lambda: ({e}) ** -1, 3)", f"r * attempt(lambda: {g} / ({e} - {c}), 3)",
                f"r + jnp.zeros(abs({g}) // ({e} + 1)).size",
            ]
        )  # fmt: skip
