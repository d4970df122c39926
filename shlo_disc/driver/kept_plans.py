"""Kernel plans on disk: of a program that was edited, those that did not change are loaded.

The key of an entry names all that an emitter reads: the fusion, what is known of its sizes, the
compiler, the machine. An entry has the plan, and names the code of its kernels; their texts are
read when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from shlo_disc.base import flags
from shlo_disc.base.later import Later
from shlo_disc.driver.kept_keys import check_runs, machine_key, read_record
from shlo_disc.executables.codec import RecordError, from_bytes, to_bytes
from shlo_disc.lower.background import do_later
from shlo_disc.lower.host.plans import Made
from shlo_disc.lower.host.record import PlanFunction, text_of_parts
from shlo_disc.lower.identity import NamelessError, identity, spelled, with_sources
from shlo_disc.lower.plan import (
    KeptText,
    Kernel,
    KernelPlan,
    KernelText,
    Launch,
    rewritten,
    text_of,
)
from shlo_disc.lower.speculate import Decision
from shlo_disc.lower.target import Target
from shlo_disc.store.entries import COUNTS, current, mismatch
from shlo_disc.store.format import key_of


def kept_plans(target: Target) -> KeptPlans | None:
    """The plans on disk for `target`, as a registry has it; None where none are kept."""
    key = machine_key(target.name)
    return None if key is None or target.code_names is None else KeptPlans(target, key)


class KeptPlans:
    """Plans on disk, for one program.

    Kernels of one text have one source in the program, whether their plans are loaded or made. So a
    program is the same whichever of its plans are on disk.
    """

    def __init__(self, target: Target, key: bytes) -> None:
        """`key` names the compiler and the machine."""
        self._target, self._key = target, key
        self._sources: dict[str, KernelText] = {}
        """What the program has for kernels of one text, or of one record that gives a text."""
        self._last: tuple[object, bytes | None] = (None, None)
        """What was asked for last, which is kept next where it is not found, and its key."""

    def found(self, about: object) -> Made | None:
        """The plan of a fusion of which `about` is all that its emitter reads, and its decisions.

        Where entries are checked, there is none: see :meth:`keep`.
        """
        if flags.cache_verifies():
            return None
        key = self._key_of(about)
        made = None if key is None else read_record("plans", key, self._read)
        if made is not None:
            COUNTS.add("plans_loaded")
        return made

    def keep(self, about: object, made: Made) -> Made:
        """Keep a plan that was made; returns it with the sources that the program has.

        Raises CacheMismatchError if the entry of `about` is checked, and differs.
        """
        plan = with_sources(made[0], lambda source: self._own(identity(source), source))
        made = plan, *made[1:]
        self._keep("plans", about, partial(self._bytes, made))
        return made

    def found_function(self, about: object) -> PlanFunction | None:
        """The function of a plan of which `about` is all that its text depends on."""
        key = None if flags.cache_verifies() else self._key_of(about)
        made = None if key is None else read_record("functions", key, self._read_function)
        if made is not None:
            COUNTS.add("functions_loaded")
        return made

    def keep_function(self, about: object, made: PlanFunction) -> None:
        """Keep a function that was written.

        Raises CacheMismatchError if the entry of `about` is checked, and differs.
        """
        self._keep("functions", about, partial(self._function_bytes, made))

    def _keep(self, kind: str, about: object, entry: Callable[[], bytes]) -> None:
        key = self._key_of(about)
        if key is None:
            return
        if not flags.cache_verifies():
            do_later(partial(_write, kind, key, entry))
            return
        store = current(kind)
        kept = None if store is None else store.read(key)
        if store is not None and kept not in (None, entry()):
            raise mismatch(store, key, "a kernel plan differs, or its function")

    def _function_bytes(self, made: PlanFunction) -> bytes:
        assert self._target.code_names is not None
        text = text_of_parts(made.parts.value)
        (name,) = self._target.code_names("", (), (text,)).functions
        return to_bytes((*name, made.parts))

    def _own(self, identity: str, source: KernelText) -> KernelText:
        return self._sources.setdefault(identity, source)

    def _key_of(self, about: object) -> bytes | None:
        last, key = self._last
        if last is about:
            return key
        try:
            key = key_of(self._key, spelled(about))
        except NamelessError:
            key = None
        self._last = about, key
        return key

    def _read(self, data: bytes) -> Made:
        match from_bytes(data):
            case KernelPlan() as plan, tuple(decisions), int(special), tuple(texts):
                own = {text.identity: self._own(text.identity, text) for text in texts}
                check_runs(self._target.name, [text.symbol for text in texts])
                if any(kernel.source not in own for kernel in _kernels(plan)):
                    raise RecordError("a kernel without a text")
                plan = with_sources(plan, lambda source: own[str(source)])
                return plan, tuple(Decision(*decision) for decision in decisions), special
        raise RecordError("no plan")

    def _read_function(self, data: bytes) -> PlanFunction:
        match from_bytes(data):
            case (str(symbol), bytes(key), Later() as parts):
                check_runs(self._target.name, [symbol])
                text = Later(lambda: text_of_parts(parts.value))
                return PlanFunction(parts, KeptText(symbol, symbol, key, text, of_host=True))
        raise RecordError("no function of a plan")

    def _bytes(self, made: Made) -> bytes:
        """The entry; all texts are written for it. Kernels have identities in place of texts."""
        plan, decisions, special = made
        identities = {kernel.source: identity(kernel.source) for kernel in _kernels(plan)}
        written = [*map(text_of, identities)]
        assert self._target.code_names is not None
        names = self._target.code_names("", written, ()).kernels
        texts = tuple(
            KeptText(own, *name, Later.of(text))
            for own, name, text in zip(identities.values(), names, written, strict=True)
        )
        plain = tuple((d.before, d.condition, d.after) for d in decisions)
        return to_bytes((with_sources(plan, identities.__getitem__), plain, special, texts))


def _write(kind: str, key: bytes, entry: Callable[[], bytes]) -> None:
    store = current(kind)
    if store is not None:
        store.write(key, entry())


def _kernels(plan: KernelPlan) -> list[Kernel]:
    """Every kernel of a plan, those of `Pack.never` too."""
    found: list[Kernel] = []

    def note(launch: Launch) -> Launch:
        found.extend(launch.kernels)
        return launch

    rewritten(plan.steps, note)
    return found
