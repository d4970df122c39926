"""From a `dense` fusion to launches: which variants there are and which sizes take which."""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.cpu.dense.gemm import Gemm, Operand, pack_kernel
from shlo_disc.lower.cpu.dense.problem import Axis, Problem, analyze_dense
from shlo_disc.lower.cpu.dense.tiles import (
    Blocks,
    Tile,
    at_least_one,
    blocks,
    ceil_div,
    choose_tile,
)
from shlo_disc.lower.cpu.target import Target
from shlo_disc.lower.kernel import (
    Condition,
    If,
    Input,
    Kernel,
    KernelPlan,
    Launch,
    Output,
    Pack,
    Step,
    Workspace,
)
from shlo_disc.mlir import ir

__all__ = ["emit_dense"]

ONE = Expr.const(1)

IN_PLACE_DEPTH = 512
"""K up to which B is read in place when its columns are neighbours: its rows then stay in L1 and L2
while they are reused. Beyond, each row is its own page."""


def emit_dense(fusion: ir.Operation, shapes: ShapeAnalysis, target: Target) -> KernelPlan:
    """The plan of a `dense` fusion: one dot_general, perhaps transposes in front and behind.

    A right operand shared by all batch entries is packed into panels, which the runtime keeps
    beside an immutable buffer; others are read in place or packed piece by piece by the tasks.

    Raises UnsupportedError for an element type that is not compiled.
    """
    problem = analyze_dense(fusion, shapes)
    return _Planner(problem, target).plan()


def _is_unit(size: Expr, stride: Expr) -> bool:
    return bool(stride == ONE or (size.is_const and size.value == 1))


class _Planner:
    def __init__(self, problem: Problem, target: Target) -> None:
        p = self.p = problem
        self.target = target
        self.tile: Tile = choose_tile(p.n.size, p.compute, target)
        self.m, self.n, self.depth = p.m.size, p.n.size, p.depth
        self.blocks: Blocks = blocks(
            self.m, self.n, self.depth, p.batches, self.tile, p.compute, target.cores
        )
        one_k = len(p.k) == 1
        k = p.k[-1]
        self.a = Operand(
            p.a, _is_unit(p.m.size, p.m.a), _is_unit(k.size, k.a), _moves(p.batch, "a")
        )
        self.b = Operand(
            p.b, _is_unit(p.n.size, p.n.b), _is_unit(k.size, k.b), _moves(p.batch, "b")
        )
        same_type = p.a.storage == p.compute.register
        self.a_in_place = same_type and one_k and self.a.k_unit
        same_type = p.b.storage == p.compute.register
        self.b_in_place = same_type and one_k and self.b.row_unit
        self.workspaces: tuple[Expr, ...] = ()

    # ---------------------------------------------------------------- steps

    def plan(self) -> KernelPlan:
        if any(self.b.batch):
            steps = self._in_place_if(Condition(self.depth, "<=", Expr.const(IN_PLACE_DEPTH)))
        else:
            steps = (self._pack(),)
        return KernelPlan(steps, self.workspaces)

    def _in_place_if(self, condition: Condition) -> tuple[Step, ...]:
        """B in place where `condition` holds or few rows would pay for a copy of it."""
        if not self.b_in_place:
            return (self._gemm("scratch"),)
        direct, scratch = (self._gemm("direct"),), (self._gemm("scratch"),)
        few = Condition(self.m, "<=", Expr.const(self.tile.rows))
        chosen = _decided(few)
        if chosen is not None:
            return direct if chosen else (_if(condition, direct, scratch))
        return _if(condition, direct, (If(few, direct, scratch),))

    def _pack(self) -> Pack:
        """B as panels, kept by the runtime where it can; else few rows read it in place."""
        p, tile = self.p, self.tile
        panels = ceil_div(self.n, tile.columns)
        size = panels * tile.columns * self.depth * p.compute.bytes
        self.workspaces = (size,)
        text, params = pack_kernel(
            self.b, tile, p.compute, len(p.k), {**self._sizes(), "panels": panels}
        )
        # One nanosecond for about four elements.
        cost = self.depth * (tile.columns // 4) + 50
        fill = Launch(
            Kernel("dense_pack", text), (Input(p.b_input), Workspace(0)), params, panels, cost
        )
        packed = (self._gemm("packed"),)
        otherwise: tuple[Step, ...] | None = None
        if self.b_in_place:
            few = Condition(self.m, "<=", Expr.const(tile.rows))
            otherwise = _if(few, (self._gemm("direct"),), (fill, *packed))
        axes = [(p.n.size, p.n.b), *((k.size, k.b) for k in p.k)]
        layout = ",".join(f"{size}:{stride}" for size, stride in axes)
        key = f"panels of {tile.columns} {p.compute.register} from {p.b.name} [{layout}]"
        return Pack(p.b_input, key, 0, fill, packed, otherwise)

    # ---------------------------------------------------------------- one launch

    def _gemm(self, b_mode: str) -> Launch:
        p, tile, at = self.p, self.tile, self.blocks
        gemm = Gemm(
            a=self.a,
            b=self.b,
            c=p.c,
            compute=p.compute,
            tile=tile,
            a_mode="direct" if self.a_in_place else "scratch",
            b_mode=b_mode,
            c_unit=_is_unit(p.n.size, p.n.c),
            k_axes=len(p.k),
            fma="fma" in self.target.features or self.target.vector_bytes == 64,
        )
        sizes = self._sizes()
        item = p.compute.bytes
        scratch = Expr.const(0)
        if b_mode == "scratch":
            scratch = scratch + at.n * at.k * item
        sizes["a_scratch"] = _aligned(scratch)
        if gemm.a_mode == "scratch":
            sizes["a_row"] = ceil_div(at.k, tile.lanes) * tile.lanes
            scratch = sizes["a_scratch"] + at.m * sizes["a_row"] * item
        sizes["c_scratch"] = _aligned(scratch)
        if not gemm.c_holds_sums:
            many = Expr.min(at.k_count - 1, 1)
            sizes["many"] = many
            sizes["c_row"] = many * (at.n - tile.columns) + tile.columns
            room = many * (at.m - tile.rows) + tile.rows
            scratch = sizes["c_scratch"] + room * sizes["c_row"] * item
        text, params = gemm.write(sizes)
        some = Expr.min(self.m, 1) * Expr.min(self.n, 1)
        return Launch(
            Kernel(f"dense_{b_mode}", text),
            (Input(p.a_input), Workspace(0) if b_mode == "packed" else Input(p.b_input), Output(0)),
            params,
            p.batches * at.m_count * at.n_count * some,
            self._cost(gemm),
            scratch,
        )

    def _sizes(self) -> dict[str, Expr]:
        p, at = self.p, self.blocks
        sizes = {
            "M": self.m, "N": self.n, "K": self.depth,
            "MC": at.m, "NC": at.n, "KC": at.k, "MB": at.m_count, "NB": at.n_count,
            "a_m": p.m.a, "a_k": p.k[-1].a, "b_n": p.n.b, "b_k": p.k[-1].b,
            "c_m": p.m.c, "c_n": p.n.c,
        }  # fmt: skip
        for i, axis in enumerate(p.batch):
            sizes |= {f"s{i}": axis.size, f"a{i}": axis.a, f"b{i}": axis.b, f"c{i}": axis.c}
        for i, axis in enumerate(p.k):
            sizes |= {f"k{i}": axis.size, f"ka{i}": axis.a, f"kb{i}": axis.b}
        return sizes

    def _cost(self, gemm: Gemm) -> Expr:
        """Nanoseconds of a task: arithmetic, or the traffic of B where rows are few."""
        at, tile = self.blocks, self.tile
        # A step of the register tile takes half a cycle per accumulator at 3 GHz (three cycles for
        # 64-bit integers); few rows cost no less than B's trip from L3, a nanosecond a vector.
        slow = {"i64": 6, "i32": 3}.get(gemm.compute.register, 1)
        per_step = max(1, tile.rows * tile.vectors * slow // 6)
        panels = at.n // tile.columns
        rows = Expr.min(at.m, at_least_one(self.m))
        tiles = ceil_div(rows, tile.rows)
        depth = at.k * at.k_count
        return panels * tiles * (depth * per_step + 20) + panels * depth + 100


def _moves(batch: tuple[Axis, ...], array: str) -> tuple[bool, ...]:
    return tuple(getattr(axis, array) != 0 for axis in batch)


def _decided(condition: Condition) -> bool | None:
    """The answer when both sides are numbers (conditions here are all <=)."""
    if condition.lhs.is_const and condition.rhs.is_const:
        return condition.lhs.value <= condition.rhs.value
    return None


def _if(
    condition: Condition, then: tuple[Step, ...], otherwise: tuple[Step, ...]
) -> tuple[Step, ...]:
    chosen = _decided(condition)
    if chosen is None:
        return (If(condition, then, otherwise),)
    return then if chosen else otherwise


def _aligned(size: Expr) -> Expr:
    return ceil_div(size, 64) * 64
