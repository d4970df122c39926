"""Instructions that tinygrad's emulator has not.

`v_mfma_f64_16x16x4_f64`: lane l gives A[l % 16, l // 16] and B[l // 16, l % 16]. Of D it has column
l % 16, and of register pair r row `4 * r + l // 16`. Source: AMD's matrix instruction calculator,
github.com/ROCm/amd_matrix_instruction_calculator.

`v_permlane16_swap_b32`, `v_permlane32_swap_b32`: odd rows of lanes of the first register change
places with even ones of the second; rows are 16 or 32 lanes. Source: the pseudocode in AMD's "CDNA
4 Instruction Set Architecture".
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

SIDE, DEPTH, PAIRS = 16, 4, 4


def add_to(emulator: ModuleType) -> None:
    """Have the module `test.mockgpu.amd.emu` compile the instructions."""
    products, handlers = emulator._compile_mfma, emulator._INST_HANDLERS

    def compile_mfma(inst: Any, ctx: Any) -> Any:
        if "MFMA_F64_16X16X4" in emulator._op_name(inst):
            return _product_of_f64(emulator, inst, ctx)
        return products(inst, ctx)

    emulator._compile_mfma = compile_mfma  # type: ignore[attr-defined]
    for kind in (emulator.irc.VOP1, emulator.irc.VOP3):
        handlers[kind] = _with_swaps(emulator, handlers[kind])


def _with_swaps(emulator: ModuleType, others: Any) -> Any:
    def compiled(inst: Any, ctx: Any) -> Any:
        match = re.match(r"V_PERMLANE(16|32)_SWAP_B32", emulator._op_name(inst))
        return _swap(emulator, inst, ctx, int(match[1])) if match else others(inst, ctx)

    return compiled


def _swap(emulator: ModuleType, inst: Any, ctx: Any, row: int) -> Any:
    u, uint, index = emulator.UOp, emulator.dtypes.uint32, emulator.dtypes.int
    first = ctx.inst_field(type(inst).vdst)
    second = ctx.inst_field(type(inst).src0) - emulator._c(256)
    pairs = 32
    room = u.placeholder((2 * pairs,), uint, slot=0, addrspace=emulator.AddrSpace.LOCAL)

    def lanes(pair: Any) -> tuple[Any, Any]:
        even = pair // u.const(row, index) * u.const(2 * row, index) + pair % u.const(row, index)
        return even + u.const(row, index), even

    pair = ctx.range(pairs)
    odd, even = lanes(pair)
    other = pair + u.const(pairs, index)
    read = [
        room.index(pair).store(ctx.rvgpr_dyn(first, odd)),
        room.index(other).store(ctx.rvgpr_dyn(second, even)),
    ]
    filled = room.after(u.group(*read).end(pair))
    mask, pair = ctx.rexec(), ctx.range(pairs)
    odd, even = lanes(pair)
    other = pair + u.const(pairs, index)
    written = [
        ctx.wvgpr_dyn(first, odd, filled.index(other), mask),
        ctx.wvgpr_dyn(second, even, filled.index(pair), mask),
    ]
    return u.sink(u.group(*written).end(pair), *ctx.inc_pc())


def _product_of_f64(emulator: ModuleType, inst: Any, ctx: Any) -> Any:
    u, dtypes, index = emulator.UOp, emulator.dtypes, emulator.dtypes.int
    a, b, c, d = (ctx.inst_field(getattr(type(inst), x)) for x in ("src0", "src1", "src2", "vdst"))
    mask = ctx.rexec()
    elements = SIDE * DEPTH
    room = u.placeholder((2 * elements,), dtypes.uint64, slot=0, addrspace=emulator.AddrSpace.LOCAL)

    def pair(read: Any, register: Any, lane: Any, *valid: Any) -> Any:
        low, high = (read(register + emulator._c(k), lane, *valid) for k in range(2))
        return emulator._u64(low, high)

    def at(lane: Any) -> tuple[Any, Any]:
        return lane % u.const(SIDE, index), lane // u.const(SIDE, index)

    lane = ctx.range()
    own, group = at(lane)
    place = own * u.const(DEPTH, index) + group
    first = [
        room.index(place + u.const(k * elements, index)).store(
            pair(ctx.rvgpr_dyn, operand - emulator._c(256), lane)
        )
        for k, operand in enumerate((a, b))
    ]
    filled = room.after(u.group(*first).end(lane))

    def element(line: Any, k: int) -> Any:
        return filled.index(line * u.const(DEPTH, index) + u.const(k, index)).bitcast(
            dtypes.float64
        )

    lane = ctx.range()
    column, group = at(lane)
    files = (
        (ctx.raccvgpr_dyn, ctx.waccvgpr_dyn)
        if emulator._iattr(inst, "acc_cd")
        else (ctx.rvgpr_dyn, ctx.wvgpr_dyn)
    )
    stores, is_register = [], c >= emulator._c(256)
    for r in range(PAIRS):
        row = group + u.const(DEPTH * r, index)
        before = pair(files[0], c - emulator._c(256 - 2 * r), lane, is_register)
        zero = u.const(0, dtypes.uint64)  # the one constant that code has there
        total = is_register.where(before, zero).bitcast(dtypes.float64)
        for k in range(DEPTH):
            total = total + element(row, k) * element(column + u.const(SIDE, index), k)
        halves = emulator._split64(total)
        for k, half in enumerate(halves):
            stores.append(files[1](d + emulator._c(2 * r + k), lane, half, mask))
    return u.sink(u.group(*stores).end(lane), *ctx.inc_pc())
