"""What goes wrong outside of us is told in one sentence; odd values in data are no error."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import shlo_disc
from shlo_disc import InvalidModuleError, ShapeMismatchError, UnsupportedError
from tests.refused import unchanged

MODULE = """
module @scale {
  func.func @main(%x: tensor<?x4xf32>, %y: tensor<?xf32>) -> tensor<?x4xf32> {
    %0 = stablehlo.tanh %x : tensor<?x4xf32>
    return %0 : tensor<?x4xf32>
  }
}
"""


def ones(*sizes: int, dtype: str = "float32") -> np.ndarray:
    return np.ones(sizes, dtype)


@pytest.fixture(scope="module")
def exe():
    return shlo_disc.compile(MODULE)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((ones(3, 4, dtype="int32"), ones(3)), TypeError,
         "scale: argument 0 ('args[0]'): dtype is int32, the program takes float32"),
        ((ones(3, 4, dtype="float64"), ones(3)), TypeError,
         "scale: argument 0 ('args[0]'): dtype is float64, the program takes float32"),
        ((ones(3), ones(3)), ShapeMismatchError,
         "scale: argument 0 ('args[0]'): rank is 1, the program takes 2"),
        ((ones(3, 5), ones(3)), ShapeMismatchError,
         "scale: argument 0 ('args[0]'): dimension 1 is 5, the program takes 4"),
        ((ones(3, 4),), TypeError, "scale: the program takes 2 arguments, the call has 1"),
        (("abc", ones(3)), TypeError,
         "scale: argument 0 ('args[0]'): is a str, not an array (jax.Array, numpy or __dlpack__)"),
    ],
)  # fmt: skip
def test_argument_of_an_executable(exe, args, error, message):
    with pytest.raises(error) as raised:
        exe(*args)
    assert str(raised.value) == message


def test_executable_works_after_a_refused_call(exe):
    with pytest.raises(TypeError):
        exe(ones(3, 4, dtype="int32"), ones(3))
    np.testing.assert_allclose(np.asarray(exe(ones(2, 4), ones(7))[0]), np.tanh(ones(2, 4)), 1e-6)


def test_sizes_that_an_export_says_are_equal():
    b_t = export.symbolic_shape("b, t")
    spec = jax.ShapeDtypeStruct(b_t, jnp.float32)
    exe = shlo_disc.compile(export.export(jax.jit(lambda x, y: x + y))(spec, spec))
    assert exe(ones(2, 5), ones(2, 5))[0].shape == (2, 5)
    with pytest.raises(ShapeMismatchError) as raised:
        exe(ones(2, 5), ones(3, 5))
    assert str(raised.value) == (
        "argument 1 ('y'): dimension 0 is 3, but b = 2 "
        "(b was read from dimension 0 of argument 0 ('x'))"
    )


def test_a_stated_equality_and_a_stated_bound():
    f = shlo_disc.jit(lambda x, y: x + y, shapes=("b, t", "b, t"), constraints=("t >= 4",))
    assert f(ones(2, 5), ones(2, 5)).shape == (2, 5)
    with pytest.raises(ShapeMismatchError) as raised:
        f(ones(2, 5), ones(3, 5))
    assert str(raised.value) == (
        "<lambda>: argument y: dimension 0 is 3, but b = 2 "
        "(b = 2 was read from dimension 0 of argument x)"
    )
    with pytest.raises(ShapeMismatchError) as raised:
        f(ones(2, 3), ones(2, 3))
    assert str(raised.value) == (
        "<lambda>: t >= 4 does not hold: 3 >= 4 is false "
        "(t = 3 was read from dimension 1 of argument x)"
    )
    assert f.cache_info().misses == 1


def test_a_stated_multiple():
    f = shlo_disc.jit(lambda x: x.reshape(-1, 4), shapes=("4*k",))
    assert f(ones(8)).shape == (2, 4)
    with pytest.raises(ShapeMismatchError) as raised:
        f(ones(9))
    assert str(raised.value) == (
        "<lambda>: argument x: dimension 0 is 9, but 4*k is a multiple of 4"
    )


def test_arguments_that_do_not_fit_each_other_raise_what_jax_raises():
    f = shlo_disc.jit(lambda x, w: x @ w)
    f(ones(3, 4), ones(4, 5))
    with pytest.raises(TypeError, match="contracting dimensions") as ours:
        f(ones(3, 7), ones(4, 5))
    with pytest.raises(TypeError) as theirs:
        jax.jit(lambda x, w: x @ w)(ones(3, 7), ones(4, 5))
    assert str(ours.value).split("\n")[0] == str(theirs.value).split("\n")[0]
    assert f(ones(2, 4), ones(4, 5)).shape == (2, 5)


@pytest.mark.parametrize("leaf", ["text", object(), {1, 2}])
def test_a_leaf_that_is_no_array(leaf):
    with pytest.raises(TypeError) as raised:
        shlo_disc.jit(lambda p, x: p["w"] * x)({"w": leaf}, ones(3))
    assert str(raised.value) == (
        f"argument p['w'] is of type {type(leaf).__name__}; every leaf of an argument must be an "
        "array or a number. Values that are not arrays can be given with static_argnums or "
        "static_argnames."
    )


def test_another_structure_is_another_program():
    f = shlo_disc.jit(lambda p, x: sum(p) * x)
    x = ones(3)
    assert f((x, x), x)[0] == 2
    assert f([x, x, x], x)[0] == 3
    assert f.cache_info().misses == 2


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: x if x.sum() > 0 else -x, jax.errors.TracerBoolConversionError),
        (lambda x: x[x > 0], jax.errors.NonConcreteBooleanIndexError),
        (lambda x: jnp.zeros(int(x[0])), jax.errors.ConcretizationTypeError),
    ],
)
def test_what_jax_cannot_trace_raises_what_jax_raises(function, error):
    with pytest.raises(error):
        shlo_disc.jit(function)(ones(3))


# --- modules ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (MODULE.replace("tanh", "tanhh"),
         "the module is malformed: line 4, column 10: custom op 'stablehlo.tanhh' is unknown"),
        (MODULE.replace("return %0", "return %x0"),
         "the module is malformed: line 5, column 12: use of undeclared SSA value name"),
        (MODULE.replace("?x4xf32>\n    return", "?xf32>\n    return"),
         "the module is malformed: line 4, column 25: use of value '%x' expects different type "
         "than prior uses: 'tensor<?xf32>' vs 'tensor<?x4xf32>'"),
        ("", "the module is empty"),
        (b"", "the module is empty"),
        ("module {}", "the module needs one public function @main; functions: none"),
    ],
)  # fmt: skip
def test_a_malformed_module_names_the_line(source, message):
    with pytest.raises(InvalidModuleError) as raised:
        shlo_disc.compile(source)
    assert str(raised.value) == message


def test_bytes_cut_anywhere_are_refused():
    spec = jax.ShapeDtypeStruct(export.symbolic_shape("b, 4"), jnp.float32)
    artifact = export.export(jax.jit(jnp.tanh))(spec).mlir_module_serialized
    for length in range(1, len(artifact), 1 + len(artifact) // 12):
        with pytest.raises(InvalidModuleError):
            shlo_disc.compile(artifact[:length])


def test_a_target_we_do_not_have():
    with pytest.raises(UnsupportedError) as raised:
        shlo_disc.compile(MODULE, target="gpu")
    assert str(raised.value) == "target 'gpu' is not supported; targets: 'cpu', 'cuda', 'rocm'"
    with pytest.raises(UnsupportedError, match=r"cpu:z80.*architectures: sse2, avx2, avx512"):
        shlo_disc.compile(MODULE, target="cpu:z80")


def test_an_element_type_we_do_not_compile_names_the_argument():
    with pytest.raises(UnsupportedError, match=r"^argument 0: element type f80 is not compiled"):
        shlo_disc.compile("func.func @main(%x: tensor<3xf80>) { return }")


# --- values that are no numbers -----------------------------------------------------------------

SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-40, 3.4e38, -3.4e38, 1.0, -1.0], np.float32
)


def special(n: int, shift: int = 0) -> np.ndarray:
    return np.resize(np.roll(SPECIAL, shift), n)


def same(got, want):
    """Equal values, NaN where NaN, and zeros of the same sign."""
    got, want = np.asarray(got), np.asarray(want)
    np.testing.assert_array_equal(got, want)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


ELEMENTWISE = {
    "add": np.add,
    "divide": np.divide,
    # -0 is below 0 in IEEE 754's maximum and minimum; numpy gives either.
    "maximum": lambda x, y: np.where((x == 0) & (y == 0), x + y, np.maximum(x, y)),
    "minimum": lambda x, y: np.where((x == 0) & (y == 0), -(-x - y), np.minimum(x, y)),
    "multiply": np.multiply,
    "subtract": np.subtract,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_special_values_of_two_operands(name):
    f = shlo_disc.jit(getattr(jnp, name))
    for n in (11, 1, 64, 127):
        for shift in range(3):
            x, y = special(n), special(n, shift)
            with np.errstate(all="ignore"):
                same(f(x, y), ELEMENTWISE[name](x, y))
    assert f.cache_info().misses == 1


def test_special_values_of_one_operand():
    names = ("negative", "abs", "sqrt", "floor", "ceil", "isnan", "isfinite", "isinf")
    f = shlo_disc.jit(lambda x: tuple(getattr(jnp, name)(x) for name in names))
    for n in (11, 1, 64, 127):
        with np.errstate(all="ignore"):
            for got, name in zip(f(special(n)), names, strict=True):
                same(got, getattr(np, name)(special(n)))


@pytest.mark.parametrize("at", [0, 5, 16, 32, 36])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_odd_value_in_a_row_stays_in_its_row(at, value):
    def run(x, w):
        centred = x - x.mean(-1, keepdims=True)
        return x @ w, jax.nn.softmax(x, -1), centred, x.max(-1), x.min(-1), x.sum(-1)

    rng = np.random.default_rng(at)
    x = rng.standard_normal((5, 37)).astype(np.float32)
    w = rng.standard_normal((37, 9)).astype(np.float32)
    x[3, at] = value
    for got, want in zip(shlo_disc.jit(run)(x, w), jax.jit(run)(x, w), strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
        np.testing.assert_allclose(np.delete(got, 3, 0), np.delete(want, 3, 0), 1e-5, 1e-5)


def test_rows_that_are_all_minus_infinity():
    x = np.full((3, 20), -np.inf, np.float32)
    x[1] = 1.0
    f = shlo_disc.jit(lambda x: (jax.nn.softmax(x, -1), jax.nn.logsumexp(x, -1), x.max(-1)))
    for got, want in zip(f(x), jax.jit(f.__wrapped__)(x), strict=True):
        np.testing.assert_allclose(got, want, 1e-6)


def test_the_callers_rounding_of_denormals_is_left_alone():
    f = shlo_disc.jit(lambda x: jnp.exp(x) * 2.0)
    f(ones(7))
    tiny = np.float32(1e-40)
    assert tiny * np.float32(0.5) > 0


def test_what_is_not_compiled_is_refused_by_name_and_line():
    with pytest.raises(UnsupportedError, match=r"refused\.py:\d+.*stablehlo\.rng.*='xla'"):
        shlo_disc.jit(lambda x: unchanged(x.real) * 2j)(np.ones(3, "c8"))
