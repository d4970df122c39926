"""Every environment variable shlo_disc reads: name, default, one sentence.

`docs/env.md` is printed from this table (`python -m shlo_disc.tools.env_table`), and a test holds
the two together. Values are read when asked, so a change of `os.environ` is seen at once; `with
overridden(debug=2):` changes a value for one block of one thread.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "FLAGS",
    "Flag",
    "debug_level",
    "dump_dir",
    "fusion",
    "num_threads",
    "overridden",
    "spec_checks",
    "split",
    "value",
]


@dataclass(frozen=True)
class Flag:
    """One environment variable."""

    name: str
    default: str
    doc: str

    @property
    def key(self) -> str:
        """The short name: `SHLO_DISC_DEBUG` is `debug`."""
        return self.name.removeprefix("SHLO_DISC_").lower()


_TABLE = (
    Flag(
        "SHLO_DISC_DEBUG",
        "0",
        "What goes to stderr: 1 one line a compilation, 2 one line a pass, 3 the IR that passes "
        "changed, 4 the whole IR after every pass, 5 LLVM IR and assembly too.",
    ),
    Flag(
        "SHLO_DISC_DUMP",
        "",
        "Directory that gets `NN-pass.mlir` after every pass, with source locations; each file is "
        "a valid input of `disc-opt`.",
    ),
    Flag(
        "SHLO_DISC_FUSION",
        "1",
        "0 gives every operation a kernel of its own: to see whether a wrong result comes from "
        "fusion.",
    ),
    Flag(
        "SHLO_DISC_NUM_THREADS",
        "0",
        "Threads of the process-wide pool, the caller included; 0 means the cores this process may "
        "run on.",
    ),
    Flag(
        "SHLO_DISC_PACK_BYTES",
        "",
        "Upper bound of the memory that keeps packed copies of weights; unset: a quarter of the "
        "machine's memory.",
    ),
    Flag(
        "SHLO_DISC_POOL_BYTES",
        "",
        "Upper bound of the memory the buffer pool keeps for later calls; unset: a quarter of the "
        "machine's memory.",
    ),
    Flag(
        "SHLO_DISC_SPEC",
        "0",
        "1 verifies the module after every pass (on in the tests); a pass that breaks the IR is "
        "named.",
    ),
    Flag(
        "SHLO_DISC_SPLIT",
        "",
        "What becomes of a fusion that, by a mistake of ours, has no kernel: 1 plans it again as "
        "smaller ones with a warning, 0 raises the error; unset: 1, or 0 with SHLO_DISC_SPEC=1.",
    ),
    Flag(
        "SHLO_DISC_TRUST_BYTECODE",
        "0",
        "1 reads bytecode and portable artifacts without trying them in a child process first; "
        "damaged bytes may then crash this process.",
    ),
)

FLAGS: dict[str, Flag] = {flag.key: flag for flag in _TABLE}
"""Every flag by its short name, sorted."""

_NO_OVERRIDES: dict[str, str] = {}
_overrides: contextvars.ContextVar[dict[str, str]] = contextvars.ContextVar(
    "shlo_disc_flags", default=_NO_OVERRIDES
)


def value(key: str) -> str:
    """The text of flag `key`: an override, else the environment, else the default."""
    flag = FLAGS[key]
    override = _overrides.get().get(key)
    if override is not None:
        return override
    return os.environ.get(flag.name, "") or flag.default


@contextlib.contextmanager
def overridden(**values: object) -> Iterator[None]:
    """Other values for some flags inside a `with` block, in this thread: `overridden(debug=2)`."""
    unknown = values.keys() - FLAGS.keys()
    if unknown:
        raise ValueError(f"no such flag: {', '.join(sorted(unknown))}; flags: {', '.join(FLAGS)}")
    token = _overrides.set(_overrides.get() | {k: str(v) for k, v in values.items()})
    try:
        yield
    finally:
        _overrides.reset(token)


def _number(key: str) -> int:
    text = value(key)
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError(f"{FLAGS[key].name} is {text!r}; it must be a number, 0 or more")
    return number


def debug_level() -> int:
    """`SHLO_DISC_DEBUG`."""
    return _number("debug")


def fusion() -> bool:
    """`SHLO_DISC_FUSION`."""
    return _number("fusion") > 0


def num_threads() -> int:
    """`SHLO_DISC_NUM_THREADS`; 0 leaves the choice to the runtime."""
    return _number("num_threads")


def dump_dir() -> Path | None:
    """`SHLO_DISC_DUMP`; None when nothing is to be dumped."""
    text = value("dump")
    return Path(text) if text else None


def spec_checks() -> bool:
    """`SHLO_DISC_SPEC`."""
    return _number("spec") > 0


def split() -> bool:
    """`SHLO_DISC_SPLIT`."""
    return _number("split") > 0 if value("split") else not spec_checks()
