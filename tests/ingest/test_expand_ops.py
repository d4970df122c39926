"""Every rule of expand_ops, compiled at symbolic sizes, beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_disc
from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.ingest.expand_ops import RULES
from shlo_disc.ir.ops import OPS

RNG = np.random.default_rng(7)


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def function(arguments: dict[str, str], results: list[str], body: str) -> shlo_disc.Executable:
    """A compiled function; `body` defines %r0, %r1, ..."""
    head = ", ".join(f"%{name}: {kind}" for name, kind in arguments.items())
    kinds = ", ".join(results)
    values = ", ".join(f"%r{k}" for k in range(len(results)))
    return shlo_disc.compile(
        f"func.func public @main({head}) -> ({kinds}) {{\n{body}\nreturn {values} : {kinds}\n}}"
    )


def close(program: shlo_disc.Executable, arguments: list[np.ndarray], want: list) -> None:
    for got, expected in zip(program(*arguments), want, strict=True):
        np.testing.assert_allclose(np.asarray(got), expected, rtol=2e-5, atol=2e-5)


SIZES = [0, 1, 5, 17]


def test_broadcast():
    made = function(
        {"x": "tensor<?x3xf32>"},
        ["tensor<2x?x3xf32>"],
        '%r0 = "stablehlo.broadcast"(%x) {broadcast_sizes = array<i64: 2>} '
        ": (tensor<?x3xf32>) -> tensor<2x?x3xf32>",
    )
    for n in SIZES:
        x = f32(n, 3)
        close(made, [x], [np.broadcast_to(x, (2, n, 3))])


@pytest.mark.parametrize(
    ("config", "kinds", "result"),
    [
        ("ab,bc->ac", ("?x4", "4x3"), "?x3"),
        ("ab,bc->ca", ("?x4", "4x3"), "3x?"),
        ("gab,gcb->gca", ("2x?x4", "2x3x4"), "2x3x?"),
        ("abx,bc->ac", ("?x4x2", "4x3"), "?x3"),
        ("ab,b->a", ("?x4", "4"), "?"),
        ("a,b->ab", ("?", "3"), "?x3"),
        ("aab,bc->ac", ("?x?x3", "3x4"), "?x4"),
        ("aab,aac->abc", ("3x3x?", "3x3x4"), "3x?x4"),
        ("aaa,a->a", ("?x?x?", "?"), "?"),
        ("aa,bb->", ("?x?", "3x3"), ""),
        ("...ab,...bc->...ac", ("2x?x4", "2x4x3"), "2x?x3"),
        ("...ab,bc->...ac", ("2x?x4", "4x3"), "2x?x3"),
        ("...a,...a->...", ("5x?x4", "?x4"), "5x?"),
        ("...a,...a->...", ("5x1x4", "?x4"), "5x?"),
    ],
)
def test_einsum(config, kinds, result):
    a, b, r = (f"tensor<{'x'.join([kind, 'f32']).lstrip('x')}>" for kind in (*kinds, result))
    made = function(
        {"x": a, "y": b},
        [r],
        f'%r0 = "stablehlo.einsum"(%x, %y) {{einsum_config = "{config}"}} : ({a}, {b}) -> {r}',
    )
    for n in SIZES:
        x, y = (f32(*(n if d == "?" else int(d) for d in kind.split("x"))) for kind in kinds)
        close(made, [x, y], [np.einsum(config, x, y)])


def test_sums_of_complex_numbers():
    made = function(
        {"x": "tensor<?x3xcomplex<f32>>"},
        ["tensor<?xcomplex<f32>>"],
        '%r0 = "stablehlo.unary_einsum"(%x) {einsum_config = "ab->a"} '
        ": (tensor<?x3xcomplex<f32>>) -> tensor<?xcomplex<f32>>",
    )
    x = (f32(5, 3) + 1j * f32(5, 3)[::-1]).astype("c8")
    close(made, [x], [x.sum(1)])


@pytest.mark.parametrize("config", ["aa->a", "aa->", "...b->...", "ba->ab"])
def test_unary_einsum(config):
    kind = {"aa->a": "?", "aa->": "", "...b->...": "?", "ba->ab": "?x?"}[config]
    r = f"tensor<{'x'.join([kind, 'f32']).lstrip('x')}>"
    made = function(
        {"x": "tensor<?x?xf32>"},
        [r],
        f'%r0 = "stablehlo.unary_einsum"(%x) {{einsum_config = "{config}"}} '
        f": (tensor<?x?xf32>) -> {r}",
    )
    for n in SIZES:
        x = f32(n, n)
        close(made, [x], [np.einsum(config, x)])


def test_unary_einsum_and_dot():
    made = function(
        {"x": "tensor<?x4x2xf32>", "v": "tensor<4xf32>", "w": "tensor<?x4xf32>"},
        ["tensor<2x?xf32>", "tensor<?xf32>", "tensor<f32>"],
        '%r0 = "stablehlo.unary_einsum"(%x) {einsum_config = "abc->ca"} '
        ": (tensor<?x4x2xf32>) -> tensor<2x?xf32>\n"
        "%r1 = stablehlo.dot %w, %v : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?xf32>\n"
        "%r2 = stablehlo.dot %v, %v : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>",
    )
    for n in SIZES:
        x, v, w = f32(n, 4, 2), f32(4), f32(n, 4)
        close(made, [x, v, w], [np.einsum("abc->ca", x), w @ v, v @ v])


def test_torch_index_select():
    made = function(
        {"x": "tensor<5x?xf32>", "i": "tensor<?xi32>", "b": "tensor<2x?x3xf32>",
         "j": "tensor<2x4xi32>"},
        ["tensor<?x?xf32>", "tensor<2x4x3xf32>", "tensor<5x2x4xf32>"],
        '%r0 = "stablehlo.torch_index_select"(%x, %i) {dim = 0 : i64, batch_dims = 0 : i64} '
        ": (tensor<5x?xf32>, tensor<?xi32>) -> tensor<?x?xf32>\n"
        '%r1 = "stablehlo.torch_index_select"(%b, %j) {dim = 1 : i64, batch_dims = 1 : i64} '
        ": (tensor<2x?x3xf32>, tensor<2x4xi32>) -> tensor<2x4x3xf32>\n"
        '%r2 = "stablehlo.torch_index_select"(%x, %j) {dim = 1 : i64, batch_dims = 0 : i64} '
        ": (tensor<5x?xf32>, tensor<2x4xi32>) -> tensor<5x2x4xf32>",
    )  # fmt: skip
    for n in SIZES[1:]:
        x, i, b = f32(5, n), RNG.integers(0, 5, n).astype(np.int32), f32(2, n, 3)
        j = RNG.integers(0, n, (2, 4)).astype(np.int32)
        batched = np.stack([b[k][j[k]] for k in range(2)])
        close(made, [x, i, b, j], [x[i], batched, x[:, j]])


def test_map():
    made = function(
        {"x": "tensor<?x2xi64>", "y": "tensor<?x2xi64>", "s": "tensor<i64>"},
        ["tensor<?x2xi64>"],
        """%r0 = "stablehlo.map"(%x, %y) ({
          ^bb0(%a: tensor<i64>, %b: tensor<i64>):
            %k = stablehlo.constant dense<3> : tensor<i64>
            %p = stablehlo.multiply %a, %k : tensor<i64>
            %q = stablehlo.add %p, %s : tensor<i64>
            %l = stablehlo.compare LT, %a, %b : (tensor<i64>, tensor<i64>) -> tensor<i1>
            %c = stablehlo.select %l, %q, %b : tensor<i1>, tensor<i64>
            stablehlo.return %c : tensor<i64>
          }) {dimensions = array<i64: 0, 1>} :
          (tensor<?x2xi64>, tensor<?x2xi64>) -> tensor<?x2xi64>""",
    )
    for n in SIZES:
        x, y = RNG.integers(-9, 9, (2, n, 2))
        close(made, [x, y, np.int64(4)], [np.where(x < y, 3 * x + 4, y)])


NORM = "{epsilon = 0.01 : f32, feature_index = 1 : i64}"
X, F = "tensor<?x3x?xf32>", "tensor<3xf32>"


def test_batch_norm():
    made = function(
        {"x": X, "s": F, "o": F, "m": F, "v": F, "g": X},
        [X, X, F, F, X, F, F],
        f"""%r0 = "stablehlo.batch_norm_inference"(%x, %s, %o, %m, %v) {NORM}
              : ({X}, {F}, {F}, {F}, {F}) -> {X}
            %r1, %r2, %r3 = "stablehlo.batch_norm_training"(%x, %s, %o) {NORM}
              : ({X}, {F}, {F}) -> ({X}, {F}, {F})
            %r4, %r5, %r6 = "stablehlo.batch_norm_grad"(%x, %s, %m, %v, %g) {NORM}
              : ({X}, {F}, {F}, {F}, {X}) -> ({X}, {F}, {F})""",
    )
    for n, t in ((1, 5), (4, 1), (7, 16)):
        x, g = f32(n, 3, t), f32(n, 3, t)
        s, o, m, v = f32(3), f32(3), f32(3), np.abs(f32(3)) + np.float32(0.5)

        def wide(value: np.ndarray) -> np.ndarray:
            return value.astype(np.float64)[:, None]

        over, count = (0, 2), n * t
        deviation = np.sqrt(v.astype(np.float64) + 0.01)
        inference = (x - wide(m)) / wide(deviation) * wide(s) + wide(o)
        mean, variance = x.mean(over, np.float64), x.astype(np.float64).var(over)
        training = (x - wide(mean)) / np.sqrt(wide(variance) + 0.01) * wide(s) + wide(o)
        centered = x - wide(m)
        # The chain rule through mean and variance, as in S. Ioffe, C. Szegedy (2015).
        total = g.sum(over, np.float64)
        moment = (g * centered).sum(over)
        inner = count * g - wide(total) - centered * wide(moment) / wide(deviation) ** 2
        gradient = wide(s) / wide(deviation) / count * inner
        close(
            made,
            [x, s, o, m, v, g],
            [inference, training, mean, variance, gradient, moment / deviation, total],
        )


@pytest.mark.parametrize(
    ("op", "attributes", "stays"),
    [
        ("collective_permute", "source_target_pairs = dense<0> : tensor<1x2xi64>", True),
        ("collective_permute", "source_target_pairs = dense<> : tensor<0x2xi64>", False),
        ("collective_broadcast", "replica_groups = dense<0> : tensor<1x1xi64>", True),
        ("collective_broadcast", "replica_groups = dense<> : tensor<0x1xi64>", False),
    ],
)
@pytest.mark.parametrize("element", ["f32", "i8", "complex<f32>"])
def test_a_device_that_nobody_sends_to_has_zeros(op, attributes, stays, element):
    kind = f"tensor<?x{element}>"
    made = function(
        {"x": kind}, [kind], f'%r0 = "stablehlo.{op}"(%x) {{{attributes}}} : ({kind}) -> {kind}'
    )
    for n in SIZES:
        x = f32(n).astype({"f32": np.float32, "i8": np.int8}.get(element, np.complex64)) + 3
        close(made, [x], [x if stays else np.zeros_like(x)])


def test_one_device():
    one = "{replica_groups = dense<0> : tensor<1x1xi64>}"
    made = function(
        {"x": "tensor<?xf32>"},
        ["tensor<?xf32>", "tensor<ui32>", "tensor<?xf32>", "tensor<?xf32>"],
        f"""%root = stablehlo.constant dense<0> : tensor<1xi32>
            %r0 = "stablehlo.all_reduce"(%x) ({{
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              %c = stablehlo.add %a, %b : tensor<f32>
              stablehlo.return %c : tensor<f32>
            }}) {one} : (tensor<?xf32>) -> tensor<?xf32>
            %r1 = stablehlo.replica_id : tensor<ui32>
            %r2 = "stablehlo.collective_permute"(%x)
              {{source_target_pairs = dense<0> : tensor<1x2xi64>}}
              : (tensor<?xf32>) -> tensor<?xf32>
            %r3 = "stablehlo.collective_reduce"(%x, %root) ({{
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              %c = stablehlo.add %a, %b : tensor<f32>
              stablehlo.return %c : tensor<f32>
            }}) {{replica_groups = dense<0> : tensor<1x1xi64>, has_dynamic_root}}
              : (tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32>""",
    )
    x = f32(6)
    close(made, [x], [x, 0, x, x])
    with pytest.raises(UnsupportedError, match="between several devices"):
        function(
            {"x": "tensor<4xf32>"},
            ["tensor<8xf32>"],
            '%r0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, '
            "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} "
            ": (tensor<4xf32>) -> tensor<8xf32>",
        )


def test_tuples():
    kind = "tuple<tensor<?xf32>, tensor<2xf32>>"
    made = function(
        {"x": "tensor<?xf32>", "y": "tensor<2xf32>"},
        ["tensor<2xf32>", "tensor<?xf32>"],
        f"""%t = stablehlo.tuple %x, %y : {kind}
            %r0 = stablehlo.get_tuple_element %t[1] : ({kind}) -> tensor<2xf32>
            %r1 = stablehlo.get_tuple_element %t[0] : ({kind}) -> tensor<?xf32>""",
    )
    x, y = f32(3), f32(2)
    close(made, [x, y], [y, x])


def test_quantized_types_become_integers():
    q = "tensor<?x!quant.uniform<i8:f32, 0.5:3>>"
    made = function(
        {"x": "tensor<?xf32>"},
        ["tensor<?xf32>"],
        f"""%q = stablehlo.uniform_quantize %x : (tensor<?xf32>) -> {q}
            %s = stablehlo.add %q, %q : {q}
            %r0 = stablehlo.uniform_dequantize %s : ({q}) -> tensor<?xf32>""",
    )
    x = np.float32([-70, -1.3, 0, 0.2, 0.26, 5, 100])
    quantized = np.clip(np.round(x / np.float32(0.5)) + 3, -128, 127)
    twice = np.clip(2 * (quantized - 3) + 3, -128, 127)
    close(made, [x], [(twice - 3) * 0.5])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('"stablehlo.unary_einsum"(%x) {einsum_config = "aa->b"}', "unknown label"),
        ('"stablehlo.unary_einsum"(%x) {einsum_config = "a->a"}', "'a' does not fit"),
        ('"stablehlo.unary_einsum"(%x) {einsum_config = "ab->ab"}', "not the declared one"),
    ],
)
def test_what_is_refused(text, why):
    with pytest.raises(InvalidModuleError, match=why):
        function({"x": "tensor<3x3xf32>"}, ["tensor<3xf32>"],
                 f"%r0 = {text} : (tensor<3x3xf32>) -> tensor<3xf32>")  # fmt: skip


def test_every_rule_is_a_row():
    assert set(RULES) == {n for n, r in OPS.items() if r.note.startswith("ingest: expand_ops")}
