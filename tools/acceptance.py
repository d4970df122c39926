"""Run outside programs, with inputs and expected results, through shlo_disc.compile.

    make acceptance                                 # all of ../shared/acceptance
    python tools/acceptance.py FOLDER [--only jax_export] [--match REGEX] [--json FILE]

FOLDER holds zips of three forms. `jax_export.zip`: one npz a program with a portable artifact
(`vhlo`), JSON (`meta`) and several sets of inputs and results; one compilation serves all sets.
`torch_e2e.zip`: the same with an MLIR text (`mlir`) that mixes StableHLO with other dialects.
`stablehlo_*.zip`: `manifest.json` and an MLIR text and npz for every case.

Cases run in worker processes, so that a crash or a hang is one failed case. The summary counts
failures by reason, most frequent first; the JSON file has every case. The exit status is 1 if a
case fails that `tools/acceptance_exceptions.py` does not list, and if one of that list
passes, fails for another cause, or does not exist. On machines without AVX-512 that is different
for sums: see `judge`.

With `--emulated` programs are saved for AArch64, and run by qemu (`emulated.py`).
"""

from __future__ import annotations

import io
import json
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tools.acceptance_exceptions import CASES, EXCEPTIONS, Cause

NATIVE_RTOL = {"float64": 1e-15, "complex128": 1e-15, "float32": 1e-6, "complex64": 1e-6,
               "float16": 1e-3, "bfloat16": 1e-2}  # fmt: skip
"""What JAX's own tests allow by default between two ways to compute one result."""

TORCH_TOL = {"float64": 1e-7, "complex128": 1e-7, "float32": 1e-5, "complex64": 1e-5,
             "float16": 1e-3, "bfloat16": 1.6e-2}  # fmt: skip
"""What PyTorch's own tests allow by default."""

PYTHON_TYPES = {"bool": "bool", "float": "float64", "int": "int64"}
"""Numbers that are no tensors."""


VECTORS = re.compile(r"lapack_[sdcz](gesdd|gesvd|geev|syevd|heevd)_ffi")
"""Targets whose results are vectors. An error of one eps becomes eps / gap where two values are
close, and LAPACK's kernels, hence the last bits, are those of the machine."""

VECTORS_RTOL = 1000
"""Units of eps that results of programs with such targets may be off."""

ROUNDING = "wrong by rounding (beside the largest value)"

NEARER = 1.25
"""How many times the distance of the expectation to the sums in f64 that of the result may be. Both
are errors of rounding, by another order."""


@dataclass(frozen=True)
class Case:
    """One program of one zip."""

    archive: str
    name: str
    entry: dict[str, Any]
    cause: str = ""
    """Why it misses, if it is listed as an exception: the name of a Cause."""


@dataclass(frozen=True)
class Outcome:
    """What happened to a case."""

    archive: str
    name: str
    passed: bool
    reason: str = ""
    detail: str = ""
    seconds: float = 0.0
    excused: bool = False
    """True if it misses as the list of exceptions says."""


# --- the cases --------------------------------------------------------------------------------


def cases_of(archive: Path) -> Iterator[Case]:
    """Every case of a zip that has a trustworthy expectation."""

    def case(name: str, entry: dict[str, Any]) -> Case:
        cause = EXCEPTIONS.get((archive.stem, name))
        return Case(str(archive), name, entry, cause.name if cause else "")

    with zipfile.ZipFile(archive) as zipped:
        if "manifest.json" not in zipped.namelist():
            for name in sorted(zipped.namelist()):
                yield case(name.removesuffix(".npz"), {})
            return
        for entry in json.loads(zipped.read("manifest.json")):
            disabled = entry.get("skip") or entry.get("upstream_disabled")
            if not disabled and entry.get("interpreter") == "PASS":
                yield case(entry["name"], entry)


def typed(array: np.ndarray, dtype: str) -> np.ndarray:
    """`array` as stored (bits for the types numpy lacks) as an array of its true type."""
    if dtype == str(array.dtype):
        return array
    true = np.dtype(getattr(ml_dtypes, dtype))
    if dtype == "bfloat16" or dtype.startswith("float8"):
        return array.view(true)
    return array.astype(true)


# --- the worker ---------------------------------------------------------------------------------


class Mismatch(Exception):
    """A wrong result; the arguments are the reason and the detail."""


def ulp_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Number of representable values between a and b, elementwise; equal NaNs are at 0."""
    bits = np.dtype(f"i{a.dtype.itemsize}")

    def ordered(x: np.ndarray) -> np.ndarray:
        i = x.view(bits).astype(object)
        return np.where(i >= 0, i, np.iinfo(bits).min - i)

    distance = np.abs(ordered(a) - ordered(b)).astype(np.float64)
    both_nan = np.isnan(a) & np.isnan(b)
    one_nan = np.isnan(a) ^ np.isnan(b)
    return np.where(both_nan, 0.0, np.where(one_nan, np.inf, distance))


def compare(got: np.ndarray, want: np.ndarray, mode: str, tol: float, what: str) -> None:
    """Raise Mismatch unless `got` equals `want` in the sense of `mode`."""
    if got.shape != want.shape:
        raise Mismatch("wrong shape", f"{what}: {got.shape} instead of {want.shape}")
    if got.dtype != want.dtype:
        raise Mismatch("wrong dtype", f"{what}: {got.dtype} instead of {want.dtype}")
    if np.iscomplexobj(want):
        compare(got.real.copy(), want.real.copy(), mode, tol, what + " real")
        compare(got.imag.copy(), want.imag.copy(), mode, tol, what + " imag")
        return
    floating = want.dtype.kind in "fV"
    wide_got, wide_want = (
        (x.astype(np.float64) if floating and x.dtype.itemsize < 8 else x) for x in (got, want)
    )
    if not floating:
        wrong = wide_got != wide_want
    elif mode == "eq":
        wrong = ~((wide_got == wide_want) | (np.isnan(wide_got) & np.isnan(wide_want)))
    elif mode == "ulp":
        wrong = ulp_distance(got, want) > tol
    else:
        with np.errstate(invalid="ignore"):
            distance = np.abs(wide_got - wide_want)
        allowed = tol + (tol * np.abs(wide_want) if mode == "close" else 0)
        same = (wide_got == wide_want) | (np.isnan(wide_got) & np.isnan(wide_want))
        wrong = ~(same | (distance <= allowed))
    if wrong.any():
        where = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))
        at = np.atleast_1d(got)[where], np.atleast_1d(want)[where]
        count = f"{int(wrong.sum())} of {wrong.size}"
        reason = "wrong result"
        if floating and mode in ("ulp", "close"):
            # A sum that cancels depends on its order: say so when the error is rounding beside
            # the largest value of the result.
            error = np.abs(wide_got - wide_want)[wrong].max()
            if error <= 32 * ml_dtypes.finfo(want.dtype).eps * np.abs(wide_want).max():
                reason = ROUNDING
        raise Mismatch(reason, f"{what} {where}: {at[0]} instead of {at[1]} ({count})")


@dataclass(frozen=True)
class Output:
    """A result and what is expected of it."""

    got: np.ndarray
    want: np.ndarray
    mode: str
    tolerance: float
    what: str
    ins: list[np.ndarray]
    number: int
    text: Callable[[], str]
    """The program as StableHLO."""


Compile = Callable[..., Any]
"""`shlo_disc.compile`, or what has calls run by an emulator: results have `run_numpy`."""


def of_export(data: Any, compile_: Compile) -> Iterator[Output]:
    """The results of one program of jax_export.zip: one compilation for all sets."""
    meta, vhlo = json.loads(bytes(data["meta"])), bytes(data["vhlo"])
    executable = compile_(vhlo, name=meta["name"])
    for shapes in meta["sets"]:
        if "skipped" in shapes:
            continue
        number = shapes["id"]
        ins = [
            typed(data[f"s{number}_in{i}"], dtype)
            for i, dtype in enumerate(shapes["in_dtypes"])
        ]  # fmt: skip
        results = executable.run_numpy(ins)
        for i, dtype in enumerate(shapes["out_dtypes"]):
            tolerance = meta["tol"] or NATIVE_RTOL.get(dtype, 0.0)
            if dtype in NATIVE_RTOL and any(map(VECTORS.fullmatch, meta["custom_calls"])):
                tolerance = max(tolerance, VECTORS_RTOL * float(ml_dtypes.finfo(dtype).eps))
            want, what = typed(data[f"s{number}_out{i}"], dtype), f"{shapes['dims']}, result {i}"
            yield Output(
                results[i], want, "close", tolerance, what, ins, i, lambda: deserialized(vhlo)
            )


def of_torch(name: str, data: Any, compile_: Compile) -> Iterator[Output]:
    """The results of one program of torch_e2e.zip: one compilation for all sets."""
    meta, text = json.loads(bytes(data["meta"])), bytes(data["mlir"]).decode()
    in_dtypes, out_dtypes = (
        [PYTHON_TYPES.get(t, t).removeprefix("torch.") for t in meta["sets"][0][key]]
        for key in ("in_dtypes", "out_dtypes")
    )
    executable = compile_(text, name=name)
    for shapes in meta["sets"]:
        if "skipped" in shapes:
            continue
        number = shapes["id"]
        ins = [typed(data[f"s{number}_in{i}"], dtype) for i, dtype in enumerate(in_dtypes)]
        results = executable.run_numpy(ins)
        for i, dtype in enumerate(out_dtypes):
            want = typed(data[f"s{number}_out{i}"], dtype)
            what = f"{shapes['in_shapes']}, result {i}"
            tolerance = TORCH_TOL.get(dtype, 0.0)
            yield Output(results[i], want, "close", tolerance, what, ins, i, lambda: text)


def of_stablehlo(
    entry: dict[str, Any], text: str, data: Any, compile_: Compile
) -> Iterator[Output]:
    """The results of one case of stablehlo_*.zip."""
    ins = [typed(data[f"in{i}"], dtype) for i, dtype in enumerate(entry["in_dtypes"])]
    results = compile_(text, name=entry["name"]).run_numpy(ins)
    for check in entry["checks"]:
        i = check["out"]
        want = typed(data[f"out{i}"], entry["out_dtypes"][i])
        yield Output(
            results[i], want, check["mode"], check["tol"], f"result {i}", ins, i, lambda: text
        )


def deserialized(artifact: bytes) -> str:
    """A portable artifact as text."""
    from torch_mlir._mlir_libs import _stablehlo  # noqa: PLC0415

    from shlo_disc.ir.mlir import new_context  # noqa: PLC0415

    return str(_stablehlo.deserialize_portable_artifact(new_context(), artifact))


def is_inexact(output: Output) -> bool:
    """True if result and expectation are sums that rounding explains; see Cause.INEXACT.

    The exact sums are those of the same program in f64.
    """
    import shlo_disc  # noqa: PLC0415

    text = re.sub(r"(?<![a-wyz_])b?f(16|32)\b", "f64", output.text())
    ins = [x.astype(np.float64) if x.dtype.kind in "fV" else x for x in output.ins]
    exact = shlo_disc.compile(text).run_numpy(ins)[output.number]
    got, want = (x.astype(np.float64) for x in (output.got, output.want))
    far = 32 * float(ml_dtypes.finfo(output.want.dtype).eps) * np.abs(exact).max()
    errors = [np.sqrt(np.mean((x - exact) ** 2)) for x in (got, want)]
    return bool(np.abs(got - exact).max() <= far and errors[0] <= NEARER * errors[1])


def is_of_lapack(output: Output) -> bool:
    """True if both results are the same but for unit factors; see Cause.LAPACK."""
    got, want = np.abs(output.got), np.abs(output.want)
    unit = float(ml_dtypes.finfo(want.dtype).eps)
    return bool((np.abs(got - want) <= 32 * unit * want.max()).all())


def is_tie(output: Output) -> bool:
    """True if both results are places of equal elements along the last axis; see Cause.TIES."""
    if output.got.dtype.kind != "i":
        return False
    elements = output.ins[0].astype(np.float64)
    picked = [np.take_along_axis(elements, x, axis=-1) for x in (output.got, output.want)]
    once = np.sort(output.got, axis=-1)
    return bool((picked[0] == picked[1]).all() and (np.diff(once, axis=-1) > 0).all())


def is_of_program(output: Output) -> bool:
    """True if the StableHLO interpreter gets the same result; see Cause.PROGRAM."""
    from shlo_disc.debug.bisect import results_of  # noqa: PLC0415
    from shlo_disc.debug.interpreter import Interpreter  # noqa: PLC0415
    from shlo_disc.debug.stage import Stage  # noqa: PLC0415
    from shlo_disc.ingest import ingest  # noqa: PLC0415
    from shlo_disc.ir.mlir import new_context  # noqa: PLC0415

    stage = Stage(ingest(output.text(), new_context()), ())
    with Interpreter() as interpreter:
        found = results_of(stage, output.ins, "reference", interpreter)[output.number]
    try:
        compare(output.got, found, "close", TORCH_TOL.get(str(found.dtype), 0.0), output.what)
    except Mismatch:
        return False
    return True


def is_unsorted(output: Output) -> bool:
    """True if the second input, the boundaries, is not sorted; see Cause.INPUT."""
    return bool((np.diff(output.ins[1]) < 0).any())


CHECKS = {
    Cause.INEXACT: is_inexact,
    Cause.INPUT: is_unsorted,
    Cause.LAPACK: is_of_lapack,
    Cause.PROGRAM: is_of_program,
    Cause.TIES: is_tie,
}
"""What must be true of every result that misses for a cause."""

REFUSALS = {
    Cause.RANDOM: r"UnsupportedError: .*stablehlo\.rng is not compiled",
    Cause.SHAPES: r"ShapeMismatchError: .* needs ",
}
"""What an error says that a program ends with for a cause."""


def judge(case: Case, outputs: Iterator[Output], holds: bool) -> tuple[str, str, bool]:
    """Reason and detail of the first miss, and whether the list of exceptions explains all.

    The list `holds` on machines with AVX-512. Elsewhere sums have another order, so a listed
    program may pass, and another one may miss if :func:`is_inexact` explains the miss.
    """
    first: tuple[str, str, bool] | None = None
    for output in until_refused(case, outputs):
        if isinstance(output, str):
            first = first or (f"exception, {Cause[case.cause].value}", output, True)
            continue
        try:
            compare(output.got, output.want, output.mode, output.tolerance, output.what)
        except Mismatch as miss:
            if not case.cause:
                if holds or output.want.dtype.kind not in "fV" or not is_inexact(output):
                    raise
                first = first or ("exception of this machine, rounding", miss.args[1], True)
                continue
            check = CHECKS.get(Cause[case.cause])
            if check is None or not check(output):
                raise Mismatch(f"wrong, and not {case.cause} as listed", miss.args[1]) from None
            first = first or (f"exception, {Cause[case.cause].value}", miss.args[1], True)
    # LAPACK's kernels are those of a processor, not of an instruction set.
    if case.cause not in ("", Cause.LAPACK.name) and first is None and holds:
        raise Mismatch("passes, though listed as an exception", case.cause)
    return first or ("", "", False)


def until_refused(case: Case, outputs: Iterator[Output]) -> Iterator[Output | str]:
    """Every output; at their end what an error says, if its cause is that of the case."""
    try:
        yield from outputs
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        expected = REFUSALS.get(Cause[case.cause]) if case.cause else None
        if expected is None or re.match(expected, message) is None:
            raise
        yield message


def reason_of(error: BaseException) -> str:
    """The kind of failure, without what differs from case to case."""
    if isinstance(error, Mismatch):
        return str(error.args[0])
    message = str(error).split("\n")[0]
    message = re.sub(r"\(?(at )?loc\(.*", "", message)
    message = re.sub(r"0x[0-9a-f]+|%\S+|\b\d+\b", "_", message)
    return f"{type(error).__name__}: {message.strip()[:110]}"


def emulated() -> Compile:
    """Compiles programs whose calls run in qemu."""
    from emulated import Emulated, built_runner  # noqa: PLC0415 - beside this file

    import shlo_disc  # noqa: PLC0415

    runner, folder = built_runner(), Path(tempfile.mkdtemp())

    def compile_(program: Any, name: str) -> Emulated:
        shutil.rmtree(folder, ignore_errors=True)
        return Emulated(shlo_disc.compile(program, name=name), runner, folder)

    return compile_


def work(is_emulated: bool) -> None:
    """Read cases as JSON lines, answer each with one JSON line."""
    import shlo_disc  # noqa: PLC0415 - only a worker needs it
    from shlo_disc.lower.cpu.machine import host_machine  # noqa: PLC0415

    holds = host_machine().vector_bytes == 64 and not is_emulated
    compile_: Compile = emulated() if is_emulated else shlo_disc.compile
    archives: dict[str, zipfile.ZipFile] = {}
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        case = Case(**json.loads(line))
        start = time.perf_counter()
        try:
            zipped = archives.setdefault(case.archive, zipfile.ZipFile(case.archive))
            if case.entry:
                data = np.load(io.BytesIO(zipped.read(case.entry["npz"])))
                text = zipped.read(case.entry["mlir"]).decode()
                outputs = of_stablehlo(case.entry, text, data, compile_)
            else:
                data = np.load(io.BytesIO(zipped.read(case.name + ".npz")))
                if "mlir" in data:
                    outputs = of_torch(case.name, data, compile_)
                else:
                    outputs = of_export(data, compile_)
            reason, detail, excused = judge(case, outputs, holds)
        except Exception as error:  # every failure of a case is its outcome
            reason, excused = reason_of(error), False
            detail = str(error.args[1]) if isinstance(error, Mismatch) else traceback.format_exc()
        seconds = time.perf_counter() - start
        answer = {"reason": reason, "detail": detail, "seconds": seconds, "excused": excused}
        print(json.dumps(answer), file=answers, flush=True)


# --- the parent ---------------------------------------------------------------------------------


class Worker:
    """A process that runs cases one by one; started again after a crash or a hang."""

    def __init__(self, options: Sequence[str]) -> None:
        self.options = options
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        """A living process, with the answers of this one in `self.answers`."""
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, __file__, "--worker", *self.options]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )
            self.answers: queue.Queue[str] = queue.Queue()
            threading.Thread(
                target=self._read, args=(self.process, self.answers), daemon=True
            ).start()
        return self.process

    @staticmethod
    def _read(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answers.put(line)
        answers.put("")  # the process has ended

    def run(self, case: Case, timeout: float) -> Outcome:
        """The outcome of `case`."""
        process = self.start()
        assert process.stdin is not None
        name = Path(case.archive).stem, case.name
        try:
            process.stdin.write(json.dumps(asdict(case)) + "\n")
            process.stdin.flush()
            line = self.answers.get(timeout=timeout)
        except queue.Empty:
            self.stop()
            return Outcome(*name, False, f"timeout after {timeout:.0f} s", seconds=timeout)
        except BrokenPipeError:
            line = ""
        if not line:
            return Outcome(*name, False, f"crash: exit status {process.wait()}")
        answer = json.loads(line)
        return Outcome(*name, not answer["reason"], **answer)

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def run_all(
    cases: list[Case], jobs: int, timeout: float, console: Console, options: Sequence[str]
) -> list[Outcome]:
    """Every outcome, in the order of `cases`, of workers with `options`."""
    outcomes: list[Outcome | None] = [None] * len(cases)
    todo = iter(range(len(cases)))
    lock = threading.Lock()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("cases", total=len(cases))

        def loop() -> None:
            worker = Worker(options)
            while True:
                with lock:
                    i = next(todo, None)
                if i is None:
                    return worker.stop()
                outcomes[i] = worker.run(cases[i], timeout)
                progress.advance(task)

        threads = [threading.Thread(target=loop) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [outcome for outcome in outcomes if outcome is not None]


def stale(cases: list[Case], archives: set[str]) -> list[str]:
    """What the list of exceptions says of `archives` that their `cases` do not have."""
    counts = Counter(Path(c.archive).stem for c in cases)
    names = {(Path(c.archive).stem, c.name) for c in cases}
    misfits = [f"{a}: {counts[a]} cases, not {CASES[a]}" for a in sorted(archives & {*CASES})
               if counts[a] != CASES[a]]  # fmt: skip
    missing = sorted(k for k in EXCEPTIONS if k[0] in archives and k not in names)
    return misfits + [f"{a} {name}: listed as an exception, but there is no such case"
                      for a, name in missing]  # fmt: skip


def show(outcomes: list[Outcome], console: Console, examples: int) -> None:
    """Counts by archive and by reason."""
    table = Table(title="outside programs")
    for column in ("archive", "cases", "passed", "exceptions", "unsupported", "wrong", "other"):
        table.add_column(column, justify="left" if column == "archive" else "right")
    for archive in dict.fromkeys(o.archive for o in outcomes):
        of = [o for o in outcomes if o.archive == archive]
        excused = sum(o.excused for o in of)
        unsupported = sum(o.reason.startswith("UnsupportedError") for o in of)
        wrong = sum(o.reason.startswith("wrong") and not o.excused for o in of)
        passed = sum(o.passed for o in of)
        other = len(of) - passed - excused - wrong - unsupported
        counts = len(of), passed, excused, unsupported, wrong, other
        table.add_row(archive, *map(str, counts))
    console.print(table)
    reasons = Counter(o.reason for o in outcomes if not o.passed)
    named: dict[str, list[str]] = defaultdict(list)
    for o in outcomes:
        named[o.reason].append(o.name[:60])
    table = Table("count", "reason", "for example")
    for reason, count in reasons.most_common():
        table.add_row(str(count), reason, ", ".join(named[reason][:examples]))
    console.print(table)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False),
                required=False)  # fmt: skip
@click.option("--only", multiple=True, help="Archives to run, without .zip.")
@click.option("--match", default="", help="Run the cases whose name has this pattern.")
@click.option("--sample", default=0, help="Run so many cases, always the same ones.")
@click.option("--jobs", default=2, show_default=True)
@click.option("--timeout", default=60.0, show_default=True, help="Seconds for one case.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write every outcome here.")
@click.option("--examples", default=2, show_default=True, help="Cases named for each reason.")
@click.option("--details", is_flag=True, help="Print the whole failure of every case.")
@click.option("--emulated", "is_emulated", is_flag=True, help="Run code of AArch64 in qemu.")
@click.option("--worker", is_flag=True, hidden=True)
def main(
    folder: Path | None,
    only: tuple[str, ...],
    match: str,
    sample: int,
    jobs: int,
    timeout: float,
    target: Path | None,
    examples: int,
    details: bool,
    is_emulated: bool,
    worker: bool,
) -> None:
    """Run the programs in the zips of FOLDER and count what fails, by reason."""
    if worker:
        work(is_emulated)
        return
    if folder is None:
        raise click.UsageError("FOLDER is missing")
    if not folder.is_dir():
        print(f"{folder} is not here: nothing to run")
        return
    archives = [a for a in sorted(folder.glob("*.zip")) if a.stem in (only or CASES)]
    cases = [c for a in archives for c in cases_of(a)]
    misfits = stale(cases, {a.stem for a in archives})
    cases = [c for c in cases if re.search(match, c.name)]
    if sample:
        cases = random.Random(sample).sample(cases, min(sample, len(cases)))  # the same every time
    # Wide enough for a reason when the output is a file.
    console = Console(width=None if sys.stdout.isatty() else 200)
    start = time.perf_counter()
    options = ["--emulated"] if is_emulated else []
    outcomes = run_all(cases, jobs, timeout, console, options)
    if details:
        for o in outcomes:
            if not o.passed:
                console.print(f"{o.archive} {o.name}: {o.reason}\n{o.detail}", markup=False)
    show(outcomes, console, examples)
    passed = sum(o.passed for o in outcomes)
    excused = sum(o.excused for o in outcomes)
    console.print(
        f"{passed} of {len(outcomes)} passed in {time.perf_counter() - start:.0f} s; "
        f"{excused} exceptions ({excused / max(1, len(outcomes)):.2%})"
    )
    others = {a.stem for a in folder.glob("*.zip")} - {*CASES} - {*only}
    if others:
        console.print(f"not run, as they are not StableHLO alone: {', '.join(sorted(others))}")
    for misfit in misfits:
        console.print(misfit, markup=False)
    if target is not None:
        target.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    raise SystemExit(bool(misfits) or any(not o.passed and not o.excused for o in outcomes))


if __name__ == "__main__":
    main()
