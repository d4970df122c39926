"""The methods of JAX's class of symbolic sizes that ask, replaced by those that answer.

:func:`install` replaces them once, for the process. Sizes of other scopes (a plain `jax.export`)
behave as without shlo_disc.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax
import numpy as np

from shlo_disc.base import locks
from shlo_disc.jax.sizes import bounds, forms, policy, questions
from shlo_disc.jax.sizes.askers import asker_of, calls_cache, line_of_program
from shlo_disc.jax.sizes.generic import generic
from shlo_disc.jax.sizes.questions import ORDER, REPEATS, THE_TEXT, is_ours
from shlo_disc.jax.sizes.symbolic import evaluate, is_size, open_scope, remembered, text_of
from shlo_disc.jax_private.sizes import DimExpr, size_as_array

_PINS: dict[str, tuple[str, Callable[[int], Any]]] = {
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

_DIVISIONS = ("__floordiv__", "__mod__", "__divmod__", "__truediv__")
_ARITHMETIC = ("__add__", "__radd__", "__sub__", "__rsub__", "_divmod")
_REFLECTED = ("__rfloordiv__", "__rmod__", "__rdivmod__", "__rtruediv__")

_lock = locks.lock()
_installed: list[bool] = []


def install() -> None:
    """Replace the methods, once; sizes of other scopes behave as before."""
    with _lock:
        if not _installed:
            for name, method in _methods().items():
                setattr(DimExpr, name, method)
            for name, rounded in (("__ceil__", _rounded_up), ("__floor__", _rounded_down)):
                if not hasattr(jax.core.Tracer, name):
                    setattr(jax.core.Tracer, name, rounded)
            _installed.append(True)
        bounds.install()
        forms.install()
        generic.install()


def _methods() -> dict[str, Any]:
    frame_of = sys._getframe
    # A method that JAX's class lacks is None: what Python does without it.
    original: dict[str, Any] = {
        name: getattr(DimExpr, name, None)
        for name in (
            "__eq__", "__hash__", "__mul__", "__rmul__", "__pow__", "__jax_array__",
            "_syntactic_cmp", *_PINS, *ORDER, *_DIVISIONS, *_REFLECTED,
        )
    }  # fmt: skip

    def eq(self: Any, other: Any) -> Any:
        if not is_size(self):
            return original["__eq__"](self, other)
        return questions.equal(self, other, frame_of(1), original["__eq__"])

    def compared(self: Any, other: Any) -> int:
        return 0 if self is other else int(original["_syntactic_cmp"](self, other))

    def ne(self: Any, other: Any) -> Any:
        if not is_size(self):
            return not original["__eq__"](self, other)
        same = questions.equal(self, other, frame_of(1), original["__eq__"])
        if same is NotImplemented:
            return same
        return jax.numpy.logical_not(same) if isinstance(same, jax.Array) else not same

    def hashed(self: Any) -> int:
        frame = frame_of(1)
        code = frame.f_code
        if policy.hashes_keys(code.co_filename, code.co_name):  # most by far
            return int(original["__hash__"](self))
        if is_size(self) and is_ours(self):
            asker, one = asker_of(frame), policy.raises_unless_equal(frame)
            if one or (asker.by_program and not calls_cache(asker.frame)):
                if not one:
                    questions.number(self, "the hash", frame)
                return hash(evaluate(self, self.scope.session.hints))
        return int(original["__hash__"](self))

    def truth(self: Any) -> bool:
        return not is_size(self) or questions.truth(self, frame_of(1), original["__ge__"])

    def ordered(name: str) -> Any:
        def ask(self: Any, other: Any) -> Any:
            if not is_size(self):
                return original[name](self, other)
            return questions.ordered(self, name, other, frame_of(1), original[name])

        return ask

    def pinned(name: str) -> Any:
        how, make = _PINS[name]

        def ask(self: Any) -> Any:
            value = questions.number(self, how, frame_of(1)) if is_size(self) else None
            if value is not None:
                return make(value)
            if original[name] is None:
                raise TypeError(_MISSING[name])
            return original[name](self)

        return ask

    def text(self: Any, spec: str = "") -> str:
        value = questions.number(self, THE_TEXT, frame_of(1)) if is_size(self) else None
        return format(text_of(self) if value is None else value, spec)

    def division(name: str, *, reflected: bool = False) -> Any:
        whole = not name.endswith("truediv__")

        def divide(self: Any, other: Any) -> Any:
            by = self if reflected else other
            if is_size(by):
                # Arrays are divided as arrays are: by zero, too.
                if isinstance(other, (DimExpr, int, float, np.number)):
                    questions.divides(by, frame_of(1), original["__ge__"], whole=whole)
            elif type(by) in (int, float) and by == 0 and is_size(self):
                raise ZeroDivisionError("division by zero")
            quotient = original[name](self, other)
            if name == "__truediv__" and is_size(self):
                if isinstance(other, float) and other.is_integer():
                    other = int(other)
                if type(other) in (int, DimExpr):
                    self.scope.session.quotients.append((quotient, self, other))
            return quotient

        return divide

    def power(self: Any, exponent: Any, modulo: Any = None) -> Any:
        if modulo is not None and is_size(self) and isinstance(exponent, int) and exponent >= 0:
            return self**exponent % modulo
        plain = isinstance(exponent, (float, np.floating)) or (
            isinstance(exponent, (int, np.integer)) and exponent < 0
        )
        if plain and modulo is None and is_size(self) and asker_of(frame_of(1)).by_program:
            if exponent < 0:
                questions.divides(self, frame_of(1), original["__ge__"], whole=False)
            if exponent % 1 and not self >= 0:  # a complex number in Python
                value = questions.number(self, "a fractional power", frame_of(1))
                if value is not None:
                    return value**exponent
            return (self / 1) ** exponent  # a weakly typed float, as n ** -0.5 is in Python
        return original["__pow__"](self, exponent, modulo)

    def array(self: Any) -> Any:
        if is_size(self) and is_ours(self):
            where = line_of_program(asker_of(frame_of(1)).frame)
            self.scope.session.converted.append((text_of(self), where))
        return original["__jax_array__"](self)

    def missing(self: Any, name: str) -> Any:
        if not name.startswith("_") and is_size(self) and is_ours(self):
            if name in _SELF:
                return self
            if name == "imag":
                return 0
            if name == "denominator":
                return 1
            if name in _PYTHON_METHODS:
                value = questions.number(self, f"{name}()", frame_of(1))
                if value is not None:
                    return getattr(value, name)
            if name in _UFUNC_METHODS and asker_of(frame_of(1)).by_program:
                return functools.partial(_ufunc, name, self)
        raise AttributeError(f"'_DimExpr' object has no attribute '{name}'")

    def repeated(name: str) -> Any:
        product = remembered(name, original[name])

        def times(self: Any, other: Any) -> Any:
            if isinstance(other, (list, tuple, str, bytes)) and is_size(self):
                value = questions.number(self, REPEATS, frame_of(1))
                if value is not None:
                    return other * value
            return product(self, other)

        return times

    def rounded(self: Any, digits: int | None = None) -> Any:
        if digits is None or digits >= 0:
            return self
        value = questions.number(self, "the digits", frame_of(1))
        return NotImplemented if value is None else round(value, digits)

    def bits(self: Any, other: Any, function: Any, frame: FrameType | None) -> Any:
        if not is_size(self):
            return NotImplemented
        mine = questions.number(self, "the bits", frame)
        if isinstance(other, DimExpr):
            other = questions.number(other, "the bits", frame)
        if mine is None or not isinstance(other, (int, np.integer)):
            return NotImplemented
        return function(mine, int(other))

    def bitwise(function: Callable[[int, int], int]) -> Any:
        return lambda self, other: bits(self, other, function, frame_of(1))

    def reflected(function: Callable[[int, int], int]) -> Any:
        return lambda self, other: bits(self, other, lambda a, b: function(b, a), frame_of(1))

    def anded(self: Any, other: Any) -> Any:
        if isinstance(other, (int, np.integer)) and is_size(self):
            mask = int(other)
            if mask >= 0 and mask & (mask + 1) == 0:
                return self % (mask + 1)  # the lowest bits
            if mask < 0 and -mask & (-mask - 1) == 0:
                return self - self % -mask  # all but the lowest: a multiple, as in n & ~7
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

    return {
        "__eq__": eq,
        "__ne__": ne,
        "_syntactic_cmp": compared,
        "__hash__": hashed,
        "__bool__": truth,
        "__str__": text,
        "__repr__": text,
        "__format__": text,
        "__pow__": power,
        "__mul__": repeated("__mul__"),
        "__rmul__": repeated("__rmul__"),
        "__jax_array__": array,
        "dimension_as_value": array,
        "__getattr__": missing,
        "__round__": rounded,
        "__floor__": itself,
        "__ceil__": itself,
        "__trunc__": itself,
        "__pos__": itself,
        "__abs__": absolute,
        "__copy__": itself,
        "__deepcopy__": lambda self, _: self,  # as dataclasses.asdict does
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
        **{name: division(name) for name in _DIVISIONS},
        **{name: division(name, reflected=True) for name in _REFLECTED},
        **{name: ordered(name) for name in ORDER},
        **{name: pinned(name) for name in _PINS},
        **{name: remembered(name, getattr(DimExpr, name)) for name in _ARITHMETIC},
    }


def _rounded_down(value: Any) -> Any:
    """`math.floor(n / 4)`: a size, although `n / 4` is a traced number."""
    size, divisor = _quotient(value) or (None, None)
    return math.floor(float(value)) if size is None else size // divisor


def _rounded_up(value: Any) -> Any:
    """`math.ceil(n / 4)`: a size, although `n / 4` is a traced number."""
    size, divisor = _quotient(value) or (None, None)
    return math.ceil(float(value)) if size is None else -(-size // divisor)


def _quotient(value: Any) -> tuple[Any, Any] | None:
    """What a traced number is the quotient of, if the program divided a size."""
    scope = open_scope()
    known = scope.session.quotients if scope is not None else []
    return next(((size, divisor) for number, size, divisor in known if number is value), None)


def _ufunc(name: str, size: Any) -> Any:
    """`np.sqrt(n)` and the like: a strongly typed float, as NumPy's float64 is for JAX."""
    number = size_as_array(size).astype(jax.dtypes.canonicalize_dtype(np.float64))
    return getattr(jax.numpy, name)(number)
