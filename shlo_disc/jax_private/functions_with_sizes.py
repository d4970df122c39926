"""Symbolic sizes that Python functions hold, replaced by numbers.

A callback may read sizes of the trace: in variables of the function around it, in defaults, as
arguments of a partial. Each call needs the numbers of its own.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
from typing import Any

import jax
import numpy as np

from shlo_disc.jax_private.sizes import DimExpr
from shlo_disc.jax_private.states import is_library_file

_LARGEST = 2_000
"""Values that a function may hold to be searched; a callback that holds a model holds more."""

_PLAIN = (str, bytes, int, float, complex, type, types.ModuleType, np.ndarray, np.generic)


class HeldSizes:
    """The symbolic sizes that a value holds.

    Functions, partials, methods, tuples, frozen dataclasses and types of arrays are made anew with
    other sizes, and so are dictionaries of JAX's own functions. Other objects have to stay, since
    the program may change them.
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        self.sizes: list[Any] = []
        """Those that :meth:`replaced` replaces, each object once."""
        self.fixed: list[Any] = []
        """Those that only an object holds which has to stay."""
        self._changed = self._search()

    def replaced(self, numbers: list[Any]) -> Any:
        """The value with `numbers` in place of `sizes`."""
        known = {id(size): number for size, number in zip(self.sizes, numbers, strict=True)}
        return _Copies(self._changed, known).of(self._value)

    def _search(self) -> set[int]:
        """Search, and return the `id` of all values that hold a size of `sizes`."""
        nodes: dict[int, Any] = {}
        holders: dict[int, list[int]] = {}
        named: set[int] = set()
        waiting = [self._value]
        while waiting:
            value = waiting.pop()
            if id(value) in nodes or isinstance(value, _PLAIN) or value is None:
                continue
            nodes[id(value)] = value
            if len(nodes) > _LARGEST:
                return set()
            parts = _parts(value)
            if isinstance(value, types.FunctionType) and is_library_file(
                value.__code__.co_filename
            ):
                named.update(id(d) for cell in parts for d in _parts(cell) if type(d) is dict)
            for part in parts:
                holders.setdefault(id(part), []).append(id(value))
            waiting += parts
        changed: set[int] = set()
        for size in nodes.values():
            if not isinstance(size, DimExpr):
                continue
            above, todo, stays = {id(size)}, [id(size)], False
            while todo:
                for holder in holders.get(todo.pop(), ()):
                    stays |= holder not in named and _stays(nodes[holder])
                    if holder not in above:
                        above.add(holder)
                        todo.append(holder)
            (self.fixed if stays else self.sizes).append(size)
            changed |= set() if stays else above
        return changed


_type_of_array: Any = jax.ShapeDtypeStruct  # untyped


def _is_type_of_array(value: Any) -> bool:
    """True for a tracer, too: a callback can read no more than its type."""
    return isinstance(value, (jax.ShapeDtypeStruct, jax.core.ShapedArray, jax.core.Tracer))


def _stays(value: Any) -> bool:
    """True for an object that is not copied."""
    if isinstance(value, (types.FunctionType, types.CellType, types.MethodType, functools.partial)):
        return False
    if isinstance(value, (tuple, slice)) or _is_type_of_array(value):
        return False
    parameters: Any = getattr(value, "__dataclass_params__", None)
    return parameters is None or not parameters.frozen


def _parts(value: Any) -> list[Any]:
    """The values that a value holds."""
    if isinstance(value, types.FunctionType):
        defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        return [*(value.__closure__ or ()), *defaults, *vars(value).values()]
    if isinstance(value, types.CellType):
        try:
            return [value.cell_contents]
        except ValueError:  # a variable without a value yet
            return []
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, (tuple, list, set, frozenset)):
        return [*value]
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    if _is_type_of_array(value):
        return [*value.shape]
    if isinstance(value, (DimExpr, jax.Array)):
        return []
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        return [getattr(value, name) for name in names if hasattr(value, name)]
    inside = getattr(value, "__wrapped__", None)  # of `jax.jit`
    if inside is not None:
        return [inside]
    kind = type(value)
    methods = vars(kind).values() if "<locals>" in kind.__qualname__ else ()
    return [*getattr(value, "__dict__", {}).values(), *methods]


class _Copies:
    """Copies of the values `changed`, with numbers for sizes by their `id`."""

    def __init__(self, changed: set[int], numbers: dict[int, Any]) -> None:
        self.changed = changed
        self.made: dict[int, Any] = dict(numbers)

    def of(self, value: Any) -> Any:
        if id(value) not in self.changed:
            return value
        if id(value) not in self.made:
            self.made[id(value)] = self._copy(value)
        return self.made[id(value)]

    def _copy(self, value: Any) -> Any:
        if isinstance(value, types.CellType):
            self.made[id(value)] = cell = types.CellType()  # its function may hold itself
            cell.cell_contents = self.of(value.cell_contents)
            return cell
        if isinstance(value, types.FunctionType):
            closure = tuple(map(self.of, value.__closure__ or ()))
            defaults = tuple(map(self.of, value.__defaults__ or ())) or None
            made = types.FunctionType(
                value.__code__, value.__globals__, value.__name__, defaults, closure
            )
            named = value.__kwdefaults__ or {}
            made.__kwdefaults__ = {k: self.of(v) for k, v in named.items()}
            made.__qualname__ = value.__qualname__
            vars(made).update({k: self.of(v) for k, v in vars(value).items()})
            return made
        if isinstance(value, types.MethodType):
            return types.MethodType(self.of(value.__func__), self.of(value.__self__))
        if isinstance(value, functools.partial):
            named = {k: self.of(v) for k, v in value.keywords.items()}
            return functools.partial(self.of(value.func), *map(self.of, value.args), **named)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.of, value))
        if isinstance(value, tuple):
            return type(value)(map(self.of, value))
        if isinstance(value, dict):
            return {k: self.of(v) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(self.of(value.start), self.of(value.stop), self.of(value.step))
        if _is_type_of_array(value):
            shape = tuple(map(self.of, value.shape))
            if isinstance(value, jax.core.Tracer):
                return _type_of_array(shape, value.dtype)
            return value.update(shape=shape)
        made = copy.copy(value)
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                object.__setattr__(made, field.name, self.of(getattr(value, field.name)))
        return made
