"""All slow tests have their turn, and what did not run for long is told."""

import datetime

import pytest

from tests import rotation
from tests.rotation import PARTS, Run, asked, longest_ago, part_of, record, runs

DAY = datetime.date(2026, 11, 30)


def test_twenty_days_take_every_part():
    days = [DAY + datetime.timedelta(days=n) for n in range(PARTS)]
    assert {asked("slow:today", day)[1] for day in days} == set(range(PARTS))


def test_parts_are_even_and_the_same_in_every_process():
    sizes = [0] * PARTS
    for n in range(2000):
        sizes[part_of(f"tests/test_ops.py::test_case[{n}]")] += 1
    assert sum(sizes) == 2000
    assert min(sizes) > 60
    assert part_of("tests/test_ops.py::test_case[0]") == 6


@pytest.mark.parametrize("option", ["slow", "slow:20", "slow:-1", "slow:x", ":3"])
def test_other_options_are_refused(option):
    with pytest.raises(ValueError, match=r"part|invalid"):
        asked(option, DAY)


def test_the_last_run_of_a_part_is_kept(tmp_path):
    file = tmp_path / "rotation.txt"
    first = Run("slow", 3, DAY, "abc", 10, 1, 0, 0)
    other = Run("torch", 3, DAY, "abc", 7, 0, 0, 2)
    for run in (first, other, later := Run("slow", 3, DAY, "def", 11, 0, 0, 0)):
        record(run, file)
    assert runs(file) == {("slow", 3): later, ("torch", 3): other}


def test_what_did_not_run_for_longest_is_told(tmp_path):
    file = tmp_path / "rotation.txt"
    assert longest_ago("slow", file, 2) == ["0: never", "1: never"]
    for part in range(PARTS):
        record(Run("slow", part, DAY - datetime.timedelta(days=part), "abc", 9, 0, 0, part), file)
    assert longest_ago("slow", file, 2) == [
        "19: 2026-11-11, 19 left out",
        "18: 2026-11-12, 18 left out",
    ]
    assert longest_ago("torch", file, 1) == ["0: never"]


def test_the_rows_of_the_project_can_be_read():
    for (kind, part), run in rotation.runs().items():
        assert kind in {"slow", "torch"}
        assert 0 <= part < PARTS
        assert run.day >= DAY
