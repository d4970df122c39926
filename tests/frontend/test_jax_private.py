"""Every private name of JAX is what `shlo_disc/jax_private/` says: the first test to read on a
new JAX."""

import cProfile
import gc
import re
import sys
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from shlo_disc import jax_private
from shlo_disc.jax.sizes.generic import generic
from shlo_disc.jax_private.arrays import ArrayImpl, cpu_sharding, key_impl
from shlo_disc.jax_private.jaxprs import (
    are_plain,
    closed_over,
    equations_of,
    named_axes,
    retyped,
    shaped_array,
)
from shlo_disc.jax_private.sizes import reshapes_of
from shlo_disc.jax_private.states import checking, is_library_file, trace_context
from tests.children import python

PACKAGE = Path(jax_private.__file__).parent
PRIVATE = re.compile(r"\bjax\._src\b|\bjaxlib\b.*import|\bjaxlib\._jax\b")


def sizes(text):
    return export.symbolic_shape(text)


def test_private_names_are_used_in_one_package_only():
    users = [
        path
        for path in PACKAGE.parent.rglob("*.py")
        if PRIVATE.search(path.read_text(encoding="utf-8"))
    ]
    assert len(users) > 5
    assert {path.parent for path in users} == {PACKAGE}


def test_the_table_names_what_is_exported():
    for name in (
        "trace_context",
        "disable_jit",
        "ArrayImpl",
        "key_impl",
        "DimExpr",
        "cpu_sharding",
    ):
        assert f"`{name}`" in jax_private.__doc__
        assert any(hasattr(module, name) for module in vars(jax_private).values())


def test_equations_of_a_jaxpr_that_is_called_twice_occur_twice():
    inner = jax.jit(jnp.sin)
    traced = jax.jit(lambda x: jax.lax.cond(x > 0, inner, jnp.cos, inner(x))).trace(1.0).jaxpr
    names = [equation.primitive.name for equation in equations_of(traced)]
    assert (names.count("sin"), names.count("cos")) == (2, 1)
    assert not named_axes(traced)
    assert [*map(id, equations_of(traced))] == [*map(id, equations_of(traced.jaxpr))]
    alive = weakref.ref(traced.jaxpr)
    del traced
    jax.clear_caches()
    gc.collect()
    assert alive() is None


def test_primitives_are_those_of_jax_extend():
    code = """
        import sys
        from shlo_disc.jax_private.extend import primitives
        ours = vars(primitives())
        assert "jax.extend" not in sys.modules
        from jax.extend.core import primitives as public
        theirs = {n: value for n, value in vars(public).items() if n.endswith("_p")}
        assert primitives() is public
        print(len(theirs) > 100, all(ours[n] is value for n, value in theirs.items()))
        """
    assert python(code) == "True True"


def test_named_axes_inside_calls_are_found():
    inner = jax.jit(lambda x: jax.lax.ppermute(x, "i", [(0, 0)]))
    traced = jax.make_jaxpr(inner, axis_env=[("i", 1)])(1.0)
    assert named_axes(traced) == {"i"}


def test_tracers_of_an_outer_trace_are_the_first_arguments_and_may_change_their_type():
    table = jnp.arange(3.0)

    def outer(w):
        def read(x):
            return x * w.shape[0] + w[0] + table

        spec = jax.ShapeDtypeStruct((3,), np.float32)
        traced = jax.jit(read).trace(spec)
        values = closed_over(traced)
        assert {id(value) for value in values} == {id(w), id(table)}
        assert len(traced.jaxpr.in_avals) == len(values) + 1
        assert are_plain([w])
        other = jax.ShapeDtypeStruct(sizes("n, 3"), np.float32)
        with retyped([w], [other]), checking(object()):
            assert str(w.shape) == "(n, 3)"
            inner = jax.make_jaxpr(lambda: w * 2)()
            assert str(inner.out_avals[0].shape) == "(n, 3)"
        with pytest.raises(KeyError), retyped([w], [other]):
            raise KeyError  # of a trace that fails
        assert w.shape == (4, 3)
        return read(table)

    for wrap in (jax.jit, lambda f: jax.grad(lambda w: f(w).sum())):
        wrap(outer)(jnp.ones((4, 3)))
    jax.vmap(outer)(jnp.ones((2, 4, 3)))
    assert closed_over(jax.jit(lambda x: x + table).trace(1.0)) == []


def test_trace_context_changes_with_the_configuration():
    before = trace_context()
    assert hash(before) == hash(trace_context())
    assert before == trace_context()
    with jax.enable_x64(True):
        assert trace_context() != before


def test_array_class():
    assert type(jnp.ones(3)) is ArrayImpl
    assert type(jax.jit(lambda x: x)(jnp.ones(3))) is ArrayImpl
    assert ArrayImpl is not type(jax.random.key(0))


def test_arrays_are_made_of_numpy_memory():
    device = jax.devices("cpu")[0]
    memory = np.zeros(64, np.uint8)
    start = -memory.ctypes.data % 64
    data = np.frombuffer(memory.data, np.float32, 2, start)
    array = jax_private.arrays.batched_device_put(
        shaped_array((2,), np.dtype(np.float32), True),
        cpu_sharding(device),
        [data],
        [device],
        False,
    )
    assert array.weak_type
    assert not array._committed
    assert array.unsafe_buffer_pointer() == data.ctypes.data
    jax_private.arrays.collect_garbage()


@pytest.mark.parametrize("x64", [False, True])
def test_wide_device_put_keeps_64_bits_and_the_setting(x64):
    device = jax.local_devices(backend="cpu")[0]
    data = np.array([2**40 + 1])
    with jax.enable_x64(x64):
        array = jax_private.arrays.wide_device_put(
            shaped_array((1,), data.dtype, False), cpu_sharding(device), [data], [device], False
        )
        assert jax.config.jax_enable_x64 == x64
    assert np.asarray(array).dtype == np.int64
    assert np.asarray(array)[0] == data[0]


def test_key_impl_wraps_raw_keys():
    for impl in ("threefry2x32", "rbg"):
        key = jax.random.key(0, impl=impl)
        again = jax.random.wrap_key_data(jax.random.key_data(key), impl=key_impl(key.dtype))
        assert again.dtype == key.dtype


def test_library_files():
    assert is_library_file(jnp.__file__)
    assert is_library_file(jax_private.__file__)
    assert not is_library_file(__file__)
    assert not is_library_file(np.__file__)


def test_reshapes_are_found_in_nested_jaxprs():
    b, t = sizes("b, t")

    def f(x):
        return jax.lax.scan(lambda c, r: (c, r.reshape(-1, 1)), 0.0, x)[1], x.reshape(-1)

    jaxpr = jax.jit(f).trace(jax.ShapeDtypeStruct((b, t), np.float32)).jaxpr
    found = list(reshapes_of(jaxpr))
    shapes = {(tuple(before), tuple(after)) for before, after, _ in found}
    assert shapes == {(("t",), ("t", "1")), (("b", "t"), ("b*t",))}
    assert all("test_jax_private.py:" in where for _, _, where in found)


def test_erfc_and_erf_inv_are_lowered_whole():
    def f(x):
        return jax.lax.erfc(x) + jax.lax.erf_inv(x)

    spec = jax.ShapeDtypeStruct(sizes("b, 4"), jnp.float32)
    text = str(jax_private.lowering.lower_whole(jax.jit(f), (spec,), {}).module)
    assert text.count("@chlo.erf") == 2
    assert "stablehlo.multiply" not in text


@pytest.mark.parametrize("shape", [(1, 1, 4), (4, 1, 1), (2, 1, 2), (2, 2, 1)])
def test_shardings_and_tiles_are_two_forms_of_one(shape):
    tiles = np.array([2, 0, 3, 1]).reshape(shape)
    made = jax_private.meshes.sharding_of_tiles(tiles, jax.devices() * 4)
    found = jax_private.meshes.tiles_of(made, 2)
    if shape[-1] == 4:
        assert found is None
    else:  # replicas have no order
        np.testing.assert_array_equal(np.sort(found), np.sort(tiles))
    assert jax_private.meshes.tiles_of(None, 2) is None


def test_an_equation_is_bound_without_its_mesh():
    mesh = jax.make_mesh((1,), ("i",))
    with jax.set_mesh(mesh):
        jaxpr = jax.jit(lambda x: jnp.sin(x) * 1).trace(jnp.ones(3)).jaxpr
    equation, _ = jax_private.jaxprs.equations_of(jaxpr)
    seen = []

    def run(x):
        (result,) = jax_private.jaxprs.bind_equation(equation, [x])
        seen.append(jax.typeof(result).sharding.mesh.empty)
        return result

    np.testing.assert_allclose(jax.jit(run)(np.ones(3, np.float32)), np.sin(np.ones(3)), rtol=1e-6)
    assert seen == [True]


def test_functions_are_searched_for_once():
    """A later trace searches no names: modules of a program have a hundred thousand."""
    generic.install()
    names = sum(len(getattr(module, "__dict__", ())) for module in list(sys.modules.values()))
    profile = cProfile.Profile()
    profile.enable()
    generic.install()
    profile.disable()
    assert sum(entry.callcount for entry in profile.getstats()) < names / 10
