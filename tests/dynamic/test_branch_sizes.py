"""Sizes that a branch knows, against the sizes that choose the branch, one by one."""

from __future__ import annotations

import pytest

from shlo_disc.dynamic.branch_sizes import branch_sizes
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.mlir import ops_of
from tests.dynamic.helpers import run

INDICES = [
    "max(0, min(n - 1, -1*n + 3))",
    "max(0, min(n - 1, -1*n + 3)) + 2*max(0, min(n - 4, -1*n + 6))",
    "max(0, min(n - 2, -1*n + 6))",  # 4 alone is the last branch, 3 and 5 are the one before
    "3*max(0, min(n - 1, -1*n + 3))",  # behind the last branch
    "-1*max(0, min(n - 4, -1*n + 6))",  # in front of the first
    "max(0, -1*n + 3)",
    "min(2, n)",  # no end
    "mod(n, 3)",
    "n - 1",
    "max(0, min(n - 1, -1*n + 3)) + 0*m",
    "max(0, min(n - m, m - n + 2))",  # two symbols
]


@pytest.mark.parametrize("index", INDICES)
def test_a_branch_knows_the_one_size_that_chooses_it(index: str) -> None:
    branches = ", ".join(
        f"{{ %b{k} = stablehlo.negate %x : tensor<?xf32>\nstablehlo.return %b{k} : tensor<?xf32> }}"
        for k in range(3)
    )
    found = run(f"""
        func.func public @main(%x: tensor<?xf32> {{disc.shape = ["n"]}},
                               %y: tensor<?xf32> {{disc.shape = ["m"]}}) -> tensor<?xf32> {{
          %k = "disc.dim"() {{dim = "{index}"}} : () -> tensor<i32>
          %r = "stablehlo.case"(%k) ({branches}) : (tensor<i32>) -> tensor<?xf32>
          return %r : tensor<?xf32>
        }}""")
    formula = Expr.parse(index)
    for number, op in enumerate(ops_of(found.module, "stablehlo.negate")):
        known = branch_sizes(op.operation, found.analysis)
        values = [formula.evaluate({"n": n, "m": 7}) for n in range(1, 200)]
        runs = [n for n, k in enumerate(values, 1) if (k if 0 <= k < 3 else 2) == number]
        assert known in ((), tuple(("n", n) for n in runs)), (number, runs)
        if len(runs) == 1 and number > 0 and not values[-1] and formula.symbols() == {"n"}:
            assert known == (("n", runs[0]),)
