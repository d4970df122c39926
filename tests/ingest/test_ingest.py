"""Any form of a program becomes the normal form, with names, shapes and locations."""

from __future__ import annotations

import io

import jax
import jax.numpy as jnp
import pytest
from jax import export

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest import KEPT_CHLO, ingest
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, new_context, ops_of, stablehlo, walk
from shlo_disc.jax.calls.lowered import lowered_module


def spec(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def normal(source, **kwargs):
    """The module and its set of op names."""
    module = ingest(source, new_context(), **kwargs)
    names: set[str] = set()
    walk(module, lambda op: names.add(op.name))
    assert len(module.body.operations) == 1
    return module, names


@jax.jit
def nested(x):
    return jnp.where(x > 0, x, 0) + jax.lax.erf(x)


def model(params, ids, *, mask):
    y = params["w"][0] @ mask
    return nested(y), ids + 1


@pytest.fixture(scope="module")
def exported():
    b, t = export.symbolic_shape("b, t", constraints=["t <= 512"])
    return export.export(jax.jit(model))(
        {"w": [spec(b, 4)]}, spec(b, dtype=jnp.int32), mask=spec(4, 2 * t)
    )


def argument_attributes(module):
    (main,) = module.body.operations
    return [{a.name: str(a.attr) for a in ir.DictAttr(d)} for d in main.arg_attrs]


def test_exported_has_one_function_names_and_shapes(exported):
    module, names = normal(exported)
    assert not {"func.call", "stablehlo.composite"} & names
    assert {n for n in names if n.startswith("chlo.")} == {"chlo.erf"}
    assert argument_attributes(module) == [
        {"disc.name": "\"params['w'][0]\"", "disc.shape": '["b", "4"]'},
        {"disc.name": '"ids"', "disc.shape": '["b"]'},
        {"disc.name": '"mask"', "disc.shape": '["4", "2*t"]'},
    ]


def test_a_typed_key_has_the_sizes_of_its_words():
    (b,) = export.symbolic_shape("b")
    keys = jax.ShapeDtypeStruct((b,), jax.random.key(0).dtype)
    exported = export.export(jax.jit(jax.vmap(lambda k: jax.random.bits(k, (3,)))))(keys)
    module, _ = normal(exported)
    assert argument_attributes(module)[0]["disc.shape"] == '["b", "2"]'


def test_assertions_stay(exported):
    module, _ = normal(exported)
    targets = [
        ir.StringAttr(op.attributes["call_target_name"]).value
        for op in ops_of(module, "stablehlo.custom_call")
    ]
    assert targets
    assert set(targets) == {"shape_assertion"}


def test_source_lines_survive(exported):
    module, _ = normal(exported)
    (dot,) = ops_of(module, "stablehlo.dot_general")
    line = model.__code__.co_firstlineno + 1
    assert source_line(dot) == f"{__file__}:{line}"
    assert dot.location.name_str == "jit(model)/dot_general"


def test_every_form_gives_the_same_module(exported, tmp_path):
    artifact = exported.mlir_module_serialized
    context = new_context()
    with context:
        module = stablehlo.deserialize_portable_artifact(context, artifact)
        text = str(module.operation.get_asm(enable_debug_info=True))
        stream = io.BytesIO()
        module.operation.write_bytecode(stream)
    path = tmp_path / "model.mlirbc"
    path.write_bytes(artifact)
    forms = [artifact, text, text.encode(), stream.getvalue(), path, str(path)]
    modules = [str(normal(form)[0]) for form in forms]
    assert len(set(modules)) == 1


def test_lowered_text_has_its_size_arguments_solved():
    b, t = export.symbolic_shape("b, t")
    specs = (spec(2 * b + 1, 4), spec(t, 3 * t))
    text = jax.jit(lambda x, y: (x.reshape(-1), y.sum() + t)).trace(*specs).lower().as_text()
    module, _ = normal(text, shapes=[[str(d) for d in s.shape] for s in specs])
    (main,) = module.body.operations
    assert [str(a.type) for a in main.arguments] == ["tensor<?x4xf32>", "tensor<?x?xf32>"]
    body = str(module)
    assert "jax.global_constant" not in body
    assert "stablehlo.subtract" in body  # b = (size - 1) / 2
    assert "stablehlo.divide" in body


def test_a_size_no_argument_shows_stays_an_argument():
    b, t = export.symbolic_shape("b, t")
    specs = (spec(b * t, 4), spec(b))
    text = jax.jit(lambda x, y: x.sum() + t + y).trace(*specs).lower().as_text()
    module, _ = normal(text, shapes=[["b*t", "4"], ["b"]])
    (main,) = module.body.operations
    assert str(main.arguments[0].type) == "tensor<i32>"
    assert str(main.arg_attrs[0]["jax.global_constant"]) == '"t"'
    assert len(main.arguments) == 3  # b is a size of the last one


def test_older_leading_sizes_without_an_attribute_are_data():
    text = """
      func.func public @main(%n: tensor<i64>, %x: tensor<?xf32>) -> tensor<?xf32> {
        %y = call @inner(%n, %x) : (tensor<i64>, tensor<?xf32>) -> tensor<?xf32>
        return %y : tensor<?xf32>
      }
      func.func private @inner(%n: tensor<i64>, %x: tensor<?xf32>) -> tensor<?xf32> {
        %f = stablehlo.convert %n : (tensor<i64>) -> tensor<f32>
        %s = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
        %b = stablehlo.dynamic_broadcast_in_dim %f, %s, dims = [] : (tensor<f32>, tensor<1xi64>) -> tensor<?xf32>
        %y = stablehlo.add %x, %b : tensor<?xf32>
        return %y : tensor<?xf32>
      }"""  # noqa: E501
    module, _ = normal(text)
    (main,) = module.body.operations
    assert len(main.arguments) == 2


@pytest.mark.parametrize("platforms", [("cpu",), ("cuda", "cpu"), ("cpu", "tpu")])
def test_the_branch_of_our_platform_is_taken(platforms):
    def f(x):
        return jax.lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos, default=jnp.tan)

    _, names = normal(export.export(jax.jit(f), platforms=platforms)(spec(4)))
    assert "stablehlo.sine" in names
    assert not {"stablehlo.case", "stablehlo.cosine", "stablehlo.tan"} & names


def test_another_platform_is_refused():
    exported = export.export(jax.jit(jnp.sin), platforms=("cuda", "tpu"))(spec(4))
    with pytest.raises(
        UnsupportedError, match=r"several platforms \(cuda, tpu\), none of them cpu"
    ):
        normal(exported)


@pytest.mark.parametrize(
    "f",
    [jnp.arcsin, jnp.arccosh, jnp.square, lambda x: jnp.nextafter(x, x),
     lambda x: jnp.sinh(jax.lax.complex(x, x)).real],
)  # fmt: skip
@pytest.mark.parametrize("form", ["exported", "lowered"])
def test_other_chlo_ops_are_expanded(f, form):
    (b,) = export.symbolic_shape("b")
    x = spec(b, 4)
    if form == "exported":
        _, names = normal(export.export(jax.jit(f))(x))
    else:
        _, names = normal(jax.jit(f).trace(x).lower().as_text(), shapes=[["b", "4"]])
    assert not [n for n in names if not n.startswith(("stablehlo.", "func.", "builtin."))]


@pytest.mark.parametrize("form", ["exported", "lowered"])
def test_kept_chlo_ops_stay_beside_expanded_ones(form):
    def f(x):
        values, indices = jax.lax.top_k(x, 2)
        return jax.lax.erf(x) + jnp.arcsinh(x), values, indices

    (b,) = export.symbolic_shape("b")
    x = spec(b, 4)
    if form == "exported":
        module, names = normal(export.export(jax.jit(f))(x))
    else:
        module, names = normal(jax.jit(f).trace(x).lower().as_text(), shapes=[["b", "4"]])
    assert {n for n in names if n.startswith("chlo.")} == {"chlo.erf", "chlo.top_k"} <= KEPT_CHLO
    (top_k,) = ops_of(module, "chlo.top_k")
    assert int(ir.IntegerAttr(top_k.attributes["k"]).value) == 2


def test_barriers_stay_before_arrays_of_floats_one_for_each():
    def f(x):
        y, z, n = jax.lax.optimization_barrier((x, x + 1, jnp.arange(4)))
        return y * z + n

    module, _ = normal(export.export(jax.jit(f))(spec(4)))
    barriers = ops_of(module, "stablehlo.optimization_barrier")
    assert [len(op.operands) for op in barriers] == [1, 1]


def test_control_flow_keeps_its_regions_and_calls_inside_are_inlined():
    def f(x):
        def step(carry, row):
            return nested(carry + row), carry

        return jax.lax.scan(step, jnp.zeros(4), x)

    (b,) = export.symbolic_shape("b")
    _, names = normal(export.export(jax.jit(f))(spec(b, 4)))
    assert {"stablehlo.while", "chlo.erf"} <= names


def test_a_private_function_called_from_two_places_is_inlined_twice():
    text = """
      func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
        %y = stablehlo.tanh %x : tensor<4xf32>
        return %y : tensor<4xf32>
      }
      func.func @entry(%x: tensor<4xf32>) -> tensor<4xf32> {
        %y = call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
        %z = call @f(%y) : (tensor<4xf32>) -> tensor<4xf32>
        return %z : tensor<4xf32>
      }"""
    module, _ = normal(text)
    assert "func.func public @main" in str(module)
    assert len(ops_of(module, "stablehlo.tanh")) == 2


def test_tokens_of_no_effect_go():
    text = """
      func.func public @main(%t: !stablehlo.token, %x: tensor<4xf32>) -> (!stablehlo.token, tensor<4xf32>) {
        %y = stablehlo.tanh %x : tensor<4xf32>
        return %t, %y : !stablehlo.token, tensor<4xf32>
      }"""  # noqa: E501
    module, _ = normal(text)
    assert "token" not in str(module)


def test_all_of_it_is_valid_for_the_interpreter():
    module, _ = normal(export.export(jax.jit(lambda x: jnp.arcsinh(x) * 2))(spec(3)))
    with module.context:
        argument = ir.DenseElementsAttr.get(jnp.arange(3.0).__array__())
        (result,) = stablehlo.eval_module(module, [argument])
    assert [round(float(v), 4) for v in result] == [0.0, 1.7627, 2.8873]


def test_what_no_line_made_has_no_line():
    """JAX gives a literal the line that called the function."""
    lowered = lowered_module("f", jax.jit(lambda x: jnp.pad(x, 1)), [spec(3)], {})
    module, _ = normal(lowered.source())
    (constant,) = ops_of(module, "stablehlo.constant")
    assert constant.location.name_str == "jit(<lambda>)"
    assert source_line(constant) == "unknown location"
    (pad,) = ops_of(module, "stablehlo.pad")
    assert source_line(pad).startswith(__file__)
