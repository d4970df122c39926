"""The automatic choice of symbols: trace with the most general sizes, and narrow them where the
program or JAX needs less.

A trace answers the questions of the program, and those of JAX's shape rules, with the sizes of the
call (`questions.py`). Most programs need one trace: the answers become guards, and sizes that were
found equal become one symbol afterwards. A size that the program needs as a number becomes a
constant, and the trace restarts; it ends soon after such a question. What JAX still refuses is
read from its message: the edit the message calls for (two sizes are one, a size is a multiple or a
constant) is made, and the trace restarts. Every edit keeps its reason and the line of the program,
for `explain()`. JAX does not check element counts of reshapes; they are checked here.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import jax

from shlo_disc.base.errors import ForkError, UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.sizes.messages import ShapeError
from shlo_disc.jax.sizes.symbolic import EnoughAskedError, Question, Session, as_expr, never_equal
from shlo_disc.jax.versions.symbols.choice import Choice
from shlo_disc.jax_private.sizes import reshapes_of

_log = logging.getLogger("shlo_disc")

T = TypeVar("T")

# A model of 12 layers needs about 5 rounds. After 16, sharing every equal size costs generality but
# saves traces; 200 only ends what would be a mistake of ours.
_PATIENCE = 16
_LIMIT = 200
_RECENT = 16

_FEW = 16
"""Questions that a trace may ask although it is to be repeated: some ms."""


@dataclass
class Found(Generic[T]):
    """The program traced with symbols, and the choice it was traced with."""

    program: T
    traced: Choice
    """The choice the program was traced with."""
    choice: Choice
    """The same with what the trace found out: guards, and equal sizes as one symbol."""
    traces: int
    seconds: float


Lower = Callable[[Any], bool]
"""Whether a traced jaxpr is to be lowered: not if the trace is followed by another one."""


@dataclass
class _Outcome(Generic[T]):
    session: Session
    program: T | None = None
    """None after an error, and if another trace follows."""
    error: ShapeError | None = None
    jaxpr: Any = None
    better: tuple[str, Choice] | None = None
    """The choice to trace with again, and why; see `_Search.better`."""
    asked: int = 0
    """How many answers there were then."""
    settled: Choice | None = None
    """The choice with what the trace found out, if `better` made it."""


def choose_symbols(
    choice: Choice,
    trace: Callable[[Sequence[Any], Lower], T | None],
    check: Callable[[], object],
    *,
    may_pin: bool = True,
) -> Found[T]:
    """The most general program of the choice and its edits that JAX can trace.

    `trace(specs, lower)` traces, and lowers if `lower(jaxpr)`; `check()` traces with the call's
    own sizes, and raises what the user would see from `jax.jit`. With `may_pin` false a size that
    has to be a constant is an error.
    """
    return _Search(trace, check, may_pin).run(choice)


class _Search(Generic[T]):
    def __init__(
        self,
        trace: Callable[[Sequence[Any], Lower], T | None],
        check: Callable[[], object],
        may_pin: bool,
    ) -> None:
        self.trace = trace
        self.check = check
        self.may_pin = may_pin
        self.traces = 0
        self.checked = False
        self.bettered: set[str] = set()

    def run(self, choice: Choice) -> Found[T]:
        """Trace and edit until the program can be traced."""
        start = time.perf_counter()
        outcome = self.attempt(choice)
        while True:
            if self.traces > _LIMIT:
                choice.pin(choice.live(), "no choice of symbols was found", "")
                outcome = self.attempt(choice)
            error, session = outcome.error, outcome.session
            if self.pin_numbers(choice, session):
                outcome = self.attempt(choice)
                continue
            if error is None:
                if self.pin_wrong_reshape(choice, outcome.jaxpr):
                    outcome = self.attempt(choice)
                    continue
                # Lowering may have asked more than the trace.
                if len(session.questions) > outcome.asked:
                    outcome.better = self.better(choice, outcome)
                if outcome.better is not None:
                    reason, choice = outcome.better
                    self.bettered.add(reason)
                    outcome = self.attempt(choice)
                    continue
                assert outcome.program is not None
                final = outcome.settled or _settled(_merged(choice, outcome), outcome)
                seconds = time.perf_counter() - start
                return Found(outcome.program, choice, final, self.traces, seconds)
            if not choice.live():
                raise error.error
            if _merge(choice, session.questions.values()):
                outcome = self.attempt(choice)
                continue
            if self.traces >= 2:
                self.be_sure()
            if self.traces > _PATIENCE and choice.merge_equal_sizes():
                outcome = self.attempt(choice)
                continue
            outcome = self.repair(choice, error, session)

    def pin_numbers(self, choice: Choice, session: Session) -> bool:
        """Make the sizes constants that the program, or a rule of JAX, needs as numbers, and those
        that were found equal to one of them.
        """
        changed = False
        while True:
            found = [self.pin_number(choice, question) for question in session.questions.values()]
            if not any(found):
                return changed
            changed = True

    def pin_number(self, choice: Choice, question: Question) -> bool:
        """Make the size a constant of which a question says so."""
        a, b = choice.current(question.left), choice.current(question.right)
        if question.relation != "==" or a.is_const == b.is_const:
            return False
        size, value = (a, b) if b.is_const else (b, a)
        symbol = _lone_symbol(size)
        if symbol is None or choice.hints.get(symbol) is None:
            return False
        if not question.right.is_const and value.value <= 1:
            return False  # two sizes were compared: with 1 or 0 JAX may not compare the other
        if not self.may_pin:
            raise _needs_constant(
                question,
                "dynamic=True keeps every size a symbol; dynamic='auto' would specialise it",
            )
        if symbol in choice.fixed and question.needs_number:
            raise _needs_constant(question, f"the size {symbol} was stated in `shapes`")
        return choice.pin([symbol], question.reason, question.where)

    def pin_wrong_reshape(self, choice: Choice, jaxpr: Any) -> bool:
        """Make the sizes of a reshape constants that JAX refuses at the sizes of this call.

        The program catches JAX's error, which only constants raise.
        """
        wrong = next((r for r in _reshapes(choice, jaxpr) if r.is_wrong(choice)), None)
        if wrong is None:
            return False
        self.be_sure()  # an error that nobody catches is said best by JAX
        symbols = (wrong.before.symbols() | wrong.after.symbols()) - choice.fixed
        if not self.may_pin or not choice.pin(sorted(symbols), wrong.reason, wrong.where):
            raise jax.errors.InconclusiveDimensionOperation(
                f"{wrong.reason} ({wrong.where}) is refused at the sizes of this call, which the "
                "program notices; its sizes would have to be constants"
            )
        return True

    def be_sure(self) -> None:
        """Raise the user's own error, if there is one, before searching on."""
        if not self.checked:
            self.checked = True
            self.check()

    def attempt(self, choice: Choice) -> _Outcome[T]:
        self.traces += 1
        is_early = self.traces <= 2  # JAX's caches keep `noted`: it must not hold the program
        specs, scope = choice.specs()
        with scope.asking(choice.hints, grows=True) as session:
            outcome: _Outcome[T] = _Outcome(session)

            def noted(question: Question) -> None:
                # More such sizes are likely near this one: the trace goes on for a while. A trace
                # that ends with its first question has cost little.
                if _needs_number(choice, question):
                    is_first = is_early and session.count == 0
                    session.last = 0 if is_first else max(session.count * 5 // 4, _FEW)

            session.noted = noted

            def lower(jaxpr: Any) -> bool:
                outcome.jaxpr = jaxpr
                if self.will_pin(choice, session):
                    return False
                outcome.better = self.better(choice, outcome)
                return outcome.better is None

            try:
                outcome.program = self.trace(specs, lower)
            except (UnsupportedError, ForkError):
                raise
            except EnoughAskedError:
                _log.debug("symbols: the trace ended after %d questions", session.count)
            except Exception as error:
                # Whatever it is: with no symbols left to blame, run() raises it.
                outcome.error = ShapeError(error, dict(choice.hints))
        return outcome

    def will_pin(self, choice: Choice, session: Session) -> bool:
        """True if `pin_numbers` will change the choice, or raise."""
        try:
            return self.pin_numbers(choice.copy(), session)
        except jax.errors.InconclusiveDimensionOperation:
            return True

    def better(self, choice: Choice, outcome: _Outcome[T]) -> tuple[str, Choice] | None:
        """A choice with what a trace found out, and its name; None where another trace with it
        would write the same program. Each is tried once.

        `one`: sizes that are equal. Known from the start, JAX may know that a reshape of them fits.
        `multiples`: sizes that a number divides. Then JAX writes no remainders.
        """
        outcome.asked, outcome.settled = len(outcome.session.questions), None
        reshapes = list(_reshapes(choice, outcome.jaxpr))
        if any(reshape.is_wrong(choice) for reshape in reshapes):
            return None
        merged = _merged(choice, outcome)
        if reshapes and "one" not in self.bettered:
            gone = _replaced(choice, merged).keys()
            if any(reshape.symbols & gone for reshape in _reshapes(merged, outcome.jaxpr)):
                return "one", merged
        final = outcome.settled = _settled(merged, outcome)
        if "multiples" in self.bettered:
            return None
        is_renamed = all(size.lone_atom for size in _replaced(choice, final).values())
        if is_renamed or not _has_remainders(final):
            return None
        final.guards = [g for g in final.guards if g.stated or g.relation == ">="]
        return "multiples", final

    def repair(self, choice: Choice, error: ShapeError, session: Session) -> _Outcome[T]:
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
        constant = error.must_be_constant() or _wanted_number(choice, error, session)
        pinnable = choice.hints.keys() - choice.fixed
        named = [s for s in (constant.symbols() if constant else error.named()) if s in pinnable]
        clear = constant is not None or len(named) == 1
        if clear and choice.pin(named, error.sentence, error.where):
            return self.attempt(choice)
        for edit in self.guesses(choice, error, session, named):
            trial = choice.copy()
            if not edit(trial):
                continue
            outcome = self.attempt(trial)
            if outcome.error is None or outcome.error.fingerprint != error.fingerprint:
                choice.__dict__.update(trial.__dict__)
                return outcome
        # Several sizes as numbers, then: those that were named, or all of them.
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
        self, choice: Choice, error: ShapeError, session: Session, named: list[str]
    ) -> Iterator[Callable[[Choice], bool]]:
        """Edits to try one by one when the message does not say which sizes are meant.

        The sizes JAX compared last, just before it gave up, come first.
        """
        tried: set[tuple[Expr, Expr]] = set()
        for pair in reversed(session.unknown[-_RECENT:]):
            sizes = _read(choice, pair)
            if sizes is None or sizes in tried or choice.value(sizes[0]) != choice.value(sizes[1]):
                continue
            tried.add(sizes)
            yield functools.partial(_unified, sizes, error)
        for symbol in dict.fromkeys([*(s for s in choice.live() if s in named), *choice.live()]):
            if symbol not in choice.fixed:
                yield functools.partial(_pinned, symbol, error)
        yield Choice.merge_equal_sizes  # several together, as equal as they are in this call


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
            if choice.holds_from_on(a, b):
                changed |= choice.guard(a, "==", b, error.sentence, error.where)
                continue
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


def _read(choice: Choice, pair: tuple[Any, Any]) -> tuple[Expr, Expr] | None:
    try:
        sizes = as_expr(pair[0]), as_expr(pair[1])
        choice.value(sizes[0] + sizes[1])
    except (KeyError, ValueError):  # sizes of another scope, an export inside the function
        return None
    return sizes


_NUMBER_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


def _wanted_number(choice: Choice, error: ShapeError, session: Session) -> Expr | None:
    """The size whose number was wanted when the trace failed, for errors that do not name sizes."""
    if isinstance(error.error, _NUMBER_ERRORS):
        # A number the program made of a size (n / 2) is traced, and was used as a Python number.
        candidates = session.converted
    elif isinstance(error.error, TypeError) and "_DimExpr" in error.text:
        candidates = session.refused
    else:
        return None
    for text, _ in reversed(candidates):
        size = choice.current(Expr.parse(text))
        if size.symbols() & (choice.hints.keys() - choice.fixed):
            return size
    return None


def _needs_number(choice: Choice, question: Question) -> bool:
    """True if a question says by itself that a size is a constant."""
    if question.relation != "==" or not question.right.is_const:
        return False
    return choice.hints.get(_lone_symbol(question.left) or "") is not None


def _lone_symbol(size: Expr) -> str | None:
    """The symbol of which a size is a linear function: its value decides the symbol's."""
    symbols = size.symbols()
    plain = len(symbols) == 1 and size.is_polynomial
    degrees = [sum(power for _, power in monomial) for monomial, _ in size.terms]
    return next(iter(symbols)) if plain and max(degrees) == 1 else None


def _needs_constant(question: Question, why_not: str) -> Exception:
    where = f" ({question.where})" if question.where else ""
    return jax.errors.InconclusiveDimensionOperation(
        f"{question.reason}{where}, which makes the size a constant, but {why_not}"
    )


def _merged(choice: Choice, outcome: _Outcome[Any]) -> Choice:
    """The choice with one symbol for sizes that were found equal."""
    merged = choice.copy()
    _merge(merged, outcome.session.questions.values())
    return merged


def _settled(merged: Choice, outcome: _Outcome[Any]) -> Choice:
    """`merged` with all that a trace found out."""
    final = merged.copy()
    _settle_reshapes(final, outcome.jaxpr)
    # Last: a reshape may have made t // 4 a symbol, which another size can be.
    _settle(final, outcome.session.questions.values())
    return final


def _merge(choice: Choice, questions: Iterable[Question]) -> bool:
    """Sizes that were found equal become one symbol; True if something changed."""
    changed = False
    for question in questions:
        a, b = choice.current(question.left), choice.current(question.right)
        if question.relation != "==" or a == b:
            continue
        even_fixed = question.by_program
        found = choice.unify(a, b, question.reason, question.where, even_fixed=even_fixed)
        changed |= bool(found)
    return changed


def _settle(choice: Choice, questions: Iterable[Question]) -> None:
    """Turn every answer into what it says of the sizes: one symbol for two, or a guard."""
    questions = list(questions)
    _merge(choice, questions)
    for question in questions:
        a, b = choice.current(question.left), choice.current(question.right)
        if a == b or (question.relation == "!=" and never_equal(a, b)):
            continue
        choice.guard(a, question.relation, b, question.reason, question.where)


def _replaced(before: Choice, after: Choice) -> dict[str, Expr]:
    """The symbols that were replaced since `before`, and what each became."""
    gone = before.hints.keys() - after.hints.keys()
    return {symbol: after.current(Expr.symbol(symbol)) for symbol in gone}


def _has_remainders(choice: Choice) -> bool:
    """True if sizes are tied by equations with quotients or remainders."""
    return any(
        guard.relation == "=="
        and any(atom.op in ("floordiv", "mod") for atom in (guard.left - guard.right).atoms())
        for guard in choice.guards
    )


class _Reshape(NamedTuple):
    """A reshape in a traced program: the element counts on both sides."""

    before: Expr
    after: Expr
    reason: str
    where: str
    symbols: frozenset[str]
    """The symbols it was traced with."""

    def is_wrong(self, choice: Choice) -> bool:
        """True if the counts differ in the call at hand."""
        return choice.value(self.before) != choice.value(self.after)


def _reshapes(choice: Choice, jaxpr: Any) -> Iterator[_Reshape]:
    """The reshapes of symbolic sizes, in terms of the symbols that `choice` uses now."""
    for before, after, where in reshapes_of(jaxpr):
        try:
            traced = [Expr.product(map(Expr.parse, texts)) for texts in (before, after)]
            a, b = map(choice.current, traced)
            choice.value(a + b)
        except (KeyError, ValueError):  # sizes of another scope
            continue
        if a != b:
            reason = f"reshape of ({', '.join(before)}) to ({', '.join(after)})"
            symbols = traced[0].symbols() | traced[1].symbols()
            yield _Reshape(a, b, reason, where, symbols)


def _settle_reshapes(choice: Choice, jaxpr: Any) -> None:
    """JAX does not check the element count of a reshape of symbolic sizes: it becomes a fact."""
    for reshape in _reshapes(choice, jaxpr):
        _settle_count(choice, *reshape[:4])


def _settle_count(choice: Choice, a: Expr, b: Expr, reason: str, where: str) -> None:
    if choice.holds_from_on(a, b):
        choice.guard(a, "==", b, reason, where)
        return
    for atom in sorted((a - b).atoms()):
        # t // 4 and t % 4: where t is a multiple of 4, let it be one always.
        if atom.op in ("floordiv", "mod") and atom.args[1].is_const:
            divided, factor = atom.args[0], atom.args[1].value
            symbol = min(divided.symbols(), default="")
            alone = symbol != "" and divided == Expr.symbol(symbol)
            if alone and choice.multiple(symbol, factor, reason, where):
                a, b = choice.current(a), choice.current(b)
    if a != b and not choice.unify(a, b, reason, where):
        choice.guard(a, "==", b, reason, where)
