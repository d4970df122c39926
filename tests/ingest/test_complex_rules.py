"""Every rule for an op of complex numbers against the StableHLO interpreter, which has its own.

Each program is compiled with arguments of run-time sizes, and interpreted with constants; complex
results are compared as planes.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import shlo_disc
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.complex_numbers.rules import RULES
from shlo_disc.ir.mlir import ir, new_context, stablehlo

A, B = "tensor<3x4xcomplex<f32>>", "tensor<?x4xcomplex<f32>>"
"""The type in the interpreted program, and in the compiled one."""

SUM = """({
  ^bb0(%p: tensor<c64>, %q: tensor<c64>):
    %s = "stablehlo.add"(%p, %q) : (tensor<c64>, tensor<c64>) -> tensor<c64>
    "stablehlo.return"(%s) : (tensor<c64>) -> ()
  })"""
PRODUCT = SUM.replace("stablehlo.add", "stablehlo.multiply")
CROSSED = """({
  ^bb0(%p: tensor<c64>, %q: tensor<c64>):
    %r = "stablehlo.real"(%p) : (tensor<c64>) -> tensor<f32>
    %i = "stablehlo.imag"(%q) : (tensor<c64>) -> tensor<f32>
    %s = "stablehlo.complex"(%i, %r) : (tensor<f32>, tensor<f32>) -> tensor<c64>
    "stablehlo.return"(%s) : (tensor<c64>) -> ()
  })"""

ONE = (
    "abs cbrt cosine exponential exponential_minus_one log log_plus_one logistic negate rsqrt sign"
)
ONE += " sine sqrt tan tanh"
TWO = "add atan2 divide maximum minimum multiply power subtract"

# Arguments are those of `_arguments`; `A` is the type of %a, see `_types`.
PROGRAMS: dict[str, tuple[str, str]] = {
    **{n: (f"stablehlo.{n} %a : A", "A" if n != "abs" else "X") for n in ONE.split()},
    **{n: (f"stablehlo.{n} %a, %b : A", "A") for n in TWO.split()},
    "abs": ("stablehlo.abs %a : (A) -> X", "X"),
    "bitcast_convert": ("stablehlo.bitcast_convert %a : (A) -> A", "A"),
    "clamp": ("stablehlo.clamp %c, %a, %b : (tensor<c64>, A, A) -> A", "A"),
    **{
        f"compare {d}": (f"stablehlo.compare {d}, %a, %b, FLOAT : (A, A) -> P", "P")
        for d in ("EQ", "NE")
    },
    "complex": ("stablehlo.complex %x, %y : A", "A"),
    "real": ("stablehlo.real %a : (A) -> X", "X"),
    "imag": ("stablehlo.imag %a : (A) -> X", "X"),
    "imag of reals": ("stablehlo.imag %x : (X) -> X", "X"),
    "constant": ("stablehlo.constant dense<[(1.5,-0.0), (0x7F800000,2.0)]> : tensor<2xc64>",
                 "tensor<2xc64>"),
    "convert to": ("stablehlo.convert %x : (X) -> A", "A"),
    "convert wide": ("stablehlo.convert %a : (A) -> W", "W"),
    "iota": ("stablehlo.iota dim = 1 : tensor<2x3xc64>", "tensor<2x3xc64>"),
    "dynamic_iota": ("stablehlo.dynamic_iota %sizes, dim = 1 : (tensor<2xi32>) -> D23", "D23"),
    "get_dimension_size": ("stablehlo.get_dimension_size %a, dim = 0 : (A) -> tensor<i32>",
                           "tensor<i32>"),
    "broadcast_in_dim": ("stablehlo.broadcast_in_dim %c, dims = [] : (tensor<c64>) -> "
                         "tensor<2x3xc64>", "tensor<2x3xc64>"),
    "dynamic_broadcast_in_dim": ("stablehlo.dynamic_broadcast_in_dim %c, %sizes, dims = [] : "
                                 "(tensor<c64>, tensor<2xi32>) -> D23", "D23"),
    "concatenate": ("stablehlo.concatenate %a, %b, dim = 1 : (A, A) -> A8", "A8"),
    "slice": ("stablehlo.slice %src [1:3, 0:4:2] : (tensor<3x4xc64>) -> "
              "tensor<2x2xc64>", "tensor<2x2xc64>"),
    "real_dynamic_slice": ("stablehlo.real_dynamic_slice %a, %one, %sizes, %ones : (A, "
                           "tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> D12", "D12"),
    "dynamic_slice": ("stablehlo.dynamic_slice %a, %idx, %idx, sizes = [2, 3] : (A, tensor<i32>, "
                      "tensor<i32>) -> tensor<2x3xc64>", "tensor<2x3xc64>"),
    "dynamic_update_slice": ("stablehlo.dynamic_update_slice %a, %tile, %idx, %idx : (A, "
                             "tensor<2x3xc64>, tensor<i32>, tensor<i32>) -> A", "A"),
    "pad": ("stablehlo.pad %src, %c, low = [1, -1], high = [0, 2], interior = [1, 0] : "
            "(tensor<3x4xc64>, tensor<c64>) -> tensor<6x5xc64>",
            "tensor<6x5xc64>"),
    "dynamic_pad": ("stablehlo.dynamic_pad %src, %c, %ones, %ones, %ones : "
                    "(tensor<3x4xc64>, tensor<c64>, tensor<2xi32>, "
                    "tensor<2xi32>, tensor<2xi32>) -> D79", "D79"),
    "gather": ('"stablehlo.gather"(%a, %rows) <{dimension_numbers = #stablehlo.gather<'
               "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
               "index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}> : (A, tensor<2xi32>) -> "
               "tensor<2x4xc64>", "tensor<2x4xc64>"),
    "dynamic_gather": ('"stablehlo.dynamic_gather"(%a, %rows, %row) <{dimension_numbers = '
                       "#stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], "
                       "start_index_map = [0], index_vector_dim = 1>}> : (A, tensor<2xi32>, "
                       "tensor<2xi32>) -> tensor<2x4xc64>", "tensor<2x4xc64>"),
    "reshape": ("stablehlo.reshape %src : (tensor<3x4xc64>) -> tensor<12xc64>",
                "tensor<12xc64>"),
    "dynamic_reshape": ("stablehlo.dynamic_reshape %src, %turned : (tensor<3x4xc64>, "
                        "tensor<2xi32>) -> D62", "D62"),
    "reverse": ("stablehlo.reverse %a, dims = [0] : A", "A"),
    "transpose": ("stablehlo.transpose %a, dims = [1, 0] : (A) -> T", "T"),
    "select": ("stablehlo.select %pred, %a, %b : P, A", "A"),
    "optimization_barrier": ("stablehlo.optimization_barrier %a : A", "A"),
    "reduce": ('"stablehlo.reduce"(%a, %nought) <{dimensions = array<i64: 1>}> ' + SUM +
               " : (A, tensor<c64>) -> R", "R"),
    "reduce by product": ('"stablehlo.reduce"(%a, %c) <{dimensions = array<i64: 0>}> ' + PRODUCT +
                          " : (A, tensor<c64>) -> tensor<4xc64>",
                          "tensor<4xc64>"),
    "reduce_window": ('"stablehlo.reduce_window"(%a, %c) <{window_dimensions = array<i64: 1, 2>}> '
                      + SUM + " : (A, tensor<c64>) -> A3", "A3"),
    "reduce_window by product": (
        '"stablehlo.reduce_window"(%a, %c) <{window_dimensions = array<i64: 1, 2>}> ' + PRODUCT +
        " : (A, tensor<c64>) -> A3", "A3"),
    "scatter": ('"stablehlo.scatter"(%a, %rows, %upd) <{scatter_dimension_numbers = '
                "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
                "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> " + SUM +
                " : (A, tensor<2xi32>, tensor<2x4xc64>) -> A", "A"),
    "scatter crossed": ('"stablehlo.scatter"(%a, %rows, %upd) <{scatter_dimension_numbers = '
                        "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
                        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> " + CROSSED +
                        " : (A, tensor<2xi32>, tensor<2x4xc64>) -> A", "A"),
    "while": ("stablehlo.while(%z = %a, %n = %idx) : A, tensor<i32> cond {\n"
              "%s = stablehlo.compare LT, %n, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
              "stablehlo.return %s : tensor<i1> } do {\n"
              "%s = stablehlo.multiply %z, %b : A\n"
              "%m = stablehlo.add %n, %idx : tensor<i32>\n"
              "stablehlo.return %s, %m : A, tensor<i32> }", "A, tensor<i32>"),
    "if": ('"stablehlo.if"(%yes) ({ "stablehlo.return"(%a) : (A) -> () }, '
           '{ "stablehlo.return"(%b) : (A) -> () }) : (tensor<i1>) -> A', "A"),
    "case": ('"stablehlo.case"(%idx) ({ "stablehlo.return"(%a) : (A) -> () }, '
             '{ "stablehlo.return"(%b) : (A) -> () }) : (tensor<i32>) -> A', "A"),
    "dot_general": ("stablehlo.dot_general %a, %mat, contracting_dims = [1] x [0] : (A, "
                    "tensor<4x5xc64>) -> A5", "A5"),
    "dot_general turned": ("stablehlo.dot_general %mat, %a, contracting_dims = [0] x [1] : "
                           "(tensor<4x5xc64>, A) -> T5", "T5"),
    "dot_general of a vector": ("stablehlo.dot_general %vec, %mat, contracting_dims = [0] x [0] : "
                                "(tensor<4xc64>, tensor<4x5xc64>) -> "
                                "tensor<5xc64>", "tensor<5xc64>"),
    "dot_general of two vectors": ("stablehlo.dot_general %vec, %vec, contracting_dims = "
                                   "[0] x [0] : (tensor<4xc64>, tensor<4xc64>) -> "
                                   "tensor<c64>", "tensor<c64>"),
    "dot_general in batches": ("stablehlo.dot_general %a, %b, batching_dims = [0] x [0], "
                               "contracting_dims = [] x [] : (A, A) -> A44", "A44"),
    "convolution": ("stablehlo.convolution(%img, %ker) dim_numbers = [b, f, 0]x[o, i, 0]->"
                    "[b, f, 0], window = {} {batch_group_count = 1 : i64, "
                    "feature_group_count = 2 : i64} : (tensor<2x4x6xc64>, tensor<6x2x3xc64>) -> "
                    "tensor<2x6x4xc64>", "tensor<2x6x4xc64>"),
    "convolution in batches": (
        "stablehlo.convolution(%img, %wide) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], "
        "window = {} {batch_group_count = 2 : i64, feature_group_count = 1 : i64} : "
        "(tensor<2x4x6xc64>, tensor<6x4x3xc64>) -> tensor<1x6x4xc64>",
        "tensor<1x6x4xc64>"),
}  # fmt: skip

NOT_INTERPRETED = {
    "real_dynamic_slice": "stablehlo.slice %a [1:2, 1:3] : (A) -> D12",
}
"""The interpreter lacks the op; another one that means the same."""

REFUSED = {
    "custom_call": "stablehlo.custom_call @other(%sq) : (tensor<2x2xcomplex<f32>>) -> "
    "tensor<2x2xcomplex<f32>>",
}


def _types(text: str, rows: str) -> str:
    """`text` with the names of types written out; `rows` is the first size of %a."""
    text = text.replace("c64", "complex<f32>")
    c = "xcomplex<f32>>"
    named = {
        "A8": f"tensor<{rows}x8{c}", "A3": f"tensor<{rows}x3{c}", "A5": f"tensor<{rows}x5{c}",
        "A44": f"tensor<{rows}x4x4{c}", "T5": f"tensor<5x{rows}{c}", "T": f"tensor<4x{rows}{c}",
        "A": f"tensor<{rows}x4{c}", "R": f"tensor<{rows}{c}",
        **{
            name: f"tensor<{sizes if rows == '3' else '?x?'}{c}"
            for name, sizes in (("D23", "2x3"), ("D12", "1x2"), ("D79", "7x9"), ("D62", "6x2"))
        },
        "X": f"tensor<{rows}x4xf32>", "P": f"tensor<{rows}x4xi1>",
        "W": f"tensor<{rows}x4xcomplex<f64>>",
    }  # fmt: skip
    return re.sub(r"\b(A8|A3|A5|A44|T5|T|A|D\d\d|R|X|P|W)\b", lambda m: named[m[1]], text)


def _arguments() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)

    def c(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)

    a, b = c(3, 4), c(3, 4)
    b[0, :2] = a[0, :2]  # equal, and of equal real part
    b[1, 0] = a[1, 0].real + 1j
    return {
        "a": a, "b": b, "x": a.real.copy(), "y": b.imag.copy(), "c": c(), "src": c(3, 4),
        "tile": c(2, 3), "upd": c(2, 4), "mat": c(4, 5), "vec": c(4), "img": c(2, 4, 6),
        "ker": c(6, 2, 3), "wide": c(6, 4, 3), "pred": a.real > 0, "idx": np.int32(1),
        "nought": np.complex64(0), "rows": np.array([2, 2], np.int32),
    }  # fmt: skip


CONSTANTS = {
    "sizes": "dense<[2, 3]> : tensor<2xi32>", "one": "dense<[1, 1]> : tensor<2xi32>",
    "ones": "dense<1> : tensor<2xi32>", "row": "dense<[1, 4]> : tensor<2xi32>",
    "turned": "dense<[6, 2]> : tensor<2xi32>", "three": "dense<4> : tensor<i32>",
}  # fmt: skip


def _program(arguments: dict[str, np.ndarray], *, interpreted: bool) -> str:
    rows = "3" if interpreted else "?"
    lines, results, kinds = [], [], []
    for name, value in CONSTANTS.items():
        lines.append(f"%{name} = stablehlo.constant {value}")
    # A predicate of a branch that nothing folds.
    lines.append("%zero = stablehlo.constant dense<0> : tensor<i32>")
    lines.append(
        "%yes = stablehlo.compare GT, %idx, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>"
    )
    for number, (name, (text, kind)) in enumerate(PROGRAMS.items()):
        if interpreted:
            text = NOT_INTERPRETED.get(name, text)
        types = _split(_types(kind, rows))
        names = [f"%r{number}" if len(types) == 1 else f"%r{number}#{k}" for k in range(len(types))]
        left = f"%r{number}" + (f":{len(types)}" if len(types) > 1 else "")
        body = _types(text, rows)
        lines.append(f"{left} = {body}")
        for value, type_ in zip(names, types, strict=True):
            if "complex" not in type_:
                results.append(value)
                kinds.append(type_)
                continue
            plane = re.sub(r"complex<(f\d\d)>", r"\1", type_)
            for part in ("real", "imag"):
                label = f"%{part}{len(results)}"
                lines.append(f"{label} = stablehlo.{part} {value} : ({type_}) -> {plane}")
                results.append(label)
                kinds.append(plane)
    signature = ""
    if interpreted:
        values = [
            f"%{n} = stablehlo.constant dense<{_literal(v)}> : {_kind(n, v, rows)}"
            for n, v in arguments.items()
        ]
        lines = values + lines
    else:
        signature = ", ".join(f"%{n}: {_kind(n, v, rows)}" for n, v in arguments.items())
    lines.append(f"return {', '.join(results)} : {', '.join(kinds)}")
    return f"func.func @main({signature}) -> ({', '.join(kinds)}) {{\n" + "\n".join(lines) + "\n}"


def _split(kinds: str) -> list[str]:
    return re.findall(r"tensor<(?:[^<>]|<[^<>]*>)*>", kinds)


def _kind(name: str, value: np.ndarray, rows: str) -> str:
    element = {"c": "complex<f32>", "f": "f32", "i": "i32", "b": "i1"}[value.dtype.kind]
    sizes = [str(n) for n in np.shape(value)]
    if name in ("a", "b", "x", "y", "pred"):
        sizes[0] = rows
    return f"tensor<{'x'.join([*sizes, element])}>"


def _literal(value: np.ndarray) -> str:
    if value.ndim:
        return "[" + ", ".join(map(_literal, value)) + "]"
    if value.dtype.kind == "c":
        return f"({float(value.real)!r}, {float(value.imag)!r})"
    return str(value.item()).lower()


@pytest.fixture(scope="module")
def compared() -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(name, ours, the interpreter's) for every real result of every program."""
    arguments = _arguments()
    executable = shlo_disc.compile(_program(arguments, interpreted=False))
    got = executable.run_numpy(list(arguments.values()))
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(_program(arguments, interpreted=True))
        want = [np.array(v) for v in stablehlo.eval_module(module, [])]
    names = []
    for name, (_, kind) in PROGRAMS.items():
        for type_ in _split(_types(kind, "3")):
            names += [name] * (2 if "complex" in type_ else 1)
    return list(zip(names, got, want, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_rule_gives_what_the_interpreter_gives(name, compared):
    results = [(got, want) for other, got, want in compared if other == name]
    assert results
    for got, want in results:
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=3e-6, atol=3e-6)


def test_every_rule_is_exercised():
    tested = {f"stablehlo.{name.split()[0]}" for name in (*PROGRAMS, *REFUSED)}
    # Bodies of the programs above; the others need programs of their own (tests/frontend/test_fft).
    tested |= {"stablehlo.return", "func.return", "disc.reduce_window"}
    tested |= {"stablehlo.fft", "stablehlo.sort"}
    assert tested == set(RULES)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name):
    text = (
        "func.func @main(%sq: tensor<2x2xcomplex<f32>>, %c: tensor<complex<f32>>) -> "
        "tensor<2x2xcomplex<f32>> {\n"
        f"%r = {REFUSED[name]}\nreturn %r : tensor<2x2xcomplex<f32>>\n}}"
    )
    said = "custom_call @other" if name == "custom_call" else f"stablehlo.{name}"
    with pytest.raises(UnsupportedError, match=rf"<module>:2:\d+: .*{said}"):
        shlo_disc.compile(text)


def test_order_is_that_of_pairs():
    """The interpreter has no order of complex numbers; NumPy's is lexicographic, too."""
    kind = "tensor<?xcomplex<f64>>"
    names = ("LT", "LE", "GT", "GE")
    lines = [
        f"%{d} = stablehlo.compare {d}, %a, %b, FLOAT : ({kind}, {kind}) -> tensor<?xi1>"
        for d in names
    ]
    text = f"""func.func @main(%a: {kind}, %b: {kind}) -> (tensor<?xi1>, tensor<?xi1>, tensor<?xi1>,
        tensor<?xi1>, {kind}, tensor<?xi32>) {{
      {chr(10).join(lines)}
      %n = stablehlo.get_dimension_size %a, dim = 0 : ({kind}) -> tensor<i32>
      %shape = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %place = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      %s:2 = "stablehlo.sort"(%a, %place) <{{dimension = 0 : i64, is_stable = true}}> ({{
      ^bb0(%p: tensor<complex<f64>>, %q: tensor<complex<f64>>, %i: tensor<i32>, %j: tensor<i32>):
        %less = stablehlo.compare LT, %p, %q, FLOAT :
          (tensor<complex<f64>>, tensor<complex<f64>>) -> tensor<i1>
        stablehlo.return %less : tensor<i1>
      }}) : ({kind}, tensor<?xi32>) -> ({kind}, tensor<?xi32>)
      return %LT, %LE, %GT, %GE, %s#0, %s#1 : tensor<?xi1>, tensor<?xi1>, tensor<?xi1>,
        tensor<?xi1>, {kind}, tensor<?xi32>
    }}"""
    executable = shlo_disc.compile(text)
    rng = np.random.default_rng(2)
    for n in (0, 1, 7, 500):
        a, b = (rng.integers(-2, 3, (2, n)) + 1j * rng.integers(-2, 3, (2, n))) * 1.5
        got = executable.run_numpy([a, b])
        for have, want in zip(got[:4], (a < b, a <= b, a > b, a >= b), strict=True):
            np.testing.assert_array_equal(have, want)
        order = np.argsort(a, kind="stable")
        np.testing.assert_array_equal(got[4], a[order])
        np.testing.assert_array_equal(got[5], order)


def test_bits_of_a_wide_number_are_those_of_two():
    """The interpreter has no such conversion; NumPy's views have the same bits."""
    wide, narrow = "tensor<?xcomplex<f64>>", "tensor<?x2xcomplex<f32>>"
    program = shlo_disc.compile(
        f"""func.func @main(%x: {wide}, %y: {narrow}) -> ({narrow}, {wide}) {{
      %0 = stablehlo.bitcast_convert %x : ({wide}) -> {narrow}
      %1 = stablehlo.bitcast_convert %y : ({narrow}) -> {wide}
      return %0, %1 : {narrow}, {wide} }}"""
    )
    for n in (0, 1, 17):
        raw = np.random.default_rng(n).standard_normal((n, 2))
        x, y = raw.view("c16")[:, 0], raw.view("c8")
        cut, joined = program.run_numpy([x, y])
        assert cut.shape == (n, 2)
        assert cut.tobytes() == x.tobytes()
        assert joined.tobytes() == y.tobytes()


def _windows(x: np.ndarray, source: np.ndarray, init: complex) -> np.ndarray:
    """Windows of 3 by 2 and steps of 2 by 1, with padding; by the definition."""
    out = np.full(x.shape, init, x.dtype)
    for place in np.ndindex(*source.shape):
        best = None
        for k in np.ndindex(3, 2):
            at = (2 * place[0] + k[0] - 1, place[1] + k[1] - 1)
            if not all(0 <= a < n for a, n in zip(at, x.shape, strict=True)):
                continue
            if best is None or not (x[best].real, x[best].imag) >= (x[at].real, x[at].imag):
                best = at
        if best is not None:
            out[best] += source[place]
    return out


@pytest.mark.parametrize("symbolic", [True, False])
def test_select_and_scatter(symbolic):
    """The interpreter refuses it; equal real parts, ties and windows over padding are here."""

    def program(rows: str, windows: str) -> shlo_disc.Executable:
        c, x, s = (f"tensor<{sizes}complex<f32>>" for sizes in ("", f"{rows}x4x", f"{windows}x5x"))
        return shlo_disc.compile(
            f"""func.func @main(%x: {x}, %s: {s}, %i: {c}) -> {x} {{
      %0 = "stablehlo.select_and_scatter"(%x, %s, %i) ({{ ^bb0(%a: {c}, %b: {c}):
        %p = stablehlo.compare GE, %a, %b : ({c}, {c}) -> tensor<i1>
        stablehlo.return %p : tensor<i1> }}, {{ ^bb0(%a: {c}, %b: {c}):
        %t = stablehlo.add %a, %b : {c}
        stablehlo.return %t : {c} }}) {{window_dimensions = array<i64: 3, 2>,
        window_strides = array<i64: 2, 1>, padding = dense<1> : tensor<2x2xi64>}}
        : ({x}, {s}, {c}) -> {x}
      return %0 : {x} }}"""
        )

    made = program("?", "?") if symbolic else None
    for n in (1, 2, 7):
        windows = (n - 1) // 2 + 1
        exe = made or program(str(n), str(windows))
        rng = np.random.default_rng(n)
        x, s = (
            (rng.integers(-2, 3, (2, *shape)).astype("f4").T @ [1, 1j]).T.astype("c8")
            for shape in ((n, 4), (windows, 5))
        )
        (got,) = exe.run_numpy([x, s, np.complex64(1 - 2j)])
        np.testing.assert_array_equal(got, _windows(x, s, 1 - 2j))
