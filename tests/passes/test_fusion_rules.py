"""The table of fusion rules and its driver: order, reasons, what nothing may override."""

from pathlib import Path

import pytest

from shlo_disc.dynamic.shapes import analyze
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.passes import plan_fusion
from shlo_disc.passes.fusion.driver import run, start
from shlo_disc.passes.fusion.graph import Graph
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.rule import Apart, FusionRule, Merge, never
from shlo_disc.passes.fusion.table import RULES

FOLDER = Path(plan_fusion.__file__).parent / "fusion"

CHAIN = """func.func @main(%a: tensor<8x4xf32>, %b: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = stablehlo.tanh %a : tensor<8x4xf32>
  %1 = stablehlo.add %0, %b : tensor<8x4xf32>
  %2 = stablehlo.exponential %1 : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}"""
"""Nodes 0, 1 and 2, one behind the other."""


@pytest.fixture
def chain():
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(CHAIN)
        block = module.body.operations[0].regions[0].blocks[0]
        partition = Partition(Graph(block, analyze(module), MODEL))
        start(partition)
        yield partition


def pair(name, *seeds, why_not=never):
    """A rule that joins the clusters of two nodes, whatever they are."""

    def match(p, seed):
        first, second = (p.cluster_of[index] for index in seed)
        union = Cluster("loop", second.space, members=first.members | second.members)
        yield Merge(union, (first, second), seed, seed[0], frozenset(seed[1:]))

    return FusionRule(name, lambda _: iter(seeds), match, why_not, "a test")


def clusters(p):
    return sorted(sorted(c.members) for c in dict.fromkeys(p.cluster_of.values()))


def test_every_op_starts_alone(chain):
    assert clusters(chain) == [[0], [1], [2]]


def test_rules_run_in_the_order_of_the_table(chain):
    seen = []

    def noting(rule):
        def seeds(p):
            seen.append((rule.name, clusters(p)))
            return rule.seeds(p)

        return FusionRule(rule.name, seeds, rule.match, rule.why_not, rule.place)

    run(chain, [noting(pair("late", (1, 2))), noting(pair("early", (0, 1)))])
    assert seen == [("late", [[0], [1], [2]]), ("early", [[0], [1, 2]])]
    assert clusters(chain) == [[0, 1, 2]]


def test_a_refused_union_leaves_its_reason_and_nothing_else(chain):
    before = dict(chain.cluster_of)
    run(chain, [pair("never", (0, 1), why_not=lambda p, merge: "it is Tuesday")])
    assert chain.why == {(0, 1): "it is Tuesday"}
    assert chain.cluster_of == before


def test_no_rule_makes_a_cycle(chain):
    """Nodes 0 and 2 in one kernel would wait for node 1, which waits for them."""
    run(chain, [pair("around", (0, 2))])
    assert chain.why == {(0, 2): "another kernel stands between them"}
    assert clusters(chain) == [[0], [1], [2]]


def test_the_first_legal_proposal_is_made(chain):
    def match(p, seed):
        yield Apart(0, frozenset({2}), "there is nothing to join")
        for other in (2, 1):
            union = Cluster("loop", p.cluster_of[0].space, members={0, other})
            yield Merge(union, (p.cluster_of[0], p.cluster_of[other]), seed)
        raise AssertionError("asked again after a union was made")

    run(chain, [FusionRule("best", lambda _: iter([(0,)]), match, never, "a test")])
    assert chain.why == {(0, 2): "there is nothing to join"}
    assert clusters(chain) == [[0, 1], [2]]


def test_a_graph_does_not_change(chain):
    with pytest.raises(AttributeError):
        chain.graph.nodes[0].users = frozenset()
    assert isinstance(chain.graph.nodes, tuple)


def test_every_rule_has_a_name_and_a_reason_for_its_place():
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(len(rule.place) > 20 for rule in RULES)


def test_the_driver_alone_changes_the_partition():
    changes = ("p.replace(", "p.begin(", "p.again(", "p.apart(", "p.kept |=", "p.dropped.add(")
    found = {
        path.name
        for path in FOLDER.glob("*.py")
        if any(change in path.read_text(encoding="utf-8") for change in changes)
    }
    assert found == {"driver.py"}
