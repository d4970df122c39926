"""Checks many programs in child processes, so that a crash or a hang costs one program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.children import LIMIT_S, Ended, Server, outcomes, prepare
from tests.fuzz.check import Failure, Outcome, check
from tests.fuzz.generate import generate
from tests.fuzz.program import Program
from tests.fuzz.sizes import generate as generate_sizes
from tests.fuzz.text import check as text_check
from tests.fuzz.text import generate as text_generate
from tests.fuzz.text.module import Module

__all__ = ["GENERATORS", "Checker", "check_seeds", "prepare"]


def _check_seed(seed: int) -> Outcome:
    return check(generate(seed))


def _check_sizes_seed(seed: int) -> Outcome:
    return check(generate_sizes(seed))


def _check_text_seed(seed: int) -> Outcome:
    return text_check.check(text_generate.generate(seed))


def _check_program(job: tuple[Program, bool]) -> Outcome:
    program, compare = job
    if isinstance(program, Module):
        return text_check.check(program, compare)
    return check(program, compare)


def check_seeds(
    seeds: Sequence[int],
    jobs: int,
    stop: Callable[[], bool] = lambda: False,
    *,
    kind: str = "jax",
) -> Iterator[tuple[int, Outcome]]:
    """The outcome of every seed, as they come; `kind`: of which programs, a key of `GENERATORS`."""
    for seed, found in outcomes(_CHECKS[kind], seeds, jobs, stop=stop):
        yield seed, _outcome(found)


GENERATORS: dict[str, Callable[[int], Program]] = {
    "jax": generate,
    "sizes": generate_sizes,
    "stablehlo": text_generate.generate,
}
"""The program of a seed."""

_CHECKS = {"jax": _check_seed, "sizes": _check_sizes_seed, "stablehlo": _check_text_seed}


class Checker(Server):
    """Checks one program after the other in a process of its own, a new one after a crash."""

    def __init__(self, compare: bool = True, limit_s: float = LIMIT_S) -> None:
        super().__init__(_check_program, limit_s)
        self._compare = compare

    def check(self, program: Program) -> Outcome:
        return _outcome(self.outcome((program, self._compare)))


def _outcome(found: Any) -> Outcome:
    if isinstance(found, Ended):
        signature = found.kind if found.kind == "hang" else f"crash {found.message.split()[-1]}"
        return Outcome(Failure(found.kind, signature, found.message))
    return found
