"""Options of `shlo_disc.compile`: forms that are taken, and what is said of others."""

import numpy as np
import pytest

import shlo_disc
from shlo_disc.base.errors import InvalidModuleError, ShapeMismatchError

V, M = "tensor<?xf32>", "tensor<?x?xf32>"
PAIR = f"""func.func @main(%x: {V}, %y: {V}) -> ({V}, {V}) {{
  %0 = stablehlo.add %x, %y : {V}
  return %0, %x : {V}, {V} }}"""


@pytest.mark.parametrize(
    ("option", "value", "error", "message"),
    [
        ("name", 3, TypeError, "name must be a string, got 3"),
        ("target", None, TypeError, "target must be a string, got None"),
        ("names", "ab", TypeError, "names must be a sequence, got 'ab'"),
        ("names", [1, 2], TypeError, "a name must be a string, got 1"),
        ("names", list("abc"), ValueError, "3 names were given for 2 array arguments"),
        ("shapes", ["n", "n"], TypeError, "shapes[0] must be a sequence, got 'n'"),
        ("shapes", [[2.5], None], TypeError, "a size of shapes[0] must be a whole number, got 2.5"),
        ("shapes", [["n"]], ValueError, "1 shapes were given for 2 array arguments"),
        ("constraints", [3], TypeError, "a constraint must be a string such as 't >= 2', got 3"),
        ("constraints", "n >= 2", InvalidModuleError,
         "the size n has n, no argument's size (these are: d0_0, d1_0)"),
        ("likely", [3], TypeError, "likely must map names of sizes to numbers, got [3]"),
        ("likely", {3: 3}, TypeError, "likely must map names of sizes to numbers, got the name 3"),
        ("likely", {"d0_0": "3"}, TypeError,
         "a likely value of 'd0_0' must be a whole number, got '3'"),
        ("likely", {"d0_0": [True]}, TypeError,
         "a likely value of 'd0_0' must be a whole number, got True"),
        ("likely", {"d0_0": -1}, ValueError, "a likely value of 'd0_0' must be a size, got -1"),
        ("likely", {"d0_0": [2**70]}, ValueError,
         f"a likely value of 'd0_0' must be a size, got {2**70}"),
        ("first_sizes", "ab", TypeError,
         "first_sizes must map names of sizes to numbers, got 'ab'"),
        ("first_sizes", {"d0_0": -1}, ValueError, "a first value of 'd0_0' must be a size, got -1"),
        ("first_sizes", {"d0_0": [1, 2]}, ValueError, "first_sizes must have one value of 'd0_0'"),
        ("first_sizes", {"n": 3, "d0_0": 2}, ValueError,
         "main: first_sizes: no size is called n"),
        ("donated", ["x"], TypeError, "a donated argument must be a whole number, got 'x'"),
        ("donated", -1, ValueError,
         "donated names argument -1, but the program has 2 arguments, which are counted from 0"),
        ("weak_results", "ab", TypeError, "weak_results must be a sequence, got 'ab'"),
        ("weak_results", [0, 1], TypeError, "weak_results must hold True and False, got 0"),
        ("weak_results", [True], ValueError, "weak_results has 1 values for 2 results"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(option, value, error, message):
    with pytest.raises(error) as raised:
        shlo_disc.compile(PAIR, **{option: value})
    assert str(raised.value) == message


def test_one_of_what_may_be_several():
    made = shlo_disc.compile(
        PAIR, constraints="d0_0 <= 5", likely={"d0_0": np.int64(4)}, donated=1, names=["a", None]
    )
    assert made.signature.arguments[0].name == "a"
    assert made.donated == {1}
    assert made(np.ones(4, "f4"), np.ones(4, "f4"))[0].shape == (4,)
    with pytest.raises(ShapeMismatchError, match="compiled for d0_0 <= 5"):
        made(np.ones(6, "f4"), np.ones(6, "f4"))


def test_the_rest_of_a_shape_is_as_the_type_says():
    kind = "tensor<?x3x?xf32>"
    text = f"func.func @main(%x: {kind}) -> {kind} {{ return %x : {kind} }}"
    made = shlo_disc.compile(text, shapes=[["n", "..."]])
    assert str(made.signature.arguments[0]) == "args[0]: float32[n, 3, d0_2]"
    assert made(np.ones((2, 3, 5), "f4"))[0].shape == (2, 3, 5)


@pytest.mark.parametrize("name", ["size__0__1", "element__0__1", "size_0_1"])
def test_no_name_of_a_size_hides_one_of_ours(name):
    """A size called as that of dimension 1 was read in its place: the guard held for any."""
    made = shlo_disc.compile(
        f"""func.func @main(%x: {M}, %y: {V}) -> ({M}, {V}) {{
      %0 = stablehlo.transpose %x, dims = [1, 0] : ({M}) -> {M}
      %1 = stablehlo.add %0, %x : {M}
      return %1, %y : {M}, {V} }}""",
        shapes=[["m", "m"], [name]],
    )
    with pytest.raises(ShapeMismatchError, match="dimension 1 is 3, but m = 2"):
        made(np.ones((2, 3), "f4"), np.ones(2, "f4"))
    with pytest.raises(InvalidModuleError, match="unexpected"):
        shlo_disc.compile(f"func.func @main(%x: {V}) {{ return }}", shapes=[["size\u00b70\u00b70"]])


def test_a_constraint_that_divides_by_zero_is_broken():
    made = shlo_disc.compile(PAIR, constraints="floordiv(d0_0, d0_0 - 3) == 2")
    made(np.ones(6, "f4"), np.ones(6, "f4"))
    with pytest.raises(ShapeMismatchError, match=r"== 2: a size is divided by 0 \(d0_0 = 3 was"):
        made(np.ones(3, "f4"), np.ones(3, "f4"))


def test_a_number_stated_for_a_dynamic_size_is_checked_at_every_call():
    """The kernels rely on it: a shorter array would be read beyond its end."""
    run = shlo_disc.compile(
        "func.func @main(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {\n"
        "%y = stablehlo.add %x, %x : tensor<?x3xf32>\nreturn %y : tensor<?x3xf32> }",
        shapes=[["12", "3"]],
    )
    assert run.run_numpy([np.ones((12, 3), np.float32)])[0].shape == (12, 3)
    with pytest.raises(
        shlo_disc.ShapeMismatchError, match="dimension 0 is 5, the program takes 12"
    ):
        run.run_numpy([np.ones((5, 3), np.float32)])
