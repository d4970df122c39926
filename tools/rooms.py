"""The rooms of the package: who imports whom, and which modules import each other in a circle."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "shlo_disc"
ROOMS = (
    "base", "artifacts", "ral", "store", "ir", "jax_private", "ffi", "ingest", "dynamic", "passes",
    "lower", "report", "executables", "driver", "jax.sizes", "jax.arguments", "jax.equations",
    "jax.calls", "jax.derived", "jax.versions", "jax", "torch", "tensorflow", "debug", "tools",
)  # fmt: skip
"""Every package, lowest first: a module imports those of its own and of lower ones."""


@functools.cache
def imported(path: Path) -> tuple[str, ...]:
    """Full names of all that a module imports, inside functions and for type checking too."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative imports hide who is imported"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "imported_later":
            module, name = map(ast.literal_eval, node.args)
            yield f"{module}.{name}"


@functools.cache
def modules() -> dict[str, Path]:
    """Every module of the package by its full name."""
    found = {path: path.relative_to(ROOT).with_suffix("") for path in PACKAGE.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for path, name in found.items()}


def room_of(name: str) -> str:
    """The room of a module, or of what is in one, by its full name; "": none."""
    inside = f"{name.removeprefix('shlo_disc').removeprefix('.')}."
    return max((room for room in ROOMS if inside.startswith(f"{room}.")), key=len, default="")


def imports_between() -> set[tuple[str, str]]:
    """Each room with each other one that it imports from."""
    return {
        (room_of(module), room_of(name))
        for module, path in modules().items()
        for name in imported(path)
        if name.startswith("shlo_disc.") and room_of(module) != room_of(name)
    }


def circles() -> list[list[str]]:
    """Modules that import each other, directly or by others: largest circles first.

    They are the strongly connected components of the imports.
    """
    known = modules()
    to = {
        module: {name if name in known else name.rpartition(".")[0] for name in imported(path)}
        for module, path in known.items()
    }

    @functools.cache
    def reached(module: str) -> frozenset[str]:
        found, new = {module}, [module]
        while new:
            after = to[new.pop()] & known.keys() - found
            found |= after
            new += after
        return frozenset(found)

    found = {
        tuple(sorted(other for other in reached(module) if module in reached(other)))
        for module in known
    }
    return sorted(([*circle] for circle in found if len(circle) > 1), key=len, reverse=True)
