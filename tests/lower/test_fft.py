"""Kind fft: programs on planes and pairs, from `ingest.fourier.fft_planes` on, against NumPy."""

import numpy as np
import pytest

from shlo_disc.debug import reference
from shlo_disc.debug.interpreter import Interpreter
from shlo_disc.driver.stages import compile_module
from shlo_disc.ingest.fourier import fft_planes, gives_pairs, takes_pairs
from shlo_disc.ir import dialect
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.lower.cpu.fft import DOUBLE, KINDS, PAIRS_IN, PAIRS_OUT, VECTOR_SHIFT, emit_fft
from shlo_disc.lower.cpu.machine import ARCHITECTURES, Machine
from shlo_disc.lower.plan import FftCall
from tests.lower.helpers import fusion_text, plan_of

DTYPES = {"f32": np.float32, "f64": np.float64}


def tensor(sizes, element):
    return f"tensor<{''.join(f'{s if s.isdigit() else chr(63)}x' for s in sizes.split())}{element}>"


def module_of(kind, sizes, element, dims, length=None, pairs=False):
    """A module of `fft_planes` on arguments of `sizes`; a symbolic `length` comes with zeros of
    that many elements. `pairs`: where a transform can take or give them.
    """
    takes = pairs and takes_pairs(kind, dims)
    count = 1 if kind == "RFFT" or takes else 2
    sizes = f"{sizes} 2" if takes else sizes
    shape = ", ".join(f'"{size}"' for size in sizes.split())
    arguments = [
        f"%a{i}: {tensor(sizes, element)} {{disc.shape = [{shape}]}}" for i in range(count)
    ]
    body = ""
    if isinstance(length, str):
        arguments.append(f'%z: tensor<?xi8> {{disc.shape = ["{length}"]}}')
        body = "%n = stablehlo.get_dimension_size %z, dim = 0 : (tensor<?xi8>) -> tensor<i32>"
    text = f"func.func public @main({', '.join(arguments)}) {{\n{body}\nreturn\n}}"
    module = ir.Module.parse(text)
    main = module.body.operations[0]
    block = main.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1]
    planes = list(block.arguments)[:count]
    known = end.operation.parent.regions[0].blocks[0].operations[0] if body else None
    lengths = [0] * dims
    if kind == "IRFFT":
        lengths[-1] = known.operation.results[0] if isinstance(length, str) else length
    with ir.InsertionPoint(end):
        results = fft_planes(kind, lengths, planes, as_pairs=pairs)
        ir.Operation.create("func.return", operands=results)
    end.operation.erase()
    type_ = ir.FunctionType.get([a.type for a in block.arguments], [r.type for r in results])
    main.attributes["function_type"] = ir.TypeAttr.get(type_)
    dialect.verify(module)
    module.operation.verify()
    return module


def expected(kind, dims, planes, length):
    axes = tuple(range(-dims, 0))
    wide = [plane.astype(np.float64) for plane in planes]
    if kind == "RFFT":
        return np.fft.rfftn(wide[0], axes=axes)
    x = wide[0] + 1j * wide[1]
    if kind == "IRFFT":
        return np.fft.irfftn(x, [*x.shape[-dims:-1], length], axes)
    return (np.fft.fftn if kind == "FFT" else np.fft.ifftn)(x, axes=axes)


def _complex(kind, dims, found, pairs):
    if pairs and gives_pairs(kind, dims):
        (both,) = found
        return both[..., 0] + 1j * both[..., 1]
    return found[0] if len(found) == 1 else found[0] + 1j * found[1]


CASES = {
    "of symbols": ("FFT", "b n", "f32", 1, None),
    "inverse of several": ("IFFT", "b n m", "f64", 2, None),
    "of three": ("FFT", "k n m", "f32", 3, None),
    "of reals": ("RFFT", "b c n", "f32", 1, None),
    "of three of reals": ("RFFT", "k n m", "f64", 3, None),
    "to reals": ("IRFFT", "b h", "f32", 1, "n"),
    "two to reals": ("IRFFT", "b h k", "f64", 2, "n"),
    "static": ("FFT", "3 12", "f64", 2, None),
    "static reals": ("RFFT", "b 12", "f32", 1, None),
    "static to reals": ("IRFFT", "b 7", "f32", 1, 12),
    "static to odd": ("IRFFT", "b 7", "f64", 1, 13),
}


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_programs(name, pairs):
    kind, sizes, element, dims, length = CASES[name]
    with new_context(), ir.Location.unknown():
        executable = compile_module(module_of(kind, sizes, element, dims, length, pairs))
    dtype = DTYPES[element]
    symbolic = [
        {"b": 3, "c": 2, "k": 4, "m": 6, "n": 35},
        {"b": 17, "c": 1, "k": 3, "m": 67, "n": 128},
        {"b": 1, "c": 5, "k": 1, "m": 1, "n": 1},
        {"b": 2, "c": 3, "k": 2, "m": 5, "n": 1000},
    ]
    for values in symbolic:
        n = values.get(length, length) if isinstance(length, str) else length
        values = dict(values, h=(n or 0) // 2 + 1)
        if kind == "IRFFT" and sizes.endswith("k"):
            values["k"] = values["h"]
        shape = [int(s) if s.isdigit() else values[s] for s in sizes.split()]
        r = np.random.default_rng(1)
        planes = [r.standard_normal(shape).astype(dtype) for _ in range(1 + (kind != "RFFT"))]
        extra = [np.zeros(n, np.int8)] if isinstance(length, str) else []
        operands = [np.stack(planes, -1)] if pairs and takes_pairs(kind, dims) else planes
        found = executable(*operands, *extra)
        found = [np.asarray(p) for p in (found if isinstance(found, list | tuple) else [found])]
        want = expected(kind, dims, planes, n)
        got = _complex(kind, dims, found, pairs)
        assert got.shape == want.shape
        assert found[0].dtype == dtype
        if want.size:
            relative = np.linalg.norm(got - want) / np.linalg.norm(want)
            # A result of one element, or of cancelled ones, has no more to be compared with.
            assert relative < 4 * np.finfo(dtype).eps * np.log2(max(2, want.size)), values


def test_neighbours_unread_planes_and_constants():
    p, s = "tensor<?x?xf32>", "tensor<f32>"
    text = f"""func.func public @main(%x: {p}, %c: tensor<i32>) -> ({p}, {p}, {p}) {{
      %i0 = stablehlo.constant dense<0> : tensor<i32>
      %i1 = stablehlo.constant dense<1> : tensor<i32>
      %zero = stablehlo.constant dense<0.0> : {s}
      %b = stablehlo.get_dimension_size %x, dim = 0 : ({p}) -> tensor<i32>
      %n = stablehlo.get_dimension_size %x, dim = 1 : ({p}) -> tensor<i32>
      %b1 = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
      %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %shape = stablehlo.concatenate %b1, %n1, dim = 0
          : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %y = stablehlo.dynamic_broadcast_in_dim %zero, %shape, dims = []
          : ({s}, tensor<2xi32>) -> {p}
      %a = stablehlo.tanh %x : {p}
      %f:2 = "disc.fft"(%a, %y) {{kind = "FFT"}} : ({p}, {p}) -> ({p}, {p})
      %square = stablehlo.multiply %f#0, %f#0 : {p}
      %g:2 = "disc.fft"(%f#0, %f#1) {{kind = "IFFT"}} : ({p}, {p}) -> ({p}, {p})
      %h:3 = stablehlo.while(%k = %c, %u = %x, %v = %y) : tensor<i32>, {p}, {p}
        cond {{
          %go = stablehlo.compare GT, %k, %i0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %go : tensor<i1>
        }} do {{
          %less = stablehlo.subtract %k, %i1 : tensor<i32>
          %w:2 = "disc.fft"(%u, %v) {{kind = "FFT"}} : ({p}, {p}) -> ({p}, {p})
          stablehlo.return %less, %w#0, %w#1 : tensor<i32>, {p}, {p}
        }}
      return %square, %g#0, %h#2 : {p}, {p}, {p}
    }}"""
    with new_context(), ir.Location.unknown():
        executable = compile_module(ir.Module.parse(text))
    for shape in ((3, 8), (2, 257), (1, 1), (0, 4)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        square, back, third = (np.asarray(v) for v in executable(x, np.int32(3)))
        near = {"rtol": 1e-4, "atol": 1e-4 * shape[1]}
        np.testing.assert_allclose(square, np.fft.fft(np.tanh(x)).real ** 2, **near)
        np.testing.assert_allclose(back, np.tanh(x), rtol=0, atol=1e-6)
        thrice = np.fft.fft(np.fft.fft(np.fft.fft(x.astype(np.float64))))
        np.testing.assert_allclose(third, thrice.imag, rtol=1e-4, atol=1e-4 * shape[1] ** 1.5)


@pytest.fixture(scope="module")
def interpreter():
    with Interpreter() as made:
        yield made


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("name", ["inverse of several", "of reals", "two to reals", "static"])
def test_the_reference_agrees_with_numpy(interpreter, name, pairs):
    kind, sizes, element, dims, length = CASES[name]
    values = {"b": 2, "c": 1, "k": 5, "m": 3, "n": 8, "h": 3}
    shape = [int(s) if s.isdigit() else values[s] for s in sizes.split()]
    n = 2 * (shape[-1] - 1)
    values["n"] = n if kind == "IRFFT" else values["n"]
    dtype = np.dtype(DTYPES[element])
    r = np.random.default_rng(2)
    planes = [r.standard_normal(shape).astype(dtype) for _ in range(1 + (kind != "RFFT"))]
    extra = [np.zeros(n, np.int8)] if isinstance(length, str) else []
    with new_context(), ir.Location.unknown():
        module = module_of(kind, sizes, element, dims, length, pairs)
        reference.of_module(module, values)
        count = 1 if kind == "IRFFT" or (pairs and gives_pairs(kind, dims)) else 2
        operands = [np.stack(planes, -1)] if pairs and takes_pairs(kind, dims) else planes
        found = interpreter.run(module, [*operands, *extra], [dtype] * count)
    got = _complex(kind, dims, found, pairs)
    np.testing.assert_allclose(got, expected(kind, dims, planes, n), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_vectors_are_those_of_the_target(architecture):
    sizes, element = "b, n", "f64"
    text = fusion_text(
        "fft",
        [f"x: {sizes} {element}", f"y: {sizes} {element}"],
        '%r:2 = "disc.fft"(%x, %y) {kind = "IFFT"} : '
        "(tensor<?x?xf64>, tensor<?x?xf64>) -> (tensor<?x?xf64>, tensor<?x?xf64>)",
        [f"r#0: {sizes} {element}"],
    )
    width, features, *_ = ARCHITECTURES[architecture]
    plan = plan_of(emit_fft, text, Machine(vector_bytes=width, features=features)).plan
    (call,) = plan.steps
    assert isinstance(call, FftCall)
    assert call.options == KINDS["IFFT"] | DOUBLE | width << VECTOR_SHIFT
    assert len(plan.workspaces) == 1  # the imaginary part, which nobody reads


def test_pairs_are_one_buffer():
    text = fusion_text(
        "fft",
        ["x: b, n, c, 2 f32"],
        '%r = "disc.fft"(%x) {kind = "FFT", dimension = 1} : '
        "(tensor<?x?x?x2xf32>) -> tensor<?x?x?x2xf32>",
        ["r: b, n, c, 2 f32"],
    )
    width, features, *_ = ARCHITECTURES["avx2"]
    plan = plan_of(emit_fft, text, Machine(vector_bytes=width, features=features)).plan
    (call,) = plan.steps
    assert call.options == KINDS["FFT"] | PAIRS_IN | PAIRS_OUT | width << VECTOR_SHIFT
    assert [str(size) for size in (call.batch, call.length, call.inner)] == ["b", "n", "c"]
    assert len(call.buffers) == 2


WRONG = {
    '"disc.fft"(%x) {kind = "DCT"} : (tensor<4xf32>) -> tensor<4xf32>': "kind must be one of",
    '"disc.fft"(%x) {kind = "FFT"} : (tensor<4xf32>) -> tensor<4xf32>': "must have 2 elements",
    '"disc.fft"(%x) {kind = "IRFFT"} : (tensor<4xf32>) -> tensor<6xf32>': "IRFFT has 3 operands",
    '"disc.fft"(%p) {kind = "FFT"} : (tensor<4x2xf32>) -> tensor<4x4x2xf32>': "different ranks",
    '"disc.fft"(%p) {kind = "FFT", dimension = 1} : (tensor<4x2xf32>) -> tensor<4x2xf32>': "has no",
    '"disc.fft"(%h, %h, %n) {kind = "IRFFT"} : (tensor<4xf16>, tensor<4xf16>, tensor<i32>) '
    "-> tensor<6xf16>": "must be f32 or f64",
    '"disc.fft"(%x, %h, %n) {kind = "IRFFT"} : (tensor<4xf32>, tensor<4xf16>, tensor<i32>) '
    "-> tensor<6xf32>": "different ranks or element types",
    '"disc.fft"(%x, %x) {kind = "FFT", dimension = 1} : (tensor<4xf32>, tensor<4xf32>) '
    "-> (tensor<4xf32>, tensor<4xf32>)": "it has no such dimension",
    '"disc.fft"(%x) {kind = "RFFT", dimension = 0} : (tensor<4xf32>) '
    "-> (tensor<3xf32>, tensor<3xf32>)": "RFFT has no dimension",
}


@pytest.mark.parametrize("line", WRONG)
def test_malformed_operations_are_named(line):
    text = f"""func.func @main(%x: tensor<4xf32>, %h: tensor<4xf16>, %n: tensor<i32>,
                           %p: tensor<4x2xf32>) {{
      {"%r:2" if "-> (" in line else "%r"} = {line}
      return
    }}"""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        with pytest.raises(ValueError, match=WRONG[line]):
            dialect.verify(module)
