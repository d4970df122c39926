"""Every op in every type: folded when compiling, beside the compiled op on the same values.

A row of `ROWS` is an op. `test_every_op_that_can_be_folded_has_a_row` holds the rows against the
tables of all that computes when compiling, so a new folder needs a row here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import shlo_disc
from shlo_disc.dynamic.arithmetic import ELEMENTWISE
from shlo_disc.dynamic.shape_values import SHAPE_VALUES
from shlo_disc.ir.mlir import ir, new_context, stablehlo
from shlo_disc.lower.constants import constant_bytes
from shlo_disc.passes import fold_reshapes, fold_transposes
from shlo_disc.passes.base import Pipeline
from shlo_disc.passes.fold_constants import RULES as FOLDED
from shlo_disc.passes.op_classes import HOST_SCALARS
from shlo_disc.passes.pipeline import CLEANUP
from shlo_disc.passes.simplify import RULES as SIMPLIFIED
from tests.cases import all_but

SIGNED = {f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)}
UNSIGNED = {f"ui{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)}
FLOATS = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
DTYPES = {"i1": np.dtype(np.bool_), **SIGNED, **UNSIGNED, **FLOATS}
INTEGERS = (*SIGNED, *UNSIGNED)
NUMBERS = (*INTEGERS, *FLOATS)
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")

TYPES = [
    t if t in ("i1", "i8", "ui8", "i64", "ui64", "bf16", "f32")
    else pytest.param(t, marks=pytest.mark.slow)
    for t in DTYPES
]  # fmt: skip
"""Those that share code with no other run always."""

ROUNDED = 2
"""Units in the last place by which a transcendental function may differ from itself."""


def edges(t: str) -> np.ndarray:
    """The values at which an op of this type is most likely wrong."""
    dtype = DTYPES[t]
    if t == "i1":
        return np.array([False, True])
    if t in FLOATS:
        info = ml_dtypes.finfo(dtype)
        numbers = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.7, 255.5, -129.0, float(info.max),
                   -float(info.max), float(info.smallest_subnormal), float(info.tiny),
                   np.inf, -np.inf, np.nan]  # fmt: skip
        return np.array(numbers).astype(dtype)
    info = np.iinfo(dtype)
    low = [info.min, -1] if t in SIGNED else [1 << (info.bits - 1), (1 << info.bits - 1) - 1]
    return np.array([*low, 0, 1, 3, info.bits - 1, info.bits, info.max], dtype)


def wide_edges(t: str) -> np.ndarray:
    """As `edges`, with what is near the limits of the other types."""
    dtype = DTYPES[t]
    if t == "i1":
        return edges(t)
    exact = [2**k + d for k in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64) for d in (-1, 0, 1)]
    near = [s * n for n in exact for s in (1, -1)]
    if t in FLOATS:
        more = [n + d for n in (127, 128, 255, 256) for d in (0.25, 0.5, 0.75)]
        more += [65504, 65519, 65520, 65536, 2**-14, 2**-24, 2**-25, 2**-25 * 1.5, 3.4e38, 3.5e38]
        more += [1 + 2**-8, 1 + 2**-8 + 2**-30, 1 + 2**-11 + 2**-40, 1 + 2**-24 + 2**-50]
        with np.errstate(all="ignore"):
            return np.concatenate(
                [edges(t), np.array([float(n) for n in near] + more).astype(dtype)]
            )
    info = np.iinfo(dtype)
    # Halfway between two 16-bit floats, and just above: rounded twice, these come out wrong.
    near += [2**k + 2 ** (k - p) + d for k in range(9, 63) for p in (8, 11, 24) for d in (0, 1)
             if p < k]  # fmt: skip
    return np.array([*edges(t).tolist(), *[n for n in near if info.min <= n <= info.max]], dtype)


@dataclass(frozen=True)
class Row:
    """How an op is written: `{0}`, `{1}` are operands, `{t}` and `{r}` tensor types."""

    types: Sequence[str]
    arity: int = 1
    text: str = ""
    """The right-hand side; by default the short form of an element-wise op of one type."""
    result: Callable[[str], str] = lambda t: t
    variants: Sequence[str] = ("",)
    """What `{v}` stands for."""
    ulps: int = 0
    defined: Callable[..., np.ndarray] | None = None
    """Where the specification says what the result is; None: everywhere."""


def _divides(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """No division by zero, and none whose quotient is too large: neither is defined."""
    if a.dtype.kind not in "iu":
        return np.ones(a.shape, bool)
    overflow = (a == np.iinfo(a.dtype).min) & (b == -1) if a.dtype.kind == "i" else False
    return (b != 0) & ~overflow


LOGICAL = ("i1", *INTEGERS)
COMPARE = "stablehlo.compare {v}, {0}, {1} : ({t}, {t}) -> {r}"

ROWS: dict[str, Row] = {
    "abs": Row((*SIGNED, *FLOATS)),
    "add": Row(("i1", *NUMBERS), 2),
    "and": Row(LOGICAL, 2),
    "atan2": Row(tuple(FLOATS), 2, ulps=ROUNDED),
    "cbrt": Row(tuple(FLOATS), ulps=ROUNDED),
    "ceil": Row(tuple(FLOATS)),
    "clamp": Row(("i1", *NUMBERS), 3),
    "compare": Row(("i1", *NUMBERS), 2, COMPARE, lambda _: "i1", DIRECTIONS),
    "cosine": Row(tuple(FLOATS), ulps=ROUNDED),
    "count_leading_zeros": Row(INTEGERS),
    "divide": Row(NUMBERS, 2, defined=_divides),
    "exponential": Row(tuple(FLOATS), ulps=ROUNDED),
    "exponential_minus_one": Row(tuple(FLOATS), ulps=ROUNDED),
    "floor": Row(tuple(FLOATS)),
    "is_finite": Row(tuple(FLOATS), text="stablehlo.is_finite {0} : ({t}) -> {r}",
                     result=lambda _: "i1"),
    "log": Row(tuple(FLOATS), ulps=ROUNDED),
    "log_plus_one": Row(tuple(FLOATS), ulps=ROUNDED),
    "logistic": Row(tuple(FLOATS), ulps=ROUNDED),
    "maximum": Row(("i1", *NUMBERS), 2),
    "minimum": Row(("i1", *NUMBERS), 2),
    "multiply": Row(("i1", *NUMBERS), 2),
    "negate": Row(NUMBERS),
    "not": Row(LOGICAL),
    "or": Row(LOGICAL, 2),
    "popcnt": Row(INTEGERS),
    "power": Row(NUMBERS, 2, ulps=ROUNDED),
    "remainder": Row(NUMBERS, 2, defined=_divides),
    "round_nearest_afz": Row(tuple(FLOATS)),
    "round_nearest_even": Row(tuple(FLOATS)),
    "rsqrt": Row(tuple(FLOATS), ulps=ROUNDED),
    "shift_left": Row(INTEGERS, 2),
    "shift_right_arithmetic": Row(INTEGERS, 2),
    "shift_right_logical": Row(INTEGERS, 2),
    "sign": Row((*SIGNED, *FLOATS)),
    "sine": Row(tuple(FLOATS), ulps=ROUNDED),
    "sqrt": Row(tuple(FLOATS)),
    "subtract": Row(NUMBERS, 2),
    "tan": Row(tuple(FLOATS), ulps=ROUNDED),
    "tanh": Row(tuple(FLOATS), ulps=ROUNDED),
    "xor": Row(LOGICAL, 2),
}  # fmt: skip

Form = tuple[str, Row, str]
"""An op, its row and one of its variants."""


def forms(t: str) -> list[Form]:
    return [(n, row, v) for n, row in ROWS.items() if t in row.types for v in row.variants]


@cache
def combinations(t: str, arity: int) -> tuple[np.ndarray, ...]:
    return tuple(
        np.array(column, DTYPES[t])
        for column in zip(*itertools.product(edges(t), repeat=arity), strict=True)
    )


def literal(number: np.generic, t: str) -> str:
    """A number in MLIR's notation, floats as their bits."""
    if t == "i1":
        return "true" if number else "false"
    if t in FLOATS:
        bits = np.asarray(number).view(f"u{number.dtype.itemsize}")
        return f"0x{int(bits):0{2 * number.dtype.itemsize}X}"
    return str(int(number))


def constant(array: np.ndarray, t: str) -> str:
    return f"stablehlo.constant dense<{_body(array, t)}> : {tensor(np.shape(array), t)}"


def _body(array: np.ndarray, t: str) -> str:
    if np.ndim(array) == 0:
        return literal(array, t)
    return "[" + ", ".join(_body(part, t) for part in array) + "]"


def tensor(shape: Sequence[int], t: str) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + t + ">"


def line(form: Form, t: str, shape: Sequence[int], operands: Sequence[str]) -> tuple[str, str]:
    """(right-hand side, result type) of one op."""
    name, row, variant = form
    result = tensor(shape, row.result(t))
    values = ", ".join(f"{{{k}}}" for k in range(row.arity))
    text = row.text or f"stablehlo.{name} {values} : {{t}}"
    return text.format(*operands, t=tensor(shape, t), r=result, v=variant), result


def program(lines: Sequence[tuple[str, str]], head: Sequence[str], arguments: str = "") -> str:
    body = [*head, *(f"%r{k} = {text}" for k, (text, _) in enumerate(lines))]
    types = ", ".join(kind for _, kind in lines)
    values = ", ".join(f"%r{k}" for k in range(len(lines)))
    return (
        f"func.func @main({arguments}) -> ({types}) {{\n" + "\n".join(body)
        + f"\nreturn {values} : {types}\n}}"
    )  # fmt: skip


def vectors(t: str, constants: bool) -> tuple[str, list[np.ndarray]]:
    """A program of every form on vectors of all combinations, of constants or of arguments."""
    head, arguments, arrays, lines = [], [], [], []
    for arity in (1, 2, 3):
        for k, array in enumerate(combinations(t, arity)):
            if constants:
                head.append(f"%v{arity}_{k} = {constant(array, t)}")
            arguments.append(f"%v{arity}_{k}: {tensor(array.shape, t)}")
            arrays.append(array)
    for form in forms(t):
        arity = form[1].arity
        shape = combinations(t, arity)[0].shape
        lines.append(line(form, t, shape, [f"%v{arity}_{k}" for k in range(arity)]))
    text = program(lines, head, "" if constants else ", ".join(arguments))
    return text, [] if constants else arrays


@cache
def compiled(t: str) -> list[np.ndarray]:
    """What compiled code makes of arguments."""
    text, arrays = vectors(t, constants=False)
    return shlo_disc.compile(text).run_numpy(arrays)


def folded(text: str) -> list[np.ndarray | None]:
    """The results of `main` that the passes found when compiling."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline(list(CLEANUP)).run(module)
        (main,) = module.body.operations
        block = main.operation.regions[0].blocks[0]
        last = block.operations[len(block.operations) - 1]
        return [_constant_of(value) for value in last.operands]


def _constant_of(value: ir.Value) -> np.ndarray | None:
    op = value.owner
    if isinstance(op, ir.Block) or op.name != "stablehlo.constant":
        return None
    return _array(op.operation)


def _array(op: ir.Operation) -> np.ndarray:
    kind = op.results[0].type
    dtype = DTYPES[str(kind.element_type)]
    return constant_bytes(op).view(dtype).reshape(list(kind.shape))


def interpreted(module: ir.Module, arguments: Sequence[tuple[np.ndarray, str]]) -> list[np.ndarray]:
    """The results of `main` by the StableHLO interpreter, in the current context."""
    given = [
        ir.Attribute.parse(constant(array, t).removeprefix("stablehlo.constant "))
        for array, t in arguments
    ]
    results = []
    for value in stablehlo.eval_module(module, given):
        made = ir.Operation.create(
            "stablehlo.constant", results=[value.type], attributes={"value": value}
        )
        results.append(_array(made))
    return results


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Units in the last place between two arrays; 0 for two NaN, huge for only one."""
    if a.dtype.kind in "biu":
        return np.where(a == b, 0, 1 << 40)
    size = a.dtype.itemsize
    order = []
    for x in (a, b):
        bits = np.ascontiguousarray(x).view(f"i{size}").astype(object)
        order.append(np.where(bits < 0, -(bits + (1 << 8 * size - 1)) - 1, bits))
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    nan = np.isnan(a64) | np.isnan(b64)
    both = np.isnan(a64) & np.isnan(b64)
    inf = (np.isinf(a64) | np.isinf(b64)) & (a64 != b64)
    gap = np.abs(order[0] - order[1])
    return np.where(both, 0, np.where(nan | inf, 1 << 40, gap)).astype(np.int64)


def wrong(
    name: str,
    got: np.ndarray,
    want: np.ndarray,
    ulps: int,
    operands: Sequence[np.ndarray],
    where: np.ndarray | None = None,
) -> Iterator[str]:
    bad = distance(got, want) > ulps
    if where is not None:
        bad = bad & where
    for k in np.flatnonzero(bad)[:4]:
        values = ", ".join(str(o.reshape(-1)[k]) for o in operands)
        yield f"{name}({values}) is {got.reshape(-1)[k]!r}, not {want.reshape(-1)[k]!r}"


def scalars(t: str) -> tuple[str, list[tuple[int, int]]]:
    """A program of every form on scalar constants; (form, combination) of each result."""
    head, lines, places = [], [], []
    for k, number in enumerate(edges(t)):
        head.append(f"%c{k} = {constant(number, t)}")
    names = [f"%c{k}" for k in range(len(head))]
    for f, form in enumerate(forms(t)):
        every = 7 if form[1].arity == 3 else 3 if t in FLOATS else 1
        choices = list(itertools.product(names, repeat=form[1].arity))
        for k in range(0, len(choices), every):
            lines.append(line(form, t, (), choices[k]))
            places.append((f, k))
    return program(lines, head), places


# -- the tests ----------------------------------------------------------------------------------


def _no_fault(problems: Sequence[str]) -> None:
    assert not problems, "\n".join(problems[:20])


@pytest.mark.parametrize("t", TYPES)
def test_the_compiled_op_is_what_the_specification_says(t):
    """On arguments, beside the StableHLO interpreter; the other tests start from here."""
    problems: list[str] = []
    for (name, row, variant), got in zip(forms(t), compiled(t), strict=True):
        operands = combinations(t, row.arity)
        where = np.ones(operands[0].shape, bool) if row.defined is None else row.defined(*operands)
        kept = [o[where] for o in operands]  # the interpreter divides by zero, and dies of it
        shape = kept[0].shape
        names = [f"%a{k}" for k in range(row.arity)]
        arguments = ", ".join(f"{n}: {tensor(shape, t)}" for n in names)
        text = program([line((name, row, variant), t, shape, names)], [], arguments)
        with new_context(), ir.Location.unknown():
            (want,) = interpreted(ir.Module.parse(text), [(o, t) for o in kept])
        problems += wrong(f"{t} {name} {variant}", got[where], want, row.ulps, kept)
    _no_fault(problems)


@pytest.mark.parametrize("t", TYPES)
def test_constants_give_what_arguments_give(t):
    """Vectors of constants: by our folders, and by LLVM's in what they leave."""
    text, _ = vectors(t, constants=True)
    problems: list[str] = []
    run = shlo_disc.compile(text).run_numpy([])
    columns = zip(forms(t), compiled(t), folded(text), run, strict=True)
    for (name, row, variant), want, found, got in columns:
        operands = combinations(t, row.arity)
        problems += wrong(f"{t} {name} {variant}, compiled", got, want, row.ulps, operands)
        if found is not None:
            problems += wrong(f"{t} {name} {variant}, folded", found, want, row.ulps, operands)
    _no_fault(problems)


@pytest.mark.parametrize("t", TYPES)
def test_scalar_constants_give_what_arguments_give(t):
    text, places = scalars(t)
    problems: list[str] = []
    count = dict.fromkeys(range(len(forms(t))), 0)
    for (f, k), found in zip(places, folded(text), strict=True):
        name, row, variant = forms(t)[f]
        if found is None:
            continue
        count[f] += 1
        operands = [o[k : k + 1] for o in combinations(t, row.arity)]
        want = compiled(t)[f][k : k + 1]
        problems += wrong(f"{t} {name} {variant}", found.reshape(1), want, row.ulps, operands)
    _no_fault(problems)
    tables = {*FOLDED, *(ELEMENTWISE if t in INTEGERS else ())}
    for f, (name, _, _) in enumerate(forms(t)):
        assert count[f] or f"stablehlo.{name}" not in tables, f"{name} of {t} is never folded"


@pytest.mark.parametrize("t", ["i1", *INTEGERS])
def test_scalar_arguments_give_what_vectors_give(t):
    """Integer scalars that are computed by the host program, or in kernels of one element."""
    chosen = [(f, form) for f, form in enumerate(forms(t)) if form[1].arity < 3]
    lines = [line(form, t, (), ["%a", "%b"][: form[1].arity]) for _, form in chosen]
    run = shlo_disc.compile(program(lines, [], f"%a: tensor<{t}>, %b: tensor<{t}>"))
    problems: list[str] = []
    a, b = combinations(t, 2)
    for k in range(len(a)):
        results = run.run_numpy([a[k], b[k]])
        for (f, (name, row, variant)), got in zip(chosen, results, strict=True):
            at = k if row.arity == 2 else k // len(edges(t))
            want = compiled(t)[f][at : at + 1]
            problems += wrong(
                f"{t} {name} {variant}", got.reshape(1), want, 0, [a[k : k + 1], b[k : k + 1]]
            )
    _no_fault(problems)


@pytest.mark.parametrize("t", TYPES)
def test_an_op_with_one_constant_keeps_every_bit(t):
    """The identities of simplify-algebra, with each edge value on either side."""
    lines, head, names = [], [], []
    numbers = edges(t)
    safe = numbers[(numbers != 0) & (numbers != -1)] if t in INTEGERS else numbers
    arrays = {"x": np.resize(numbers, 16), "y": np.resize(safe, 16)}
    for k, number in enumerate(numbers):
        head.append(f"%c{k} = {constant(number, t)}")
        shape = tensor((16,), t)
        head.append(
            f"%w{k} = stablehlo.broadcast_in_dim %c{k}, dims = [] : (tensor<{t}>) -> {shape}"
        )
    for form in forms(t):
        if form[1].arity != 2:
            continue
        divides = form[0] in ("divide", "remainder") and t in INTEGERS
        for k, number in enumerate(numbers):
            for operands in ([f"%w{k}", "%y"], ["%x", f"%w{k}"]):
                if divides and (operands[1] != "%y" and number in (0, -1)):
                    continue
                lines.append(line(form, t, (16,), operands))
                names.append(f"{form[0]} {form[2]} {number} {operands}")
    text = program(lines, head, ", ".join(f"%{n}: {tensor((16,), t)}" for n in arrays))
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        given = [(a, t) for a in arrays.values()]
        before = interpreted(module, given)
        Pipeline(list(CLEANUP)).run(module)
        after = interpreted(module, given)
    problems: list[str] = []
    for name, got, want in zip(names, after, before, strict=True):
        ulps = ROUNDED if name.startswith(("power", "atan2")) else 0
        problems += wrong(f"{t} {name}", got, want, ulps, list(arrays.values()))
    _no_fault(problems)


def _converts(source: str, shape: str, names: Sequence[str]) -> list[tuple[str, str]]:
    return [
        (f"stablehlo.convert {n} : (tensor<{shape}{source}>) -> tensor<{shape}{to}>",
         f"tensor<{shape}{to}>")
        for to in DTYPES for n in names
    ]  # fmt: skip


@cache
def converter(source: str) -> shlo_disc.Executable:
    return shlo_disc.compile(
        program(_converts(source, "?x", ["%a"]), [], f"%a: tensor<?x{source}>")
    )


@pytest.mark.parametrize("source", all_but(["i64"], TYPES))
def test_conversions_of_constants(source):
    """Between every two types, out of range too: vectors, scalars and what LLVM folds."""
    x = wide_edges(source)
    want = converter(source).run_numpy([x])
    problems: list[str] = []
    for part in np.array_split(np.arange(len(x)), 1 + len(x) // 60):
        text = program(
            _converts(source, f"{len(part)}x", ["%a"]), [f"%a = {constant(x[part], source)}"]
        )
        for to, array, found in zip(DTYPES, want, folded(text), strict=True):
            if found is not None:
                problems += wrong(f"{source} to {to}", found, array[part], 0, [x[part]])
    text = program(_converts(source, f"{len(x)}x", ["%a"]), [f"%a = {constant(x, source)}"])
    for to, array, got in zip(DTYPES, want, shlo_disc.compile(text).run_numpy([]), strict=True):
        problems += wrong(f"{source} to {to}, compiled", got, array, 0, [x])
    head = [f"%c{k} = {constant(number, source)}" for k, number in enumerate(x)]
    text = program(_converts(source, "", [f"%c{k}" for k in range(len(x))]), head)
    results = iter(folded(text))
    for to, array in zip(DTYPES, want, strict=True):
        for k in range(len(x)):
            if (found := next(results)) is not None:
                problems += wrong(
                    f"{source} to {to}", found.reshape(1), array[k : k + 1], 0, [x[k : k + 1]]
                )
    _no_fault(problems)


@pytest.mark.parametrize("source", TYPES)
def test_compiled_conversions(source):
    """Beside the interpreter, and out of range (where it stops) beside saturation, NaN to 0."""
    x = wide_edges(source)
    problems: list[str] = []
    for to, got in zip(DTYPES, converter(source).run_numpy([x]), strict=True):
        inside = np.ones(x.shape, bool)
        if source in FLOATS and to in INTEGERS:
            info = np.iinfo(DTYPES[to])
            wide = x.astype(np.float64)
            inside = np.isfinite(wide) & (wide >= float(info.min)) & (wide < float(info.max))
            low, zero, high = (np.array(n, DTYPES[to]) for n in (info.min, 0, info.max))
            want = np.where(np.isnan(wide), zero, np.where(wide > 0, high, low))
            problems += wrong(f"{source} to {to}", got, want, 0, [x], ~inside)
        shape = tensor((int(inside.sum()),), source)
        kind = tensor((int(inside.sum()),), to)
        text = program([(f"stablehlo.convert %a : ({shape}) -> {kind}", kind)], [], f"%a: {shape}")
        with new_context(), ir.Location.unknown():
            (want,) = interpreted(ir.Module.parse(text), [(x[inside], source)])
        problems += wrong(f"{source} to {to}", got[inside], want, 0, [x[inside]])
    _no_fault(problems)


@pytest.mark.parametrize("source", TYPES)
def test_conversions_of_conversions(source):
    """Of arguments: fold-converts drops a conversion only where it is exact."""
    x = wide_edges(source)
    lines, head = [], []
    for middle in DTYPES:
        of, to = (f"tensor<{len(x)}x{t}>" for t in (source, middle))
        head.append(f"%{middle} = stablehlo.convert %a : ({of}) -> {to}")
        lines += _converts(middle, f"{len(x)}x", [f"%{middle}"])
    chained = iter(
        shlo_disc.compile(program(lines, head, f"%a: tensor<{len(x)}x{source}>")).run_numpy([x])
    )
    problems: list[str] = []
    for middle, once in zip(DTYPES, converter(source).run_numpy([x]), strict=True):
        for to, want in zip(DTYPES, converter(middle).run_numpy([once]), strict=True):
            problems += wrong(f"{source} to {middle} to {to}", next(chained), want, 0, [x])
    _no_fault(problems)


# Ops that move elements: %x and %y are 2 x 3, %p is i1, %z and %n are scalars (%n an i32 1).
MOVES = {
    "bitcast_convert": "{u}|stablehlo.bitcast_convert %x : ({x}) -> {u}",
    "broadcast_in_dim": "2x2x3|stablehlo.broadcast_in_dim %x, dims = [0, 2] : ({x}) -> {r}",
    "concatenate": "2x6|stablehlo.concatenate %x, %y, dim = 1 : ({x}, {x}) -> {r}",
    "dynamic_broadcast_in_dim": "2x2x3|stablehlo.dynamic_broadcast_in_dim %x, %s3, dims = [0, 2] : "
    "({x}, tensor<3xi32>) -> {r}",
    "dynamic_iota": "iota 2x3|stablehlo.dynamic_iota %s2, dim = 1 : (tensor<2xi32>) -> {r}",
    "dynamic_reshape": "3x2|stablehlo.dynamic_reshape %x, %s32 : ({x}, tensor<2xi32>) -> {r}",
    "dynamic_slice": "1x2|stablehlo.dynamic_slice %x, %n, %n, sizes = [1, 2] : "
    "({x}, tensor<i32>, tensor<i32>) -> {r}",
    "iota": "iota 2x3|stablehlo.iota dim = 1 : {r}",
    "reduce": "sum 2|stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : "
    "({x}, tensor<{t}>) -> {r}",
    "reshape": "3x2|stablehlo.reshape %x : ({x}) -> {r}",
    "reverse": "2x3|stablehlo.reverse %x, dims = [1] : {x}",
    "select": "2x3|stablehlo.select %p, %x, %y : tensor<2x3xi1>, {x}",
    "slice": "1x2|stablehlo.slice %x [1:2, 0:3:2] : ({x}) -> {r}",
    "transpose": "3x2|stablehlo.transpose %x, dims = [1, 0] : ({x}) -> {r}",
}
SHAPES = [f"%s{n} = stablehlo.constant dense<{v}> : tensor<{len(v)}xi32>"
          for n, v in (("3", [2, 2, 3]), ("2", [2, 3]), ("32", [3, 2]))]  # fmt: skip


def moves(t: str) -> list[tuple[str, str, str]]:
    """(name, right-hand side, result type) of what this type has."""
    found = []
    for name, row in MOVES.items():
        sizes, _, text = row.partition("|")
        bits = DTYPES[t].itemsize * 8
        other = {"u": f"i{bits}", "i": f"ui{bits}", "f": f"i{bits}", "b": f"i{bits}"}[t[0]]
        if t == "i1" and (sizes.startswith(("iota", "sum")) or "bitcast" in name):
            continue
        kind = f"tensor<2x3x{other}>" if "bitcast" in name else f"tensor<{sizes.split()[-1]}x{t}>"
        found.append((name, text.format(x=f"tensor<2x3x{t}>", t=t, r=kind, u=kind), kind))
    return found


@pytest.mark.parametrize("t", TYPES)
def test_moved_constants(t):
    values = {
        "x": np.resize(edges(t), (2, 3)),
        "y": np.resize(edges(t)[::-1], (2, 3)),
        "z": edges(t)[1],
        "p": np.array([[True, False, True], [False, False, True]]),
        "n": np.int32(1),
    }
    types = {"x": t, "y": t, "z": t, "p": "i1", "n": "i32"}
    lines = [(text, kind) for _, text, kind in moves(t)]
    arguments = ", ".join(f"%{n}: {tensor(v.shape, types[n])}" for n, v in values.items())
    want = shlo_disc.compile(program(lines, SHAPES, arguments)).run_numpy(list(values.values()))
    made = [f"%{n} = {constant(v, types[n])}" for n, v in values.items()]
    text = program(lines, [*made, *SHAPES])
    got = shlo_disc.compile(text).run_numpy([])
    with new_context(), ir.Location.unknown():
        given = [(v, types[n]) for n, v in values.items()]
        truth = interpreted(ir.Module.parse(program(lines, SHAPES, arguments)), given)
    problems: list[str] = []
    for (name, _, _), a, b, c, d in zip(moves(t), want, got, folded(text), truth, strict=True):
        problems += wrong(f"{t} {name}", a, d, 0, [])
        problems += wrong(f"{t} {name}, of constants", b, d, 0, [])
        problems += wrong(f"{t} {name}, folded", d if c is None else c, d, 0, [])
    _no_fault(problems)


ELSEWHERE = {
    "chlo.mulhi": "the host computes it: tests/lower/test_host_scalars.py",
    "disc.dim": "symbolic: tests/dynamic",
    "disc.shape": "symbolic: tests/dynamic",
    "disc.sizes": "symbolic: tests/dynamic",
    "stablehlo.constant": "every test here",
    "stablehlo.convolution": "a reversal only: fold-reverses.mlir",
    "stablehlo.dynamic_conv": "a reversal only: fold-reverses.mlir",
    "stablehlo.convert": "test_conversions_of_constants",
    "stablehlo.dot_general": "a transposition only: fold-transposes.mlir",
    "stablehlo.dynamic_gather": "an index, never a value: fold-gathers.mlir",
    "stablehlo.dynamic_update_slice": "pieces of a concatenation: fold-scatters.mlir",
    "stablehlo.gather": "an index, never a value: fold-gathers.mlir",
    "stablehlo.get_dimension_size": "symbolic: tests/dynamic",
    "stablehlo.optimization_barrier": "the identity",
    "stablehlo.real_dynamic_slice": "of all elements, and columns: fold-slices.mlir",
    "stablehlo.scatter": "an index, never a value: fold-scatters.mlir",
}


def test_every_op_that_can_be_folded_has_a_row():
    rows = {f"stablehlo.{name}" for name in (*ROWS, *MOVES)} | set(ELSEWHERE)
    moves = {  # compute nothing
        fold_reshapes.over_elementwise,
        fold_transposes.over_elementwise,
        fold_transposes.over_slice,
    }
    simplified = {name for name, rules in SIMPLIFIED.items() if not moves.issuperset(rules)}
    tables = {*ELEMENTWISE, *SHAPE_VALUES, *FOLDED, *simplified, *HOST_SCALARS}
    assert sorted(tables - rows) == []


def test_a_reduction_that_returns_its_argument_is_not_taken_for_a_sum():
    text = """func.func @main() -> tensor<i32> {
      %x = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
      %z = stablehlo.constant dense<5> : tensor<i32>
      %r = "stablehlo.reduce"(%x, %z) <{dimensions = array<i64: 0>}> ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %s = stablehlo.add %a, %b : tensor<i32>
        stablehlo.return %a : tensor<i32>
      }) : (tensor<2xi32>, tensor<i32>) -> tensor<i32>
      return %r : tensor<i32>
    }"""
    assert shlo_disc.compile(text).run_numpy([])[0] == 5
