"""Builds the editable wheel of this tree for this Python, once, and prints its path.

Environments of one Python share the wheel: its C++ takes a minute of two cores. The tools that
build it are in a folder of their own, so that a changed source is all that is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"

HOOK = """
import sys
from scikit_build_core import build
if sys.argv[1:]:
    build.build_editable(*sys.argv[1:])
else:
    print(*build.get_requires_for_build_editable(), sep="\\n")
"""


def main() -> None:
    """Raises CalledProcessError if the tools cannot be installed, or if the build fails."""
    folder = BUILD / "editable" / digest()
    if not any(folder.glob("*.whl")):
        environment = tools()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            run("-c", HOOK, made, env=environment)
            folder.mkdir(exist_ok=True)
            for wheel in Path(made).glob("*.whl"):
                wheel.replace(folder / wheel.name)
    print(next(folder.glob("*.whl")))


def digest() -> str:
    """Of what the wheel depends on: this Python, the C++, and which modules there are."""
    found = hashlib.sha256(f"{sys.version} {sys.platform} {ROOT}".encode())
    for path in sources():
        found.update(path.read_bytes())
    for path in sorted((ROOT / "shlo_disc").rglob("*.py")):
        found.update(str(path.relative_to(ROOT)).encode())
    return found.hexdigest()[:16]


def sources() -> Iterator[Path]:
    """The files that `SOURCES` of the Makefile names."""
    yield ROOT / "pyproject.toml"
    yield ROOT / "CMakeLists.txt"
    for pattern in ("include/*.h", "src/*.*", "src/core/*.*", "src/capi/*.*"):
        yield from sorted((ROOT / "shlo_disc/ral").glob(pattern))


def tools() -> dict[str, str]:
    """The environment in which the tools that build are found; they are installed at first."""
    version = f"{sys.implementation.cache_tag}-tools"
    place = BUILD / version
    environment = {**os.environ, "PYTHONPATH": str(place)}
    environment["PATH"] = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    install(place, wanted)
    install(place, run("-c", HOOK, env=environment).split())
    return environment


def install(place: Path, requirements: list[str]) -> None:
    """Install what is not noted in `place` yet."""
    note = place / "installed.txt"
    known = note.read_text().splitlines() if note.exists() else []
    missing = [r for r in requirements if r not in known]
    if missing:
        options = ["--disable-pip-version-check", "--quiet", "--upgrade", "--target", str(place)]
        run("-m", "pip", "install", *options, *missing)
        note.write_text("\n".join([*known, *missing]))


def run(*arguments: str, env: dict[str, str] | None = None) -> str:
    """What a Python with these arguments prints; its errors go to ours."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        done.check_returncode()
    return done.stdout


if __name__ == "__main__":
    main()
