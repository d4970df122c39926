"""explain(): kernels, variants, reasons and memory of a compiled program."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc


def mlp(x, w, u):
    return jax.nn.softmax(jnp.tanh(x @ w) @ u)


ARRAYS = [np.ones(s, np.float32) for s in ((5, 8), (8, 24), (24, 7))]


def executable():
    f = shlo_disc.jit(mlp)
    f(*ARRAYS)
    return f, f.lower(*ARRAYS).compile().executable


def test_every_kernel_has_its_kind_source_line_and_variants():
    _, exe = executable()
    text = exe.explain()
    lines = text.split("kernels:\n")[1].splitlines()
    kinds = [line.split()[1] for line in lines if line[:4].strip().isdigit()]
    assert kinds == ["dense", "dense"]
    assert text.startswith("mlp: 2 kernels, ")
    assert text.count("test_explain.py:") >= 2
    assert "dense_packed where operand 1 is kept packed, else (dense_direct if d0 <= " in text
    assert "dense_packed_then_rows where operand 1 is kept packed" in text


def test_memory_is_a_formula_and_a_number():
    _, exe = executable()
    few = exe.explain({"d0": 10, "d1": 8, "d3": 24, "d5": 7})
    many = exe.explain({"d0": 1000, "d1": 8, "d3": 24, "d5": 7})

    def number(text):
        line = next(line for line in text.splitlines() if line.startswith("temporary memory"))
        return int(line.split(" = ")[1].split(" bytes at ")[0].replace(",", ""))

    assert number(few) >= 10 * 24 * 4  # what lies between the products
    assert number(many) >= 1000 * 24 * 4
    assert number(many) < 3 * 1000 * 24 * 4
    with pytest.raises(KeyError):
        exe.explain({"d0": 10})


def test_a_function_explains_its_compiled_versions():
    f, exe = executable()
    text = f.explain()
    assert text.startswith("version 1 of mlp")
    assert exe.explain().splitlines()[0] in text
    assert text.count("where operand 1 is kept packed") == 2


def test_neighbours_that_are_not_fused_say_why():
    def f(x):
        y = jnp.exp(x)
        return y.sum(0), jnp.sort(y, 1) + y.sum(0)

    g = shlo_disc.jit(f)
    g(np.ones((4, 6), np.float32))
    assert "not fused with" in g.explain()


def test_work_counts_products_reductions_and_what_is_read():
    _, exe = executable()
    sizes = {"d0": 5, "d1": 8, "d3": 24, "d5": 7}
    program = json.loads(exe.explain(sizes, format="json"))
    first, second = program["kernels"]
    assert first["ops"] == {"stablehlo.dot_general": 1, "stablehlo.tanh": 1}
    assert first["work"]["flops"] == {"formula": "2*d0*d1*d3", "value": 2 * 5 * 8 * 24}
    assert first["work"]["transcendentals"]["value"] == 5 * 24
    assert first["work"]["bytes_read"]["value"] == 4 * (5 * 8 + 8 * 24)
    assert first["work"]["bytes_written"]["value"] == 4 * 5 * 24
    assert second["reads"] == ["kernel 0", "argument 2"]
    # The product, and the softmax behind it.
    assert second["work"]["transcendentals"]["value"] == 5 * 7
    # maximum, subtraction, sum, division, and a maximum with -inf for each row
    rows = second["work"]["flops"]["value"] - 2 * 5 * 24 * 7
    assert rows == pytest.approx(4 * 5 * 7, rel=0.1)


def test_a_gather_reads_the_rows_it_takes():
    f = shlo_disc.jit(lambda table, ids: table[ids])
    table, ids = jnp.ones((1000, 16)), jnp.arange(3)
    f(table, ids)
    exe = f.lower(table, ids).compile().executable
    assert (
        exe.cost_analysis({"d0": 1000, "d1": 16, "d2": 3})["bytes accessed"] < 3 * 16 * 4 * 2 + 50
    )


def test_zeros_between_the_elements_of_an_image_are_no_work():
    """The gradient of a strided convolution takes as many operations as the convolution itself."""

    def strided(x, w):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (2, 2), [(1, 1)] * 2, dimension_numbers=numbers)

    def gradient(x, w, y):
        return jax.vjp(lambda x: strided(x, w), x)[1](y)[0]

    image, kernel = jnp.ones((2, 8, 8, 4)), jnp.ones((3, 3, 4, 16))
    flops = []
    for function, shapes, arrays in (
        (strided, ("b, 8, 8, 4", "3, 3, 4, 16"), (image, kernel)),
        (
            gradient,
            ("b, 8, 8, 4", "3, 3, 4, 16", "b, 4, 4, 16"),
            (image, kernel, strided(image, kernel)),
        ),
    ):
        compiled = shlo_disc.jit(function, shapes=shapes).lower(*arrays).compile()
        flops.append(compiled.executable.cost_analysis({"b": 2})["flops"])
    assert flops == [2 * 2 * 4 * 4 * 16 * 3 * 3 * 4] * 2


def test_analyses_have_the_names_and_numbers_of_jax():
    f, exe = executable()
    compiled = jax.jit(mlp).lower(*ARRAYS).compile()
    theirs, memory = compiled.cost_analysis(), compiled.memory_analysis()
    sizes = {"d0": 5, "d1": 8, "d3": 24, "d5": 7}
    ours = exe.cost_analysis(sizes)
    assert ours["flops"] == pytest.approx(theirs["flops"], rel=0.2)
    assert ours["transcendentals"] == theirs["transcendentals"]
    ours = f.lower(*ARRAYS).compile().memory_analysis(sizes)
    for name in ("argument_size_in_bytes", "output_size_in_bytes"):
        assert ours[name] == getattr(memory, name)
    assert ours["generated_code_size_in_bytes"] > 1000
    assert exe.memory_analysis()["output_size_in_bytes"] == "4*d0*d5"


def test_variants_tell_how_many_calls_took_them():
    f = shlo_disc.jit(mlp)
    for rows in (5, 5, 5, 100):
        f(np.ones((rows, 8), np.float32), *ARRAYS[1:])
    (version,) = [json.loads(f.explain("json"))]
    cut = version["kernels"][0]["variants"][0]
    assert version["calls"] == 4
    assert cut["if"].startswith("d1 >= 4096 and ")  # long sums of few results
    assert cut["calls"] == [0, 4]
    (few,) = cut["otherwise"]
    assert few["calls"] == [1, 3]  # few columns, many rows
    (choice,) = few["otherwise"]
    assert choice["if_kept_packed"] == [1]
    assert choice["otherwise"][0]["calls"] == [3, 0]
    assert "[3:0]" in f.explain()
    assert f.cache_info().hits == 3


def test_loops_and_branches_are_named_around_their_kernels():
    def f(x):
        return jax.lax.fori_loop(0, 3, lambda _, y: jnp.sin(y) @ y, x)

    g = shlo_disc.jit(f)
    x = jnp.ones((4, 4))
    g(x)
    program = json.loads(g.explain("json"))
    assert any(k["inside"] and k["inside"][0].startswith("while ") for k in program["kernels"])


def test_an_unknown_format_is_refused():
    f, exe = executable()
    for explain in (f.explain, lambda format: exe.explain(format=format)):
        with pytest.raises(ValueError, match="formats: text, json, html"):
            explain("yaml")
