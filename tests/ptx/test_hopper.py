"""The interpreter of PTX: phases (mbarrier), bulk copies with tensor maps, wgmma."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.tensor_map import TensorMap, address_of, encode_tensor_map
from tests.ptx.writing import faults, kernel, launch, run

U16, U32, F16, F32 = np.uint16, np.uint32, np.float16, np.float32
SHARED = ".extern .shared .align 1024 .b8 dynamic[]; .shared .align 8 .b8 bar[16];"
INIT = """
setp.eq.u32 %p1, %r0, 0; mov.u32 %r1, dynamic;
@%p1 mbarrier.init.shared::cta.b64 [bar], COUNT; fence.mbarrier_init.release.cluster; bar.sync 0;
"""
WAIT = """
{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [bar], PARITY;
@!done bra again; }
"""


def test_a_phase_orders_what_was_written_before():
    """Warps 1 and 2 write, arrive; warp 0 waits for two phases, then reads."""
    body = INIT.replace("COUNT", "64") + """
    setp.lt.u32 %p2, %r0, 32; @%p2 bra $reader;
    mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0; ARRIVE
    mbarrier.arrive.shared::cta.b64 %d5, [bar]; bra $end;
    $reader: """ + WAIT.replace("PARITY", "0") + """
    mad.lo.u32 %r2, %r0, 4, %r1; ld.shared.u32 %r3, [%r2+128]; ld.shared.u32 %r4, [%r2+256];
    add.u32 %r3, %r3, %r4; mad.wide.u32 %d4, %r0, 4, %d0; st.global.u32 [%d4], %r3;
    $end: """  # fmt: skip
    out = np.zeros(32, U32)
    options = {"threads": 96, "outside": SHARED, "shared_bytes": 384}
    for seed in range(4):
        run(body.replace("ARRIVE", ""), out, seed=seed, **options)
        assert (out == 2 * np.arange(32) + 96).all()
    late = body.replace("$reader:", "bra $end; $reader:").replace(
        "mbarrier.arrive.shared::cta.b64 %d5, [bar]; bra", "bra"
    )
    with faults("never come"):
        run(late.replace("ARRIVE", ""), out, **options)
    # arriving before the write orders nothing
    early = body.replace("st.shared.u32 [%r2], %r0; ARRIVE", "").replace(
        "bra $end;\n    $reader", "st.shared.u32 [%r2], %r0; bra $end;\n    $reader"
    )
    with faults("a data race"):
        run(early, out, **options)


def test_phases_alternate():
    body = INIT.replace("COUNT", "32") + """
    mov.u32 %r2, 0;
    $loop: mbarrier.arrive.shared::cta.b64 %d5, [bar]; and.b32 %r3, %r2, 1;
    mbarrier.test_wait.shared::cta.b64 %p3, [bar], %d5;
    """ + WAIT.replace("PARITY", "%r3") + """
    add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 5; @%p2 bra $loop;
    mbarrier.inval.shared::cta.b64 [bar+8];
    """  # fmt: skip
    with faults("nothing has initialised"):
        run(body, np.zeros(1), outside=SHARED)
    run(body.replace("mbarrier.inval.shared::cta.b64 [bar+8];", ""), np.zeros(1), outside=SHARED)


def test_copies_arrive_at_an_mbarrier():
    """Warp 0 copies; its copies' ends are its arrivals. Warp 1 waits and reads."""
    body = INIT.replace("COUNT", "32") + """
    setp.lt.u32 %p2, %r0, 32; @!%p2 bra $reader;
    mad.lo.u32 %r2, %r0, 4, %r1; mad.wide.u32 %d4, %r0, 4, %d0;
    cp.async.ca.shared.global [%r2], [%d4], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
    bra $end;
    $reader: """ + WAIT.replace("PARITY", "0") + """
    mad.lo.u32 %r2, %r0, 4, %r1; ld.shared.u32 %r3, [%r2+-128]; mad.wide.u32 %d4, %r0, 4, %d1;
    st.global.u32 [%d4+-128], %r3;
    $end: """  # fmt: skip
    x, y = np.arange(32, dtype=U32), np.zeros(32, U32)
    options = {"threads": 64, "outside": SHARED, "shared_bytes": 128}
    run(body, x, y, **options)
    assert (x == y).all()
    with faults("never come"):  # without .noinc the arrivals are beyond the 32 that are expected
        run(body.replace(".noinc", ""), x, y, **options)
    with faults("waited for|a data race"):
        run(body.replace(WAIT.replace("PARITY", "0"), ""), x, y, **options)


PHASE_FAULTS = {
    "mbarrier.arrive.shared::cta.b64 %d5, [bar], 2;": "than it expects",
    "mbarrier.init.shared::cta.b64 [bar], 1;": "initialised twice",
    "mbarrier.init.shared::cta.b64 [bar+8], 0;": "an mbarrier of 0",
    "mbarrier.arrive.shared::cta.b64 %d5, [bar+4];": "not aligned",
}


@pytest.mark.parametrize("line", PHASE_FAULTS)
def test_phase_fault(line):
    with faults(PHASE_FAULTS[line]):
        run(INIT.replace("COUNT", "1") + line, np.zeros(1), threads=1, outside=SHARED)


def test_an_mbarrier_needs_a_barrier_behind_its_init():
    body = INIT.replace("COUNT", "64").replace("bar.sync 0;", "bar.warp.sync -1;")
    with faults(r"a data race|nothing has initialised"):
        run(body + "mbarrier.arrive.shared::cta.b64 %d5, [bar];", np.zeros(1), threads=64,
            outside=SHARED)  # fmt: skip


# -------------------------------------------------------------------- bulk copies

LOAD = INIT.replace("COUNT", "1") + """
mov.u64 %d5, map; cvta.param.u64 %d5, %d5; ld.global.v2.u32 {%r4, %r5}, [%d1];
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %d6, [bar], BYTES;
@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
  [%r1], [%d5, {%r4, %r5}], [bar];
""" + WAIT.replace("PARITY", "0")  # fmt: skip
STORE_OUT = """
mad.lo.u32 %r2, %r0, 16, %r1; ld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r2];
mad.wide.u32 %d4, %r0, 16, %d2; st.global.v4.u32 [%d4], {%r6, %r7, %r8, %r9};
"""


def with_map(body: str, arguments: int) -> str:
    text = kernel(body, arguments, SHARED)
    return text.replace(", .param .u64 tasks", ", .param .align 64 .b8 map[128], .param .u64 tasks")


def loaded(x, box, at, swizzle, body=LOAD + STORE_OUT):
    """What a tile's bytes are in shared memory, with 0xFF where nothing was written."""
    size = box[0] * box[1] * x.itemsize
    out = np.zeros((-(-size // 16), 16), np.uint8)
    where = np.array(at, np.int32)
    map_ = TensorMap(0, x.itemsize, x.shape[::-1], [x.strides[0]], box, swizzle)
    body = body.replace("BYTES", str(size))
    launch(with_map(body, 3), 1, len(out), [x, where, out, map_], [], 0, shared_bytes=size)
    return out.reshape(-1)[:size]


@pytest.mark.parametrize("at", [(0, 0), (8, 3), (24, 6), (-8, -2), (64, 0)])
def test_a_tile_with_zeros_outside_of_the_tensor(at):
    x = np.arange(1, 1 + 10 * 32, dtype=U16).reshape(10, 32)
    got = loaded(x, (16, 8), at, 0).view(U16).reshape(8, 16)
    padded = np.zeros((40, 160), U16)
    padded[10:20, 40:72] = x
    assert (got == padded[10 + at[1] :, 40 + at[0] :][:8, :16]).all()


def test_a_ragged_row_ends_in_zeros():
    x = np.arange(1, 1 + 4 * 24, dtype=U16).reshape(4, 24)[:, :19]
    held = np.ascontiguousarray(np.pad(x, ((0, 0), (0, 5)), constant_values=777))
    map_ = TensorMap(0, 2, (19, 4), [48], (32, 4), 0)
    out = np.zeros((4, 32), U16)
    body = (LOAD + STORE_OUT).replace("BYTES", "256")
    args = [held, np.zeros(2, np.int32), out, map_]
    launch(with_map(body, 3), 1, 16, args, [], 0, shared_bytes=256)
    assert (out[:, :19] == x).all()
    assert (out[:, 19:] == 0).all()


@pytest.mark.parametrize(("swizzle", "lines"), [(32, 1), (64, 3), (128, 7)])
def test_swizzles(swizzle, lines):
    """Bits 4 to 6 of an address are changed by bits 7 to 9."""
    x = np.arange(16 * swizzle // 2, dtype=U16).reshape(16, -1)
    got = loaded(x, (swizzle // 2, 16), (0, 0), swizzle).reshape(-1, 16)
    plain = x.view(np.uint8).reshape(-1, 16)
    where = np.arange(len(plain))
    assert (got[where ^ (where >> 3 & lines)] == plain).all()


def test_a_load_that_is_not_waited_for():
    x = np.zeros((8, 16), U16)
    no_wait = (LOAD + STORE_OUT).replace(WAIT.replace("PARITY", "0"), "bar.sync 0;")
    with faults("before the copy to it has been waited for"):
        loaded(x, (16, 8), (0, 0), 0, no_wait)
    skipped = WAIT.replace("PARITY", "0").replace("{ .reg", "@%p2 bra $over; { .reg")
    one_waits = (LOAD + STORE_OUT).replace(
        WAIT.replace("PARITY", "0"), f"setp.gt.u32 %p2, %r0, 31; {skipped} $over:"
    )
    with faults(r"waited for|a data race"):
        loaded(np.zeros((64, 16), U16), (16, 64), (0, 0), 0, one_waits)
    with faults("never come"):
        loaded(x, (16, 8), (0, 0), 0, (LOAD + STORE_OUT).replace("BYTES", "272"))


def test_a_load_over_what_others_still_read():
    again = LOAD + STORE_OUT + """
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
      [%r1], [%d5, {%r4, %r5}], [bar];
    """  # fmt: skip
    with faults(r"read what thread 0 writes"):
        loaded(np.zeros((8, 16), U16), (16, 8), (0, 0), 0, again)
    ordered = again.replace(STORE_OUT, STORE_OUT + "bar.sync 0;")
    loaded(np.zeros((8, 16), U16), (16, 8), (0, 0), 0, ordered)


STORE = """
mov.u32 %r1, dynamic; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0; FENCE bar.sync 0;
setp.eq.u32 %p1, %r0, 0; mov.u64 %d5, map; cvta.param.u64 %d5, %d5; mov.u32 %r4, 4;
mov.u32 %r5, -1;
@!%p1 bra $wait;
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d5, {%r4, %r5}], [%r1];
cp.async.bulk.commit_group;
$wait: cp.async.bulk.wait_group.read COUNT; bar.sync 0; st.shared.u32 [%r2], 0;
"""


def test_a_tile_is_stored():
    out = np.full((4, 12), 99, U32)
    map_ = TensorMap(0, 4, (10, 4), [48], (8, 4), 0)

    def stored(body):
        launch(with_map(body, 1), 1, 32, [out, map_], [], 0, shared_bytes=128)

    body = STORE.replace("FENCE", "fence.proxy.async.shared::cta;").replace("COUNT", "0")
    stored(body)
    want = np.full((4, 12), 99)
    want[:3, 4:10] = np.arange(32).reshape(4, 8)[1:, :6]
    assert (out == want).all()
    with faults(r"without fence\.proxy\.async"):
        stored(body.replace("fence.proxy.async.shared::cta;", ""))
    with faults("may still read"):
        stored(body.replace("group.read 0", "group.read 1"))


def test_rows_of_bytes():
    body = INIT.replace("COUNT", "1") + """
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %d6, [bar], 64;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
      [%r1], [%d0+16], 64, [bar];
    """ + WAIT.replace("PARITY", "0") + """
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 64;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    """  # fmt: skip
    x, y = np.arange(20, dtype=U32), np.zeros(16, U32)
    run(body, x, y, outside=SHARED, shared_bytes=64)
    assert (y == x[4:]).all()
    with faults("into an array of 80"):
        run(body.replace("%d0+16", "%d0+32"), x, y, outside=SHARED, shared_bytes=64)


def test_tensor_maps_that_the_driver_refuses():
    def encode(address=0, size=2, sizes=(64, 8), strides=(128,), box=(64, 8), swizzle=128):
        return encode_tensor_map(address, size, sizes, strides, box, swizzle)

    assert len(encode(48)) == 128
    assert address_of(encode(48)) == 48
    assert address_of(bytes(128)) is None
    for wrong in ({"address": 8}, {"strides": (120,)}, {"box": (64, 257)}, {"box": (65, 8)},
                  {"box": (4, 8)}, {"swizzle": 64}, {"sizes": (0, 8)},
                  {"sizes": (64,)}):  # fmt: skip
        with pytest.raises(ValueError, match="tensor map"):
            encode(**wrong)


# -------------------------------------------------------------------- wgmma


def image(matrix: np.ndarray, is_transposed: bool) -> np.ndarray:
    """Shared memory for rows of k elements, 128-byte swizzle; transposed: k by row.

    Blocks of 8 lines of 128 bytes follow one another.
    """
    if is_transposed:  # blocks of 64 rows, each with all of k
        lines = matrix.T.reshape(matrix.shape[1], -1, 64).transpose(1, 0, 2)
    else:
        lines = matrix
    raw = np.ascontiguousarray(lines).reshape(-1).view(np.uint8).reshape(-1, 16)
    where = np.arange(len(raw))
    swizzled = np.empty_like(raw)
    swizzled[where ^ (where >> 3 & 7)] = raw
    return swizzled.reshape(-1)


WGMMA = """
mov.u32 %r1, dynamic; mad.lo.u32 %r2, %r0, 16, %r1; mad.wide.u32 %d4, %r0, 16, %d0;
COPIES
FENCE bar.sync 0;
cvt.u64.u32 %d5, %r1; shr.u64 %d5, %d5, 4; or.b64 %d6, %d5, A_BITS; add.u64 %d7, %d5, OFFSET;
or.b64 %d7, %d7, B_BITS;
setp.ne.b32 %p1, 1, 0; setp.ne.b32 %p2, 0, 0;
wgmma.fence.sync.aligned;
STEPS
wgmma.commit_group.sync.aligned;
WAIT
"""


def wgmma(a, b, d_type, element, transposes=(0, 0), from_registers=False, change=lambda text: text):
    """Registers of a (64, k) times the transpose of b (n, k), over the first 64 bytes of k.

    Two steps of 32 bytes of k each: the first replaces d, the second adds to it.
    """
    n, depth = b.shape[0], 32 // a.itemsize
    parts = [image(a, transposes[0]), image(b, transposes[1])]
    memory = np.concatenate(parts)
    memory = np.pad(memory, (0, -len(memory) % 2048))
    copies = "".join(
        f"ld.global.v4.u32 {{%r3, %r4, %r5, %r6}}, [%d4+{k}];"
        f"st.shared.v4.u32 [%r2+{k}], {{%r3, %r4, %r5, %r6}};"
        for k in range(0, len(memory), 2048)
    )

    def descriptor(matrix, is_transposed):
        leading, stride = (matrix.shape[1] * 128, 1024) if is_transposed else (16, 1024)
        return 1 << 62 | stride >> 4 << 32 | leading >> 4 << 16

    count = n // 2 if d_type == "f32" else n // 4
    names = ", ".join(f"%r{100 + k}" for k in range(count))
    signs_and_transposes = [1, 1]
    if element != "tf32":
        signs_and_transposes += transposes[from_registers:]
    numbers = ", ".join(map(str, signs_and_transposes))
    steps, loads = "", ""
    for step in range(2):
        advance = [step * (depth * 128 if t else 32) >> 4 for t in transposes]
        left = f"%d{10 + step}"
        if from_registers:
            left = "{" + ", ".join(f"%r{20 + 4 * step + j}" for j in range(4)) + "}"
            loads += f"mad.wide.u32 %d4, %r0, 32, %d1; ld.global.v4.u32 {left}, [%d4+{16 * step}];"
        steps += f"""add.u64 %d{10 + step}, %d6, {advance[0]};
        add.u64 %d{12 + step}, %d7, {advance[1]};
        wgmma.mma_async.sync.aligned.m64n{n}k{depth}.{d_type}.{element}.{element}
          {{{names}}}, {left}, %d{12 + step}, %p{1 if step else 2}, {numbers};"""
    body = WGMMA.replace("COPIES", copies).replace("STEPS", loads + steps)
    body = body.replace("A_BITS", str(descriptor(a, transposes[0])))
    body = body.replace("B_BITS", str(descriptor(b, transposes[1])))
    body = body.replace("OFFSET", str(len(parts[0]) >> 4))
    body += f"mad.wide.u32 %d4, %r0, {4 * count}, %d2;" + "".join(
        f"st.global.u32 [%d4+{4 * k}], %r{100 + k};" for k in range(count)
    )
    body = change(body)
    body = body.replace("FENCE", "fence.proxy.async.shared::cta;")
    body = body.replace("WAIT", "wgmma.wait_group.sync.aligned 0;")
    out = np.zeros((128, count), U32)
    run(body, memory, fragments_of_a(a), out, threads=128, outside=SHARED,
        shared_bytes=len(memory))  # fmt: skip
    return out


LANE = np.arange(128) % 32
ROW, QUAD = np.arange(128) // 32 * 16 + LANE // 4, LANE % 4


def fragments_of_a(a):
    """Registers of a (64, 2 * depth): (threads, step, register)."""
    side = 4 // a.itemsize
    out = np.zeros((128, 2, 4, side), a.dtype)
    for step in range(2):
        for r in range(4):
            for j in range(side):
                column = step * 8 * side + r // 2 * 4 * side + QUAD * side + j
                out[:, step, r, j] = a[ROW + 8 * (r % 2), column]
    return out


def unpacked_d(out, n, d_type):
    """(64, n) of the registers."""
    values = out.view(F32 if d_type == "f32" else F16)
    found = np.zeros((64, n), F32)
    for i in range(n // 2):
        found[ROW + 8 * (i // 2 % 2), i // 4 * 8 + QUAD * 2 + i % 2] = values[:, i]
    return found


KINDS = [  # element, type of d, columns, transposes, a from registers
    ("f16", "f32", 8, (0, 0), False),
    ("f16", "f32", 24, (0, 0), True),
    ("f16", "f16", 64, (0, 1), False),
    ("bf16", "f32", 128, (0, 1), False),
    ("bf16", "f32", 64, (1, 1), False),
    ("bf16", "f32", 256, (1, 0), False),
    ("tf32", "f32", 16, (0, 0), False),
    ("tf32", "f32", 40, (0, 0), True),
]


def operands(element, n, seed=0):
    dtype = {"f16": F16, "bf16": U16, "tf32": F32}[element]
    rng = np.random.default_rng(seed)
    # a line of 128 bytes of k; steps use its first half
    k = 128 // np.dtype(dtype).itemsize
    values = [rng.integers(-8, 9, (rows, k)).astype(F32) for rows in (64, n)]
    stored = [v.astype(dtype) for v in values]
    if element == "bf16":
        stored = [(v.view(U32) >> 16).astype(U16) for v in values]
    used = k // 2
    return stored, values[0][:, :used] @ values[1][:, :used].T


@pytest.mark.parametrize(("element", "d_type", "n", "transposes", "from_registers"), KINDS)
def test_wgmma(element, d_type, n, transposes, from_registers):
    (a, b), want = operands(element, n)
    out = wgmma(a, b, d_type, element, transposes, from_registers)
    assert (unpacked_d(out, n, d_type) == want).all()


def test_sums_of_wgmma_are_there_behind_the_wait():
    (a, b), want = operands("f16", 64)
    early = wgmma(a, b, "f32", "f16", change=lambda text: text.replace("WAIT", "") + "WAIT")
    assert np.isnan(unpacked_d(early, 64, "f32")).all()
    more = wgmma(
        a, b, "f32", "f16", change=lambda text: text.replace("WAIT", "mov.u32 %r3, 0; WAIT")
    )
    assert (unpacked_d(more, 64, "f32") == want).all()


def test_wgmma_faults():
    (a, b), _ = operands("bf16", 64)

    def changed(old, new):
        return lambda text: text.replace(old, new)

    for change, match in (
        (changed("FENCE", ""), r"without fence\.proxy\.async"),
        (changed("FENCE bar.sync 0;", "fence.proxy.async.shared::cta;"), "a data race"),
        (changed("wgmma.fence.sync.aligned;", ""), r"before any wgmma\.fence"),
        (changed("WAIT", "bar.sync 0; st.shared.u32 [dynamic], 0;"), "may still read"),
        (
            changed("WAIT", "wgmma.wait_group.sync.aligned 1; st.shared.u32 [%r2], 0;"),
            r"still read|a data race",
        ),
    ):
        with faults(match):
            wgmma(a, b, "f32", "bf16", change=change)
    for before, held, match in (
        ("mov.u32 %r24, 5;", True, "that wgmma reads was written"),
        ("mov.u32 %r101, 5;", False, "a sum of wgmma was written"),
    ):
        with faults(match):
            wgmma(a, b, "f32", "bf16", (0, 0), held, changed("WAIT", f"{before} WAIT"))
    line = "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 " \
           "{%r1, %r2, %r3, %r4}, %d4, %d4, %p1, 1, 1, 0, 0;"  # fmt: skip
    with faults("four whole warps"):
        run(line, np.zeros(1), threads=96, outside=SHARED, shared_bytes=1024)
