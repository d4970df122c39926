"""Instructions of NVIDIA's that MLIR has no neutral operation for, as inline PTX.

Their names in LLVM's intrinsics change between releases; PTX does not. Source: NVIDIA's PTX ISA 8,
sections 9.7.9 (`cp.async`), 9.7.13.15 (`mbarrier`), 9.7.14 (`ldmatrix`, `mma.sync`) and 9.7.15
(`wgmma`).
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.lower.gpu.builder import GpuBuilder
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Pointer, Register, Value

STEP_BYTES = 32
"""What one instruction of matrix units takes along K."""


def _assembly(
    b: GpuBuilder, text: str, constraints: str, operands: Sequence[Value], results: Sequence[str]
) -> list[Register]:
    """Write one instruction; its results, all of scalar types."""
    given = ", ".join(str(x) for x in operands)
    types = ", ".join(x.type for x in operands)
    type_ = f"!llvm.struct<({', '.join(results)})>" if len(results) > 1 else "".join(results)
    head = f'llvm.inline_asm has_side_effects asm_dialect = att "{text}", "{constraints}" {given}'
    if not results:
        b.emit(f"{head} : ({types}) -> ()")
        return []
    whole = b.define(Register, f"{head} : ({types}) -> {type_}", type_, operands, "asm", pure=False)
    if len(results) == 1:
        return [whole]
    return [
        b.define(Register, f"llvm.extractvalue {whole}[{k}] : {type_}", result, [whole], "part")
        for k, result in enumerate(results)
    ]


def copy_16_bytes(b: GpuBuilder, to: Register, source: Pointer, count: Register) -> None:
    """Begin to copy `count` bytes (i32, 0 to 16), and zeros behind them, to shared memory.

    `to`: an address of shared memory, i32. Both places are multiples of 16.
    """
    source = b.define(
        Pointer,
        f"llvm.addrspacecast {source} : !llvm.ptr to !llvm.ptr<1>",
        "!llvm.ptr<1>",
        [source],
    )
    text = "cp.async.cg.shared.global [$0], [$1], 16, $2;"
    _assembly(b, text, "r,l,r,~{memory}", [to, source, count], [])


def global_address(b: GpuBuilder, memory: MemRef) -> IndexValue:
    """Where an array begins, in the address space of global memory."""
    generic = b.element_pointer(memory, b.index(0))
    space = "!llvm.ptr<1>"
    right = f"llvm.addrspacecast {generic} : !llvm.ptr to {space}"
    pointer = b.define(Pointer, right, space, [generic])
    raw = b.define(Register, f"llvm.ptrtoint {pointer} : {space} to i64", "i64", [pointer])
    return b.to_index("arith.index_cast", raw)


def copy_chunks(
    b: GpuBuilder,
    to: Register,
    step: int,
    sources: Sequence[IndexValue],
    counts: Sequence[Register] = (),
) -> None:
    """Begin to copy 16 bytes from each of `sources`, addresses of global memory.

    They go to `to`, an address of shared memory (i32), and `step` bytes further each. `counts`, one
    for each source: bytes that are copied (i32, 0 or 16), with zeros behind them.
    """
    given: list[Value] = [to, *(b.cast("arith.index_cast", source, "i64") for source in sources)]
    size = [f", ${1 + len(sources) + k}" for k in range(len(counts))] or [""] * len(sources)
    text = " ".join(
        f"cp.async.cg.shared.global [$0+{k * step}], [${k + 1}], 16{size[k]};"
        for k in range(len(sources))
    )
    kinds = ["r", *"l" * len(sources), *"r" * len(counts), "~{memory}"]
    _assembly(b, text, ",".join(kinds), [*given, *counts], [])


def copy_rows(
    b: GpuBuilder,
    to: Register,
    places: Sequence[Sequence[int]],
    sources: Sequence[IndexValue],
    step: int,
    counts: Sequence[Sequence[Register]],
) -> None:
    """Begin to copy chunks of 16 bytes of some rows, chunk i from `i * step` bytes behind a source.

    `sources`: addresses of global memory. `places[i]`: where chunk i of each row goes, in bytes
    behind `to`, an address of shared memory (i32). `counts[i]`: bytes that are copied of it (i32, 0
    to 16), with zeros behind them. Nothing is read where that is 0.
    """
    given: list[Value] = [to, *(b.cast("arith.index_cast", source, "i64") for source in sources)]
    kinds, lines = ["r", *"l" * len(sources)], []
    numbers: dict[str, int] = {}
    for chunk, (rows, own) in enumerate(zip(places, counts, strict=True)):
        for row, (place, count) in enumerate(zip(rows, own, strict=True)):
            if count.name not in numbers:
                numbers[count.name] = len(given)
                given.append(count)
                kinds.append("r")
            source = f"[${row + 1}+{chunk * step}]"
            size = numbers[count.name]
            lines.append(f"cp.async.cg.shared.global [$0+{place}], {source}, 16, ${size};")
    _assembly(b, " ".join(lines), ",".join([*kinds, "~{memory}"]), given, [])


def commit_copies(b: GpuBuilder) -> None:
    """The copies that were begun since the last call are a group."""
    _assembly(b, "cp.async.commit_group;", "~{memory}", [], [])


def wait_for_copies(b: GpuBuilder, groups: int) -> None:
    """Wait until all but the last `groups` groups of this thread's copies are done."""
    _assembly(b, f"cp.async.wait_group {groups};", "~{memory}", [], [])


def load_matrices(b: GpuBuilder, at: Register, is_transposed: bool) -> list[Register]:
    """Four matrices of 8 x 8 elements of 16 bits, from shared memory.

    `at`: where row `lane % 8` of matrix `lane // 8` is (i32, a multiple of 16). Of each matrix a
    thread gets row `lane // 4`, columns `2 * (lane % 4)` and the next, in one i32.
    """
    trans = ".trans" if is_transposed else ""
    return _assembly(
        b,
        f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{$0, $1, $2, $3}}, [$4];",
        "=r,=r,=r,=r,r,~{memory}",
        [at],
        ["i32"] * 4,
    )


def load_word(b: GpuBuilder, at: Register) -> Register:
    """The i32 at an address of shared memory (i32)."""
    (word,) = _assembly(b, "ld.shared.b32 $0, [$1];", "=r,r,~{memory}", [at], ["i32"])
    return word


def load_words(b: GpuBuilder, address: IndexValue, count: int, exists: Mask) -> list[Register]:
    """`count` words (i32; 1, 2 or 4) from an address of global memory, a multiple of their size.

    Where not `exists`, words are 0 and nothing is read.
    """
    names = [f"${k}" for k in range(count)]
    to = f"{{{', '.join(names)}}}" if count > 1 else names[0]
    kind = f"v{count}.b32" if count > 1 else "b32"
    lines = [
        f"{{ .reg .pred exists; setp.ne.b32 exists, ${count + 1}, 0;",
        *(f"mov.b32 {name}, 0;" for name in names),
        f"@exists ld.global.{kind} {to}, [${count}]; }}",
    ]
    # Results are written before all operands are read.
    kinds = ["=&r"] * count + ["l", "r", "~{memory}"]
    operands = [b.cast("arith.index_cast", address, "i64"), b.cast("arith.extui", exists, "i32")]
    return _assembly(b, " ".join(lines), ",".join(kinds), operands, ["i32"] * count)


def pair_of_halves(b: GpuBuilder, low: Register, high: Register, half: int) -> Register:
    """The halves number `half` (0: the lower one) of two words (i32), as one word."""
    pattern = "0x7632" if half else "0x5410"
    text = f"prmt.b32 $0, $1, $2, {pattern};"
    right = f'llvm.inline_asm asm_dialect = att "{text}", "=r,r,r" {low}, {high}'
    return b.define(Register, f"{right} : (i32, i32) -> i32", "i32", [low, high])


def round_to_tf32(b: GpuBuilder, word: Register) -> Register:
    """The bits (i32) of an f32 rounded to the digits of tf32, ties away from zero."""
    right = f'llvm.inline_asm asm_dialect = att "cvt.rna.tf32.f32 $0, $1;", "=r,r" {word}'
    return b.define(Register, f"{right} : (i32) -> i32", "i32", [word])


def power_of_two(b: GpuBuilder, x: Register) -> Register:
    """2 to the power of an f32, within 2 units of its last digit; results below 2^-126 are 0."""
    right = f'llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" {x}'
    return b.define(Register, f"{right} : (f32) -> f32", "f32", [x])


def packed_pair(b: GpuBuilder, element: str, low: Register, high: Register) -> Register:
    """Two f32 rounded to `element` ("f16" or "bf16"), in one i32."""
    text = f"cvt.rn.{element}x2.f32 $0, $2, $1;"
    right = f'llvm.inline_asm asm_dialect = att "{text}", "=r,f,f" {low}, {high}'
    return b.define(Register, f"{right} : (f32, f32) -> i32", "i32", [low, high])


def true_for_any(b: GpuBuilder, value: Mask) -> Mask:
    """True if a flag is true for any thread of the block; all threads wait here."""
    word = b.cast("arith.extui", value, "i32")
    text = (
        "{ .reg .pred own, any; setp.ne.b32 own, $1, 0; bar.red.or.pred any, 0, own; "
        "selp.b32 $0, 1, 0, any; }"
    )
    (found,) = _assembly(b, text, "=r,r,~{memory}", [word], ["i32"])
    return found.differs(0)


def multiply(
    b: GpuBuilder,
    element: str,
    left: Sequence[Register],
    right: Sequence[Register],
    sums: Sequence[Register],
) -> list[Register]:
    """Sums of 16 x 8 products over 32 bytes of elements ("f16", "bf16" or "tf32"), in f32.

    A thread has rows `lane // 4` and 8 behind it, columns `2 * (lane % 4)` and the next.
    """
    depth = 8 if element == "tf32" else 16
    shape = f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{element}.{element}.f32"
    text = f"{shape} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};"
    constraints = "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f"
    return _assembly(b, text, constraints, [*left, *right, *sums], ["f32"] * 4)


def multiply_fragments(
    b: GpuBuilder,
    kind: str,
    left: Sequence[Register],
    right: Sequence[Register],
    sums: Sequence[Register],
) -> list[Register]:
    """`sums` and the products of fragments (f64, or i32 of four 8-bit integers), by `mma.sync`.

    `kind`: what follows `mma.sync.aligned` in the name.
    """
    letter, type_ = {"f64": ("d", "f64"), "s32": ("r", "i32")}[kind.rsplit(".", 1)[-1]]
    groups = [sums, left, right, sums]
    names = iter(range(sum(map(len, groups))))
    lists = ["{" + ", ".join(f"${next(names)}" for _ in group) + "}" for group in groups]
    text = f"mma.sync.aligned.{kind} {', '.join(lists)};"
    kinds = [f"={letter}"] * len(sums) + [letter] * (len(left) + len(right) + len(sums))
    return _assembly(b, text, ",".join(kinds), [*left, *right, *sums], [type_] * len(sums))


def begin_phases(b: GpuBuilder, counts: Sequence[tuple[Register, int]]) -> None:
    """Initialise objects (`mbarrier`) at addresses of shared memory (i32, multiples of 8).

    A phase of each ends after so many arrivals, and the bytes expected. One thread does this.
    Others know the objects behind the next barrier.
    """
    for at, count in counts:
        text = f"mbarrier.init.shared::cta.b64 [$0], {count};"
        _assembly(b, text, "r,~{memory}", [at], [])
    _assembly(b, "fence.mbarrier_init.release.cluster;", "~{memory}", [], [])


def arrive(b: GpuBuilder, at: Register) -> None:
    """Count one arrival at an `mbarrier`."""
    _assembly(b, "mbarrier.arrive.shared::cta.b64 _, [$0];", "r,~{memory}", [at], [])


def expect_bytes(b: GpuBuilder, at: Register, count: int) -> None:
    """Count one arrival at an `mbarrier`, whose phase lasts until `count` bytes are copied, too."""
    text = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {count};"
    _assembly(b, text, "r,~{memory}", [at], [])


def wait_for_phase(b: GpuBuilder, at: Register, parity: Register) -> None:
    """Wait until the phase of an `mbarrier` with this parity (i32) has ended; -1 has parity 1."""
    wait = "again: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; @!done bra again;"
    _assembly(b, f"{{ .reg .pred done; {wait} }}", "r,r,~{memory}", [at, parity], [])


def copy_box(
    b: GpuBuilder, to: Register, tensor: Pointer, at: Sequence[Register], barrier: Register
) -> None:
    """Begin to copy a box of a tensor map to shared memory; one thread does this.

    `at`: where the box begins (i32), innermost dimension first. Elements outside of the tensor are
    zeros. All bytes of the box count for the phase of `barrier`. `to`: i32, a multiple of 1024.
    """
    rank = len(at)
    places = ", ".join(f"${2 + k}" for k in range(rank))
    text = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[$0], [$1, {{{places}}}], [${2 + rank}];"
    )
    kinds = ["r", "l", *"r" * (rank + 1), "~{memory}"]
    _assembly(b, text, ",".join(kinds), [to, tensor, *at, barrier], [])


def barrier_of_threads(b: GpuBuilder, number: int, threads: int) -> None:
    """Wait for `threads` threads, whole warps, at the barrier `number` (1 to 15) of the block."""
    _assembly(b, f"bar.sync {number}, {threads};", "~{memory}", [], [])


def set_registers(b: GpuBuilder, count: int, is_more: bool) -> None:
    """Give each thread of the warpgroup `count` registers, not as many as the kernel began with.

    `count`: a multiple of 8. More are taken from a pool, once other warpgroups have given them.
    """
    how = "inc" if is_more else "dec"
    _assembly(b, f"setmaxnreg.{how}.sync.aligned.u32 {count};", "~{memory}", [], [])


def fence_for_warpgroups(b: GpuBuilder) -> None:
    """What this thread wrote to shared memory is seen by `wgmma` behind the next barrier."""
    _assembly(b, "fence.proxy.async.shared::cta;", "~{memory}", [], [])


def multiply_by_warpgroup(
    b: GpuBuilder,
    element: str,
    left: Register,
    right: Register,
    advances: Sequence[int],
    transposed: Sequence[bool],
    steps: int,
    sums: Sequence[Register],
    added: Register | None = None,
) -> list[Register]:
    """Begin to add products of 64 x N elements of `element` to `sums` (f32).

    `steps` times 32 bytes along K, as one group. `left`, `right`: descriptors (i64) of shared
    memory; `advances`: bytes from one step to the next in each; `transposed`: rows are contiguous,
    not K. tf32 has contiguous K. The N / 2 sums of a thread: see `fragments.py`. They are there
    after :func:`wait_for_warpgroup`. `added` (i32): 0 where `sums` are anything, and count as 0.
    """
    count = len(sums)
    shape = _shape_of_warpgroup(element, count)
    each = ", ".join(f"${k}" for k in range(count))
    flags = "".join(f", {int(flag)}" for flag in transposed if element != "tf32")
    # Of tied operands each has a number too.
    places = f"${2 * count}", f"${2 * count + 1}"
    lines = [
        "{ .reg .pred added, all; .reg .b64 left, right;",
        f"setp.ne.b32 added, {'1' if added is None else f'${2 * count + 2}'}, 0;",
        "setp.ne.b32 all, 1, 0;",
        "wgmma.fence.sync.aligned;",
    ]
    for step in range(steps):
        if step:
            lines += [
                f"add.s64 {name}, {place}, {step * advance >> 4};"
                for name, place, advance in zip(("left", "right"), places, advances, strict=True)
            ]
        a, c = ("left", "right") if step else places
        flag = "all" if step else "added"
        lines.append(f"{shape} {{{each}}}, {a}, {c}, {flag}, 1, 1{flags};")
    lines.append("wgmma.commit_group.sync.aligned; }")
    more = [] if added is None else [added]
    kinds = ["=f"] * count + [str(k) for k in range(count)]
    kinds += ["l", "l", *("r" for _ in more), "~{memory}"]
    operands = [*sums, left, right, *more]
    return _assembly(b, " ".join(lines), ",".join(kinds), operands, ["f32"] * count)


def multiply_from_registers(
    b: GpuBuilder,
    left: Sequence[Sequence[Register]],
    right: Register,
    advance: int,
    sums: Sequence[Register],
) -> list[Register]:
    """As :func:`multiply_by_warpgroup` for tf32, whose left operand is in registers.

    `left`: four i32 for each step along K. A warp has 16 rows. A thread has `lane // 4` of them and
    8 behind it, elements `lane % 4` of a step and 4 behind it: rows first.
    """
    count = len(sums)
    each = ", ".join(f"${k}" for k in range(count))
    lines = [
        "{ .reg .pred added; .reg .b64 right;",
        "setp.ne.b32 added, 1, 0;",
        "wgmma.fence.sync.aligned;",
    ]
    place = 2 * count  # of tied operands each has a number too
    described = f"${place + 4 * len(left)}"
    for step in range(len(left)):
        if step:
            lines.append(f"add.s64 right, {described}, {step * advance >> 4};")
        words = ", ".join(f"${place + 4 * step + k}" for k in range(4))
        c = "right" if step else described
        shape = _shape_of_warpgroup("tf32", count)
        lines.append(f"{shape} {{{each}}}, {{{words}}}, {c}, added, 1, 1;")
    lines.append("wgmma.commit_group.sync.aligned; }")
    flat = [word for step in left for word in step]
    kinds = ["=f"] * count + [str(k) for k in range(count)] + ["r"] * len(flat) + ["l", "~{memory}"]
    operands = [*sums, *flat, right]
    return _assembly(b, " ".join(lines), ",".join(kinds), operands, ["f32"] * count)


def _shape_of_warpgroup(element: str, count: int) -> str:
    """The instruction for `count` sums of each thread."""
    depth = 8 if element == "tf32" else 16
    return f"wgmma.mma_async.sync.aligned.m64n{2 * count}k{depth}.f32.{element}.{element}"


def wait_for_warpgroup(b: GpuBuilder, groups: int) -> None:
    """Wait until all but the last `groups` groups of products are done."""
    _assembly(b, f"wgmma.wait_group.sync.aligned {groups};", "~{memory}", [], [])


def multiply_lines(
    b: GpuBuilder,
    element: str,
    left: Register,
    right: Register,
    offsets: Sequence[tuple[int, int]],
    columns: int,
) -> list[Register]:
    """Begin sums of products of 64 x `columns` elements of `element`, whose lines run along K.

    `left`, `right`: descriptors (i64) of shared memory; `offsets`: for each 16 elements along K the
    bytes behind those. As one group; see :func:`multiply_by_warpgroup` for the sums.
    """
    count = columns // 2
    shape = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{element}.{element}"
    each = ", ".join(f"${k}" for k in range(count))
    lines = [
        "{ .reg .pred added; .reg .b64 left, right;",
        "wgmma.fence.sync.aligned;",
    ]
    for step, (mine, theirs) in enumerate(offsets):
        lines += [
            f"setp.ne.b32 added, {min(step, 1)}, 0;",
            f"add.s64 left, ${count}, {mine >> 4};",
            f"add.s64 right, ${count + 1}, {theirs >> 4};",
            f"{shape} {{{each}}}, left, right, added, 1, 1, 0, 0;",
        ]
    lines.append("wgmma.commit_group.sync.aligned; }")
    kinds = ["=f"] * count + ["l", "l", "~{memory}"]
    return _assembly(b, " ".join(lines), ",".join(kinds), [left, right], ["f32"] * count)


def multiply_registers(
    b: GpuBuilder,
    element: str,
    left: Sequence[Register],
    right: Register,
    advance: int,
    sums: Sequence[Register],
) -> list[Register]:
    """Begin to add products of 64 x N elements of `element` to `sums`, as one group.

    `left`: four registers (i32) for each 16 elements along K, as of :func:`multiply`. `right`: a
    descriptor (i64) of lines across K; `advance`: bytes from 16 of them to the next 16.
    """
    count = len(sums)
    shape = f"wgmma.mma_async.sync.aligned.m64n{2 * count}k16.f32.{element}.{element}"
    each = ", ".join(f"${k}" for k in range(count))
    lines = [
        "{ .reg .pred added; .reg .b64 right;",
        "setp.ne.b32 added, 1, 0;",
        "wgmma.fence.sync.aligned;",
    ]
    first = 2 * count  # of tied operands each has a number too
    place = f"${first + len(left)}"
    for step in range(len(left) // 4):
        mine = ", ".join(f"${first + 4 * step + k}" for k in range(4))
        lines += [
            f"add.s64 right, {place}, {step * advance >> 4};",
            f"{shape} {{{each}}}, {{{mine}}}, right, added, 1, 1, 1;",
        ]
    lines.append("wgmma.commit_group.sync.aligned; }")
    kinds = ["=f"] * count + [str(k) for k in range(count)]
    kinds += ["r"] * len(left) + ["l", "~{memory}"]
    operands = [*sums, *left, right]
    return _assembly(b, " ".join(lines), ",".join(kinds), operands, ["f32"] * count)


def wait_for_sums(b: GpuBuilder, groups: int, sums: Sequence[Register]) -> list[Register]:
    """`sums` behind all but the last `groups` groups of products."""
    count = len(sums)
    kinds = ["=f"] * count + [str(k) for k in range(count)] + ["~{memory}"]
    text = f"wgmma.wait_group.sync.aligned {groups};"
    return _assembly(b, text, ",".join(kinds), sums, ["f32"] * count)
