"""The interpreter of PTX: blocks, barriers, races, and what the lanes of a warp do together."""

import numpy as np
import pytest

from tests.ptx.writing import faults, interpreter_only, run

U32 = np.uint32
SHARED = ".shared .align 4 .b8 first[64]; .shared .align 4 .b8 second[64];"
DYNAMIC = ".extern .shared .align 16 .b8 dynamic[];"

WHERE = """
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
mad.wide.u32 %d4, %r3, 4, %d0; mov.u32 %r4, %laneid; mov.u32 %r5, %warpid;
mov.u32 %r6, %lanemask_lt; popc.b32 %r6, %r6; sub.u32 %r6, %r6, %r4;
mad.lo.u32 %r7, %r5, 100, %r4; add.u32 %r7, %r7, %r6; mad.lo.u32 %r7, %r1, 10000, %r7;
st.global.u32 [%d4], %r7;
"""


def test_special_registers():
    out = np.zeros(3 * 70, U32)
    run(WHERE, out, threads=70, blocks=3)
    thread, block = np.arange(210) % 70, np.arange(210) // 70
    assert (out == block * 10000 + thread // 32 * 100 + thread % 32).all()


@interpreter_only
def test_blocks_run_in_an_order_of_the_seed():
    body = "atom.global.add.u32 %r1, [%d0], 1; mov.u32 %r2, %ctaid.x;" \
           "mad.wide.u32 %d4, %r2, 4, %d1; st.global.u32 [%d4], %r1;"  # fmt: skip
    orders = set()
    for seed in range(3):
        order = np.zeros(50, U32)
        run(body, np.zeros(1, U32), order, threads=1, blocks=50, seed=seed)
        assert sorted(order) == list(range(50))
        orders.add(order.tobytes())
    assert len(orders) == 3


@interpreter_only
def test_warps_run_in_an_order_of_the_seed():
    body = "atom.global.add.u32 %r1, [%d0], 1; mad.wide.u32 %d4, %r0, 4, %d1;" \
           "st.global.u32 [%d4], %r1;"  # fmt: skip
    orders = set()
    for seed in range(3):
        order = np.zeros(256, U32)
        run(body, np.zeros(1, U32), order, threads=256, seed=seed)
        orders.add(order.tobytes())
    assert len(orders) == 3


LOOP = """
mov.u32 %r1, 0; mov.u32 %r2, 0;
$loop: setp.ge.u32 %p1, %r1, %r0; @%p1 bra $done;
and.b32 %r3, %r1, 1; setp.eq.u32 %p2, %r3, 0; @%p2 bra $even;
add.u32 %r2, %r2, 100; bra $joined;
$even: add.u32 %r2, %r2, 1;
$joined: add.u32 %r1, %r1, 1; bra $loop;
$done: mad.wide.u32 %d4, %r0, 4, %d0; st.global.u32 [%d4], %r2;
"""


def test_lanes_that_diverge():
    out = np.zeros(100, U32)
    run(LOOP, out, threads=100)
    thread = np.arange(100)
    assert (out == (thread + 1) // 2 + thread // 2 * 100).all()


def test_branch_by_index():
    body = """and.b32 %r1, %r0, 3; $ts: .branchtargets $a, $b, $a, $c; mov.u32 %r2, 0;
    brx.idx %r1, $ts;
    $c: add.u32 %r2, %r2, 1; $b: add.u32 %r2, %r2, 10; $a: add.u32 %r2, %r2, 100;
    mad.wide.u32 %d4, %r0, 4, %d0; st.global.u32 [%d4], %r2;"""
    out = np.zeros(32, U32)
    run(body, out)
    assert out.tolist() == [100, 110, 100, 111] * 8


REVERSE = """
shl.b32 %r1, %r0, 2; mov.u32 %r2, dynamic; add.u32 %r3, %r1, %r2; st.shared.u32 [%r3], %r0;
BARRIER
mov.u32 %r4, %ntid.x; sub.u32 %r4, %r4, %r0; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r2;
ld.shared.u32 %r5, [%r4+-4]; mad.wide.u32 %d4, %r0, 4, %d0; st.global.u32 [%d4], %r5;
"""


def test_a_barrier_orders_shared_memory():
    out = np.zeros(256, U32)
    body = REVERSE.replace("BARRIER", "bar.sync 0;")
    run(body, out, threads=256, outside=DYNAMIC, shared_bytes=1024, blocks=3)
    assert (out == np.arange(256)[::-1]).all()
    for barrier in ("", "bar.warp.sync -1;", "bar.arrive 0, 256;"):
        with faults("a data race"):
            run(REVERSE.replace("BARRIER", barrier), out, threads=256, outside=DYNAMIC,
                shared_bytes=1024)  # fmt: skip


def test_a_warp_orders_its_own_lanes():
    out = np.zeros(32, U32)
    for barrier in ("bar.warp.sync -1;", "shfl.sync.idx.b32 %r9, %r0, 0, 31, -1;"):
        run(REVERSE.replace("BARRIER", barrier), out, outside=DYNAMIC, shared_bytes=128)
        assert (out == np.arange(32)[::-1]).all()
    with faults("a data race"):
        run(REVERSE.replace("BARRIER", ""), out, outside=DYNAMIC, shared_bytes=128)


RACES = {
    # all threads read, then one writes
    "ld.shared.u32 %r1, [first]; setp.eq.u32 %p1, %r0, 40; @%p1 st.shared.u32 [first], 1;":
        "read what thread 40 writes",
    "st.shared.u32 [first], 1;": "writes",
    # bytes beside each other are no race, a word over them is one
    "mov.u32 %r2, first; add.u32 %r2, %r2, %r0; setp.lt.u32 %p1, %r0, 4;"
    "@%p1 st.shared.u8 [%r2], %r0;"
    "setp.eq.u32 %p1, %r0, 63; @%p1 ld.shared.u32 %r1, [first];":
        "wrote what thread 63 reads|63 read what thread",
    "atom.shared.add.u32 %r1, [first], 1; setp.eq.u32 %p1, %r0, 40;"
    "@%p1 ld.shared.u32 %r1, [first];":
        "changed atomically what thread 40 reads|40 read what thread",
    # the first atomic update of warp 0 does not hide the write before it
    "setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [first], 1; bar.warp.sync -1;"
    "atom.shared.add.u32 %r1, [first], 1;": "changes atomically|thread 0 writes",
}  # fmt: skip


@pytest.mark.parametrize("body", RACES)
def test_race(body):
    for seed in range(4):
        with faults(RACES[body]):
            run(body, np.zeros(1), threads=64, outside=SHARED, seed=seed)


def test_race_among_the_lanes_of_a_warp():
    for lane in (0, 1, 31):
        body = f"""ld.shared.u32 %r1, [first]; SYNC setp.eq.u32 %p1, %r0, {lane};
        @%p1 st.shared.u32 [first], 1; @%p1 st.global.u32 [%d0], %r1;"""
        run(body.replace("SYNC", "bar.warp.sync -1;"), np.zeros(1, U32), outside=SHARED)
        with faults(f"what thread {lane} writes"):
            run(body.replace("SYNC", ""), np.zeros(1, U32), outside=SHARED)


def test_what_is_no_race():
    body = """
    setp.eq.u32 %p1, %r0, 3; @%p1 st.shared.u32 [first], 0; bar.sync 0;
    ld.shared.u32 %r1, [first]; ld.shared.u32 %r1, [first]; bar.sync 0;
    atom.shared.add.u32 %r1, [first], 1; bar.sync 0; ld.shared.u32 %r2, [first]; bar.sync 0;
    @%p1 st.shared.u32 [first], %r2; @%p1 ld.shared.u32 %r3, [first];
    @%p1 st.global.u32 [%d0], %r3;
    """
    out = np.zeros(1, U32)
    run(body, out, threads=96, outside=SHARED)
    assert out == 96


def test_barriers_by_name_order_those_who_meet():
    """Warp 0 fills, warp 1 reads behind barrier 1; warp 2 never comes there."""
    body = """
    mov.u32 %r1, %warpid; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1;
    setp.eq.u32 %p3, %r0, 5; @%p3 st.shared.u32 [first], 7;
    @%p1 bar.arrive 1, 64; @%p2 bar.sync 1, 64; setp.eq.u32 %p4, %r1, WHO;
    @%p4 ld.shared.u32 %r2, [first]; @%p4 st.global.u32 [%d0], %r2;
    """
    out = np.zeros(1, U32)
    run(body.replace("WHO", "1"), out, threads=96, outside=SHARED)
    assert out == 7
    with faults("a data race"):
        run(body.replace("WHO", "2"), out, threads=96, outside=SHARED)


def test_threads_that_left_are_not_waited_for():
    body = """setp.ge.u32 %p1, %r0, 40; @%p1 exit; bar.sync 0;
    mad.wide.u32 %d4, %r0, 4, %d0; st.global.u32 [%d4], 1;"""
    out = np.zeros(96, U32)
    run(body, out, threads=96)
    assert out.sum() == 40


def test_barriers_that_count():
    body = """setp.lt.u32 %p1, %r0, 40; mov.u32 %r9, %ntid.x;
    barrier.cta.red.popc.aligned.u32 %r1, 0, %p1; barrier.red.and.pred %p2, 1, %p1;
    bar.red.or.pred %p3, 0, %r9, %p1; selp.u32 %r2, 10, 0, %p2; selp.u32 %r3, 100, 0, %p3;
    add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
    mad.wide.u32 %d4, %r0, 4, %d0; st.global.u32 [%d4], %r1;"""
    out = np.zeros(96, U32)
    run(body, out, threads=96)
    assert (out == 140).all()
    out = np.zeros(32, U32)
    run(body, out, threads=32)
    assert (out == 142).all()


# -------------------------------------------------------------------- races in global memory

OTHERS = """
mov.u32 %r1, %ctaid.x; mad.wide.u32 %d4, %r1, 4, %d0; xor.b32 %r2, %r1, 1;
mad.wide.u32 %d5, %r2, 4, %d0; st.global.u32 [%d4], 7; AGREED ld.global.u32 %r3, [%d5];
"""
WARPS = """
mad.wide.u32 %d4, %r0, 4, %d0; xor.b32 %r2, %r0, 32; mad.wide.u32 %d5, %r2, 4, %d0;
st.global.u32 [%d4], %r0; BARRIER ld.global.u32 %r3, [%d5];
"""


def test_race_in_global_memory():
    out = np.zeros(64, U32)
    run(WARPS.replace("BARRIER", "bar.sync 0;"), out, threads=64)
    run(OTHERS.replace("AGREED", "atom.global.add.u32 %r9, [%d0+8], 1;"), out, blocks=2, threads=1)
    run("st.global.u32 [%d0], 5;", out, blocks=3)
    for body, blocks, threads in (
        (WARPS.replace("BARRIER", "bar.warp.sync -1;"), 1, 64),
        (OTHERS.replace("AGREED", ""), 2, 1),
        ("mov.u32 %r1, %ctaid.x; st.global.u32 [%d0], %r1;", 2, 1),
        ("st.global.u32 [%d0], %r0;", 1, 2),
    ):
        with faults("a data race in global memory"):
            run(body, out, blocks=blocks, threads=threads)


def test_a_warp_that_spins_lets_others_run():
    body = """setp.lt.u32 %p1, %r0, 32; @!%p1 st.volatile.shared.u32 [first], 1; @!%p1 bra $done;
    bar.warp.sync -1;
    $spin: ld.volatile.shared.u32 %r1, [first]; setp.ne.u32 %p2, %r1, 1; @%p2 bra $spin;
    $done: mad.wide.u32 %d4, %r0, 4, %d0; st.global.u32 [%d4], 5;"""
    out = np.zeros(64, U32)
    run(body, out, threads=64, outside=SHARED)
    assert (out == 5).all()


NEVER = {
    "setp.lt.u32 %p1, %r0, 40; @%p1 bar.sync 0; $l: @!%p1 bar.sync 1;": "never come",
    "setp.lt.u32 %p1, %r0, 32; @%p1 bar.sync 0; @!%p1 bar.sync 1;": "never come",
    "setp.lt.u32 %p1, %r0, 7; @!%p1 bra $x; shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; $x:"
    "bar.sync 0;": "never come",
    "bar.sync 0, 96;": "never come",
    "bar.sync 0, 33;": "no whole warps",
    "bar.sync 16;": "above 15",
    "shfl.sync.idx.b32 %r1, %r0, 0, 31, 1;": "not in its own mask",
}


@pytest.mark.parametrize("body", NEVER)
def test_barrier_that_others_never_reach(body):
    with faults(NEVER[body]):
        run(body, np.zeros(1), threads=64)


# -------------------------------------------------------------------- warps

LANES = np.arange(32)


def by_lane(line, dtype=U32, threads=32):
    """What a line leaves in %r1 of every lane; %r0 is the lane."""
    out = np.zeros(threads, dtype)
    run(f"{line} mad.wide.u32 %d4, %r0, 4, %d0; st.global.u32 [%d4], %r1;", out, threads=threads)
    return out


COLLECTIVE = {
    "shfl.sync.bfly.b32 %r1, %r0, 5, 31, -1;": LANES ^ 5,
    "shfl.sync.down.b32 %r1, %r0, 4, 31, -1;": np.where(LANES < 28, LANES + 4, LANES),
    "shfl.sync.up.b32 %r1, %r0, 4, 0, -1;": np.where(LANES >= 4, LANES - 4, LANES),
    "shfl.sync.idx.b32 %r1, %r0, 3, 0x181f, -1;": LANES // 8 * 8 + 3,
    "shfl.sync.down.b32 %r1|%p1, %r0, 4, 0x181f, -1; selp.b32 %r1, %r1, 99, %p1;":
        np.where(LANES % 8 < 4, LANES + 4, 99),
    "setp.gt.u32 %p1, %r0, 29; vote.sync.ballot.b32 %r1, %p1, -1;": np.full(32, 0xC0000000),
    "setp.gt.u32 %p1, %r0, 29; vote.sync.any.pred %p2, !%p1, -1; selp.b32 %r1, 1, 0, %p2;":
        np.ones(32),
    "setp.gt.u32 %p1, %r0, 29; vote.sync.all.pred %p2, %p1, -1; selp.b32 %r1, 1, 0, %p2;":
        np.zeros(32),
    "redux.sync.add.u32 %r1, %r0, -1;": np.full(32, 496),
    "sub.u32 %r2, %r0, 5; redux.sync.min.s32 %r1, %r2, -1;": np.full(32, 2**32 - 5),
    "and.b32 %r2, %r0, 1; match.any.sync.b32 %r1, %r2, -1;":
        np.where(LANES & 1, 0xAAAAAAAA, 0x55555555),
    "match.all.sync.b32 %r1|%p1, %r0, -1;": np.zeros(32),
    "elect.sync _|%p1, -1; selp.b32 %r1, 1, 0, %p1;": LANES == 0,
    # the halves of a warp go different ways, and each exchanges within its mask
    "setp.lt.u32 %p1, %r0, 16; @%p1 bra $low; shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffff0000;"
    "bra $x; $low: shfl.sync.bfly.b32 %r1, %r0, 2, 31, 0xffff; $x:":
        np.where(LANES < 16, LANES ^ 2, LANES ^ 1),
    # half of the lanes leave, the others are waiting for them
    "setp.lt.u32 %p1, %r0, 16; @!%p1 bra $out; shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; bra $x;"
    "$out: ret; $x:": np.where(LANES < 16, LANES ^ 1, 0),
    "setp.lt.u32 %p1, %r0, 16; @%p1 bra $low; mov.u32 %r1, 0; bra $x;"
    "$low: activemask.b32 %r1; $x:": np.where(LANES < 16, 0xFFFF, 0),
}  # fmt: skip


@pytest.mark.parametrize("line", COLLECTIVE)
def test_collective(line):
    assert (by_lane(line) == COLLECTIVE[line].astype(U32)).all()


@interpreter_only
def test_lanes_that_do_not_exist_give_the_fill():
    got = by_lane("shfl.sync.bfly.b32 %r1, %r0, 8, 31, -1;", threads=12)
    assert got.tolist() == [8, 9, 10, 11, *[2**32 - 1] * 4, 0, 1, 2, 3]
