"""`--part=KIND:NUMBER`: a twentieth of the tests that are chosen otherwise (`make rotation`).

The name of a test says which part it is in, and the day which part is next, so in twenty days all
have run. `rotation.txt` says when each part ran last; who ran one commits it.
"""

from __future__ import annotations

import datetime
import subprocess
import time
import zlib
from collections import Counter
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pytest

PARTS = 20
ROWS = Path(__file__).with_name("rotation.txt")
_NAMED = 10
"""Of the tests that were left out."""
OUT_OF_TIME = "the part takes too long"


@dataclass(frozen=True)
class Run:
    """A row of `rotation.txt`: the last run of a part."""

    kind: str
    part: int
    day: datetime.date
    commit: str
    passed: int
    failed: int
    skipped: int
    left_out: int
    """Tests that had not begun when the time was over."""

    def __str__(self) -> str:
        return " ".join(map(str, astuple(self)))

    @classmethod
    def read(cls, line: str) -> Run:
        """The row of a line; raises ValueError for one that is none."""
        kind, part, day, commit, *counts = line.split()
        passed, failed, skipped, left_out = map(int, counts)
        date = datetime.date.fromisoformat(day)
        return cls(kind, int(part), date, commit, passed, failed, skipped, left_out)


def runs(file: Path = ROWS) -> dict[tuple[str, int], Run]:
    """The last run of each part of each kind."""
    rows = [Run.read(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {(row.kind, row.part): row for row in rows}


def record(run: Run, file: Path = ROWS) -> None:
    """Put the run in the place of the one before of its part."""
    rows = runs(file) | {(run.kind, run.part): run}
    file.write_text("".join(f"{rows[key]}\n" for key in sorted(rows)))


def part_of(test: str) -> int:
    """The part that a test of this name is in."""
    return zlib.crc32(test.encode()) % PARTS


def asked(option: str, day: datetime.date) -> tuple[str, int]:
    """The kind and the part that an option names; `KIND:today` is that of the day.

    Raises ValueError for an option of another form.
    """
    kind, _, number = option.partition(":")
    part = day.toordinal() % PARTS if number == "today" else int(number)
    if not kind or not 0 <= part < PARTS:
        raise ValueError(f"--part={option}: want KIND:today or KIND:0 to KIND:{PARTS - 1}")
    return kind, part


def longest_ago(kind: str, file: Path = ROWS, count: int = 3) -> list[str]:
    """The parts that did not run for longest, or that ran in part only."""
    known = runs(file)
    found = [(known.get((kind, part)), part) for part in range(PARTS)]
    found.sort(key=lambda pair: (pair[0].day if pair[0] else datetime.date.min, pair[1]))
    return [
        f"{part}: {f'{run.day}, {run.left_out} left out' if run else 'never'}"
        for run, part in found[:count]
    ]


def add_options(parser: Any) -> None:
    """The options of pytest."""
    parser.addoption("--part", help="KIND:today or KIND:NUMBER, a twentieth of the tests")
    parser.addoption("--part-seconds", type=float, default=600, help="no test begins later")
    parser.addoption("--part-record", action="store_true", help="write tests/rotation.txt")


class Rotation:
    """The plugin, in workers and in the process that starts them."""

    def __init__(self, config: Any) -> None:
        self._day = datetime.date.today()
        self._kind, self._part = asked(config.getoption("part"), self._day)
        self._limit_s = config.getoption("part_seconds")
        self._begin: float | None = None
        is_worker = hasattr(config, "workerinput")
        self._records = config.getoption("part_record") and not is_worker
        self._outcomes: Counter[str] = Counter()
        self._left_out: list[str] = []

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Take the tests of the part; each time others are the last, which may be left out."""
        turn = self._day.toordinal() // PARTS
        others = [item for item in items if part_of(item.nodeid) != self._part]
        items[:] = [item for item in items if part_of(item.nodeid) == self._part]
        items.sort(key=lambda item: zlib.crc32(f"{turn} {item.path.name}".encode()))
        config.hook.pytest_deselected(items=others)

    def pytest_runtest_setup(self, item: Any) -> None:
        """Begin no test when the time is over, and none that alone takes longer."""
        if self._begin is None:
            self._begin = time.monotonic()  # of the first test, behind the imports of all
        slow = item.get_closest_marker("slow")
        takes_s = 60 * slow.kwargs.get("minutes", 0) if slow else 0
        if time.monotonic() - self._begin + takes_s > self._limit_s:
            pytest.skip(OUT_OF_TIME)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count the outcome of a test."""
        if report.when == "call" or report.outcome != "passed":
            is_late = report.outcome == "skipped" and OUT_OF_TIME in str(report.longrepr)
            self._outcomes["late" if is_late else report.outcome] += 1
            if is_late:
                self._left_out.append(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Record the run, if it came to its end."""
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if not (self._records and ended):
            return
        head = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
        counts = (self._outcomes[name] for name in ("passed", "failed", "skipped", "late"))
        record(Run(self._kind, self._part, self._day, commit or "unknown", *counts))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Tell which part this was, and which should come next."""
        terminalreporter.write_line(
            f"{self._kind}: part {self._part} of {PARTS}, {len(self._left_out)} tests left out; "
            f"parts that did not run for longest: {'; '.join(longest_ago(self._kind))}"
        )
        for name in self._left_out[:_NAMED]:
            terminalreporter.write_line(f"left out: {name}")
