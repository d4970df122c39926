"""Kind `dense`: every layout, size and type against sums in float64 (or exact integers)."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shlo_disc.base.errors import InternalError, UnsupportedError
from shlo_disc.lower.cpu.dense import emit_dense
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.plan import If, KernelPlan, LateText, Launch, Pack, Step
from tests.cases import crossed, slow
from tests.lower.helpers import DTYPES, Emitted, fusion_text, launches, plan_of, run, sample, tensor

SIZES = [0, 1, 2, 3, 5, 7, 13, 16, 17, 31, 48, 64, 65, 100, 127, 128]
EPS = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}


@dataclasses.dataclass(frozen=True)
class Dot:
    """A dot_general written as einsum: letters are dimensions, `perm` a transpose behind it."""

    spec: str
    batch: str
    contract: str
    sizes: dict[str, str]
    lhs_type: str = "f32"
    rhs_type: str = "f32"
    type: str = "f32"
    perm: tuple[int, ...] | None = None

    @property
    def sides(self) -> tuple[str, str]:
        left, right = self.spec.split(",")
        return left, right

    @property
    def out(self) -> str:
        left, right = self.sides
        gone = self.batch + self.contract
        return self.batch + "".join(c for c in left + right if c not in gone)

    @property
    def permuted(self) -> str:
        return self.out if self.perm is None else "".join(self.out[p] for p in self.perm)

    def text(self) -> str:
        def where(letters: str, side: str) -> list[int]:
            return [side.index(c) for c in letters]

        def of(letters: str) -> str:
            return ",".join(self.sizes[c] for c in letters)

        left, right = self.sides
        lt, rt = tensor(of(left), self.lhs_type), tensor(of(right), self.rhs_type)
        ot = tensor(of(self.out), self.type)
        body = f"""%d = "stablehlo.dot_general"(%x, %y) {{dot_dimension_numbers = #stablehlo.dot<
            lhs_batching_dimensions = {where(self.batch, left)},
            rhs_batching_dimensions = {where(self.batch, right)},
            lhs_contracting_dimensions = {where(self.contract, left)},
            rhs_contracting_dimensions = {where(self.contract, right)}>}} : ({lt}, {rt}) -> {ot}"""
        result = "d"
        if self.perm is not None:
            pt = tensor(of(self.permuted), self.type)
            body += f"\n%e = stablehlo.transpose %d, dims = {list(self.perm)} : ({ot}) -> {pt}"
            result = "e"
        return fusion_text(
            "dense",
            [f"x: {of(left)} {self.lhs_type}", f"y: {of(right)} {self.rhs_type}"],
            body,
            [f"{result}: {of(self.permuted)} {self.type}"],
        )

    def check(self, emitted: Emitted, env: dict[str, int], seed: int = 0) -> None:
        left, right = self.sides

        def shape(letters: str) -> tuple[int, ...]:
            sizes = (self.sizes[c] for c in letters)
            return tuple(int(s) if s.isdigit() else env[s] for s in sizes)

        x, y = (
            sample(shape(left), self.lhs_type, seed),
            sample(shape(right), self.rhs_type, seed + 1),
        )
        (got,) = run(emitted, [x, y], env)
        spec = f"{self.spec}->{self.permuted}"
        if DTYPES[self.type].kind in "iub":
            wide = np.einsum(spec, x.astype(np.int64), y.astype(np.int64))
            want = wide != 0 if self.type == "i1" else wide.astype(DTYPES[self.type])
            np.testing.assert_array_equal(got, want)
            return
        want = np.einsum(spec, x.astype(np.float64), y.astype(np.float64))
        scale = np.einsum(spec, np.abs(x.astype(np.float64)), np.abs(y.astype(np.float64)))
        depth = int(np.prod(shape(self.contract), dtype=np.int64))
        sum_eps = EPS["f64" if "f64" in (self.type, self.lhs_type) else "f32"]
        bound = scale * depth * sum_eps + np.abs(want) * EPS[self.type] + 1e-300
        error = np.abs(got.astype(np.float64) - want)
        assert error.shape == want.shape
        assert (error <= bound).all(), (env, error.max(), bound.flat[error.argmax()])


def symbolic(spec: str, batch: str, contract: str, **kwargs: object) -> Dot:
    return Dot(spec, batch, contract, {c: c for c in spec if c != ","}, **kwargs)  # type: ignore[arg-type]


def emit(dot: Dot, target: Machine | None = None) -> Emitted:
    return plan_of(emit_dense, dot.text(), target)


def unpacked(emitted: Emitted) -> Emitted:
    """The plan as it runs when the runtime keeps no packed copy."""
    steps: list[Step] = []
    for step in emitted.plan.steps:
        if isinstance(step, Pack):
            steps += step.otherwise
        else:
            steps.append(step)
    return dataclasses.replace(emitted, plan=KernelPlan(tuple(steps), emitted.plan.workspaces))


MATMUL = symbolic("mk,kn", "", "k")


def test_matmul_sizes() -> None:
    emitted = emit(MATMUL)

    @settings(max_examples=40, deadline=None)
    @given(*[st.sampled_from(SIZES)] * 3, st.booleans())
    def check(m: int, k: int, n: int, packed: bool) -> None:
        MATMUL.check(emitted if packed else unpacked(emitted), {"m": m, "k": k, "n": n})

    check()


@pytest.mark.parametrize("n", [1, 10, 16, 17, 32, 40, 48, 64, 96, 100])
def test_static_columns_choose_their_own_tile(n: int) -> None:
    dot = Dot("mk,kn", "", "k", {"m": "m", "k": "k", "n": str(n)})
    emitted = emit(dot)
    for m, k in [(1, 33), (12, 1), (13, 64), (29, 7), (130, 3)]:
        dot.check(emitted, {"m": m, "k": k})


@pytest.mark.parametrize("k", [1024, 1537, 2500, 4099])
def test_several_blocks_of_k(k: int) -> None:
    for dot in (MATMUL, dataclasses.replace(MATMUL, lhs_type="bf16", rhs_type="bf16", type="bf16")):
        emitted = emit(dot)
        for m, n in [(1, 5), (9, 70), (131, 130)]:
            dot.check(emitted, {"m": m, "k": k, "n": n})
            dot.check(unpacked(emitted), {"m": m, "k": k, "n": n})


LAYOUTS = [
    # The transposes of a plain product.
    ("mk,kn", "", "k", None),
    ("km,kn", "", "k", None),
    ("mk,nk", "", "k", None),
    ("km,nk", "", "k", None),
    ("mk,kn", "", "k", (1, 0)),
    ("km,nk", "", "k", (1, 0)),
    # No free, no contracted, only batch dimensions.
    ("k,k", "", "k", None),
    ("k,kn", "", "k", None),
    ("mk,k", "", "k", None),
    ("m,n", "", "", None),
    ("b,b", "b", "", None),
    ("bk,bk", "b", "k", None),
    ("kb,kb", "b", "k", None),
    ("bm,bn", "b", "", None),
    # Batches in all places.
    ("bmk,bkn", "b", "k", None),
    ("mbk,knb", "b", "k", None),
    ("mkb,bkn", "b", "k", None),
    ("bmk,bkn", "b", "k", (1, 2, 0)),
    ("bmk,bkn", "b", "k", (1, 0, 2)),
    # Attention: scores, and values written back in place of a transpose.
    ("bthd,bshd", "bh", "d", None),
    ("bhts,bshd", "bh", "s", None),
    ("bhts,bshd", "bh", "s", (0, 2, 1, 3)),
    ("bhd,bshd", "bh", "d", None),
    # Groups that are no single axis.
    ("bhtd,hde", "", "hd", None),
    ("bthd,hde", "", "hd", None),
    ("bthd,dhe", "", "hd", None),
    ("btd,dhe", "", "d", (0, 2, 1, 3)),
    ("btd,hde", "", "d", None),
    ("xky,pkq", "", "k", (1, 3, 0, 2)),
    ("xkyl,lpkq", "", "lk", None),
]


@pytest.mark.parametrize(("spec", "batch", "contract", "perm"), LAYOUTS)
def test_layouts(spec: str, batch: str, contract: str, perm: tuple[int, ...] | None) -> None:
    dot = symbolic(spec, batch, contract, perm=perm)
    emitted = emit(dot)
    letters = sorted(set(spec) - {","})
    shapes = [(1, 1, 1, 1, 1, 1), (2, 3, 2, 5, 4, 3), (3, 17, 4, 2, 33, 2), (5, 20, 18, 3, 2, 7)]
    for seed, sizes in enumerate(shapes):
        env = dict(zip(letters, sizes, strict=False))
        dot.check(emitted, env, seed)
        dot.check(unpacked(emitted), env, seed)
    for empty in letters:
        dot.check(emitted, {c: 0 if c == empty else 3 for c in letters})


@st.composite
def random_dots(draw: st.DrawFn) -> tuple[Dot, dict[str, int]]:
    groups = [draw(st.integers(0, 2)) for _ in range(4)]
    names = iter("abcdefgh")
    batch, contract, left, right = ("".join(itertools.islice(names, count)) for count in groups)
    lhs = "".join(draw(st.permutations(batch + contract + left)))
    rhs = "".join(draw(st.permutations(batch + contract + right)))
    rank = len(batch + left + right)
    perm = tuple(draw(st.permutations(range(rank)))) if draw(st.booleans()) and rank else None
    env = {c: draw(st.sampled_from([1, 2, 3, 5, 9, 17])) for c in batch + contract + left + right}
    for c, size in list(env.items()):  # the interpreter of GPU code runs these, too
        if math.prod(env.values()) > 20_000:
            env[c] = min(size, 2)
    return symbolic(f"{lhs},{rhs}", batch, contract, perm=perm), env


@settings(max_examples=30, deadline=None)
@given(random_dots())
def test_any_layout(case: tuple[Dot, dict[str, int]]) -> None:
    dot, env = case
    dot.check(emit(dot), env)


TYPES = [
    ("f64", "f64", "f64"),
    ("bf16", "bf16", "bf16"),
    ("bf16", "bf16", "f32"),
    ("f16", "f16", "f16"),
    ("f16", "f16", "f32"),
    ("f32", "f32", "bf16"),
    ("f32", "f32", "f64"),
    ("i8", "i8", "i8"),
    ("i8", "i8", "i32"),
    ("ui8", "ui8", "ui8"),
    ("ui8", "ui8", "i32"),
    ("i16", "i16", "i16"),
    ("i32", "i32", "i32"),
    ("ui32", "ui32", "ui32"),
    ("i64", "i64", "i64"),
    ("ui64", "ui64", "ui64"),
    ("i8", "i8", "f32"),
    ("i1", "i1", "i1"),
]


@pytest.mark.parametrize(("spec", "types"), crossed(["mk,kn", "km,nk"], TYPES))
def test_types(spec: str, types: tuple[str, str, str]) -> None:
    dot = symbolic(spec, "", "k", lhs_type=types[0], rhs_type=types[1], type=types[2])
    emitted = emit(dot)
    for m, k, n in [(1, 1, 1), (5, 0, 3), (7, 19, 70), (33, 40, 17)]:
        dot.check(emitted, {"m": m, "k": k, "n": n})


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("features", [frozenset(), frozenset({"avx2", "fma"})])
def test_narrower_targets(width: int, features: frozenset[str]) -> None:
    target = Machine(vector_bytes=width, cores=4, features=features)
    for spec in ("mk,kn", "km,nk"):
        dot = symbolic(spec, "", "k")
        emitted = emit(dot, target)
        for m, k, n in [(1, 1, 1), (7, 19, 70), (33, 40, 17)]:
            dot.check(emitted, {"m": m, "k": k, "n": n})


def test_few_rows_read_columns_along_k_in_place() -> None:
    for types in (("f32",) * 3, ("bf16",) * 3, ("i8", "i8", "i32"), ("f64",) * 3):
        dot = symbolic("bmk,bnk", "b", "k", lhs_type=types[0], rhs_type=types[1], type=types[2])
        emitted = emit(dot)
        assert any(x.kernel.name == "dense_dots" for x in launches(emitted.plan.steps))
        for m, k, n in [(1, 1, 1), (1, 64, 100), (2, 37, 9), (5, 16, 8), (3, 0, 4)]:
            dot.check(emitted, {"b": 3, "m": m, "k": k, "n": n})


def variants(steps: Sequence[Step], env: dict[str, int]) -> set[str]:
    """The kernels that run at the sizes of `env`; "panels": those of a Pack."""
    found: set[str] = set()
    for step in steps:
        if isinstance(step, If):
            found |= variants(step.then if step.condition.holds(env) else step.otherwise, env)
        elif isinstance(step, Pack):
            found.add("panels")
        else:
            found.add(step.kernel.name)
    return found


WIDE = Machine(vector_bytes=64, cores=2, features=frozenset({"avx2", "fma", "avx512f"}))
NARROW = Machine(vector_bytes=32, cores=2, features=frozenset({"avx2", "fma"}))


@pytest.mark.parametrize("types", [("f32",) * 3, ("bf16",) * 3, ("i8", "i8", "i32")])
def test_small_products_have_the_bits_of_others(types: tuple[str, str, str]) -> None:
    dot = symbolic("bmk,bkn", "b", "k", lhs_type=types[0], rhs_type=types[1], type=types[2])
    emitted = emit(dot, NARROW)
    # With columns of zeros behind it, a product is for another kernel.
    for m, k, n in [(2, 1, 1), (2, 8, 3), (3, 3, 3), (4, 4, 4), (5, 7, 6), (6, 2, 8), (3, 0, 5)]:
        sizes = {"b": 3, "m": m, "k": k, "n": n}
        assert variants(emitted.plan.steps, sizes) == {"dense_small"}
        dot.check(emitted, sizes)
        x, y = sample((3, m, k), types[0]), sample((3, k, n), types[1], 1)
        (got,) = run(emitted, [x, y])
        more = np.concatenate([y, np.zeros((3, k, 9), y.dtype)], 2)
        assert variants(emitted.plan.steps, sizes | {"n": n + 9}) != {"dense_small"}
        (other,) = run(emitted, [x, more])
        np.testing.assert_array_equal(got, other[:, :, :n])
    for m, k, n in [(1, 3, 3), (7, 3, 3), (3, 9, 3), (3, 3, 9)]:
        sizes = {"b": 3, "m": m, "k": k, "n": n}
        assert variants(emitted.plan.steps, sizes) != {"dense_small"}
    steps = emit(MATMUL, NARROW).plan.steps
    assert variants(steps, {"m": 3, "k": 3, "n": 3}) != {"dense_small"}, "a call takes longer"


BATCHES = [
    # Matrix products, their transposes, vectors; a matrix that all share; batches behind the rows.
    ("bmk,bkn", "b", "k", {"m": 3, "k": 3, "n": 3}, ("f32",) * 3, (0, 1, 2)),
    ("bmk,bkn", "b", "k", {"m": 4, "k": 2, "n": 3}, ("f64",) * 3, (0, 1, 2)),
    ("bkm,bnk", "b", "k", {"m": 2, "k": 3, "n": 2}, ("i8", "i8", "i32"), (0, 1, 2)),
    ("bmk,bk", "b", "k", {"m": 3, "k": 3}, ("bf16",) * 3, (0, 1)),
    ("bm,bn", "b", "", {"m": 3, "n": 5}, ("f32",) * 3, (0, 1, 2)),
    ("abmk,abkn", "ab", "k", {"m": 2, "k": 2, "n": 2}, ("f32",) * 3, (0, 1, 3, 2)),
]


@pytest.mark.parametrize(("spec", "batch", "contract", "tiny", "types", "perm"), BATCHES)
def test_tiny_matrices_are_in_lanes_of_their_batch(
    spec: str,
    batch: str,
    contract: str,
    tiny: dict[str, int],
    types: tuple[str, str, str],
    perm: tuple[int, ...],
) -> None:
    sizes = {c: str(tiny.get(c, c)) for c in spec if c != ","}
    dot = Dot(spec, batch, contract, sizes, *types, perm=perm)
    for target in (WIDE, NARROW):
        emitted = emit(dot, target)
        assert variants(emitted.plan.steps, {}) == {"dense_batches"}
        for b in (0, 1, 17, 530):
            dot.check(emitted, {"a": 2, "b": b})


def test_matrices_that_may_be_long_are_not_in_lanes_of_their_batch() -> None:
    # Without rows and columns no matrix has elements, at whatever depth.
    for tiny in ({"m": 5, "k": 4, "n": 3}, {"m": 3, "k": 3}, {"m": 0, "n": 0}):
        sizes = {c: str(tiny.get(c, c)) for c in "bmkn"}
        for dtype in ("f32", "i32"):
            steps = emit(Dot("bkm,bkn", "b", "k", sizes, dtype, dtype, dtype)).plan.steps
            assert variants(steps, {"b": 9, "k": 3, "n": 3}) != {"dense_batches"}


@pytest.mark.parametrize("target", [WIDE, NARROW])
def test_few_rows_read_a_shared_right_operand_in_place(target: Machine) -> None:
    steps = emit(symbolic("mk,nk", "", "k"), target).plan.steps
    for m, k, n, in_place in [
        (1, 3, 9, True),
        (2, 255, 9, True),
        (3, 255, 9, False),
        (3, 256, 9, True),
        (5, 256, 9216, True),
        (5, 256, 9217, False),
        (2, 256, 9217, True),
        (6, 256, 9, False),
    ]:
        assert ("panels" not in variants(steps, {"m": m, "k": k, "n": n})) == in_place, (m, k, n)


def test_fewer_rows_than_a_register_tile_has_are_few() -> None:
    # 96 columns have tiles of 8 rows.
    steps = emit(Dot("mk,nk", "", "k", {"m": "m", "k": "300", "n": "96"}), WIDE).plan.steps
    assert variants(steps, {"m": 7}) == {"dense_dots"}
    assert variants(steps, {"m": 8}) == {"panels"}


@pytest.mark.parametrize(
    ("types", "target"),
    crossed(
        [("f32",) * 3, ("bf16", "bf16", "f32"), ("f64",) * 3], [None, NARROW],
        also=[(("bf16", "bf16", "f32"), None)],
    ),
)  # fmt: skip
def test_every_number_of_rows_in_place(target: Machine | None, types: tuple[str, str, str]) -> None:
    dot = symbolic("mk,nk", "", "k", lhs_type=types[0], rhs_type=types[1], type=types[2])
    emitted = emit(dot, target)
    for m, (k, n) in itertools.product(range(1, 8), [(256, 8), (263, 70)]):
        dot.check(emitted, {"m": m, "k": k, "n": n})


def test_non_finite_values_stay_in_their_rows_and_columns() -> None:
    emitted = emit(MATMUL)
    x, y = sample((9, 20), "f32"), sample((20, 70), "f32", 1)
    x[3, 4], y[5, 6] = np.nan, np.inf
    for plan in (emitted, unpacked(emitted)):
        (got,) = run(plan, [x, y])
        with np.errstate(invalid="ignore"):
            want = x @ y
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(want))


def test_layers_of_different_sizes_share_their_kernels() -> None:
    texts = []
    for k, n in [(768, 768), (768, 3072), (3072, 768)]:
        emitted = emit(Dot("btk,kn", "", "k", {"b": "b", "t": "t", "k": str(k), "n": str(n)}))
        texts.append({launch.kernel.text for launch in launches(emitted.plan.steps)})
    assert texts[0] == texts[1] == texts[2]


def test_weights_are_packed_and_activations_are_not() -> None:
    (cut,) = emit(symbolic("btk,kn", "", "k")).plan.steps
    assert isinstance(cut, If)  # long sums of few results
    (few,) = cut.otherwise
    assert isinstance(few, If)  # few columns
    (step,) = few.otherwise
    assert isinstance(step, Pack)
    batched = emit(symbolic("bmk,bkn", "b", "k")).plan.steps
    assert not any(isinstance(step, Pack) for cut in batched for step in cut.otherwise)


def test_tasks_cover_both_cores_and_their_cost_grows_with_the_work() -> None:
    (pack,) = emit(Dot("mk,kn", "", "k", {"m": "m", "k": "768", "n": "768"})).plan.steps
    assert isinstance(pack, Pack)
    (launch,) = pack.then
    assert isinstance(launch, Launch)
    assert launch.extent.evaluate({"m": 16}) >= 2
    assert launch.cost.evaluate({"m": 16}) < launch.cost.evaluate({"m": 128})


def test_float_sums_of_integers_are_refused_with_advice() -> None:
    dot = symbolic("mk,kn", "", "k", lhs_type="f32", rhs_type="f32", type="i32")
    with pytest.raises(UnsupportedError, match="use a float preferred_element_type"):
        emit(dot)


def test_a_fusion_of_another_form_is_a_mistake_of_the_planner() -> None:
    text = fusion_text(
        "dense", ["x: m f32"], "%y = stablehlo.negate %x : tensor<?xf32>", ["y: m f32"]
    )
    with pytest.raises(InternalError, match="no product"):
        plan_of(emit_dense, text)


FEW = [(16, 0, 3), (16, 1, 1), (17, 19, 2), (33, 300, 5), (130, 37, 7), (70, 64, 24), (50, 16, 25)]


FEW_TYPES = [
    ("f32",) * 3, ("f64",) * 3, ("bf16",) * 3, ("f16", "f16", "f32"), ("i8", "i8", "i32"),
    ("i64",) * 3,
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "batch", "kernel", "types"),
    [
        *itertools.product(["mk,kn"], [""], ["dense_dots"], FEW_TYPES[::2]),
        *itertools.product(["km,kn"], [""], ["dense_direct"], FEW_TYPES[1::2]),
        *slow(itertools.product(["mk,kn"], [""], ["dense_dots"], FEW_TYPES[1::2])),
        *slow(itertools.product(["km,kn"], [""], ["dense_direct"], FEW_TYPES[::2])),
        ("bmk,bkn", "b", "dense_dots", FEW_TYPES[0]),
        ("km,bkn", "", "dense_direct", FEW_TYPES[0]),
        ("bmk,nk", "", "dense_dots", FEW_TYPES[2]),
    ],
)
def test_few_columns_are_rows(
    spec: str, batch: str, kernel: str, types: tuple[str, str, str]
) -> None:
    dot = symbolic(spec, batch, "k", lhs_type=types[0], rhs_type=types[1], type=types[2])
    for target in (None, NARROW) if types[0] in ("f32", "bf16") else (None,):
        emitted = emit(dot, target)
        b = 3 if batch else 1
        assert variants(emitted.plan.steps, {"b": b, "m": 40, "k": 300, "n": 3}) == {kernel}
        assert kernel not in variants(emitted.plan.steps, {"b": b, "m": 40, "k": 300, "n": 200})
        for m, k, n in FEW:
            dot.check(emitted, {"b": 3, "m": m, "k": k, "n": n})


def test_few_columns_of_sums_over_two_dimensions() -> None:
    dot = symbolic("mjk,kjn", "", "jk")
    emitted = emit(dot)
    assert variants(emitted.plan.steps, {"m": 40, "j": 3, "k": 9, "n": 3}) == {"dense_dots"}
    for m, k, n in FEW:
        dot.check(emitted, {"m": m, "j": 5, "k": k, "n": n})


@pytest.mark.parametrize("types", [("f16",) * 3, ("i16", "i16", "i32"), ("bf16", "f32", "f32")])
def test_few_rows_widen_columns_in_place(types: tuple[str, str, str]) -> None:
    dot = symbolic("mk,kn", "", "k", lhs_type=types[1], rhs_type=types[0], type=types[2])
    emitted = emit(dot)
    assert variants(emitted.plan.steps, {"m": 2, "k": 9, "n": 90}) == {"dense_direct"}
    assert variants(emitted.plan.steps, {"m": 3, "k": 9, "n": 90}) == {"panels"}
    for m, k, n in [(1, 1, 1), (1, 19, 70), (2, 300, 33), (6, 16, 48), (8, 0, 17)]:
        dot.check(emitted, {"m": m, "k": k, "n": n})
        dot.check(unpacked(emitted), {"m": m, "k": k, "n": n})


@pytest.mark.parametrize(("element", "target"), [("f32", None), ("f64", NARROW)])
@pytest.mark.parametrize(
    ("spec", "batch"),
    [("mkx,kny", ""), ("mkx,nky", ""), ("kmx,nky", ""), ("bmkx,bnky", "b")],
)
def test_pairs_are_read_in_place(
    spec: str, batch: str, target: Machine | None, element: str
) -> None:
    sizes = {c: c for c in spec if c != ","} | {"x": "2", "y": "2"}
    dot = Dot(spec, batch, "k", sizes, element, element, element)
    emitted = emit(dot, target)
    for m, k, n in [(1, 1, 1), (1, 40, 33), (2, 7, 9), (9, 300, 17), (33, 0, 4), (40, 19, 1)]:
        env = {"b": 2, "m": m, "k": k, "n": n, "x": 2, "y": 2}
        dot.check(emitted, env)
        dot.check(unpacked(emitted), env)


@pytest.mark.parametrize("machine", [None, NARROW])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize(("spec", "contract"), [("bkm,kn", "k"), ("nbm,bkm", "bm")])
def test_places_of_a_table_are_copied_by_runs(
    spec: str, contract: str, dtype: str, machine: Machine | None
) -> None:
    """Runs of all lengths, before and behind each other's ends."""
    dot = symbolic(spec, "", contract, lhs_type=dtype, rhs_type=dtype, type=dtype)
    emitted = emit(dot, machine)
    for b, m in [(1, 40), (2, 16), (3, 8), (4, 17), (5, 3), (9, 1), (0, 5), (3, 27)]:
        for k, n in [(1, 3), (7, 40), (16, 16), (33, 9)]:
            dot.check(emitted, {"b": b, "m": m, "k": k, "n": n})
            dot.check(unpacked(emitted), {"b": b, "m": m, "k": k, "n": n})


WRITTEN = [
    MATMUL,
    symbolic("mk,nk", "", "k"),
    symbolic("bmk,bkn", "b", "k"),
    symbolic("km,nk", "", "k"),
    symbolic("mk,kn", "", "k", lhs_type="bf16", rhs_type="bf16", type="bf16"),
    symbolic("mk,kn", "", "k", lhs_type="i8", rhs_type="i8", type="i32"),
    symbolic("mjk,jkn", "", "jk", perm=(1, 0)),
    Dot("mk,kn", "", "k", {"m": "m", "k": "64", "n": "64"}),
    Dot("mk,kn", "", "k", {"m": "m", "k": "300", "n": "10"}),
]


@pytest.mark.parametrize("dot", WRITTEN, ids=lambda dot: f"{dot.spec}-{dot.type}-{dot.sizes}")
def test_a_late_text_is_the_one_that_would_be_written_now(dot: Dot) -> None:
    """Products of other sizes have the same. Launches pass few sizes that no text reads."""
    others = {c: f"{c}{c}" if size.isalpha() else size for c, size in dot.sizes.items()}
    own = [*launches(emit(dot).plan.steps)]
    late = [launch for launch in own if isinstance(launch.kernel.source, LateText)]
    assert late
    for launch in late:
        source = launch.kernel.source
        assert isinstance(source, LateText)
        own_params = launch.params[: len(source.names)]  # others are of kernels that it calls
        assert launch.called or own_params == launch.params
        sizes = dict(zip(source.names, own_params, strict=True))
        assert source.write(source.what, sizes) == (launch.kernel.text, own_params)
        read = {int(n) for n in re.findall(r"%params\[(\d+)\]", launch.kernel.text)}
        assert len(own_params) - len(read) <= 3
    found = launches(emit(dataclasses.replace(dot, sizes=others)).plan.steps)
    assert [launch.kernel for launch in found] == [launch.kernel for launch in own]


@pytest.mark.parametrize("spec", ["mk,nk", "km,nk", "km,kn"])
def test_copies_are_functions_apart_from_the_sums(spec: str) -> None:
    """LLVM keeps constants of shuffles in registers around all loops of a function."""
    found = launches(emit(symbolic(spec, "", "k"), WIDE).plan.steps)
    texts = [x.kernel.text for x in found if x.kernel.name == "dense_scratch"]
    assert texts
    for text in texts:
        functions = text.split("func.func")
        assert any("vector.shuffle" in function for function in functions)
        assert not any("vector.shuffle" in f and "math.fma" in f for f in functions)
