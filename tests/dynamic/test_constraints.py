"""Facts and proofs: nothing proved may fail for sizes that satisfy the facts."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shlo_disc.dynamic import constraints
from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.intervals import interval_floordiv, interval_product
from shlo_disc.dynamic.samples import CounterexampleSamples
from tests.dynamic.test_expr import trees

SYMBOLS = ("a", "b", "t")


def facts(*texts):
    """Constraints from texts such as `a == b`, `t >= 3`, `4 | t`."""
    known = Constraints()
    for text in texts:
        if " | " in text:
            k, right = text.split(" | ")
            known.add_divisible(Expr.parse(right), int(k))
        else:
            left, op, right = re.split("(==|!=|<=|>=|<|>)", text)
            known.assume(Expr.parse(left), op, Expr.parse(right))
    return known


def size(text):
    return Expr.parse(text)


COMPARE = {
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}

EXPRESSIONS = trees(5).map(lambda pair: pair[1])
ENVIRONMENTS = st.fixed_dictionaries(
    {s: st.one_of(st.integers(0, 12), st.integers(0, 60)) for s in SYMBOLS}
)


@st.composite
def worlds(draw):
    """Sizes, and facts that hold for them."""
    env = draw(ENVIRONMENTS)
    known = Constraints()
    for _ in range(draw(st.integers(0, 5))):
        x, y = draw(EXPRESSIONS), draw(EXPRESSIONS)
        kind = draw(st.sampled_from(["compare", "divisible", "shifted", "bounds"]))
        u, v = x.evaluate(env), y.evaluate(env)
        if kind == "compare":
            known.assume(x, draw(st.sampled_from([op for op, f in COMPARE.items() if f(u, v)])), y)
        elif kind == "shifted":
            known.add_equal(x, y + (u - v))
        elif kind == "divisible":
            if u:
                k = draw(st.sampled_from([n for n in range(1, abs(u) + 1) if u % n == 0]))
                known.add_divisible(x, k)
        else:
            known.add_lower(x, u - draw(st.integers(0, 3)))
            known.add_upper(x, u + draw(st.integers(0, 3)))
    return env, known


@settings(max_examples=350, deadline=None)
@given(world=worlds(), x=EXPRESSIONS, y=EXPRESSIONS, k=st.integers(1, 12))
def test_what_is_proved_is_true(world, x, y, k):
    env, known = world
    u, v = x.evaluate(env), y.evaluate(env)
    assert known.canonical(x).evaluate(env) == u
    if known.equal(x, y):
        assert u == v
    if known.divisible(x, k):
        assert u % k == 0
    if known.at_least(x, y):
        assert u >= v
    if known.is_natural(x - y):
        assert u >= v
    low, high = known.bounds(x)
    assert low is None or low <= u
    assert high is None or u <= high
    if known.product_equal([x, y], [y, k]):
        assert u * v == v * k
    for op, holds in COMPARE.items():
        answer = known.implies(x, op, y)
        assert answer is None or answer == holds(u, v)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("a*t + 3*b", facts()),
        ("floordiv(t - 1, max(floordiv(t + 125, 126), 1))", facts("t >= 1")),
        ("mod(a, 4) - 1 + b", facts("b >= 1")),
        ("b - 2", facts("b == a + 2")),
    ],
)
def test_natural_numbers_by_the_bounds_of_symbols(text, known):
    assert known.is_natural(size(text))
    signed = Constraints()
    for name in SYMBOLS:
        signed.add_signed(name)
    assert not signed.is_natural(size(text))


@settings(max_examples=150, deadline=None)
@given(world=worlds(), x=EXPRESSIONS)
def test_canonical_forms_are_stable(world, x):
    _, known = world
    once = known.canonical(x)
    assert known.equal(once, x)
    known._canonical.clear()  # what is stored must not be what makes it stable
    assert known.equal(known.canonical(once), x)


@settings(max_examples=100, deadline=None)
@given(
    x=st.tuples(st.integers(-6, 6), st.integers(0, 5)),
    y=st.tuples(st.integers(-6, 6), st.integers(0, 5)),
    opened=st.tuples(*[st.booleans()] * 4),
)
def test_intervals_contain_every_result(x, y, opened):
    (a, b), (c, d) = (x[0], sum(x)), (y[0], sum(y))
    first = (None if opened[0] else a, None if opened[1] else b)
    second = (None if opened[2] else c, None if opened[3] else d)
    low, high = interval_product(first, second)
    for u, v in itertools.product(range(a, b + 1), range(c, d + 1)):
        assert low is None or low <= u * v
        assert high is None or u * v <= high
    if c >= 1:
        low, high = interval_floordiv(first, (c, second[1]))
        for u, v in itertools.product(range(a, b + 1), range(c, d + 1)):
            assert low is None or low <= u // v
            assert high is None or u // v <= high


@pytest.mark.parametrize(
    ("given_facts", "x", "y"),
    [
        ([], "b*t + b", "b*(t + 1)"),
        (["d0_0 == d1_0"], "2*d1_0*b", "2*b*d0_0"),
        (["d0 == 2*d1", "d1 == b + 1"], "d0", "2*b + 2"),
        (["a == b", "b == t"], "floordiv(a + 3, 4)", "floordiv(t + 3, 4)"),
        (["a*b == t*3"], "2*a*b*b", "6*t*b"),
        (["2*a == 3*b"], "4*a + 1", "6*b + 1"),
        (["4 | t"], "4*floordiv(t, 4)", "t"),
        (["4 | t"], "4*floordiv(t + 3, 4)", "t"),
        (["4 | t"], "floordiv(t + 3, 4)", "floordiv(t, 4)"),
        (["mod(t,4) == 2"], "mod(t, 2)", "0"),
        (["mod(t,4) == 2"], "mod(t + 1, 4)", "3"),
        (["t >= 1"], "max(t, 1)", "t"),
        ([], "max(t, 0)", "t"),
        (["t <= 512"], "min(t, 512)", "t"),
        (["t >= 5", "t <= 5"], "t*b", "5*b"),
        (["t <= 3"], "floordiv(t, 4)", "0"),
        (["t <= 3"], "mod(t, 4)", "t"),
        (["t >= 4", "t <= 7"], "mod(t, 4)", "t - 4"),
        (["a < b"], "mod(a, b)", "a"),
        ([], "floordiv(t, 4)*5 + mod(t, 4)", "t + floordiv(t, 4)"),
    ],
)
def test_equalities_that_must_be_found(given_facts, x, y):
    known = facts(*given_facts)
    assert known.equal(size(x), size(y)), known.canonical(size(x) - size(y))
    assert known.implies(size(x), "==", size(y)) is True


@pytest.mark.parametrize(
    ("given_facts", "larger", "smaller"),
    [
        ([], "t", "0"),
        (["b >= 1", "t >= 1"], "b*t", "b"),
        (["b >= 1", "t >= 1"], "3072*b*t", "768*b"),
        (["a >= t"], "b*a", "b*t"),
        (["a >= t", "t >= b"], "a", "b"),
        (["a - t >= 3"], "a", "t + 1"),
        (["t <= 512"], "512*b", "b*t"),
        ([], "4*floordiv(t + 3, 4)", "t"),
        ([], "t", "4*floordiv(t, 4)"),
        ([], "t", "2*floordiv(t, 4)"),
        ([], "t + 3", "mod(t, 4)"),
        (["t >= 1"], "t", "mod(t, 4)"),
        ([], "max(a, b)", "min(a, t)"),
        ([], "t*t", "0"),
        (["b >= 1"], "floordiv(t, b)", "0"),
        (["b >= 1"], "t", "floordiv(t, b)"),
        (["a*b == t"], "t + 1", "b*a"),
        (["t >= 3"], "floordiv(t - 3, 2) + 1", "1"),
    ],
)
def test_orders_that_must_be_found(given_facts, larger, smaller):
    known = facts(*given_facts)
    assert known.at_least(size(larger), size(smaller))
    assert known.implies(size(smaller), "<=", size(larger)) is True
    assert known.implies(size(smaller), ">", size(larger)) is False


@pytest.mark.parametrize(
    ("given_facts", "text", "k"),
    [
        ([], "0", 7),
        ([], "4*b*t + 8", 4),
        (["8 | t"], "t", 4),
        (["4 | t", "6 | t"], "t", 12),
        (["4 | t"], "t*b", 2),
        (["4 | t"], "2*t + 8", 8),
        (["8 | t"], "floordiv(t, 4)", 2),
        (["4 | a + b"], "a + b + 4", 4),
        (["4 | a + b"], "3*a - b", 4),
        (["4 | a + b", "4 | b + t"], "a - t", 4),
        (["mod(t,4) == 3"], "t + 1", 4),
        (["mod(t,4) == 0"], "t", 4),
        (["2*a == 3*b"], "a", 3),
        (["2*a == 3*b"], "b", 2),
        (["a == 4*b"], "a", 4),
        (["4 | t"], "max(t, 8)", 4),
        ([], "4*floordiv(t, 4) + mod(t, 4) - t", 5),
    ],
)
def test_divisibility_that_must_be_found(given_facts, text, k):
    assert facts(*given_facts).divisible(size(text), k)


@pytest.mark.parametrize(
    ("given_facts", "x", "op", "y"),
    [
        ([], "a", "==", "b"),
        ([], "t", ">=", "1"),
        (["a*b == t"], "a", "==", "t"),
        (["4 | t"], "t", "!=", "0"),
        (["t <= 4"], "t", "<", "4"),
        (["a*b == a*t"], "b", "==", "t"),
        ([], "floordiv(a*b, b)", "!=", "a"),
    ],
)
def test_nothing_is_made_up(given_facts, x, op, y):
    known = facts(*given_facts)
    answer = known.implies(size(x), op, size(y))
    assert answer is None or (op == "!=" and answer is False)


@pytest.mark.parametrize(
    ("given_facts", "text", "k"),
    [
        (["4 | a + b"], "a + b", 8),
        (["4 | a + b"], "a - b", 4),
        (["4 | a + b", "6 | b + t"], "a - t", 4),
        (["2*a == 3*b"], "a", 2),
        (["4 | t"], "floordiv(t, 4)", 2),
        (["4 | t"], "floordiv(t, 3)", 4),
        (["mod(t,4) == 2"], "t", 4),
    ],
)
def test_divisibility_is_not_made_up(given_facts, text, k):
    assert not facts(*given_facts).divisible(size(text), k)


def test_products_are_proved_by_their_monomials():
    known = facts("a*b == 4*t")
    assert known.product_equal([size("b"), 768, size("a")], [size("t"), 4 * 768])
    assert known.product_equal([size("b"), size("t")], [size("t"), size("b"), 1])
    assert known.product_equal([0, size("t")], [0])
    assert not known.product_equal([size("a")], [size("t")])


def test_made_up_names_give_way_to_the_users():
    known = facts("d1_0 == b", "d2_0 == d1_0")
    assert str(known.canonical(size("d2_0*d1_0"))) == "b^2"


def test_bounds():
    known = facts("b >= 2", "b <= 5")
    assert known.bounds(size("b")) == (2, 5)
    assert known.bounds(size("3*b - 1")) == (5, 14)
    assert known.bounds(size("t")) == (0, None)
    assert known.bounds(size("b - t")) == (None, 5)
    assert known.bounds(size("mod(t, 4)")) == (0, 3)
    assert known.bounds(size("floordiv(b, 2)")) == (1, 2)
    assert known.bounds(size("min(b, t)")) == (0, 5)
    assert known.bounds(size("-b")) == (-5, -2)
    assert known.bounds(7) == (7, 7)


def test_elimination_keeps_what_was_known_of_the_symbol():
    known = facts("t >= 7", "t <= 9", "2 | t")
    known.add_equal(size("t"), size("a + b"))
    assert known.at_least(size("a + b"), 7)
    assert known.at_least(9, size("a + b"))
    assert known.divisible(size("a + b"), 2)


@pytest.mark.parametrize(
    ("equality", "order"),
    [
        ("d == d - min(d, 2) + 2", ("d", 2)),
        ("min(a, 3*b) == a", ("3*b", "a")),
        ("max(a - 2, 0) == a - 2", ("a", 2)),
        ("max(a, b) == b", ("b", "a")),
    ],
)
def test_the_chosen_of_two_sizes_orders_them(equality, order):
    more, less = order if isinstance(order[1], str) else (order[0], str(order[1]))
    known, (left, right) = facts(equality), equality.split(" == ")
    assert known.at_least(size(more), size(less))
    assert not facts().at_least(size(more), size(less))
    for values in itertools.product(range(7), repeat=3):
        named = dict(zip("abd", values, strict=True))
        if size(left).evaluate(named) == size(right).evaluate(named):
            assert size(more).evaluate(named) >= size(less).evaluate(named)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_remainder_of_a_small_negative_number(k):
    """jnp.roll(x, k) begins at mod(-k, n)."""
    known = facts(f"n >= {k}")
    assert known.canonical(size(f"mod(-{k}, n)")) == size(f"n - {k}")
    assert known.canonical(size(f"floordiv(-{k}, n)")) == Expr.const(-1)
    assert all(-k % n == n - k for n in range(k, 20))
    less = facts(f"n >= {k - 1}") if k > 1 else Constraints()
    assert less.canonical(size(f"mod(-{k}, n)")) != size(f"n - {k}")


def test_a_size_is_not_negative_after_elimination():
    known = facts("t == a - 3")
    assert known.at_least(size("a"), 3)


def test_contradictions_do_not_hang():
    known = facts("a == 3", "a == 4", "b >= 5", "b <= 2", "2 | t", "mod(t,2) == 1")
    assert known.equal(size("a"), 3)
    known.bounds(size("b + t"))


def test_many_products_stay_cheap():
    known = Constraints()
    names = [f"s{k}" for k in range(60)]
    for x, y, z in zip(names, names[1:], names[2:], strict=False):
        known.add_equal(size(f"{x}*{y}"), size(f"2*{z}*{x}"))
    assert known.equal(size("s0*s1*s5"), size("2*s0*s2*s5"))
    assert not known.equal(size("s0"), size("s1"))


def test_unknown_comparison():
    with pytest.raises(ValueError, match="not a comparison"):
        Constraints().assume(1, "=", 1)
    with pytest.raises(ValueError, match="not a comparison"):
        Constraints().implies(1, "=>", 1)


def test_witnesses_satisfy_every_fact():
    known = facts("t >= 2", "t <= 40", "4 | t", "3 | b + t", "n - 2*b >= 5")
    points = known._samples._points
    assert points
    for point in points:
        values = {name: point[name] for name in "btn"}
        assert 2 <= values["t"] <= 40
        assert values["t"] % 4 == 0
        assert (values["b"] + values["t"]) % 3 == 0
        assert values["n"] >= 2 * values["b"] + 5


def test_what_a_witness_contradicts_is_not_tried_to_be_proved(monkeypatch):
    known = facts("t >= 1")
    b, t = Expr.symbol("b"), Expr.symbol("t")
    asked = []
    low = Constraints._lower
    monkeypatch.setattr(
        Constraints, "_lower", lambda self, *args: asked.append(args) or low(self, *args)
    )
    assert not known.equal(b * t, 2 * b)
    assert not known.at_least(b * b, 2 * t)
    assert not asked
    assert known.at_least(b * t, b)
    assert asked


def test_without_a_witness_answers_are_proofs():
    known = facts("4 | b^2 + 1")  # true of no square
    b = Expr.symbol("b")
    assert not known._samples._points
    assert known.at_least(b + 1, 1)
    assert not known.equal(b, 2)


@pytest.mark.parametrize("known", ["b == 0", "b <= 0", "b == t, t == 0", "a == b, b == 0"])
@pytest.mark.parametrize(
    "text", ["floordiv(a, b)", "mod(a, b)", "max(1, floordiv(2*a + 1, b*t + 3*b))"]
)
def test_a_division_by_a_size_that_is_0_stays_a_division(known, text):
    """No size is computed so where the facts hold: every question has an answer."""
    constraints, expr = facts(*known.split(", ")), Expr.parse(text)
    kept = constraints.canonical(expr)
    assert constraints.canonical(kept) == kept
    assert {atom.op for atom in kept.atoms()} & {"floordiv", "mod", "max"}
    assert constraints.equal(expr, expr)
    constraints.bounds(expr)
    constraints.at_least(expr, Expr.parse("t"))
    substituted = expr.substitute({"b": 0})
    assert substituted.evaluate({"a": 5, "b": 2, "t": 0}) == expr.evaluate({"a": 5, "b": 2, "t": 0})


def test_bounds_of_quotients_are_bounds_of_the_dividend():
    known = facts(
        "floordiv(floordiv(t, 2), 8) >= 3", "floordiv(t, 5) < 20", "floordiv(a + b, 4) >= 2"
    )
    assert known.bounds(size("t")) == (48, 99)
    assert known.implies(size("a + b"), ">=", 8)
    assert known.implies(size("a + b"), ">=", 9) is None
    nested = size("floordiv(floordiv(a + t, 2), 3)")
    assert facts("floordiv(floordiv(a + t, 2), 3) >= 4").implies(nested, ">=", 4)


HALVES = (
    "mod(t, 2) == 0",
    "mod(floordiv(t, 2), 2) == 1",
    "mod(floordiv(t, 4), 2) == 0",
    "mod(floordiv(t, 8), 2) == 1",
    "mod(floordiv(t, 16), 2) == 1",
    "floordiv(t, 32) >= 3",
)
"""One of 32 sizes: 26, 58, 90, ...; at least 96."""


def test_samples_are_found_where_few_sizes_satisfy_the_facts():
    known = facts(*HALVES)
    values = sorted(set(known._samples.values(size("t"))))
    assert values
    assert all(value % 32 == 26 and value >= 96 for value in values)


def test_a_divisibility_that_a_sample_refutes_is_not_searched(monkeypatch):
    known = facts(*HALVES)
    searched = []
    original = Constraints._divides_with_facts
    monkeypatch.setattr(
        Constraints, "_divides_with_facts",
        lambda self, k, rest, depth: searched.append(rest) or original(self, k, rest, depth),
    )  # fmt: skip
    assert not known.divisible(size("floordiv(t, 2)"), 2)
    assert not known.divisible(size("t + b"), 4)
    assert searched == []
    assert known.divisible(size("floordiv(t, 4)"), 2)
    assert searched


def test_facts_added_to_a_copy_are_not_of_the_original():
    facts = Constraints()
    n, m, k = map(Expr.symbol, "nmk")
    facts.add_equal(n, m * 4)
    facts.add_lower(n, 8)
    facts.add_signed("k")
    assert facts.bounds(m) == (2, None)
    copied = facts.copy()
    assert copied.divisible(n, 4)
    assert (copied.bounds(m), copied.bounds(k)[0]) == ((2, None), None)
    copied.add_divisible(m, 3)
    copied.add_equal(k, 7)
    copied.add_upper(m, 9)
    assert copied.divisible(n, 12)
    assert copied.bounds(n) == (8, 36)
    assert copied.equal(k, 7)
    assert not facts.divisible(n, 12)
    assert facts.bounds(n) == (8, None)
    assert facts.implies(k, "==", 7) is None


def test_a_proof_of_divisibility_gives_up_after_some_multiples(monkeypatch):
    """Each fact has every symbol: the search could subtract any of them at every step."""
    symbols = [Expr.symbol(f"s{k}") for k in range(12)]
    known = Constraints()
    for k in range(1, 13):
        terms = (s * (k * j % 7 + 1) for j, s in enumerate(symbols))
        known.add_divisible(sum(terms, symbols[0]), 9)
    asked = sum((s * (j + 2) for j, s in enumerate(symbols)), Expr.const(0))
    monkeypatch.setattr(Constraints, "_samples", CounterexampleSamples({}, {}, [], [], []))
    monkeypatch.setattr(CounterexampleSamples, "against", lambda *_: False)
    reductions = []
    original = Constraints._modulo
    monkeypatch.setattr(
        Constraints, "_modulo", lambda *a: reductions.append(a) or original(*a)
    )  # fmt: skip
    assert not known.divisible(asked, 9)
    assert len(reductions) == constraints._MULTIPLES + 1
    # As much as a proof needs is left for the next question.
    assert known.divisible(asked * 9 + known._congruent[0][0], 9)


def test_a_proof_of_a_bound_gives_up_after_some_facts(monkeypatch):
    """Each fact has every symbol: the search could subtract any of them at every step."""
    symbols = [Expr.symbol(f"s{k}") for k in range(12)]
    known = Constraints()
    for k in range(1, 13):
        known.add_lower(Expr.sum(s * (1 if j * k % 5 else -1) for j, s in enumerate(symbols)), k)
    asked = Expr.sum(s * (j + 2) for j, s in enumerate(symbols)) - 9999
    monkeypatch.setattr(CounterexampleSamples, "against", lambda *_: False)
    bounds = []
    original = Constraints._lower
    monkeypatch.setattr(Constraints, "_lower", lambda *a: bounds.append(a) or original(*a))
    assert not known.at_least(asked, 0)
    most = constraints._COMBINED
    assert most < len(bounds) <= 1 + most + most**2
    assert known.at_least(known._at_least_zero[-1] * 3 + symbols[0], 0)


def test_bounds_leave_what_is_known_of_divisors():
    known = facts("4 | t + b")
    expr = Expr.parse("t + b + 4")
    assert known.divisible(expr, 4)
    assert not known.divisible(Expr.parse("t"), 4)
    known.add_lower(Expr.parse("t"), 3)
    assert known._divided
    known.add_divisible(Expr.parse("t"), 4)
    assert not known._divided
    assert known.divisible(Expr.parse("t"), 4)
