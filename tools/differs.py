"""Write the generated part of docs/differs.md: `python tools/differs.py [--check]`.

Sources: `SPELLINGS` of shlo_disc/jax/sizes/spellings.py, and tests/functions/results.json, which
`python -m tests.functions --store` writes.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/differs.md"
BEGIN = "<!-- Printed by `python tools/differs.py` until the end mark; do not edit. -->\n"
END = "<!-- end -->\n"

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from shlo_disc.jax.sizes.spellings import SPELLINGS  # noqa: E402
from tests.functions import results  # noqa: E402
from tests.functions.table import names  # noqa: E402


def page(text: str) -> str:
    """A page whose part between the marks is as generated; raises ValueError without marks."""
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{PAGE} has lost its marks")
    return before + BEGIN + generated() + END + after


def generated() -> str:
    """The text between the marks."""
    return "\n".join([*_spellings(), "", *_functions(), ""])


def _spellings() -> Iterator[str]:
    yield "## Sizes that are constants in a version"
    yield ""
    yield (
        "Each size `n` of an array `x` compiles a version where Python needs the number. "
        "Other spellings keep the symbol."
    )
    yield ""
    yield "| a constant | a symbol | `explain()` says |"
    yield "|---|---|---|"
    for said, pins, keeps in SPELLINGS:
        yield _row(_codes(pins), _codes(keeps) or "–", said or "–")


def _functions() -> Iterator[str]:
    entries = results.read()
    more = {name: entry for name, entry in entries.items() if "compilations" in entry}
    refused = {name: entry["unsupported"] for name, entry in entries.items() if name not in more}
    listed = names()
    yield "## Functions of JAX"
    yield ""
    yield (
        f"`tests/functions` calls {len(listed)} cases of functions of `jax.numpy`, `nn`, `lax`, "
        f"`scipy` and `random` at four shapes each. {len(listed) - len(entries)} need one "
        f"compilation, {len(more)} need more, {len(refused)} are not supported."
    )
    yield ""
    yield "| compilations | function | why, in the words of `explain()` |"
    yield "|---|---|---|"
    for name, entry in sorted(more.items(), key=lambda item: (item[1]["compilations"], item[0])):
        yield _row(str(entry["compilations"]), f"`{_short(name)}`", "; ".join(entry["because"]))
    if not refused:
        return
    yield ""
    yield "| not supported, because of | functions |"
    yield "|---|---|"
    by_reason = collections.defaultdict(list)
    for name, reason in refused.items():
        by_reason[reason].append(name)
    for reason, several in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        yield _row(f"`{reason}`", _grouped(several))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _short(name: str) -> str:
    return name.removeprefix("jax.").replace("numpy.", "jnp.", 1)


def _grouped(several: Iterable[str]) -> str:
    """`jnp.fft`: `fft`, `ifft`; the variants of one function once."""
    plain = sorted({_short(name).partition("/")[0] for name in several})
    modules = itertools.groupby(plain, lambda name: name.rpartition(".")[0])
    return "; ".join(
        f"`{module}`: {_codes(name.rpartition('.')[2] for name in group)}"
        for module, group in modules
    )


def main() -> int:
    """See the module; 1 if the page is not as generated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    before = PAGE.read_text()
    text = page(before)
    if check and text != before:
        print(f"{PAGE} is not as generated; run `make fix`", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
