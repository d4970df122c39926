"""Malformed, damaged, hostile and unsupported input raises an error that says where."""

from __future__ import annotations

import random
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax import export

from shlo_disc.base.errors import InvalidModuleError, ShloDiscError, UnsupportedError
from shlo_disc.ingest import ingest, trial
from shlo_disc.ir.mlir import new_context


@pytest.fixture(scope="module")
def artifact():
    (b,) = export.symbolic_shape("b")
    x = jax.ShapeDtypeStruct((b, 4), jnp.float32)
    return export.export(jax.jit(lambda x: jnp.tril(x @ x.T)))(x).mlir_module_serialized


def refused(text, message, error=InvalidModuleError):
    with pytest.raises(error, match=message):
        ingest(text, new_context())


GOOD = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the module is empty"),
        (" \n", "the module is empty"),
        (b"", "the module is empty"),
        (GOOD[:-2], "line 2, column"),
        ("func.func @main(%x: tensor<4xf32>) {\n  foo.bar %x\n}", "line 2, column 3: Dialect"),
        ('func.func @main() {\n  "foo.bar"() : () -> ()\n  return\n}',
         "line 2, column 12: .*unregistered dialect: foo.bar is no operation of StableHLO; lower"),
        ("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n\n  return %y : tensor<4xf32>}",
         "line 3, column 10: use of undeclared SSA value"),
        ("func.func @main(%x: tensor<4xf32>) -> tensor<5xf32> {\n  return %x : tensor<4xf32>\n}",
         "line 2"),
        ("func.func @main(%x: tensor<2x3xf32>) -> tensor<3x3xf32> {\n  %y = stablehlo.transpose "
         "%x, dims = [1, 1] : (tensor<2x3xf32>) -> tensor<3x3xf32>\n  return %y : tensor<3x3xf32>}",
         "line 2, column"),
        ("module {}", "needs one public function @main; functions: none"),
        ("func.func @a() {\n return\n}\nfunc.func @b() {\n return\n}", "functions: @a, @b"),
        ("func.func @main() {\n return\n}\n\0", "line 4 has a NUL"),
        (b"func.func @main() {\n return \xff\n}", "line 2: byte 28 .0xff. is not UTF-8"),
        ("module attributes {a = " + "[" * 100_000 + "} {}", "line 1: brackets are nested more"),
        ("(" * 2_000_000, "line 1: brackets are nested more than 256 deep"),
    ],
)  # fmt: skip
def test_malformed_text_names_the_line(text, message):
    refused(text, message)


def test_brackets_in_strings_do_not_count():
    text = GOOD.replace("{\n", "{\n  // [[[ \n", 1).replace(
        "tensor<4xf32>)", 'tensor<4xf32> {a.b = "' + "[(" * 500 + '"})', 1
    )
    ingest(text, new_context())


def test_a_file_that_is_not_there_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        ingest(str(tmp_path / "none.mlir"), new_context())


def test_another_kind_of_object_is_a_type_error():
    with pytest.raises(TypeError, match="cannot read a program from int"):
        ingest(3, new_context())


def test_a_truncated_artifact_is_refused_everywhere(artifact):
    for part in range(1, 20):
        refused(artifact[: len(artifact) * part // 20], "damaged|malformed")


def test_bytes_behind_the_magic_that_are_not_bytecode_are_refused():
    refused(b"ML\xefR", "damaged")
    refused(b"ML\xefR" + bytes(1000), "damaged")


# Reading damaged bytes in this process could end it, which is what the child is for: this test
# must not trust the child, so it runs in one of its own.
_FUZZ = """
import random, sys
from shlo_disc.base.errors import ShloDiscError
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import new_context
from shlo_disc.ingest import trial
trial.SECONDS = 5.0
data = sys.stdin.buffer.read()
rng = random.Random(7)
context = new_context()
for _ in range(12):
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 8))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    try:
        ingest(bytes(damaged), context)
    except (ShloDiscError, TypeError):
        pass
print("alive")
"""


def test_flipped_bits_never_end_the_process(artifact):
    child = subprocess.run(
        [sys.executable, "-c", _FUZZ], input=artifact, capture_output=True, timeout=120, check=False
    )
    assert child.stdout.decode().strip() == "alive", child.stderr.decode()[-2000:]


def test_damaged_text_never_ends_the_process():
    (b,) = export.symbolic_shape("b")
    x = jax.ShapeDtypeStruct((b, 4), jnp.float32)
    text = str(export.export(jax.jit(lambda x: jnp.tril(x @ x.T)))(x).mlir_module())
    rng = random.Random(3)
    context = new_context()
    for _ in range(60):
        place = rng.randrange(len(text))
        damaged = text[:place] + rng.choice("0<>{}x%? ") + text[place + rng.randrange(3) :]
        try:
            ingest(damaged, context)
        except ShloDiscError:
            continue


def test_a_crash_of_the_reader_is_an_error(monkeypatch):
    monkeypatch.setattr(trial, "_CHILD", "import os; os.kill(os.getpid(), 11)")
    refused(b"ML\xefR\rStableHLO_v1.15.0\0", r"MLIR's reader crashed on it \(signal 11\)")


def test_a_reader_that_does_not_end_is_an_error(monkeypatch):
    monkeypatch.setattr(trial, "_CHILD", "import time; time.sleep(60)")
    monkeypatch.setattr(trial, "SECONDS", 0.3)
    refused(b"ML\xefR\rStableHLO_v1.15.0\0", "did not end in 0 s")


def test_recursion_is_refused():
    text = """
      func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
        %y = call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
        return %y : tensor<4xf32>
      }
      func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
        %y = call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>
        return %y : tensor<4xf32>
      }"""
    refused(text, r"calls itself \(main -> f -> main\)", UnsupportedError)


def test_calls_that_multiply_are_refused_before_they_are_inlined():
    parts = ["func.func private @f0(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"]
    call = "call @f{0}({1}) : (tensor<f32>) -> tensor<f32>"
    for k in range(1, 41):
        parts.append(
            f"func.func private @f{k}(%x: tensor<f32>) -> tensor<f32> {{\n"
            f"  %y = {call.format(k - 1, '%x')}\n  %z = {call.format(k - 1, '%y')}\n"
            "  return %z : tensor<f32>\n}"
        )
    parts.append(
        "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n"
        f"  %y = {call.format(40, '%x')}\n  return %y : tensor<f32>\n}}"
    )
    refused("\n".join(parts), "operations with its calls inlined; the limit is 1000000")


@pytest.mark.parametrize(
    ("kind", "message", "error"),
    [
        ("tensor<*xf32>", "unranked", ShloDiscError),
        (f"tensor<{'1x' * 33}f32>", "rank 33 is above the limit of 32", InvalidModuleError),
        ("tensor<1048576x1048576x1048576xf32>", "the limit is 281474976710656", InvalidModuleError),
        ('tensor<?x4xf32, "sparse">', "has an encoding", UnsupportedError),
    ],
)
def test_types_we_do_not_compile(kind, message, error):
    text = f"func.func @main(%x: {kind}) -> {kind} {{\n  return %x : {kind}\n}}"
    refused(text, message, error)


@pytest.mark.parametrize(
    "line",
    [
        "%y = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tensor<4xf32>",
        "%y = tensor.concat dim(0) %x : (tensor<4xf32>) -> tensor<4xf32>",
    ],
)
def test_other_dialects_are_refused_by_op_and_line(line):
    text = GOOD.replace("  return %x", f"  {line}\n  return %y")
    message = r"<module>:2:8: \w+\.\w+ is not a StableHLO operation; lower"
    refused(text, message, UnsupportedError)


def test_a_function_without_a_body_is_refused():
    text = GOOD + "\nfunc.func private @g(tensor<4xf32>) -> tensor<4xf32>"
    refused(text, "function @g has no body", UnsupportedError)


def test_an_ordered_effect_is_refused():
    text = """
      func.func public @main(%t: !stablehlo.token, %x: tensor<4xf32>) -> !stablehlo.token {
        %u = "stablehlo.outfeed"(%x, %t) {outfeed_config = ""} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
        return %u : !stablehlo.token
      }"""  # noqa: E501
    refused(text, "stablehlo.outfeed orders a side effect by a token", UnsupportedError)


def test_shapes_of_the_wrong_number_or_rank_are_a_value_error():
    with pytest.raises(ValueError, match="2 shapes were given for 1 array arguments"):
        ingest(GOOD, new_context(), shapes=[("4",), ("4",)])
    with pytest.raises(ValueError, match="was given for argument 0"):
        ingest(GOOD, new_context(), shapes=[("4", "b")])


BODY = "(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'module attributes {{a.b = "\\FF"}} {{\nfunc.func @main{BODY}\n}}', "line 1: the string"),
        (f'module @"\\C3" {{\nfunc.func @main{BODY}\n}}', "line 1: the string"),
        (f'module {{\nfunc.func @main{BODY}\nfunc.func private @"\\80"{BODY}\n}}', "line 5: the"),
        (GOOD.replace("return", 'return loc("a\\FEb":1:1)', 1), "line 2: the string"),
        ("// \ud800\n" + GOOD, "line 1 has the lone surrogate"),
    ],
)  # fmt: skip
def test_strings_that_are_not_utf8_are_refused(text, message):
    """The bindings cannot turn them into Python's strings; some of their threads then abort."""
    refused(text, message)


@pytest.mark.parametrize("name", ["größe", "模型", "\\C3\\BC", "a\\\\FF", 'q\\"\\\\', "\\09\\n"])
def test_other_strings_are_read(name):
    text = GOOD.replace("{", f'attributes {{a.b = "{name}"}} {{', 1)
    module = ingest(text, new_context())
    again = module.operation.get_asm(binary=False)
    assert "@main" in again


def test_bytes_with_strings_that_are_not_utf8_are_refused():
    def rather_long_name_of_a_function(x):
        return jnp.tanh(x)

    spec = jax.ShapeDtypeStruct((4,), jnp.float32)
    data = export.export(jax.jit(rather_long_name_of_a_function))(spec).mlir_module_serialized
    assert b"rather_long_name" in data
    ingest(data.replace(b"rather_long_name", b"r\xc3\xa4ther_lng_name"), new_context())
    refused(data.replace(b"rather_long_name", b"rath\xffr_long_name"), "damaged: .* is not UTF-8")


@pytest.mark.parametrize("number", ["1000000", "2147483647", "4294967295", "9" * 30])
def test_numbers_of_results_are_bounded(number):
    """The parser would make room for as many."""
    text = GOOD.replace("return %x :", f"return %x#{number} :")
    refused(text, rf"line 2: %x#{number} is beyond the limit of 1000000 results")


def test_a_sparse_constant_is_refused():
    text = GOOD.replace(
        "  return %x", "  %y = stablehlo.constant sparse<0, 1.0> : tensor<4xf32>\n  return %y"
    )
    refused(text, "stablehlo.constant has a value that is not dense", UnsupportedError)


# Mutations of text through the whole compiler, in a process that may die of them.
_MUTATE = r"""
import random, re, sys
import shlo_disc
from shlo_disc.base.errors import InternalError, ShloDiscError
sources = sys.stdin.read().split("// ----\n")
numbers = ["0", "-1", "1", "2", "7", "65536", "2147483647", "4294967296", "9223372036854775807",
           "-9223372036854775808", "99999999999999999999"]
types = ["f32", "i32", "i1", "ui32", "i64", "f64", "bf16", "?x", "i4", "complex<f32>"]
patterns = [(r"(?<![%\w.])-?\d+(?![\w.])|(?<=[<x])\d+(?=x)", numbers),
            (r"\b(?:f32|i32|i1|ui32|i64)|\?x", types), (r"%\w+", None),
            (r"stablehlo\.\w+", None), (r"(?m)^.*$", None)]
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    draw = random.Random(seed)
    text = draw.choice(sources)
    for _ in range(draw.choice((1, 1, 2))):
        pattern, others = draw.choice(patterns)
        found = list(re.finditer(pattern, text))
        if not found:
            continue
        place = draw.choice(found)
        put = draw.choice(others or [other[0] for other in found])
        text = text[: place.start()] + put + text[place.end() :]
    try:
        shlo_disc.compile(text)
    except InternalError:
        print(seed, text)
        raise
    except ShloDiscError:
        pass
print("alive")
"""


def mutated(first: int, last: int) -> None:
    b, t = export.symbolic_shape("b, t")
    x = jax.ShapeDtypeStruct((b, 4), jnp.float32)
    i = jax.ShapeDtypeStruct((t,), jnp.int32)
    sources = [
        str(export.export(jax.jit(f))(*specs).mlir_module())
        for f, specs in [
            (lambda x: jax.nn.softmax(jnp.tanh(x) @ x.T), [x]),
            (lambda x, i: jnp.sort(x[i], 0)[:1] + x.sum(0), [x, i]),
            (lambda x, i: x.at[i].add(1.0).cumsum(0), [x, i]),
            (lambda x: jax.lax.scan(lambda s, r: (s + r, s.sum()), jnp.zeros(4), x), [x]),
            (lambda x: jnp.pad(x, ((1, 2), (0, 0)))[::2].reshape(-1), [x]),
        ]
    ]
    child = subprocess.run(
        [sys.executable, "-c", _MUTATE, str(first), str(last)],
        input="// ----\n".join(sources).encode(),
        capture_output=True,
        timeout=900,
        check=False,
    )
    assert child.stdout.decode().strip() == "alive", child.stdout[-2000:] + child.stderr[-2000:]


def test_mutated_text_never_ends_the_process_nor_shows_a_mistake_of_ours():
    mutated(0, 30)


@pytest.mark.slow
def test_much_mutated_text_never_ends_the_process_nor_shows_a_mistake_of_ours():
    mutated(30, 1000)
