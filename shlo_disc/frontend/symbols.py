"""The automatic choice of symbols: trace with the most general sizes, and let JAX's complaints
narrow them.

Each round traces the function with the sizes chosen so far. A complaint names sizes; the edit it
calls for (two sizes are one, a size is a multiple, a size is a constant, a bound) is made, and the
trace restarts. Every edit keeps its reason and the line of the program, for `explain()`. Three
things JAX does not check are checked here: `==` of sizes asked by the program, element counts of
reshapes, and that the program is right for the call at all.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.errors import UnsupportedError
from shlo_disc.frontend.choice import Choice
from shlo_disc.frontend.messages import ShapeError
from shlo_disc.jax_private import Comparison, comparisons_watched, reshapes_of

__all__ = ["Found", "choose_symbols"]

_log = logging.getLogger("shlo_disc")

T = TypeVar("T")

# A model of 12 layers needs about 5 rounds. After 16, sharing every equal size costs generality but
# saves traces; 200 only ends what would be a mistake of ours.
_PATIENCE = 16
_LIMIT = 200
_RECENT = 16


@dataclass
class Found(Generic[T]):
    """The program traced with symbols, and the choice it was traced with."""

    program: T
    choice: Choice
    traces: int
    seconds: float


@dataclass
class _Outcome(Generic[T]):
    program: T | None
    error: ShapeError | None
    comparisons: list[Comparison]


def choose_symbols(
    choice: Choice,
    trace: Callable[[Sequence[Any]], T],
    jaxpr_of: Callable[[T], Any],
    check: Callable[[], object],
    *,
    may_pin: bool = True,
) -> Found[T]:
    """The most general program of the choice and its edits that JAX can trace.

    `trace(specs)` traces and lowers; `check()` traces with the call's own sizes, and raises what
    the user would see from `jax.jit`. With `may_pin` false a size that has to be a constant is an
    error.
    """
    return _Search(trace, jaxpr_of, check, may_pin).run(choice)


class _Search(Generic[T]):
    def __init__(
        self,
        trace: Callable[[Sequence[Any]], T],
        jaxpr_of: Callable[[T], Any],
        check: Callable[[], object],
        may_pin: bool,
    ) -> None:
        self.trace = trace
        self.jaxpr_of = jaxpr_of
        self.check = check
        self.may_pin = may_pin
        self.traces = 0
        self.checked = False

    def run(self, choice: Choice) -> Found[T]:
        """Trace and edit until the program can be traced."""
        start = time.perf_counter()
        outcome = self.attempt(choice)
        while True:
            if self.traces > _LIMIT:
                choice.pin(choice.live(), "no choice of symbols was found", "")
                outcome = self.attempt(choice)
            if _settle_comparisons(choice, outcome.comparisons):
                outcome = self.attempt(choice)
                continue
            error = outcome.error
            if error is None:
                program = outcome.program
                assert program is not None
                if _settle_reshapes(choice, self.jaxpr_of(program), self.be_sure):
                    outcome = self.attempt(choice)
                    continue
                seconds = time.perf_counter() - start
                return Found(program, choice, self.traces, seconds)
            if not choice.live():
                raise error.error
            if self.traces >= 2:
                self.be_sure()
            if self.traces > _PATIENCE and choice.merge_equal_sizes():
                outcome = self.attempt(choice)
                continue
            outcome = self.repair(choice, error, outcome.comparisons)

    def be_sure(self) -> None:
        """Raise the user's own error, if there is one, before searching on."""
        if not self.checked:
            self.checked = True
            self.check()

    def attempt(self, choice: Choice) -> _Outcome[T]:
        self.traces += 1
        with comparisons_watched() as log:
            try:
                program = self.trace(choice.specs())
            except UnsupportedError:
                raise
            except Exception as error:
                # Whatever it is: with no symbols left to blame, run() raises it.
                return _Outcome(None, ShapeError(error, dict(choice.hints)), log)
        return _Outcome(program, None, log)

    def repair(
        self, choice: Choice, error: ShapeError, comparisons: list[Comparison]
    ) -> _Outcome[T]:
        """Make the edit the complaint calls for, and trace again."""
        if _bound(choice, error) or _multiple(choice, error) or _equalities(choice, error):
            _log.debug("symbols: %s -> %s", error.sentence, [str(n) for n in choice.notes[-1:]])
            return self.attempt(choice)
        self.be_sure()
        if _even_division(choice, error):
            return self.attempt(choice)
        if not self.may_pin:
            error.error.add_note(
                "dynamic=True keeps every size a symbol, and this program needs a constant; "
                "dynamic='auto' would specialise it"
            )
            raise error.error
        constant = error.must_be_constant()
        pinnable = choice.hints.keys() - choice.fixed
        named = [s for s in (constant.symbols() if constant else error.named()) if s in pinnable]
        clear = constant is not None or len(named) == 1
        if clear and choice.pin(named, error.sentence, error.where):
            return self.attempt(choice)
        for edit in self.guesses(choice, error, comparisons, named):
            trial = choice.copy()
            if not edit(trial):
                continue
            outcome = self.attempt(trial)
            if outcome.error is None or outcome.error.fingerprint != error.fingerprint:
                choice.__dict__.update(trial.__dict__)
                return outcome
        # Several sizes together, then: those that were named, or all of them.
        if not choice.pin(
            named or [s for s in choice.live() if s in pinnable], error.sentence, error.where
        ):
            error.error.add_note(
                f"the sizes {', '.join(sorted(choice.fixed))} were stated in `shapes`, and this "
                "program needs one of them to be a constant"
            )
            raise error.error
        return self.attempt(choice)

    def guesses(
        self, choice: Choice, error: ShapeError, comparisons: list[Comparison], named: list[str]
    ) -> Iterator[Callable[[Choice], bool]]:
        """Edits to try one by one when the message does not say which sizes are meant.

        The sizes JAX compared last, just before it gave up, come first.
        """
        tried: set[tuple[str, str]] = set()
        for comparison in reversed(comparisons[-_RECENT:]):
            pair = (comparison.left, comparison.right)
            sizes = _read(choice, comparison)
            if pair in tried or sizes is None or choice.value(sizes[0]) != choice.value(sizes[1]):
                continue
            tried.add(pair)
            yield functools.partial(_unified, sizes, error)
        for symbol in dict.fromkeys([*(s for s in choice.live() if s in named), *choice.live()]):
            if symbol not in choice.fixed:
                yield functools.partial(_pinned, symbol, error)


def _unified(sizes: tuple[Expr, Expr], error: ShapeError, choice: Choice) -> bool:
    return bool(choice.unify(*sizes, error.sentence, error.where))


def _pinned(symbol: str, error: ShapeError, choice: Choice) -> bool:
    return choice.pin([symbol], error.sentence, error.where)


def _bound(choice: Choice, error: ShapeError) -> bool:
    """`'a' < 'b' is inconclusive`, or a min or max: what is true of this call becomes a guard."""
    found = error.comparison()
    if found is not None:
        a, relation, b = found
        va, vb = choice.value(a), choice.value(b)
        # Everything as left >= right, which is what a symbolic scope understands.
        if relation in (">=", "<"):
            left, right = (a, b) if va >= vb else (b, a + 1)
        else:
            left, right = (b, a) if vb >= va else (a, b + 1)
        reason = f"the program asks whether {a} {relation} {b}"
        return choice.guard(left, ">=", right, reason, error.where)
    others = {size for shape in error.shapes() for size in shape}
    for name, a, b in error.functions("min", "max"):
        va, vb = choice.value(a), choice.value(b)
        left, right = (a, b) if va >= vb else (b, a)
        # Equal in this call: the side that the complaint also has by itself shall be the answer.
        if va == vb and (right if name == "min" else left) not in others:
            left, right = right, left
        if choice.guard(left, ">=", right, f"decides {name}({a}, {b})", error.where):
            return True
    return False


def _multiple(choice: Choice, error: ShapeError) -> bool:
    """`mod(s, 4)` in a complaint: where s is a multiple of 4, let it be one always."""
    for _, a, b in error.functions("mod", "floordiv"):
        if not b.is_const or len(a.terms) != 1:
            continue
        monomial, coefficient = a.terms[0]
        if len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0].op:
            continue
        factor = b.value
        while coefficient % 2 == 0 and factor % 2 == 0:
            coefficient, factor = coefficient // 2, factor // 2
        if choice.multiple(monomial[0][0].key, factor, error.sentence, error.where):
            return True
    return False


def _equalities(choice: Choice, error: ShapeError) -> bool:
    """Sizes set against each other in a complaint, equal in this call: equal always."""
    changed = False
    replaced: dict[str, Expr] = {}
    for a, b in error.pairs():
        for _ in range(len(replaced) + 1):  # replacements may themselves have been replaced
            a, b = a.substitute(replaced), b.substitute(replaced)
        if a == b or "mod" in str(a) + str(b):
            continue
        va, vb = choice.value(a), choice.value(b)
        if va == vb:
            solution = choice.unify(a, b, error.sentence, error.where)
        elif error.is_broadcast and 1 in (va, vb):
            one = a if va == 1 else b
            symbols = [s for s in one.symbols() if s not in choice.fixed]
            solution = {s: Expr.const(choice.hints[s]) for s in symbols}
            if not choice.pin(symbols, error.sentence, error.where):
                continue
        else:
            continue
        if solution:
            replaced.update(solution)
            changed = True
    return changed


def _even_division(choice: Choice, error: ShapeError) -> bool:
    """`Cannot divide evenly` (reshape with -1): the last fitting size becomes a multiple."""
    if "Cannot divide evenly" not in error.text:
        return False
    shapes = error.shapes()
    if len(shapes) < 2:
        return False
    operand, target = shapes[:2]
    factor = Expr.product(size for size in target if size.is_const)
    for size in operand:
        if size.is_const and size.value and factor.value % size.value == 0:
            factor = factor // size
    kept = frozenset[str]().union(*(size.symbols() for size in target))
    for size in reversed(operand):
        for symbol in size.symbols() - kept:
            if choice.multiple(symbol, abs(factor.value), error.sentence, error.where):
                return True
    return False


def _read(choice: Choice, comparison: Comparison) -> tuple[Expr, Expr] | None:
    try:
        sizes = Expr.parse(comparison.left), Expr.parse(comparison.right)
        choice.value(sizes[0] + sizes[1])
    except (KeyError, ValueError):  # sizes of another scope, an export inside the function
        return None
    return sizes


def _settle_comparisons(choice: Choice, comparisons: list[Comparison]) -> bool:
    """Turn what the program asked of sizes into guards; True when the trace took a wrong branch."""
    for comparison in comparisons:
        sizes = _read(choice, comparison) if comparison.user else None
        if sizes is None:
            continue
        a, b = sizes
        reason = f"the program compares {a} with {b}"
        if choice.value(a) == choice.value(b):
            if choice.unify(a, b, reason, comparison.where, even_fixed=True) is None:
                choice.pin(a.symbols() | b.symbols(), reason, comparison.where)
            return True
        if not _never_equal(a, b):
            choice.guard(a, "!=", b, reason, comparison.where)
    return False


def _never_equal(a: Expr, b: Expr) -> bool:
    """Symbols are at least 1: a sum of positive terms, or of negative ones, is not zero."""
    difference = a - b
    signs = {coefficient > 0 for _, coefficient in difference.terms}
    plain = all(not atom.op for atom in difference.atoms())
    return plain and len(signs) == 1


def _settle_reshapes(choice: Choice, jaxpr: Any, be_sure: Callable[[], None]) -> bool:
    """JAX does not check the element count of a reshape of symbolic sizes; True to trace again."""
    for before, after, where in reshapes_of(jaxpr):
        try:
            a = Expr.product(Expr.parse(str(size)) for size in before)
            b = Expr.product(Expr.parse(str(size)) for size in after)
            va, vb = choice.value(a), choice.value(b)
        except (KeyError, ValueError):  # sizes of another scope
            continue
        if a == b:
            continue
        reason = f"reshape of ({_comma(before)}) to ({_comma(after)})"
        if va != vb:
            be_sure()  # the user's program is wrong for this call: JAX says so better than we could
        for atom in sorted((a - b).atoms()):
            # t // 4 and t % 4: where t is a multiple of 4, let it be one always.
            if atom.op in ("floordiv", "mod") and atom.args[1].is_const:
                divided, factor = atom.args[0], atom.args[1].value
                symbol = min(divided.symbols(), default="")
                alone = symbol != "" and divided == Expr.symbol(symbol)
                if alone and choice.multiple(symbol, factor, reason, where):
                    return True
        if choice.unify(a, b, reason, where):
            return True
        choice.guard(a, "==", b, reason, where)
    return False


def _comma(shape: Sequence[Any]) -> str:
    return ", ".join(str(size) for size in shape)
