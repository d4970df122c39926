"""`python -m shlo_disc`: versions, machine and settings, for bug reports."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shlo_disc import ral
from shlo_disc.base import flags
from shlo_disc.base.errors import DeviceError
from shlo_disc.lower.target import parse

_PACKAGES = ("shlo_disc", "jax", "jaxlib", "torch-mlir", "numpy", "ml_dtypes")


def report() -> dict[str, dict[str, str]]:
    """Section -> name -> value; what :func:`main` prints."""
    return {
        "Versions": {
            "Python": platform.python_version(),
            **{name: _version(name) for name in _PACKAGES},
        },
        "Machine": {
            "Processor": _processor(),
            **parse("cpu").details(),
            "Threads of the pool": str(ral.num_threads()),
        },
        "GPUs": {
            "llvmlite (extra gpu)": _version("llvmlite"),
            "Assembler of PTX": parse("cuda:sm_90").details()["Assembler of PTX"],
            **{platform: _devices(platform) for platform in ("cuda", "rocm")},
        },
        "Caches of this process": {
            **_rows("Buffer pool", ral.pool_stats()),
            **_rows("Packed weights", ral.pack_stats()),
        },
        "Settings": {flag.name: flags.value(key) or "-" for key, flag in flags.FLAGS.items()},
    }


def _devices(platform: str) -> str:
    """The driver of a platform and its devices, or why there is none."""
    try:
        driver, devices = ral.gpu_driver(platform), ral.gpu_devices(platform)
    except DeviceError as error:
        return str(error).partition("; ")[0]
    names = ", ".join(
        f"{d['name']} ({d['architecture']}, {d['total_bytes'] >> 30} GiB)" for d in devices
    )
    return f"{names}; {driver['library']} {driver['version']}"


def _rows(title: str, numbers: dict[str, int]) -> dict[str, str]:
    return {f"{title}: {name.replace('_', ' ')}": f"{n:,}" for name, n in numbers.items()}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    """Print :func:`report` as a table."""
    table = Table(title="shlo_disc", show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for section, rows in report().items():
        table.add_section()
        table.add_row(f"[cyan]{section}[/cyan]", "")
        for name, value in rows.items():
            table.add_row(name, value)
    Console().print(table)


if __name__ == "__main__":
    main()
