"""The front door: a program is loaded, if an earlier process compiled it, or it is compiled."""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from shlo_disc.base import flags
from shlo_disc.base.late_module import LateModule
from shlo_disc.base.later import Later, imported_later
from shlo_disc.driver.kept import (
    Place,
    check,
    claim_program,
    find,
    keep,
    load,
    not_kept,
    place_of,
)
from shlo_disc.driver.kept_keys import has_programs, look_at_own_files
from shlo_disc.driver.options import check_symbols, stated_text
from shlo_disc.driver.request import Options, Request, Stated
from shlo_disc.executables.data_sized import DataSizedExecutable
from shlo_disc.executables.executable import Executable
from shlo_disc.executables.typed_keys import TypedKeys
from shlo_disc.lower.background import release_later
from shlo_disc.report.peak import MEASURES

_save = imported_later("shlo_disc.driver.save", "save")


def compile(
    source: Any,
    *,
    name: str | None = None,
    shapes: Sequence[Sequence[str] | None] | None = None,
    names: Sequence[str | None] | None = None,
    constraints: str | Sequence[str] = (),
    likely: Mapping[str, int | Sequence[int]] | None = None,
    first_sizes: Mapping[str, int] | None = None,
    weak_results: Sequence[bool] = (),
    donated: int | Sequence[int] = (),
    target: str = "cpu",
) -> Executable | DataSizedExecutable:
    """The executable of a program, for every shape its dynamic sizes allow.

    `source`: a `jax.export.Exported`, StableHLO as MLIR text, bytecode or portable artifact, or the
    path of a file with one of them. `shapes` and `names` describe the arguments when the source
    does not (see :func:`shlo_disc.ingest.ingest`). `constraints` are relations of the sizes, such
    as "t >= 2": a call that breaks one raises ShapeMismatchError. A symbol of `shapes` is at least
    1, unless a constraint such as "b >= 0" allows 0. `weak_results` tells which results are weakly
    typed in JAX. `likely` gives values of symbols to have specialised kernels for. `first_sizes`
    gives their values in the first call: kernels that it does not need are compiled later; without
    them all are compiled now. `donated`: arguments whose arrays a call may overwrite and deletes; a
    warning names those whose memory no result can use. `target` is "cpu", this machine's, or a
    level of it that other machines have too: "cpu:avx512", "cpu:avx2" or "cpu:sse2". Or it is a
    GPU: "cuda" (the first one of this machine), or an architecture of any machine's, such as
    "cuda:sm_90".

    The result is a :class:`DataSizedExecutable` if sizes come from data, or depend on which branch
    runs, or on how often a loop does.

    Raises InvalidModuleError (malformed program), UnsupportedError (an op, type or target that is
    not covered), OSError (a file that cannot be read), TypeError or ValueError (an option of the
    wrong type, or one that names no symbol, argument or result).
    """
    stated = Stated.of(source, shapes, names, constraints, first_sizes)
    options = Options.of(target, weak_results, likely, donated)
    made = _made(Request(stated, options, stated_text("name", name), may_be_several=True))
    check_symbols(made.name, "first_sizes", stated.seen or (), made.symbols)
    made.keys = TypedKeys.of(source)
    if isinstance(source, LateModule):
        made.lowered_anew = source.not_kept
    return made


def compile_one(
    source: Any,
    *,
    name: str | None = None,
    shapes: Sequence[Sequence[str] | None] | None = None,
    names: Sequence[str | None] | None = None,
    constraints: str | Sequence[str] = (),
    likely: Mapping[str, int | Sequence[int]] | None = None,
    first_sizes: Mapping[str, int] | None = None,
    weak_results: Sequence[bool] = (),
    donated: int | Sequence[int] = (),
    target: str = "cpu",
    may_stand_in: bool = False,
) -> Executable:
    """As :func:`compile`, but raises UnsupportedError for a size that is computed from data.

    `may_stand_in`: rather than to compile, load a program of the same results that has kernels for
    short sizes of another first call. Its `stands_in` tells.
    """
    stated = Stated.of(source, shapes, names, constraints, first_sizes)
    options = Options.of(target, weak_results, likely, donated)
    request = Request(stated, options, stated_text("name", name), may_be_several=False)
    made = _made(request, may_stand_in)
    assert isinstance(made, Executable)
    return made


def _made(request: Request, may_stand_in: bool = False) -> Executable | DataSizedExecutable:
    place, verifies = place_of(request), flags.cache_verifies()
    may_stand_in &= not verifies and flags.compile_ahead()
    found = claim = None
    if isinstance(place, Place):
        found = find(place, may_stand_in=may_stand_in)
        if found is None:
            claim = claim_program(place)
            found = find(place) if claim is None else None
    if found is not None and not verifies:
        loaded = load(found, request)
        if request.stated.seen is None:  # no call tells what it needs
            loaded.compile_for_all_sizes()
        _have_saved(loaded, request)
        return loaded
    # Only here: what compiles takes longer to load than a program.
    from shlo_disc.driver.stages import compile_request  # noqa: PLC0415

    try:
        made = compile_request(request)
        if not isinstance(place, Place):
            not_kept(made, place)
        elif found is None:
            keep(place, made)
        else:
            check(place, found, made)
    finally:
        if claim is not None:
            release_later(claim)
    stated = replace(request.stated, source=_without_objects(request.stated.source))
    _have_saved(made, replace(request, stated=stated))
    return made


def _have_saved(made: Executable | DataSizedExecutable, request: Request) -> None:
    """Have `made` know how it is saved."""
    made.saver = partial(_save, request)


def _without_objects(source: Any) -> Any:
    """`source`, which was read, without the objects of MLIR that it holds: a model takes 2 MB."""
    if not isinstance(source, LateModule):
        return source
    written = io.BytesIO()
    source.module.value.operation.write_bytecode(written)
    return replace(source, module=Later(partial(_parsed, written.getvalue())))


def _parsed(bytecode: bytes) -> Any:
    from shlo_disc.ir.mlir import new_context, parse_module  # noqa: PLC0415 - as above

    with new_context():
        return parse_module(bytecode)


def _measured(target: str) -> tuple[float, list[tuple[int, float]]]:
    from shlo_disc.driver.gpu_peak import measured  # noqa: PLC0415 - it compiles by this module

    return measured(target)


MEASURES.append(_measured)

look_at_own_files()
if not has_programs():  # else the first program that is not found imports the compiler
    importlib.import_module("shlo_disc.driver.stages")
