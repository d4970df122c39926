"""The interpreter of PTX: instructions of one thread, memory, and what faults."""

import ctypes
import math
import re

import numpy as np
import pytest

from tests.ptx import interpreter
from tests.ptx.interpreter import launch_raw, parameters_of
from tests.ptx.writing import (
    ON_DEVICE,
    faults,
    interpreter_only,
    kernel,
    launch,
    per_thread,
    run,
)

U16, U32, U64 = np.uint16, np.uint32, np.uint64
S16, S32, S64 = np.int16, np.int32, np.int64
F16, F32, F64 = np.float16, np.float32, np.float64


def array(dtype, *values):
    return np.array(values, dtype)


def bits(dtype, *values):
    return np.array(values, f"u{np.dtype(dtype).itemsize}").view(dtype)


def bf16(*values):
    """bfloat16 as bits, of numbers that it represents."""
    raw = np.array(values, F32).view(U32)
    assert not (raw & 0xFFFF).any()
    return (raw >> 16).astype(U16)


ON_BLACKWELL = {  # of sm_100 on
    "add.rn.f32x2 $d, $x, $y;": ([array(F32, 1, 2).view(U64), array(F32, 0.5, -3).view(U64)],
                                 array(F32, 1.5, -1).view(U64)),
    "sub.rn.f32x2 $d, $x, $y;": ([array(F32, 1, 2).view(U64), array(F32, 0.5, -3).view(U64)],
                                 array(F32, 0.5, 5).view(U64)),
    "mul.rn.f32x2 $d, $x, $y;": ([array(F32, 3, 2).view(U64), array(F32, 0.5, -3).view(U64)],
                                 array(F32, 1.5, -6).view(U64)),
    "fma.rn.f32x2 $d, $x, $y, $z;": (
        [array(F32, 3, 1 + 2**-23).view(U64), array(F32, 0.5, 1 - 2**-23).view(U64),
         array(F32, 1, -1).view(U64)], array(F32, 2.5, -(2.0**-46)).view(U64)),
    "add.rn.f32.bf16 $d, $x, $y;": ([bf16(1.5), array(F32, 2**-20)], array(F32, 1.5 + 2**-20)),
    "sub.rn.f32.f16 $d, $x, $y;": ([array(F16, 1.5), array(F32, 2**-20)],
                                   array(F32, 1.5 - 2**-20)),
    "fma.rn.f32.bf16 $d, $x, $y, $z;": ([bf16(1.5), bf16(-2), array(F32, 2**-20)],
                                        array(F32, -3 + 2**-20)),
    "fma.rn.f32.f16 $d, $x, $y, $z;": ([array(F16, 1.5), array(F16, -2), array(F32, 0.25)],
                                       array(F32, -2.75)),
}  # fmt: skip
BIG = 0x8000_0000_0000_0001
ROWS = {  # instruction: operands, result
    "add.s32 $d, $x, $y;": ([array(S32, 1, 2**31 - 1), array(S32, -5, 1)],
                            array(S32, -4, -(2**31))),
    "sub.u64 $d, $x, $y;": ([array(U64, 5, 0), array(U64, 7, 1)], array(U64, 2**64 - 2, 2**64 - 1)),
    "add.sat.s32 $d, $x, $y;": ([array(S32, 2**31 - 1), array(S32, 1)], array(S32, 2**31 - 1)),
    "mul.lo.s16 $d, $x, $y;": ([array(S16, 300), array(S16, 300)], array(S16, 90000 - 65536)),
    "mul.hi.s32 $d, $x, $y;": ([array(S32, -(2**31)), array(S32, 4)], array(S32, -2)),
    "mul.hi.u64 $d, $x, $y;": ([array(U64, BIG), array(U64, BIG)], array(U64, BIG * BIG >> 64)),
    "mul.hi.s64 $d, $x, $y;": ([array(S64, -3), array(S64, 2**62)], array(S64, -1)),
    "mul.wide.s32 $d, $x, $y;": ([array(S32, -(2**31)), array(S32, 3)], array(S64, -3 * 2**31)),
    "mul.wide.u16 $d, $x, $y;": ([array(U16, 65535), array(U16, 2)], array(U32, 131070)),
    "mad.lo.s32 $d, $x, $y, $z;": ([array(S32, 7), array(S32, -2), array(S32, 3)], array(S32, -11)),
    "mad.wide.u32 $d, $x, $y, $z;": (
        [array(U32, 2**32 - 1), array(U32, 2), array(U64, 5)], array(U64, 2**33 + 3)),
    "div.s32 $d, $x, $y;": ([array(S32, -7, 7, -(2**31)), array(S32, 2, -2, -1)],
                            array(S32, -3, -3, -(2**31))),
    "rem.s32 $d, $x, $y;": ([array(S32, -7, 7, -(2**31)), array(S32, 2, -2, -1)],
                            array(S32, -1, 1, 0)),
    "min.u32 $d, $x, $y;": ([array(U32, 1, 2**31), array(U32, 2, 3)], array(U32, 1, 3)),
    "abs.s32 $d, $x;": ([array(S32, -5, -(2**31))], array(S32, 5, -(2**31))),
    "neg.s16 $d, $x;": ([array(S16, 5, -(2**15))], array(S16, -5, -(2**15))),
    "sad.s32 $d, $x, $y, $z;": ([array(S32, -3), array(S32, 4), array(S32, 10)], array(S32, 17)),
    "shl.b32 $d, $x, $y;": ([array(U32, 1, 1, 1), array(U32, 31, 32, 200)],
                            array(U32, 2**31, 0, 0)),
    "shr.s32 $d, $x, $y;": ([array(S32, -8, -8, 8), array(U32, 1, 99, 99)], array(S32, -4, -1, 0)),
    "shr.u64 $d, $x, $y;": ([array(U64, 2**63, 2**63), array(U32, 63, 64)], array(U64, 1, 0)),
    "shf.l.wrap.b32 $d, $x, $y, $z;": (
        [array(U32, 0x89ABCDEF), array(U32, 0x01234567), array(U32, 36)], array(U32, 0x12345678)),
    "shf.r.clamp.b32 $d, $x, $y, $z;": (
        [array(U32, 0x89ABCDEF), array(U32, 0x01234567), array(U32, 99)], array(U32, 0x01234567)),
    "sad.u64 $d, $x, $y, $z;": (
        [array(U64, 3, BIG), array(U64, BIG, 3), array(U64, 10, 5)], array(U64, BIG + 7, BIG + 2)),
    "sad.s16 $d, $x, $y, $z;": (
        [array(S16, -300), array(S16, 300), array(S16, 1)], array(S16, 601)),
    "bfind.shiftamt.u32 $d, $x;": ([array(U32, 1, 2**31, 0)], array(U32, 31, 0, 2**32 - 1)),
    "bfind.shiftamt.s64 $d, $x;": ([array(S64, -1, -256, 1)], array(U32, 2**32 - 1, 56, 63)),
    "dp4a.u32.s32 $d, $x, $y, $z;": (
        [array(U32, 0xFF0001FF), array(U32, 0x020005FF), array(S32, 7)],
        array(S32, 255 * 2 + 5 - 255 + 7)),
    "dp4a.s32.u32 $d, $x, $y, $z;": (
        [array(U32, 0xFF0001FF), array(U32, 0x020005FF), array(S32, 7)],
        array(S32, -2 + 5 - 255 + 7)),
    "bfe.u32 $d, $x, 8, 12;": ([array(U32, 0xABCDEF12)], array(U32, 0xDEF)),
    "bfe.s32 $d, $x, 8, 12;": ([array(U32, 0xABCDEF12)], array(U32, 0xFFFFFDEF)),
    "bfe.s32 $d, $x, 28, 12;": ([array(U32, 0xABCDEF12)], array(U32, 0xFFFFFFFA)),
    "bfi.b32 $d, $x, $y, 4, 8;": ([array(U32, 0xFFF), array(U32, 0)], array(U32, 0xFF0)),
    "bfi.b64 $d, $x, $y, 60, 9;": ([array(U64, 0xFF), array(U64, 1)], array(U64, 0xF << 60 | 1)),
    "brev.b32 $d, $x;": ([array(U32, 1, 0xF0)], array(U32, 2**31, 0x0F000000)),
    "mov.pred %p1, -1; not.pred %p1, %p1; selp.b32 $d, $x, 7, %p1;": (
        [array(U32, 5)], array(U32, 7)),
    "popc.b64 $d, $x;": ([array(U64, 2**64 - 1, 5)], array(U32, 64, 2)),
    "clz.b32 $d, $x;": ([array(U32, 0, 1, 2**31)], array(U32, 32, 31, 0)),
    "clz.b64 $d, $x;": ([array(U64, 0, 2**40)], array(U32, 64, 23)),
    "bfind.s32 $d, $x;": ([array(S32, -1, 8, -9)], array(U32, 2**32 - 1, 3, 3)),
    "prmt.b32 $d, $x, $y, 0x5410;": ([array(U32, 0x33221100), array(U32, 0x77665544)],
                                     array(U32, 0x55441100)),
    "prmt.b32 $d, $x, $y, 0xb80c;": ([array(U32, 0x80000000), array(U32, 0x000000F0)],
                                     array(U32, 0xFF0000FF)),
    "lop3.b32 $d, $x, $y, $z, 0xe8;": (
        [array(U32, 0b1100), array(U32, 0b1010), array(U32, 0b0110)], array(U32, 0b1110)),
    "lop3.b32 $d, $x, $y, $z, 0x96;": (
        [array(U32, 0b1100), array(U32, 0b1010), array(U32, 0b0110)], array(U32, 0)),
    "slct.b32.s32 $d, $x, $y, $z;": (
        [array(U32, 1, 1), array(U32, 2, 2), array(S32, 0, -1)], array(U32, 1, 2)),
    "dp4a.s32.s32 $d, $x, $y, $z;": (
        [array(U32, 0xFF020304), array(U32, 0x02010101), array(S32, 10)], array(S32, 17)),
    "add.rn.f32 $d, $x, $y;": ([array(F32, 1, np.inf, 1), array(F32, 2**-24, -np.inf, 2**-23)],
                               bits(F32, 0x3F800000, 0x7FFFFFFF, 0x3F800001)),
    "add.rn.ftz.f32 $d, $x, $y;": ([bits(F32, 1, 0x800000), bits(F32, 1, 0x80000001)],
                                   bits(F32, 0, 0x800000)),
    "fma.rn.f32 $d, $x, $y, $z;": (
        [array(F32, 1 + 2**-12), array(F32, 1 + 2**-12), array(F32, -1)],
        array(F32, 2**-11 + 2**-24)),
    "fma.rn.f64 $d, $x, $y, $z;": (
        [array(F64, 1 + 2**-30), array(F64, 1 + 2**-30), array(F64, -1)],
        array(F64, 2**-29 + 2**-60)),
    "min.f32 $d, $x, $y;": ([array(F32, np.nan, 0.0, 2), array(F32, 3, -0.0, 1)],
                            array(F32, 3, -0.0, 1)),
    "max.NaN.f32 $d, $x, $y;": ([array(F32, np.nan, -0.0), array(F32, 3, 0.0)],
                                bits(F32, 0x7FFFFFFF, 0)),
    "copysign.f64 $d, $x, $y;": ([array(F64, -0.0), array(F64, 3)], array(F64, -3)),
    "rcp.rn.f32 $d, $x;": ([array(F32, 3, 0)], array(F32, np.float32(1) / 3, np.inf)),
    "sqrt.rn.f64 $d, $x;": ([array(F64, 2)], array(F64, math.sqrt(2))),
    "div.rn.f32 $d, $x, $y;": ([array(F32, 1), array(F32, 3)], array(F32, np.float32(1) / 3)),
    "div.full.f32 $d, $x, $y;": ([array(F32, 6), array(F32, 3)], array(F32, 2)),
    "ex2.approx.ftz.f32 $d, $x;": ([array(F32, 3, -140)], array(F32, 8, 0)),
    "ex2.approx.f32 $d, $x;": ([array(F32, 0.5, -140)], array(F32, 2**0.5, 2.0**-140)),
    "lg2.approx.f32 $d, $x;": ([array(F32, 8, 0)], array(F32, 3, -np.inf)),
    "rsqrt.approx.f32 $d, $x;": ([array(F32, 4)], array(F32, 0.5)),
    "tanh.approx.f32 $d, $x;": ([array(F32, 1)], array(F32, math.tanh(1))),
    "add.rn.f16 $d, $x, $y;": ([array(F16, 2048, 60000), array(F16, 1, 60000)],
                               array(F16, 2048, np.inf)),
    "fma.rn.f16 $d, $x, $y, $z;": (
        [array(F16, 2**-12, 2**-11), array(F16, 2**-12, 1 + 2**-10), array(F16, 1, 1)],
        array(F16, 1, 1 + 2**-10)),
    # the last product is half way between 384 / 64 and 386 / 64; f64 would drop what is added
    "fma.rn.bf16 $d, $x, $y, $z;": (
        [bf16(2**-100, 2**-8, 5), bf16(2**-20, 1 + 2**-7, 77 / 64), bf16(1, 1, 2**-100)],
        bf16(1, 1 + 2**-7, 386 / 64)),
    "mul.rn.bf16 $d, $x, $y;": ([bf16(3, 1 + 2**-7), bf16(0.5, 1 + 2**-7)], bf16(1.5, 1 + 2**-6)),
    # products below the smallest denormal: 1.5 * 2^-134 is rounded once, the others vanish
    "mul.rn.bf16 $d, $x, $y; // tiny": (
        [bf16(1.5 * 2**-70, 2**-100, -(2**-100)), bf16(2**-64, 2**-100, 2**-100)],
        bf16(2**-133, 0.0, -0.0)),
    "fma.rn.bf16 $d, $x, $y, $z; // tiny": (
        [bf16(2**-100, 2**-80), bf16(2**-100, -(2**-80)), bf16(-0.0, -0.0)], bf16(0.0, -0.0)),
    "add.rn.f16x2 $d, $x, $y;": ([array(F16, 1, 2).view(U32), array(F16, 5, 6).view(U32)],
                                 array(F16, 6, 8).view(U32)),
    "max.bf16x2 $d, $x, $y;": ([bf16(1, -2).view(U32), bf16(-1, 5).view(U32)],
                               bf16(1, 5).view(U32)),
    "add.s16x2 $d, $x, $y;": ([array(S16, 32767, -5).view(U32), array(S16, 1, -7).view(U32)],
                              array(S16, -32768, -12).view(U32)),
    "add.u16x2 $d, $x, $y;": ([array(U16, 65535, 5).view(U32), array(U16, 2, 7).view(U32)],
                              array(U16, 1, 12).view(U32)),
    "max.s16x2 $d, $x, $y;": ([array(S16, -300, 5).view(U32), array(S16, 4, -6).view(U32)],
                              array(S16, 4, 5).view(U32)),
    "min.s16x2 $d, $x, $y;": ([array(S16, -300, 5).view(U32), array(S16, 4, -6).view(U32)],
                              array(S16, -300, -6).view(U32)),
    "max.u16x2 $d, $x, $y;": ([array(U16, 65000, 5).view(U32), array(U16, 4, 6).view(U32)],
                              array(U16, 65000, 6).view(U32)),
    "min.u16x2 $d, $x, $y;": ([array(U16, 65000, 5).view(U32), array(U16, 4, 6).view(U32)],
                              array(U16, 4, 5).view(U32)),
    "max.relu.s16x2 $d, $x, $y;": ([array(S16, -3, 5).view(U32), array(S16, -4, -6).view(U32)],
                                   array(S16, 0, 5).view(U32)),
    "min.relu.s16x2 $d, $x, $y;": ([array(S16, 3, 5).view(U32), array(S16, 4, -6).view(U32)],
                                   array(S16, 3, 0).view(U32)),
    "max.relu.s32 $d, $x, $y;": ([array(S32, -3, 5), array(S32, -4, -6)], array(S32, 0, 5)),
    "min.relu.s32 $d, $x, $y;": ([array(S32, 3, 5), array(S32, 4, -6)], array(S32, 3, 0)),
    "neg.f16x2 $d, $x;": ([array(F16, 1, -2).view(U32)], array(F16, -1, 2).view(U32)),
    "cvt.s64.s32 $d, $x;": ([array(S32, -5)], array(S64, -5)),
    "cvt.u64.u32 $d, $x;": ([array(S32, -5)], array(U64, 2**32 - 5)),
    "cvt.s32.s8 $d, $x;": ([array(U32, 0xABCDEF80)], array(S32, -128)),
    "cvt.u16.u32 $d, $x;": ([array(U32, 0xABCDEF80)], array(U16, 0xEF80)),
    "cvt.sat.s8.s32 $d, $x;": ([array(S32, 300, -300)], array(S32, 127, -128)),
    "cvt.rn.f32.s32 $d, $x;": ([array(S32, 2**24 + 1, -3)], array(F32, 2**24, -3)),
    "cvt.rn.f32.u64 $d, $x;": ([array(U64, 2**63 + 2**39 + 1)], array(F32, 2.0**63 + 2.0**40)),
    "cvt.rn.f16.s64 $d, $x;": ([array(S64, 2049, 2**60)], array(F16, 2048, np.inf)),
    "cvt.rzi.s32.f32 $d, $x;": ([array(F32, -2.7, 3e9, np.nan, -3e9)],
                                array(S32, -2, 2**31 - 1, 0, -(2**31))),
    "cvt.rni.u32.f32 $d, $x;": ([array(F32, 2.5, 3.5, -1)], array(U32, 2, 4, 0)),
    "cvt.rzi.u64.f64 $d, $x;": ([array(F64, 1e30, np.nan)], array(U64, 2**64 - 1, 2**63)),
    "cvt.rmi.f32.f32 $d, $x;": ([array(F32, -2.5, 2.5)], array(F32, -3, 2)),
    "cvt.rn.f16.f32 $d, $x;": ([array(F32, 65519, 65520, 1e-8)], array(F16, 65504, np.inf, 0)),
    "cvt.rz.f16.f32 $d, $x;": ([array(F32, 65535, 1 + 2**-10 - 2**-20)], array(F16, 65504, 1)),
    "cvt.rn.bf16.f32 $d, $x;": ([array(F32, 1 + 2**-8, 1 + 3 * 2**-8)], bf16(1, 1 + 2**-6)),
    "cvt.rz.bf16.f32 $d, $x;": ([array(F32, 1 + 3 * 2**-8)], bf16(1 + 2**-7)),
    "cvt.rna.tf32.f32 $d, $x;": ([array(F32, 1 + 2**-11, -1 - 2**-11, 1 + 2**-12)],
                                 array(F32, 1 + 2**-10, -1 - 2**-10, 1)),
    "cvt.rn.f32.f64 $d, $x;": ([array(F64, 0.1, 1e300)], array(F32, 0.1, np.inf)),
    "cvt.f32.bf16 $d, $x;": ([bf16(1.5)], array(F32, 1.5)),
    "cvt.sat.f32.f32 $d, $x;": ([array(F32, -1, 2, 0.5, np.nan)], array(F32, 0, 1, 0.5, 0)),
    "cvt.rn.relu.f16.f32 $d, $x;": ([array(F32, -1, 2)], array(F16, 0, 2)),
    "cvt.rn.f16x2.f32 $d, $x, $y;": ([array(F32, 1), array(F32, 2)], array(F16, 2, 1).view(U32)),
    "cvt.rn.bf16x2.f32 $d, $x, $y;": ([array(F32, 1), array(F32, 2)], bf16(2, 1).view(U32)),
    "mov.b32 {%h1, %h2}, $x; mov.b32 $d, {%h2, %h1};": ([array(U32, 0x12345678)],
                                                        array(U32, 0x56781234)),
    "mov.b64 {%r50, _}, $x; mov.b64 $d, {%r50, %r50};": ([array(U64, 0x1_0000_0007)],
                                                         array(U64, 0x7_0000_0007)),
    "add.cc.u32 %r50, $x, $y; addc.u32 $d, 0, 0;": ([array(U32, 2**32 - 1, 5), array(U32, 1, 1)],
                                                    array(U32, 1, 0)),
    "sub.cc.u64 %d50, $x, $y; subc.u64 $d, 5, 0;": ([array(U64, 0, 5), array(U64, 1, 1)],
                                                    array(U64, 4, 5)),
    "mad.lo.cc.u32 %r50, $x, $y, $z; madc.hi.u32 $d, $x, $y, 0;": (
        [array(U32, 2**31), array(U32, 2), array(U32, 0)], array(U32, 1)),
    "setp.lt.s32 %p1, $x, $y; selp.b32 $d, 1, 0, %p1;": ([array(S32, -1, 1), array(S32, 0, 0)],
                                                         array(U32, 1, 0)),
    "setp.ltu.f32 %p1, $x, $y; selp.b32 $d, 1, 0, %p1;": ([array(F32, np.nan, 1), array(F32, 0, 0)],
                                                          array(U32, 1, 0)),
    "setp.ne.f32 %p1, $x, $y; selp.b32 $d, 1, 0, %p1;": ([array(F32, np.nan, 1), array(F32, 0, 0)],
                                                         array(U32, 0, 1)),
    "setp.hi.u32 %p1|%p2, $x, $y; selp.b32 $d, 1, 0, %p2;": ([array(U32, 2, 1), array(U32, 1, 1)],
                                                             array(U32, 0, 1)),
    "setp.gt.f16x2 %p1|%p2, $x, $y; selp.b32 %r50, 1, 0, %p1; selp.b32 %r51, 2, 0, %p2;"
    "or.b32 $d, %r50, %r51;": ([array(F16, 1, 2, 2, 1).view(U32), array(F16, 2, 1, 1, 1).view(U32)],
                               array(U32, 2, 1)),
    "setp.eq.u32 %p3, 0, 1; setp.eq.or.s32 %p1, $x, $y, %p3; selp.b32 $d, 1, 0, %p1;": (
        [array(S32, 1, 2), array(S32, 1, 1)], array(U32, 1, 0)),
    "testp.subnormal.f32 %p1, $x; selp.b32 $d, 1, 0, %p1;": ([bits(F32, 1, 0x3F800000)],
                                                             array(U32, 1, 0)),
    "mov.u32 $d, 7; setp.eq.s32 %p1, $x, 1; @!%p1 mov.u32 $d, 8;": ([array(S32, 1, 2)],
                                                                    array(U32, 7, 8)),
    "{ .reg .b32 %r50; mov.u32 %r50, 3; { .reg .b32 %r50; mov.u32 %r50, 4; } mov.u32 $d, %r50; }": (
        [array(S32, 0)], array(U32, 3)),
}  # fmt: skip


@interpreter_only
@pytest.mark.parametrize("instruction", ON_BLACKWELL)
def test_instruction_of_blackwell(instruction):
    operands, want = ON_BLACKWELL[instruction]
    got = per_thread(instruction, operands, want.dtype)
    assert got.tobytes() == want.tobytes(), (got, want)


@pytest.mark.parametrize("instruction", ROWS)
def test_instruction(instruction):
    operands, want = ROWS[instruction]
    got = per_thread(instruction, operands, want.dtype)
    if ON_DEVICE and re.search(r"\.(approx|full)\.", instruction):
        assert np.allclose(got, want, rtol=2**-10, atol=0)
        return
    assert got.tobytes() == want.tobytes(), (got, want)


@interpreter_only
def test_what_is_not_known_is_said():
    for line, text in {
        "add.f32 %f1, %f2, %f3;": "rounded as the assembler likes",
        "cvt.f16.f32 %h1, %f1;": "a rounding",
        "add.rz.f32 %f1, %f2, %f3;": "add.rz.f32",
        "sub.s16x2 %r1, %r2, %r3;": "sub.s16x2",
        "frobnicate.b32 %r1, %r2;": "frobnicate",
        "red.global.v2.f32.add [%d0], {%f1, %f2};": r"\.v2",
        "ld.global.L2::cache_hint.u32 %r1, [%d0], %d1;": "cache_hint",
        "ld.global.b128 %d1, [%d0];": "b128",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f1, %f1, %f1}, {%r1, %r1}, "
        "{%r1, %r1}, {%f1, %f1, %f1, %f1}, %r1, 0;": "sp",
        "cp.async.ca.shared.global [%r1], [%d0], 4, %p1;": "cp.async",
    }.items():
        with pytest.raises(NotImplementedError, match=text):
            run(line, np.zeros(1))
    with pytest.raises(ValueError, match="parameters"):
        interpreter.launch(kernel(""), 1, 32, [], [], 0)


# -------------------------------------------------------------------- memory

VECTORS = """
mad.wide.u32 %d4, %r0, 16, %d0; mad.wide.u32 %d5, %r0, 16, %d1;
ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%d4];
st.global.v2.b32 [%d5+8], {%f1, %f2}; st.global.cs.v2.f32 [%d5], {%f3, %f4};
"""


def test_vectors():
    x = np.arange(128, dtype=F32)
    y = np.zeros_like(x)
    run(VECTORS, x, y)
    assert (y.reshape(-1, 2, 2) == x.reshape(-1, 2, 2)[:, ::-1]).all()


def test_parameters_by_value():
    text = kernel("ld.param.v2.u16 {%h1, %h2}, [s+4]; ld.param.u8 %r2, [s];"
                  "mov.b32 %r1, {%h1, %h2}; st.global.v2.b32 [%d0], {%r1, %r2};")  # fmt: skip
    text = text.replace("a0, ", "a0, .param .align 8 .b8 s[8], ")
    out = np.zeros(2, U32)
    assert parameters_of(text, "KERNEL") == [(0, 8), (8, 8), (16, 8)]
    launch(text, 1, 1, [out, bytes(range(1, 9))], [], 0)
    assert out.tolist() == [0x08070605, 1]


def test_generic_addresses():
    """One address each of global, shared, local, constant and parameter memory."""
    outside = """.shared .align 4 .b8 cell[4]; .const .align 4 .b32 table[2] = {7, 0x0000000b};"""
    body = """
    .local .align 4 .b8 own[8];
    cvta.to.global.u64 %d10, %d0; cvta.global.u64 %d10, %d10;
    mov.u64 %d11, cell; cvta.shared.u64 %d11, %d11;
    mov.u64 %d12, own; cvta.local.u64 %d12, %d12;
    mov.u64 %d13, table; cvta.const.u64 %d13, %d13;
    mov.u64 %d14, tasks; cvta.param.u64 %d14, %d14;
    st.u32 [%d11], 5; st.u32 [%d12+4], %r0; ld.shared.u32 %r1, [cell];
    ld.u32 %r2, [%d12+4]; ld.u32 %r3, [%d13+4]; ld.u64 %d15, [%d14];
    isspacep.shared %p1, %d11; isspacep.global %p2, %d10; selp.u32 %r4, 1, 0, %p1;
    selp.u32 %r5, 1, 0, %p2;
    st.v4.u32 [%d10], {%r1, %r2, %r3, %r4}; st.u64 [%d10+16], %d15; st.u32 [%d10+24], %r5;
    """
    out = np.zeros(8, U32)
    launch(kernel(body, 1, outside), 1, 1, [out], [], 9)
    assert out.tolist() == [5, 0, 11, 1, 9, 0, 1, 0]


@interpreter_only
def test_unwritten_memory_has_the_fill():
    outside = ".extern .shared .align 16 .b8 dynamic[];"
    body = ".local .align 4 .b8 own[4]; ld.local.u32 %r1, [own]; ld.shared.u32 %r2, [dynamic+12];"
    out = np.zeros(2, U32)
    run(body + "st.global.v2.u32 [%d0], {%r1, %r2};", out, threads=1, outside=outside,
        shared_bytes=16, fill=0xCD)  # fmt: skip
    assert out.tolist() == [0xCDCDCDCD] * 2


def test_local_memory_is_a_threads_own():
    body = """.local .align 4 .b8 own[4]; st.local.u32 [own], %r0; bar.sync 0;
    ld.local.u32 %r1, [own]; mad.wide.u32 %d4, %r0, 4, %d0; st.global.u32 [%d4], %r1;"""
    out = np.zeros(96, U32)
    run(body, out, threads=96)
    assert (out == np.arange(96)).all()


SHARED = ".shared .align 4 .b8 first[64]; .shared .align 4 .b8 second[64];"
DYNAMIC = ".extern .shared .align 16 .b8 dynamic[];"
FAULTS = {
    "ld.global.u32 %r1, [%d0+64];": "64 bytes into an array of 64",
    "ld.global.u64 %d1, [%d0+60];": "not aligned",
    "ld.global.v2.u32 {%r1, %r2}, [%d0+4];": "not aligned",
    "ld.global.u32 %r1, [%d0+-4];": "nothing is|an array of",
    "mov.u64 %d4, 8; st.global.u32 [%d4], %r1;": "nothing is",
    "st.global.u8 [%d1], %r1;": "only be read",
    "st.shared.u32 [first+64], %r1;": "no array is",
    "ld.shared.u32 %r1, [second+-4];": "no array is",
    "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [dynamic+16];": "no array is",
    "mov.u64 %d4, first; cvta.shared.u64 %d4, %d4; ld.shared.u32 %r1, [%d4];": "no array is",
    "ld.param.u64 %d4, [tasks+8];": "parameters",
    "st.param.u64 [tasks], %d4;": "a write to a parameter",
    "div.u32 %r1, 5, 0;": "divides",
    "trap;": "trap",
    "$here: bra $here;": "the block does not end",
}


@pytest.mark.parametrize("line", FAULTS)
def test_fault(line, monkeypatch):
    monkeypatch.setattr("tests.ptx.interpreter.LIMIT", 10_000)
    constant = np.zeros(16, U32)
    constant.flags.writeable = False
    arrays = (np.zeros(16, U32), constant)
    with faults(FAULTS[line]) as fault:
        run(line, *arrays, threads=1, outside=SHARED + DYNAMIC, shared_bytes=16)
    assert str(fault.value).endswith(line.split("; ")[-1].removeprefix("$here: ")[:-1])


def test_addresses_are_no_better_aligned_than_the_arrays():
    memory = np.zeros(64, np.uint8)
    start = -memory.ctypes.data % 16
    for offset, is_fine in ((0, True), (4, False), (8, False)):
        array = memory[start + offset :][:16].view(F32)
        body = "st.global.v4.f32 [%d0], {%f1, %f1, %f1, %f1};"
        if is_fine:
            run(body, array)
        else:
            with faults("aligned"):
                run(body, array)
    body = "mov.u64 %d4, cell; st.shared.v2.u32 [%d4], {%r1, %r2};"
    with faults("aligned"):
        run(body, np.zeros(1), threads=1, outside=".shared .align 4 .b8 cell[16];")


@interpreter_only
def test_raw_memory():
    memory = (ctypes.c_uint32 * 8)(*range(8))
    at = ctypes.addressof(memory)
    text = kernel("""mov.u32 %r3, %ctaid.y; mov.u32 %r4, %tid.y;
    ld.global.u32 %r1, [%d0+4]; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4;
    mad.lo.u32 %r2, %r3, 2, %r4; mad.wide.u32 %d4, %r2, 4, %d0; st.global.u32 [%d4+16], %r1;""")
    packed = at.to_bytes(8, "little") + bytes(8)
    launch_raw(text, "KERNEL", (1, 2), (1, 2), 0, packed, [(at, 32)])
    assert list(memory) == [0, 1, 2, 3, 1, 2, 2, 3]
    with faults("an array of 28"):
        launch_raw(text, "KERNEL", (1, 2), (1, 2), 0, packed, [(at, 28)])


def test_atomics():
    body = """
    red.global.add.u32 [%d0], 2; atom.global.max.s32 %r1, [%d0+4], %r0;
    atom.global.add.f32 %f1, [%d0+8], 0f3F800000; atom.global.inc.u32 %r2, [%d0+12], 9;
    atom.global.or.b32 %r3, [%d0+16], %r0; and.b32 %r4, %r0, 1; add.u32 %r5, %r4, 1;
    atom.global.cas.b32 %r6, [%d0+20], %r4, %r5; mov.b32 %r7, 0x3C003C00;
    atom.global.add.noftz.f16x2 %r8, [%d0+24], %r7; atom.global.exch.b32 %r9, [%d0+28], %r0;
    """
    out = np.zeros(8, U32)
    out[1] = 0x80000000
    run(body, out, threads=64)
    assert out[[0, 3, 4, 6, 7]].tolist() == [128, 64 % 10, 63, 0x54005400, out[7]]
    assert out[1] == 63
    assert out.view(F32)[2] == 64
    assert out[5] in (1, 2)
    assert out[7] < 64
