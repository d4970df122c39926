"""Who may import whom: stages, the layers of `lower/`, and targets behind their registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shlo_disc.passes import records
from shlo_disc.passes.kinds import KINDS
from shlo_disc.passes.region import Region
from tools.rooms import PACKAGE, ROOMS, circles, imported, modules, room_of

STAGES = ("ingest", "dynamic", "passes", "lower", "ral")
AT_THE_ROOT = {"__init__", "__main__", "cache", "numpy"}
"""Modules outside the rooms: what users import, and nothing of ours but front ends and tools."""
WHAT_USERS_IMPORT = {"torch", "tensorflow", "tools"}
ROOMS_IN_ROOMS = {"jax"}
"""Packages whose packages are rooms of their own."""
TARGETS = tuple(f"shlo_disc.lower.{name}" for name in ("cpu", "cuda", "gpu", "rocm"))
LAYERS = {
    "values": ("schedule", "kernels", "products", "host", "target"),
    "schedule": ("kernels", "products", "host", "target"),
    "kernels": ("products", "host", "target"),
    "products": ("host", "target"),
    "host": ("kernels", "products"),
}
"""Package of `lower/` to what it may not import, besides targets."""
REGISTRY = PACKAGE / "lower/target.py"


def violations(folder: Path, forbidden: tuple[str, ...]) -> list[str]:
    """Imports of `forbidden` names, or of what is in them, below `folder` (a file or a folder)."""
    paths = [folder] if folder.suffix else sorted(folder.rglob("*.py"))
    assert paths, folder
    return [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in paths
        for name in imported(path)
        if f"{name}.".startswith(tuple(f"{f}." for f in forbidden))
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_imports_no_later_one(stage):
    later = STAGES[STAGES.index(stage) + 1 :]
    assert violations(PACKAGE / stage, tuple(f"shlo_disc.{name}" for name in later)) == []


def packages(folder: Path, before: str = "") -> Iterator[str]:
    for path in sorted(folder.iterdir()):
        if (path / "__init__.py").exists():
            name = before + path.name
            yield name
            if name in ROOMS_IN_ROOMS:
                yield from packages(path, f"{name}.")


def test_every_package_is_a_room():
    assert sorted(packages(PACKAGE)) == sorted(ROOMS)
    assert {path.stem for path in PACKAGE.glob("*.py")} == AT_THE_ROOT


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_lower_ones(room):
    found = []
    for module, path in modules().items():
        if room_of(module) != room:
            continue
        for name in imported(path):
            if not f"{name}.".startswith("shlo_disc."):
                continue
            other = room_of(name)
            is_low = other in ROOMS[: ROOMS.index(room) + 1]
            if not is_low and not (other == "" and room in WHAT_USERS_IMPORT):
                found.append(f"{module}: {name}")
    assert found == []


def test_few_modules_import_each_other():
    large = {circle[0]: len(circle) for circle in circles() if len(circle) > 3}
    assert large == {
        # An element's rules ask for elements of operands.
        "shlo_disc.lower.values.data_movement": 6,
        "shlo_disc.lower.cuda.aligned_copies": 10,  # the products, which are to become schedules
    }


@pytest.mark.parametrize("layer", LAYERS)
def test_neutral_code_imports_no_target(layer):
    forbidden = tuple(f"shlo_disc.lower.{name}" for name in LAYERS[layer])
    assert violations(PACKAGE / "lower" / layer, (*forbidden, *TARGETS)) == []


@pytest.mark.parametrize("layer", ["values", "schedule", "kernels", "products", "cpu", "gpu"])
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
