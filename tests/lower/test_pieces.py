"""Concatenations along the lanes have a loop for every piece."""

from __future__ import annotations

import numpy as np
import pytest

from shlo_disc.lower.cpu.loop import emit
from shlo_disc.lower.cpu.machine import Machine
from tests.lower.helpers import fusion_text, plan_of, run, sample

WIDTHS = [(1, 1), (0, 5), (5, 0), (3, 40), (16, 16), (64, 63), (130, 70), (5000, 4097)]


def joined(result: str, parts: list[str], element: str) -> str:
    types = ", ".join([f"tensor<?x?x{element}>"] * len(parts))
    names = ", ".join(f"%{part}" for part in parts)
    return (
        f"%{result} = stablehlo.concatenate {names}, dim = 1 : ({types}) -> tensor<?x?x{element}>\n"
    )


@pytest.mark.parametrize("width", [64, 32, 16])
@pytest.mark.parametrize("element", ["f32", "i8", "bf16", "f64", "i1"])
def test_pieces_and_work_on_them(element: str, width: int) -> None:
    t = f"tensor<?x?x{element}>"
    body = f"%v = stablehlo.reverse %y, dims = [1] : {t}\n" + joined("c", ["x", "v"], element)
    body += joined("d", ["y2", "y"], element).replace("%y2", "%x")
    body += f"%r = stablehlo.maximum %c, %z : {t}\n%s = stablehlo.maximum %d, %z : {t}"
    text = fusion_text(
        "loop",
        [f"x: n,a {element}", f"y: n,b {element}", f"z: n,a+b {element}"],
        body,
        [f"r: n,a+b {element}", f"s: n,a+b {element}"],
    )
    emitted = plan_of(emit, text, None if width == 64 else Machine(vector_bytes=width))
    for n in (1, 3):
        for a, b in WIDTHS:
            x, y = sample((n, a), element), sample((n, b), element, 1)
            z = sample((n, a + b), element, 2)
            r, s = run(emitted, [x, y, z])
            np.testing.assert_array_equal(r, np.maximum(np.concatenate([x, y[:, ::-1]], 1), z))
            np.testing.assert_array_equal(s, np.maximum(np.concatenate([x, y], 1), z))


def test_three_pieces_read_forwards_and_backwards() -> None:
    t = "tensor<?x?xf32>"
    body = joined("c", ["x", "y", "z"], "f32")
    body += f"%v = stablehlo.reverse %c, dims = [1] : {t}\n%r = stablehlo.subtract %c, %v : {t}"
    text = fusion_text("loop", ["x: n,a f32", "y: n,b f32", "z: n,c f32"], body, ["r: n,a+b+c f32"])
    emitted = plan_of(emit, text)
    for a, b, c in [(1, 0, 2), (7, 30, 50), (100, 3, 16), (0, 0, 40)]:
        parts = [sample((2, k), "f32", k) for k in (a, b, c)]
        (got,) = run(emitted, parts)
        whole = np.concatenate(parts, 1)
        np.testing.assert_array_equal(got, whole - whole[:, ::-1])


def test_many_pieces_of_concatenations_of_concatenations() -> None:
    names = [f"p{k}" for k in range(9)]
    body = joined("c", names[:5], "f32") + joined("d", names[5:], "f32")
    body += joined("r", ["c", "d"], "f32")
    widths = "+".join(f"w{k}" for k in range(9))
    text = fusion_text(
        "loop", [f"p{k}: n,w{k} f32" for k in range(9)], body, [f"r: n,{widths} f32"]
    )
    emitted = plan_of(emit, text)
    (launch,) = emitted.plan.steps
    assert launch.kernel.text.count("scf.for") > len(names), "there is a loop for every piece"
    for k in (0, 1, 11):
        parts = [sample((3, k * i % 23), "f32", i) for i in range(9)]
        (got,) = run(emitted, parts)
        np.testing.assert_array_equal(got, np.concatenate(parts, 1))


def test_what_computes_a_piece_is_not_copied() -> None:
    names = [f"p{k}" for k in range(20)]
    steps = [f"%q{k + 1} = stablehlo.multiply %q{k}, %p0 : tensor<?x?xf32>\n" for k in range(12)]
    body = "".join(steps).replace("%q0,", "%p0,") + joined("r", ["q12", *names[1:]], "f32")
    widths = "+".join(f"w{k}" for k in range(20))
    text = fusion_text(
        "loop", [f"{p}: n,w{k} f32" for k, p in enumerate(names)], body, [f"r: n,{widths} f32"]
    )
    emitted = plan_of(emit, text)
    assert emitted.plan.steps[0].kernel.text.count("scf.for") > len(names), "a loop for every piece"
    parts = [sample((3, 5 * i % 23), "f32", i) for i in range(1, 21)]
    (got,) = run(emitted, parts)
    power = parts[0]
    for _ in range(12):
        power = power * parts[0]
    np.testing.assert_array_equal(got, np.concatenate([power, *parts[1:]], 1))


def test_pieces_of_complex_numbers() -> None:
    p = "tensor<?x?x2xf32>"
    body = f"%c = stablehlo.concatenate %x, %y, dim = 1 : ({p}, {p}) -> {p}"
    text = fusion_text("loop", ["x: n,a,2 f32", "y: n,b,2 f32"], body, ["c: n,a+b,2 f32"])
    emitted = plan_of(emit, text)
    for a, b in WIDTHS:
        x, y = sample((3, a, 2), "f32"), sample((3, b, 2), "f32", 1)
        np.testing.assert_array_equal(run(emitted, [x, y])[0], np.concatenate([x, y], 1))


def test_pieces_that_are_one_number() -> None:
    """Such a piece is the same register everywhere; the next one has the index of its loop."""
    body = """%k = stablehlo.constant dense<7.0> : tensor<20xf32>
        %b = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<1xf32>
        %c = stablehlo.concatenate %b, %x, %k, dim = 0
          : (tensor<1xf32>, tensor<?xf32>, tensor<20xf32>) -> tensor<?xf32>
        %r = stablehlo.negate %c : tensor<?xf32>"""
    emitted = plan_of(emit, fusion_text("loop", ["x: n f32", "s: f32"], body, ["r: n+21 f32"]))
    for n in (0, 1, 15, 16, 31, 70, 5000):
        x, s = sample((n,), "f32"), np.float32(3)
        want = -np.concatenate([[s], x, np.full(20, 7, "f4")])
        np.testing.assert_array_equal(run(emitted, [x, s])[0], want)
