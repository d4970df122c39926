"""Relations as text: short, and true for the same sizes."""

import itertools

import pytest

from shlo_disc.dynamic.relations import RELATIONS, holds, parse_constraint, spelled


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("-n + 16 >= 0", "n <= 16"),
        ("-a - b + 7 > 1", "a + b < 6"),
        ("a + b + 1 < 9", "a + b < 8"),
        ("-a == 0", "a == 0"),
        ("mod(t, 4) == 0", "mod(t, 4) == 0"),
        ("b >= t", "b >= t"),
        ("4 >= 3", "4 >= 3"),
    ],
)
def test_constants_are_on_the_right(text, short):
    assert spelled(*parse_constraint(text)) == short


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_text_is_true_for_the_same_sizes(relation):
    for a, b, c in itertools.product((-2, 0, 3), repeat=3):
        given = parse_constraint(f"{a}*m + {b}*n + {c} {relation} 2")
        again = parse_constraint(spelled(*given))
        for m, n in itertools.product(range(-2, 4), repeat=2):
            sizes = {"m": m, "n": n}
            assert holds(*given, sizes) == holds(*again, sizes)
