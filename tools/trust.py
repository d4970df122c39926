"""Programs that went wrong once, run again: `python tools/trust.py [--all]`.

They lie in `../shared` (outside this repository): `defects/`, a program for each;
`suspects/jax_suspects.py`, programs beside `jax.jit` in groups; and `reports/`, programs after
public reports, beside `jax.jit` and PyTorch's eager mode. Exit status 1 if a defect shows an error,
a suspect of the group `wrong` is not ok, a program of a report is not right, or less than three
quarters of the group `recompile` are ok.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("SHLO_DISC_SHARED", ROOT.parent / "shared"))
ENOUGH = {"wrong": 1.0, "recompile": 0.75}
BAD = re.compile(r"\b(FAIL|WRONG|EXC|InternalError|KeyError|Traceback)\b")
ARGUMENTS = {
    "index_read_by_slices_crashes": [[str(k)] for k in range(1, 7)],
    "memory_of_functions_that_are_gone": [["fns"]],
}
"""Arguments of defects that take some; the others are run once without."""
REPORTS = {"jax_reports.py": "", "torch_reports.py": ".venv-torch"}
"""Programs after public reports, and the environment of each; empty: this one."""
RIGHT = re.compile(r"ok$|right, (after \d+ s|[\d.]+ of the speed) of ")
"""What a program of a report says that has the results it should have, and compiles once."""


def suspects(groups: list[str]) -> bool:
    """Run groups of suspects; True if enough of each are ok."""
    script = SHARED / "suspects/jax_suspects.py"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.json"
        command = [sys.executable, str(script), *groups, "-j", "2", "--json", str(out)]
        subprocess.run(command, check=False)
        results = json.loads(out.read_text(encoding="utf-8"))
        listed = subprocess.run(
            [sys.executable, str(script), "--list"], capture_output=True, text=True, check=True
        ).stdout
    group_of = {
        line.split()[1]: line.split()[0] for line in listed.splitlines() if line[:1].isalpha()
    }
    good = True
    for group in groups:
        mine = [r["state"] for r in results if group_of[r["name"]] == group]
        share = sum(state in ("ok", "skip") for state in mine) / max(1, len(mine))
        crashed = any(state in ("crash", "timeout") for state in mine)
        enough = share >= ENOUGH.get(group, 0.0) and not crashed
        print(f"{group}: {share:.0%} of {len(mine)} ok{'' if enough else ', not enough'}")
        good &= enough
    return good


def defects() -> bool:
    """Run every defect; True if none shows an error."""
    good = True
    for path in sorted((SHARED / "defects").glob("*.py")):
        for arguments in ARGUMENTS.get(path.stem, [[]]):
            done = subprocess.run(
                [sys.executable, str(path), *arguments],
                capture_output=True,
                text=True,
                env={**os.environ, "JAX_PLATFORMS": "cpu"},
                check=False,
            )
            missing = re.search(r"No module named '(\w+)'", done.stderr)
            state = "ok"
            if missing:
                state = f"skipped: {missing[1]} is not installed"
            elif done.returncode or BAD.search(done.stdout):
                state, good = f"FAILS (exit status {done.returncode})", False
            print(f"{path.name} {' '.join(arguments)}: {state}", flush=True)
    return good


def reports() -> bool:
    """Run the programs after reports; True if all are right.

    Programs that are right, but slow on this machine, are only listed.
    """
    good = True
    for name, venv in REPORTS.items():
        python = ROOT / venv / "bin/python" if venv else Path(sys.executable)
        if not python.exists():
            print(f"{name}: skipped: no {venv}", flush=True)
            continue
        script = str(SHARED / "reports" / name)
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        command = [str(python), script]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, env=environment, check=False
        )
        print(done.stdout, flush=True)
        states = re.findall(r"^\w+: (.*)$", done.stdout, re.MULTILINE)
        ended = re.search(r"^\d+ of \d+ as ", done.stdout, re.MULTILINE)
        good &= ended is not None and all(map(RIGHT.match, states))
    return good


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--all", action="store_true", help="defects, and every group of suspects")
    options = parser.parse_args()
    if not SHARED.is_dir():
        print(f"{SHARED} is not here: nothing to run")
        return 0
    groups = ["wrong", "recompile"]
    if options.all:
        groups += ["transform", "manners", "cover", "robust"]
    good = suspects(groups) & reports()
    if options.all:
        good &= defects()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
