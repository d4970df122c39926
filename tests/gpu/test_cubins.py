"""Machine code of kernels: made where an assembler is installed, loaded if the driver may."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest

import shlo_disc
from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError, UnsupportedError
from shlo_disc.lower.cuda import assembler
from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.gpu import codegen
from tests.gpu.families import FAMILIES
from tests.gpu.stand_in import shared_library
from tests.gpu.test_matrix_products import LAYOUTS
from tests.gpu.test_warpgroup_products import launches, planned

pytest.importorskip("llvmlite")

needs_ptxas = pytest.mark.skipif(assembler.ptxas() is None, reason="no ptxas")
needs_nvjitlink = pytest.mark.skipif(assembler.nvjitlink() is None, reason="no nvJitLink")

ELF = b"\x7fELF"
ADD = """
func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?xf32> {
  %y = stablehlo.add %x, %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
"""


def ptx_of(family: str, architecture: str = "sm_90") -> list[bytes]:
    """The PTX of every kernel of a family."""
    program = shlo_disc.compile(FAMILIES[family].exported, target=f"cuda:{architecture}")
    sources = [kernel.source for kernel in program.host.kernels]
    return [codegen.assembly(source, machine_of(architecture)).encode() for source in sources]


def registers(cubin: bytes) -> int:
    """Registers of a thread of the one kernel of a cubin: bits 24 to 31 of its section's info."""
    at, (size, count, names) = (
        struct.unpack_from("<Q", cubin, 40)[0],
        struct.unpack_from("<HHH", cubin, 58),
    )
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + k * size) for k in range(count)]
    strings = headers[names][4]
    found = [
        header[7] >> 24 for header in headers if cubin[strings + header[0] :].startswith(b".text.k")
    ]
    assert len(found) == 1
    return found[0]


@needs_ptxas
def test_cubins_have_the_kernel_of_the_ptx():
    (source,) = [k.source for k in shlo_disc.compile(ADD, target="cuda:sm_90").host.kernels]
    machine = machine_of("sm_90")
    with flags.overridden(gpu_cubins=1):
        made = codegen.image(source, machine)
    assert made.machine_code.startswith(ELF)
    assert b".text." + made.name.encode() + b"\0" in made.machine_code
    assert f".entry {made.name}(".encode() in made.image
    assert made.size_bytes == len(made.image) + len(made.machine_code)
    with flags.overridden(gpu_cubins=0):
        assert codegen.image(source, machine).machine_code == b""


@needs_nvjitlink
@needs_ptxas
def test_nvjitlink_makes_what_ptxas_makes_where_nothing_is_called():
    program, library = assembler.ptxas(), assembler.nvjitlink()
    assert program is not None
    assert library is not None
    texts = [t for family in ("row", "column") for t in ptx_of(family)]
    calls_nothing = [t for t in texts if not re.search(rb"(div|rem)\.[us]64|(div|sqrt)\.rn", t)]
    assert calls_nothing
    for text in calls_nothing:
        made = assembler.with_nvjitlink(text, "sm_90", library)
        assert registers(made) == registers(assembler.with_ptxas(text, "sm_90", program))


@needs_nvjitlink
def test_nvjitlink_does_not_make_kernels_that_would_call_something(monkeypatch):
    monkeypatch.setattr(assembler, "ptxas", lambda: None)
    made = {text: assembler.assembled(text, "sm_90") for text in ptx_of("row")}
    assert {code[:4] for code in made.values()} == {ELF, b""}
    for text, code in made.items():
        assert bool(code) != bool(re.search(rb"(div|rem)\.[us]64|(div|sqrt)\.rn", text))
    machine = machine_of("sm_90a")
    for launch in launches(planned(LAYOUTS[0], machine=machine).plan.steps):
        text = codegen.assembly(launch.kernel.source, machine).encode()
        if b"wgmma" in text and b"div.u64" in text:
            assert assembler.assembled(text, "sm_90a") == b""


def test_without_an_assembler_the_driver_compiles(monkeypatch):
    monkeypatch.setattr(assembler, "ptxas", lambda: None)
    monkeypatch.setattr(assembler, "nvjitlink", lambda: None)
    with flags.overridden(gpu_cubins=1):
        assert assembler.cubin(b"not read", "sm_90") == b""


def test_programs_of_a_toolkit_are_found(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assembler, "_TOOLKIT", tmp_path / "toolkit")
    assert assembler._on_path("frobnicate") is None
    for folder in ("toolkit", "path"):
        program = tmp_path / folder / "frobnicate"
        program.parent.mkdir()
        program.touch(0o755)
        assert assembler._on_path("frobnicate") == program
        monkeypatch.setenv("PATH", str(tmp_path / "path"))


def test_cubins_are_made_where_a_driver_is(monkeypatch) -> None:
    monkeypatch.setattr(assembler, "assembled", lambda ptx, architecture: b"made")
    monkeypatch.delenv("SHLO_DISC_GPU_CUBINS", raising=False)
    monkeypatch.setenv("SHLO_DISC_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
    assert assembler.cubin(b"", "sm_90") == b""
    with flags.overridden(gpu_cubins=1):
        assert assembler.cubin(b"", "sm_90") == b"made"
    library = shared_library(Path(__file__).with_name("programs.c"))
    monkeypatch.setenv("SHLO_DISC_CUDA_LIBRARY", str(library))
    assert assembler.cubin(b"", "sm_90") == b"made"
    with flags.overridden(gpu_cubins=0):
        assert assembler.cubin(b"", "sm_90") == b""


def _refused(text: bytes, architecture: str) -> str:
    """What is said of PTX that is not taken; nothing where it is left to the driver."""
    try:
        assert assembler.assembled(text, architecture) == b""
    except InternalError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("by", ["ptxas", "nvJitLink"])
def test_what_an_assembler_does_not_take(monkeypatch, by):
    if by == "nvJitLink":
        monkeypatch.setattr(assembler, "ptxas", lambda: None)
    if (assembler.nvjitlink if by == "nvJitLink" else assembler.ptxas)() is None:
        pytest.skip(f"no {by}")
    (text,) = ptx_of("loop_bf16")
    version = re.sub(rb"\.version \d.\d", b".version 99.0", text)
    assert _refused(text, "sm_999") == ""
    assert _refused(version, "sm_90") == ""
    said = _refused(text.replace(b"ret;", b"rot;"), "sm_90")
    assert said.startswith(f"{by} did not accept a kernel")
    assert "known instruction: 'rot'" in said


@needs_ptxas
def test_sass():
    if assembler._nvdisasm() is None:
        pytest.skip("no nvdisasm")
    program = shlo_disc.compile(ADD, target="cuda:sm_90")
    said = program.as_text("sass")
    (kernel,) = program.host.kernels
    assert f".text.{program.target.function_name(kernel.text)}:" in said
    assert re.search(r"LDG\.E\.128[\w.]* ", said)
    assert "STG.E.128" in said
    assert "EXIT ;" in said


def test_what_sass_needs(monkeypatch, tmp_path: Path):
    program = shlo_disc.compile(ADD, target="cuda:sm_90")
    monkeypatch.setattr(assembler, "_nvdisasm", lambda: None)
    with pytest.raises(UnsupportedError, match="pip install nvidia-cuda-nvdisasm"):
        program.as_text("sass")
    monkeypatch.setattr(assembler, "_nvdisasm", lambda: tmp_path)
    monkeypatch.setattr(assembler, "ptxas", lambda: None)
    monkeypatch.setattr(assembler, "nvjitlink", lambda: None)
    with pytest.raises(UnsupportedError, match="knows sm_90: pip install nvidia-cuda-nvcc"):
        program.as_text("sass")


@needs_ptxas
def test_a_driver_that_refuses_cubins_gets_ptx(gpu, stand_in):
    """The stand-in takes no machine code of a kernel it would interpret."""
    codegen.RECENT.clear()
    with flags.overridden(gpu_cubins=1):
        add = shlo_disc.jit(lambda x: x + x)
        found = np.asarray(add(np.arange(5, dtype="f4")))
    codegen.RECENT.clear()
    np.testing.assert_array_equal(found, np.arange(5, dtype="f4") * 2)
    assert stand_in.refused_images
