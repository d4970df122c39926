"""A program as JAX lowers it, and as the compiler takes it.

JAX gives `main` the symbols of a program as arguments in front of its arrays, and says nothing of
what holds for them. What a call must satisfy goes to the compiler as data: symbols are at least 1,
a size that occurs twice is one size, and the constraints of the scope hold.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy.typing as npt
from jax import export

from shlo_disc.base.callbacks import PythonCallback
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.jax_module import JaxModule
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.relations import RELATIONS, lower_bound
from shlo_disc.jax.arguments.leaves import is_key_dtype
from shlo_disc.jax.arguments.plan import Pattern
from shlo_disc.jax.sizes.symbolic import as_expr
from shlo_disc.jax_private.extend import ir
from shlo_disc.jax_private.lowering import lower_whole
from shlo_disc.jax_private.modules import (
    LEFT_OUT,
    generic_text,
    parsed_module,
    plain_text,
    portable_artifact,
    stablehlo_version,
)
from shlo_disc.jax_private.sizes import constraints_of, size_named
from shlo_disc.jax_private.weights import put_back

_log = logging.getLogger("shlo_disc")

CALLBACK = (
    "{} calls back into Python in a way that shlo_disc does not compile ({}); move that outside "
    "shlo_disc.jit, or have XLA run it: on_unsupported='xla'"
)

LARGE = 1 << 16
"""Elements a constant may have in text, which doubles them: a million take 45 ms there, 5 in a
portable artifact. That takes 70 ms more for a program like BERT, which has no such constant."""

Condition = tuple[Expr, str, Expr]
"""`lhs op rhs` of sizes."""

_OTHERS = "..."


@dataclass(frozen=True)
class LoweredModule:
    """A program that JAX lowered, with symbols as leading arguments of `main`."""

    data: str | bytes
    """MLIR text, or a portable artifact."""
    in_avals: tuple[Any, ...]
    """The abstract arguments that `main` takes behind the symbols."""
    out_avals: tuple[Any, ...]
    """The abstract results."""
    out_tree: Any
    """The structure of the results."""
    constraints: tuple[Condition, ...] = ()
    """What the trace relied on, in the symbols of `in_avals`; those are at least 1 as well."""
    callbacks: tuple[PythonCallback, ...] = ()
    """The Python functions that the program calls, which live as long as their owners."""
    weights: tuple[npt.NDArray[Any], ...] = ()
    """Its large constants, in the order of their numbers in `data`."""

    @functools.cached_property
    def dims(self) -> tuple[tuple[Expr, ...], ...]:
        """The shape of every argument, in its own symbols."""
        return tuple(tuple(map(as_expr, aval.shape)) for aval in self.in_avals)

    def source(self, shapes: Sequence[Sequence[str]] | None = None) -> JaxModule:
        """What the compiler reads, in the symbols of `shapes`, which may equate some of its own.

        `shapes` are the sizes of every argument. Raises ValueError if the shapes of the arguments
        do not determine a symbol.
        """
        own = self._texts()
        values, conditions = self._solved(self.dims if shapes is None else _parsed(shapes))
        return JaxModule(
            self.data,
            own,
            own if shapes is None else shapes,
            {symbol: str(value) for symbol, value in values.items()},
            [f"{lhs} {relation} {rhs}" for lhs, relation, rhs in conditions],
            self.weights,
            _data_for,
        )

    def _texts(self) -> list[list[str]]:
        # A typed PRNG key is an array of words, whose sizes the type gives.
        return [
            [*map(str, shape), *([_OTHERS] if is_key_dtype(aval.dtype) else [])]
            for shape, aval in zip(self.dims, self.in_avals, strict=True)
        ]

    def _solved(self, shapes: Sequence[Sequence[Expr]]) -> tuple[dict[str, Expr], list[Condition]]:
        """The symbols in terms of those in `shapes`, and what must hold of these.

        That symbols of `shapes` are at least 1 is not told again.
        """
        pattern = Pattern(tuple("" for _ in self.dims), self.dims)
        values: dict[str, Expr] = {}
        told: list[Condition] = []
        for argument, axis, size, symbol, factor, rest in pattern.steps:
            actual = shapes[argument][axis]
            if symbol is None:
                told.append((actual, "==", size.substitute(values)))
                continue
            product = actual - rest.substitute(values)
            told.append((product % factor, "==", Expr.const(0)))
            values[symbol] = product // factor
            told.append((values[symbol], ">=", Expr.const(1)))
        for lhs, relation, rhs in self.constraints:
            if missing := (lhs.symbols() | rhs.symbols()) - values.keys():
                names = ", ".join(sorted(missing))
                raise ValueError(f"{lhs} {relation} {rhs}: no argument has the size {names}")
            told.append((lhs.substitute(values), relation, rhs.substitute(values)))
        return values, [c for c in dict.fromkeys(told) if not _is_plain(c)]

    def mlir_module(self) -> str:
        """The program as StableHLO text, with what is known of its sizes as attributes."""
        return str(self.module())

    def module(self) -> Any:
        """The same as an object of `jax.extend.mlir.ir`."""
        module = parsed_module(self.data)
        source = self.source()
        put_back(module, self.weights)
        with module.context:
            (main,) = (
                op for op in module.body.operations
                if op.operation.name == "func.func" and op.name.value == "main"
            )  # fmt: skip
            rows: list[dict[str, Any]] = []
            for row in main.arg_attrs:
                given: Any = ir.DictAttr(row)
                rows.append({a.name: a.attr for a in given})
            arrays = [k for k, row in enumerate(rows) if "jax.global_constant" not in row]
            for k, shape in zip(arrays, source.shapes, strict=True):
                if any(not size.isdecimal() for size in shape):
                    kind = ir.RankedTensorType(main.arguments[k].type)
                    known = [size for size in shape if size != _OTHERS]
                    known += [str(n) for n in kind.shape[len(known) :]]
                    rows[k]["disc.shape"] = _strings(known)
            main.arg_attrs = ir.ArrayAttr.get([ir.DictAttr.get(row) for row in rows])
            if source.constraints:
                main.attributes["disc.constraints"] = _strings(source.constraints)
        return module


def _strings(texts: Sequence[str]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.StringAttr.get(text) for text in texts])


def _parsed(shapes: Sequence[Sequence[str]]) -> list[list[Expr]]:
    parse = functools.cache(Expr.parse)  # a model has hundreds of arguments and few sizes
    return [[parse(size) for size in shape if size != _OTHERS] for shape in shapes]


def _is_plain(condition: Condition) -> bool:
    """True of what needs no test: symbols are at least 1."""
    lhs, relation, rhs = condition
    if lhs.is_const and rhs.is_const:
        return RELATIONS[relation](lhs.value, rhs.value)
    bound = lower_bound(lhs, relation, rhs)
    return lhs == rhs or (bound is not None and bound[1] <= 1)


def lowered_module(
    name: str,
    jitted: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    platform: str = "cpu",
) -> LoweredModule:
    """A call of a function of JAX, for abstract arguments, traced and lowered for a platform.

    Raises UnsupportedError for one that calls back into Python by other means than JAX's callbacks,
    ForkError as :func:`shlo_disc.jax_private.lowering.lower_whole` does, and what JAX raises.
    """
    lowering = lower_whole(jitted, args, dict(kwargs), platform)
    if lowering.calls_back:
        raise UnsupportedError(CALLBACK.format(name, "a primitive that JAX does not name"))
    in_avals = tuple(lowering.in_avals[k] for k in lowering.kept)
    sizes = (size for aval in in_avals for size in aval.shape)
    scope = next((size.scope for size in sizes if export.is_symbolic_dim(size)), None)
    conditions = () if scope is None else tuple(_conditions(scope))
    made = LoweredModule(
        _written(lowering.module),
        in_avals,
        lowering.out_avals,
        lowering.out_tree,
        conditions,
        lowering.callbacks,
        lowering.weights,
    )
    made.source()  # raises where the arguments do not determine the symbols
    return made


def _conditions(scope: Any) -> Iterator[Condition]:
    """The constraints of the scope."""
    for size, relation in constraints_of(scope):
        left = as_expr(size)
        # JAX knows a symbol that equals another size by that size alone.
        equal = {symbol: as_expr(size_named(symbol, scope)) for symbol in left.symbols()}
        yield left.substitute(equal), relation, Expr.const(0)


def _written(module: Any) -> str | bytes:
    """The module for another build of MLIR than JAX's: text, but for large constants.

    Bytecode that is not a portable artifact depends on the build. Only JAX reads the dialect `sdy`,
    which `shardy.py` takes out of text.
    """
    text = generic_text(module, LARGE)
    if "sdy." in text:
        return plain_text(module)
    if LEFT_OUT not in text:
        return text
    data = portable_artifact(module)
    return plain_text(module) if b"sdy." in data or b"\0sdy\0" in data else data


def _data_for(data: str | bytes, version: str) -> str | bytes:
    """`data` for StableHLO of `version`: a portable artifact where JAX's is newer.

    Text has no versions.
    """
    theirs = stablehlo_version()
    if isinstance(data, bytes) or "sdy." in data or _numbers(version) >= _numbers(theirs):
        return data
    _log.info("a program is read as an artifact: StableHLO %s of JAX is newer than %s", theirs,
              version)  # fmt: skip
    artifact: bytes = portable_artifact(parsed_module(data))
    return artifact


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
