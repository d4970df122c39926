"""The passes of `ingest`: what each is told of a program, its errors, dumps and texts."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner
from jax import export

from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError
from shlo_disc.ingest import ingest
from shlo_disc.ingest.normalize import PASSES
from shlo_disc.ingest.present import calls_of, target_of
from shlo_disc.ir.mlir import new_context, walk
from shlo_disc.ir.pipeline import PassLog
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.passes import table
from shlo_disc.tools.disc_opt import main as disc_opt

NORMALIZE = importlib.import_module("shlo_disc.ingest.normalize")


def of_jax(function, *types):
    (n,) = export.symbolic_shape("n")
    shapes = [jax.ShapeDtypeStruct((n, 4, 4), t) for t in types]
    return export.export(jax.jit(function))(*shapes)


def mixed(x):
    y = jnp.linalg.cholesky(x @ x.mT + jnp.eye(4)) + jax.lax.erf_inv(x)
    z = jnp.fft.fft(y).real + jax.lax.nextafter(y, x)
    return jax.lax.cond(x[0, 0, 0] > 0, jnp.sin, jnp.cos, z), jax.lax.approx_max_k(x[0, 0], 2)


TUPLE = """func.func @main(%x: tensor<?xf32>, %t: !stablehlo.token) -> tuple<tensor<?xf32>> {
  %0 = stablehlo.tan %x : tensor<?xf32>
  %1 = stablehlo.optimization_barrier %0 : tensor<?xf32>
  %2 = "stablehlo.tuple"(%1) : (tensor<?xf32>) -> tuple<tensor<?xf32>>
  return %2 : tuple<tensor<?xf32>>
}"""
QUANTIZED = """func.func @main(%x: tensor<?x!quant.uniform<i8:f32, 0.5>>)
    -> tensor<?x!quant.uniform<i8:f32, 0.5>> {
  %0 = stablehlo.tanh %x : tensor<?x!quant.uniform<i8:f32, 0.5>>
  return %0 : tensor<?x!quant.uniform<i8:f32, 0.5>>
}"""
PROGRAMS = {
    "mixed": lambda: of_jax(mixed, jnp.float32),
    "complex": lambda: of_jax(lambda z: jnp.abs(z @ z), jnp.complex64),
    "tuple": lambda: TUPLE,
    "quantized": lambda: QUANTIZED,
}


def names_of(module):
    found = set()

    def visit(op):
        found.add(op.name)
        if op.name == "stablehlo.custom_call":
            found.update(calls_of(target_of(op)))

    walk(module, visit)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_known_of_a_program_misses_nothing_that_a_pass_asks_for(name, monkeypatch):
    """Passes say which ops they make only by `keeps_known`: what later ones look for is known."""
    asked = frozenset().union(*(p.when for p in PASSES if isinstance(p.when, frozenset)))
    missed = []

    def watched(a_pass):
        def is_needed(known):
            missed.extend(
                (a_pass.name, op) for op in (names_of(known.module) & asked) - known.present
            )
            return replace(a_pass).is_needed(known)

        return replace(a_pass, when=is_needed)

    monkeypatch.setattr(NORMALIZE, "PASSES", tuple(map(watched, PASSES)))
    log = PassLog()
    with flags.overridden(spec=1):
        ingest(PROGRAMS[name](), new_context(), log=log)
    # LAPACK's calls are made behind the check of custom calls; the pass that takes them runs.
    assert [m for m in missed if m != ("expand-foreign-calls", "stablehlo.custom_call")] == []
    assert [r.name for r in log.records] == [
        p.name for p in PASSES if p.name in {r.name for r in log.records}
    ]
    assert any(r.changed for r in log.records)


def test_names_are_those_of_no_other_pass():
    names = [p.name for p in PASSES]
    assert len({*names, *table.passes(MODEL)}) == len(names) + len(table.passes(MODEL))
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)


@pytest.mark.parametrize("spec", [0, 1])
def test_a_pass_that_fails_is_named(monkeypatch, spec):
    def fail(module, known):
        raise KeyError("lost")

    def spoil(module, known):
        (main,) = module.body.operations
        main.body.blocks[0].operations[-1].operation.erase()  # the return

    rules = {"fail": (fail, "pass broken failed: KeyError: 'lost'")}
    if spec:
        rules["spoil"] = (spoil, "pass broken made an invalid module")
    for rule, message in rules.values():
        broken = replace(PASSES[3], name="broken", rule=rule)
        monkeypatch.setattr(NORMALIZE, "PASSES", (*PASSES[:4], broken))
        with flags.overridden(spec=spec), pytest.raises(InternalError, match=message):
            ingest(TUPLE, new_context())


def test_each_pass_that_runs_leaves_a_dump(tmp_path):
    log = PassLog()
    with flags.overridden(dump=tmp_path):
        ingest(TUPLE, new_context(), log=log)
    (folder,) = tmp_path.iterdir()
    numbers = {p.name: k for k, p in enumerate(PASSES, 1)}
    expected = [f"ingest-{numbers[r.name]:02}-{r.name}.mlir" for r in log.records]
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["ingest-00-input.mlir", *expected]
    assert "stablehlo.tuple" in (folder / "ingest-04-flatten.mlir").read_text()
    assert "stablehlo.tuple" not in (folder / files[-1]).read_text()


def test_disc_opt_prints_after_a_pass_of_ingest(tmp_path):
    path = tmp_path / "program.mlir"
    path.write_text(TUPLE)
    result = CliRunner().invoke(
        disc_opt,
        [str(path), "--pass-pipeline=ingest,cse", "--print-ir-after=flatten-tuples", "--timing"],
    )
    assert result.exit_code == 0, result.output
    assert "// after flatten-tuples\n" in result.stderr
    assert re.search(r"^drop-no-ops +1 changed", result.stderr, re.MULTILINE)
    assert re.search(r"^cse +\d+ changed", result.stderr, re.MULTILINE)
