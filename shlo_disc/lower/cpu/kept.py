"""Machine code for the CPU that an earlier process compiled; it is loaded without the emitters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

from shlo_disc.lower.cpu import codegen, matrix_unit
from shlo_disc.lower.cpu.code_key import machine_key
from shlo_disc.lower.cpu.codegen import Function
from shlo_disc.lower.cpu.foreign_code import ForeignFunction, Objects, kept_functions
from shlo_disc.lower.cpu.machine import HOST_OF_GPUS, machine_of
from shlo_disc.lower.host.record import CodeNames


@functools.cache
def identity(architecture: str) -> bytes:
    """Names all of this machine, used as `architecture`, that compiled programs depend on.

    The modules of this package are no part of it: the key of a program has all of them.

    Raises UnsupportedError as `machine_of`.
    """
    machine = machine_of(architecture)
    numbers = (
        machine.instruction_set,
        machine.vector_bytes,
        machine.l1_bytes,
        machine.l2_bytes,
        machine.cores,
    )
    return machine_key(numbers, sorted(machine.features), sorted(machine.without))


def check_host_of_gpus() -> None:
    """Raise UnsupportedError unless this machine runs host programs of artifacts for GPUs."""
    machine_of(HOST_OF_GPUS)


def runs(symbols: Iterable[str]) -> bool:
    """Whether the system lets this process run functions of these names; asks it if need be."""
    return not any(map(codegen.has_tiles, symbols)) or matrix_unit.is_granted()


def functions(
    architecture: str,
    names: CodeNames,
    texts: Callable[[], tuple[str, Sequence[str], Sequence[str]]],
) -> (
    tuple[list[Function], list[Function], tuple[Function, Function]]
    | tuple[list[ForeignFunction], list[ForeignFunction], tuple[ForeignFunction, ForeignFunction]]
):
    """The functions that `names` tells of: of kernels, of plans, and those of a host program."""
    machine = machine_of(architecture)
    if not machine.is_this_one:
        return kept_functions(Objects(machine), texts)
    return codegen.kept_functions(names, texts, machine)
