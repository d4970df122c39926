"""The pass framework: registry, pipeline, dumps, blame, flags; the disc dialect's checks."""

from __future__ import annotations

import importlib
import io
from dataclasses import dataclass
from typing import ClassVar

import pytest

from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError, UnsupportedError
from shlo_disc.dynamic import known_shapes
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.ir import dialect
from shlo_disc.ir.mlir import ir, new_context, ops_of, replace, walk
from shlo_disc.ir.pipeline import PassLog
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.passes import fold_updates, table, updated_zeros
from shlo_disc.passes.base import Late, Pass, Pipeline, named, register
from shlo_disc.passes.pipeline import CLEANUP, planning
from shlo_disc.passes.plan_buffers import PlanBuffers
from shlo_disc.passes.simplify import LATE
from tests.children import python

TEXT = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.tanh %x : tensor<4xf32>
  %1 = stablehlo.tanh %x : tensor<4xf32>
  %2 = stablehlo.add %0, %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}
"""


@pytest.fixture
def module():
    with new_context(), ir.Location.unknown():
        yield ir.Module.parse(TEXT)


@dataclass(frozen=True)
class Raising(Pass):
    name: ClassVar[str] = "raising"
    error: Exception

    def run(self, module, shapes):
        raise self.error


@dataclass(frozen=True)
class Breaking(Pass):
    name: ClassVar[str] = "breaking"
    told: int = 1

    def run(self, module, shapes):
        (op,) = ops_of(module, "stablehlo.add")
        op.results[0].set_type(ir.Type.parse("tensor<5xf32>"))
        return self.told


def test_names_are_kebab_case_and_known():
    for name, a_pass in table.passes(MODEL).items():
        assert name == a_pass.name
        assert name == name.lower().replace("_", "-")
        assert table.pipeline_of(name, MODEL) == [a_pass]


def test_an_unknown_pass_is_named_with_what_there_is():
    with pytest.raises(ValueError, match=r"no pass is named 'fuse'; passes: broadcast-splats, "):
        table.pipeline_of("cse,fuse", MODEL)


def test_two_passes_cannot_share_a_name():
    with pytest.raises(InternalError, match="two passes are named 'simplify'"):
        register(named("simplify"))


def test_groups_stand_for_their_passes():
    names = [p.name for p in table.pipeline_of("cleanup,planning", MODEL)]
    assert names[:2] == ["cse", "forward-carried"]
    assert names[-4:] == ["plan-fusion", "share-kernels", "place-scalars", "plan-buffers"]


LATE_PASSES = [p for p in (*CLEANUP, *planning(MODEL)) if isinstance(p, Late)]


@pytest.mark.parametrize("late", LATE_PASSES, ids=lambda late: late.name)
def test_a_late_pass_is_the_one_of_its_module(late, module):
    assert late.own.name == late.name
    assert late.own.keeps_known == late.keeps_known
    # Without its ops it has nothing to do, and is not even made.
    assert not ops_of(module, *late.ops)
    assert late.own.run(module, KnownShapes(module)) == 0
    nowhere = Late("no-such-module", late.ops)
    assert nowhere.run(module, KnownShapes(module)) == 0
    with pytest.raises(ModuleNotFoundError):
        Late("no-such-module", ("stablehlo.add",)).run(module, KnownShapes(module))


@pytest.mark.parametrize("name", LATE)
def test_late_rules_are_those_of_their_module(name):
    assert LATE[name].keys() == importlib.import_module(f"shlo_disc.passes.{name}").RULES.keys()


def test_updates_are_followed_through_what_changes_them():
    assert updated_zeros.CHANGES.keys() == fold_updates.CHANGED


def test_records_say_what_happened(module):
    records = Pipeline([named("cse"), named("cse")]).run(module)
    assert [(r.name, r.changed) for r in records] == [("cse", 1), ("cse", 0)]
    assert all(r.time_ms >= 0 for r in records)


def test_print_after_goes_to_the_stream(module):
    stream = io.StringIO()
    passes = [named("cse"), named("dce")]
    Pipeline(passes).run(module, log=PassLog(print_after=frozenset({"cse"}), stream=stream))
    assert stream.getvalue().startswith("// after cse\n")
    assert "// after dce" not in stream.getvalue()


@pytest.mark.parametrize(
    ("level", "present", "absent"),
    [(0, [], ["cse"]), (1, [], ["cse"]), (2, ["01 cse", "6 -> 5 ops"], ["func.func"]),
     (3, ["-    %1 = stablehlo.tanh"], ["// after"]), (4, ["// after cse", "func.func"], [])],
)  # fmt: skip
def test_debug_levels_add(module, level, present, absent):
    stream = io.StringIO()
    with flags.overridden(debug=level):
        Pipeline([named("cse")]).run(module, log=PassLog(stream=stream))
    text = stream.getvalue()
    assert all(p in text for p in present), text
    assert all(a not in text for a in absent), text


def test_dump_writes_every_pass_and_each_file_can_be_read_back(module, tmp_path):
    with flags.overridden(dump=tmp_path):
        Pipeline([named("cse"), named("dce")]).run(module)
    (folder,) = tmp_path.iterdir()
    files = sorted(p.name for p in folder.iterdir())
    assert files == ["00-input.mlir", "01-cse.mlir", "02-dce.mlir"]
    again = ir.Module.parse((folder / "02-dce.mlir").read_text())
    assert str(again) == str(module)


def test_a_crash_names_the_pass_and_how_to_reproduce(module):
    with pytest.raises(
        InternalError, match=r"pass raising failed: KeyError: 'lost'(.|\n)*disc-opt"
    ):
        Pipeline([Raising(KeyError("lost"))]).run(module)


def test_our_own_errors_pass_through(module):
    with pytest.raises(UnsupportedError, match=r"^no$"):
        Pipeline([Raising(UnsupportedError("no"))]).run(module)


def test_a_pass_that_breaks_the_module_is_named(module):
    with (
        flags.overridden(spec=1),
        pytest.raises(InternalError, match="pass breaking made an invalid module"),
    ):
        Pipeline([Breaking()]).run(module)


@pytest.mark.parametrize("others", [(), ("forward-carried",)])
def test_a_pass_that_breaks_the_module_and_tells_no_change_is_found(module, others):
    with flags.overridden(spec=1), pytest.raises(InternalError, match="made an invalid module"):
        Pipeline([Breaking(told=0), *map(named, others)]).run(module)


@dataclass(frozen=True)
class Asking(Pass):
    """Asks for shapes, then does something to the addition."""

    name: ClassVar[str] = "asking"
    told: int = 0
    does: str = "nothing"
    keeps_known: bool = False

    def run(self, module, shapes):
        (op,) = ops_of(module, "stablehlo.add")
        if shapes.now().shape(op.results[0]) != (4,):
            raise AssertionError("another shape")
        if self.does == "annotate":
            op.attributes["seen"] = ir.UnitAttr.get()
        elif self.does == "replace":
            with ir.InsertionPoint(op), op.location:
                other = op.clone().operation
            replace(op, *other.results)
        return self.told


@pytest.mark.parametrize(
    ("passes", "analyses"),
    [
        ([Asking()] * 3, 1),
        ([Asking(1, "annotate", keeps_known=True), Asking()], 1),
        ([Asking(1, "annotate"), Asking()], 2),
        ([Asking(1, "replace"), Asking(1, "replace"), Asking()], 3),
        ([Asking(), named("cse"), Asking(), named("cse"), Asking()], 2),  # the second finds nothing
        ([Asking(), named("canonicalize"), Asking()], 2),
        ([Asking(), named("simplify"), Asking(), PlanBuffers(), Asking()], 1),
    ],
)
def test_an_analysis_serves_until_ops_change(module, monkeypatch, passes, analyses):
    made = []
    monkeypatch.setattr(known_shapes, "analyze", lambda m: made.append(m) or analyze(m))
    with flags.overridden(spec=0):
        Pipeline(passes).run(module)
    assert len(made) == analyses


SIZES_AND_REGIONS = """
func.func @main(%x: tensor<?x4xf32> {disc.shape = ["2*n", "4"]}, %w: tensor<4x4xf32>)
    -> (tensor<?xf32>, tensor<?x4xf32>, tensor<?x2xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %i = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %t = stablehlo.transpose %w, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %loop:2 = stablehlo.while(%k = %i, %y = %x) : tensor<i32>, tensor<?x4xf32>
    cond {
      %go = stablehlo.compare LT, %k, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = stablehlo.add %k, %one : tensor<i32>
      %dot = stablehlo.dot_general %y, %t, contracting_dims = [1] x [0]
        : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
      %same = stablehlo.tanh %dot : tensor<?x4xf32>
      stablehlo.return %next, %same : tensor<i32>, tensor<?x4xf32>
    }
  %e = stablehlo.exponential %loop#1 : tensor<?x4xf32>
  %sum = stablehlo.reduce(%e init: %zero) across dimensions = [1]
    : (tensor<?x4xf32>, tensor<f32>) -> tensor<?xf32>
    reducer(%a: tensor<f32>, %b: tensor<f32>) {
      %c = stablehlo.constant dense<2.0> : tensor<f32>
      %d = stablehlo.multiply %c, %b : tensor<f32>
      %f = stablehlo.add %a, %d : tensor<f32>
      stablehlo.return %f : tensor<f32>
    }
  %two = stablehlo.constant dense<2> : tensor<1xi32>
  %m = stablehlo.multiply %n, %three : tensor<i32>
  %rows = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %rows, %two, dim = 0
    : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %number = stablehlo.convert %m : (tensor<i32>) -> tensor<f32>
  %all = stablehlo.dynamic_broadcast_in_dim %number, %shape, dims = []
    : (tensor<f32>, tensor<2xi32>) -> tensor<?x2xf32>
  return %sum, %loop#1, %all : tensor<?xf32>, tensor<?x4xf32>, tensor<?x2xf32>
}
"""


@pytest.mark.parametrize("kept", ["plan-fusion", "sink-views"])
def test_an_analysis_that_a_pass_keeps_is_what_a_new_one_finds(kept):
    with new_context(), ir.Location.unknown(), flags.overridden(spec=0):
        module = ir.Module.parse(SIZES_AND_REGIONS)
        passes = [named("resolve-shapes"), *planning(MODEL)]
        index = next(k for k, a_pass in enumerate(passes) if a_pass.name == kept)
        Pipeline(passes[:index]).run(module)
        shapes = known_shapes.KnownShapes(module)
        before = shapes.now()
        (record,) = Pipeline([passes[index]]).run(module, shapes)
        assert record.changed
        assert shapes.now() is before
        assert before.agrees_with(analyze(module))


def test_a_pass_that_changes_ops_and_tells_no_change_is_found_by_who_asks_for_shapes(module):
    with flags.overridden(spec=1), pytest.raises(InternalError, match="has not said so"):
        Pipeline([Asking(0, "replace"), Asking()]).run(module)


DANGLING = """
import os
from shlo_disc import flags
from shlo_disc.base.errors import InternalError
from shlo_disc.ir.mlir import ir, new_context, ops_of
from shlo_disc.passes.base import Pass, Pipeline

TEXT = '''
func.func @main(%x: tensor<4xf32>, %p: tensor<i1>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32>
  %1 = stablehlo.tanh %0 : tensor<4xf32>
  %2 = "stablehlo.if"(%p) ({
    %3 = stablehlo.add %0, %x : tensor<4xf32>
    stablehlo.return %3 : tensor<4xf32>
  }, {
    stablehlo.return %1 : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}'''

class Break(Pass):
    name = "break"

    def run(self, module, shapes):
        (op,) = ops_of(module, target)
        op.detach_from_parent() if keep else op.erase()
        return 1

kept = []
for keep in (False, True):
    for target in ("stablehlo.add", "stablehlo.tanh", "stablehlo.negate", "stablehlo.if"):
        with new_context(), ir.Location.unknown(), flags.overridden(spec=1):
            module = ir.Module.parse(TEXT)
            kept.append(module)
            try:
                Pipeline([Break()]).run(module)
            except InternalError as error:
                print(target, str(error).replace(chr(10), " "))
os._exit(0)  # freeing such a module would follow its operands
"""


def test_an_operand_of_an_op_that_is_gone_is_found():
    """MLIR's verifier would follow the operand, perhaps into freed memory."""
    lines = python(DANGLING, PYTHONUNBUFFERED="1").splitlines()
    readers = ["stablehlo.return", "stablehlo.return", "stablehlo.tanh", "func.return"]
    targets = ["add", "tanh", "negate", "if"]
    assert len(lines) == 8, lines
    for line, target, reader in zip(lines, targets * 2, readers * 2, strict=True):
        assert line.startswith(f"stablehlo.{target} pass break made an invalid module: ")
        assert f"{reader} at" in line
        assert "operand 0 is a value of an operation that is not in the module" in line


def test_a_shape_is_no_data():
    text = """func.func @main(%x: tensor<?xf32>) -> tensor<1xi32> {
      %s = "disc.shape"() {dims = ["d0_0"]} : () -> tensor<1xi32>
      return %s : tensor<1xi32>
    }"""
    with (
        new_context(),
        ir.Location.unknown(),
        flags.overridden(spec=1),
        pytest.raises(InternalError, match=r"func\.return at .*operand 0 is a disc\.shape"),
    ):
        Pipeline([]).run(ir.Module.parse(text))


def test_a_visitor_may_raise_through_walk(module):
    def visit(op):
        raise UnsupportedError(op.name)

    with pytest.raises(UnsupportedError, match="tanh"):
        walk(module, visit)


def test_flags_know_their_names_and_check_numbers(monkeypatch):
    with pytest.raises(ValueError, match="no such flag: debg"), flags.overridden(debg=1):
        pass
    monkeypatch.setenv("SHLO_DISC_NUM_THREADS", "two")
    with pytest.raises(ValueError, match="SHLO_DISC_NUM_THREADS is 'two'"):
        flags.num_threads()
    monkeypatch.setenv("SHLO_DISC_NUM_THREADS", "3")
    assert flags.num_threads() == 3
    with flags.overridden(num_threads=5):
        assert flags.num_threads() == 5
    assert flags.num_threads() == 3


FUSION = """
func.func @main(%x: tensor<?x4xf32>, %n: tensor<i32>) -> (tensor<?x4xf32>, tensor<i32>) {{
  %r:2 = "disc.fusion"(%x, %n) ({{
    ^bb0(%a: {argument}, %b: tensor<i32>):
      "disc.yield"({yielded}) : (tensor<?x4xf32>, tensor<i32>) -> ()
  }}) {{{attributes}}} : (tensor<?x4xf32>, tensor<i32>) -> (tensor<?x4xf32>, tensor<i32>)
  return %r#0, %r#1 : tensor<?x4xf32>, tensor<i32>
}}
"""


def verified(text):
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        module.operation.verify()
        dialect.verify(module)
        return str(module)


def test_a_fusion_of_different_types_can_be_printed_and_read_back():
    good = FUSION.format(argument="tensor<?x4xf32>", yielded="%a, %b", attributes='kind = "loop"')
    assert verified(verified(good)) == verified(good)


def test_a_fusion_without_a_kind_is_refused():
    text = FUSION.format(argument="tensor<?x4xf32>", yielded="%a, %b", attributes="")
    with pytest.raises(ValueError, match=r"disc.fusion at .*: attribute kind is missing"):
        verified(text)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('"disc.shap"() : () -> ()', "there is no such operation"),
        ('%s = "disc.shape"() {dims = ["b"]} : () -> tensor<2xi32>', "different lengths"),
        ('"disc.guard"() {lhs = "b", op = "=="} : () -> ()', "attribute rhs is missing"),
        ('"disc.fusion"() ({}) {kind = "loop"} : () -> ()', "one region of one block"),
        ('"disc.fusion"() ({ "disc.dim"() {dim = "b"} : () -> tensor<i8> }) {kind = ""} : () -> ()',
         "end in disc.yield"),
    ],
)  # fmt: skip
def test_wrong_disc_ops_are_refused(line, problem):
    with pytest.raises(ValueError, match=problem):
        verified(f"func.func @main() {{ {line}\n return }}")
