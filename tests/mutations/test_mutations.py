"""A sample of the mutations; `python -m tests.mutations` runs more."""

import pytest

from tests.mutations.check import GOOD, check, outcome
from tests.mutations.corpus import TEXTS


def test_the_corpus_itself_compiles():
    assert [outcome(text, whole=False) for text in TEXTS] == ["compiled"] * len(TEXTS)


@pytest.mark.unsanitized  # a child has a memory limit
def test_a_sample_of_mutations_compiles_or_is_refused_by_an_error_of_ours():
    results = dict(check(range(100_000, 100_040), 2))
    assert len(results) == 40
    assert {seed: r for seed, r in results.items() if r not in GOOD} == {}
    assert min([*results.values()].count(kind) for kind in GOOD) >= 5
