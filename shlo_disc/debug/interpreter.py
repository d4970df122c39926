"""The StableHLO interpreter in a process of its own, which it ends where it supports something not.

The reference shares no code with this compiler. It is slow: about a microsecond an element.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any, Self

import ml_dtypes
import numpy as np
import numpy.typing as npt

from shlo_disc.ir.mlir import ir, new_context, parse_module, run_pipeline, stablehlo

Array = npt.NDArray[Any]
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class NoReferenceError(Exception):
    """The interpreter does not run the program; the message says why."""


class Interpreter:
    """Runs modules of `reference.py`; its process starts with the first and again after a crash."""

    def __init__(self, limit_s: float = 60.0) -> None:
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._printed: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._end()

    def run(
        self, module: ir.Module, arguments: Sequence[Array], dtypes: Sequence[np.dtype[Any]]
    ) -> list[Array]:
        """The results of `main`, whose dtypes are `dtypes`.

        Raises NoReferenceError if the interpreter refuses the program, ends, or takes longer than
        the limit.
        """
        text = str(module.operation.get_asm(enable_debug_info=False))
        given = [a.view(np.uint16) if a.dtype == _BFLOAT16 else a for a in arguments]
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((text, given), process.stdin)
            process.stdin.flush()
            if not select.select([process.stdout], [], [], self._limit_s)[0]:
                self._end()
                raise NoReferenceError(f"no answer in {self._limit_s:.0f} s")
            answer = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError):
            raise NoReferenceError(self._last_words()) from None
        if isinstance(answer, str):
            raise NoReferenceError(answer)
        return [
            array.view(dtype) if dtype == _BFLOAT16 else array
            for array, dtype in zip(answer, dtypes, strict=True)
        ]

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            # Modules come from where this process has them.
            path = os.pathsep.join(filter(None, sys.path))
            self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
            self._process = subprocess.Popen(
                [sys.executable, "-m", "shlo_disc.debug.interpreter"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._printed,
                env={**os.environ, "PYTHONPATH": path},
            )
        return self._process

    def _last_words(self) -> str:
        """Why the process ended: the first line that LLVM printed."""
        assert self._printed is not None
        assert self._process is not None
        status = self._process.wait()
        self._printed.seek(0)
        said = self._printed.read().decode(errors="replace").splitlines()
        self._end()
        errors = [line for line in said if "ERROR" in line or "error" in line]
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        reason = (errors or [f"the interpreter ended with {how}"])[0]
        return reason.removeprefix("LLVM ERROR: ").partition(" However")[0]

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout, self._printed):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # what was not read
                stream.close()
        self._process.wait()
        self._process = None


_PIPELINE = "func.func(stablehlo-canonicalize-dynamism,chlo-legalize-to-stablehlo)"
"""The interpreter runs neither CHLO nor all dynamic operations, such as `real_dynamic_slice`."""


def evaluate(text: str, arguments: Sequence[Array]) -> list[Array]:
    """What `main` of a static StableHLO module gives; the process may end instead."""
    with new_context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, _PIPELINE)
        main = next(
            op
            for op in module.body.operations
            if ir.StringAttr(op.attributes["sym_name"]).value == "main"
        )
        given = [
            ir.DenseElementsAttr.get(
                np.ascontiguousarray(array), type=_element(a.type), shape=list(array.shape)
            )
            for array, a in zip(arguments, main.arguments, strict=True)
        ]
        return [np.array(result) for result in stablehlo.eval_module(module, given)]


def _element(kind: ir.Type) -> Any:
    return ir.RankedTensorType(kind).element_type


def serve() -> None:
    """Answer requests on stdin until it ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what MLIR prints must not come between answers
    while True:
        try:
            text, arguments = pickle.load(requests)
        except EOFError:
            return
        answer: Any
        try:
            answer = evaluate(text, arguments)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    serve()
