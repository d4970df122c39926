"""For all tests: the CPU, errors instead of fallbacks, and XLA that compiles quickly.

XLA is what results are compared with; compiling it was a third of the time. It goes without LLVM's
optimisations, and without its fusion emitters, which take 40 % of what is left. It makes one LLVM
module of a program, not up to 32, which is a sixth less work. jaxlib 0.12 has no flag for the
emitters, and XLA ends the process for flags it does not know.

Machine code that an earlier run or another worker compiled is loaded, and so is XLA's
(CONTRIBUTING.md); a line at the end of a run tells how much. Tests of compilation itself ask for
the fixture `compiled_anew`. A run with SHLO_DISC_CACHE=1 loads programs and first calls, too, and
tells why not the others.
"""

from __future__ import annotations

import gc
import importlib.metadata
import importlib.util
import os
import sys
import weakref
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import rotation
from tests.children import CODE, prepare

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("SHLO_DISC_CACHE", "kernels")  # tests change what programs are compiled by
os.environ.setdefault("SHLO_DISC_CACHE_DIR", CODE)
os.environ.setdefault("SHLO_DISC_COMPILE_AHEAD", "0")  # tests need few of all variants
os.environ.setdefault("SHLO_DISC_SPEC", "1")  # but see `specified`
os.environ.setdefault("SHLO_DISC_SPLIT", "0")  # a fusion without a kernel is an error
os.environ.setdefault("SHLO_DISC_ON_UNSUPPORTED", "error")  # no test passes because XLA ran it
if os.environ.get("SHLO_DISC_TEST_ON_GPU") != "1":  # the stand-in runs PTX
    os.environ.setdefault("SHLO_DISC_GPU_CUBINS", "0")
flags = [os.environ.get("XLA_FLAGS", ""), "--xla_backend_optimization_level=0"]
if importlib.metadata.version("jaxlib").startswith(("0.10.", "0.11.")):
    flags.append("--xla_cpu_use_fusion_emitters=false")
    flags.append("--xla_cpu_parallel_codegen_split_count=1")
os.environ["XLA_FLAGS"] = " ".join(flags).lstrip()

if "SHLO_DISC_TEST_RAL" in os.environ:  # a runtime built for a sanitizer (tools/sanitize.sh)
    spec = importlib.util.spec_from_file_location(
        "shlo_disc.ral._ral", os.environ["SHLO_DISC_TEST_RAL"]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])


_counts: Counter[str] = Counter()
"""What all workers loaded from disk and compiled, and why programs were not kept."""

_LOADED = {
    "functions of machine code": ("loaded", "missing"),
    "programs": ("programs_loaded", "programs_missing"),
    "references by XLA": ("references_loaded", "references_compiled"),
}
"""Names of counts of what was loaded, and of what was not there."""


def _own_counts() -> Counter[str]:
    """Of this process, without what tests did in stores of their own."""
    found: Counter[str] = Counter()
    if entries := sys.modules.get("shlo_disc.store.entries"):
        now = entries.COUNTS.now()
        found.update({name: now[name] for pair in _LOADED.values() for name in pair if name in now})
        if os.environ["SHLO_DISC_CACHE"] == "1":
            for (name, reason), count in entries.COUNTS.reasons.items():
                found[f"{name}: it {reason}"] = count
    if references := sys.modules.get("tests.references"):
        found.update({f"references_{name}": n for name, n in references.COUNTS.items()})
    return found - _apart


_apart: Counter[str] = Counter()
"""Counts of stores that tests have for themselves."""


def pytest_addoption(parser: Any) -> None:
    """`--part`, of the rotation."""
    rotation.add_options(parser)


def pytest_configure(config: Any) -> None:
    """Take a part of the tests, where one is asked for."""
    if config.getoption("part"):
        config.pluginmanager.register(rotation.Rotation(config))


def pytest_sessionfinish(session: Any) -> None:
    """Hand over what this process counted; the last one keeps the references within their limit."""
    own = _own_counts()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["counts"] = dict(own)
        return
    _counts.update(own)
    if _counts["references_asked"]:
        from tests import references  # behind the flags

        references.prune()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker counted."""
    _counts.update(getattr(node, "workeroutput", {}).get("counts", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell which share was loaded, and why programs were not kept."""
    shares = []
    for what, (loaded, missing) in _LOADED.items():
        if total := _counts[loaded] + _counts[missing]:
            share = _counts[loaded] / total
            shares.append(f"{_counts[loaded]} of {total} {what} ({share:.1%})")
    if never := _counts["references_asked"] - sum(_counts[n] for n in _LOADED["references by XLA"]):
        shares.append(f"{never} references are never kept")
    if shares:
        terminalreporter.write_line(f"loaded from disk: {', '.join(shares)}")
    for name, count in sorted(_counts.items(), key=lambda row: -row[1]):
        if ": it " in name:
            terminalreporter.write_line(f"{count:6} {name}")


@pytest.fixture(autouse=True, scope="session")
def kept_references() -> None:
    """XLA's code of an earlier run or of another worker is loaded (`tests/references.py`)."""
    if "jax" in sys.modules and os.environ["SHLO_DISC_CACHE"] != "0":
        from tests import references  # behind the flags

        references.keep()
        references.share_contexts()


_VERIFIED = ("dynamic", "ingest", "lower", "passes")
"""Folders of tests of the compiler itself."""


@pytest.fixture(autouse=True, scope="module")
def specified(request: Any) -> Iterator[None]:
    """Programs are verified after every change in a quarter of the files that use the compiler.

    It is the same quarter in every run.
    """
    file = Path(request.node.nodeid)
    with pytest.MonkeyPatch.context() as patch:
        if file.parts[1] not in _VERIFIED and zlib.crc32(file.as_posix().encode()) % 4:
            patch.setenv("SHLO_DISC_SPEC", "0")
        yield


class _Missing(pytest.Module):
    """A module of tests that need an extra which is not installed."""

    def collect(self) -> Any:
        """Skip it."""
        extra = self.path.parent.name
        pytest.skip(f"needs the extra `{extra}`: make test-{extra}", allow_module_level=True)


def _extra_of(path: Path) -> str:
    """The framework that tests in the folder of its name need; "" for others."""
    is_needed = path.parent.name in ("torch", "tensorflow") and path.name != "test_versions.py"
    return path.parent.name if is_needed else ""


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> Any:
    """Skip tests whose framework is not installed."""
    extra = _extra_of(module_path)
    if extra and importlib.util.find_spec(extra) is None:
        return _Missing.from_parent(parent, path=module_path)
    return None


def pytest_itemcollected(item: Any) -> None:
    """Mark tests by the framework that they need."""
    if extra := _extra_of(item.path):
        item.add_marker(extra)


@pytest.fixture(autouse=True, scope="module")
def frozen() -> None:
    """What earlier modules left is out of the collector's sight.

    JAX keeps millions of objects of a test run: a collection among them took three seconds, and
    tests of memory collect often.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def compiled_anew(monkeypatch):
    """No machine code is loaded from disk or found in other programs, and none is kept on disk."""
    from shlo_disc.lower.cpu import codegen  # behind the flags

    monkeypatch.setenv("SHLO_DISC_CACHE", "0")
    monkeypatch.setattr(codegen, "_functions", weakref.WeakValueDictionary())


@pytest.fixture
def child_environment(monkeypatch):
    """What child processes inherit, for one test."""
    for name in ("JAX_PLATFORMS", "SHLO_DISC_SPEC", "XLA_FLAGS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    prepare()


@pytest.fixture
def no_recent_code():
    """Code is freed with its last owner: none is kept for texts that come back."""
    from shlo_disc.lower.cpu import codegen  # behind the flags

    before = codegen.RECENT.resize(0)
    yield
    codegen.RECENT.resize(before)


@pytest.fixture
def own_store(monkeypatch, tmp_path):
    """The folder of a store of the test's own."""
    from shlo_disc.store.entries import COUNTS  # behind the flags

    monkeypatch.setenv("SHLO_DISC_CACHE", "1")
    monkeypatch.setenv("SHLO_DISC_CACHE_DIR", str(tmp_path / "store"))
    before = COUNTS.now()
    yield tmp_path / "store"
    _apart.update({name: n - before[name] for name, n in COUNTS.now().items()})


@pytest.fixture
def no_packs():
    """A test begins without packed copies, and leaves none of arrays that are gone."""
    from shlo_disc import ral  # behind the flags and the sanitizer's runtime

    gc.collect()
    ral.pack_clear()
    yield
    gc.collect()


@pytest.fixture(scope="session")
def arm_runner():
    """The runtime for AArch64, built once for all runs; for tests with `needs_emulator`."""
    from tools import emulated  # behind the flags

    return emulated.built_runner()
