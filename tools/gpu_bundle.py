"""Packs what a GPU machine without package registries needs to install and run shlo_disc.

    python tools/gpu_bundle.py [FOLDER] [--python 3.12]

FOLDER (build/gpu-bundle) gets `torch_mlir.tar.xz`: of the torch-mlir wheel what shlo_disc loads,
stripped. The machine has everything else: JAX, llvmlite, a C++ compiler, nanobind. Sources travel
with the working tree. Fails above 60 MiB and lists what is largest. `tools/on_gpu.sh` unpacks it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_BYTES = 60 << 20
_DROPPED = re.compile(r"torch_mlir/(_mlir_libs/torch-mlir-opt|tools/)")
"""Programs of the wheel that nothing here starts."""


def requirement() -> str:
    """The pinned version of torch-mlir, as pyproject.toml has it."""
    found = re.search(r'"(torch-mlir==[^"]+)"', (ROOT / "pyproject.toml").read_text())
    assert found is not None, "pyproject.toml pins no torch-mlir"
    return found[1]


def wheel(folder: Path, python: str) -> Path:
    """The wheel of torch-mlir for `python`, from the package registry."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--python-version", python, "--only-binary", ":all:", "--dest", str(folder)]
    subprocess.run([*command, requirement()], check=True)
    (found,) = folder.glob("torch_mlir-*.whl")
    return found


def unpacked(source: Path, folder: Path) -> Path:
    """The package of the wheel without what is not loaded, its libraries stripped."""
    with zipfile.ZipFile(source) as archive:
        names = [n for n in archive.namelist() if n.startswith("torch_mlir/")]
        archive.extractall(folder, [n for n in names if not _DROPPED.match(n)])
    package = folder / "torch_mlir"
    for library in package.rglob("*.so"):
        library.chmod(0o755)
        subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)
    return package


def main() -> int:
    """Make the bundle; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build/gpu-bundle")
    parser.add_argument("--python", default="3.12", help="of the GPU machine (default: 3.12)")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    bundle = options.folder / "torch_mlir.tar.xz"
    with tempfile.TemporaryDirectory() as place:
        package = unpacked(wheel(Path(place), options.python), Path(place) / "wheel")
        new = bundle.with_suffix(".new")
        with tarfile.open(new, "w:xz", preset=9) as archive:
            archive.add(package, arcname="torch_mlir")
        new.replace(bundle)
        sizes = sorted((p.stat().st_size, p) for p in package.rglob("*") if p.is_file())
        largest = [(n, p.relative_to(package)) for n, p in reversed(sizes[-8:])]
    total = bundle.stat().st_size
    print(f"{bundle}: {total / 2**20:.1f} MiB")
    if total > MOST_BYTES:
        shown = "\n".join(f"  {n / 2**20:7.1f} MiB  {p}" for n, p in largest)
        print(f"more than {MOST_BYTES >> 20} MiB; largest before compression:\n{shown}")
        return 1
    return 0


if __name__ == "__main__":
    if shutil.which("strip") is None:
        sys.exit("gpu_bundle.py needs `strip` of binutils")
    sys.exit(main())
