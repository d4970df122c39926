"""Kind `loop`: every element of the results on its own, in vector lanes.

The results have equally many elements; the shape of the first is the tile space. Dimensions that
every access keeps together are collapsed: a purely element-wise fusion is one flat loop. Reshapes
that cut inside a dimension refine it. The kernel is written once to find the cuts that its accesses
ask for. A task is a run of `chunk` elements of the innermost factor: a vector loop, then one masked
vector. Results of a few interleaved values are a loop over these (`interleaved.py`), and
concatenations along it have a loop for every piece (`pieces.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.ir.mlir import ir, is_in_loop, terminator
from shlo_disc.lower.cpu import cost, short_factors
from shlo_disc.lower.cpu import transposed_staging as staging
from shlo_disc.lower.cpu.builder import CpuBuilder
from shlo_disc.lower.cpu.interleaved import interleaved_parts
from shlo_disc.lower.cpu.interleaved import store as store_interleaved
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.pieces import Pieces, each_piece, find_pieces
from shlo_disc.lower.cpu.short_factors import Scheme, Values, constant_scheme, looks_up
from shlo_disc.lower.kernels.flags import raise_flags, with_flags
from shlo_disc.lower.kernels.lanes import choose_lanes
from shlo_disc.lower.kernels.names import fusion_name
from shlo_disc.lower.kernels.odometer import odometer
from shlo_disc.lower.kernels.strips import vector_loop
from shlo_disc.lower.kernels.written import Written, written
from shlo_disc.lower.plan import KernelPlan, Launch, Output
from shlo_disc.lower.schedule.iteration_space import shape_tile_space
from shlo_disc.lower.schedule.transposed_operands import Staged, worthwhile
from shlo_disc.lower.values.data_movement import DATA_MOVEMENT
from shlo_disc.lower.values.elemental import Arguments, Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.elementwise import SCALAR_OPS
from shlo_disc.lower.values.index import Ix, Space
from shlo_disc.lower.values.reduction import REDUCTIONS
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.passes.match_single_op import Flag, LoopRecord
from shlo_disc.passes.records import Planned

ELEMENTAL_OPS: frozenset[str] = frozenset({*SCALAR_OPS, *DATA_MOVEMENT, *REDUCTIONS})
"""Op names a fusion of kind `loop` may hold."""

CHUNK = 4096
"""Elements of a task along the innermost factor: about a microsecond of element-wise work. A task's
own overhead (10 ns) does not show, and there are tasks enough for all cores."""


ONE_BY_ONE = 64
"""The same where a region takes no lanes: such an element costs a few hundred cycles at least."""


def emit(fusion: Planned[LoopRecord], machine: Machine) -> KernelPlan:
    """The plan of a `loop` fusion.

    Raises UnsupportedError for an op or element type no rule covers.
    """
    block, record, shapes = fusion.block, fusion.record, fusion.shapes
    roots, shape, constraints = record.roots, record.space, shapes.constraints
    if not roots:
        return KernelPlan(())
    lanes = choose_lanes(block, machine)
    told = {terminator(block).operands[flag.number] for flag in record.flags}
    heavy = any(
        view.operation.name in REDUCTIONS and told.isdisjoint(view.operation.results)
        for view in block.operations
    )
    if heavy:  # Several vectors at once hide the latency of the accumulation.
        lanes = _several(lanes, Expr.product(shape))
    chunk = (lanes or ONE_BY_ONE) if heavy else max(lanes, CHUNK)
    parts: list[list[ir.Value]] = []
    if lanes and not heavy:
        parts = interleaved_parts(roots, shapes, frozenset(block.arguments))
        shape = shape[:-1] if parts else shape

    write = functools.partial(
        _write, fusion, machine, roots, record.flags, lanes=lanes, chunk=chunk, parts=parts
    )
    rows_only = looks_up(block)

    def short_of(written: Written) -> short_factors.Factors | None:
        if heavy or parts or not lanes or rows_only:
            return None
        return constant_scheme(block, written.space.factors, written.crossed, lanes)

    def keeps_columns(written: Written) -> bool:
        short = short_of(written)
        return short is not None and short.scheme is Scheme.COLUMNS

    factors, within, done = shape_tile_space(
        [s for s in shape if not s.is_one],
        write,
        lanes,
        constraints.equal,
        keeps_columns,
        4 if rows_only else 2,
    )
    if within > 1:
        factors = [*factors[:-2], factors[-2] * factors[-1]]
    inner = factors[-1] if factors else Expr.const(1)
    scratch: Expr | int = 0
    short = None if within > 1 else short_of(done)
    staged = [] if heavy or within > 1 else worthwhile(done.crossed, factors)

    short_sizes: list[Expr] = []
    for operand in done.strided:  # the steps between rows of it
        sizes = shapes.shape(operand)
        short_sizes += [Expr.product(sizes[k:]) for k in range(1, len(sizes))]

    if short is not None:
        done = write(factors, short=short)
        places = Expr.min(factors[short.long], Expr.const(short_factors.CHUNK))
        run = Expr.product(factors[k] for k in short.short)
        work = cost.of_block(block, shapes, places * run, machine)
        launch = _launch(fusion, done, short.tasks(factors), work)
        return KernelPlan(_with_flags(fusion, done, launch, machine), short=tuple(short_sizes))
    better_at: tuple[tuple[str, int], ...] = ()
    first = 0 if is_in_loop(fusion.op) else 1  # elsewhere a vector alone takes no time
    short_sizes += [Expr.product(factors[k:]) for k in range(first, len(factors))]
    if staged:
        along = staged[0].along
        better_at = short_factors.better_at([factors[along], inner], len(block.operations))
        short_sizes.append(factors[along])
        scratch, chunk = staging.scratch_bytes(staged), staging.COLUMNS
        done = write(factors, chunk=chunk, staged=staged)
        factors = [ceil_div(f, staging.BLOCK) if k == along else f for k, f in enumerate(factors)]
    elif lanes and not heavy and within == 1 and factors:
        pieces = find_pieces(block, shapes, inner, lanes)
        if pieces is not None:
            done = write(factors, pieces=pieces)
    extent = Expr.product(factors[:-1]) * ceil_div(inner, chunk)
    work = cost.of_block(block, shapes, Expr.min(inner, Expr.const(chunk)), machine)
    launch = _launch(fusion, done, extent, work * (staging.BLOCK if staged else 1), scratch)
    steps = _with_flags(fusion, done, launch, machine)
    return KernelPlan(steps, better_at=better_at, short=tuple(short_sizes))


def _with_flags(
    fusion: Planned[LoopRecord], written: Written, launch: Launch, machine: Machine
) -> tuple[Launch, ...]:
    """`launch`, and what it does not tell of its rows in a launch of its own."""
    told = [flag for flag in fusion.record.flags if Output(flag.number) in launch.args]
    launch = with_flags(launch, told)
    rest = [flag for flag in fusion.record.flags if flag not in told]
    return (launch, *(_of_flag(fusion, flag, machine) for flag in rest))


def _of_flag(fusion: Planned[LoopRecord], flag: Flag, machine: Machine) -> Launch:
    """A launch that tells of the truth values of one flag."""
    block, shapes, chunk = fusion.block, fusion.shapes, Expr.const(CHUNK)
    size, lanes = Expr.product(shapes.shape(flag.truths)), choose_lanes(block, machine)
    done = _write(fusion, machine, [], [flag], [size], lanes=lanes, chunk=CHUNK)
    work = cost.of_block(block, shapes, Expr.min(size, chunk), machine)
    return with_flags(_launch(fusion, done, ceil_div(size, CHUNK), work), [flag])


def _several(lanes: int, elements: Expr) -> int:
    """Lanes of four vectors; fewer where `elements` are known to be fewer."""
    vectors = 4
    while vectors > 1 and elements.is_const and lanes * vectors >= 2 * elements.value:
        vectors //= 2
    return lanes * vectors


def _launch(
    fusion: Planned[LoopRecord], written: Written, tasks: Expr, work: Expr, scratch: Expr | int = 0
) -> Launch:
    """Run a kernel; `work`: the cost of a task."""
    name = fusion_name(fusion.op, "loop")
    return written.arguments.launch(written.made, name, tasks, work, scratch)


def _write(
    fusion: Planned[LoopRecord],
    machine: Machine,
    roots: Sequence[ir.Value],
    flags: Sequence[Flag],
    factors: Sequence[Expr],
    within: int = 1,
    *,
    lanes: int,
    chunk: int,
    staged: Sequence[Staged] = (),
    parts: Sequence[Sequence[ir.Value]] = (),
    pieces: Pieces | None = None,
    short: short_factors.Factors | None = None,
) -> Written:
    """The kernel; `within`: the size of the last factor where lanes run over the last two.

    Those of `flags` that it does not tell on the way are not among its arguments.
    `parts`: what each of `roots` interleaves; the factors are those of one part then. `pieces`: see
    `pieces.py`. `short`: see `short_factors.py`.
    """
    b, shapes = CpuBuilder(machine), fusion.shapes
    space = Space(b, shapes.constraints, factors, lanes)
    e = Elemental(b, space, shapes, fusion.block, Arguments())
    outputs = [Output(i) for i in range(len(roots))]

    def values_here(mask: Mask | None) -> Values:
        e.tail = mask
        count = len(space.factors)
        return [
            [
                e.value_at(v, space.root(e.shape(v), 0, count) if e.shape(v) else (), mask)
                for v in of_root
            ]
            for of_root in parts or [[r] for r in roots]
        ]

    def store(values: Values, mask: Mask | None) -> None:
        for output, root, of_root in zip(outputs, roots, values, strict=True):
            at = space.force(space.flat_lazy(0, len(space.factors)))
            if parts:
                store_interleaved(e, output, root, of_root, at, mask)
            else:
                e.store(output, element_of(root), of_root[0], at, mask)

    def tell(count: int, mask: Mask | None) -> None:
        """Flags of what the first `count` factors number."""
        number = Expr.product(space.factors[:count])
        own = [f for f in flags if space.same(Expr.product(e.shape(f.truths)), number)]
        raise_flags(e, own, lambda flag: space.root(e.shape(flag.truths), 0, count), mask)

    def store_all(mask: Mask | None) -> None:
        values = values_here(mask)
        tell(len(space.factors), mask)
        store(values, mask)

    if not factors:
        with b.loop(b.lo, b.hi, 1, hint="task"):
            store_all(None)
        return written(e)
    size = factors[-1]
    if within > 1:
        factors = [*factors[:-2], factors[-2] * size]
        size = factors[-1]

    def at(rows: Sequence[IndexValue], ix: Ix) -> None:
        """The current place: the digits of all factors but the last, and the columns."""
        space.tiles = [*(Ix(d) for d in rows), ix]
        if within > 1:
            lane = range(lanes)
            outer = space.steps(ix.base // within, [n // within for n in lane])
            inner = space.steps(b.index(0), [n % within for n in lane], multiple=0)
            space.tiles = [*space.tiles[:-1], outer, inner]
            space.columns = (len(rows), ix)

    def columns(
        first: IndexValue, last: IndexValue, body: Callable[[Ix, Mask | None, list[Register]], None]
    ) -> None:
        if pieces is None:
            vector_loop(b, space, first, last, size, lanes, body)
        else:
            each_piece(e, pieces, first, last, body)

    n = b.param(size, opaque=size.is_const and size.value > lanes)
    if len(factors) == 1:
        first = b.lo * chunk
        last = b.min(b.hi * chunk, n)

        def flat(ix: Ix, mask: Mask | None, _: list[Register]) -> None:
            at([], ix)
            store_all(mask)

        columns(first, last, flat)
        return written(e)
    if short is not None:
        short_factors.write(e, short, short_factors.Stores(roots, values_here, store))
        return written(e)
    one_chunk = size.is_const and size.value <= chunk
    sizes = [b.param(f) for f in factors[:-1]]
    if staged:
        along = staged[0].along
        sizes[along] = b.param(ceil_div(factors[along], staging.BLOCK))
    if not one_chunk:
        sizes.append(b.param(ceil_div(size, chunk)))

    def task(number: IndexValue, digits: list[IndexValue]) -> None:
        rows = digits if one_chunk else digits[:-1]
        if one_chunk and not staged:
            space.flats[0, len(rows)] = number
        first = b.index(0) if one_chunk else digits[-1] * chunk
        last = n if one_chunk else b.min(first + chunk, n)

        def inner(ix: Ix, mask: Mask | None, _: list[Register]) -> None:
            at(rows, ix)
            store_all(mask)

        if not staged:
            if within == 1:
                at(rows, Ix(first))
                tell(len(rows), None)
            columns(first, last, inner)
            return

        def set_tile(u: IndexValue, v: IndexValue) -> None:
            space.tiles = [*(Ix(d) for d in rows), Ix(v)]
            space.tiles[along] = Ix(u)

        start = rows[along] * staging.BLOCK
        count = b.min(b.param(factors[along]) - start, staging.BLOCK)
        staging.fill(e, machine, list(staged), set_tile, first, last, start, count)
        with b.loop(0, count, 1, hint="u") as loop:
            rows = [*rows[:along], start + loop.index, *rows[along + 1 :]]
            staging.use(e, list(staged), loop.index, first)
            vector_loop(b, space, first, last, size, lanes, inner)

    odometer(b, sizes, task)
    return written(e)
