"""The interpreter of PTX: asynchronous copies and matrix instructions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.writing import ON_DEVICE, faults, run

U16, U32, F16, F32, F64 = np.uint16, np.uint32, np.float16, np.float32, np.float64
DYNAMIC = ".extern .shared .align 16 .b8 dynamic[];"

COPY = """
mov.u32 %r1, dynamic; mad.lo.u32 %r1, %r0, 16, %r1; mad.wide.u32 %d4, %r0, 16, %d0;
mad.wide.u32 %d5, %r0, 16, %d1;
cp.async.cg.shared.global [%r1], [%d4], 16, SIZE; cp.async.commit_group;
cp.async.ca.shared.global [%r1+512], [%d4], 4; cp.async.commit_group;
WAIT
ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [%r1+FROM]; st.global.v4.u32 [%d5], {%r2, %r3, %r4, %r5};
"""


def copied(wait: str, size: int = 16, place: int = 0) -> np.ndarray:
    x, y = np.arange(128, dtype=U32), np.zeros(128, U32)
    body = COPY.replace("WAIT", wait).replace("SIZE", str(size)).replace("FROM", str(place))
    run(body, x, y, outside=DYNAMIC, shared_bytes=1024)
    return y.reshape(32, 4)


def test_what_is_copied_arrives_at_the_wait():
    x = np.arange(128).reshape(32, 4)
    assert (copied("cp.async.wait_group 1;") == x).all()
    assert (copied("cp.async.wait_all;") == x).all()
    zeroed = copied("cp.async.wait_group 0;", size=6)
    assert (zeroed[:, 0] == x[:, 0]).all()
    assert (zeroed[:, 1] == x[:, 1] % 65536).all()
    assert (zeroed[:, 2:] == 0).all()
    second = copied("cp.async.wait_group 0;", place=512)
    assert (second[:, 0] == x[:, 0]).all()
    assert ON_DEVICE or (second[:, 1:] == 0xFFFFFFFF).all()  # the fill


@pytest.mark.parametrize("wait", ["", "cp.async.wait_group 2;", "bar.sync 0;"])
def test_missing_wait(wait):
    with faults("before the copy to it has been waited for"):
        copied(wait)


def test_the_last_group_is_not_there_yet():
    with faults("before the copy"):
        copied("cp.async.wait_group 1;", place=512)


def test_a_copy_that_others_read_needs_a_barrier():
    body = COPY.replace("SIZE", "16").replace("[%r1+FROM]", "[dynamic]")
    x, y = np.arange(128, dtype=U32), np.zeros(128, U32)
    options = {"outside": DYNAMIC, "shared_bytes": 1024}
    run(body.replace("WAIT", "cp.async.wait_all; bar.sync 0;"), x, y, **options)
    with faults("a data race"):
        run(body.replace("WAIT", "cp.async.wait_all;"), x, y, **options)
    # a copy over what another one still reads
    again = (
        "cp.async.wait_all; bar.sync 0; ld.shared.u32 %r9, [dynamic];"
        + """
    setp.eq.u32 %p1, %r0, 0; @%p1 cp.async.ca.shared.global [dynamic], [%d4], 4;"""
    )
    with faults("a data race"):
        run(body.replace("WAIT", again), x, y, **options)


def test_copy_faults():
    x = np.zeros(16, U32)
    for line, text in {
        "cp.async.cg.shared.global [dynamic], [%d0+4], 16;": "not aligned",
        "cp.async.ca.shared.global [dynamic+4], [%d0], 8;": "not aligned",
        "cp.async.ca.shared.global [dynamic], [%d0+64], 4;": "an array of 64",
        "cp.async.ca.shared.global [dynamic+64], [%d0], 4;": "no array is",
        "cp.async.ca.shared.global [dynamic], [%d0], 4, 5;": "more bytes",
    }.items():
        with faults(text):
            run(line, x, outside=DYNAMIC, shared_bytes=64, threads=1)
    # nothing is read where the size of the source is 0
    run("cp.async.cg.shared.global [dynamic], [%d0+6400], 16, 0;", x, outside=DYNAMIC,
        shared_bytes=64, threads=1)  # fmt: skip


FILL_SHARED = """
mov.u32 %r1, dynamic; mad.wide.u32 %d4, %r0, 16, %d0; mad.lo.u32 %r2, %r0, 16, %r1;
ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%d4]; st.shared.v4.u32 [%r2], {%r3, %r4, %r5, %r6};
bar.warp.sync -1;
"""


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix(count, is_transposed):
    matrices = np.arange(4 * 64, dtype=U16).reshape(4, 8, 8)
    names = ["%r10", "%r11", "%r12", "%r13"][:count]
    trans = ".trans" if is_transposed else ""
    registers = "{" + ", ".join(names) + "}"
    stores = "".join(f"st.global.u32 [%d5+{128 * k}], {n};" for k, n in enumerate(names))
    body = f"""{FILL_SHARED}
    ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {registers}, [%r2];
    mad.wide.u32 %d5, %r0, 4, %d1; {stores}
    stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r2+512], {registers};
    bar.warp.sync -1; ld.shared.v4.u32 {{%r3, %r4, %r5, %r6}}, [%r2+512];
    mad.wide.u32 %d6, %r0, 16, %d2; st.global.v4.u32 [%d6], {{%r3, %r4, %r5, %r6}};
    """
    got, back = np.zeros((4, 8, 8), U16), np.zeros((4, 8, 8), U16)
    run(body, matrices, got, back, outside=DYNAMIC, shared_bytes=1024)
    want = matrices.transpose(0, 2, 1) if is_transposed else matrices
    assert (got[:count] == want[:count]).all()
    assert (back[:count] == matrices[:count]).all()
    assert ON_DEVICE or (back[count:] == 0xFFFF).all()


def test_matrix_instructions_need_a_whole_warp():
    line = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [dynamic];"
    options = {"outside": DYNAMIC, "shared_bytes": 512}
    with faults("a whole warp"):
        run(line, np.zeros(1), threads=31, **options)
    with faults("never come"):
        run(f"setp.eq.u32 %p1, %r0, 3; @%p1 bra $x; {line} $x: bar.sync 0;", np.zeros(1), **options)


def test_ldmatrix_takes_part_in_races():
    line = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r7, %r8, %r9, %r10}, [%r2];"
    body = FILL_SHARED.replace("bar.warp.sync -1;", "WAIT") + line.replace("[%r2]", "[%r3]")
    body = body.replace("WAIT", "WAIT xor.b32 %r3, %r0, 32; mad.lo.u32 %r3, %r3, 16, %r1;")
    x = np.zeros(256, U32)
    options = {"outside": DYNAMIC, "shared_bytes": 1024, "threads": 64}
    run(body.replace("WAIT", "bar.sync 0;"), x, **options)
    with faults("a data race"):
        run(body.replace("WAIT", "bar.warp.sync -1;"), x, **options)


def as_bf16(x):
    return (x.astype(F32).view(U32) >> 16).astype(U16)


LANE, QUAD = np.arange(32) // 4, np.arange(32) % 4
"""groupID and threadID_in_group of the ISA's pictures."""


def fragments(kind: str, matrix: np.ndarray) -> np.ndarray:
    """Registers (lanes, registers) of 32 bits, or of f64, as the ISA's pictures have them.

    `kind`: "a" (rows, k), "b" (k, columns), "c" (rows, columns).
    """
    side = 1 if kind == "c" and matrix.itemsize > 2 else max(4 // matrix.itemsize, 1)
    rows, columns = matrix.shape
    registers = rows * columns // 32 // side
    out = np.zeros((32, registers, side), matrix.dtype)
    for r in range(registers):
        for j in range(side):
            if kind == "a":
                is_low = rows == 16 and r % 2
                row, column = LANE + 8 * is_low, QUAD * side + j + (r // (rows // 8)) * 4 * side
            elif kind == "b":
                row, column = QUAD * side + j + r * 4 * side, LANE
            else:
                upper, lower = (r // 2, r % 2) if side == 1 else (r, j)
                row, column = LANE + 8 * upper, 2 * QUAD + lower
            out[:, r, j] = matrix[row, column]
    return out.reshape(32, -1)


SHAPES = [  # m, k, type of a and b, of c and d
    (16, 16, "f16", "f32"), (16, 16, "f16", "f16"), (16, 8, "f16", "f32"),
    (16, 16, "bf16", "f32"), (16, 8, "bf16", "f32"),
    (16, 8, "tf32", "f32"), (16, 4, "tf32", "f32"),
    (8, 4, "f64", "f64"), (16, 8, "f64", "f64"), (16, 16, "f64", "f64"),
    (16, 32, "s8", "s32"), (16, 16, "u8", "s32"),
]  # fmt: skip
DTYPES = {"f16": F16, "bf16": F32, "tf32": F32, "f64": F64, "s8": np.int8, "u8": np.uint8,
          "f32": F32, "s32": np.int32}  # fmt: skip


@pytest.mark.parametrize(("m", "k", "element", "result"), SHAPES)
def test_mma(m, k, element, result):
    rng = np.random.default_rng(m * k)
    low = 0 if element == "u8" else -8
    a, b = (rng.integers(low, 9, s).astype(DTYPES[element]) for s in ((m, k), (k, 8)))
    c = rng.integers(-8, 9, (m, 8)).astype(DTYPES[result])
    want = a.astype(F64) @ b.astype(F64) + c
    parts = [("a", a), ("b", b), ("c", c)]
    if element == "bf16":
        parts[:2] = ("a", as_bf16(a)), ("b", as_bf16(b))
    size = 8 if element == "f64" else 4
    held = [np.ascontiguousarray(fragments(kind, x)) for kind, x in parts]
    counts = [x.nbytes // 32 // size for x in held]
    lines, names = [], []
    for number, count in enumerate([*counts, counts[-1]]):
        names.append([f"%{'d' if size == 8 else 'r'}{10 + 10 * number + j}" for j in range(count)])
        lines.append(f"mad.wide.u32 %d{4 + number}, %r0, {count * size}, %d{number};")
        for j, name in enumerate(names[-1]):
            lines.append(f"ld.global.b{8 * size} {name}, [%d{4 + number}+{j * size}];")
    operands = ["{" + ", ".join(names[j]) + "}" for j in (3, 0, 1, 2)]
    types = f"{result}.{element}.{element}.{result}"
    lines.append(f"mma.sync.aligned.m{m}n8k{k}.row.col.{types} {', '.join(operands)};")
    lines += [f"st.global.b{8 * size} [%d7+{j * size}], {n};" for j, n in enumerate(names[3])]
    got = np.zeros_like(held[2])
    run("\n".join(lines), *held, got)
    assert (got == fragments("c", want.astype(DTYPES[result])).reshape(got.shape)).all()


def test_tf32_reads_nineteen_bits():
    one = "mov.b32 %r1, 0x3F800FFF; mov.b32 %r2, 0x3F800000; mov.f32 %f3, 0f00000000;"
    line = "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%f4, %f5, %f6, %f7}, {%r1, %r1}, " \
           "{%r2}, {%f3, %f3, %f3, %f3};"  # fmt: skip
    out = np.zeros(1, F32)
    run(f"{one} {line} setp.eq.u32 %p1, %r0, 0; @%p1 st.global.f32 [%d0], %f4;", out)
    assert out == 4
