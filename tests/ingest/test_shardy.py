"""Shardy's operations and attributes go; programs divided over devices are refused."""

import io

import jax
import jax.numpy as jnp
import pytest
from jax import export
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest import ingest
from shlo_disc.ingest.shardy import without_shardy
from shlo_disc.ir.mlir import ir, new_context


@pytest.fixture
def mesh():
    return jax.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))


def test_constraints_of_exported_and_lowered_programs_go(mesh):
    @jax.jit
    def f(x):
        return jax.lax.with_sharding_constraint(x + 1, NamedSharding(mesh, PartitionSpec("x")))

    x = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    for source in (export.export(f)(x), f.trace(x).lower().as_text()):
        text = str(ingest(source, new_context()))
        assert "sdy" not in text
        assert "barrier" not in text
        assert "stablehlo.add" in text


@pytest.mark.parametrize(
    "attribute",
    [
        '#sdy.sharding<@mesh, [{"x":(1)2, "]"}, {}], replicated={"y"}>',
        "#sdy.op_sharding_rule<([i, j])->([k], [m, n]) {i=5, j=4, k=5, m=4, n=5}, custom>",
    ],
)
def test_attributes_go_whatever_they_hold(attribute):
    text = (
        f'func.func @main(%a: tensor<4xf32> {{sdy.sharding = {attribute}, jax.name = "a"}})'
        " -> tensor<4xf32> {\n  return %a : tensor<4xf32>\n}"
    )
    assert without_shardy(text) == text.replace(attribute, "unit")
    ingest(text, new_context())


def test_text_without_shardy_is_not_touched():
    text = 'module attributes {a = "sdy.py"} {} loc("/tmp/sdy.py":1:2)'
    assert without_shardy(text) == text


def test_a_program_divided_over_devices_is_refused_with_its_line():
    text = (
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        '  %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"x"}]>] '
        'out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} (%y: tensor<2xf32>) {\n'
        "    sdy.return %y : tensor<2xf32>\n"
        "  } : (tensor<4xf32>) -> tensor<4xf32>\n  return %0 : tensor<4xf32>\n}"
    )
    with pytest.raises(UnsupportedError, match=r"^line 2: sdy.manual_computation: a program div"):
        ingest(text, new_context())


def test_attributes_with_arrows_go_whole():
    """JAX says of a call of LAPACK how it may be divided."""
    rule = "#sdy.op_sharding_rule<([i, j])->([k, l], []) {i=4, j=4, k=4, l=4}, custom>"
    text = f'%0 = stablehlo.custom_call @f(%x) {{sdy.sharding_rule = {rule}, a = "->"}}'
    assert without_shardy(text) == text.replace(rule, "unit")
    module = ingest(export.export(jax.jit(jnp.linalg.cholesky))(jnp.eye(4)), new_context())
    assert "lapack_spotrf_ffi" in str(module)


def test_bytes_with_shardy_say_what_to_pass(mesh):
    @jax.jit
    def f(x):
        return jax.lax.with_sharding_constraint(x + 1, NamedSharding(mesh, PartitionSpec("x")))

    artifact = export.export(f)(jax.ShapeDtypeStruct((4, 4), jnp.float32)).mlir_module_serialized
    told = "artifact has the dialect sdy, which shlo_disc does not read; pass the jax.export.Export"
    with pytest.raises(UnsupportedError, match=told):
        ingest(artifact, new_context())


def test_bytes_with_another_dialect_name_it():
    context = new_context()
    context.allow_unregistered_dialects = True
    with context, ir.Location.unknown():
        out = io.BytesIO()
        module = ir.Module.parse('func.func @main() { "foo.bar"() : () -> () return }')
        module.operation.write_bytecode(out)
    told = "the bytecode has the dialect foo, which shlo_disc does not read; lower its operations"
    with pytest.raises(UnsupportedError, match=told):
        ingest(out.getvalue(), new_context())
