"""Programs from the store: what an earlier process compiled runs as it did there."""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import zlib
from dataclasses import fields, is_dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import cache
from shlo_disc.base.later import Later
from shlo_disc.driver import kept, kept_keys
from shlo_disc.dynamic.expr import Expr
from shlo_disc.executables.codec import RecordError, from_bytes, to_bytes
from shlo_disc.executables.data_sized import record_of
from shlo_disc.executables.lines import without_lines
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.jax_private.modules import generic_text
from shlo_disc.lower.plan import Kernel
from shlo_disc.ral import FileStamps
from shlo_disc.store.entries import current
from tests.children import python

pytestmark = pytest.mark.usefixtures("own_store")

T = "tensor<?x?xf32>"
LAYER = f"""
func.func @main(%x: {T}, %w: {T}) -> ({T}, {T}) {{
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({T}, {T}) -> {T}
  %t = stablehlo.tanh %y : {T}
  %r = stablehlo.reverse %w, dims = [1] : {T}
  return %t, %r : {T}, {T}
}}"""
SMALL = f"""
func.func @main(%x: {T}, %w: {T}) -> ({T}, {T}) {{
  %t = stablehlo.negate %x : {T}
  %r = stablehlo.add %w, %w : {T}
  return %t, %r : {T}, {T}
}}"""
POSITIVE = """
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %n = stablehlo.reshape %s : (tensor<i32>) -> tensor<1xi32>
  %zs = stablehlo.dynamic_broadcast_in_dim %z, %n, dims = [] :
    (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %p = stablehlo.compare GT, %x, %zs : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xi1>
  %c = stablehlo.convert %p : (tensor<?xi1>) -> tensor<?xi32>
  %i = stablehlo.constant dense<0> : tensor<i32>
  %count = stablehlo.reduce(%c init: %i) applies stablehlo.add across dimensions = [0] :
    (tensor<?xi32>, tensor<i32>) -> tensor<i32>
  %size = stablehlo.reshape %count : (tensor<i32>) -> tensor<1xi32>
  %out = stablehlo.dynamic_iota %size, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  return %out : tensor<?xf32>
}"""


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


SIZES = [((0, 3), (3, 2)), ((1, 1), (1, 1)), ((7, 5), (5, 3)), ((33, 65), (65, 47))]


def layer(executable) -> list[bytes]:
    return [r.tobytes() for sizes in SIZES for r in executable.run_numpy(arrays(*sizes))]


def small(executable) -> list[bytes]:
    return [r.tobytes() for r in executable.run_numpy(arrays((3, 2), (4, 5)))]


def counted(action) -> tuple[Any, dict[str, int]]:
    """What `action` gives, and what it counts."""
    before = cache.stats()
    made = action()
    now = cache.stats()
    return made, {name: n - before[name] for name, n in now.items() if n != before[name]}


def loaded(action) -> bool:
    return counted(action)[1].get("programs_loaded", 0) > 0


def test_a_program_is_loaded_whole_and_says_what_it_said():
    made, counts = counted(lambda: shlo_disc.compile(LAYER))
    assert counts["programs_missing"] == 1
    assert not made.was_loaded
    wanted, told = layer(made), json.loads(made.explain(format="json"))
    texts = {stage: made.as_text(stage) for stage in ("stablehlo", "disc", "host", "kernels")}
    fingerprint = made.fingerprint
    del made
    gc.collect()
    shlo_disc.trim()  # of kernels that were compiled just now
    found, counts = counted(lambda: shlo_disc.compile(LAYER))
    assert counts["programs_loaded"] == 1
    assert "stored" not in counts
    assert found.was_loaded
    assert layer(found) == wanted
    assert {stage: found.as_text(stage) for stage in texts} == texts
    assert found.fingerprint == fingerprint
    again = json.loads(found.explain(format="json"))
    kernels = len(found.host.kernels)
    assert again["loaded_kernels"] + again["late_kernels"] == kernels > 1
    for program in (told, again):  # of the calls so far
        for name in ("loaded_kernels", "late_kernels", "code_bytes"):
            del program[name]
    assert again == told
    with pytest.raises(shlo_disc.ShapeMismatchError, match="argument 1"):
        found.run_numpy(arrays((2, 3), (4, 5)))


def test_code_that_is_gone_is_compiled_again():
    wanted = layer(shlo_disc.compile(LAYER))
    for entry in current().entries():
        if entry.kind == "kernels":
            entry.path.unlink()
    found, counts = counted(lambda: shlo_disc.compile(LAYER))
    assert found.was_loaded
    assert layer(found) == wanted
    assert "loaded" not in counts


def test_sizes_from_data_and_regions():
    x = np.array([1, -1, 2, 0, 3], np.float32)
    for is_second in (False, True):
        made, counts = counted(lambda: shlo_disc.compile(POSITIVE))
        assert isinstance(made, shlo_disc.DataSizedExecutable)
        assert (counts.get("programs_loaded") == 1) == is_second
        assert [p.was_loaded for p in made.programs] == [is_second] * len(made.programs)
        np.testing.assert_array_equal(made.run_numpy([x])[0], [0, 1, 2])
        np.testing.assert_array_equal(made.run_numpy([-x])[0], [0])


def test_a_region_that_needs_a_program_of_its_own():
    text = """
func.func @main(%p: tensor<i1>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %r = "stablehlo.if"(%p) ({
    %s = stablehlo.add %x, %y : tensor<?xf32>
    stablehlo.return %s : tensor<?xf32>
  }, {
    stablehlo.return %x : tensor<?xf32>
  }) : (tensor<i1>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}"""
    for _ in range(2):
        made = shlo_disc.compile(text, shapes=[[], ["a"], ["b"]])
        x, y = arrays((3,), (5,))
        (result,) = made.run_numpy([np.array(False), x, y])
        np.testing.assert_array_equal(result, x)
        with pytest.raises(shlo_disc.ShapeMismatchError):
            made.run_numpy([np.array(True), x, y])
    assert made.was_loaded


APART = POSITIVE.replace("@main(%x: tensor<?xf32>) -> tensor<?xf32>",
    "@main(%x: tensor<?xf32>, %q: tensor<i1>, %y: tensor<?xf32>)"
    " -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)").replace(
    "  return %out : tensor<?xf32>\n", """
  %r = "stablehlo.if"(%q) ({
    %v = stablehlo.add %x, %y : tensor<?xf32>
    stablehlo.return %v : tensor<?xf32>
  }, {
    stablehlo.return %x : tensor<?xf32>
  }) : (tensor<i1>) -> tensor<?xf32>
  %m = stablehlo.negate %out : tensor<?xf32>
  return %out, %r, %m : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
""")  # fmt: skip


def test_a_region_of_one_of_several_programs_that_needs_a_program_of_its_own():
    for is_second in (False, True):
        made = shlo_disc.compile(APART, shapes=[["a"], [], ["b"]])
        assert isinstance(made, shlo_disc.DataSizedExecutable)
        assert any(program.record.has_apart for program in made.programs)
        assert all(program.was_loaded == is_second for program in made.programs)
        x, y = np.array([1, -1, 2], np.float32), np.ones(5, np.float32)
        for p, other in ((False, y), (False, y[:3]), (True, y[:3])):
            count, result, minus = made.run_numpy([x, np.array(p), other])
            np.testing.assert_array_equal(count, [0, 1])
            np.testing.assert_array_equal(minus, [0, -1])
            np.testing.assert_array_equal(result, x + 1 if p else x)
        with pytest.raises(shlo_disc.ShapeMismatchError):
            made.run_numpy([x, np.array(True), y])


def test_every_form_of_a_program_is_looked_up():
    with new_context():
        module = ir.Module.parse(SMALL)
        data = io.BytesIO()
        module.operation.write_bytecode(data)
    exported = jax.export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((3,), np.float32))
    for source in (SMALL, module, data.getvalue(), exported, exported.mlir_module_serialized):
        assert not loaded(lambda source=source: shlo_disc.compile(source))
        assert loaded(lambda source=source: shlo_disc.compile(source))


OTHERS: dict[str, dict[str, Any]] = {
    "name": {"name": "another"},
    "shapes": {"shapes": [["a", "b"], ["b", "a"]]},
    "argument names": {"names": ["left", "right"]},
    "constraints": {"shapes": [["a", "b"], ["b", "c"]], "constraints": "a >= 2"},
    "likely": {"shapes": [["a", "b"], ["b", "c"]], "likely": {"a": 3}},
    "weak results": {"weak_results": [True, False]},
    "donated": {"donated": [1]},
    "target": {"target": "cpu:sse2"},
}


@pytest.mark.filterwarnings("ignore:.*donated")
def test_every_option_is_in_the_key():
    assert not loaded(lambda: shlo_disc.compile(SMALL))
    for options in OTHERS.values():
        assert not loaded(lambda options=options: shlo_disc.compile(SMALL, **options)), options
    for options in OTHERS.values():
        assert loaded(lambda options=options: shlo_disc.compile(SMALL, **options)), options
    assert not loaded(lambda: shlo_disc.compile(SMALL.replace("negate", "abs")))


COLUMNS = f"""
func.func @main(%x: {T}) -> {T} {{
  %t = stablehlo.transpose %x, dims = [1, 0] : ({T}) -> {T}
  return %t : {T}
}}"""
ROWS = COLUMNS.replace("transpose %x, dims = [1, 0]", "negate %x").replace(
    f"({T}) -> {T}\n  ret", f"{T}\n  ret"
)


@pytest.mark.parametrize(
    ("text", "axis", "matters"),
    [(ROWS, "a", False), (ROWS, "b", False), (COLUMNS, "a", True), (COLUMNS, "b", True)],
)
def test_sizes_of_the_first_call_count_where_short_ones_have_kernels(text, axis, matters):
    found = [
        loaded(
            lambda size=size: shlo_disc.compile(
                text, shapes=[["a", "b"]], name=axis, first_sizes={"a": 100, "b": 100, axis: size}
            )
        )
        for size in (50, 200, 2)
    ]
    assert found == [False, True, not matters]


def test_a_short_size_counts_with_its_factors():
    """`a` is short, but the loop has `64 * a` elements: no kernel is written for 2 or 3."""
    text = COLUMNS.replace("?x?x", "?x?x64x").replace("[1, 0]", "[1, 0, 2]")
    sizes = [["a", "b", 64]]
    found = [
        loaded(lambda a=a: shlo_disc.compile(text, shapes=sizes, first_sizes={"a": a, "b": 100}))
        for a in (2, 3, 70)
    ]
    assert found == [False, True, True]


def test_a_warning_comes_again():
    text = SMALL.replace("stablehlo.negate %x : ", "stablehlo.convert %x : ").replace(
        f"convert %x : {T}", f"convert %x : ({T}) -> tensor<?x?xf64>"
    ).replace(f"-> ({T}, ", "-> (tensor<?x?xf64>, ").replace(
        f"return %t, %r : {T}", "return %t, %r : tensor<?x?xf64>"
    )  # fmt: skip
    for is_second in (False, True):
        with pytest.warns(UserWarning, match="no result can use the memory of donated"):
            made = shlo_disc.compile(text, shapes=[["a", "b"], ["c", "d"]], donated=[0])
        assert made.was_loaded == is_second


MODEL = """
import jax.numpy as jnp
def f(x, y):
    h = jnp.tanh(x)
    return h @ y
"""


def test_moved_code_is_the_same_program_with_lines_of_today(tmp_path):
    x = np.ones((2, 3), np.float32)
    found = []
    for blank in (0, 5, 3):
        path = tmp_path / f"model{blank}.py"
        names: dict[str, Any] = {}
        exec(compile(MODEL.replace("import", "\n" * blank + "import"), path, "exec"), names)
        g = shlo_disc.jit(names["f"])
        np.testing.assert_allclose(g(x, x.T), np.tanh(x) @ x.T, rtol=1e-6)
        kernels = g.lower(x, x.T).compile().executable.describe()["kernels"]
        lines = {line for kernel in kernels for line in kernel["where"]}
        assert lines <= {f"{path}:{blank + n}" for n in (4, 5)}, lines
        assert lines
        text = g.explain()
        found.append((g.cache_info().loaded, text.replace(str(path), "").count(f":{blank + 5}")))
        del g
        gc.collect()
    assert [n for n, _ in found] == [0, 1, 1]
    assert all(n for _, n in found)


def test_lines_are_those_that_mlir_tells():
    def step(c, x):
        return jax.nn.gelu(c @ x), (c**2).sum()

    def f(c, xs):
        c, sums = jax.lax.scan(jax.checkpoint(step), c, xs)
        return jax.lax.cond(sums[0] > 0, jnp.sin, jnp.cos, c), jax.lax.sort(sums)

    exported = jax.jit(jax.grad(lambda c, xs: f(c, xs)[0].sum())).lower(
        np.ones((3, 3), np.float32), np.ones((2, 3, 3), np.float32)
    )
    text = generic_text(exported.compiler_ir(), 10)
    plain, lines = without_lines(text)
    told = []

    def visit(op):
        for view in (v for region in op.regions for block in region.blocks for v in block):
            visit(view.operation)
        told.append(source_line(op).replace("unknown location", ""))

    with new_context():
        visit(ir.Module.parse(text).operation)
    assert lines == told
    assert len({*lines}) > 4
    assert plain.count("\n") == text.count("\n") - text.count("\n#loc") - text.startswith("#loc")


@pytest.mark.parametrize("way", ["flag", "dump", "sources"])
def test_what_must_be_compiled_is(monkeypatch, tmp_path, way):
    shlo_disc.compile(SMALL)
    if way == "flag":
        monkeypatch.setenv("SHLO_DISC_FUSION", "0")
    elif way == "dump":
        monkeypatch.setenv("SHLO_DISC_DUMP", str(tmp_path / "dumps"))
    else:
        monkeypatch.setattr(kept, "compiler_id", lambda: b"edited")
    assert not loaded(lambda: shlo_disc.compile(SMALL))


def test_programs_with_callbacks_call_those_of_today():
    """The machine code is that of any function of these types."""
    for is_second, more in ((False, 1), (True, 5), (True, 1)):
        told = []

        def f(x, more=more, told=told):
            jax.debug.callback(told.append, x.sum())
            y = jax.pure_callback(lambda x, n=more: x + n, x, x)
            return y * 2, jax.pure_callback(lambda y, n=more: y - n, y, y), x.sum()

        g = shlo_disc.jit(f)
        found = g(np.ones(3, np.float32))
        jax.effects_barrier()
        wanted = ((1.0 + more) * 2, 1.0, 3.0)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, np.full(a.shape, b))
        assert told == [3.0]
        assert g.cache_info().loaded == is_second
        assert np.asarray(g(np.ones(7, np.float32))[1]).tolist() == [1.0] * 7
        rows = json.loads(g.explain("json"))
        row = rows[0] if isinstance(rows, list) else rows
        loaded_or_late = row["loaded_kernels"] + row["late_kernels"]
        assert (loaded_or_late == row["distinct_kernels"]) == is_second
        del g, f
        gc.collect()


def test_other_callbacks_are_another_program():
    """Their order and types count, not what they are called."""

    def two(first, second):
        def f(x):
            y = jax.pure_callback(lambda x: x + 1, x, x)
            return [y, jax.pure_callback(lambda x: x * 3, x, x)][first], (y, x)[second]

        return f

    x = np.ones(3, np.float32)
    for first, second in ((0, 0), (1, 0), (0, 1)):
        g = shlo_disc.jit(two(first, second))
        a, b = g(x)
        np.testing.assert_array_equal(a, [x + 1, x * 3][first])
        np.testing.assert_array_equal(b, [x + 1, x][second])
        assert g.cache_info().loaded == 0


def test_damaged_entries_are_a_miss_and_are_written_again():
    wanted = small(shlo_disc.compile(SMALL))
    (entry,) = [e for e in current().entries() if e.kind == "programs"]
    whole = entry.content()
    for bad in (b"", whole[:7], whole[: len(whole) // 2], b"\xff" * len(whole), to_bytes((1, 2))):
        current("programs").write(entry.key, bad)
        made, counts = counted(lambda: shlo_disc.compile(SMALL))
        assert counts["damaged"] == 1
        assert small(made) == wanted
        assert loaded(lambda: shlo_disc.compile(SMALL))


def test_a_later_process_loads_what_jit_compiled(own_store):
    code = """
        import jax, numpy as np, shlo_disc
        def f(p, x):
            def step(h, u):
                h = jax.numpy.tanh(u @ p["w"] + h)
                return h, h
            return jax.lax.scan(step, jax.numpy.zeros((x.shape[1], 5)), x)
        g = shlo_disc.jit(f)
        r = np.random.default_rng(0)
        for t, b in ((4, 3), (9, 2)):
            p = {"w": r.standard_normal((5, 5)).astype(np.float32)}
            x = r.standard_normal((t, b, 5)).astype(np.float32)
            ours, theirs = g(p, x), jax.jit(f)(p, x)
            for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs)):
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
        d = jax.grad(lambda p: g(p, x)[1].sum())(p)["w"]
        e = jax.grad(lambda p: f(p, x)[1].sum())(p)["w"]
        np.testing.assert_allclose(d, e, rtol=1e-4, atol=1e-5)
        print(g.cache_info().misses, g.cache_info().loaded, "torch_mlir" in str(g.explain))
        """
    environment = {"SHLO_DISC_CACHE_DIR": str(own_store), "SHLO_DISC_COMPILE_AHEAD": "1"}
    first = python(code, **environment).split()
    second = python(code, **environment).split()
    assert first[1] == "0"
    assert second[:2] == [first[0], first[0]]  # also what the first did as it ended


KINDS = [LAYER, POSITIVE]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Later):
        return same(left.value, right.value)
    if isinstance(left, Kernel):  # one may be written later
        return isinstance(right, Kernel) and (left.name, left.text) == (right.name, right.text)
    if isinstance(left, np.ndarray):
        return np.array_equal(left, right)
    if is_dataclass(left):
        pairs = [(getattr(left, f.name), getattr(right, f.name)) for f in fields(left)]
        return type(left) is type(right) and all(same(a, b) for a, b in pairs)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@pytest.mark.parametrize("text", KINDS)
def test_a_record_read_is_the_record_written(text):
    record = record_of(shlo_disc.compile(text))
    data = to_bytes(record)
    assert same(from_bytes(data), record)
    assert to_bytes(from_bytes(data)) == data


def test_sizes_and_numbers_keep_their_values_and_types():
    a, b = Expr.symbol("a"), Expr.symbol("size\u00b70\u00b71")
    values = (
        *(a * a * 3 - b + 7, a // 4 % (b + 1), Expr.max(a, b * 2), Expr.const(0), Expr.const(-5)),
        *(True, 1, 1.0, 2**80, -1, "", "a\n\u00e9", None, (), ((),), b"\0\xff", frozenset({2, 1})),
        *(float("inf"), -0.0),
    )
    found = from_bytes(to_bytes(values))
    assert [*map(repr, found)] == [*map(repr, values)]
    assert found[0] == values[0]
    with pytest.raises(TypeError, match="no plain data"):
        to_bytes((object(),))


def test_texts_have_the_numbers_of_lines():
    texts = ("m.py:1", "m.py:12 and n.py:1 (m.py:1)", "m.py:13", "other", ("m.py:12",))
    value = (texts, Later.of(texts))
    old, new = ["m.py:1", "", "n.py:1", "m.py:12"], ["a.py:5", "", "n.py:2", "m.py:1"]
    moved = ("a.py:5", "m.py:1 and n.py:2 (a.py:5)", "m.py:13", "other", ("m.py:1",))
    data = to_bytes(value, old)
    assert same(from_bytes(data, old), value)
    assert same(from_bytes(data, new), (moved, Later.of(moved)))
    with pytest.raises(RecordError):
        from_bytes(data, new[:2])


def test_bytes_that_are_no_record_are_refused():
    whole = to_bytes((1, (2, "x"), Later.of(("y", b"z"))))
    random = np.random.default_rng(0)
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(random.integers(1, 4)):
            data[random.integers(len(data))] = random.integers(256)
        try:
            read = from_bytes(bytes(data[: random.integers(1, len(data) + 1)]))
            assert isinstance(read, object)
        except (RecordError, MemoryError):
            pass
    table = zlib.compress(b'[["os.system","true"]]')
    with pytest.raises(RecordError, match=r"os\.system"):
        from_bytes(len(table).to_bytes(8, "little") + table)


def test_jit_compiles_what_is_not_there_and_counts_both():
    def make():
        return shlo_disc.jit(lambda x: jnp.cumsum(x * 3))

    x = np.arange(5, dtype=np.float32)
    first, second = make(), make()
    np.testing.assert_allclose(first(x), np.cumsum(x * 3))
    info = first.cache_info()
    del first
    gc.collect()
    np.testing.assert_allclose(second(x), np.cumsum(x * 3))
    assert (info.misses, info.loaded) == (1, 0)
    assert (second.cache_info().misses, second.cache_info().loaded) == (1, 1)
    assert "loaded=1" in repr(second.cache_info())


def test_records_are_frozen():
    record = shlo_disc.compile(SMALL).record
    with pytest.raises(AttributeError):
        record.name = "other"
    assert replace(record, name="other").name == "other"


def test_disc_cache_verify_needs_neither_lines_nor_functions_nor_constants(own_store):
    """An entry that has numbers of them is as whole as any."""
    from click.testing import CliRunner

    from shlo_disc.tools import disc_cache

    rows = np.random.default_rng(0).standard_normal((1 << 15, 2)).astype(np.float32)

    def f(x):
        y = jax.pure_callback(lambda x: x + 1, x, x)
        return rows @ y.reshape(2, -1)

    shlo_disc.jit(f)(np.ones((4, 3), np.float32))
    told = CliRunner().invoke(disc_cache.main, ["--dir", str(own_store), "verify"])
    assert ", 0 damaged" in told.output, told.output
    assert told.exit_code == 0


def test_an_edited_source_is_another_compiler(tmp_path):
    """Its size or its time tells; what Python and editors write beside it does not count."""
    inner, cache = tmp_path / "inner", tmp_path / "inner/__pycache__"
    cache.mkdir(parents=True)
    source = inner / "pass.py"
    source.write_text("a = 1")
    known = [FileStamps(str(tmp_path)).get()]
    (cache / "pass.py").write_text("a = 1")
    (inner / "notes.txt").write_text("a = 1")
    (inner / ".#pass.py").symlink_to("nobody@host")
    assert FileStamps(str(tmp_path)).get() == known[0]

    def edited() -> None:
        known.append(FileStamps(str(tmp_path)).get())
        assert len({*known}) == len(known)

    os.utime(source, ns=(1, 1))
    edited()
    source.write_text("a = 12")
    os.utime(source, ns=(1, 1))
    edited()
    source.rename(inner / "fusion.py")
    edited()
    (inner / "ral.so").write_bytes(b"")
    edited()
    linked = tmp_path / "linked"
    linked.symlink_to("inner")
    edited()
    with pytest.raises(FileNotFoundError):
        FileStamps(str(tmp_path / "missing")).get()


@pytest.mark.filterwarnings("ignore:os.fork")  # the child runs nothing of JAX's
def test_stamps_are_of_the_time_when_they_were_asked_for_in_forked_children_too(tmp_path):
    """A child has no thread that reads them: it reads for itself, and waits for nobody."""
    for number in range(300):
        (tmp_path / f"pass{number}.py").write_text("a = 1")
    expected = FileStamps(str(tmp_path)).get()
    for _ in range(20):
        late = FileStamps(str(tmp_path))
        child = os.fork()
        if not child:
            signal.alarm(60)  # a child that waits for a thread ends, too
            os._exit(late.get() != expected)
        assert os.waitpid(child, 0)[1] == 0
        assert late.get() == expected
    known = FileStamps(str(tmp_path))
    assert known.get() == expected
    (tmp_path / "pass0.py").write_text("a = 12")
    assert known.get() == expected
    assert FileStamps(str(tmp_path)).get() != expected


def test_an_installed_package_is_named_by_what_its_installer_wrote_down(tmp_path, monkeypatch):
    package, info = tmp_path / "shlo_disc", tmp_path / "shlo_disc-0.1.0.dist-info"
    package.mkdir()
    (package / "one.py").write_text("a = 1")
    monkeypatch.setattr(shlo_disc, "__path__", [str(package)])

    def named() -> bytes:
        kept_keys._own_files.cache_clear()
        return kept_keys.compiler_id.__wrapped__()

    try:
        assert named() == named()
        names = [named()]
        info.mkdir()
        assert named() == names[0]
        (info / "RECORD").write_text("shlo_disc/ral/_ral.so,sha256=1,1\n")  # of a source tree
        assert named() == names[0]
        for digest in "12":
            (info / "RECORD").write_text(f"shlo_disc/driver/compile.py,sha256={digest},1\n")
            names.append(named())
        (package / "one.py").write_text("a = 12")
        assert named() == names[-1]
        assert len({*names}) == 3
    finally:
        kept_keys._own_files.cache_clear()
