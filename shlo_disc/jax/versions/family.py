"""The versions of a function for one structure and types of arguments: found, or made."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from shlo_disc import ral
from shlo_disc.base import locks
from shlo_disc.base.errors import ForkError, ShapeMismatchError, UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.base.threads import lets_others_run
from shlo_disc.driver.kept import keep_choice, kept_choice
from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.arguments.plan import Note, Pattern
from shlo_disc.jax.arguments.stated import stated_pattern, stated_shapes
from shlo_disc.jax.calls.call import Call, Options
from shlo_disc.jax.calls.compiled_call import CompiledCall
from shlo_disc.jax.equations.parameters import weights
from shlo_disc.jax.sizes.fresh import FreshSizes, learned
from shlo_disc.jax.sizes.nesting import PartOfOuterError, one_at_a_time
from shlo_disc.jax.sizes.spellings import advice
from shlo_disc.jax.versions.confirmations import Confirmation
from shlo_disc.jax.versions.modes import Event, Mode, next_mode
from shlo_disc.jax.versions.symbols.choice import Choice, choice_of, data_groups, first_choice
from shlo_disc.jax.versions.symbols.search import Found, Lower, choose_symbols
from shlo_disc.jax.versions.tracing import (
    RefError,
    Traced,
    check,
    confirmed,
    trace_with_symbols,
)
from shlo_disc.jax.versions.versions import Version

_log = logging.getLogger("shlo_disc")

RECOMPILE_LIMIT = 8
"""More versions than this of one function earn a warning, as in torch.compile."""

_EVERY_SIZE = "every size is a constant"


@dataclass
class Family:
    """The versions for one structure, dtypes, static arguments and configuration.

    Versions are looked for without a lock; one thread at a time traces a new one. Nobody waits for
    a version that does not fit his call, beyond its trace.
    """

    options: Options
    captures: bool = False
    """The function reads variables of outer traces: no version knows what else it reads there."""
    mode: Mode = Mode.WHOLE
    """What new versions are, and who runs the calls."""
    may_capture: bool = False
    """Calls like these have read variables of outer traces, which made them calls of others."""
    blocks: dict[tuple[Any, ...], str] = field(default_factory=dict)
    """Why calls with arrays at several places cannot run there in blocks; empty if they can."""
    versions: tuple[Version, ...] = ()
    _data: frozenset[int] = frozenset()
    """Arguments with many leaves that are no parameters."""
    _why_numbers: Note | None = None
    """Why the program is refused with symbols, in mode NUMBERS."""
    _differs: bool = False
    """True once the program did something else with numbers than with symbols, unheard."""
    _chosen: dict[tuple[tuple[int, ...], ...], Version] = field(default_factory=dict)
    """Versions for the very shapes at which an older one fits, but may not be used."""
    offers: list[tuple[ral.SizePattern, ral.DispatchEntry]] = field(default_factory=list)
    """Versions among which the C++ dispatcher finds the one for new sizes, as `find` would."""
    _first_call: Callable[[], Call] | None = None
    """Makes the call that an earlier process made, without its arrays: it has no version yet."""
    _has_first_call: bool = False
    _counting: Any = field(default_factory=locks.lock)
    _tracing: Any = field(default_factory=locks.reentrant_lock)

    def keeps_first_call(self, call: Callable[[], Call]) -> bool:
        """Take over what makes the call that an earlier process made; False where it came before.

        It comes again as an array of another class, and from other threads.
        """
        with self._counting:
            is_new, self._has_first_call = not self._has_first_call, True
        if is_new:
            self._first_call = call
        return is_new

    @property
    def first_call(self) -> Call | None:
        """The call that an earlier process made, without its arrays, if it has no version yet."""
        make = self._first_call
        return None if make is None else make()

    def version(self, call: Call) -> Version:
        """The version for a call, traced; it may have to be compiled.

        Raises what the function raises when it is traced, ShapeMismatchError when the call breaks
        what was stated, UnsupportedError for what is not compiled.
        """
        version = self.find(call)
        if version is not None and not self.checked:
            return version
        with one_at_a_time(self._tracing):
            first, self._first_call = self.first_call, None
            if first is not None and not self.versions:
                # The version that the earlier process began with; its program is counted.
                self._new_in_mode(first).compiles_uncounted()
            version = self.find(call)  # another thread may have made it
            if version is None:
                return self._new_in_mode(call)
            return self._confirmed(call, version) if self.checked else version

    def ready(self, call: Call) -> tuple[Version, CompiledCall]:
        """The version for a call, and what it is compiled to."""
        return self.compiled(call, self.version(call))

    def compiled(
        self, call: Call, version: Version, *, soon: bool = False
    ) -> tuple[Version, CompiledCall]:
        """`version` of a call and what it is compiled to; another one where it is refused.

        `soon`: see :meth:`Version.soon`.
        """
        while True:
            try:
                return version, version.soon() if soon else version.executable
            except UnsupportedError as error:
                made = self._instead(call, version, str(error))
                if made is None:
                    raise
                version = made

    def update_offers(self) -> None:
        """Make `offers` anew; to be called when versions came, or one was compiled.

        It ends before the first version that needs Python: an older one must not be passed by.
        """
        rows = []
        if not self.checked and not self._chosen:
            for version in self.versions:
                if version.offer is None:
                    break
                rows.append(version.offer)
        self.offers[:] = rows

    @property
    def count(self) -> int:
        """How many versions there are, or would be if the call of an earlier process had one."""
        return len(self.versions) or int(self._first_call is not None)

    @property
    def checked(self) -> bool:
        """True if every new shape is compared with a trace at its sizes."""
        return self.options.checked or self._differs or self.captures

    def find(self, call: Call) -> Version | None:
        """The version for these shapes: the oldest one that fits.

        Versions may add in different orders. Later versions change nothing for shapes that ran,
        however they are called: a result's bits do not depend on other calls.
        """
        chosen = self._chosen.get(call.shapes)
        if chosen is not None:
            return chosen
        for version in self.versions:
            if version.pattern.solve(call.shapes) is not None:
                return version
        return None

    def left_to_jax(self) -> Family | None:
        """The family in mode BY_JAX, after a call was refused; None where that is an error."""
        mode = self._after(self.mode, Event.CALL_REFUSED)
        return None if mode is None else Family(self.options, self.captures, mode, self.may_capture)

    def _after(self, mode: Mode, event: Event) -> Mode | None:
        return next_mode(mode, event, may_use_xla=self.options.may_use_xla)

    def _is_past(self, mode: Mode, event: Event) -> bool:
        """True once the family has left `mode`, in which the event has happened."""
        if self.mode is mode:  # no other thread was here
            self.mode = self._after(mode, event) or mode
        return self.mode is not mode

    def _new_in_mode(self, call: Call) -> Version:
        """A new version; where its trace is refused, one of the next mode."""
        while True:
            mode = self.mode
            try:
                return self._new(call)
            except (PartOfOuterError, RefError):
                raise
            except UnsupportedError:
                if not self._is_past(mode, Event.REFUSED):
                    raise

    def _instead(self, call: Call, version: Version, why: str) -> Version | None:
        """A version of the next mode, in place of one that the compiler refuses; None for none."""
        with one_at_a_time(self._tracing):
            if version not in self.versions:  # another thread was here
                return self.version(call)
            made = self._at_numbers(call, version, Note(_EVERY_SIZE, why))
            if made is not None or not self._is_past(version.mode, Event.REFUSED):
                return made
            self._remove(version)
            return self._new(call)

    @lets_others_run
    def _new(self, call: Call) -> Version:
        """A new version, traced but not compiled, which `find` returns from now on."""
        options = self.options
        stated = stated_shapes(
            options.shapes, call.dynamic, call.named, call.top_names, call.own_leaves
        )
        stated += [None] * len(call.captured)
        rules = stated_pattern(stated, options.constraints, call.leaves)
        broken = rules.mismatch(call.shapes)
        if broken is not None:
            raise ShapeMismatchError(f"{options.name}: {broken}")
        # `_` is the size at hand, as in jax.export.
        said = [
            None
            if sizes is None
            else tuple(
                Expr.const(value) if size is None else size
                for size, value in zip(sizes, leaf.shape, strict=True)
            )
            for sizes, leaf in zip(stated, call.leaves, strict=True)
        ]
        before = [version.pattern for version in self.versions]
        if self.mode is Mode.NUMBERS and self._why_numbers is not None:
            return self._for_these_shapes(call, self._why_numbers)
        version = self._traced(call, options.dynamic, said, before)
        self._report(call, version)
        self._add(version)
        return version

    def _add(self, version: Version) -> None:
        self.versions = (*self.versions, version)
        self.update_offers()

    def specialised(self, call: Call, why: ShapeMismatchError) -> Version:
        """A version for the very shapes of a call that the compiled program refused."""
        # The function itself may refuse them too, and say so better.
        check(self.options, call, FreshSizes())
        return self._told_for_these_shapes(call, Note(_EVERY_SIZE, str(why)))

    def _at_numbers(self, call: Call, version: Version, why: Note) -> Version | None:
        """A version for the very shapes of a call, compiled, in place of one that is refused.

        Later sizes get versions of their own, too. None where constants are refused as well, or are
        not allowed.
        """
        may_be = self.mode is version.mode and self.options.dynamic is not True
        after = self._after(self.mode, Event.NEEDS_NUMBERS)
        if not may_be or after is None or not version.pattern.symbols:
            return None
        self._remove(version)
        try:
            made = self._for_these_shapes(call, why)
            made.executable  # noqa: B018 - compiles
        except UnsupportedError:
            self._remove(self._chosen.get(call.shapes))
            return None
        self._why_numbers = why
        self._is_past(version.mode, Event.NEEDS_NUMBERS)
        self._tell_shapes(call, why)
        return made

    def _remove(self, version: Version | None) -> None:
        self.versions = tuple(v for v in self.versions if v is not version)
        self._chosen = {at: v for at, v in self._chosen.items() if v is not version}

    def _confirmed(self, call: Call, version: Version) -> Version:
        """`version`, or one for the very shapes of a call at which the program differs from it."""
        problem = version.unlike(
            call.shapes, lambda shapes: check(self.options, call, FreshSizes(version.fresh), shapes)
        )
        if problem is None:
            return version
        text, where = problem
        note = Note(_EVERY_SIZE, f"the program differs at other sizes: {text}", where)
        return self._told_for_these_shapes(call, note)

    def _told_for_these_shapes(self, call: Call, why: Note) -> Version:
        with one_at_a_time(self._tracing):
            self._tell_shapes(call, why)
            return self._for_these_shapes(call, why)

    def _tell_shapes(self, call: Call, why: Note) -> None:
        place = f" ({why.where})" if why.where else ""
        _log.warning(
            "%s: compiling for shapes %s only, because %s%s",
            self.options.name,
            call.shapes,
            why.reason,
            place,
        )

    def _for_these_shapes(self, call: Call, why: Note) -> Version:
        version = self._traced(call, False, [None] * len(call.leaves), [])
        version.pattern = replace(version.pattern, notes=(*version.pattern.notes, why))
        self._chosen[call.shapes] = version
        self._add(version)
        return version

    def _traced(
        self,
        call: Call,
        dynamic: bool | str,
        said: Sequence[Sequence[Expr | None] | None],
        before: Sequence[Pattern],
    ) -> Version:
        options = self.options
        confirmation = Confirmation(options, call)
        blueprint, fresh = call.blueprint(), FreshSizes()
        # Versions hold `again`, which must not hold the family.
        mode, whole = self.mode, self.mode in (Mode.WHOLE, Mode.NUMBERS)

        def trace(specs: Sequence[Any], lower: Lower) -> Traced | None:
            return trace_with_symbols(options, blueprint, specs, fresh, lower, whole=whole)

        def search(start: Choice | None = None) -> Found[Traced]:
            data = self._data
            return choose_symbols(
                start
                or first_choice(call.leaves, dynamic, said, options.constraints, before, data),
                trace,
                lambda: check(options, call, fresh),
                may_pin=dynamic is not True,
            )

        choice_key = None if before or self._data else confirmation.choice_key(said)
        start = self._known_choice(choice_key, call)
        try:
            found = search(start)
            if start is not None and found.traces > 1:  # it does something else here
                start, self._data = None, frozenset()
                found = search()
        except (UnsupportedError, ForkError):
            raise
        except Exception:
            if not fresh.assumed or not call.is_concrete:
                raise
            # Perhaps because of what was assumed of sizes from data.
            fresh = learned(lambda: options.function(*call.args, **call.kwargs))
            if start is not None:
                start, self._data = None, frozenset()
            found = search()
        if not before and dynamic == "auto" and start is None:
            # An argument with many leaves was taken for parameters; its use says more.
            data = data_groups(call.leaves, weights(found.program[1]))
            if data:
                self._data = data
                found = search()
        if call.at_numbers is None and confirmation.left_no_sizes:
            call.at_numbers = call.looked_up
        key = confirmation.key(found) if found.traced.live() else None
        if call.at_numbers is None and confirmation.is_known(key):
            call.is_spared = True
        elif found.traced.live():
            concrete_at = functools.cache(lambda shapes: check(options, call, fresh, shapes))
            sure = confirmed(found, search, call.shapes, concrete_at, dynamic is not True)
            call.at_numbers = concrete_at(call.shapes)
            self._differs |= sure is not found  # its answer at other sizes may differ, too
            if sure is found:
                confirmation.keep(key)
                if key and choice_key and start is None and (found.traces > 1 or self._data):
                    choices = found.traced.plain(), found.choice.plain()
                    keep_choice(choice_key, (*choices, sorted(self._data)))
            found = sure

        def again(choice: Choice, known: Mapping[int, int] | None = None) -> Traced:
            specs, scope = choice.specs()
            sizes = fresh if known is None else FreshSizes(known)
            with scope.asking(choice.hints, grows=True):
                traced = trace_with_symbols(options, blueprint, specs, sizes, whole=whole)
                assert traced is not None
                return traced

        _log.debug("%s: %d traces, %.0f ms", options.name, found.traces, found.seconds * 1e3)
        return Version(options, call, found, again, mode)

    def _known_choice(self, key: bytes | None, call: Call) -> Choice | None:
        """The choice with which an earlier process traced the function, if it fits the call.

        What the trace found out then has to fit, too.
        """
        found = None if key is None else kept_choice(key)
        if found is None:
            return None
        start, final, data = found
        chosen = choice_of(start, call.leaves)
        if chosen is None or choice_of(final, call.leaves) is None:
            return None
        self._data = frozenset(data)
        return chosen

    def _report(self, call: Call, version: Version) -> None:
        name, count = self.options.name, len(self.versions)
        if not count:
            _log.info("%s: version 1\n%s", name, version.pattern.text())
            self._tell(version)
            return
        self._tell(version)
        reason = self.versions[-1].pattern.mismatch(call.shapes)
        _log.info(
            "%s: compiling version %d, because %s\n%s",
            name,
            count + 1,
            reason,
            version.pattern.text(),
        )
        if count == RECOMPILE_LIMIT:
            _log.warning(
                "%s: more than %d versions; the last one because %s. f.explain() tells what makes "
                "sizes constants; dynamic=True turns that into errors.",
                name,
                RECOMPILE_LIMIT,
                reason,
            )

    def _tell(self, version: Version) -> None:
        """Name the lines, once each, where the program itself makes a size a constant."""
        for note in version.pattern.notes:
            spelling = advice(note.reason)
            if spelling and note.where not in self.options.told:
                self.options.told.add(note.where)
                _log.warning("%s: %s; %s", self.options.name, note, spelling)
