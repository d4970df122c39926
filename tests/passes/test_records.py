"""Records of fusions: planner and emitter match the same, and what they find is what is there.

With SHLO_DISC_SPEC=1, as in all tests, `plan-fusion` compares for every fusion of every program
what was matched before the fusion was made with what is matched in it.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest
from jax import export, lax

from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError, InvalidModuleError
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import ir, new_context, ops_of
from shlo_disc.ir.ops import OPS
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.lower.cpu.target import EMITTERS
from shlo_disc.passes import emit_fusions
from shlo_disc.passes.base import Pipeline
from shlo_disc.passes.kinds import KINDS
from shlo_disc.passes.match_rows import Layout
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.pipeline import CLEANUP, planning
from shlo_disc.passes.records import match
from shlo_disc.passes.records import planned as with_record
from shlo_disc.passes.region import Region, carried


def softmax_of_product(x, w, y):
    return jax.nn.softmax(x @ w + y)


def gates(x, w):
    a, b = jnp.split(jnp.tanh(x @ w), 2, -1)
    return a * b


def attention(q, k, v):
    scores = jnp.einsum("bmhd,bhnd->bhmn", q, k) * 0.3
    return jnp.swapaxes(jax.nn.softmax(scores) @ v, 1, 2) + 1.0


def convolution(x, w):
    numbers = ("NWC", "WIO", "NWC")
    return jax.nn.relu(lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=numbers))


def pooled(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 1), "VALID").sum()


TRANSFORM = """func.func public @main(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r:2 = "disc.fft"(%x) {kind = "RFFT"} : (tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>)
  %y = stablehlo.add %r#0, %r#1 : tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}"""
"""JAX has no function that is one on real planes."""

PROGRAMS = {
    "attention": ("attention", attention, "b,m,h,8", "b,h,n,8", "b,h,n,8"),
    "column": ("column", lambda x: x - x.mean(0), "b,8"),
    "convolution": ("conv", convolution, "b,t,4", "3,4,4"),
    "update": ("dynamic_update_slice",
               lambda x, y: lax.dynamic_update_slice(x, y * 0.5 + 1, (0, 0)), "b,8", "b,4"),
    "product": ("dense", lambda x, w: x @ w, "b,k", "k,n"),
    "turned product": ("dense", lambda x, w: (x @ w).T, "b,k", "k,n"),
    "product and more": ("dense", lambda x, w, y: jnp.tanh(x @ w + y), "b,k", "k,n", "n"),
    "product of computed": ("dense", lambda x, w: x @ (w * 0.5 + 1), "b,k", "k,n"),
    "products": ("dense", lambda x, v, w: (x @ v, x @ w), "b,k", "k,n", "k,n"),
    "product in bands": ("dense", gates, "b,k", "k,2*n"),
    "product and rows": ("dense", softmax_of_product, "b,k", "k,n", "b,n"),
    "handler": ("ffi", lambda x: lax.linalg.lu(x)[0], "b,n,n"),
    "transform": ("fft", TRANSFORM),
    "loop": ("loop", lambda x: (jnp.tanh(x), x.reshape(-1) + 1), "b,n"),
    "random bits": ("rng", lambda x: lax.rng_bit_generator(x.astype("uint32"), (8,)), "4"),
    "row": ("row", jax.nn.softmax, "b,n"),
    "row in parts": ("row", lambda x: x - x.mean((0, 2), keepdims=True), "b,c,64"),
    "scan": ("scan", lambda x: jnp.cumsum(x, -1), "b,n"),
    "scatter": ("scatter", lambda x, y: x.at[jnp.array([0, 2, 0])].add(y * 0.5 + 1), "b,n", "3,n"),
    "select and scatter": ("select_and_scatter", jax.grad(pooled), "b,8"),
    "sort": ("sort", functools.partial(jnp.sort, axis=0), "b,n"),
    "top k": ("top_k", lambda x: lax.top_k(x, 3), "b,8"),
}  # fmt: skip
"""By name: a kind of fusion, a function one of whose fusions is of it, its arguments' sizes."""


@pytest.fixture(autouse=True)
def context():
    with new_context(), ir.Location.unknown():
        yield


def planned(name):
    """(the module of a program, its fusions of the kind that the table says, its shapes)."""
    kind, function, *sizes = PROGRAMS[name]
    scope = export.SymbolicScope()
    arguments = [
        jax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), "float32") for text in sizes
    ]
    if isinstance(function, str):
        module = ir.Module.parse(function)
    else:
        module = ingest(export.export(jax.jit(function))(*arguments), ir.Context.current)
    Pipeline([*CLEANUP, *planning(MODEL)]).run(module)
    fusions = ops_of(module, "disc.fusion")
    found = [f for f in fusions if ir.StringAttr(f.attributes["kind"]).value == kind]
    assert found, module
    return module, found, analyze(module)


def only_record(name):
    """The record of the first fusion of a program, with its module, which keeps it alive."""
    module, (fusion, *_), shapes = planned(name)
    kind = ir.StringAttr(fusion.attributes["kind"]).value
    record = match(kind, Region.of(fusion, shapes))
    assert not isinstance(record, str), record
    return module, record


def names(*values):
    return [value.owner.name for value in values]


def test_every_kind_with_a_kernel_has_an_emitter_and_a_program():
    kernels = {name for name, kind in KINDS.items() if not kind.on_host}
    assert kernels == set(EMITTERS) == {kind for kind, *_ in PROGRAMS.values()}


def test_every_kind_of_the_op_table_has_a_row():
    rows = {row.kind for row in OPS.values() if row.kind}
    assert rows <= set(KINDS)
    # All others are what the planner makes of ops that have no kind of their own.
    made = {name for name, kind in KINDS.items() if name not in rows}
    assert made == {"attention", "column", "host", "loop", "row"}


def test_a_kind_without_a_row_is_an_error():
    _, (fusion, *_), shapes = planned("loop")
    fusion.attributes["kind"] = ir.StringAttr.get("spiral")
    with pytest.raises(InvalidModuleError, match="there is no kind of fusion 'spiral'"):
        with_record(fusion, shapes)


def test_matchers_are_those_of_kinds_with_kernels():
    for name, kind in KINDS.items():
        assert (name, kind.match is None) == (kind.name, kind.on_host)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_fusion_has_a_record(name):
    _, fusions, shapes = planned(name)
    for fusion in fusions:
        record = match(PROGRAMS[name][0], Region.of(fusion, shapes))
        assert dataclasses.is_dataclass(record), record
        assert record == match(PROGRAMS[name][0], Region.of(fusion, shapes))


@pytest.mark.parametrize("kind", EMITTERS)
def test_another_record_of_the_planner_is_an_error(monkeypatch, kind):
    """Broken on purpose: the planner takes one value of the region for another."""

    name = next(name for name, row in PROGRAMS.items() if row[0] == kind)
    of_kind = type(only_record(name)[1])

    def other(record, values, ops):
        if not isinstance(record, of_kind):
            return carried(record, values, ops)
        if isinstance(record, SingleOpRecord):  # about an op and the numbers of its results
            return dataclasses.replace(carried(record, values, ops), results=(7,))
        swapped = dict.fromkeys(values, next(iter(values.values())))
        return carried(record, swapped, ops)

    monkeypatch.setattr(emit_fusions, "carried", other)
    with pytest.raises(InternalError, match=f"a fusion of kind {kind} has another \\w+ than"):
        planned(name)
    with flags.overridden(spec=0):
        planned(name)


def test_a_product():
    _, record = only_record("product")
    (product,) = record.products
    assert product.sums.in_order
    assert not product.computed
    assert names(product.sums.total, product.root) == ["stablehlo.dot_general"] * 2
    assert [view.base.arg_number for view in (product.left, product.right)] == [0, 1]
    assert (record.bands, record.rows) == (None, None)


def test_sums_that_are_stored_in_another_order():
    _, record = only_record("turned product")
    (product,) = record.products
    assert product.sums.order == (1, 0)
    assert names(product.sums.total, product.root) == ["stablehlo.transpose"] * 2


def test_work_in_front_of_and_behind_a_product():
    _, record = only_record("product and more")
    assert names(record.products[0].root) == ["stablehlo.tanh"]
    _, record = only_record("product of computed")
    (product,) = record.products
    assert product.computed
    assert names(product.right.base) == ["stablehlo.add"]


def test_horizontal_products():
    _, record = only_record("products")
    assert len({product.sums.op for product in record.products}) == 2
    assert record.products[0].left == record.products[1].left


def test_bands():
    _, record = only_record("product in bands")
    assert record.bands.count == 2
    assert record.bands.whole is None
    assert [number for _, number in record.bands.parts] == [0, 1]
    assert [number for _, number in record.bands.results] == [0]
    assert names(record.products[0].root) == ["stablehlo.tanh"]


def test_rows_behind_a_product():
    _, record = only_record("product and rows")
    assert names(record.products[0].root) == ["stablehlo.dot_general"]
    assert record.rows.given == (record.products[0].root,)
    assert [len(sweep) for sweep in record.rows.sweeps] == [1, 1, 0]


def test_rows():
    _, record = only_record("row")
    assert record.layout is Layout.WHOLE
    assert record.swept == (2,)
    assert [len(sweep) for sweep in record.sweeps] == [1, 1, 0]
    _, record = only_record("row in parts")
    assert record.layout is Layout.PARTS
    assert list(map(str, record.space)) == ["b", "c", "64"]
    _, record = only_record("column")
    assert record.layout is Layout.SIDE_BY_SIDE
    assert record.lines[-1] == 8


def test_an_attention():
    _, record = only_record("attention")
    bases = [view.base.arg_number for view in (record.queries, record.keys, record.values)]
    assert bases == [0, 1, 2]
    assert (record.key_side, record.weight_side) == (1, 0)
    assert record.rows.given == (record.score.total,)
    assert record.rows.roots == (record.weights,)
    assert record.mix.order == (0, 2, 1, 3)
    assert names(record.root) == ["stablehlo.add"]


def test_a_scatter_that_computes_its_updates():
    _, record = only_record("scatter")
    assert record.op.name == "stablehlo.scatter"
    assert record.results == (0,)
    _, record = only_record("top k")
    assert record.results == (0, 1)


def test_a_fusion_that_is_none_of_its_kind():
    module, (fusion,), shapes = planned("row")
    fusion.attributes["kind"] = ir.StringAttr.get("dense")
    with pytest.raises(InternalError, match="no fusion of kind dense: it has no product"):
        with_record(fusion, shapes)
    assert module
