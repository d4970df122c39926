"""First calls that an earlier process made with the same program at the same sizes.

Such a call needs one trace, with numbers. The program that ran it is loaded, and serves these sizes
alone. The function may do something else at others: the first call there traces it with symbols, as
ever. The entry was made after the program had been compared with this very trace.
"""

from __future__ import annotations

import hashlib
import logging
from functools import cached_property
from typing import Any

from shlo_disc.base.threads import lets_others_run
from shlo_disc.driver.kept import call_key, is_call_kept, keep_call, program_of_call
from shlo_disc.executables.devices import Place
from shlo_disc.executables.executable import Executable
from shlo_disc.jax.arguments.leaves import abstract
from shlo_disc.jax.calls.call import Call, Options
from shlo_disc.jax.calls.compiled_call import CompiledCall
from shlo_disc.jax.calls.runs import Runs, calls_before_xla
from shlo_disc.jax.equations.digest import digest_of
from shlo_disc.jax.sizes.fresh import FreshSizes
from shlo_disc.jax.sizes.spellings import advice
from shlo_disc.jax.versions.tracing import check
from shlo_disc.jax.versions.versions import Version

__all__ = ["KeptCall", "KeptCalls"]

_log = logging.getLogger("shlo_disc")


class KeptCall(Runs):
    """A call that an earlier process made."""

    def __init__(self, executable: Executable, call: Call, tree: Any) -> None:
        self._executable, self._tree = executable, tree
        self.leaves = call.leaves
        self._donates = bool(call.donated)

    @property
    def executable(self) -> CompiledCall:
        """The compiled program, for the sizes of this call."""
        return self._executable

    @property
    def keys(self) -> tuple[tuple[int, str], ...]:
        """There are none: calls with typed keys are not kept."""
        return ()

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

    @cached_property
    def _hint(self) -> bytes | None:
        """Names calls like this one, without a trace; None where they are not kept."""
        options, call = self._options, self._call
        if (
            options.shapes is not None
            or options.constraints
            or options.checked
            or call.captured
            or not call.place.is_cpu
            or not call.is_concrete
            or any(leaf.is_key for leaf in call.leaves)
        ):
            return None
        leaves = [(leaf.name, leaf.shape, str(leaf.dtype), leaf.weak_type) for leaf in call.leaves]
        hint = hashlib.blake2b(repr((self._facts, leaves)).encode()).digest()
        return call_key(hint, call.place.target)

    @property
    def _facts(self) -> tuple[object, ...]:
        options, call = self._options, self._call
        likely = sorted(options.likely.items())
        return options.name, options.dynamic, likely, call.donated

    def _key(self, program: Any) -> bytes | None:
        """What the call of this jaxpr at its sizes is kept under; None where it is not."""
        types = [type(value).__name__ for value in program.in_avals]
        digest = digest_of(program, self._facts, types)
        if digest is None:
            _log.debug("%s: its trace has no digest", self._options.name)
            return None
        return call_key(digest, self._call.place.target)

    @property
    def abstract(self) -> Call:
        """The call without its arrays."""
        call = self._call
        leaves = [abstract(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in call.leaves]
        args, kwargs = call.blueprint().with_leaves(leaves)
        named = {name: kwargs[name] for name in call.named}
        static = call.static
        return Call(self._options, tuple(args), kwargs, call.positions, named, static, call.place)

    @lets_others_run
    def found(self) -> KeptCall | None:
        """The call, if an earlier process made it.

        The function is traced for that only if an earlier process made one like it. A function that
        remembers sizes shall be left with numbers, so otherwise the trace with symbols is first.
        """
        if self._hint is None or not is_call_kept(self._hint):
            return None
        fresh = FreshSizes()
        try:
            traced = check(self._options, self._call, fresh, purpose="kept")
        except Exception as error:  # tracing for a version raises it, unless it is about numbers
            _log.debug("%s: no trace at the sizes of a call: %s", self._options.name, error)
            return None
        key = None if fresh.assumed else self._key(traced.jaxpr)
        executable = None if key is None else program_of_call(key)
        if executable is None:
            return None
        _log.info("%s: a call that an earlier process made", self._options.name)
        return KeptCall(executable, self._call, traced.out_tree)

    def keep(self, version: Version) -> None:
        """Keep the call, which `version` has just run."""
        if self._hint is None or version.is_in_parts or version.keys or version.has_static_sizes:
            return
        executable: Any = version.executable
        if (
            getattr(executable, "kept_at", None) is None
            or executable.donated != frozenset(self._call.donated)
            or any(advice(note.reason) for note in version.pattern.notes)
        ):
            return
        # The trace with which the version was compared; without symbols its own.
        at_numbers = self._call.at_numbers
        key = self._key(version.jaxpr if at_numbers is None else at_numbers.jaxpr)
        if key is not None:
            keep_call(key, self._hint, executable)
