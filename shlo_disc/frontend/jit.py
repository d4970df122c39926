"""`shlo_disc.jit`: a JAX function compiled once for all shapes; `function.py` has the calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

import jax

from shlo_disc.errors import UnsupportedError
from shlo_disc.frontend.function import JitFunction

__all__ = ["jit"]

_log = logging.getLogger("shlo_disc")


@overload
def jit(
    fun: None = None,
    /,
    *,
    shapes: Sequence[Any] | Mapping[str, Any] | None = None,
    constraints: str | Iterable[str] = (),
    likely: Mapping[str, int | Iterable[int]] | None = None,
    dynamic: bool | str = "auto",
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    name: str | None = None,
    on_unsupported: str = "error",
    background: bool = False,
    in_shardings: Any = None,
    out_shardings: Any = None,
    keep_unused: bool = False,
    device: jax.Device | None = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], JitFunction]: ...


@overload
def jit(
    fun: Callable[..., Any],
    /,
    *,
    shapes: Sequence[Any] | Mapping[str, Any] | None = None,
    constraints: str | Iterable[str] = (),
    likely: Mapping[str, int | Iterable[int]] | None = None,
    dynamic: bool | str = "auto",
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    name: str | None = None,
    on_unsupported: str = "error",
    background: bool = False,
    in_shardings: Any = None,
    out_shardings: Any = None,
    keep_unused: bool = False,
    device: jax.Device | None = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: Mapping[str, Any] | None = None,
) -> JitFunction: ...


def jit(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    shapes: Sequence[Any] | Mapping[str, Any] | None = None,
    constraints: str | Iterable[str] = (),
    likely: Mapping[str, int | Iterable[int]] | None = None,
    dynamic: bool | str = "auto",
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    name: str | None = None,
    on_unsupported: str = "error",
    background: bool = False,
    in_shardings: Any = None,
    out_shardings: Any = None,
    keep_unused: bool = False,
    device: jax.Device | None = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: Mapping[str, Any] | None = None,
) -> JitFunction | Callable[[Callable[..., Any]], JitFunction]:
    """`fun`, compiled once and run at every shape. A decorator, or called with the function.

    Arguments and results are pytrees of arrays; `jax.Array`, numpy arrays and Python numbers are
    taken. Inside `jax.jit`, `grad`, `vmap`, `scan` and the like a call becomes one equation.

    fun: a function `jax.jit` could take. shapes: sizes of the arguments in `jax.export`'s notation,
    one entry for each positional argument (or
        a dict by name): a string for every array of an argument (`"b, t, _"`; `_` is the size of
        the call, compiled anew when it changes), None to leave it to `dynamic`, or a pytree of
        them.
    constraints: relations of the sizes named in `shapes`: `"t % 4 == 0"`, `"b <= 64"`.
        A call that breaks what was stated raises ShapeMismatchError.
    likely: values of sizes named in `shapes`, `{"b": [1, 8], "t": 128}`: where a kernel for them
        would differ there is one more, chosen at run time, in derivatives and batches too. Every
        other size works as before.
    dynamic: "auto" makes every size a symbol that the program allows to be one; a later call
        that breaks what was assumed compiles another version. A new version is compared with a
        trace at the sizes of its first call; "checked" does so at every new shape. True raises
        instead where a size has to be a constant. False compiles for each shape.
    donate_argnums, donate_argnames: arguments a call deletes, so that results can take their
        memory (an update of a slice is then done in place). As in `jax.jit`; only the memory of
        arrays that shlo_disc made is taken over, and inside `jax.jit` and other transformations
        nothing is donated. An array that numpy or DLPack looks at is left as it is.
    static_argnums, static_argnames: arguments that are part of the program, hashed; as in
    `jax.jit`. name: for messages and `as_text`; by default the function's.
    background: where a call needs a compilation, a thread compiles while `jax.jit` runs the call
        and others like it; results may then differ in the last bits from later ones. Inside other
        transformations of JAX, calls wait.
    on_unsupported: "error" raises UnsupportedError for a function with an operation, type or effect
        that is not compiled; with "xla" XLA runs those operations, compiled for each shape, and we
        the others. This is logged once, and `explain()` tells it. A derivative or batch that is not
        compiled raises all the same.
    in_shardings, out_shardings, device, backend: as in `jax.jit`, but only the first CPU device;
        another raises UnsupportedError.
    keep_unused, inline, compiler_options: taken for the sake of `jax.jit`'s users. Every argument
        is kept, calls in outer programs are never inlined, and options of XLA are not read.
    """
    _refuse_placement(device, backend, in_shardings, out_shardings)
    if compiler_options:
        _log.warning("shlo_disc.jit does not read compiler_options: they are XLA's")
    options: dict[str, Any] = {
        "shapes": shapes,
        "constraints": constraints,
        "likely": likely,
        "dynamic": dynamic,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "name": name,
        "on_unsupported": on_unsupported,
        "background": background,
    }
    if fun is None:
        return lambda function: JitFunction(function, **options)
    return JitFunction(fun, **options)


def _refuse_placement(device: Any, backend: str | None, *shardings: Any) -> None:
    """Raise UnsupportedError for a place that is not the first CPU device."""
    home = jax.local_devices(backend="cpu")[0]
    places = [device, *jax.tree.leaves(shardings, is_leaf=lambda s: hasattr(s, "device_set"))]
    for place in places:
        found = getattr(place, "device_set", {place})
        if place is not None and found != {home}:
            raise UnsupportedError(
                f"shlo_disc.jit runs on {home}, not on {place}; use jax.jit there, or shard_map "
                "around the function"
            )
    if backend not in (None, "cpu"):
        raise UnsupportedError(f"shlo_disc.jit runs on the CPU, not on {backend!r}")
