"""What a jitted function is besides a call, as with `jax.jit`: stages, copies, keywords, errors."""

import copy
import functools
import inspect
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc

REAL = True


def double(x, y):
    """Twice."""
    return x * 2, {"y": y + 1}


ARGUMENTS = np.ones((3, 2), np.float32), 1.0


def public(value):
    return {name for name in dir(value) if not name.startswith("_")}


@functools.cache
def stages(jit):
    traced = jit(double, donate_argnums=1).trace(*ARGUMENTS)
    lowered = traced.lower()
    return traced, lowered, lowered.compile()


def test_stages_have_what_those_of_jax_have():
    f, g = shlo_disc.jit(double), jax.jit(double)
    assert public(g) <= public(f)
    for ours, theirs in zip(stages(shlo_disc.jit), stages(jax.jit), strict=True):
        # These give JAX's own objects for JAX's own transformations.
        internal = {"closure_convert", "lojax", "physicalize", "with_consts_as_arg"}
        assert public(theirs) - internal <= public(ours)
        for name in ("in_tree", "out_tree", "in_avals", "donate_argnums"):
            assert getattr(ours, name) == getattr(theirs, name), name
        for a, b in zip(*map(jax.tree.leaves, (ours.out_info, theirs.out_info)), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)  # JAX forgets weak types on the way
        assert str(ours.args_info) == str(theirs.args_info)
    ours, theirs = stages(shlo_disc.jit)[2], stages(jax.jit)[2]
    for name in ("input_shardings", "output_shardings", "input_formats", "output_formats"):
        a, b = getattr(ours, name), getattr(theirs, name)
        assert jax.tree.structure(a) == jax.tree.structure(b), name
    assert ours.output_shardings == theirs.output_shardings
    assert f.eval_shape(*ARGUMENTS) == g.eval_shape(*ARGUMENTS)


def test_analyses_are_of_the_sizes_lowered_for():
    _, lowered, compiled = stages(shlo_disc.jit)
    cost = lowered.cost_analysis()
    assert cost == compiled.cost_analysis() == compiled.cost_analysis(compiled.sizes)
    assert isinstance(cost["flops"], int)
    assert compiled.cost_analysis({"d0": 300, "d1": 2})["flops"] > 50 * cost["flops"]
    assert compiled.memory_analysis()["output_size_in_bytes"] == 28
    assert "d0" in str(compiled.executable.cost_analysis()["flops"])
    module = lowered.compiler_ir()
    assert "stablehlo.multiply" in str(module)
    with pytest.raises(ValueError, match="hlo"):
        lowered.compiler_ir("hlo")
    assert compiled.runtime_executable() is compiled.executable
    np.testing.assert_array_equal(compiled.call(*ARGUMENTS)[0], np.full((3, 2), 2))


def test_a_stage_keeps_no_arrays_alive():
    x = jnp.ones(5)
    lowered = shlo_disc.jit(lambda x: x + 1).lower(x)
    x.delete()
    assert lowered.out_info.shape == (5,)


@pytest.mark.parametrize("remade", [copy.copy, copy.deepcopy])
def test_copies(remade):
    f = shlo_disc.jit(double, name="twice", dynamic=False)
    again = remade(f)
    assert again is not f
    assert again.__doc__ == "Twice."
    assert again.lower(*ARGUMENTS).name == "twice"
    for n in (2, 3):
        np.testing.assert_array_equal(again(jnp.ones(n), jnp.ones(n))[0], np.full(n, 2))
    assert (again.cache_info().currsize, f.cache_info().currsize) == (3, 0)


def test_options_of_every_kind_are_copied():
    f = shlo_disc.jit(
        double,
        donate_argnums=iter([0]),
        on_unsupported="xla",
        background=True,
        device=jax.devices("cpu")[0],
    )
    again = copy.deepcopy(copy.copy(f))
    arguments = (jnp.ones(3), jnp.ones(3))
    assert again.lower(*arguments).donate_argnums == (0,)
    before, after = f._given, again._given
    assert (after.device, before.device) == (None, jax.devices("cpu")[0])
    assert (after.on_unsupported, after.background) == ("xla", True)


@pytest.mark.parametrize("jit", [jax.jit, shlo_disc.jit])
def test_pickle_refuses_functions_of(jit):
    with pytest.raises((AttributeError, pickle.PicklingError), match="local object"):
        pickle.dumps(jit(double))


def test_the_signature_has_every_option():
    parameters = inspect.signature(shlo_disc.jit).parameters
    assert set(inspect.signature(jax.jit).parameters) <= set(parameters)
    fun, *options = parameters.values()
    assert (fun.kind, fun.default) == (fun.POSITIONAL_ONLY, None)
    assert {option.kind for option in options} == {fun.KEYWORD_ONLY}
    assert parameters["dynamic"].default == "auto"
    for option in options:
        assert option.name in shlo_disc.jit.__doc__
    for call in (shlo_disc.jit, lambda **given: shlo_disc.jit(double, **given)):
        with pytest.raises(TypeError, match=r"shlo_disc\.jit has no option static_args, shape"):
            call(static_args=0, shape="n")


def test_a_callable_object_keeps_its_attributes_and_we_ours():
    class Model:
        def __init__(self):
            self.lower, self.explain, self.depth = "mine", "mine", 3

        def __call__(self, x):
            return x * self.depth

    f = shlo_disc.jit(Model())
    np.testing.assert_array_equal(f(jnp.ones(2)), [3, 3])
    assert f.depth == 3
    assert "version 1" in f.explain()
    assert f.lower(jnp.ones(2)).compile()(jnp.ones(2)).shape == (2,)


def test_keywords_of_jax():
    home = jax.devices("cpu")[0]
    here = jax.sharding.SingleDeviceSharding(home)
    options = {"keep_unused": True, "inline": True, "device": home, "backend": "cpu"}
    f = shlo_disc.jit(double, in_shardings=(here, None), out_shardings=here, **options)
    np.testing.assert_array_equal(f(*ARGUMENTS)[0], np.full((3, 2), 2))
    for name, value in {"backend": "tpu", "device": object(), "out_shardings": "x"}.items():
        with pytest.raises(shlo_disc.UnsupportedError, match="runs on"):
            shlo_disc.jit(double, **{name: value})


def test_options_of_xla_are_told(caplog):
    shlo_disc.jit(double, compiler_options={"xla_dump_to": "x"})
    assert "does not read compiler_options" in caplog.text


def deleted(jit):
    x = jnp.ones(3)
    f = jit(lambda x: x + 1)
    f(x)
    x.delete()
    f(x)


def donated_before(jit):
    x = jnp.ones(3)
    f = jit(lambda x: x + 1, donate_argnums=0)
    f(x)
    f(x)


def donated_twice(jit):
    x = jnp.ones(3)
    jit(lambda x, y: (x + 1, y + 1), donate_argnums=(0, 1))(x, x)


def too_large(jit):
    f = jit(lambda x, n: x * n)
    f(jnp.ones(3, jnp.int32), 2)
    f(jnp.ones(3, jnp.int32), 1 << 40)


def missing(jit):
    jit(double)(1.0)


def text(jit):
    jit(double)("a", "b")


def unhashable(jit):
    jit(double, static_argnums=1)(1.0, [1])


CALLS = [deleted, donated_before, donated_twice, too_large, missing, text, unhashable]


@pytest.mark.parametrize("call", CALLS)
def test_code_that_catches_errors_of_jax_catches_ours(call):
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - whatever it is
        call(jax.jit)
    with pytest.raises(theirs.type):
        call(shlo_disc.jit)


@pytest.mark.parametrize("number", [1 << 31, -(1 << 31) - 1, 1 << 40, 1 << 70, -(1 << 70)])
def test_integers_that_do_not_fit_raise_overflow_errors(number):
    """At the first call, in a structure, and once a version exists."""
    function = shlo_disc.jit(lambda tree: tree["x"][0] + 1)
    for call in (jax.jit(lambda tree: tree["x"][0] + 1), function):
        with pytest.raises(OverflowError):
            call({"x": [number]})
    assert function({"x": [4]}) == 5
    with pytest.raises(OverflowError):
        function({"x": [number]})


@pytest.mark.parametrize("transform", [lambda f: f, jax.grad, jax.vmap])
def test_deleted_arguments_raise_what_jax_raises(transform):
    def function(x):
        return x * jnp.sin(x)

    alive = jnp.ones(() if transform is jax.grad else (3,))
    ours = shlo_disc.jit(transform(function))
    for call in (jax.jit(transform(function)), ours, transform(shlo_disc.jit(function)), ours):
        dead = alive + 1
        dead.delete()
        with pytest.raises(RuntimeError, match="deleted"):
            call(dead)
        if call is ours:
            ours(alive)
