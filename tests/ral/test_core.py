"""The core of the runtime: a library that runs programs without Python and XLA."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral
from shlo_disc.lower.cpu import codegen

HERE = Path(__file__).parent
CORE = HERE.parents[1] / "shlo_disc" / "ral" / "src" / "core"
X86 = {"fft_avx2": "-mavx2 -mfma", "fft_avx512": "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma"}

pytestmark = pytest.mark.unsanitized


@pytest.fixture(scope="module")
def core(tmp_path_factory) -> Path:
    """core.cpp, linked with every source of the core and with nothing else."""
    folder = tmp_path_factory.mktemp("core")
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    flags = ["-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror"]
    flags += [f"-I{CORE}", f"-I{ral.include_dir()}"]

    def compiled(source: Path) -> Path:
        out = folder / f"{source.stem}.o"
        more = X86.get(source.stem, "").split()
        subprocess.run([*compiler, *flags, *more, "-c", str(source), "-o", str(out)], check=True)
        return out

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, [*sorted(CORE.glob("*.cpp")), HERE / "core.cpp"]))
    program = folder / "core"
    subprocess.run([*compiler, *map(str, objects), "-pthread", "-o", str(program)], check=True)
    return program


def test_it_needs_the_libraries_of_c_alone(core):
    needed = subprocess.run(["ldd", str(core)], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0].split("/")[-1] for line in needed.splitlines()}
    assert {re.sub(r"[.-].*", "", name) for name in names} <= {
        "linux", "libc", "libm", "libstdc++", "libgcc_s", "ld", "libpthread", "libdl",
    }  # fmt: skip
    symbols = subprocess.run(["nm", "-D", str(core)], capture_output=True, text=True, check=True)
    assert not re.search(r" _?Py[A-Z_]|XLA_FFI", symbols.stdout)


class Recorded:
    """The last program that was compiled, as lines of core.cpp, and the files they name."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder, self.code = folder, {}
        load, new = codegen.load, ral.Executable

        def loaded(object_code, names):
            found = load(object_code, names)
            path = folder / f"{names[0]}_{len(self.code)}.o"
            path.write_bytes(object_code)
            self.code |= {
                one.address: f"{path} {name}" for one, name in zip(found, names, strict=True)
            }
            return found

        def made(**options):
            self.options = options
            return new(**options)

        monkeypatch.setattr(codegen, "load", loaded)
        monkeypatch.setattr(ral, "Executable", made)

    def lines(self) -> list[str]:
        given = self.options
        assert not given["constants"]
        assert not given["pack_layouts"]
        cells = [("prepare", given["prepare"]), ("run", given["run"])]
        cells += [("kernel", cell) for cell in given["kernels"]]
        return [
            f"name {given['name']}",
            f"symbols {given['symbols']}",
            *(f"guard {guard}" for guard in given["guards"]),
            *(f"{word} {self.code.get(cell.address, '')}" for word, cell in cells),
            *(
                f"parameter {dtype.name} {name} {' '.join(map(str, sizes))}"
                for dtype, sizes, name in given["arguments"]
            ),
            *(f"result {dtype.name} {rank}" for dtype, rank, _ in given["results"]),
        ]

    def call(self, number: int, *arrays: np.ndarray) -> list[str]:
        lines = []
        for i, array in enumerate(arrays):
            path = self.folder / f"{number}_{i}.bin"
            path.write_bytes(array.tobytes())
            lines.append(f"argument {path} {array.dtype.name} {' '.join(map(str, array.shape))}")
        return [*lines, f"call {self.folder / str(number)}"]


def test_a_program_runs_without_python(core, tmp_path, monkeypatch):
    recorded = Recorded(tmp_path, monkeypatch)

    @shlo_disc.jit
    def f(x, y):
        return jnp.exp(x * 0.31729) + y[:, None], x.sum(axis=1) - y

    rng = np.random.default_rng(0)

    def arrays(n, m, k):
        return rng.normal(size=(n, m)).astype("f4"), rng.normal(size=k).astype("f4")

    f(*arrays(5, 7, 5))
    shlo_disc.finish_compiling()
    given = [arrays(5, 7, 5), arrays(300, 41, 300), arrays(2, 1000, 2)]
    wanted = [b"".join(np.asarray(part).tobytes() for part in f(*each)) for each in given]
    (x, y), wrong = arrays(5, 7, 5), arrays(5, 7, 4)
    refused = [(x.astype("f8"), y), (x[0], y), wrong]
    calls = [recorded.call(i, *each) for i, each in enumerate([*given, *refused])]
    program = tmp_path / "program"
    program.write_text("\n".join([*recorded.lines(), *(line for call in calls for line in call)]))
    ran = subprocess.run([core, program], capture_output=True, text=True, check=True)
    *done, dtype, rank, guard = ran.stdout.splitlines()
    assert done == ["done"] * len(given)
    for i, want in enumerate(wanted):
        assert (tmp_path / str(i)).read_bytes() == want
    assert dtype == "argument 0 ('x'): dtype is float64, the program takes float32"
    assert rank == "argument 0 ('x'): rank is 1, the program takes 2"
    assert guard in recorded.options["guards"]
