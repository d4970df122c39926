"""A stand-in for the compiler: the front end's programs run by XLA, so that only the front end is
tested."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
from jax import export
from jax._src.interpreters.partial_eval import DynamicJaxprTracer

from shlo_disc.jax.calls import compiled_call, compiler
from shlo_disc.jax.calls.lowered import LoweredModule, lowered_module
from shlo_disc.jax.derived import primitive, program
from shlo_disc.jax.versions import tracing
from shlo_disc.jax_private import lowering


@dataclass(frozen=True)
class Exported(LoweredModule):
    """A lowered program that JAX has exported, too, so that XLA can run it at any size."""

    exported: Any = None


@contextlib.contextmanager
def quick_errors():
    """JAX's errors do not say where a tracer comes from.

    The exporter asks every size whether it is a number, and a tracer answers with an error. Its
    message searches the whole program: nine tenths of the time where sizes are long formulas.
    """
    origin = DynamicJaxprTracer._origin_msg
    DynamicJaxprTracer._origin_msg = lambda _: ""
    try:
        yield
    finally:
        DynamicJaxprTracer._origin_msg = origin


@quick_errors()
def _exported(name, jitted, args, kwargs, platform):
    made = lowered_module(name, jitted, args, kwargs, platform)
    # Those that XLA can run: it knows neither our CHLO nor attributes that are sizes.
    whole = [rule for rule in lowering._WHOLE if rule[0].name == "composite"]
    rules = (*whole, *lowering._REDUCTIONS)
    exported = export.export(jitted, platforms=["cpu"], _override_lowering_rules=rules)
    known = {field.name: getattr(made, field.name) for field in fields(LoweredModule)}
    return Exported(**known, exported=exported(*args, **kwargs))


class Standin:
    """What the compiler makes of a program, as far as the front end can tell."""

    made: ClassVar[list[Standin]] = []

    def __init__(self, lowered, name=None, names=(), weak_results=(), shapes=None, **more):
        exported = lowered.exported
        self.exported = exported
        self.name = name
        self.names = list(names)
        self.more = more
        self.calls = 0
        self.fingerprint = id(self)
        self.stands_in = False
        self.was_loaded = False
        self._call = jax.jit(exported.call)
        Standin.made.append(self)

    def describe(self, sizes=None, calls=()):
        return {"name": self.name, "arguments": [], "results": [], "symbols": [], "sizes": sizes,
                "calls": sum(n for _, n in calls), "checks": [], "compile_ms": {}, "passes": [],
                "distinct_kernels": 0, "loaded_kernels": 0, "late_kernels": 0,
                "code_bytes": 0, "not_kept": "", "lowered_anew": "", "kernels": [],
                "unfused": [], "bounds": [],
                "copied_arguments": {"calls": {}, "bytes": 0}, "gpu_calls": {},
                "unused_donations": {},
                "memory": {"temporary": {"formula": "0", "value": 0}, "slots": [],
                           "workspaces": [], "packed_arguments": [],
                           "keeps_packed": True},
                "work": {key: {"formula": "0", "value": 0} for key in
                         ("bytes_read", "bytes_written", "flops", "transcendentals")}}  # fmt: skip

    def _arguments(self, leaves):
        flat = [
            jax.random.wrap_key_data(leaf) if "key" in str(aval.dtype) else leaf
            for leaf, aval in zip(leaves, self.exported.in_avals, strict=True)
        ]
        return jax.tree.unflatten(self.exported.in_tree, flat)

    @quick_errors()
    def traced(self, *leaves):
        args, kwargs = self._arguments(leaves)
        results = jax.tree.leaves(self.exported.call(*args, **kwargs))
        return [jax.random.key_data(r) if "key" in str(r.dtype) else r for r in results]

    @quick_errors()
    def call_leaves(self, leaves):
        self.calls += 1
        args, kwargs = self._arguments(leaves)
        results = jax.tree.leaves(self._call(*args, **kwargs))
        return [jax.random.key_data(r) if "key" in str(r.dtype) else r for r in results]

    def compile_for_all_sizes(self):
        pass

    def as_text(self, stage="disc"):
        return f"{stage} of {self.name}"


def _as_call(executable, results, sizes):
    def call(*arguments):
        if sizes is not None:
            arguments = (*arguments, np.zeros(sizes, np.float32))
        return executable.traced(*arguments)

    return call


def use_standin(replace):
    """Run programs on the stand-in; `replace` is `setattr`, or a monkeypatch's."""
    replace(compiler, "_compile", Standin)
    replace(tracing, "lowered_module", _exported)
    replace(program, "lowered_module", _exported)
    replace(primitive, "_ffi_call", _as_call)


@pytest.fixture(autouse=True, scope="session")
def quick_xla():
    """XLA only says what is right here; most of the time would go into its optimisations."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True)
def standin(request, monkeypatch):
    """Tests here run on the stand-in, unless their module says `REAL = True`.

    The fixture's value is the list of compilations.
    """
    Standin.made = []
    if getattr(request.module, "REAL", False):
        return Standin.made
    use_standin(monkeypatch.setattr)
    compiled_call._programs.clear()
    return Standin.made
