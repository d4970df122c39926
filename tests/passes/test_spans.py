"""Spans: how far back they reach is what a search over all of them finds."""

import random

from shlo_disc.passes.spans import Spans


def brute_force(given, position):
    while older := [first for first, last in given if first < position < last]:
        position = min(older)
    return position


def test_spans_reach_as_far_back_as_a_search_over_all_of_them_says():
    moved = 0
    for seed in range(300):
        r = random.Random(seed)
        n = r.choice([1, 2, 3, 7, 16, 33])
        spans, given = Spans(n), []
        for _ in range(r.randint(0, 8)):
            first, last = sorted((r.randrange(n), r.randrange(n)))
            spans.add(first, last)
            given.append((first, last))
            for position in range(n):
                assert spans.oldest(position) == brute_force(given, position)
                moved += spans.oldest(position) < position
    assert moved > 1000
