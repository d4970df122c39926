"""Programs that JAX derives from one: derivatives, transposes, batches, blocks, all sizes known."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax import export

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.jax.arguments.leaves import spec_of
from shlo_disc.jax.derived.constant_sizes import OtherFormError
from shlo_disc.jax.derived.splits.splits import Split
from shlo_disc.jax.derived.splits.staged import Staged
from shlo_disc.jax_private.jaxprs import without_mesh

if TYPE_CHECKING:
    from shlo_disc.jax.derived.program import Program, Sizes

_NO_LINEARIZATION = "Linearization failed to produce known values"
"""How JAX says that an operation has a derivative in forward mode only."""


def with_numbers(program: Program, sizes: Sizes) -> Program:
    """The same program with a constant for every symbol.

    Raises UnsupportedError where JAX derives another one from constant sizes, and where the
    user wants sizes to stay symbols.
    """
    program.need("numbers", frozenset(program.symbols))
    try:
        return program.found("numbers", sizes, lambda *_: None)[0]
    except (OtherFormError, jax.errors.InconclusiveDimensionOperation) as error:
        raise UnsupportedError(
            f"{program.name} cannot be a part of the program around it ({error}); call that, "
            "checkify or a vmap with an axis name, inside shlo_disc.jit"
        ) from error


def staged(program: Program, sizes: Sizes, symbols: frozenset[str]) -> Staged:
    """The program of a block along `symbols`, in stages between which blocks add up sums.

    The program may be split along each of the symbols.
    """

    def make(given: Program, _: frozenset[str]) -> Staged:
        every = [given.splits[symbol] for symbol in sorted(symbols)]
        splits = [split for split in every if isinstance(split, Split)]

        def stage(function: Callable[..., Any], avals: Sequence[Any], number: int) -> Program:
            return given.derive(
                function,
                [spec_of(aval) for aval in avals],
                f"stage{number}",
                again=lambda fresh, at, _: staged(fresh, at, symbols).stages[number].program,
            )

        with without_mesh():
            return Staged(given.jaxpr, splits, stage)

    made: Staged = program.memo(("staged", symbols), sizes, make)
    return made


def linearized(program: Program, nonzero: tuple[bool, ...], sizes: Sizes) -> Linearized | None:
    """The program with what its derivative needs, and the derivative itself.

    None if JAX cannot split them (`lax.reduce_window` of a function that is no known one):
    there is no reverse mode, and `pushed_forward` has the derivative. `nonzero`: which
    arguments have tangents.
    """

    def make(given: Program, _: frozenset[str]) -> Linearized | None:
        try:
            return Linearized(given, nonzero)
        except ValueError as error:
            if _NO_LINEARIZATION not in str(error):
                raise
            return None

    linear: Linearized | None = program.memo(("linearized", nonzero), sizes, make)
    return linear


def _split(program: Program, nonzero: tuple[bool, ...], sizes: Sizes) -> Linearized:
    linear = linearized(program, nonzero, sizes)
    assert linear is not None
    return linear


def pushed_forward(program: Program, nonzero: tuple[bool, ...], sizes: Sizes) -> Program:
    """`(arguments, tangents) -> (results, tangents of the smooth ones)`."""

    def make(given: Program, _: frozenset[str]) -> Program:
        specs = [spec_of(aval) for aval in given.in_avals]
        moving = [spec for spec, nz in zip(specs, nonzero, strict=True) if nz]

        def push(*args: Any) -> list[Any]:
            arguments, tangents = args[: len(specs)], args[len(specs) :]
            known = [x for x, nz in zip(arguments, nonzero, strict=True) if not nz]

            def function(*unknown: Any) -> list[Any]:
                return given.run(*_merged(nonzero, unknown, known))

            unknown = [x for x, nz in zip(arguments, nonzero, strict=True) if nz]
            results, slopes = jax.jvp(function, unknown, list(tangents))
            kept = zip(slopes, given.smooth, strict=True)
            return [*results, *(x for x, smooth in kept if smooth)]

        return given.derive(
            push,
            [*specs, *moving],
            "jvp",
            again=lambda fresh, at, _: pushed_forward(fresh, nonzero, at),
        )

    derived: Program = program.memo(("pushed forward", nonzero), sizes, make)
    return derived


def transposed(
    program: Program, linear: tuple[bool, ...], nonzero: tuple[bool, ...], sizes: Sizes
) -> Program:
    """`(other arguments, cotangents) -> cotangents of the linear arguments`."""

    def make(given: Program, _: frozenset[str]) -> Program:
        specs = [spec_of(aval) for aval in given.in_avals]
        out = [spec_of(aval) for aval, nz in zip(given.out_avals, nonzero, strict=True) if nz]
        rest = [spec for spec, is_linear in zip(specs, linear, strict=True) if not is_linear]
        into = [spec for spec, is_linear in zip(specs, linear, strict=True) if is_linear]

        def transpose(*args: Any) -> Any:
            known, cotangents = args[: len(rest)], list(args[len(rest) :])

            def function(*unknown: Any) -> list[Any]:
                results = given.run(*_merged(linear, unknown, known))
                return [x for x, nz in zip(results, nonzero, strict=True) if nz]

            return jax.linear_transpose(function, *into)(cotangents)

        return given.derive(
            transpose,
            [*rest, *out],
            "transpose",
            again=lambda fresh, at, _: transposed(fresh, linear, nonzero, at),
        )

    derived: Program = program.memo(("transposed", linear, nonzero), sizes, make)
    return derived


def batched(
    program: Program,
    axes: tuple[int | None, ...],
    count: int,
    sizes: Sizes,
    constants: frozenset[str] = frozenset(),
    axis_name: Hashable = None,
) -> tuple[Program, str]:
    """The program over a batch of `count`, and the symbol of its size, a constant if it is one
    of `constants`. Results that depend on the batch have it in front.

    `axis_name`: what rules of the user may call the axis of the batch.
    """
    taken = {*program.symbols, *(name for name, _ in program.constants)}
    symbol = next(name for k in range(len(taken) + 1) if (name := f"v{k}") not in taken)

    def make(given: Program, constants: frozenset[str]) -> Program:
        size: Any = count
        if symbol not in constants:
            (size,) = export.symbolic_shape(symbol, scope=given.scope)
        specs = []
        for aval, axis in zip(given.in_avals, axes, strict=True):
            shape = list(aval.shape)
            if axis is not None:
                shape.insert(axis, size)
            specs.append(spec_of(aval.update(shape=tuple(shape))))

        depends = given.depends(tuple(axis is not None for axis in axes))

        def batch(*args: Any) -> Any:
            results = jax.vmap(given.run, in_axes=axes, axis_name=axis_name)(*args)
            return [x if d else x[0] for x, d in zip(results, depends, strict=True)]

        return given.derive(
            batch,
            specs,
            "vmap",
            {symbol: count if symbol in constants else None},
            again=lambda fresh, at, names: batched(
                fresh, axes, dict(at)[symbol], at, names, axis_name
            )[0],
        )

    key = "batched", axes, axis_name
    program.need(key, constants & {symbol})
    return program.memo(key, (*sizes, (symbol, count)), make, (symbol,)), symbol


class Linearized:
    """A program split: `forward` gives results and residuals, `tangent` is linear."""

    def __init__(self, program: Program, nonzero: tuple[bool, ...]) -> None:
        shape_of: list[Any] = []
        count = len(program.out_avals)

        def forward(*args: Any) -> Any:
            known = [x for x, nz in zip(args, nonzero, strict=True) if not nz]

            def function(*unknown: Any) -> list[Any]:
                return program.run(*_merged(nonzero, unknown, known))

            unknown = [x for x, nz in zip(args, nonzero, strict=True) if nz]
            results, linear = jax.linearize(function, *unknown)
            residuals, tree = jax.tree.flatten(linear)
            shape_of.append(tree)
            return [*results, *residuals]

        specs = [spec_of(aval) for aval in program.in_avals]
        full = program.derive(
            forward,
            specs,
            "forward",
            again=lambda fresh, at, _: _split(fresh, nonzero, at).forward,
        )
        tree = shape_of[-1]
        self._place_residuals(full, count)
        keep = [*range(count), *self._kept]

        def trimmed(*args: Any) -> list[Any]:
            results = full.run(*args)
            return [results[k] for k in keep]

        self.forward = full.derive(trimmed, specs, "", again=lambda fresh, *_: fresh)
        self.forward.name = full.name
        residuals = [spec_of(aval) for aval in full.out_avals[count:]]
        tangents = [spec_of(aval) for aval, nz in zip(program.in_avals, nonzero, strict=True) if nz]

        def tangent(*args: Any) -> list[Any]:
            linear = jax.tree.unflatten(tree, args[: len(residuals)])
            results = linear(*args[len(residuals) :])
            return [x for x, smooth in zip(results, program.smooth, strict=True) if smooth]

        self.tangent = program.derive(
            tangent,
            [*residuals, *tangents],
            "tangent",
            again=lambda fresh, at, _: _split(fresh, nonzero, at).tangent,
        )

    @property
    def programs(self) -> tuple[Program, ...]:
        """Both."""
        return self.forward, self.tangent

    def _place_residuals(self, full: Program, count: int) -> None:
        """Residuals that are arguments or results need not be results of their own (weights!)."""
        inner = getattr(full.jaxpr, "jaxpr", full.jaxpr)
        arguments = {id(v): k for k, v in enumerate(inner.invars)}
        results = {id(v): k for k, v in reversed(list(enumerate(inner.outvars)))}
        self._kept: list[int] = []
        self._sources: list[tuple[str, int]] = []
        for k in range(count, len(inner.outvars)):
            variable = inner.outvars[k]
            first = results[id(variable)]
            if id(variable) in arguments:
                self._sources.append(("argument", arguments[id(variable)]))
            elif first < count:
                self._sources.append(("result", first))
            elif first in self._kept:
                self._sources.append(("result", count + self._kept.index(first)))
            else:
                self._kept.append(k)
                self._sources.append(("result", count + len(self._kept) - 1))

    def residuals(self, arguments: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """The residuals out of the arguments and results of `forward`."""
        places = {"argument": arguments, "result": results}
        return [places[kind][k] for kind, k in self._sources]


def _merged(mask: Sequence[bool], chosen: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    a, b = iter(chosen), iter(others)
    return [next(a) if use else next(b) for use in mask]
