"""Code objects made of LLVM's object files, read again by other means."""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

import shlo_disc
from shlo_disc.base.errors import InternalError
from shlo_disc.lower.images import KernelImage
from shlo_disc.lower.llvm import workers
from shlo_disc.lower.rocm import elf
from shlo_disc.lower.rocm.linker import link
from shlo_disc.lower.rocm.machine import ARCHITECTURES, machine_of
from shlo_disc.lower.target import parse
from tests.gpu.code_object import LOAD, CodeObject

PROGRAM = """
func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}, %z: tensor<f32>)
    -> (tensor<f32>, tensor<?xf32>) {
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
  %y = stablehlo.exponential %x : tensor<?xf32>
  return %s, %y : tensor<f32>, tensor<?xf32>
}
"""

TABLE = """
@table = internal constant [8 x i32] [i32 3, i32 1, i32 4, i32 1, i32 5, i32 9, i32 2, i32 6]
define amdgpu_kernel void @looks_up(ptr %out, i64 %n) {
  %place = getelementptr [8 x i32], ptr @table, i64 0, i64 %n
  %value = load i32, ptr %place
  store i32 %value, ptr %out
  ret void
}
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
"""
"""A kernel that finds constants by the distance of their place from its code."""


@functools.cache
def made(text: str, architecture: str = "gfx942") -> bytes:
    machine = machine_of(architecture)
    names = machine.triple, machine.architecture, machine.features
    return workers.compiled(text, *names, form="object")


def kernel(body: str, more: str = "") -> str:
    return f"{more}\ndefine amdgpu_kernel void @k(ptr %out) {{\n{body}\n  ret void\n}}"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_are_found_with_what_the_runtime_asks(architecture: str) -> None:
    program = shlo_disc.compile(PROGRAM, target=f"rocm:{architecture}")
    target = parse(f"rocm:{architecture}")
    with target.generator() as generator:
        images = generator.functions([kernel.source for kernel in program.host.kernels])
    assert len(images) >= 3  # two of the sum
    for image in images:
        assert isinstance(image, KernelImage)
        code, signature = CodeObject(image.image), image.signature
        assert code.metadata()["amdhsa.target"] == f"amdgcn-amd-amdhsa--{architecture}"
        assert code.kernels().keys() == {image.name}
        told, descriptor = code.kernels()[image.name], code.descriptor(image.name)
        address, _ = code.symbol(image.name)
        assert address % 256 == 0
        assert code.symbol(told[".symbol"])[0] + descriptor.entry == address
        count = signature.arrays + signature.sizes + 1
        given = [a for a in told[".args"] if not a[".value_kind"].startswith("hidden_")]
        assert given == told[".args"]  # nothing that a device library would ask for
        assert [(a[".offset"], a[".size"]) for a in given] == [(8 * k, 8) for k in range(count)]
        kinds = ["global_buffer"] * signature.arrays + ["by_value"] * (signature.sizes + 1)
        assert [a[".value_kind"] for a in given] == kinds
        assert told[".kernarg_segment_size"] == descriptor.argument_bytes == 8 * count
        assert told[".reqd_workgroup_size"] == [signature.threads, 1, 1]
        assert told[".wavefront_size"] == ARCHITECTURES[architecture].wave
        assert told[".group_segment_fixed_size"] == descriptor.shared_bytes


@pytest.mark.parametrize("architecture", ["gfx942", "gfx1100"])
def test_segments_do_not_share_a_page(architecture: str) -> None:
    code = CodeObject(link(made(TABLE, architecture)))
    pages: set[int] = set()
    for segment in code.loaded:
        assert (segment.address - segment.offset) % segment.alignment == 0
        last = (segment.address + segment.memory_bytes - 1) // segment.alignment
        own = set(range(segment.address // segment.alignment, last + 1))
        assert not own & pages
        pages |= own
    assert [segment.flags for segment in code.loaded] == [4, 5, 6]
    assert all(s.file_bytes <= s.memory_bytes for s in code.segments if s.kind == LOAD)


@pytest.mark.parametrize("architecture", ["gfx942", "gfx1100"])
def test_constants_are_where_code_looks_for_them(architecture: str) -> None:
    """The code computes `pc + constant`: the low half of the 64 bits is a literal behind it."""
    given = elf.read_object(made(TABLE, architecture))
    wanted = [r for r in given.relocations if r.kind in (10, 11)]
    assert {r.kind for r in wanted} == {10, 11}
    code = CodeObject(link(made(TABLE, architecture)))
    start, _ = code.symbol("looks_up")
    at = code.memory.index(struct.pack("<8I", 3, 1, 4, 1, 5, 9, 2, 6))
    (low,) = (r for r in wanted if r.kind == 10)
    place = start + low.offset
    distance = int.from_bytes(code.memory[place : place + 4], "little", signed=True)
    symbol = given.symbols[low.symbol]
    assert place + distance == at + low.addend + (symbol.value if symbol.name else 0)
    (high,) = (r for r in wanted if r.kind == 11)
    place = start + high.offset
    assert code.memory[place : place + 4] == (b"\0" * 4 if at > place else b"\xff" * 4)


def test_many_names_are_found() -> None:
    kernels = "\n".join(
        f"define amdgpu_kernel void @kernel_{k}(ptr %out) {{ ret void }}" for k in range(40)
    )
    code = CodeObject(link(made(kernels + TABLE)))
    places = {code.symbol(f"kernel_{k}{end}") for k in range(40) for end in ("", ".kd")}
    assert len(places) == 80
    with pytest.raises(AssertionError, match="no symbol kernel_40"):
        code.symbol("kernel_40")


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf (binutils) is not installed")
def test_readelf_has_no_complaint(tmp_path: Path) -> None:
    path = tmp_path / "kernel.hsaco"
    path.write_bytes(link(made(TABLE)))
    done = subprocess.run(["readelf", "-aW", str(path)], capture_output=True, text=True, check=True)
    assert "arning" not in done.stderr + done.stdout
    assert "looks_up.kd" in done.stdout


REFUSED = {
    "refers to helper, which nothing defines": kernel(
        "  call void @helper(ptr %out)", "declare void @helper(ptr)"
    ),
    "data that it may write: .data": kernel(
        "  store ptr addrspace(1) @state, ptr %out",
        "@state = addrspace(1) global i32 7",
    ),
    "data that it may write: .bss": kernel(
        "  store ptr addrspace(1) @state, ptr %out",
        "@state = addrspace(1) global [4 x i32] zeroinitializer",
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_linked_is_refused(message: str) -> None:
    with pytest.raises(InternalError, match=message):
        link(made(REFUSED[message]))


def test_other_files_are_refused() -> None:
    whole = made(TABLE)
    with pytest.raises(InternalError, match="not a relocatable object file of an AMD GPU"):
        link(link(whole))
    with pytest.raises(InternalError, match="not a relocatable object file of an AMD GPU"):
        link(b"\x7fELF" + bytes(100))
    for length in range(0, len(whole), 97):
        with pytest.raises(InternalError, match="object file"):
            link(whole[:length])


def test_relocations_of_another_kind_are_refused() -> None:
    changed = bytearray(made(TABLE))
    given = elf.read_object(bytes(changed))
    low = next(r for r in given.relocations if r.kind == 10)
    row = elf.RELOCATION.pack(low.offset, low.symbol << 32 | low.kind, low.addend)
    at = changed.index(row)
    changed[at + 8] = 3  # R_AMDGPU_ABS64
    with pytest.raises(InternalError, match=r"\.text has a relocation of kind 3"):
        link(bytes(changed))


def test_assembly_is_for_reading() -> None:
    program = shlo_disc.compile(PROGRAM, target="rocm:gfx942")
    text = program.as_text("amdgcn")
    assert '.amdgcn_target "amdgcn-amd-amdhsa--gfx942"' in text
    assert text.count("\t.amdhsa_kernel ") == len(program.host.kernels)
    with pytest.raises(ValueError, match=r"no stage 'ptx'; stages: .*, kernels, llvm, amdgcn$"):
        program.as_text("ptx")


def test_unknown_architectures_are_told_the_known() -> None:
    with pytest.raises(ValueError, match=r"'rocm:gfx1' is unknown; architectures: gfx90a, gfx942"):
        parse("rocm:gfx1")
    with pytest.raises(ValueError, match="'rocm:' is unknown"):
        shlo_disc.compile(PROGRAM, target="rocm:")
