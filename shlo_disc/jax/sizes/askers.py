"""Who asks a question about a size: the program, or JAX.

The asker is the innermost Python frame that belongs neither to the standard library nor to NumPy:
code of those asks for its caller. The instruction of that frame tells calls into jaxlib, calls of
caches and `n in range(...)` apart from plain questions.
"""

from __future__ import annotations

import dis
import functools
import os
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import ml_dtypes
import numpy as np
import opt_einsum

from shlo_disc.jax_private.states import CACHE_TYPE, JAX_TYPES, is_library_file

_STDLIB = os.path.dirname(os.__file__) + os.sep
_NEUTRAL = tuple(
    os.path.dirname(module.__file__ or "") + os.sep for module in (np, ml_dtypes, opt_einsum)
)

_HELPERS = frozenset(
    (
        "definitely_equal", "definitely_equal_shape", "definitely_equal_one_of_dim", "unsafe_map",
        "safe_map", "<genexpr>", "<listcomp>", "<lambda>", "<setcomp>", "<dictcomp>", "eq",
        "__ne__",
    )
)  # fmt: skip
"""Functions of JAX that ask for their caller."""

_WRAPPERS = frozenset(("HashableWrapper.__init__", "HashableWrapper.__eq__"))
"""Methods of JAX that hash and compare what their caller wraps."""


_COMPARISONS = frozenset(("__eq__", "__ne__", "__hash__"))


class Asker(NamedTuple):
    """Who asks a question."""

    by_program: bool
    """False: a function of JAX."""
    frame: FrameType | None
    """The frame that asks; None where only neutral code is on the stack."""


def asker_of(frame: FrameType | None) -> Asker:
    """Who asks a question that came from `frame`."""
    while frame is not None:
        kind, caller = _kind(frame.f_code), frame.f_back
        if kind == "jax" and caller is not None and frame.f_code.co_name in _COMPARISONS:
            compares = _kind(caller.f_code) == "program" and not _calls_jax(caller)
            if compares:  # objects of JAX that have shapes
                return Asker(True, caller)
        if kind != "neutral":
            return Asker(kind == "program" and not _calls_jax(frame), frame)
        frame = frame.f_back
    return Asker(True, None)


_GENERATED = frozenset(
    (
        "__init__", "__new__", "__repr__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__",
        "__hash__", "__setattr__", "__delattr__", "__replace__", "__create_fn__",
    )
)  # fmt: skip
"""Functions that `dataclasses` and `namedtuple` write. Their file is `<string>`, as that of a
program run with `exec` or `python -c`."""


def _kind(code: CodeType) -> str:
    """`jax`, `program`, or `neutral` for code that asks for its caller."""
    if code.co_filename == "<string>" and code.co_name in _GENERATED:
        return "neutral"
    return _kind_of_file(code.co_filename)


@functools.lru_cache(4096)
def _kind_of_file(file: str) -> str:
    standard = file.startswith(_STDLIB) and "site-packages" not in file
    generated = file.startswith(("<frozen", "<attrs", "<__array"))
    if standard or generated or file.startswith(_NEUTRAL):
        return "neutral"
    return "jax" if is_library_file(file) else "program"


@functools.lru_cache(4096)
def asks_for_itself(file: str, name: str) -> bool:
    """True for a function of JAX that no caller's question passes through."""
    passes_on = name in _HELPERS or name in _COMPARISONS or name == "__init__"
    return not passes_on and _kind_of_file(file) == "jax"


def is_of_jax(frame: FrameType) -> bool:
    """True for a frame of JAX's own Python code."""
    return _kind(frame.f_code) == "jax"


def asking_function(frame: FrameType | None) -> FrameType | None:
    """The frame of the function of JAX that asks, helpers left out."""
    while frame is not None and (
        frame.f_code.co_name in _HELPERS
        or frame.f_code.co_qualname in _WRAPPERS
        or _kind(frame.f_code) == "neutral"
    ):
        frame = frame.f_back
    return frame


def line_of(frame: FrameType | None) -> str:
    """`model.py:7`: the line a frame is at."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def line_of_program(frame: FrameType | None) -> str:
    """The innermost line of the program above a frame of JAX."""
    while frame is not None and _kind(frame.f_code) != "program":
        frame = frame.f_back
    return line_of(frame)


# ---- the instruction that asks ------------------------------------------------------------------

T = TypeVar("T")


def _once_an_instruction(read: Callable[[CodeType, int], T]) -> Callable[[FrameType], T]:
    """`read(code, offset)` of a frame's instruction, remembered as long as the code lives."""
    known: WeakKeyDictionary[CodeType, dict[int, T]] = WeakKeyDictionary()

    def of_frame(frame: FrameType) -> T:
        found = known.setdefault(frame.f_code, {})
        if frame.f_lasti not in found:
            found[frame.f_lasti] = read(frame.f_code, frame.f_lasti)
        return found[frame.f_lasti]

    return of_frame


def _calls_jax(frame: FrameType) -> bool:
    """True if the program's frame is at a call of a function of jaxlib.

    The caches of `jax.jit` are written in C++: they hash and compare static arguments while the
    program's frame is the innermost one.
    """
    callee = _callee(frame)
    return callee is not None and isinstance(callee, JAX_TYPES)


def calls_cache(frame: FrameType | None) -> bool:
    """True if the frame is at a call of a `functools.lru_cache`; a miss of it runs the function."""
    return frame is not None and isinstance(_callee(frame), functools._lru_cache_wrapper)


def compares_keys(frame: FrameType) -> bool:
    """True if a frame of JAX is at a call of a cache, which compares sizes as keys."""
    return isinstance(_callee(frame), (CACHE_TYPE, functools._lru_cache_wrapper))


def _callee(frame: FrameType) -> Any:
    """The object the frame is calling, if a name or an attribute chain spells it; or None."""
    path = _callee_of_frame(frame)
    if path is None:
        return None
    name, *attributes = path
    for names in (frame.f_locals, frame.f_globals, frame.f_builtins):
        if name in names:
            found = names[name]
            break
    else:
        return None
    for attribute in attributes:
        # Static: a property of the program must not run.
        try:
            found = (
                vars(found)[attribute]
                if attribute in getattr(found, "__dict__", {})
                else _plain_attribute(found, attribute)
            )
        except (AttributeError, TypeError):
            return None
    return found


def _plain_attribute(value: Any, name: str) -> Any:
    found = getattr(type(value), name)
    if isinstance(found, property) or hasattr(type(found), "__set__"):
        raise AttributeError(name)
    return found


def _spelled_callee(code: CodeType, at: int) -> tuple[str, ...] | None:
    """`("jax", "nn", "one_hot")` for the call instruction at `at`; None for any other."""
    if not _opname(code, at).startswith("CALL"):  # a function of JAX takes a ms to disassemble
        return None
    instructions = list(dis.get_instructions(code))
    index = next((k for k, i in enumerate(instructions) if i.offset == at), None)
    if index is None:
        return None
    place = instructions[index].positions
    if place is None or place.lineno is None:
        return None
    start = place.lineno, place.col_offset
    # The callee is spelled where the call begins; each attribute ends further right.
    path: list[str] = []
    for instruction in instructions[:index]:
        position = instruction.positions
        if position is None or (position.lineno, position.col_offset) != start:
            continue
        if instruction.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")):
            path = [str(instruction.argval)]
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and path:
            path.append(str(instruction.argval))
        elif instruction.opname not in ("PUSH_NULL", "PRECALL", "KW_NAMES", "CACHE"):
            path = []
    return tuple(path) or None


def range_asked(frame: FrameType | None) -> range | None:
    """The range of a question `n in range(1, 100)` with numbers for bounds; or None.

    Python compares a size with each member in turn, which would make the size a constant.
    """
    if frame is None or "range" in frame.f_globals or "range" in frame.f_locals:
        return None
    return _range_of_frame(frame)


def _opname(code: CodeType, at: int) -> str:
    return dis.opname[code.co_code[at]] if 0 <= at < len(code.co_code) else ""


def _spelled_range(code: CodeType, at: int) -> range | None:
    if _opname(code, at) != "CONTAINS_OP":
        return None
    before = [i for i in dis.get_instructions(code) if i.offset < at]
    if not before:
        return None
    call = before.pop()
    if call.opname != "CALL" or _spelled_callee(code, call.offset) != ("range",):
        return None
    bounds: list[int] = []
    while before and before[-1].opname in ("PRECALL", "LOAD_CONST", "LOAD_SMALL_INT"):
        instruction = before.pop()
        if instruction.opname != "PRECALL":
            bounds.insert(0, instruction.argval)
    given = len(bounds) == call.arg and all(type(bound) is int for bound in bounds)
    return range(*bounds) if given and bounds[2:] != [0] else None


_callee_of_frame = _once_an_instruction(_spelled_callee)
_range_of_frame = _once_an_instruction(_spelled_range)


# ---- who catches an error -----------------------------------------------------------------------

_ROOTS = frozenset(
    os.path.join(os.path.dirname(os.path.dirname(__file__)), *name.split("/"))
    for name in (
        "derived/program.py", "symbols/search.py", "versions/family.py", "versions/segmented.py",
        "versions/tracing.py", "versions/versions.py",
    )
)  # fmt: skip
"""Files of ours that run the program with symbols: their callers are no part of it."""


def is_caught_by_program(frame: FrameType | None) -> bool:
    """True if the program, and not JAX, may catch an error that is raised at `frame`."""
    while frame is not None and frame.f_code.co_filename not in _ROOTS:
        handlers = _handlers_of_frame(frame)
        kind = _kind(frame.f_code) if handlers else "neutral"
        if kind == "program":
            return True
        if kind == "jax" and "POP_EXCEPT" in handlers:
            return False
        frame = frame.f_back
    return False


_ENDS = ("RERAISE", "RAISE_VARARGS", "POP_EXCEPT", "WITH_EXCEPT_START")


def _read_handlers(code: CodeType, at: int) -> frozenset[str]:
    """How the `except` clauses around an instruction end; `finally` and most `with` have none."""
    found = set()
    suppresses = "suppress" in code.co_names  # with contextlib.suppress(TypeError): ...
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]
        if not entry.start <= at < entry.end:
            continue
        matches = False
        for instruction in dis.get_instructions(code):
            if instruction.offset < entry.target:
                continue
            matches |= instruction.opname in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH")
            if instruction.opname in _ENDS:
                catches = matches or instruction.opname == "POP_EXCEPT"
                if catches or (suppresses and instruction.opname == "WITH_EXCEPT_START"):
                    found.add(instruction.opname)
                break
    return frozenset(found)


_handlers_of_frame = _once_an_instruction(_read_handlers)
