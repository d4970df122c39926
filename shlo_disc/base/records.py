"""`dataclass`, made in a thirtieth of the time.

The one of the standard library compiles the text of six methods for every class. That takes 0.6 ms
each, a third of the imports of a first call. Here comparisons, hashes and `repr` are functions over
the names of the fields. `__init__` is compiled for a class that has many objects. The result is a
dataclass for `dataclasses.fields`, `replace`, `asdict` and `is_dataclass`.

Left out is what nothing here needs: `order`, `slots`, `InitVar` and signatures in docstrings.
"""

from __future__ import annotations

import dataclasses
import operator
import reprlib
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_FIELDS = "__dataclass_fields__"


@dataclasses.dataclass
class _Example:
    of_field: int


_KIND: Any = _Example.__dataclass_fields__["of_field"]._field_type  # type: ignore[attr-defined]
"""What tells the fields of a class from what is written beside them."""
_MISSING = dataclasses.MISSING


def _dataclass(
    cls: Any = None, /, *, frozen: bool = False, eq: bool = True, kw_only: bool = False
) -> Any:
    if cls is None:
        return lambda cls: _processed(cls, frozen, eq, kw_only)
    return _processed(cls, frozen, eq, kw_only)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _processed(cls: Any, frozen: bool, eq: bool, kw_only: bool) -> Any:
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        fields.update(getattr(base, _FIELDS, {}))
    own = cls.__dict__
    for name, kind in own.get("__annotations__", {}).items():
        if not kind.startswith("ClassVar["):
            fields[name] = _field(cls, name, kind, kw_only)
    setattr(cls, _FIELDS, fields)
    cls.__dataclass_params__ = types.SimpleNamespace(frozen=frozen, eq=eq)
    methods: dict[str, Any] = {
        "__init__": _first_init(cls, fields, frozen),
        "__repr__": _repr(tuple(f.name for f in fields.values() if f.repr)),
        "__match_args__": tuple(f.name for f in fields.values() if f.init and not f.kw_only),
    }
    if eq:
        values = _values(tuple(f.name for f in fields.values() if f.compare))
        methods["__eq__"] = _eq(values)
        if own.get("__hash__") is None:  # which Python sets beside `__eq__`, too
            cls.__hash__ = _hash(values) if frozen else None
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    if frozen:
        _freeze(cls, frozenset(fields))
    return cls


def _field(cls: Any, name: str, kind: str, kw_only: bool) -> Any:
    default = cls.__dict__.get(name, _MISSING)
    if isinstance(default, dataclasses.Field):
        made: Any = default
        if made.default is _MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, made.default)
    else:
        made = dataclasses.field(default=default)
    made.name, made.type, made._field_type = name, kind, _KIND
    if made.kw_only is _MISSING:
        made.kw_only = kw_only
    return made


_COMPILED = 16
"""The object for which an `__init__` is compiled: that takes as long as these need without it."""


def _first_init(cls: Any, fields: dict[str, Any], frozen: bool) -> Callable[..., None]:
    """An `__init__` for the first objects of a class; most classes have no more of them.

    It puts a compiled one in its place then, and where arguments are wrong: that one says so.
    """
    put: Any = object.__setattr__ if frozen else setattr
    objects = 0

    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:
        nonlocal objects
        objects += 1
        if objects == _COMPILED or not _is_filled(self, fields, put, args, kwargs):
            cls.__init__ = _init(cls, fields, frozen)
            cls.__init__(self, *args, **kwargs)
        elif hasattr(cls, "__post_init__"):
            self.__post_init__()

    return __init__


def _is_filled(
    made: Any, fields: dict[str, Any], put: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Set the fields of an object; False if the arguments are wrong."""
    in_order, by_name = [*reversed(args)], dict(kwargs)
    for name, field in fields.items():
        if in_order and field.init and not field.kw_only:
            value = in_order.pop()
        elif field.init and name in by_name:
            value = by_name.pop(name)
        elif field.default_factory is not _MISSING:
            value = field.default_factory()
        elif not field.init:
            continue
        elif field.default is _MISSING:
            return False
        else:
            value = field.default
        put(made, name, value)
    return not in_order and not by_name


def _init(cls: Any, fields: dict[str, Any], frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"_new": _MISSING, "_set": object.__setattr__}
    parameters: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for name, field in fields.items():
        value = name
        if field.default_factory is not _MISSING:
            names[f"_make_{name}"], default = field.default_factory, "_new"
            value = f"_make_{name}()" + (f" if {name} is _new else {name}" if field.init else "")
        elif field.default is not _MISSING:
            names[f"_of_{name}"] = field.default
            default = f"_of_{name}"
        else:
            default = ""
        if field.init:
            (by_name if field.kw_only else parameters).append(
                f"{name}={default}" if default else name
            )
        elif field.default_factory is _MISSING:
            continue
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    heads = ", ".join(["self", *parameters, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({heads}):\n " + "\n ".join(body or ["pass"]), names)
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """What an object holds, as a tuple."""
    if not names:
        return lambda _: ()
    get: Any = operator.attrgetter(*names)
    return get if len(names) > 1 else lambda value: (get(value),)


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _repr(names: tuple[str, ...]) -> Callable[[Any], str]:
    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        held = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({held})"

    return __repr__


def _freeze(cls: Any, names: frozenset[str]) -> None:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__
