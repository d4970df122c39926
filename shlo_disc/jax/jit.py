"""`shlo_disc.jit`: a JAX function compiled once for all shapes; `function.py` has the calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, cast, overload

from shlo_disc.jax.arguments.options import JitOptions
from shlo_disc.jax.function import JitFunction

_Options = ParamSpec("_Options")


class _Jit(Protocol[_Options]):
    """A decorator with options, which may also be called with the function."""

    @overload
    def __call__(
        self, fun: None = None, /, *args: _Options.args, **options: _Options.kwargs
    ) -> Callable[[Callable[..., Any]], JitFunction]: ...

    @overload
    def __call__(
        self, fun: Callable[..., Any], /, *args: _Options.args, **options: _Options.kwargs
    ) -> JitFunction: ...


def _with_options(
    options: Callable[_Options, JitOptions],
) -> Callable[[Callable[..., Any]], _Jit[_Options]]:
    """Give `function(fun=None, /, **given)` the parameters of `options` as its signature."""

    def decorate(function: Callable[..., Any]) -> _Jit[_Options]:
        own = inspect.signature(function)
        first, *_ = own.parameters.values()
        parameters = [first, *inspect.signature(options).parameters.values()]
        vars(function)["__signature__"] = own.replace(parameters=parameters)
        return cast("_Jit[_Options]", function)

    return decorate


@_with_options(JitOptions)
def jit(
    fun: Callable[..., Any] | None = None, /, **given: Any
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
    donate_argnums, donate_argnames: arguments a call deletes where a result has their type and
        sizes, so that it can take their memory (an update of a slice is then done in place). As in
        `jax.jit`, others are kept, with a warning where they are used. Only the memory of arrays
        that shlo_disc made is taken over, and inside `jax.jit` and other transformations nothing
        is donated. An array that numpy or DLPack looks at is left as it is.
    static_argnums, static_argnames: arguments that are part of the program, hashed; as in
    `jax.jit`. name: for messages and `as_text`; by default the function's.
    background: where a call needs a compilation, a thread compiles while `jax.jit` runs the call
        and others like it; results may then differ in the last bits from later ones. Inside other
        transformations of JAX, calls wait.
    on_unsupported: what becomes of an operation, type or effect that is not compiled. "xla": XLA
        runs those operations, compiled for each shape, and we the others; of a derivative or batch
        XLA runs the whole. This is logged once, and `explain()` tells it. "error" raises
        UnsupportedError. By default as the setting SHLO_DISC_ON_UNSUPPORTED says, "xla".
    in_shardings, out_shardings, device, backend: as in `jax.jit`, but only the first CPU device;
        another raises UnsupportedError.
    keep_unused, inline, compiler_options: taken for the sake of `jax.jit`'s users. An argument that
        is not used is never looked at, calls in outer programs are never inlined, and options of
        XLA are not read.
    """
    known = inspect.signature(jit).parameters
    if unknown := [name for name in given if name not in known]:
        raise TypeError(f"shlo_disc.jit has no option {', '.join(unknown)}")
    options = JitOptions(**given)
    if fun is None:
        return lambda function: JitFunction(function, options)
    return JitFunction(fun, options)
