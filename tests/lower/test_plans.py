"""Fusions that differ in the names of their sizes share a plan, where equal things are known."""

import re

import numpy as np
import pytest

import shlo_disc
from shlo_disc.lower.cpu import target
from shlo_disc.lower.plan import If, Pack

LAYERS = """
func.func public @main(%x: tensor<?x?xf32> {disc.shape = ["n", "a"]},
    %v: tensor<?x?xf32> {disc.shape = ["a", "b"]}, %w: tensor<?x?xf32> {disc.shape = ["b", "c"]})
    -> tensor<?x?xf32> attributes {disc.constraints = [CONSTRAINTS]} {
  %y = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
      : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %h = stablehlo.tanh %y : tensor<?x?xf32>
  %z = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0]
      : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %r = stablehlo.tanh %z : tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}"""


@pytest.fixture
def planned(monkeypatch):
    """The kinds of the fusions that emitters were asked for."""
    kinds = []
    for kind, emit in target.EMITTERS.items():

        def noted(fusion, machine, kind=kind, emit=emit):
            kinds.append(kind)
            return emit(fusion, machine)

        monkeypatch.setitem(target.EMITTERS, kind, noted)
    return kinds


@pytest.mark.parametrize(
    ("constraints", "plans"),
    [
        ((), 1),
        (("b <= 64", "c <= 64", "a <= 64"), 1),
        (("mod(b, 8) == 0",), 2),
        (("c <= 64",), 2),
        (("a >= b", "b >= c"), 2),  # `a` and `b` are tied to one more symbol
    ],
)
def test_layers_share_a_plan_if_as_much_is_known_of_their_sizes(planned, constraints, plans):
    stated = ", ".join(f'"{constraint}"' for constraint in constraints)
    executable = shlo_disc.compile(LAYERS.replace("CONSTRAINTS", stated))
    assert planned.count("dense") == plans
    rng = np.random.default_rng(0)
    x, v, w = (rng.normal(size=size).astype("f") / 4 for size in ((5, 40), (40, 16), (16, 7)))
    want = np.tanh(np.tanh(x.astype(float) @ v) @ w)
    (found,) = executable(x, v, w)
    np.testing.assert_allclose(found, want, rtol=0, atol=3e-6)


def test_packed_copies_are_named_by_the_sizes_of_their_own_weight(planned):
    executable = shlo_disc.compile(LAYERS.replace("CONSTRAINTS", ""))
    assert planned.count("dense") == 1
    for use, own in zip(executable.host.uses, ({"a", "b"}, {"b", "c"}), strict=True):
        layouts = [part.layout for pack in packs_of(use.plan.steps) for part in pack.parts]
        assert {name for layout in layouts for size in layout for name in size.symbols()} == own


def packs_of(steps):
    for step in steps:
        if isinstance(step, Pack):
            yield step
        elif isinstance(step, If):
            yield from packs_of((*step.then, *step.otherwise))


def test_what_is_told_of_variants_names_the_sizes_of_the_fusion(planned):
    stated = '"a <= 5", "b <= 5", "c <= 5"'
    executable = shlo_disc.compile(LAYERS.replace("CONSTRAINTS", stated))
    assert planned.count("dense") == 1
    first, second = (" and ".join(use.why) for use in executable.host.uses)
    assert re.search(r"one variant: .*\ba\b.* (always|never) holds", first)
    assert second == re.sub(r"\b[ab]\b", lambda name: {"a": "b", "b": "c"}[name[0]], first)
