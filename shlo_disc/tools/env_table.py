"""Print `docs/env.md` from the table in `flags.py`; `--check FILE` compares instead."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shlo_disc.base.flags import FLAGS

_HEAD = """# Environment variables

<!-- Printed by `python -m shlo_disc.tools.env_table` from `base/flags.py`; do not edit. -->

Values are read when they are needed; a value that is not allowed raises ValueError. In Python,
`with shlo_disc.flags.overridden(debug=2):` sets one for a block.

| Variable | Default | Allowed | Meaning |
|---|---|---|---|
"""


def page() -> str:
    """The whole text of `docs/env.md`."""
    rows = [
        f"| `{flag.name}` | {f'`{flag.default}`' if flag.default else 'unset'} "
        f"| {flag.kind.allowed} | {flag.doc} |\n"
        for flag in FLAGS.values()
    ]
    return _HEAD + "".join(rows)


@click.command(help=__doc__)
@click.option("--check", "path", type=click.Path(exists=True, dir_okay=False))
def main(path: str | None) -> None:
    """See the module."""
    if path is None:
        click.echo(page(), nl=False)
    elif Path(path).read_text() != page():
        click.echo(f"{path} is not what shlo_disc/base/flags.py says; run `make fix`", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
