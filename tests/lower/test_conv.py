"""Kind `conv` against a direct sum in float64, over layouts, windows, groups and types."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shlo_disc
from shlo_disc.lower.cpu.conv import emit_conv
from shlo_disc.lower.cpu.machine import Machine
from tests.cases import crossed
from tests.lower.helpers import DTYPES, Emitted, fusion_text, plan_of, run, sample, tensor
from tests.lower.test_dense import EPS, launches, unpacked


@dataclasses.dataclass(frozen=True)
class Conv:
    """A convolution; layouts name dimensions: b, f (image), i, o (kernel), digits (spatial)."""

    layouts: tuple[str, str, str] = ("b01f", "01io", "b01f")
    image: tuple[int, ...] = (2, 9, 8)
    """Batch (before batch groups), spatial sizes."""
    features: tuple[int, int] = (3, 5)
    """Input features (all groups), output features."""
    kernel: tuple[int, ...] = (3, 2)
    strides: tuple[int, ...] = (1, 1)
    padding: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))
    lhs_dilation: tuple[int, ...] = (1, 1)
    rhs_dilation: tuple[int, ...] = (1, 1)
    reversal: tuple[bool, ...] = (False, False)
    groups: int = 1
    batch_groups: int = 1
    types: tuple[str, str, str] = ("f32", "f32", "f32")
    dynamic: bool = False
    """Batch and spatial sizes of the image are symbols."""

    def sizes(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        image = {"b": self.image[0], "f": self.features[0]}
        kernel = {"i": self.features[0] // self.groups, "o": self.features[1]}
        out = {"b": self.image[0] // self.batch_groups, "f": self.features[1]}
        for d, size in enumerate(self.image[1:]):
            image[str(d)], kernel[str(d)] = size, self.kernel[d]
            padded = max((size - 1) * self.lhs_dilation[d] + 1, 0) + sum(self.padding[d])
            reach = (self.kernel[d] - 1) * self.rhs_dilation[d] + 1
            out[str(d)] = max((padded - reach) // self.strides[d] + 1, 0)
        return image, kernel, out

    def text(self) -> str:
        names = [", ".join(layout) for layout in self.layouts]
        shapes = [
            [str(s[c]) for c in layout]
            for s, layout in zip(self.sizes(), self.layouts, strict=True)
        ]
        if self.dynamic:
            shapes[0] = [
                c if c == "b" else f"x{c}" if c.isdigit() else s
                for c, s in zip(self.layouts[0], shapes[0], strict=True)
            ]
            shapes[2] = [
                c if c == "b" else f"y{c}" if c.isdigit() else s
                for c, s in zip(self.layouts[2], shapes[2], strict=True)
            ]
        types = [tensor(",".join(s), t) for s, t in zip(shapes, self.types, strict=True)]
        pad = [list(p) for p in self.padding]
        reverse = str([str(r).lower() for r in self.reversal]).replace("'", "")
        body = f"""%r = stablehlo.convolution(%x, %w)
            dim_numbers = [{names[0]}]x[{names[1]}]->[{names[2]}],
            window = {{stride = {list(self.strides)}, pad = {pad},
              lhs_dilate = {list(self.lhs_dilation)}, rhs_dilate = {list(self.rhs_dilation)},
              reverse = {reverse}}}
            {{feature_group_count = {self.groups} : i64,
              batch_group_count = {self.batch_groups} : i64}}
            : ({types[0]}, {types[1]}) -> {types[2]}"""
        arguments = [
            f"{n}: {','.join(s)} {t}" for n, s, t in zip("xw", shapes, self.types, strict=False)
        ]
        return fusion_text("conv", arguments, body, [f"r: {','.join(shapes[2])} {self.types[2]}"])

    def shape(self, which: int) -> tuple[int, ...]:
        return tuple(self.sizes()[which][c] for c in self.layouts[which])

    def expected(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The definition, one window offset at a time."""
        rank = len(self.kernel)
        digits = "".join(str(d) for d in range(rank))

        def ordered(array: np.ndarray, layout: str, order: str) -> np.ndarray:
            return array.transpose([layout.index(c) for c in order])

        x = ordered(x, self.layouts[0], "bf" + digits)
        w = ordered(w, self.layouts[1], "oi" + digits)
        sizes = self.sizes()[2]
        space = tuple(sizes[c] for c in digits)
        dilated = np.zeros(
            (
                *x.shape[:2],
                *(
                    max((s - 1) * d + 1, 0)
                    for s, d in zip(x.shape[2:], self.lhs_dilation, strict=True)
                ),
            ),
            x.dtype,
        )
        dilated[(..., *(slice(None, None, d) for d in self.lhs_dilation))] = x
        # Negative padding cuts off.
        cut = tuple(
            slice(max(0, -lo), s - max(0, -hi))
            for s, (lo, hi) in zip(dilated.shape[2:], self.padding, strict=True)
        )
        full = np.pad(
            dilated[(slice(None), slice(None), *cut)],
            [(0, 0), (0, 0), *((max(0, lo), max(0, hi)) for lo, hi in self.padding)],
        )
        batch, out_features = sizes["b"], sizes["f"]
        out = np.zeros((batch, out_features, *space), x.dtype)
        parts = self.groups * self.batch_groups
        wide = out_features // parts
        deep = w.shape[1]
        for part in range(parts):
            images = full
            if self.groups > 1:
                images = full[:, part * deep : (part + 1) * deep]
            elif self.batch_groups > 1:
                images = full[part * batch : (part + 1) * batch]
            o = slice(part * wide, (part + 1) * wide)
            for t in itertools.product(*(range(k) for k in self.kernel)):
                at = tuple(
                    k - 1 - i if r else i
                    for i, k, r in zip(t, self.kernel, self.reversal, strict=True)
                )
                window = tuple(
                    slice(i * d, i * d + n * s if n else 0, s)
                    for i, d, s, n in zip(t, self.rhs_dilation, self.strides, space, strict=True)
                )
                piece = images[(slice(None), slice(None), *window)]
                piece = piece[(slice(None), slice(None), *(slice(0, n) for n in space))]
                out[:, o] += np.einsum("bi...,oi->bo...", piece, w[(o, slice(None), *at)])
        back = ["bf" + digits][0]
        return out.transpose([back.index(c) for c in self.layouts[2]])

    def check(self, emitted: Emitted, seed: int = 0) -> None:
        x = sample(self.shape(0), self.types[0], seed)
        w = sample(self.shape(1), self.types[1], seed + 1)
        sizes = self.sizes()
        env = {"b": self.image[0]} | {f"x{d}": s for d, s in enumerate(self.image[1:])}
        (got,) = run(emitted, [x, w], env)
        if DTYPES[self.types[2]].kind in "iu":
            want = self.expected(x.astype(np.int64), w.astype(np.int64))
            np.testing.assert_array_equal(got, want.astype(got.dtype))
            return
        want = self.expected(x.astype(np.float64), w.astype(np.float64))
        scale = self.expected(np.abs(x.astype(np.float64)), np.abs(w.astype(np.float64)))
        depth = int(np.prod(self.kernel)) * sizes[1]["i"]
        eps = EPS["f64" if "f64" in self.types else "f32"]
        bound = scale * depth * eps + np.abs(want) * EPS[self.types[2]] + 1e-300
        assert got.shape == want.shape
        assert (np.abs(got.astype(np.float64) - want) <= bound).all()


def check(conv: Conv) -> None:
    emitted = plan_of(emit_conv, conv.text())
    conv.check(emitted)
    conv.check(unpacked(emitted))


SAME = ((1, 1), (1, 1))

CASES = {
    "nhwc": Conv(),
    "nchw": Conv(layouts=("bf01", "oi01", "bf01")),
    "nhwc same": Conv(padding=SAME, kernel=(3, 3), features=(16, 32)),
    "nchw same": Conv(layouts=("bf01", "oi01", "bf01"), padding=SAME, kernel=(3, 3)),
    "pointwise": Conv(kernel=(1, 1), features=(7, 70)),
    "pointwise nchw": Conv(layouts=("bf01", "oi01", "bf01"), kernel=(1, 1), features=(7, 70)),
    "strided": Conv(strides=(2, 3), padding=((1, 0), (0, 2))),
    "dilated kernel": Conv(rhs_dilation=(2, 3), kernel=(3, 2)),
    "dilated image": Conv(lhs_dilation=(2, 1), padding=((0, 1), (1, 2))),
    "dilated image nchw": Conv(
        layouts=("bf01", "oi01", "bf01"), lhs_dilation=(2, 3), padding=((2, -1), (-2, 4))
    ),
    "phases": Conv(
        lhs_dilation=(2, 2), kernel=(3, 3), padding=((1, 2), (1, 2)), features=(16, 24)
    ),
    "phases reversed nchw": Conv(
        layouts=("bf01", "io01", "bf01"), lhs_dilation=(3, 2), kernel=(4, 3),
        padding=((3, 3), (2, 2)), reversal=(True, True),
    ),
    "phases without a tap": Conv(lhs_dilation=(2, 3), kernel=(1, 1), padding=((0, 1), (0, 2))),
    "phases of one dimension": Conv(
        lhs_dilation=(2, 1), strides=(1, 2), rhs_dilation=(1, 2), kernel=(5, 2)
    ),
    "phases of groups": Conv(
        features=(12, 9), groups=3, lhs_dilation=(2, 2), kernel=(2, 3), padding=SAME
    ),
    "phases of an empty image": Conv(
        image=(2, 0, 8), lhs_dilation=(2, 2), kernel=(3, 3), padding=((2, 3), (1, 2))
    ),
    "phases of bf16": Conv(
        lhs_dilation=(2, 2), kernel=(3, 3), padding=SAME, types=("bf16", "bf16", "bf16")
    ),
    "cropped": Conv(padding=((-1, 2), (1, -2))),
    "cropped nchw": Conv(layouts=("bf01", "oi01", "bf01"), padding=((-1, 2), (1, -2))),
    "reversed": Conv(reversal=(True, False), padding=SAME),
    "weight gradient": Conv(layouts=("f01b", "i01o", "01bf"), kernel=(7, 6), padding=SAME),
    "image gradient": Conv(layouts=("b01f", "01oi", "b01f"), padding=((2, 2), (1, 1))),
    "depthwise": Conv(features=(20, 20), groups=20, padding=SAME, kernel=(3, 3)),
    "depthwise nchw": Conv(
        layouts=("bf01", "oi01", "bf01"), features=(6, 6), groups=6, padding=SAME, kernel=(3, 3)
    ),
    "depthwise strided nchw": Conv(
        layouts=("bf01", "oi01", "bf01"), features=(6, 6), groups=6, strides=(2, 2)
    ),
    "depthwise, two each": Conv(features=(6, 12), groups=6),
    "groups": Conv(features=(12, 9), groups=3),
    "groups nchw": Conv(layouts=("bf01", "oi01", "bf01"), features=(12, 9), groups=3),
    "batch groups": Conv(image=(6, 7, 5), features=(4, 9), batch_groups=3),
    "one feature": Conv(features=(1, 1)),
    "1-d": Conv(
        layouts=("b0f", "0io", "b0f"), image=(2, 19), kernel=(4,), strides=(2,),
        padding=((1, 2),), lhs_dilation=(1,), rhs_dilation=(1,), reversal=(False,),
    ),
    "3-d": Conv(
        layouts=("b012f", "012io", "b012f"), image=(2, 5, 4, 6), kernel=(2, 3, 2),
        strides=(1, 2, 1), padding=((1, 0), (1, 1), (0, 0)), lhs_dilation=(1, 1, 1),
        rhs_dilation=(1, 1, 2), reversal=(False, True, False),
    ),
    "0-d": Conv(
        layouts=("bf", "io", "bf"), image=(4,), kernel=(), strides=(), padding=(),
        lhs_dilation=(), rhs_dilation=(), reversal=(),
    ),
    "no windows": Conv(kernel=(12, 2)),
    "empty image": Conv(image=(2, 0, 8), padding=((2, 2), (0, 0))),
    "empty batch": Conv(image=(0, 9, 8)),
    "no input features": Conv(features=(0, 5), padding=SAME),
    "deep": Conv(features=(150, 20), kernel=(3, 3), padding=SAME, image=(1, 6, 5)),
    "bf16": Conv(types=("bf16", "bf16", "bf16"), padding=SAME),
    "f16 nchw": Conv(layouts=("bf01", "oi01", "bf01"), types=("f16", "f16", "f32")),
    "f64": Conv(types=("f64", "f64", "f64"), padding=SAME),
    "i8": Conv(types=("i8", "i8", "i32"), padding=SAME),
    "i32": Conv(types=("i32", "i32", "i32")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_conv(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize("layouts", [("b01f", "01io", "b01f"), ("bf01", "oi01", "bf01")])
@pytest.mark.parametrize(
    "window",
    [
        {"strides": (2, 1)},
        {"lhs_dilation": (2, 2), "padding": ((1, 2), (1, 2))},
        {"lhs_dilation": (2, 3), "padding": ((0, 3), (2, 4))},
    ],
    ids=["strided", "dilated", "of other phases"],
)
def test_one_plan_for_all_image_sizes(layouts: tuple[str, str, str], window: dict) -> None:
    conv = Conv(
        **({"layouts": layouts, "padding": SAME, "kernel": (3, 3), "dynamic": True} | window)
    )
    emitted = plan_of(emit_conv, conv.text())
    for image in [(1, 1, 1), (2, 9, 8), (3, 7, 31), (0, 5, 5), (1, 17, 64)]:
        dataclasses.replace(conv, image=image).check(emitted)


def draw_layout(draw: st.DrawFn, letters: str) -> str:
    return "".join(draw(st.permutations(letters)))


@st.composite
def convs(draw: st.DrawFn) -> Conv:
    rank = draw(st.integers(1, 3))
    digits = "".join(str(d) for d in range(rank))

    def each(options: Sequence[object]) -> tuple:  # type: ignore[type-arg]
        return tuple(draw(st.sampled_from(options)) for _ in range(rank))

    kind = draw(st.sampled_from(["plain", "groups", "depthwise", "batch groups"]))
    groups = {"groups": 2, "depthwise": 3}.get(kind, 1)
    batch_groups = 2 if kind == "batch groups" else 1
    features = (
        draw(st.sampled_from([1, 2, 5])) * groups,
        draw(st.sampled_from([1, 3, 9])) * groups * batch_groups,
    )
    if kind == "depthwise":
        features = (3, 3)
    return Conv(
        layouts=(
            draw_layout(draw, "bf" + digits),
            draw_layout(draw, "io" + digits),
            draw_layout(draw, "bf" + digits),
        ),
        image=(draw(st.sampled_from([1, 2, 3])) * batch_groups, *each([1, 2, 5, 8])),
        features=features,
        kernel=each([1, 2, 3]),
        strides=each([1, 1, 2, 3]),
        padding=each([(0, 0), (1, 2), (2, 0), (-1, 3), (3, -2)]),
        lhs_dilation=each([1, 1, 2, 3]),
        rhs_dilation=each([1, 1, 2]),
        reversal=each([False, True]),
        groups=groups,
        batch_groups=batch_groups,
    )


@settings(max_examples=20, deadline=None)
@given(convs())
def test_any_convolution(conv: Conv) -> None:
    check(conv)


TAPS = {
    "outputs last": Conv(
        layouts=("b01f", "oi01", "b01f"), kernel=(3, 3), padding=SAME, features=(37, 50)
    ),
    "inputs last": Conv(
        layouts=("b01f", "io01", "b01f"), kernel=(3, 3), reversal=(True, True), features=(37, 50)
    ),
    "window of 7": Conv(layouts=("b01f", "oi01", "b01f"), kernel=(7, 7), features=(3, 20)),
    "window of 9": Conv(layouts=("b01f", "oi01", "b01f"), kernel=(9, 8), features=(3, 20)),
    "every second tap": Conv(
        layouts=("b01f", "io01", "b01f"), kernel=(3, 3), features=(37, 50), lhs_dilation=(2, 2),
        padding=SAME,
    ),
    "of bf16": Conv(
        layouts=("b01f", "oi01", "b01f"), kernel=(3, 3), types=("bf16", "bf16", "f32"),
        features=(17, 20),
    ),
    "of f64": Conv(layouts=("b01f", "oi01", "b01f"), kernel=(3, 3), types=("f64",) * 3),
    "places apart": Conv(
        layouts=("f01b", "i01o", "fb01"), image=(20, 9, 8), kernel=(7, 6), features=(3, 18)
    ),
    "places apart, strided": Conv(
        layouts=("f01b", "i01o", "fb01"), image=(20, 9, 9), kernel=(4, 4), features=(3, 18),
        padding=SAME, rhs_dilation=(2, 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "width"), crossed(TAPS, [16, 32]))
def test_taps_and_places_on_narrower_targets(name: str, width: int) -> None:
    machine = Machine(vector_bytes=width, cores=4, features=frozenset({"avx2", "fma"}))
    emitted = plan_of(emit_conv, TAPS[name].text(), machine)
    TAPS[name].check(emitted)
    TAPS[name].check(unpacked(emitted))


@pytest.mark.parametrize("name", TAPS)
def test_taps_and_places(name: str) -> None:
    check(TAPS[name])


def test_calls_without_kept_panels_make_them_first() -> None:
    """The window of 72 taps is too long: its blocks are copied one by one."""
    for name, conv in TAPS.items():
        if name.startswith("places"):
            continue
        emitted = unpacked(plan_of(emit_conv, conv.text()))
        kernels = {launch.kernel.name for launch in launches(emitted.plan.steps)}
        assert ("conv_pack" in kernels) == (name != "window of 9"), (name, kernels)


@pytest.mark.parametrize("window", ["plain", "padded", "dilated"])
def test_a_value_is_both_operands(window):
    """A padded copy of the image is not the kernel, although both are one operand."""
    low, dilation = {"plain": (0, 1), "padded": (1, 1), "dilated": (0, 2)}[window]
    t = "tensor<3x3x4xf32>"
    image = 3 + 2 * (dilation - 1) + 2 * low
    size = image - 3 + 1
    executable = shlo_disc.compile(
        f"""func.func public @main(%x: {t}) -> tensor<3x{size}x4xf32> {{
          %y = stablehlo.tanh %x : {t}
          %r = "stablehlo.convolution"(%y, %y) {{
            dimension_numbers = #stablehlo.conv<[b, 0, f]x[o, 0, i]->[f, 0, b]>,
            batch_group_count = 1 : i64, feature_group_count = 1 : i64,
            padding = dense<{low}> : tensor<1x2xi64>, lhs_dilation = array<i64: {dilation}>
          }} : ({t}, {t}) -> tensor<3x{size}x3xf32>
          %p = stablehlo.constant dense<0.0> : tensor<f32>
          %q = stablehlo.pad %r, %p, low = [0, 0, 0], high = [0, 0, 1], interior = [0, 0, 0]
            : (tensor<3x{size}x3xf32>, tensor<f32>) -> tensor<3x{size}x4xf32>
          return %q : tensor<3x{size}x4xf32>
        }}"""
    )
    x = np.linspace(-1, 1, 36, dtype=np.float32).reshape(3, 3, 4)
    (got,) = executable.run_numpy([x])
    y = np.tanh(x.astype(np.float64))
    full = np.zeros((3, image, 4))
    full[:, low : image - low : dilation] = y
    want = np.stack([np.einsum("bki,oki->ob", full[:, p : p + 3], y) for p in range(size)], axis=1)
    np.testing.assert_allclose(got[:, :, :3], want, rtol=1e-5, atol=1e-5)
