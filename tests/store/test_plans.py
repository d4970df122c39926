"""Kernel plans on disk: an edited program loads those that did not change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

import shlo_disc
from shlo_disc import cache
from shlo_disc.base.errors import ShloDiscError
from shlo_disc.driver import kept, kept_plans
from shlo_disc.driver.kept_plans import KeptPlans
from shlo_disc.driver.stages import main_function
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shape_program import shape_program
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.executables.codec import from_bytes, to_bytes
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.lower.host.plans import Plans
from shlo_disc.lower.host.program import emit_host
from shlo_disc.lower.identity import NamelessError, spelled
from shlo_disc.lower.plan import KeptText, KernelPlan, LateText, kernels_of
from shlo_disc.lower.refused import Refused
from shlo_disc.lower.target import parse
from shlo_disc.passes.base import Pipeline
from shlo_disc.passes.pipeline import CLEANUP, planning
from shlo_disc.store.entries import current
from tests.store.test_calls import forget
from tools.replay import PROGRAMS

T = "tensor<?x?xf32>"
SHAPES = [["n", "k"], ["k", "k"]]
EDITED = "stablehlo.tanh %p"
PROGRAM = f"""
func.func @main(%x: {T}, %w: {T}) -> ({T}, {T}, {T}, {T}) {{
  %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({T}, {T}) -> {T}
  %a = {EDITED} : {T}
  %q = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({T}, {T}) -> {T}
  %b = stablehlo.sine %q : {T}
  %s = "stablehlo.sort"(%x) <{{dimension = 1 : i64}}> ({{
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %c = stablehlo.compare LT, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }}) : ({T}) -> {T}
  %t = stablehlo.transpose %w, dims = [1, 0] : ({T}) -> {T}
  %u = stablehlo.exponential %t : {T}
  return %a, %b, %s, %u : {T}, {T}, {T}, {T}
}}"""
OTHER = PROGRAM.replace(EDITED, "stablehlo.negate %p")
TWO = PROGRAM.replace(
    "%q = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]",
    "%q = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]",
)

pytestmark = pytest.mark.usefixtures("own_store")
OTHER_TWO = TWO.replace(
    "%p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]",
    "%p = stablehlo.dot_general %w, %w, contracting_dims = [1] x [1]",
)
"""Its products, one that is loaded and one that is not, share kernels."""
X = np.linspace(-1, 1, 21, dtype=np.float32).reshape(3, 7)
W = np.linspace(-2, 1, 49, dtype=np.float32).reshape(7, 7)


@pytest.fixture
def made(monkeypatch):
    """The kinds of the fusions that are planned by an emitter."""
    kinds: list[str] = []
    new = Plans._new

    def counted(self, op, kind, known):
        kinds.append(kind)
        return new(self, op, kind, known)

    monkeypatch.setattr(Plans, "_new", counted)
    return kinds


@pytest.fixture
def abouts(monkeypatch):
    """What plans were kept under."""
    found: list[Any] = []
    keep = KeptPlans.keep

    def noted(self, about, made):
        found.append(about)
        return keep(self, about, made)

    monkeypatch.setattr(KeptPlans, "keep", noted)
    return found


def compiled(text, **options):
    executable = shlo_disc.compile(text, shapes=SHAPES, **options)
    shlo_disc.finish_compiling()
    return executable


def results(executable) -> list[bytes]:
    return [result.tobytes() for result in executable.run_numpy([X, W])]


def plans():
    return [entry for entry in current().entries() if entry.kind == "plans"]


@pytest.mark.parametrize("sizes", [None, {"n": 3, "k": 7}])
@pytest.mark.parametrize(
    ("text", "other", "planned"), [(PROGRAM, OTHER, ["loop"]), (TWO, OTHER_TWO, ["dense"])]
)
def test_an_edited_program_plans_what_was_edited(made, monkeypatch, sizes, text, other, planned):
    """The program is the same as where nothing was on disk, to the byte; so are its results."""
    monkeypatch.setenv("SHLO_DISC_CACHE", "0")
    wanted = compiled(other, first_sizes=sizes)
    expected = results(wanted)
    monkeypatch.setenv("SHLO_DISC_CACHE", "1")
    made.clear()
    compiled(text, first_sizes=sizes)
    count = len(made)
    forget()
    made.clear()
    before = cache.stats()
    edited = compiled(other, first_sizes=sizes)
    assert made == planned
    assert cache.stats()["plans_loaded"] - before["plans_loaded"] == count - len(planned)
    assert any(isinstance(kernel.source, KeptText) for kernel in edited.host.kernels)
    assert to_bytes(edited.record.host) == to_bytes(wanted.record.host)
    assert [kernel.text for kernel in edited.host.kernels] == [
        kernel.text for kernel in wanted.host.kernels
    ]
    assert results(edited) == expected
    assert edited.as_text("llvm") == wanted.as_text("llvm")


def test_a_loaded_plan_reads_no_text(monkeypatch):
    results(compiled(PROGRAM, first_sizes={"n": 3, "k": 7}))
    shlo_disc.finish_compiling()
    forget()
    for module in (kept, kept_plans):  # entries have all texts
        monkeypatch.setattr(module, "do_later", lambda _: None)
    edited = shlo_disc.compile(OTHER, shapes=SHAPES, first_sizes={"n": 3, "k": 7})
    results(edited)
    loaded = [k.source for k in edited.host.kernels if isinstance(k.source, KeptText)]
    assert len(loaded) >= 3
    assert all(source.late._make is not None for source in loaded)


def test_another_target_has_other_plans():
    compiled(PROGRAM)
    before = cache.stats()
    executable = compiled(OTHER, target="cpu:sse2")
    assert cache.stats()["plans_loaded"] == before["plans_loaded"]
    results(executable)


def test_facts_about_sizes_count():
    compiled(PROGRAM)
    before = cache.stats()
    compiled(OTHER, constraints=["mod(n, 8) == 0", "mod(k, 16) == 0"])
    assert cache.stats()["plans_loaded"] == before["plans_loaded"]


def test_plans_that_are_right_are_right(monkeypatch):
    compiled(PROGRAM)
    forget()
    monkeypatch.setenv("SHLO_DISC_CACHE", "verify")
    before = cache.stats()
    compiled(PROGRAM)
    now = cache.stats()
    assert now["plans_loaded"] == before["plans_loaded"]
    assert now["stored"] == before["stored"]


def test_a_plan_of_a_kernel_with_other_launches(monkeypatch):
    compiled(PROGRAM)
    forget()
    for entry in plans():
        plan, *others = from_bytes(entry.content())
        content = to_bytes((replace(plan, copies_operand=not plan.copies_operand), *others))
        current("plans").write(entry.key, content)
    monkeypatch.setenv("SHLO_DISC_CACHE", "verify")
    with pytest.raises(shlo_disc.CacheMismatchError, match=r"v1/plans/.*plan"):
        compiled(OTHER)


@pytest.mark.parametrize("damage", [lambda plan, texts: (plan, (), 0, ()), lambda plan, texts: 7])
def test_an_entry_that_is_no_plan_is_made_again(damage):
    compiled(PROGRAM)
    forget()
    for entry in plans():
        plan, _, _, texts = from_bytes(entry.content())
        assert {kernel.source for kernel in kernels_of(plan.steps)}
        current("plans").write(entry.key, to_bytes(damage(plan, texts)))
    before = cache.stats()["damaged"]
    edited = compiled(OTHER)
    assert cache.stats()["damaged"] - before == 4
    assert len(results(edited)) == 4


def functions():
    return [entry for entry in current().entries() if entry.kind == "functions"]


@pytest.mark.parametrize("has_code", [True, False])
def test_functions_of_plans_are_loaded(monkeypatch, has_code):
    monkeypatch.setenv("SHLO_DISC_CACHE", "0")
    wanted = compiled(OTHER_TWO)
    expected = results(wanted)
    monkeypatch.setenv("SHLO_DISC_CACHE", "1")
    compiled(TWO)
    forget()
    for entry in () if has_code else current().entries():
        if entry.kind == "kernels":
            entry.path.unlink()
    before = cache.stats()["functions_loaded"]
    edited = compiled(OTHER_TWO)
    loaded = [function for function in edited.host.functions if function.kept is not None]
    assert len(loaded) == cache.stats()["functions_loaded"] - before == 2
    assert len(functions()) == len(edited.host.functions) + 1
    assert edited.as_text("host") == wanted.as_text("host")
    assert results(edited) == expected


def test_a_function_that_differs_is_an_error(monkeypatch):
    compiled(TWO)
    forget()
    first, second, *_ = functions()
    current("functions").write(first.key, second.content())
    monkeypatch.setenv("SHLO_DISC_CACHE", "verify")
    with pytest.raises(shlo_disc.CacheMismatchError, match=r"v1/functions/.*function"):
        compiled(TWO)


def test_an_entry_that_is_no_function_is_made_again():
    compiled(TWO)
    forget()
    for entry in functions():
        current("functions").write(entry.key, to_bytes(("k", 7)))
    before = cache.stats()["damaged"]
    assert len(results(compiled(OTHER_TWO))) == 4
    assert cache.stats()["damaged"] - before == 2


def variants(value: Any) -> Iterator[Any]:
    """`value` with one part of it changed, for every part."""
    if isinstance(value, bool):
        yield not value
    elif value is None or isinstance(value, int | float):
        yield 1 if value is None else value + 1
    elif isinstance(value, str):
        yield f"{value}x"
    elif isinstance(value, tuple):
        yield (*value, 0)
        for place, part in enumerate(value):
            yield from ((*value[:place], new, *value[place + 1 :]) for new in variants(part))
    elif isinstance(value, frozenset):
        yield value | {"another"}
        for part in value:
            yield from ((value - {part}) | {new} for new in variants(part))
    elif isinstance(value, Expr):
        yield value + 1
    elif isinstance(value, ir.Attribute | ir.Type):
        yield "another"
    elif is_dataclass(value):
        for field in fields(value):
            for new in variants(getattr(value, field.name)):
                yield replace(value, **{field.name: new})
    else:
        yield None


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"first_sizes": {"n": 3, "k": 7}},
        {"constraints": ["n - k >= 0", "mod(k, 4) == 0"]},
    ],
)
def test_every_part_of_a_key_counts(abouts, options):
    executable = compiled(PROGRAM, **options)
    assert len(abouts) == 5
    for about in abouts:
        own = spelled(about)
        found = [spelled(variant) for variant in variants(about)]
        assert len(found) > 20
        assert own not in found
    late = [k.source for k in executable.host.kernels if isinstance(k.source, LateText)]
    assert late
    for source in late:
        found = [spelled(replace(source, what=what)) for what in variants(source.what)]
        assert len(found) > 20
        assert spelled(source) not in found


def test_what_cannot_be_named_in_full():
    with pytest.raises(TypeError, match="a object cannot be named"):
        spelled((1, object()))
    with new_context():
        about = ir.Attribute.parse("dense_resource<r> : tensor<2xf32>")
    with pytest.raises(NamelessError, match="dense_resource"):
        spelled((about,))
    target = parse("cpu")
    own, plan = KeptPlans(target, b""), (KernelPlan(()), (), 0)
    assert own.keep(about, plan) == plan
    assert own.found(about) is None
    assert not plans()


def emitted(text: str, kept: KeptPlans | None) -> bytes:
    """The host program of a module, with all texts."""
    target = parse("cpu")
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline([*CLEANUP, *planning(target.model)]).run(module)
        main, shapes = main_function(module), analyze(module)
        program = shape_program(main, shapes)
        return to_bytes(emit_host(main, shapes, program, target, kept=kept))


@pytest.mark.slow
def test_programs_of_every_kind_are_the_same_with_loaded_plans(made):
    """What emitters read is spelled, whatever it is."""
    for path in sorted(PROGRAMS.glob("*.mlir")):
        text = path.read_text()
        try:
            wanted = emitted(text, None)
        except (ShloDiscError, Refused):
            continue
        assert emitted(text, kept_plans.kept_plans(parse("cpu"))) == wanted, path
        shlo_disc.finish_compiling()
        made.clear()
        assert emitted(text, kept_plans.kept_plans(parse("cpu"))) == wanted, path
        assert not made, path


def test_packed_copies_of_computed_weights_have_the_same_keys_with_loaded_plans(made):
    text = """func.func public @main(%x: tensor<?x32xf32>, %w: tensor<32x48xf32>)
        -> tensor<?x48xf32> {
      %v = stablehlo.reverse %w, dims = [0] : tensor<32x48xf32>
      %r = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
          : (tensor<?x32xf32>, tensor<32x48xf32>) -> tensor<?x48xf32>
      return %r : tensor<?x48xf32>
    }"""
    (wanted,) = shlo_disc.compile(text).host.pack_keys
    shlo_disc.finish_compiling()
    made.clear()
    edited = text.replace("return %r", "%s = stablehlo.negate %r : tensor<?x48xf32> return %s")
    assert shlo_disc.compile(edited).host.pack_keys == (wanted,)
    assert len(made) == 1  # the product, which the last operation joins


def test_values_of_unlike_types_are_spelled_unlike():
    values = [1, True, "1", 1.0, b"1", (1,), ((1,),), frozenset([1]), None, "None", Expr.of(1)]
    assert len({spelled(value) for value in values}) == len(values)
    assert spelled(frozenset("abc")) == spelled(frozenset("cba"))
