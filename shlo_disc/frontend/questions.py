"""Questions about symbolic sizes, answered with the sizes of the call at hand.

A traced function may ask Python questions about a size: `if n % 2`, `n == 4`, `n in {2, 4}`,
`int(n)`, `f"{n}"`. JAX's symbolic sizes answer some of them with an error, and others wrongly: an
unknown `==` is False, and every size is true. While shlo_disc traces, the sizes belong to a
:class:`SizeScope`, which knows the sizes of the call. A question of the program gets the answer
`jax.jit` would give, and the answer becomes a guard of the compiled version. The scope travels with
its sizes, so questions from other threads and from rules of derived programs are heard too.

Questions of JAX's own code keep JAX's meaning where JAX is prepared for an unknown answer. A shape
rule that would raise gets the answer of the call, and the guard says so. The asker is found by the
innermost Python frame that belongs neither to the standard library nor to NumPy.

Sizes of other scopes (a plain `jax.export`) behave as without shlo_disc.
"""

from __future__ import annotations

import dis
import functools
import logging
import math
import operator
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import jax
import ml_dtypes
import numpy as np
import opt_einsum

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.relations import holds
from shlo_disc.frontend import generic
from shlo_disc.jax_private import (
    JAX_TYPES,
    DimExpr,
    SymbolicScope,
    is_library_file,
    size_as_array,
)

__all__ = ["Question", "Session", "SizeScope", "as_expr", "evaluate", "never_equal", "size_of_call"]

_log = logging.getLogger("shlo_disc")

_NUMBERS = (int, float, np.number, np.bool_)


@dataclass(frozen=True)
class Question:
    """One answered question: what is true of the sizes of the call that was traced."""

    left: Expr
    relation: str
    """`==`, `!=` or `>=`."""
    right: Expr
    reason: str
    where: str
    """`model.py:7`: the line that asked."""
    needs_number: bool = False
    """The program needs a Python number (`int`, `hash`, text): the sizes are best constants."""
    by_program: bool = True
    """False: a rule of JAX asked."""


@dataclass
class Session:
    """What was asked during one trace."""

    hints: Mapping[str, int]
    questions: dict[tuple[Expr, str, Expr], Question] = field(default_factory=dict)
    unknown: list[tuple[Any, Any]] = field(default_factory=list)
    """Pairs of sizes of which JAX was told that they may differ."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """(size, line) wherever JAX tried to read a number from a size."""
    converted: list[tuple[str, str]] = field(default_factory=list)
    """(size, line) wherever the program made a traced number of a size."""


class SizeScope(SymbolicScope):
    """A scope of symbolic sizes that knows the value of each symbol in the call at hand."""

    def __init__(self, constraints: Sequence[str], hints: Mapping[str, int]) -> None:
        _install()
        self._session = Session(dict(hints))
        self._lock = threading.RLock()
        self.answers: list[Question] = []
        """What was asked while programs were derived from the one first traced."""
        self.is_open = False
        self.grows = False
        """True while answers may become constraints of the scope (not in derived programs)."""
        super().__init__(constraints)

    @property
    def session(self) -> Session:
        """The trace under way, or the last one."""
        return self._session

    def allows(self, sizes: Mapping[str, int]) -> bool:
        """True if the answers given to rules of derived programs are true of `sizes`, too."""
        return all(
            holds(q.left, q.relation, q.right, sizes)
            for q in self.answers
            if q.left.symbols() | q.right.symbols() <= sizes.keys()
        )

    @contextmanager
    def asking(self, hints: Mapping[str, int], *, grows: bool = False) -> Iterator[Session]:
        """One trace at the sizes `hints`; traces of one scope follow each other."""
        with self._lock:
            before = self._session, self.is_open, self.grows
            self._session, self.is_open, self.grows = Session(dict(hints)), True, grows
            try:
                yield self._session
            finally:
                kept = self._session
                self._session, self.is_open, self.grows = before
                if not self.is_open:
                    self._session = kept  # a size the program kept answers with these sizes

    def constrain(self, left: Expr, right: Expr) -> None:
        """Let JAX know that `left >= right` for the rest of the trace."""
        if not self.grows:
            return
        self.grows = False  # parsing asks questions
        try:
            self._parse_and_process_explicit_constraint(f"{left} >= {right}")
            self._bounds_cache.clear()
            self._decision_initial_state = None
        finally:
            self.grows = True


# ---- values -------------------------------------------------------------------------------------


def evaluate(size: Any, hints: Mapping[str, int]) -> int:
    """The value of a symbolic or constant size; raises KeyError for an unknown symbol."""
    if not isinstance(size, DimExpr):
        return operator.index(size)
    total = 0
    for term, coefficient in size._sorted_terms:
        for factor, power in term._factors:
            coefficient *= _factor(factor, hints) ** power
        total += coefficient
    return int(total)


def _factor(factor: Any, hints: Mapping[str, int]) -> int:
    if factor.var is not None:
        return hints[factor.var]
    a, b = (evaluate(operand, hints) for operand in factor.operands)
    return int(_OPERATIONS[factor.operation](a, b))


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}


def is_size(value: Any) -> bool:
    """True for a symbolic size of a scope of ours."""
    return isinstance(value, DimExpr) and type(value.scope) is SizeScope


def size_of_call(size: Any) -> int | None:
    """The value of one of our sizes in the call at hand; None for any other object."""
    if not isinstance(size, DimExpr) or type(size.scope) is not SizeScope:
        return None
    try:
        return evaluate(size, size.scope.session.hints)
    except KeyError:  # a symbol JAX made for itself
        return None


def as_expr(size: Any) -> Expr:
    """A symbolic or constant size as an expression."""
    return Expr.parse(_ORIGINAL["__str__"](size)) if isinstance(size, DimExpr) else Expr.const(size)


# ---- who asks -----------------------------------------------------------------------------------

_STDLIB = os.path.dirname(os.__file__) + os.sep
_NEUTRAL = tuple(
    os.path.dirname(module.__file__ or "") + os.sep for module in (np, ml_dtypes, opt_einsum)
)
_kinds: dict[CodeType, str] = {}


def _kind(code: CodeType) -> str:
    """`jax`, `program`, or `neutral` for code that asks for its caller."""
    found = _kinds.get(code)
    if found is None:
        file = code.co_filename
        standard = file.startswith(_STDLIB) and "site-packages" not in file
        generated = file == "<string>" or file.startswith(("<frozen", "<attrs", "<__array"))
        if standard or generated or file.startswith(_NEUTRAL):
            found = "neutral"
        else:
            found = "jax" if is_library_file(file) else "program"
        _kinds[code] = found
    return found


def _asker(frame: FrameType | None) -> tuple[str, FrameType | None]:
    """Who asks, starting at the frame the question came from."""
    while frame is not None:
        kind = _kind(frame.f_code)
        if kind != "neutral":
            if kind == "program" and _calls_jax(frame):
                return "jax", frame
            return kind, frame
        frame = frame.f_back
    return "program", None


def _where(frame: FrameType | None) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


_calls: dict[tuple[CodeType, int], tuple[str, ...] | None] = {}


def _calls_jax(frame: FrameType) -> bool:
    """True if the program's frame is at a call of a function of jaxlib.

    The caches of `jax.jit` are written in C++: they hash and compare static arguments while the
    program's frame is the innermost one.
    """
    callee = _callee(frame)
    return callee is not None and isinstance(callee, JAX_TYPES)


def _calls_cache(frame: FrameType | None) -> bool:
    """True if the frame is at a call of a `functools.lru_cache`; a miss of it runs the function."""
    return frame is not None and isinstance(_callee(frame), functools._lru_cache_wrapper)


def _callee(frame: FrameType) -> Any:
    """The object the frame is calling, if a name or an attribute chain spells it; or None."""
    key = frame.f_code, frame.f_lasti
    if key not in _calls:
        _calls[key] = _spelled_callee(*key)
    path = _calls[key]
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
    instructions = list(dis.get_instructions(code))
    index = next((k for k, i in enumerate(instructions) if i.offset == at), None)
    if index is None or not instructions[index].opname.startswith("CALL"):
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


_ranges: dict[tuple[CodeType, int], range | None] = {}


def _range_asked(frame: FrameType | None) -> range | None:
    """The range of a question `n in range(1, 100)` with numbers for bounds; or None.

    Python compares a size with each member in turn, which would make the size a constant.
    """
    if frame is None:
        return None
    key = frame.f_code, frame.f_lasti
    if key not in _ranges:
        _ranges[key] = _spelled_range(*key)
    builtin = "range" not in frame.f_globals and "range" not in frame.f_locals
    return _ranges[key] if builtin else None


def _spelled_range(code: CodeType, at: int) -> range | None:
    before = [i for i in dis.get_instructions(code) if i.offset < at]
    here = next((i for i in dis.get_instructions(code) if i.offset == at), None)
    if here is None or here.opname != "CONTAINS_OP" or not before:
        return None
    call = before.pop()
    if call.opname != "CALL" or _spelled_callee(code, call.offset) != ("range",):
        return None
    bounds: list[int] = []
    while before and before[-1].opname in ("PRECALL", "LOAD_CONST"):
        instruction = before.pop()
        if instruction.opname == "LOAD_CONST":
            bounds.insert(0, instruction.argval)
    given = len(bounds) == call.arg and all(type(bound) is int for bound in bounds)
    return range(*bounds) if given and bounds[2:] != [0] else None


def _in_range(asked: _Asked, size: Any, members: range) -> bool:
    value = asked.value(size)
    reason = f"the program asks whether {as_expr(size)} is in {members}"
    low, high = sorted((members[0], members[-1]))  # an empty range compares nothing
    if value < low:
        asked.note(low - 1, ">=", size, reason)
    elif value > high:
        asked.note(size, ">=", high + 1, reason)
    else:
        asked.note(size, ">=", low, reason)
        asked.note(high, ">=", size, reason)
        if abs(members.step) != 1:
            inside = value in members
            asked.note((size - low) % abs(members.step), "==" if inside else "!=", 0, reason)
    return value in members


# ---- JAX's own questions ------------------------------------------------------------------------

_HELPERS = frozenset(
    (
        "definitely_equal", "definitely_equal_shape", "definitely_equal_one_of_dim", "unsafe_map",
        "safe_map", "<genexpr>", "<listcomp>", "<lambda>", "<setcomp>", "<dictcomp>", "eq",
        "__ne__",
    )
)  # fmt: skip
"""Functions of JAX that ask for their caller."""

_IDENTITY_FILES = frozenset(
    (
        "util.py", "linear_util.py", "pjit.py", "partial_eval.py", "mlir.py", "tree_util.py",
        "api_util.py", "dispatch.py", "config.py", "stages.py", "compiler.py", "core.py",
        "custom_derivatives.py", "custom_batching.py", "custom_transpose.py",
        "source_info_util.py", "profiler.py",
    )
)  # fmt: skip
"""Files of JAX that compare sizes as keys of caches, or to save an operation."""

_UNKNOWN_IS_FINE = frozenset(
    (
        "_broadcast_in_dim_fwd_rule", "_index_to_gather", "broadcast_in_dim", "_resize",
        "_scale_and_translate", "filter_singleton_dims", "_compute_newshape",
        "cancel_divide_tracers", "reshape",
    )
)  # fmt: skip
"""Functions of JAX that are right for every size when an unknown `==` is False: most look for a
short cut (nothing to slice, nothing to broadcast)."""

_EQUALITY_IS_NEEDED = frozenset(["cmp_shape_shd_mat_memsp"])
"""Functions in those files whose caller raises when sizes are not known to be equal."""

_UNITS_ARE_FINE = frozenset(
    (
        "_try_broadcast_shapes", "broadcast_to", "_broadcast_in_dim_shape_rule",
        "_broadcast_shapes_uncached", "_broadcast_arrays", "broadcast_shapes", "take_along_axis",
        "_einsum", "matmul", "_matmul", "dot_general", "_dot_general_shape_rule", "_unbroadcast",
        "_broadcast_in_dim_transpose_rule",
    )
)  # fmt: skip
"""Functions of JAX that treat a size of 1 apart: an unknown size takes the general way, which asks
for equality with its partner."""


_WHOLE_IS_LIKELY = frozenset(("_dynamic_update_slice_shape_rule", "_dynamic_slice_shape_rule"))
"""Functions of JAX that ask for an order. Equal sizes there mean that a dimension is taken whole,
which is unlikely to change, and code for it is better."""


def _policy(frame: FrameType | None) -> tuple[str, str]:
    """How an unknown `==` of JAX is answered, and the name of the function that asks.

    `unknown`: with False, as JAX does. `units`: the same for comparisons with -1, 0 and 1.
    `hint`: with the sizes of the call.
    """
    while frame is not None and (
        frame.f_code.co_name in _HELPERS or _kind(frame.f_code) == "neutral"
    ):
        frame = frame.f_back
    if frame is None or _kind(frame.f_code) != "jax":
        return "unknown", ""
    name = frame.f_code.co_name
    if name in _EQUALITY_IS_NEEDED:
        return "hint", name
    if name == "divide_shape_sizes":
        return "units", name  # for an unknown remainder it names the sizes that must be multiples
    if name in _UNKNOWN_IS_FINE or os.path.basename(frame.f_code.co_filename) in _IDENTITY_FILES:
        return "unknown", name
    return ("units" if name in _UNITS_ARE_FINE else "hint"), name


_CATCHES = frozenset(
    (
        "fori_loop", "_top_k_abstract_eval", "definitely_equal", "_svd_gpu_lowering",
        "_select_gpu_svd_impl",
    )
)  # fmt: skip
"""Functions of JAX that catch an inconclusive comparison and go a general way."""


def _site(frame: FrameType | None) -> str:
    """The name of the function of JAX that asks, helpers left out."""
    while frame is not None and (
        frame.f_code.co_name in _HELPERS or _kind(frame.f_code) == "neutral"
    ):
        frame = frame.f_back
    return frame.f_code.co_name if frame is not None else ""


def _is_caught(frame: FrameType | None, depth: int = 6) -> bool:
    while frame is not None and depth:
        if frame.f_code.co_name in _CATCHES and _kind(frame.f_code) == "jax":
            return True
        frame, depth = frame.f_back, depth - 1
    return False


def _user_line(frame: FrameType | None) -> str:
    """The innermost line of the program above a frame of JAX."""
    while frame is not None and _kind(frame.f_code) != "program":
        frame = frame.f_back
    return _where(frame)


# ---- answers ------------------------------------------------------------------------------------


class _Asked:
    """One question about a size of ours: the asker, and the sizes that answer."""

    __slots__ = ("by_program", "frame", "scope", "session", "where")

    def __init__(self, size: Any, frame: FrameType | None) -> None:
        self.scope: SizeScope = size.scope
        self.session = self.scope._session
        kind, self.frame = _asker(frame)
        self.by_program = kind == "program"
        self.where = _where(self.frame) if self.by_program else _user_line(self.frame)

    def value(self, size: Any) -> int:
        return evaluate(size, self.session.hints)

    def note(
        self, left: Any, relation: str, right: Any, reason: str, *, needs_number: bool = False
    ) -> None:
        if not self.scope.is_open:
            _warn_of_kept_size(str(as_expr(left)), self.where)
            return
        a, b = as_expr(left), as_expr(right)
        if a == b or (relation == "!=" and never_equal(a, b)):
            return
        key = a, relation, b
        known = self.session.questions.get(key)
        if known is None or (needs_number and not known.needs_number):
            self.session.questions[key] = Question(
                a, relation, b, reason, self.where, needs_number, self.by_program
            )
            if relation == ">=":
                self.scope.constrain(a, b)


def never_equal(a: Expr, b: Expr) -> bool:
    """True if a difference of sizes is no zero: symbols are at least 1, so all signs agree."""
    difference = a - b
    signs = {coefficient > 0 for _, coefficient in difference.terms}
    plain = all(not atom.op for atom in difference.atoms())
    return plain and len(signs) == 1


_warned: set[tuple[str, str]] = set()


def _warn_of_kept_size(size: str, where: str) -> None:
    if (size, where) not in _warned and len(_warned) < 1000:
        _warned.add((size, where))
        _log.warning(
            "the size %s was kept by the program beyond its trace and is asked at %s; it answers "
            "with the size of the last trace. Read sizes from arguments at every call.",
            size,
            where or "an unknown line",
        )


def _is_ours(size: Any) -> bool:
    """True if all symbols of a size have values; JAX makes symbols of its own, too."""
    if type(size.scope) is not SizeScope:
        return False
    hints = size.scope._session.hints
    return all(symbol in hints for symbol in size._get_vars())


def _as_array_comparison(size: Any, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
    if isinstance(other, np.ndarray):
        return compare(size_as_array(size), other)
    return NotImplemented  # traced values and arrays of JAX compare element by element


def _equal(size: Any, other: Any, frame: FrameType | None) -> Any:
    """`size == other` for a size of ours, or NotImplemented."""
    if isinstance(other, DimExpr):
        if other.scope is not size.scope:
            return False
    elif isinstance(other, np.ndarray) and other.ndim == 0 and other.dtype != object:
        other = other.item()
    if not isinstance(other, (DimExpr, *_NUMBERS)):
        asked = _Asked(size, frame)
        if not asked.by_program:
            return _ORIGINAL["__eq__"](size, other)
        if isinstance(other, (jax.Array, np.ndarray)):
            return _as_array_comparison(size, other, jax.numpy.equal)
        return NotImplemented
    if not isinstance(other, DimExpr):
        if not math.isfinite(other) or other != int(other):
            return False
        other = int(other)
    difference = size - other
    if not isinstance(difference, DimExpr):
        return difference == 0
    if not _is_ours(difference):
        return False
    asked = _Asked(size, frame)
    who = "the program"
    if asked.by_program and (members := _range_asked(asked.frame)) is not None:
        return _in_range(asked, size, members)
    if not asked.by_program:
        policy, name = _policy(asked.frame)
        unit = not isinstance(other, DimExpr) and other in (-1, 0, 1)
        if policy == "unknown" or (policy == "units" and unit) or not asked.scope.is_open:
            asked.session.unknown.append((size, other))
            return False
        who = f"{name} of JAX"
        if policy == "units" and asked.value(difference) != 0:
            return False  # sizes that had to be equal raise; others take the general way
    same = asked.value(difference) == 0
    reason = f"{who} compares {as_expr(size)} with {as_expr(other)}"
    asked.note(size, "==" if same else "!=", other, reason)
    return same


def _ordered(size: Any, name: str, other: Any, frame: FrameType | None) -> Any:
    """`size < other` and the like for a size of ours, or NotImplemented."""
    original = _ORIGINAL[name]
    asked = _Asked(size, frame)
    if isinstance(other, np.ndarray) and other.ndim == 0 and other.dtype != object:
        other = other.item()
    if isinstance(other, (jax.Array, np.ndarray)):
        if not asked.by_program:
            return original(size, other)
        return _as_array_comparison(size, other, _ARRAY_ORDER[name])
    if isinstance(other, (float, np.floating)):
        if not asked.by_program and not float(other).is_integer():
            return original(size, other)
        if math.isnan(other):
            return False
        if math.isinf(other):
            return (other > 0) == (name in ("__lt__", "__le__"))
        # n < 4.5 is n < 5; n <= 4.5 is n <= 4.
        other = math.ceil(other) if name in ("__lt__", "__ge__") else math.floor(other)
    if not isinstance(other, (DimExpr, int, np.integer)):
        return original(size, other) if not asked.by_program else NotImplemented
    try:
        return original(size, other)
    except jax.errors.InconclusiveDimensionOperation:
        if not asked.by_program and (_is_caught(asked.frame) or not asked.scope.is_open):
            raise
        if not _is_ours(size) or (isinstance(other, DimExpr) and not _is_ours(other)):
            raise
    answer = _ORDER[name](asked.value(size), asked.value(other))
    low, high = (size, other) if name in ("__lt__", "__le__") else (other, size)
    strict = name in ("__lt__", "__gt__")
    who = "the program" if asked.by_program else f"{_site(asked.frame)} of JAX"
    reason = f"{who} asks whether {as_expr(size)} {_SIGNS[name]} {as_expr(other)}"
    if (
        isinstance(other, DimExpr)
        and asked.value(size) == asked.value(other)
        and _policy(asked.frame)[1] in _WHOLE_IS_LIKELY
    ):
        asked.note(size, "==", other, reason)
        return answer
    if answer:  # high >= low, or high >= low + 1
        asked.note(high, ">=", low + 1 if strict else low, reason)
    else:
        asked.note(low, ">=", high if strict else high + 1, reason)
    return answer


_ORDER: dict[str, Callable[[int, int], bool]] = {
    "__lt__": operator.lt,
    "__le__": operator.le,
    "__gt__": operator.gt,
    "__ge__": operator.ge,
}
_SIGNS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
_ARRAY_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "__lt__": jax.numpy.less,
    "__le__": jax.numpy.less_equal,
    "__gt__": jax.numpy.greater,
    "__ge__": jax.numpy.greater_equal,
}


def _truth(size: Any, frame: FrameType | None) -> bool:
    if not _is_ours(size):
        return True
    asked = _Asked(size, frame)
    value = asked.value(size)
    if value == 0 or not _is_known_nonzero(size):
        who = "the program" if asked.by_program else f"{_policy(asked.frame)[1]} of JAX"
        reason = f"{who} asks bool({as_expr(size)})"
        asked.note(size, "==" if value == 0 else "!=", 0, reason)
    return value != 0


def _is_known_nonzero(size: Any) -> bool:
    try:
        return bool(_ORIGINAL["__ge__"](size, 1))
    except jax.errors.InconclusiveDimensionOperation:
        return False


_OVERFLOW_CHECKS = frozenset(("hijax.py:__init__",))
"""Functions of JAX that make an index type of a size, only to see whether the type overflows."""

_LARGEST = 2**31 - 1

_REPEATS = "a number of repeats"


def _place(frame: FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_name}"


_PROBES = frozenset(("is_constant_dim", "_convertible_to_int"))
"""Functions of JAX that tell constants from symbols by trying `operator.index`."""


def _number(size: Any, how: str, frame: FrameType | None) -> int | None:
    """The value of a size of ours for a program that needs a Python number; None for JAX."""
    if frame is not None and frame.f_code.co_name in _PROBES:
        return None
    kind, _ = _asker(frame)
    if not _is_ours(size):
        return None
    asked = _Asked(size, frame)
    if kind != "program":
        if how == "the text" or not asked.scope.is_open:
            return None
        if asked.frame is not None and _place(asked.frame) in _OVERFLOW_CHECKS:
            value = asked.value(size)
            asked.note(_LARGEST, ">=", size, "JAX asks whether an index type holds the size")
            return value
        if how != _REPEATS:
            asked.session.refused.append((_plain_text(size), asked.where))
            return None
    value = asked.value(size)
    who = "the program" if asked.by_program else f"{_policy(asked.frame)[1]} of JAX"
    asked.note(size, "==", value, f"{who} uses {how} of {as_expr(size)}", needs_number=True)
    return value


# ---- the class of JAX ---------------------------------------------------------------------------

_ORIGINAL: dict[str, Any] = {}
"""Methods of JAX's class, by name; a missing one is what Python does without it."""

_PINS = {
    "__int__": ("int", int),
    "__index__": ("a Python integer", int),
    "__float__": ("float", float),
    "__complex__": ("complex", complex),
}
_MISSING = {
    "__index__": "'_DimExpr' object cannot be interpreted as an integer",
    "__float__": "float() argument must be a string or a real number, not '_DimExpr'",
    "__complex__": "complex() first argument must be a string or a number, not '_DimExpr'",
}

_SELF = ("real", "numerator")
_PYTHON_METHODS = ("bit_length", "bit_count", "to_bytes", "as_integer_ratio", "is_integer")
_UFUNC_METHODS = frozenset(
    (
        "sqrt", "log", "log2", "log10", "log1p", "exp", "expm1", "cbrt", "sin", "cos", "tan",
        "tanh",
    )
)  # fmt: skip
"""What NumPy calls on the objects in an array of objects: `np.sqrt(n)` calls `n.sqrt()`."""

_install_lock = threading.Lock()


def _install() -> None:
    """Patch JAX's class of sizes, once; sizes of other scopes behave as before."""
    with _install_lock:
        if _ORIGINAL:
            return
        names = (
            "__eq__ __ne__ __hash__ __bool__ __int__ __index__ __float__ __complex__ __lt__ __le__ "
            "__gt__ __ge__ __str__ __repr__ __format__ __mul__ __rmul__ __pow__ __round__ "
            "__jax_array__ dimension_as_value"
        )
        _ORIGINAL.update({name: getattr(DimExpr, name, None) for name in names.split()})
        for name, method in _methods().items():
            setattr(DimExpr, name, method)
        generic.install()


def _methods() -> dict[str, Any]:
    frame_of = sys._getframe
    original = dict(_ORIGINAL)

    def eq(self: Any, other: Any) -> Any:
        if type(self.scope) is not SizeScope:
            return original["__eq__"](self, other)
        return _equal(self, other, frame_of(1))

    def ne(self: Any, other: Any) -> Any:
        if type(self.scope) is not SizeScope:
            return not original["__eq__"](self, other)
        same = _equal(self, other, frame_of(1))
        if same is NotImplemented or isinstance(same, jax.Array):
            return same if same is NotImplemented else jax.numpy.logical_not(same)
        return not same

    def hashed(self: Any) -> int:
        if type(self.scope) is not SizeScope:
            return int(original["__hash__"](self))
        kind, frame = _asker(frame_of(1))
        if kind != "program" or not _is_ours(self):
            return int(original["__hash__"](self))
        if not _calls_cache(frame):
            _number(self, "the hash", frame_of(1))
        return hash(evaluate(self, self.scope._session.hints))

    def truth(self: Any) -> bool:
        return type(self.scope) is not SizeScope or _truth(self, frame_of(1))

    def ordered(name: str) -> Any:
        def ask(self: Any, other: Any) -> Any:
            if type(self.scope) is not SizeScope:
                return original[name](self, other)
            return _ordered(self, name, other, frame_of(1))

        return ask

    def pinned(name: str) -> Any:
        how, make = _PINS[name]

        def ask(self: Any) -> Any:
            ours = type(self.scope) is SizeScope
            value = _number(self, how, frame_of(1)) if ours else None
            if value is not None:
                return make(value)
            if original[name] is None:
                raise TypeError(_MISSING[name])
            return original[name](self)

        return ask

    def text(self: Any) -> str:
        if type(self.scope) is SizeScope:
            value = _number(self, "the text", frame_of(1))
            if value is not None:
                return str(value)
        return _plain_text(self)

    def formatted(self: Any, spec: str) -> str:
        if type(self.scope) is SizeScope:
            value = _number(self, "the text", frame_of(1))
            if value is not None:
                return format(value, spec)
        return format(_plain_text(self), spec)

    def power(self: Any, exponent: Any, modulo: Any = None) -> Any:
        plain = isinstance(exponent, (float, np.floating)) or (
            isinstance(exponent, (int, np.integer)) and exponent < 0
        )
        if plain and modulo is None and type(self.scope) is SizeScope:
            kind, _ = _asker(frame_of(1))
            if kind == "program":
                return (self / 1) ** exponent  # a weakly typed float, as n ** -0.5 is in Python
        return original["__pow__"](self, exponent, modulo)

    def array(self: Any) -> Any:
        if type(self.scope) is SizeScope and _is_ours(self):
            _, frame = _asker(frame_of(1))
            self.scope._session.converted.append((_plain_text(self), _user_line(frame)))
        return original["__jax_array__"](self)

    def missing(self: Any, name: str) -> Any:
        if not name.startswith("_") and type(self.scope) is SizeScope and _is_ours(self):
            if name in _SELF:
                return self
            if name == "imag":
                return 0
            if name == "denominator":
                return 1
            if name in _PYTHON_METHODS:
                value = _number(self, f"{name}()", frame_of(1))
                if value is not None:
                    return getattr(value, name)
            if name in _UFUNC_METHODS and _asker(frame_of(1))[0] == "program":
                return functools.partial(_ufunc, name, self)
        raise AttributeError(f"'_DimExpr' object has no attribute '{name}'")

    def times(self: Any, other: Any) -> Any:
        if isinstance(other, (list, tuple, str, bytes)) and type(self.scope) is SizeScope:
            value = _number(self, _REPEATS, frame_of(1))
            if value is not None:
                return other * value
        return original["__mul__"](self, other)

    def times_reflected(self: Any, other: Any) -> Any:
        if isinstance(other, (list, tuple, str, bytes)) and type(self.scope) is SizeScope:
            value = _number(self, _REPEATS, frame_of(1))
            if value is not None:
                return other * value
        return original["__rmul__"](self, other)

    def rounded(self: Any, digits: int | None = None) -> Any:
        if digits is None or digits >= 0:
            return self
        value = _number(self, "the digits", frame_of(1))
        return NotImplemented if value is None else round(value, digits)

    def bits(self: Any, other: Any, function: Any, frame: FrameType | None) -> Any:
        if type(self.scope) is not SizeScope:
            return NotImplemented
        mine = _number(self, "the bits", frame)
        if isinstance(other, DimExpr):
            other = _number(other, "the bits", frame)
        if mine is None or not isinstance(other, (int, np.integer)):
            return NotImplemented
        return function(mine, int(other))

    def bitwise(function: Callable[[int, int], int]) -> Any:
        return lambda self, other: bits(self, other, function, frame_of(1))

    def reflected(function: Callable[[int, int], int]) -> Any:
        return lambda self, other: bits(self, other, lambda a, b: function(b, a), frame_of(1))

    def anded(self: Any, other: Any) -> Any:
        if isinstance(other, (int, np.integer)) and other >= 0 and (other & (other + 1)) == 0:
            return self % (int(other) + 1)  # the lowest bits
        return bits(self, other, operator.and_, frame_of(1))

    def right(self: Any, count: Any) -> Any:
        if isinstance(count, (int, np.integer)) and count >= 0:
            return self // (1 << int(count))
        return bits(self, count, operator.rshift, frame_of(1))

    def left(self: Any, count: Any) -> Any:
        if isinstance(count, (int, np.integer)) and count >= 0:
            return self * (1 << int(count))
        return bits(self, count, operator.lshift, frame_of(1))

    def absolute(self: Any) -> Any:
        return self if self >= 0 else -self

    def itself(self: Any) -> Any:
        return self

    methods: dict[str, Any] = {
        "__eq__": eq,
        "__ne__": ne,
        "__hash__": hashed,
        "__bool__": truth,
        "__str__": text,
        "__repr__": text,
        "__format__": formatted,
        "__pow__": power,
        "__mul__": times,
        "__rmul__": times_reflected,
        "__jax_array__": array,
        "dimension_as_value": array,
        "__getattr__": missing,
        "__round__": rounded,
        "__floor__": itself,
        "__ceil__": itself,
        "__trunc__": itself,
        "__pos__": itself,
        "__abs__": absolute,
        "__invert__": lambda self: -self - 1,
        "__and__": anded,
        "__rand__": anded,
        "__rshift__": right,
        "__lshift__": left,
        "__rrshift__": reflected(operator.rshift),
        "__rlshift__": reflected(operator.lshift),
        "__or__": bitwise(operator.or_),
        "__ror__": bitwise(operator.or_),
        "__xor__": bitwise(operator.xor),
        "__rxor__": bitwise(operator.xor),
    }
    methods.update({name: ordered(name) for name in _ORDER})
    methods.update({name: pinned(name) for name in _PINS})
    return methods


def _plain_text(size: Any) -> str:
    return str(_ORIGINAL["__str__"](size))


def _ufunc(name: str, size: Any) -> Any:
    """`np.sqrt(n)` and the like: a strongly typed float, as NumPy's float64 is for JAX."""
    number = size_as_array(size).astype(jax.dtypes.canonicalize_dtype(np.float64))
    return getattr(jax.numpy, name)(number)
