"""The documents tell the truth: their code runs, their tables match, their links lead somewhere."""

import re
import sys
from pathlib import Path

import pytest

from shlo_disc.__main__ import report
from shlo_disc.base.flags import FLAGS
from shlo_disc.ingest.normalize import PASSES
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.passes import table
from tools import tables

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{k}")
    for page in PAGES
    for k, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block):
    for library in re.findall(
        r"^(?:import|from) (diffrax|equinox|flax|jraph|numpyro|optax|optimistix)\b", block, re.M
    ):
        pytest.importorskip(library, reason="needs the extra: pip install '.[libraries]'")
    if re.search(r"^import torch$", block, re.M):
        pytest.importorskip("torch", reason="needs the extra: pip install '.[torch]'")
    if re.search(r"^import tensorflow as tf$", block, re.M):
        pytest.importorskip("tensorflow", reason="needs the extra: pip install '.[tensorflow]'")
    exec(compile(block, "<documentation>", "exec"), {})


def test_pages_of_tables_are_as_printed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    assert tables.main() == 0
    monkeypatch.setitem(tables.PAGES, ROOT / "docs/env.md", tables.coverage_page)
    assert tables.main() == 1


@pytest.fixture
def differs():
    """`tools/differs.py` as a module."""
    from tools import differs

    return differs


def test_what_differs_is_as_generated(differs):
    text = differs.PAGE.read_text()
    assert differs.page(text) == text
    assert differs.page(text.replace("| `range(n)`", "| ")) == text
    with pytest.raises(ValueError, match="lost its marks"):
        differs.page(text.replace(differs.END, ""))


def test_flags_are_sorted_and_every_variable_in_the_sources_is_one():
    names = [flag.name for flag in FLAGS.values()]
    assert names == sorted(names)
    sources = [*ROOT.glob("shlo_disc/**/*.py"), *ROOT.glob("shlo_disc/ral/src/**/*.*")]
    read = set()
    for source in sources:
        read |= set(re.findall(r'"(SHLO_DISC_[A-Z0-9_]+)"', source.read_text()))
    assert read - {"SHLO_DISC_"} <= set(names)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_pass_is_described():
    text = (ROOT / "docs/passes.md").read_text()
    names = [*table.passes(MODEL), *(a_pass.name for a_pass in PASSES)]
    missing = [name for name in names if f"`{name}`" not in text]
    assert missing == []


def test_the_report_has_versions_machine_and_settings():
    sections = report()
    assert list(sections) == ["Versions", "Machine", "GPUs", "Caches of this process", "Settings"]
    assert sections["Versions"]["torch-mlir"].isdigit()
    assert set(sections["Settings"]) == {flag.name for flag in FLAGS.values()}
