"""Programs made to take much time or memory, or to speak for our passes, end soon with an error."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import shlo_disc
from shlo_disc.dynamic.expr import Expr
from shlo_disc.errors import InvalidModuleError, ShapeMismatchError, UnsupportedError
from shlo_disc.ingest import ingest, source
from shlo_disc.ingest.aliases import check_aliases
from shlo_disc.ingest.check import MAX_CALLS
from shlo_disc.locations import argument_name, op_name, place, source_line
from shlo_disc.mlir import ir, new_context

T = "tensor<4xf32>"


def calls(depth):
    """`main` calls f0, which calls f1, ...; the last computes a negation."""
    texts = [f"func.func @main(%x: {T}) -> {T} {{\n  %0 = call @f0(%x) : ({T}) -> {T}"]
    texts += [
        f"func.func private @f{k}(%x: {T}) -> {T} {{\n  %0 = call @f{k + 1}(%x) : ({T}) -> {T}"
        for k in range(depth)
    ]
    texts.append(
        f"func.func private @f{depth}(%x: {T}) -> {T} {{\n  %0 = stablehlo.negate %x : {T}"
    )
    return "".join(f"{text}\n  return %0 : {T}\n}}\n" for text in texts)


def test_chains_of_calls_are_inlined_or_refused():
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(shlo_disc.compile(calls(300))(x)[0], -x)
    with pytest.raises(UnsupportedError, match=f"nested in {MAX_CALLS} others; the limit is"):
        ingest(calls(5000), new_context())


def test_functions_that_call_each_other_are_refused_with_the_cycle():
    text = calls(2).replace(f"stablehlo.negate %x : {T}", f"call @f1(%x) : ({T}) -> {T}")
    with pytest.raises(UnsupportedError, match=re.escape("@f1 calls itself (f1 -> f2 -> f1)")):
        ingest(text, new_context())


@pytest.mark.parametrize(
    ("main", "argument", "op", "message"),
    [
        ("disc.arena = 1", "", "", "disc.arena is one that only passes of shlo_disc may set"),
        ("disc.constraints = 1", "", "", "disc.constraints is 1 : i64; it must be an array of str"),
        ("disc.constraints = [1]", "", "", "it must be an array of strings"),
        ("", "disc.shape = [1]", "", "disc.shape of argument 0 is [1]; it must be an array"),
        ("", 'disc.shape = "4"', "", "it must be an array of strings"),
        ("", "disc.name = 1", "", "disc.name of argument 0 is 1 : i64; it must be a string"),
        ("", "disc.donated", "", "disc.donated of argument 0 is one that only passes"),
        ("", "jax.global_constant = 1", "", "it must be a string"),
        ("", "", "disc.stored = 3", "2:8: stablehlo.tanh: attribute disc.stored is one that only"),
    ],
)
def test_attributes_of_our_passes_are_refused(main, argument, op, message):
    text = (
        f"func.func @main(%x: {T} {{{argument}}}) -> {T} attributes {{{main}}} {{\n"
        f"  %0 = stablehlo.tanh %x {{{op}}} : {T}\n  return %0 : {T}\n}}"
    )
    with pytest.raises(InvalidModuleError, match=re.escape(message)):
        ingest(text, new_context())


@pytest.mark.parametrize("attribute", ["disc.complex", "disc.name = 3", 'disc.shape = ["4"]'])
def test_attributes_of_our_passes_are_refused_of_results(attribute):
    text = f"func.func @main(%x: {T}) -> ({T} {{{attribute}}}) {{ return %x : {T} }}"
    with pytest.raises(InvalidModuleError, match=r"disc\.\w+ of result 0 is one that only passes"):
        ingest(text, new_context())


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("99999999999999999999*a", "which has a number beyond 64 bits"),
        ("mod(a, 9223372036854775808) + a", "which has a number beyond 64 bits"),
        ("-1", "disc.shape says -1, below 0"),
        ("-2*a", r"disc.shape says -2\*a, below 0"),
    ],
)
def test_sizes_that_no_array_has_are_refused(size, message):
    text = f'func.func @main(%x: tensor<?xf32> {{disc.shape = ["{size}"]}}) -> tensor<?xf32> {{'
    with pytest.raises(InvalidModuleError, match=message):
        shlo_disc.compile(f"{text} return %x : tensor<?xf32> }}")


@pytest.mark.parametrize(
    ("relation", "holds"),
    [(">=", False), (">", False), ("==", False), ("<", True), ("<=", True), ("!=", True)],
)
@pytest.mark.parametrize("number", ["9223372036854775808", "99999999999999999999"])
def test_a_size_is_below_each_number_beyond_64_bits(relation, holds, number):
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
    for constraint in (f"a {relation} {number}", f"{number} {mirrored.get(relation, relation)} a"):
        made = shlo_disc.compile(
            "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }",
            shapes=[["a"]],
            constraints=[constraint],
        )
        if holds:
            made(np.zeros(3, np.float32))
        else:
            with pytest.raises(ShapeMismatchError, match=f"compiled for {re.escape(constraint)}"):
                made(np.zeros(3, np.float32))
    with pytest.raises(UnsupportedError, match="has a number beyond 64 bits"):
        shlo_disc.compile(
            "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }",
            shapes=[["a"]],
            constraints=[f"a*a {relation} {number}"],
        )


def test_an_assertion_on_unsigned_numbers_beyond_63_bits():
    for relation, holds in (("GE", False), ("LT", True)):
        made = shlo_disc.compile(f"""func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {{
          %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
          %m = stablehlo.convert %n : (tensor<i32>) -> tensor<ui64>
          %c = stablehlo.constant dense<9223372036854775808> : tensor<ui64>
          %p = stablehlo.compare {relation}, %m, %c
            : (tensor<ui64>, tensor<ui64>) -> tensor<i1>
          stablehlo.custom_call @shape_assertion(%p) {{error_message = "m",
            has_side_effect = true}} : (tensor<i1>) -> ()
          return %x : tensor<?xf32> }}""")
        if holds:
            made(np.zeros(3, np.float32))
        else:
            with pytest.raises(ShapeMismatchError, match="m: "):
                made(np.zeros(3, np.float32))


def test_what_only_a_dead_operation_reads_is_dead():
    ingested = ingest(
        """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %m = stablehlo.convert %n : (tensor<i32>) -> tensor<i64>
      %c = stablehlo.constant dense<5> : tensor<i64>
      %p = stablehlo.compare GE, %m, %c : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.custom_call @shape_assertion(%p) : (tensor<i1>) -> ()
      return %x : tensor<?xf32> }""",
        new_context(),
    )
    assert "get_dimension_size" not in str(ingested)


def test_a_size_of_many_terms_is_refused():
    for size in ("(a+b+c+d+e+f+g+h)^60", "(a+b+c+d+e+f+g+h)^30*(a+b+c)^40"):
        with pytest.raises(UnsupportedError, match="a size is a product of"):
            Expr.parse(size)
    assert len(Expr.parse("(a+b)^60").terms) == 61


@pytest.mark.parametrize("piece", [1, 2, 7, 1 << 22])
def test_nesting_is_counted_across_pieces(monkeypatch, piece):
    monkeypatch.setattr(source, "_PIECE", piece)
    monkeypatch.setattr(source, "MAX_NESTING", 3)
    for seed in range(200):
        text = "".join(random.Random(seed).choices("([{<)]}>-->x\u00fc", k=20))
        depth = deepest = 0
        for token in re.findall(r"->|.", text):
            depth += (token in "([{<") - (token in ")]}>")
            deepest = max(deepest, depth)
        try:
            source._check_nesting(text)
            assert deepest <= 3, text
        except InvalidModuleError:
            assert deepest > 3, text


def location(seed, depth=3):
    """The text of a random location."""
    r = random.Random(seed)
    inner = [location(r.random(), depth - 1) for _ in range(r.randint(1, 3))] if depth else []
    leaf = r.choice(["unknown", f'"f{r.randrange(9)}.py":{r.randint(1, 9)}:2', '"a/b[0]"'])
    if not inner:
        return leaf
    return r.choice([
        leaf, f'"n"({inner[0]})', f'"jit(f)"({inner[0]})', f'"jit(f)/add"({inner[0]})',
        f"callsite({inner[0]} at {inner[-1]})", f'fused<"k">[{", ".join(inner)}]',
    ])  # fmt: skip


def test_a_location_says_what_its_printed_form_does():
    seen = set()
    for seed in range(300):
        text = (
            f"func.func @main(%x: {T} loc({location(seed + 0.5)})) -> {T} {{\n"
            f"  return %x : {T} loc({location(seed)})\n}}"
        )
        with new_context():
            module = ir.Module.parse(text)
            block = module.body.operations[0].regions[0].blocks[0]
            op, argument = block.operations[0], block.arguments[0]
            printed = str(op.location)
            file = re.search(r'"([^"]*)":(\d+):(\d+)', printed)
            expected = file and (file[1], int(file[2]), int(file[3]))
            assert place(op.location) == expected
            of_call = re.match(r'loc\("jit\([^"/]*\)"\(', printed)
            line = f"{file[1]}:{file[2]}" if file and not of_call else "unknown location"
            assert source_line(op) == line
            name = re.match(r'loc\("([^"]*)"[()]', printed)
            assert op_name(op) == (name and name[1])
            name = re.fullmatch(r'loc\("([^"]*)"\)', str(argument.location))
            assert argument_name(argument) == (name and name[1])
            seen |= {bool(file), bool(of_call) + 2, bool(name) + 4}
    assert len(seen) == 6


def sharing(count, kind="#loc{} = loc(callsite(#loc{} at #loc{}))"):
    """Aliases of which each names the one before twice."""
    lines = [kind.format(k + 1, k, k) for k in range(count)]
    return "\n".join(['#loc0 = loc("f.py":7:1)', "#a0 = [1]", "!t0 = tuple<i1>", *lines])


TANH = f"func.func @main(%x: {T} loc(#u)) -> {T} {{\n  %0 = stablehlo.tanh %x : {T} loc(#loc12)\n"
TANH = f'#u = loc("\\C3\\BC\\22")\n{TANH}  return %0 : {T}\n}}'


def test_locations_that_share_parts_have_the_line_of_the_first():
    module = ingest(f"{sharing(12)}\n{TANH}", new_context())
    main = module.body.operations[0]
    assert source_line(main.regions[0].blocks[0].operations[0]) == "f.py:7"
    assert ir.DictAttr(main.arg_attrs[0])["disc.name"].value == '\u00fc"'
    wrong = TANH.replace(f"tanh %x : {T}", f"tanh %x : ({T}) -> tensor<5xf32>").replace(
        "return %0", "return %x"
    )
    with pytest.raises(InvalidModuleError, match=r"f\.py: line 7, column 1: "):
        ingest(f"{sharing(12)}\n{wrong}", new_context())


@pytest.mark.parametrize(
    "kind",
    [
        "#loc{} = loc(callsite(#loc{} at #loc{}))",
        "#loc{}\n=\nloc\n(callsite(#loc{} at\n#loc{}))",
        '#loc{} = loc(fused["#x", #loc{}, #loc{}])',
        "#a{} = [#a{}, #a{}]",
        "!t{} = tuple<!t{}, !t{}>",
    ],
)
def test_aliases_that_are_exponential_written_out_are_refused(kind):
    with pytest.raises(InvalidModuleError, match=r"characters with the aliases it names written"):
        ingest(f"{sharing(200, kind)}\n{TANH}", new_context())


def test_long_modules_between_aliases_are_no_part_of_them():
    lines = "".join(f"  %{k} = stablehlo.tanh %x : {T} loc(#loc)\n" for k in range(2000))
    text = (
        f"#loc = loc(unknown)\nfunc.func @main(%x: {T}) -> {T} {{\n{lines}  return %x : {T}\n}}\n"
    )
    check_aliases(text + "".join(f"#loc{k} = loc(callsite(#loc at #loc))\n" for k in range(2000)))


def test_splats_keep_their_bits():
    text = "\n".join([
        "func.func @main() -> (tensor<3xf32>, tensor<3xf32>, tensor<3xi8>, tensor<2xf16>) {",
        "  %a = stablehlo.constant dense<-0.0> : tensor<3xf32>",
        "  %b = stablehlo.constant dense<0.0> : tensor<3xf32>",
        "  %c = stablehlo.constant dense<-1> : tensor<3xi8>",
        "  %d = stablehlo.constant dense<0x7E01> : tensor<2xf16>",
        "  return %a, %b, %c, %d : tensor<3xf32>, tensor<3xf32>, tensor<3xi8>, tensor<2xf16>\n}",
    ])  # fmt: skip
    a, b, c, d = shlo_disc.compile(text)()
    assert a.view(np.uint32).tolist() == [0x80000000] * 3
    assert b.view(np.uint32).tolist() == [0] * 3
    assert c.tolist() == [-1] * 3
    assert d.view(np.uint16).tolist() == [0x7E01] * 2


@pytest.mark.parametrize("size", ["0x1", "0x0"])
def test_groups_on_which_the_verifier_divides_by_zero_are_refused(size):
    text = f"""func.func @main(%x: {T}) -> {T} {{
      %0 = "stablehlo.all_to_all"(%x) {{replica_groups = dense<> : tensor<{size}xi64>,
        split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 1 : i64}}
        : ({T}) -> {T}
      return %0 : {T} }}"""
    with pytest.raises(InvalidModuleError, match="the text is damaged: MLIR's reader crashed"):
        ingest(text, new_context())
