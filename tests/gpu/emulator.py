"""AMD's instructions on an emulator: `test/mockgpu/amd/emu.py` of a checkout of tinygrad.

    SHLO_DISC_TEST_TINYGRAD=/path/to/tinygrad
    SHLO_DISC_TEST_EMULATED=gfx942      run the plans of tests for it, in place of PTX (`run.py`)

The emulator makes code of AMD's published pseudocode. It runs the waves of a block one after the
other, up to the next barrier, and looks at no bounds. Words of memory are where the address would
be if it were a multiple of 4. It needs a C compiler that takes the options of clang (CC). Code of
clang 14 for a machine with AVX-512 has relocations that the emulator does not know: let CC name a
script that gives clang `-march=x86-64-v3` in place of `-march=native`. Nothing of it is in this
repository.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import re
import struct
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.gpu import emulator_more
from tests.gpu.code_object import CodeObject

MAGIC = b"\x7fELF"

CHECKOUT = os.environ.get("SHLO_DISC_TEST_TINYGRAD", "")
ARCHITECTURE = os.environ.get("SHLO_DISC_TEST_EMULATED", "")
WHY_NOT = "no emulator: SHLO_DISC_TEST_TINYGRAD=/path/to/a/checkout/of/tinygrad names one"

FEATURES = "-unaligned-access-mode"
"""What LLVM is told of the emulator: words that are no multiples of 4 are read by bytes."""

_SETS = {"gfx9": "cdna", "gfx11": "rdna3", "gfx12": "rdna4"}
"""The emulator's names of instruction sets, by how an architecture begins."""

_SHARED_GRANULE = 512


_WIDTH = """
        bit_width, dword_idx = int(m.group(1)) - int(m.group(2)) + 1, int(m.group(2)) // 32"""

_MENDED = {
    # Lanes that are off hold no address of shared memory.
    "      addr = ctx.rvgpr_dyn(addr_reg, lane)\n": "      addr = _lane_active(exec_mask, lane)"
    ".where(ctx.rvgpr_dyn(addr_reg, lane), _c(0))\n",
    "'vgpr_a': ctx.rvgpr_dyn(addr_reg, lane), 'offset'": "'vgpr_a': _lane_active(exec_mask, lane)"
    ".where(ctx.rvgpr_dyn(addr_reg, lane), _c(0)), 'offset'",
    # Loads of 16 bits to one half of a register leave the other one alone.
    _WIDTH: f"""{_WIDTH}
        if bit_width == 16:
          shift = _c(int(m.group(2)) % 32)
          old = ctx.rvgpr_dyn(vdst_reg, lane) & ((_c(0xFFFF) << shift) ^ _c(0xFFFFFFFF))
          half = (_to_u32(val) & _c(0xFFFF)) << shift
          return _write_val(32, old | half, _wdata, vdst_reg, lane, exec_mask)""",
    "if is_lds and 'PERMUTE' in op_name:": "if is_lds and re.search('PERMUTE|SWIZZLE', op_name):",
    # Matrix instructions of f16: what is not finite stays so.
    "    return exp.eq(_c(0)).where(_c(0), f32_bits)": "    return exp.eq(_c(0)).where(_c(0), "
    "exp.eq(_c(31)).where((sign << _c(31)) | _c(0x7F800000) | (mant << _c(13)), f32_bits))",
    # WMMA of integers: NEG says whether elements have signs.
    "    return (pkd << _c(24, dtypes.uint)).bitcast(dtypes.int32) >> _c(24, dtypes.int32)": """\
    if not _iattr(inst, 'neg') >> (src is src1_r) & 1:
      return pkd.bitcast(dtypes.int32)
    return (pkd << _c(24, dtypes.uint)).bitcast(dtypes.int32) >> _c(24, dtypes.int32)""",
    # MFMA of integers: the room for elements is of words without signs.
    "      return (byte.cast(dtypes.int32) ^ UOp.const(0x80, dtypes.int32))"
    " - UOp.const(0x80, dtypes.int32)\n": """\
      return (byte ^ UOp.const(0x80, dtypes.uint32)) - UOp.const(0x80, dtypes.uint32)
""",
    # Registers from v128 on are no high halves of others in instructions of CDNA with 16 bits.
    **{
        line: line.replace("] == 16", "] == 16 and not _is_cdna(inst)")
        for line in (
            "  if bits['s0'] == 16:  # src0 >= 384",
            "write_hi_half = bits['d'] == 16 and (vdst_reg",
            "vsrc1_hi = bits['s0'] == 16 and (vsrc1_reg",
            "    if bits['s0'] == 16:\n      vsrc1_hi",
        )
    },
    "def _load_vsrc0(": """\
def _is_cdna(inst):
  return type(inst).__module__ == irc.__name__

def _load_vsrc0(""",
    # V_MFMA_F32_16X16X16BF16_1K of gfx90a has another number since gfx940.
    "  inst = decode_inst(inst_bytes, arch)\n  try:": """\
  if arch == "cdna" and inst_bytes[2:4] == b"\\xe7\\xd3":
    inst_bytes = inst_bytes[:2] + b"\\xe1" + inst_bytes[3:]
  inst = decode_inst(inst_bytes, arch)
  try:""",
}
"""Lines of the emulator, and what they have to be."""


def _mend(table: dict[Any, str]) -> None:
    """What the documents say of moves between lanes and of zeros, as the emulator can read it."""
    (permute,) = (key for key in table if str(key).endswith("DS_BPERMUTE_B32"))
    (swizzle,) = (key for key in table if str(key).endswith("DS_SWIZZLE_B32"))
    line = re.compile(r"src_lane = .*?;")
    # The remainder of what lanes that are off hold is negative.
    wrong = "32'I(VGPR[i][ADDR] + OFFSET.b32) / 4 % 32"
    zero = re.compile(r"64'F\((S\d)\.f32\) == ([+-])0\.0")  # of this sign

    def same_bits(match: re.Match[str]) -> str:
        return f"{match[1]}.u32 == {'0x80000000U' if match[2] == '-' else '0U'}"

    for key, text in table.items():
        table[key] = zero.sub(same_bits, text).replace(
            wrong, "((VGPR[i][ADDR] + OFFSET.b32) >> 2U) & 31U"
        )
    # In prose in the documents. Lanes of 32 that are `and`, `or` and `xor` away, 5 bits each;
    # the value is where addresses are else.
    table[swizzle] = line.sub(
        "src_lane = ((((i & OFFSET.u32) & 31U) | ((OFFSET.u32 >> 5U) & 31U)) ^"
        " ((OFFSET.u32 >> 10U) & 31U)) | (i & 32U);",
        table[permute].replace("[DATA0]", "[ADDR]"),
    )


@functools.cache
def _run_asm() -> Any:
    """The emulator's function.

    Raises FileNotFoundError where there is none, ValueError for a version that is not known.
    """
    if not CHECKOUT:
        raise FileNotFoundError(WHY_NOT)
    path = Path(CHECKOUT) / "test/mockgpu/amd/emu.py"
    text = path.read_text()
    for line, right in _MENDED.items():
        if text.count(line) != 1:
            raise ValueError(f"{path} is of a version that is not known: {line.strip()}")
        text = text.replace(line, right)
    os.environ.setdefault("DEV", "CPU")
    sys.path.insert(0, CHECKOUT)  # Python has a package `test` of its own
    try:
        module = types.ModuleType("test.mockgpu.amd.emu")
        exec(compile(text, str(path), "exec"), module.__dict__)
    finally:
        sys.path.remove(CHECKOUT)
    for name in ("PCODE_RDNA3", "PCODE_RDNA4", "PCODE_CDNA"):
        _mend(getattr(module, name))
    emulator_more.add_to(module)
    return module.run_asm


def image_at(address: int) -> bytes:
    """The code object at an address: its last part is the table of sections."""
    head = ctypes.string_at(address, 64)
    (start,), (size, count) = (
        struct.unpack_from("<Q", head, 40),
        struct.unpack_from("<HH", head, 58),
    )
    return ctypes.string_at(address, start + size * count)


@dataclass(frozen=True)
class Loaded:
    """A code object in memory that the emulator reads."""

    code: CodeObject
    memory: mmap.mmap
    architecture: str

    @staticmethod
    def of(image: bytes) -> Loaded:
        """Load `image`."""
        code = CodeObject(image)
        memory = mmap.mmap(-1, code.size + mmap.PAGESIZE)
        memory[: code.size] = bytes(code.memory)
        return Loaded(code, memory, code.metadata()["amdhsa.target"].rpartition("-")[2])

    @property
    def address(self) -> int:
        """Where the memory begins."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def sizes(self, kernel: str) -> tuple[int, ...]:
        """Bytes of the parameters of a kernel."""
        return tuple(a[".size"] for a in self.code.kernels()[kernel][".args"])


def launch(
    loaded: Loaded,
    kernel: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int,
    values: Sequence[bytes],
) -> None:
    """Run a kernel. `values` are its parameters, addresses those of this process."""
    code = loaded.code
    descriptor, (address, _) = code.descriptor(kernel), code.symbol(f"{kernel}.kd")
    arguments = ctypes.create_string_buffer(descriptor.argument_bytes + 64)
    base = -(-ctypes.addressof(arguments) // 64) * 64
    for argument, value in zip(code.kernels()[kernel][".args"], values, strict=True):
        assert argument[".size"] == len(value)
        ctypes.memmove(base + argument[".offset"], value, len(value))
    instructions = next(
        name for start, name in _SETS.items() if loaded.architecture.startswith(start)
    )
    second = descriptor.resources[2]
    granules = -(-(descriptor.shared_bytes + shared_bytes) // _SHARED_GRANULE)
    second = second & ~(0x1FF << 15) | granules << 15  # as the command processor does
    registers = _registers(descriptor.properties, base, instructions)
    status = _run_asm()(
        loaded.address + address + descriptor.entry, code.size, *grid, *block, base, second,
        descriptor.private_bytes, instructions, registers,
    )  # fmt: skip
    assert status == 0


_MARGIN = 256
_MARGIN_BYTE = 0xA5


@functools.lru_cache(maxsize=256)
def _loaded(image: bytes) -> Loaded:
    return Loaded.of(image)


def run(
    image: bytes,
    blocks: int,
    threads: int,
    args: Sequence[npt.NDArray[Any] | bytes],
    params: Sequence[int],
    tasks: int,
    *,
    shared_bytes: int = 0,
    **_: int,
) -> None:
    """As `tests.ptx.interpreter.launch`: arrays are read and written in place.

    Raises AssertionError for bytes around an array, or of one that is read only, that change.
    """
    if not blocks:
        return
    loaded = _loaded(image)
    (kernel,) = loaded.code.kernels()
    copies, values = [], []
    for arg in args:
        if isinstance(arg, bytes):
            values.append(arg)
            continue
        raw = np.full(arg.nbytes + 2 * _MARGIN, _MARGIN_BYTE, np.uint8)
        raw[_MARGIN : _MARGIN + arg.nbytes] = np.frombuffer(arg.tobytes(), np.uint8)
        copies.append((arg, raw, raw.copy()))
        values.append(struct.pack("<Q", raw.ctypes.data + _MARGIN))
    values += [struct.pack("<q", value) for value in (*params, tasks)]
    launch(loaded, kernel, (blocks, 1, 1), (threads, 1, 1), shared_bytes, values)
    for arg, raw, before in copies:
        inside = slice(_MARGIN, _MARGIN + arg.nbytes)
        changed = raw != before
        if arg.flags.writeable:
            changed[inside] = False
            if arg.nbytes:
                arg[...] = raw[inside].view(arg.dtype).reshape(arg.shape)
        assert not changed.any(), "a kernel wrote outside of what it may write"


def _registers(properties: int, arguments: int, instructions: str) -> list[int]:
    """The scalar registers that a wave finds: here the address of the arguments alone.

    Source: LLVM's "User Guide for AMDGPU Backend", "Initial Kernel Execution State".
    """
    assert properties & 0b110_0110 == 0, "a kernel asks for more than its arguments"
    low, high = arguments & 0xFFFFFFFF, arguments >> 32
    private = [0] * 4 if instructions == "cdna" and properties & 1 else []
    return [*private, low, high]
