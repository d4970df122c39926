"""`disc.constraints` of `main`: guards and facts, as assertions in the program are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import shlo_disc
from shlo_disc.base.errors import InvalidModuleError, ShapeMismatchError
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.relations import lower_bound, parse_constraint
from shlo_disc.dynamic.shape_program import shape_program
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.passes.resolve_shapes import ResolveShapes

TEXT = """func.func public @main(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %y = stablehlo.add %x, %x : tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}"""


def ingested(*constraints):
    return ingest(TEXT, new_context(), shapes=[["b", "t"]], constraints=constraints)


def guards(analysis):
    return [f"{g.lhs} {g.op} {g.rhs}" for g in analysis.guards]


def test_constraints_are_guards_and_facts():
    told = ("t - 2 >= 0", "mod(t, 4) == 0", "b < t", "b >= 1", "t >= 2", "b != 7")
    module = ingested(*told)
    with module.context, ir.Location.unknown():
        analysis = analyze(module)
        # What the symbols or earlier constraints imply is not repeated.
        assert guards(analysis) == ["t - 2 >= 0", "mod(t, 4) == 0", "b < t", "b != 7"]
        assert analysis.guards[0].message == "the program is compiled for t - 2 >= 0"
        _, t = analysis.arguments[0]
        assert analysis.constraints.divisible(t, 4)
        assert analysis.constraints.at_least(t, 2)
        main = module.body.operations[0].operation
        ResolveShapes().run(module, KnownShapes(module))
        assert "disc.constraints" not in main.attributes
        again = analyze(module)
        assert guards(again) == guards(analysis)
        program = shape_program(main, again, ["x"])
    assert program.evaluate([(3, 8)])[1] == [(3, 8)]
    for shape in ((1, 6), (8, 8), (7, 8), (0, 4)):
        with pytest.raises(ShapeMismatchError):
            program.evaluate([shape])
    with pytest.raises(ShapeMismatchError, match=r"compiled for mod\(t, 4\) == 0: 2 == 0 does not"):
        program.evaluate([(1, 6)])


def test_an_equality_makes_one_symbol_of_two():
    module = ingested("b == 2*t")
    with module.context, ir.Location.unknown():
        analysis = analyze(module)
        main = module.body.operations[0].operation
        returned = main.regions[0].blocks[0].operations[1].operation.operands[0]
        assert len({str(s) for e in analysis.shape(returned) for s in e.symbols()}) == 1
        program = shape_program(main, analysis, ["x"])
    assert program.evaluate([(6, 3)])[1] == [(6, 3)]
    with pytest.raises(ShapeMismatchError):
        program.evaluate([(6, 4)])


def test_what_cannot_hold_refuses_every_call():
    module = ingested("b >= 2", "b < 2")
    with module.context, ir.Location.unknown():
        assert guards(analyze(module)) == ["b >= 2", "0 == 1"]


@pytest.mark.parametrize("text", ["t", "t => 2", "1 < t < 3", "t >= $"])
def test_text_that_is_no_constraint(text):
    module = ingested(text)
    with pytest.raises(InvalidModuleError), module.context, ir.Location.unknown():
        analyze(module)


def test_a_symbol_of_no_argument():
    module = ingested("q >= 2")
    with module.context, ir.Location.unknown():
        analysis = analyze(module)
        with pytest.raises(InvalidModuleError, match="the size q has q"):
            shape_program(module.body.operations[0].operation, analysis, ["x"])


def test_constraints_of_the_text_are_kept():
    text = TEXT.replace(
        "tensor<?x?xf32> {", 'tensor<?x?xf32> attributes {disc.constraints = ["b >= 3"]} {', 1
    )
    module = ingest(text, new_context(), shapes=[["b", "t"]], constraints=["t >= 2"])
    main = module.body.operations[0].operation
    texts = [ir.StringAttr(c).value for c in ir.ArrayAttr(main.attributes["disc.constraints"])]
    assert texts == ["b >= 3", "t >= 2"]
    assert [parse_constraint(c)[1] for c in texts] == [">=", ">="]


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("b >= 0", ("b", 0)), ("0 <= b", ("b", 0)), ("b > -1", ("b", 0)), ("b + 2 >= 1", ("b", -1)),
        ("3 < b", ("b", 4)), ("2*b >= 0", None), ("b >= t", None), ("b == 0", None),
        ("-b <= 0", ("b", 0)), ("b <= 4", None), ("mod(b, 2) >= 0", None), ("4 > b", None),
        ("0 >= 0", None),
    ],
)  # fmt: skip
def test_lower_bound(text, bound):
    assert lower_bound(*parse_constraint(text)) == bound


def test_a_lowered_bound_outlives_resolve_shapes():
    module = ingested("b >= 0", "t >= 2")
    with module.context, ir.Location.unknown():
        main = module.body.operations[0].operation
        for _ in range(2):
            analysis = analyze(module)
            b, t = analysis.arguments[0]
            assert analysis.positive == {"t"}
            assert (analysis.constraints.bounds(b)[0], analysis.constraints.bounds(t)[0]) == (0, 2)
            ResolveShapes().run(module, KnownShapes(module))
        texts = [ir.StringAttr(c).value for c in ir.ArrayAttr(main.attributes["disc.constraints"])]
        assert texts == ["b >= 0"]
        program = shape_program(main, analyze(module), ["x"])
    assert program.evaluate([(0, 2)])[1] == [(0, 2)]
    with pytest.raises(ShapeMismatchError, match="compiled for t >= 2"):
        program.evaluate([(0, 1)])


def test_bounds_that_jax_states_are_not_lowered():
    """JAX's symbols are at least 1, whatever a scope says: a trace relies on it."""
    (b,) = export.symbolic_shape("b", constraints=["b >= 0"])
    exported = export.export(jax.jit(lambda x: x + x.shape[0]))(
        jax.ShapeDtypeStruct((b,), jnp.float32)
    )
    run = shlo_disc.compile(exported, constraints=["b >= 0"])
    with pytest.raises(ShapeMismatchError):
        run.run_numpy([np.ones(0, "f4")])
