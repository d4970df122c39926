"""First calls that an earlier process made with the same program at the same sizes.

Such a call needs one trace, with numbers. The program that ran it is loaded, and serves these sizes
alone. The function may do something else at others: the first call there traces it with symbols, as
ever. The entry was made after the program had been compared with this very trace.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.base import flags
from shlo_disc.base.threads import lets_others_run
from shlo_disc.driver.kept import (
    claim_call,
    is_call_kept,
    keep_call,
    keep_hint,
    program_of_call,
    wrong_call,
)
from shlo_disc.driver.kept_keys import are_kept, call_key
from shlo_disc.executables.devices import Place
from shlo_disc.executables.executable import Executable
from shlo_disc.jax.arguments.keys import typed_keys_of
from shlo_disc.jax.arguments.leaves import spec_of
from shlo_disc.jax.arguments.stated import stated_shapes
from shlo_disc.jax.calls.call import Call, Options
from shlo_disc.jax.calls.compiled_call import CompiledCall
from shlo_disc.jax.calls.runs import Runs, calls_before_xla
from shlo_disc.jax.equations.digest import NamelessError, digest_of
from shlo_disc.jax.sizes.fresh import FreshSizes
from shlo_disc.jax.sizes.spellings import advice
from shlo_disc.jax.versions.tracing import check
from shlo_disc.jax.versions.versions import Version
from shlo_disc.lower.background import do_later, release_later
from shlo_disc.store.claims import Claim
from shlo_disc.store.entries import COUNTS

_log = logging.getLogger("shlo_disc")


class KeptCall(Runs):
    """A call that an earlier process made."""

    def __init__(self, executable: Executable, call: Call, traced: Any) -> None:
        """`traced`: the function at the sizes of the call."""
        self._executable, self._tree = executable, traced.out_tree
        self.keys = typed_keys_of(traced.jaxpr.out_avals)
        self.leaves = call.leaves
        self._donates = bool(call.donated)

    @property
    def executable(self) -> CompiledCall:
        """The compiled program, for the sizes of this call."""
        return self._executable

    def out_tree(self, shapes: Any) -> Any:
        """The structure of the results."""
        return self._tree

    def calls_before_xla(self, place: Place) -> int | None:
        """As of any version."""
        return None if self._donates else calls_before_xla(place, self._tree.num_leaves)


class KeptCalls:
    """Finds and keeps the first call of a family."""

    def __init__(self, options: Options, call: Call) -> None:
        self._options, self._call = options, call
        self._constants: dict[str, npt.NDArray[np.uint8]] = {}
        """The large ones of a trace, by what they are called on disk."""
        self._claim: Claim | None = None
        self._doubted: tuple[Executable, list[npt.NDArray[Any]]] | None = None
        """What an earlier process ran, and arguments as they are now (SHLO_DISC_CACHE=verify)."""

    @property
    def _reason(self) -> str:
        """Why calls like this one are not kept, behind "it"; "" if they may be."""
        options, call = self._options, self._call
        if options.checked:
            return "is compared with a trace at every new shape"
        if call.captured or not call.is_concrete:
            return "is a part of an outer trace"
        return "" if call.place.is_cpu else "runs on a GPU"

    @cached_property
    def _hint(self) -> bytes | None:
        """Names calls like this one, without a trace; None where they are not kept."""
        options, call = self._options, self._call
        if self._reason:
            return None
        leaves = [(leaf.name, leaf.shape, str(leaf.dtype), leaf.weak_type) for leaf in call.leaves]
        code = getattr(options.function, "__code__", None)
        body = code.co_code if code is not None else b""
        hint = hashlib.blake2b(repr((self._facts, leaves)).encode() + body).digest()
        return call_key(hint, call.place.target)

    @cached_property
    def _facts(self) -> tuple[object, ...]:
        """What is known without a trace, stated sizes as they are spread over the arguments."""
        options, call = self._options, self._call
        stated = stated_shapes(
            options.shapes, call.dynamic, call.named, call.top_names, call.own_leaves
        )
        sizes = [None if row is None else [*map(str, row)] for row in stated]
        rules = [constraint.stated for constraint in options.constraints]
        likely = sorted(options.likely.items())
        return options.name, options.dynamic, likely, call.donated, sizes, rules

    def _key(self, program: Any) -> bytes | None:
        """What the call of this jaxpr at its sizes is kept under; None where nothing is.

        Raises NamelessError.
        """
        types = [type(value).__name__ for value in program.in_avals]
        digest = digest_of(program, self._facts, types, constants=self._constants)
        return call_key(digest, self._call.place.target)

    @property
    def abstract(self) -> Callable[[], Call]:
        """Makes the call without its arrays, which need not stay alive."""
        call, options, blueprint = self._call, self._options, self._call.blueprint()
        leaves, named, rest = call.leaves, tuple(call.named), (call.static, call.place)

        def made() -> Call:
            args, kwargs = blueprint.with_leaves([*map(spec_of, leaves)])
            own = {name: kwargs[name] for name in named}
            return Call(options, tuple(args), kwargs, blueprint.positions, own, *rest)

        return made

    @lets_others_run
    def found(self) -> KeptCall | None:
        """The call, if an earlier process made it.

        The function is traced for that only if an earlier process made one like it. A function that
        remembers sizes shall be left with numbers, so otherwise the trace with symbols is first.
        """
        if self._hint is None:
            return None
        if not is_call_kept(self._hint):
            self._claim = claim_call(self._hint)
            if self._claim is not None or not is_call_kept(self._hint):
                return None
        fresh = FreshSizes()
        try:
            traced = check(self._options, self._call, fresh, purpose="kept")
        except Exception as error:  # tracing for a version raises it, unless it is about numbers
            _log.debug("%s: no trace at the sizes of a call: %s", self._options.name, error)
            return None
        self._call.looked_up = None if fresh.assumed else traced
        try:
            key = None if fresh.assumed else self._key(traced.jaxpr)
        except NamelessError:
            return None
        executable = None if key is None else program_of_call(key, self._constants)
        if executable is None:
            return None
        if flags.cache_verifies():
            self._doubted = executable, [np.array(value) for value in self._call.values]
            return None
        _log.info("%s: a call that an earlier process made", self._options.name)
        return KeptCall(executable, self._call, traced)

    def runs(self, executable: Any) -> None:
        """`executable` runs next; the code of others in it may wait for what other processes do."""
        if not isinstance(executable, Executable) or executable.host.foreign:
            self.done()

    def done(self) -> None:
        """Let other processes make such a call."""
        if self._claim is not None:
            release_later(self._claim)
            self._claim = None

    def _verify(self, key: bytes, made: Executable) -> None:
        """Raise CacheMismatchError if another program ran this call, with other results.

        Another program alone is no mistake: the function may have changed at other sizes.
        """
        if self._doubted is None or self._doubted[0].kept_at == made.kept_at:
            return
        kept, arguments = self._doubted
        results = [
            [result.tobytes() for result in program.run_numpy([*map(np.copy, arguments)])]
            for program in (kept, made)
        ]
        if results[0] != results[1]:
            raise wrong_call(key, f"its program has other results in a call of {made.name}")

    def keep(self, version: Version) -> None:
        """Keep the call, which `version` has just run, or have `version` tell why not."""
        if not are_kept():
            return
        reason = self._reason or self._why_not(version)
        if not reason:
            try:
                reason = self._keep(version)
            except NamelessError as error:
                reason = str(error)
        if reason:
            COUNTS.tell_not_kept("calls_not_kept", reason)
            version.not_kept = reason

    def _keep(self, version: Version) -> str:
        """Keep the call; why it is not kept, behind "it"."""
        executable: Any = version.executable
        # The trace with which the version was compared; without symbols its own.
        at_numbers = self._call.at_numbers
        program = version.jaxpr if at_numbers is None else at_numbers.jaxpr
        if any(not isinstance(size, int) for aval in program.in_avals for size in aval.shape):
            # The version was made for another call, or the call needed no trace with numbers: the
            # next process that begins with these sizes makes one, and keeps the call.
            if self._call.is_spared and self._hint is not None:
                keep_hint(self._hint)
            return ""
        key = self._key(program)
        if not executable.weights <= self._constants.keys():
            return "has large constants that its trace at the sizes of the call has not"
        if key is not None and self._hint is not None:
            self._verify(key, executable)
            keep_call(key, self._hint, executable)
            if flags.compile_ahead():
                sizes = version.pattern.values(self._call.shapes)
                do_later(partial(executable.compile_near, sizes))
        return ""

    def _why_not(self, version: Version) -> str:
        """Why the call is not kept, behind "it"; "" if it may be."""
        if version.is_in_parts:
            return "runs in parts"
        if version.has_static_sizes:
            return "returns a structure with sizes in it"
        executable: Any = version.executable
        if getattr(executable, "kept_at", None) is None:
            return getattr(executable, "not_kept", "") or "was compiled by another compiler"
        if executable.record.has_apart:
            return "may have to compile regions apart, of which a call alone says too little"
        if executable.donated != frozenset(self._call.donated):
            return "keeps arguments that were donated"
        if any(advice(note.reason) for note in version.pattern.notes):
            return "has sizes that are constants, about which every process is told"
        return ""
