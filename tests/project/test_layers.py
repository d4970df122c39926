"""Who may import whom: stages, the layers of `lower/`, and targets behind their registry."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from shlo_disc.passes import records
from shlo_disc.passes.kinds import KINDS
from shlo_disc.passes.region import Region

PACKAGE = Path(__file__).parents[2] / "shlo_disc"
STAGES = ("ingest", "dynamic", "passes", "lower", "ral")
ABOVE = ("frontend", "report", "tools", "compile", "executable", "replan", "process")
"""Modules and packages that put the stages together: no stage may import them."""
TARGETS = tuple(f"shlo_disc.lower.{name}" for name in ("cpu", "cuda", "gpu", "rocm"))
LAYERS = {
    "values": ("schedule", "tasks", "products", "host", "target"),
    "schedule": ("tasks", "products", "host", "target"),
    "tasks": ("products", "host", "target"),
    "products": ("host", "target"),
    "host": ("tasks", "products"),
}
"""Package of `lower/` to what it may not import, besides targets."""
REGISTRY = PACKAGE / "lower/target.py"


def imported(path: Path) -> Iterator[str]:
    """Full names of all that a module imports, inside functions and for type checking too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative imports hide who is imported"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(folder: Path, forbidden: tuple[str, ...]) -> list[str]:
    """Imports of `forbidden` names, or of what is in them, below `folder` (a file or a folder)."""
    paths = [folder] if folder.suffix else sorted(folder.rglob("*.py"))
    return [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in paths
        for name in imported(path)
        if f"{name}.".startswith(tuple(f"{f}." for f in forbidden))
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_imports_no_later_one(stage):
    later = (*STAGES[STAGES.index(stage) + 1 :], *ABOVE)
    assert violations(PACKAGE / stage, tuple(f"shlo_disc.{name}" for name in later)) == []


@pytest.mark.parametrize("layer", LAYERS)
def test_neutral_code_imports_no_target(layer):
    forbidden = tuple(f"shlo_disc.lower.{name}" for name in LAYERS[layer])
    assert violations(PACKAGE / "lower" / layer, (*forbidden, *TARGETS)) == []


@pytest.mark.parametrize("layer", ["values", "schedule", "tasks", "products", "cpu", "gpu"])
def test_emitters_are_given_records_and_match_nothing(layer):
    kinds = [kind.match for kind in KINDS.values() if kind.match is not None]
    functions = [records.match, records.planned, records.update_of, Region, *kinds]
    forbidden = {f"{f.__module__}.{f.__qualname__}" for f in functions}
    assert "shlo_disc.passes.match_dense.match_dense" in forbidden
    assert violations(PACKAGE / "lower" / layer, tuple(forbidden)) == []


def test_only_the_registry_knows_targets():
    inside = [PACKAGE / Path(*name.split(".")[1:]) for name in TARGETS]
    outside = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if not any(path.is_relative_to(target) for target in inside)
    ]
    assert [line for path in outside for line in violations(path, TARGETS)] == []
    named = [path for path in outside if any(name in path.read_text() for name in TARGETS)]
    assert named == [REGISTRY]


def test_an_import_of_any_form_is_seen(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        "import shlo_disc.lower.cpu\nfrom shlo_disc.lower import cpu\n"
        "def f():\n    from shlo_disc.lower.cpu.machine import Machine\n"
    )
    assert len([name for name in imported(module) if name.startswith(TARGETS)]) == 3
