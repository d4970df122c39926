"""The call of a compiled program inside JAX's transformations.

`shlo_disc_call` is an ordinary primitive with two parameters: a
:class:`~shlo_disc.jax.derived.program.Program`, which is a jaxpr with *symbolic* sizes, and the
values of its symbols. On CPUs and GPUs it lowers to one XLA FFI custom call for each device. A
derivative, transpose or batched form of a program is again such a program, traced with symbols and
compiled once for all shapes. The values are explicit because a derived program need not have an
argument that shows every symbol: the gradient of a sum gets only a scalar.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, mlir

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.executables.devices import place_of, place_of_platform
from shlo_disc.jax.arguments.leaves import abstract
from shlo_disc.jax.arguments.places import default_place, moved, place_of_arrays
from shlo_disc.jax.arguments.told import BY_JAX
from shlo_disc.jax.calls.compiled_call import CompiledCall
from shlo_disc.jax.derived.derived import (
    batched,
    linearized,
    pushed_forward,
    transposed,
    with_numbers,
)
from shlo_disc.jax.derived.devices import Blocks, mesh_of
from shlo_disc.jax.derived.program import Program, Sizes
from shlo_disc.jax.derived.sharding_types import (
    is_sharded,
    may_be_sharded,
    replicated,
    result_specs,
    with_type_of,
    without_shards,
)
from shlo_disc.jax_private.arrays import ArrayImpl
from shlo_disc.jax_private.extend import Primitive
from shlo_disc.jax_private.jaxprs import batched_by, check_by_jaxpr
from shlo_disc.jax_private.meshes import device_count, on_many_devices, under_mesh, varying_alike
from shlo_disc.jax_private.states import is_export

# ---- the primitive ----------------------------------------------------------------------------

call_p: Any = Primitive("shlo_disc_call")
call_p.multiple_results = True


def call_program(arguments: Sequence[Any], program: Program, sizes: Sizes) -> list[Any]:
    """The results of a program under whatever transformations are in force.

    A program that needs axes of the program around it becomes a part of that.
    """
    if program.needs_axes:
        return with_numbers(program, sizes).run(*arguments)
    # All arguments must vary over the same manual axes, or gradients under shard_map are wrong.
    arguments = varying_alike(arguments)
    if may_be_sharded():
        types = [jax.typeof(x) for x in arguments]
        if is_sharded(*types) and result_specs(program, types) is None:
            arguments = [without_shards(x) for x in arguments]
    results: list[Any] = call_p.bind(*arguments, program=program, sizes=sizes)
    return results


def _abstract(*arguments: Any, program: Program, sizes: Sizes) -> list[Any]:
    results = program.result_avals(sizes)
    specs = result_specs(program, arguments) if is_sharded(*arguments) else None
    if specs is None:
        specs = [replicated(len(aval.shape)) for aval in results]
    return under_mesh("shlo_disc_call", arguments, results, specs)


def _carrier(program: Program, sizes: Sizes) -> tuple[int, ...]:
    values = dict(sizes)
    return (*(values[symbol] for symbol in program.symbols), 0)


def _compiled(program: Program, sizes: Sizes, target: str) -> tuple[Program, CompiledCall] | None:
    """The program to run at these sizes, and what it is compiled to for a target.

    None where it cannot be compiled and XLA may run it instead, which is told. Else raises
    UnsupportedError.
    """
    try:
        found = program.at(sizes)
        return found, found.executable_for(target)
    except UnsupportedError as error:
        if program.tell is None:
            raise
        program.tell(f"({program.name}) {BY_JAX}: {error}")
    return None


def _evaluate(*arguments: Any, program: Program, sizes: Sizes) -> list[Any]:
    # A tracer of a NumPy array has the type JAX gives it; the array may have another.
    leaves = [
        x if type(x) is ArrayImpl else np.asarray(x, aval.dtype)
        for x, aval in zip(arguments, program.in_avals, strict=True)
    ]
    place = place_of_arrays(leaves, default_place())
    compiled = _compiled(program, sizes, place.target)
    if compiled is None:
        results: list[Any] = with_numbers(program, sizes).by_xla(*leaves)
        return results
    program, executable = compiled
    if program.needs_carrier:
        leaves.append(np.zeros(_carrier(program, sizes), np.float32))
    leaves = moved(leaves, place)
    return executable.call_leaves(leaves) if place.is_cpu else executable.call_leaves(leaves, place)


def call_in_place(
    executable: CompiledCall, results: Sequence[Any], places: Mapping[int, int], arguments: Any
) -> Sequence[Any]:
    """The results of a custom call of a program that takes arguments over.

    `places`: result by argument, in whose memory it is if XLA may overwrite that. `results` are
    `jax.ShapeDtypeStruct`s. Transformations of JAX do not apply to the call.
    """
    found: Sequence[Any] = _ffi_call(executable, results, None, places)(*arguments)
    return found


def _ffi_call(
    executable: CompiledCall,
    results: Sequence[Any],
    carrier: tuple[int, ...] | None,
    places: Mapping[int, int] | None = None,
) -> Callable[..., Any]:
    """The custom call as a JAX function."""
    attributes: dict[str, Any] = {"executable": np.int64(executable.fingerprint)}
    if carrier is not None:
        attributes["sizes"] = np.asarray(carrier, np.int64)
    aliases = None if places is None else dict(places)
    call = jax.ffi.ffi_call(_target(), results, input_output_aliases=aliases)
    return lambda *arguments: call(*arguments, **attributes)


def _target() -> str:
    from shlo_disc.ral import FFI_TARGET  # noqa: PLC0415 - only real executables need the runtime

    return FFI_TARGET


def _lower(*arguments: Any, program: Program, sizes: Sizes, target: str) -> Any:
    compiled = _compiled(program, sizes, target)
    if compiled is None:
        return with_numbers(program, sizes).run(*arguments)
    program, executable = compiled
    results = [abstract(a.shape, a.dtype) for a in program.result_avals(sizes)]
    carrier = _carrier(program, sizes) if program.needs_carrier else None
    return _ffi_call(executable, results, carrier)(*arguments)


_lower_call = mlir.lower_fun(_lower, multiple_results=True)


def _run(target: str, program: Program, sizes: Sizes, arguments: Sequence[Any]) -> Sequence[Any]:
    """One block of several, each of which runs on a device of its own."""
    results: Sequence[Any] = _lower(*arguments, program=program, sizes=sizes, target=target)
    return results


def _plain(*arguments: Any, program: Program, sizes: Sizes) -> Any:
    return with_numbers(program, sizes).run(*arguments)


_lower_plain = mlir.lower_fun(_plain, multiple_results=True)
"""As the operations of the program: an exported module outlives our executables."""


def _lower_on(platform: str, context: Any, *arguments: Any, program: Program, sizes: Sizes) -> Any:
    """For devices of one platform: XLA has each of several compute a block."""
    if is_export(context):
        return _lower_plain(context, *arguments, program=program, sizes=sizes)
    mesh = mesh_of(device_count(context), platform)
    target = _target_on(platform, program.name, is_alone=mesh is None)
    # The module names the program by a number: until XLA has compiled it, and so found the program,
    # somebody must keep the program alive.
    if mesh is None:
        compiled = _compiled(program, sizes, target)
        if compiled is None:
            return _lower_plain(context, *arguments, program=program, sizes=sizes)
        program, executable = compiled
        context.module_context.add_keepalive(executable)
        return _lower_call(context, *arguments, program=program, sizes=sizes, target=target)
    blocks = Blocks(program.at(sizes), sizes, functools.partial(_run, target))
    context.module_context.add_keepalive(blocks)
    lower = mlir.lower_fun(blocks, multiple_results=True)
    return lower(on_many_devices(context, mesh), *arguments)


def _target_on(platform: str, name: str, *, is_alone: bool) -> str:
    """The target of a program for one device of a platform, or for several, which are alike.

    Raises UnsupportedError where they are not.
    """
    if is_alone:
        return place_of_platform(platform).target
    targets = {place_of(device).target for device in jax.local_devices(backend=platform)}
    if len(targets) > 1:
        raise UnsupportedError(
            f"{name} is used in a jax.jit over several devices, which differ: "
            f"{', '.join(sorted(targets))}; run it on those of one architecture"
        )
    return targets.pop()


def _lower_elsewhere(context: Any, *arguments: Any, program: Program, sizes: Sizes) -> Any:
    if is_export(context):
        return _lower_plain(context, *arguments, program=program, sizes=sizes)
    raise UnsupportedError(
        f"{program.name} is compiled for CPUs and GPUs, but was used in a jax.jit for "
        f"{', '.join(context.module_context.platforms)}. Call it outside that jit, or run the jit "
        "on the CPU: with jax.default_device(jax.devices('cpu')[0])."
    )


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, sizes: Sizes
) -> tuple[list[Any], list[Any]]:
    # Two calls, so that partial evaluation can run the first and keep the second for later.
    nonzero = tuple(type(t) is not ad.Zero for t in tangents)
    moving = [t for t, nz in zip(tangents, nonzero, strict=True) if nz]
    linear = linearized(program, nonzero, sizes)
    if linear is None:
        results = call_program([*primals, *moving], pushed_forward(program, nonzero, sizes), sizes)
        slopes = iter(results[len(program.out_avals) :])
    else:
        results = call_program(primals, linear.forward, sizes)
        residuals = linear.residuals(primals, results)
        slopes = iter(call_program([*residuals, *moving], linear.tangent, sizes))
    outputs = results[: len(program.out_avals)]
    return outputs, [
        with_type_of(next(slopes), x) if smooth else ad.Zero(jax.typeof(x).to_tangent_aval())
        for x, smooth in zip(outputs, program.smooth, strict=True)
    ]


def _transpose(
    cotangents: Sequence[Any], *arguments: Any, program: Program, sizes: Sizes
) -> list[Any]:
    linear = tuple(isinstance(x, ad.UndefinedPrimal) for x in arguments)
    nonzero = tuple(type(c) is not ad.Zero for c in cotangents)
    known = [x for x, is_linear in zip(arguments, linear, strict=True) if not is_linear]
    given = [c for c, nz in zip(cotangents, nonzero, strict=True) if nz]
    back = iter(call_program([*known, *given], transposed(program, linear, nonzero, sizes), sizes))
    return [
        with_type_of(next(back), x) if isinstance(x, ad.UndefinedPrimal) else None
        for x in arguments
    ]


def _batch(
    axis_name: Hashable,
    size: int,
    arguments: Sequence[Any],
    axes: Sequence[Any],
    *,
    program: Program,
    sizes: Sizes,
) -> tuple[list[Any], list[int | None]]:
    places = tuple(None if axis is None else int(axis) for axis in axes)
    # A result that no batched argument changes has no batch: `out_axes=None` may ask for that.
    depends = program.depends(tuple(axis is not None for axis in places))
    where = [0 if changes else None for changes in depends]
    if size == 0:  # symbols are at least 1
        return _of_no_batch(arguments, places, depends, program, sizes), where
    whole, symbol = batched(program, places, size, sizes, axis_name=axis_name)
    results = call_program(arguments, whole, (*sizes, (symbol, size)))
    return results, where


def _of_no_batch(
    arguments: Sequence[Any],
    axes: Sequence[int | None],
    depends: Sequence[bool],
    program: Program,
    sizes: Sizes,
) -> list[Any]:
    """The results for a batch of size 0: empty, or what the arguments without a batch give."""
    empty = [jnp.zeros((0, *a.shape), a.dtype) for a in program.result_avals(sizes)]
    if all(depends):
        return empty
    one = [
        x if axis is None else jnp.zeros((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype)
        for x, axis in zip(arguments, axes, strict=True)
    ]
    results = call_program(one, program, sizes)
    return [e if changes else r for e, changes, r in zip(empty, depends, results, strict=True)]


call_p.def_impl(_evaluate)
call_p.def_abstract_eval(_abstract)
ad.primitive_jvps[call_p] = _jvp
ad.primitive_transposes[call_p] = _transpose
batched_by(call_p, _batch)
mlir.register_lowering(call_p, _lower_elsewhere)
for _platform in ("cpu", "cuda", "rocm"):
    _rule = functools.partial(_lower_on, _platform)
    mlir.register_lowering(call_p, _rule, platform=_platform)
check_by_jaxpr(call_p, lambda program, sizes: with_numbers(program, sizes).jaxpr)
