"""Short kernels for the tests of the interpreter, written by hand.

With SHLO_DISC_PTX_DEVICE=1 they run on a GPU, and what only the interpreter can show is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import pytest

from tests.ptx import device, interpreter
from tests.ptx.interpreter import PtxFault

ON_DEVICE = os.environ.get("SHLO_DISC_PTX_DEVICE") == "1"
launch = device.launch if ON_DEVICE else interpreter.launch
interpreter_only = pytest.mark.skipif(ON_DEVICE, reason="a GPU does not do this")

_REGISTERS = """
.reg .pred %p<16>; .reg .b16 %h<64>; .reg .b32 %r<256>; .reg .f32 %f<64>;
.reg .b64 %d<64>; .reg .f64 %g<32>;
"""
_PREFIX = {"pred": "p", "b16": "h", "b32": "r", "b64": "d"}


def kernel(body: str, arguments: int = 1, outside: str = "") -> str:
    """A kernel of `arguments` pointers a0, a1, ... and `tasks`.

    %d0, %d1, ... hold the pointers, %r0 the thread's number within its block.
    """
    names = [f"a{k}" for k in range(arguments)]
    loads = [f"ld.param.u64 %d{k}, [{name}];" for k, name in enumerate(names)]
    declared = ", ".join(f".param .u64 {name}" for name in [*names, "tasks"])
    lines = [".version 8.0", ".target sm_90a", ".address_size 64", outside]
    lines += [f".visible .entry KERNEL({declared})", "{", _REGISTERS, *loads]
    return "\n".join([*lines, "mov.u32 %r0, %tid.x;", body, "ret;", "}"])


def run(
    body: str, *arrays: np.ndarray, threads: int = 32, blocks: int = 1, outside: str = "", **options
) -> int | None:
    """Launch a kernel of that body; arrays are changed in place."""
    return launch(kernel(body, len(arrays), outside), blocks, threads, arrays, [], 0, **options)


def faults(match: str) -> AbstractContextManager[pytest.ExceptionInfo[PtxFault]]:
    """What is inside faults. Ends the test on a GPU, where what it did may be anything."""
    if ON_DEVICE:
        pytest.skip("a fault of the interpreter")
    return pytest.raises(PtxFault, match=match)


def per_thread(
    instruction: str, inputs: Sequence[np.ndarray], result: np.dtype | type | str
) -> np.ndarray:
    """What `instruction` gives in d for x, y, z, one thread an element.

    d, x, y, z are registers of the sizes of the arrays' elements.
    """
    count = len(inputs[0])
    out = np.zeros(count, result)
    lines = []
    for k, array in enumerate([*inputs, out]):
        size = array.itemsize
        lines.append(f"mad.wide.u32 %d{20 + k}, %r0, {size}, %d{k};")
        register = _register(30 + k, size)
        if k < len(inputs):
            lines.append(f"ld.global.b{8 * size} {register}, [%d{20 + k}];")
            instruction = instruction.replace(f"${'xyz'[k]}", register)
    register = _register(40, out.itemsize)
    lines.append(instruction.replace("$d", register))
    lines.append(f"st.global.b{8 * out.itemsize} [%d{20 + len(inputs)}], {register};")
    run("\n".join(lines), *inputs, out, threads=count)
    return out


def _register(number: int, size: int) -> str:
    return f"%{_PREFIX[f'b{8 * max(size, 2)}']}{number}"
