"""Integer arithmetic on sizes against StableHLO's semantics in plain Python."""

import itertools
import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shlo_disc.dynamic.arithmetic import ELEMENTWISE, Condition, SizeArithmetic
from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Expr
from tests.dynamic.test_expr import SYMBOLS, trees


def truncated(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


NUMBERS = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": truncated,
    "remainder": lambda a, b: a - b * truncated(a, b),
    "maximum": max,
    "minimum": min,
}
UNARY = {
    "negate": lambda a: -a,
    "abs": abs,
    "sign": lambda a: (a > 0) - (a < 0),
    "not": lambda a: ~a,
}
COMPARISONS = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "GE": lambda a, b: a >= b,
    "GT": lambda a, b: a > b,
    "LE": lambda a, b: a <= b,
    "LT": lambda a, b: a < b,
}
EXPRESSIONS = trees(4).map(lambda pair: pair[1])
SIZES = st.fixed_dictionaries({s: st.integers(0, 30) for s in SYMBOLS})


def value(entry, env):
    """What an entry stands for, or None."""
    if isinstance(entry, Expr):
        return entry.evaluate(env)
    if isinstance(entry, Condition):
        if entry.parts:
            parts = [value(p, env) for p in entry.parts]
            return all(parts) if entry.op == "AND" else any(parts)
        return COMPARISONS[entry.op](entry.lhs.evaluate(env), entry.rhs.evaluate(env))
    return entry


@settings(max_examples=300, deadline=None)
@given(a=EXPRESSIONS, b=EXPRESSIONS, env=SIZES, data=st.data())
def test_numbers_and_truth_values(a, b, env, data):
    arithmetic = SizeArithmetic(Constraints())
    u, v = a.evaluate(env), b.evaluate(env)
    for name, oracle in NUMBERS.items():
        if name in ("divide", "remainder") and v == 0:
            continue
        entry = ELEMENTWISE[f"stablehlo.{name}"](arithmetic, a, b)
        assert entry is None or value(entry, env) == oracle(u, v)
    for name, oracle in UNARY.items():
        entry = ELEMENTWISE[f"stablehlo.{name}"](arithmetic, a)
        assert entry is None or value(entry, env) == oracle(u)
    conditions = []
    for direction, oracle in COMPARISONS.items():
        entry = arithmetic.compare(direction, a, b)
        assert value(entry, env) == oracle(u, v)
        conditions.append((entry, oracle(u, v)))
    (p, x), (q, y) = (data.draw(st.sampled_from(conditions)) for _ in range(2))
    for name, oracle in {
        "and": lambda s, t: s and t,
        "or": lambda s, t: s or t,
        "xor": lambda s, t: s != t,
    }.items():
        entry = ELEMENTWISE[f"stablehlo.{name}"](arithmetic, p, q)
        assert entry is None or value(entry, env) == oracle(x, y)
    assert value(arithmetic.negation(p), env) == (not x)
    entry = arithmetic.select(p, a, b)
    assert entry is None or value(entry, env) == (u if x else v)
    entry = arithmetic.clamp(a, b, a + 3)
    assert value(entry, env) == min(max(v, u), u + 3)


def floor_divide(s, x, y):
    """As jnp.floor_divide lowers."""
    quotient, rest, zero = s.divide(x, y), s.remainder(x, y), Expr.const(0)
    signs = s.compare("NE", s.sign(x), s.sign(y))
    return s.select(
        s.both(signs, s.compare("NE", rest, zero)), s.subtract(quotient, Expr.const(1)), quotient
    )


def remainder(s, x, y):
    """As jnp.remainder lowers."""
    zero = Expr.const(0)
    y = s.select(s.compare("EQ", y, zero), Expr.const(1), y)
    rest = s.remainder(x, y)
    below = s.compare("NE", s.compare("LT", rest, zero), s.compare("LT", y, zero))
    return s.select(s.both(below, s.compare("NE", rest, zero)), s.add(rest, y), rest)


@settings(max_examples=200, deadline=None)
@given(a=EXPRESSIONS, k=st.integers(-9, 9).filter(bool), env=SIZES)
def test_floor_division_of_jax_is_always_found(a, k, env):
    arithmetic = SizeArithmetic(Constraints())
    divisor = Expr.const(k)
    assert floor_divide(arithmetic, a, divisor).evaluate(env) == a.evaluate(env) // k
    assert remainder(arithmetic, a, divisor).evaluate(env) == a.evaluate(env) % k


@pytest.mark.parametrize(
    ("x", "quotient", "rest"),
    [
        ("t", "floordiv(t, 4)", "mod(t, 4)"),
        ("4*t", "t", "0"),
        ("t - 7", "floordiv(t + 1, 4) - 2", "mod(t + 1, 4)"),
        ("-t", "-floordiv(t + 3, 4)", "3 - mod(t + 3, 4)"),
        ("a - b", "floordiv(a - b, 4)", "mod(a - b, 4)"),
    ],
)
def test_floor_division_has_the_plain_form(x, quotient, rest):
    arithmetic = SizeArithmetic(Constraints())
    x, k = Expr.parse(x), Expr.const(4)
    assert floor_divide(arithmetic, x, k) == Expr.parse(quotient)
    assert remainder(arithmetic, x, k) == Expr.parse(rest)


def test_what_only_looks_like_floor_division_is_not_taken_for_it():
    s = SizeArithmetic(Constraints())
    x, k, one = Expr.parse("a - b"), Expr.const(4), Expr.const(1)
    quotient, rest = s.divide(x, k), s.remainder(x, k)
    other = s.compare("GE", Expr.symbol("t"), k)
    nonzero = s.compare("NE", rest, Expr.const(0))
    chosen = [
        s.select(other, s.subtract(quotient, one), quotient),
        s.select(other, s.add(rest, k), rest),
        s.select(nonzero, s.add(rest, k), rest),
    ]
    for a, b, t in itertools.product(range(0, 40, 3), range(0, 40, 7), (3, 4, 5)):
        down, left = int((a - b) / 4), a - b - 4 * int((a - b) / 4)
        want = down - (t >= 4), left + 4 * (t >= 4), left + 4 * (left != 0)
        assert tuple(e.evaluate({"a": a, "b": b, "t": t}) for e in chosen) == want


ORDERS = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
}


@settings(max_examples=300, deadline=None)
@given(
    terms=st.tuples(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS, EXPRESSIONS),
    orders=st.tuples(st.sampled_from(list(ORDERS)), st.sampled_from(list(ORDERS))),
    join=st.sampled_from(("both", "either")),
    number=st.integers(-3, 3),
    env=SIZES,
)
def test_a_choice_is_a_term_of_both_values(terms, orders, join, number, env):
    """The condition is one comparison, with a term or a number, or two of them."""
    facts = Constraints()
    for name in SYMBOLS:
        facts.add_lower(Expr.symbol(name), 0)
    arithmetic = SizeArithmetic(facts)
    a, b, lhs, rhs = terms
    first = arithmetic.compare(orders[0], lhs, rhs)
    second = arithmetic.compare(orders[1], lhs, Expr.const(number))
    told = ORDERS[orders[0]](lhs.evaluate(env), rhs.evaluate(env))
    other = ORDERS[orders[1]](lhs.evaluate(env), number)
    both = told and other if join == "both" else told or other
    joined = getattr(arithmetic, join)(first, second)
    for condition, truth in ((first, told), (second, other), (joined, both)):
        chosen = arithmetic.select(condition, a, b)
        assert chosen is None or chosen.evaluate(env) == (a if truth else b).evaluate(env)


@pytest.mark.parametrize(
    ("condition", "first", "second", "chosen"),
    [
        (("EQ", "a", 1), "1", "a", "a"),
        (("EQ", "a", 1), "b", "a*b", "a*b"),
        (("NE", "2*a + 1", 5), "a + b", "b + 2", "a + b"),
        (("EQ", "2*a", 5), "b", "t", None),  # never, but that is not known
        (("EQ", "min(a, 4)", 0), "a", "min(a, 4)", "min(a, 4)"),
        (("EQ", "max(a, 4)", 6), "t + 6", "t + a", "a + t"),
        (("EQ", "max(a, 4)", 4), "4", "a", None),  # a may be less
        (("GE", "max(-a, -3)", 0), "max(-a, -3)", "a + max(-a, -3)", "a + max(-a, -3)"),
        (("GT", "a", 0), "a + b", "b", "a + b"),
    ],
)
def test_a_choice_between_equal_values_is_one_of_them(condition, first, second, chosen):
    facts = Constraints()
    for name in "abt":
        facts.add_lower(Expr.symbol(name), 0)
    s = SizeArithmetic(facts)
    direction, lhs, rhs = condition
    compared = s.compare(direction, Expr.parse(lhs), Expr.const(rhs))
    found = s.select(compared, Expr.parse(first), Expr.parse(second))
    if chosen is not None:
        assert found == Expr.parse(chosen)
    for a, b, t in itertools.product(range(8), range(3), range(3)):
        env = {"a": a, "b": b, "t": t}
        is_first = ORDERS[direction](Expr.parse(lhs).evaluate(env), rhs)
        want = Expr.parse(first if is_first else second)
        assert found.evaluate(env) == want.evaluate(env)


def test_division_by_a_symbol_needs_its_sign():
    facts = Constraints()
    arithmetic = SizeArithmetic(facts)
    t, b = Expr.symbol("t"), Expr.symbol("b")
    assert arithmetic.divide(t, b) is None
    facts.add_lower(b, 1)
    assert arithmetic.divide(t, b) == t // b
    assert arithmetic.divide(t, -b) == -(t // b)


@pytest.mark.parametrize(
    ("entry", "width", "unsigned", "fitted"),
    [
        ("300", 8, False, "44"),
        ("200", 8, False, "-56"),
        ("-1", 8, True, "255"),
        ("2654435761", 32, False, "-1640531535"),
        ("t", 32, False, "t"),
        ("t", 32, True, "t"),
        ("t - 1", 32, True, None),
        ("t - 1", 32, False, "t - 1"),
        ("t", 8, False, None),
        ("mod(t, 100)", 8, False, "mod(t, 100)"),
        ("mod(t, 200)", 8, False, None),
        ("mod(t, 200)", 8, True, "mod(t, 200)"),
        ("2654435761*t", 32, False, None),
        ("2654435761*t", 64, False, "2654435761*t"),
    ],
)
def test_results_as_the_type_holds_them(entry, width, unsigned, fitted):
    arithmetic = SizeArithmetic(Constraints())
    expected = None if fitted is None else Expr.parse(fitted)
    assert arithmetic.fit(Expr.parse(entry), width, unsigned) == expected


def test_what_is_not_a_number_stays():
    arithmetic = SizeArithmetic(Constraints())
    for entry in (True, None, Condition("EQ", Expr.symbol("b"), Expr.const(4))):
        assert arithmetic.fit(entry, 32, False) is entry
    for name, rule in ELEMENTWISE.items():
        count = {"stablehlo.select": 3, "stablehlo.clamp": 3}.get(name, 2)
        count = 1 if name.split(".")[1] in UNARY else count
        assert rule(arithmetic, *[None] * count) is None
