"""Plans of a GPU on NumPy arrays: their PTX on the interpreter, whose faults are errors.

Where the environment says so, on a real GPU (`device.py`), or on the emulator of AMD's instructions
(`emulator.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shlo_disc.debug.launch import run_plan
from shlo_disc.ir.element_types import ELEMENT_TYPES
from shlo_disc.lower import images
from shlo_disc.lower.gpu.codegen import image
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.images import KernelSignature
from shlo_disc.lower.plan import Buffer, If, Input, KernelText, Launch, Output, Step, Workspace
from shlo_disc.lower.target import parse
from tests.gpu import device, emulator
from tests.gpu.as_gpu import with_all_digits
from tests.lower.helpers import Emitted, _compiled_all, plan_of, symbols_of
from tests.ptx import interpreter
from tests.ptx.tensor_map import TensorMap

_TARGET = f"cuda:{device.architecture() if device.ON_DEVICE else 'sm_80'}"
MACHINE: Machine = parse(
    f"rocm:{emulator.ARCHITECTURE}" if emulator.ARCHITECTURE else _TARGET
).machine
if emulator.ARCHITECTURE:
    MACHINE = replace(MACHINE, features=emulator.FEATURES)
FILL = 0xFF
"""Memory that nothing wrote is NaN."""


@functools.lru_cache(maxsize=256)
def _compiled(source: KernelText, machine: Machine) -> tuple[str | bytes, KernelSignature]:
    made = image(source, machine)
    return made.image if machine.link is not None else made.image.decode(), made.signature


def _launch(machine: Machine) -> Callable[..., None]:
    if machine.platform == "rocm":
        return emulator.run
    return device.launch if device.ON_DEVICE else interpreter.launch


def gpu_plan(text: str, machine: Machine = MACHINE, *, exact: bool = True) -> Emitted:
    """The plan of the one fusion in `text`, by the emitter of its kind.

    `exact`: f32 products are not rounded to fewer digits.
    """
    text = with_all_digits(text) if exact else text
    kind = text.rpartition('kind = "')[2].partition('"')[0]
    return plan_of(parse(machine.name).emitters[kind], text, machine)


def _steps(steps: Sequence[Step], env: Mapping[str, int]) -> Iterator[Launch]:
    for step in steps:
        if isinstance(step, If):
            yield from _steps(step.then if step.condition.holds(env) else step.otherwise, env)
        else:
            assert isinstance(step, Launch), step
            yield step


def launches_of(
    emitted: Emitted, inputs: Sequence[np.ndarray], symbols: Mapping[str, int] | None = None
) -> list[Launch]:
    """The launches of a plan at the sizes of `inputs`."""
    return list(_steps(emitted.plan.steps, symbols_of(emitted, inputs) | dict(symbols or {})))


def _results(
    emitted: Emitted, env: Mapping[str, int]
) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    return [
        (tuple(size.evaluate(env) for size in sizes), ELEMENT_TYPES[name].dtype)
        for sizes, name in emitted.results
    ]


def run_cpu(
    emitted: Emitted, inputs: Sequence[np.ndarray], symbols: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """The results of a plan of the CPU's, for every element type.

    `symbols` has the sizes that no operand tells.
    """
    env = symbols_of(emitted, inputs) | dict(symbols or {})
    return run_plan(emitted.plan, env, inputs, _results(emitted, env), _compiled_all)


def _map(described: images.TensorMap, pointer: int, params: Sequence[int]) -> TensorMap:
    """What the runtime makes of a map over the array that argument `pointer` points to."""
    size = 4 if described.element == "tf32" else 2
    return TensorMap(
        pointer,
        size,
        [max(params[k], 1) for k in described.sizes],
        [max(params[k] * size, 16) for k in described.strides],
        described.box,
        first=params[described.first] * size,
        rounds=described.element == "tf32",
    )


def run_gpu(
    emitted: Emitted,
    inputs: Sequence[np.ndarray],
    symbols: Mapping[str, int] | None = None,
    seed: int = 0,
    machine: Machine = MACHINE,
) -> list[np.ndarray]:
    """The results of a plan; `seed` decides the order of blocks. Raises PtxFault."""
    env = symbols_of(emitted, inputs) | dict(symbols or {})
    memory: dict[Buffer, np.ndarray] = {}
    for k, array in enumerate(inputs):
        memory[Input(k)] = np.ascontiguousarray(array).copy()
        memory[Input(k)].flags.writeable = False
    for k, (shape, dtype) in enumerate(_results(emitted, env)):
        raw = np.full((*shape, dtype.itemsize), FILL, np.uint8)
        memory[Output(k)] = raw.view(dtype).reshape(shape)
    for k, size in enumerate(emitted.plan.workspaces):
        memory[Workspace(k)] = np.full(size.evaluate(env), FILL, np.uint8)
    for number, step in enumerate(_steps(emitted.plan.steps, env)):
        for buffer, count in step.zeroed:
            memory[buffer].reshape(-1).view(np.uint8)[: count.evaluate(env)] = 0
        code, kernel = _compiled(step.kernel.source, machine)
        tasks = step.extent.evaluate(env)
        params = [size.evaluate(env) for size in step.params]
        maps = {described.argument: described for described in kernel.maps}
        args: list[Any] = []
        for k, buffer in enumerate(step.args):
            array = memory[buffer]
            if k in maps:
                pointer = step.args.index(buffer)
                assert pointer not in maps, "an array that is described has a pointer, too"
                args.append(_map(maps[k], pointer, params))
            else:
                args.append(array.tobytes() if k in dict(kernel.by_value) else array)
        assert tasks >= 0, step
        blocks = -(-tasks // kernel.tasks)
        _launch(machine)(
            code, blocks, kernel.threads, args, params, tasks,
            shared_bytes=kernel.shared_bytes, seed=seed + number, fill=FILL,
        )  # fmt: skip
    return [memory[Output(k)] for k in range(len(emitted.results))]
