"""What a function of `shlo_disc.jit` tells of its versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shlo_disc.base.records import dataclass
from shlo_disc.jax.calls.entries import Entry
from shlo_disc.jax.versions.kept_calls import KeptCall
from shlo_disc.jax.versions.versions import Version
from shlo_disc.report.render import render


@dataclass(frozen=True)
class Report:
    """The versions of the function `name`, and the calls that each of them took."""

    name: str
    versions: Sequence[Version]
    told: Sequence[str]
    """What XLA runs in place of a program of ours, and why."""
    entries: Sequence[Entry]
    """Of the shapes that were called by way of Python."""
    found: Sequence[Any]
    """Of those that the dispatcher knows (`ral.Dispatcher._found`)."""

    def fallbacks(self) -> list[str]:
        """A sentence for each of `told`."""
        return [f"{self.name} {text}" for text in self.told]

    def rendered(self, format: str) -> str:
        """As :meth:`JitFunction.explain`. Raises ValueError for an unknown format."""
        if format != "text":
            compiled = [version for version in self.versions if version.is_compiled]
            return render([row for version in compiled for row in self._rows(version)], format)
        told = self.fallbacks()
        if not self.versions and not told:
            return f"{self.name} has not been called yet"
        for number, version in enumerate(self.versions, 1):
            told.append(f"version {number} of {version}")
            if version.is_compiling:
                told[-1] += "\nis being compiled; jax.jit runs its calls meanwhile"
            if version.is_compiled:
                told[-1] += f"\n{render(self._rows(version), format)}"
        return "\n\n".join(told)

    def guards(self) -> list[str]:
        """What the versions assume of sizes, a sentence each."""
        notes: dict[str, None] = {}
        for version in self.versions:
            pattern = version.pattern
            notes.update(dict.fromkeys(str(guard.note) for guard in pattern.guards))
            notes.update(dict.fromkeys(str(note) for note in pattern.notes))
            notes.update(dict.fromkeys(version.asked_by_rules()))
        return list(notes)

    def _rows(self, version: Version) -> list[dict[str, Any]]:
        """The compiled programs of a version: one, or those of its parts."""
        pattern = version.pattern
        if version.is_in_parts:
            programs = [program.executable for program in version.in_parts.programs]
            return [
                {
                    **program.describe(),
                    "assumes": list(map(str, pattern.notes)),
                    "traced_anew": version.not_kept,
                }
                for program in programs
            ]
        calls = []
        for entry in self.entries:
            is_ours = entry.version is version or isinstance(entry.version, KeptCall)
            values = pattern.solve(entry.shapes) if is_ours else None
            if values is not None:
                sizes = dict(zip(pattern.symbols, values, strict=True))
                calls.append((sizes, entry.calls + 1))
        offered = version.offer[1] if version.offer is not None else None
        for found in self.found:
            if offered is not None and found.version is offered:
                calls.append((pattern.values(found.shapes or ()), found.calls))
        assumed = [*(guard.note for guard in pattern.guards), *pattern.notes]
        notes = list(dict.fromkeys(str(note) for note in assumed))
        told = {"assumes": notes, "traced_anew": version.not_kept}
        return [{**version.executable.describe(calls=calls), **told}]
