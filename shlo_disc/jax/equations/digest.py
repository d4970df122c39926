"""The digest of a program that JAX traced: equal digests are equal programs.

A program is digested by what it is: primitives, types, parameters, numbers of values, constants.
Whatever cannot be named in full has no digest, such as a function among parameters, an effect or a
primitive of somebody else's. Names of values, source lines and the function itself do not count.
"""

from __future__ import annotations

import enum
import functools
import hashlib
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import jax
import numpy as np

from shlo_disc.jax_private.arrays import KeyArray
from shlo_disc.jax_private.digests import (
    JAX_VERSIONS,
    LEFT_TO_DERIVATIVES,
    is_array,
    is_known,
    is_typed_number,
    prng_name,
    says_nothing,
    trivially_placed,
)
from shlo_disc.jax_private.extend import ClosedJaxpr, Jaxpr, Literal, Primitive, Var
from shlo_disc.jax_private.states import trace_context
from shlo_disc.jax_private.weights import is_large
from shlo_disc.store.format import MOST_CONSTANT_BYTES, TOO_MANY_CONSTANTS, name_of

_PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None)))
"""Types of what `repr` tells in full."""
_SHORT = 64
"""Bytes of an array that are digested themselves; of others it is their name."""


class NamelessError(Exception):
    """Something has no name that is the same in every process; the text tells what, behind "it"."""


def digest_of(program: Any, *facts: object, constants: dict[str, Any] | None = None) -> bytes:
    """The digest of a `ClosedJaxpr` and `facts`, whose `repr` names them.

    `constants` takes the bytes of its large constants, by what they are called on disk. JAX's
    version and configuration count: primitives are lowered by them. Raises NamelessError for a
    program that has none.
    """
    digest = _of_jax({} if constants is None else constants)
    digest.closed(program)
    digest.add(*map(repr, facts))
    return digest.digest()


def digest_of_facts(*facts: object) -> bytes:
    """The digest of `facts`, whose `repr` names them, with JAX's version and configuration."""
    digest = _of_jax({})
    digest.add(*map(repr, facts))
    return digest.digest()


def _of_jax(constants: dict[str, Any]) -> _Digest:
    digest = _Digest(constants)
    digest.add(*JAX_VERSIONS)
    digest.value(trace_context())
    return digest


class _Digest:
    def __init__(self, constants: dict[str, Any]) -> None:
        self._constants = constants
        self._told: list[Any] = []
        """What is digested: the `repr` of all of it."""
        self._numbers: dict[Any, int] = {}
        """Of the values of the program at hand."""
        self._types: dict[int, tuple[object, str]] = {}
        """Texts of types by address; most values of a program share some. They are kept."""
        self._known: dict[int, tuple[object, list[Any]]] = {}
        """What is told of parameters by address; many are the same object. They are kept."""
        self._room = [MOST_CONSTANT_BYTES]

    def add(self, *parts: Any) -> None:
        """Tell `parts`, which are of _PLAIN or tuples of such."""
        self._told += parts

    def digest(self) -> bytes:
        text = repr(self._told).encode(errors="surrogatepass")
        return hashlib.blake2b(text, digest_size=32).digest()

    def closed(self, program: Any) -> None:
        self.add("constants")
        self.value(tuple(program.consts))
        self.open(program.jaxpr)

    def open(self, program: Any) -> None:
        if program.effects:
            kinds = sorted({type(effect).__name__ for effect in program.effects})
            raise NamelessError(f"has effects ({', '.join(kinds)})")
        for kind, values in (("takes", program.invars), ("reads", program.constvars)):
            self.add(kind, len(values))
            self._bind(values)
        for equation in program.eqns:
            primitive, parameters = equation.primitive, equation.params
            self._known_primitive(primitive)
            self.add("equation", primitive.name)
            for value in equation.invars:
                self._use(value)
            ignored = LEFT_TO_DERIVATIVES.get(primitive.name, ())
            for name in sorted(parameters):
                if name not in ignored:
                    self.add(name)
                    self.value(parameters[name])
            self.add("gives")
            self._bind(equation.outvars)
        self.add("results")
        for value in program.outvars:
            self._use(value)

    def _known_primitive(self, primitive: Any) -> None:
        if not is_known(primitive):
            raise NamelessError(
                f"has the operation {primitive.name}, whose parameters do not tell all"
            )

    def _bind(self, values: Iterable[Any]) -> None:
        for value in values:
            self._numbers[value] = len(self._numbers)
            self._told.append(self._type(value.aval))

    def _use(self, value: Any) -> None:
        if isinstance(value, Literal):
            self.add("literal", self._type(value.aval))
            self.value(value.val)
        else:
            assert isinstance(value, Var)
            self._told.append(self._numbers[value])

    def _type(self, aval: Any) -> str:
        known = self._types.get(id(aval))
        if known is None:
            known = self._types[id(aval)] = aval, self._type_text(aval)
        return known[1]

    def _type_text(self, aval: Any) -> str:
        shape = getattr(aval, "shape", None)
        if shape is None or not trivially_placed(aval):
            raise NamelessError("places arrays on devices or in memory of their own")
        if not all(isinstance(size, int) for size in shape):
            raise NamelessError("has symbolic sizes of an outer trace")
        weak = getattr(aval, "weak_type", False)
        return repr((type(aval).__name__, tuple(shape), _dtype(aval.dtype), weak))

    def _inner(self, program: Any) -> None:
        """A program inside, with values of its own."""
        inner = _Digest(self._constants)
        inner._known, inner._room, inner._types = self._known, self._room, self._types
        inner.closed(program) if isinstance(program, ClosedJaxpr) else inner.open(program)
        self.add(inner.digest().hex())

    def value(self, value: Any) -> None:
        """A parameter or constant. Raises NamelessError."""
        kind = type(value)
        if kind in _PLAIN:
            self.add(kind.__name__, value)
        elif kind is tuple and _PLAIN.issuperset(map(type, value)):
            self.add("plain", value)
        elif is_typed_number(value):
            self.add(kind.__name__, repr(value))
        elif is_array(value):
            self._array(value)
        elif (known := self._known.get(id(value))) is not None:
            self._told += known[1]
        else:
            first = len(self._told)
            self._object(value)
            self._known[id(value)] = value, self._told[first:]

    def _object(self, value: Any) -> None:
        kind = type(value)
        if kind in (ClosedJaxpr, Jaxpr):
            self._inner(value)
        elif isinstance(value, Primitive):
            self._known_primitive(value)
            self.add("primitive", value.name)
        elif isinstance(value, enum.Enum):
            self.add("enum", kind.__qualname__, value.name)
        elif isinstance(value, np.dtype) or (kind is type and issubclass(value, np.generic)):
            self.add("dtype", _dtype(value))
        elif isinstance(value, dict):
            self.add("dict", len(value))
            for name, item in sorted(value.items()):
                if not isinstance(name, str):
                    raise NamelessError(f"has a parameter of the type {kind.__name__}")
                self.add(name)
                self.value(item)
        elif says_nothing(value):
            self.add("unspecified")
        elif name := prng_name(value):
            self.add("prng", name)
        elif isinstance(value, tuple | list):
            self.add(kind.__qualname__, len(value))
            for item in value:
                self.value(item)
        elif is_dataclass(value) and kind.__module__.startswith("jax."):
            self.add("record", kind.__qualname__)
            for field in fields(value):
                self.value(getattr(value, field.name))
        else:
            raise NamelessError(f"has a parameter of the type {kind.__name__}")

    def _array(self, value: Any) -> None:
        if isinstance(value, jax.core.Tracer):
            raise NamelessError("reads a value of an outer trace")
        dtype = _dtype(value.dtype)
        if isinstance(value, KeyArray):
            value = value._base_array
        self._room[0] -= value.nbytes
        if self._room[0] < 0:
            raise NamelessError(TOO_MANY_CONSTANTS)
        data = np.ascontiguousarray(value)
        weak = getattr(value, "weak_type", False)
        elements = data.reshape(-1).view(np.uint8)
        self.add("array", repr(np.shape(value)), dtype, str(weak))  # `data` has a dimension
        if data.nbytes <= _SHORT:
            self.add(elements.tobytes())
            return
        name = name_of(elements.data)
        self.add(name)
        if is_large(value):
            # An array of JAX never changes; one of NumPy may.
            self._constants[name] = elements.copy() if isinstance(value, np.ndarray) else elements


@functools.cache  # NumPy makes a name anew each time
def _dtype(dtype: Any) -> str:
    """Its name; raises NamelessError for one of PRNG keys that JAX does not have."""
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        name = prng_name(getattr(dtype, "_impl", None))
        if not name:
            raise NamelessError(f"has the type {dtype}") from None
        return f"key {name}"
