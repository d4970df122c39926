"""Runs in a child process: LLVM IR of kernels to assembly or object code, by llvmlite; PTX to
machine code, by nvJitLink.

    python -I -S worker.py FOLDERS...

FOLDERS are where Python finds llvmlite. LLVM may end the process, and llvmlite takes one call at a
time: so there are several such processes. Each answers requests from its standard input, one after
the other, until that is closed. A request is a line of JSON, and then LLVM IR. The line has
`triple`, `chip`, `features`, the `level` of LLVM, the `model` of the code, and
the `form`: "assembly" or "object". The `size` of the rest is in bytes. Or it has `library` (a path
of nvJitLink's) and `chip`, and PTX follows. The answer is a line of JSON (`error` or None, `size`),
and `size` bytes.

Nothing of shlo_disc is imported here.
"""

from __future__ import annotations

import ctypes
import json
import sys
from functools import cache
from typing import Any, BinaryIO


def _machine(llvm: Any, request: dict[str, Any]) -> Any:
    target = llvm.Target.from_triple(request["triple"])
    is_amd = request["triple"].startswith("amdgcn")
    return target.create_target_machine(
        cpu=request["chip"],
        features=request["features"],
        opt=request["level"],
        reloc="pic" if is_amd else "default",
        codemodel=request["model"],
    )


def compiled(llvm: Any, machine: Any, request: dict[str, Any], text: str) -> bytes:
    """The code of the module `text`. Raises RuntimeError with LLVM's message."""
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = request["triple"], str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=request["level"])
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    if request["form"] == "object":
        return bytes(machine.emit_object(module))
    return str(machine.emit_assembly(module)).encode()


_PTX = 2
"""NVJITLINK_INPUT_PTX. Source: nvJitLink.h."""


def linked(library: str, chip: str, ptx: bytes) -> bytes:
    """Machine code of `ptx`. Raises RuntimeError with nvJitLink's messages."""
    api = ctypes.CDLL(library)
    handle, size = ctypes.c_void_p(), ctypes.c_size_t()

    def done(error: int) -> None:
        if error == 0:
            return
        text = ctypes.create_string_buffer(b"", 1)
        if handle and api.nvJitLinkGetErrorLogSize(handle, ctypes.byref(size)) == 0:
            text = ctypes.create_string_buffer(size.value + 1)
            api.nvJitLinkGetErrorLog(handle, text)
        raise RuntimeError(f"nvJitLink error {error} {text.value.decode(errors='replace')}")

    options = (ctypes.c_char_p * 1)(f"-arch={chip}".encode())
    try:
        done(api.nvJitLinkCreate(ctypes.byref(handle), ctypes.c_uint32(1), options))
        done(api.nvJitLinkAddData(handle, _PTX, ptx, ctypes.c_size_t(len(ptx)), b"kernel"))
        done(api.nvJitLinkComplete(handle))
        done(api.nvJitLinkGetLinkedCubinSize(handle, ctypes.byref(size)))
        code = ctypes.create_string_buffer(size.value)
        done(api.nvJitLinkGetLinkedCubin(handle, code))
        return code.raw
    finally:
        if handle:
            api.nvJitLinkDestroy(ctypes.byref(handle))


def serve(folders: list[str], requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    sys.path += folders
    import llvmlite.binding as llvm  # noqa: PLC0415 - found in the folders only

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()

    @cache
    def machine(described: str) -> Any:
        return _machine(llvm, json.loads(described))

    while line := requests.readline():
        request = json.loads(line)
        text = requests.read(request.pop("size"))
        error, code = None, b""
        try:
            if "library" in request:
                code = linked(request["library"], request["chip"], text)
            else:
                code = compiled(llvm, machine(json.dumps(request)), request, text.decode())
        except Exception as refused:  # the parent tells it
            error = f"{type(refused).__name__}: {refused}"
        answers.write(json.dumps({"error": error, "size": len(code)}).encode() + b"\n" + code)
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1:], sys.stdin.buffer, sys.stdout.buffer)
