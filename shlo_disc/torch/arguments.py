"""What an exported program takes: its placeholders, and what is wrong with arguments of a call."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    SymIntArgument,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass


@dataclass(frozen=True)
class Input:
    """One placeholder of an exported program."""

    name: str
    weight: str | None
    """The name of the parameter, buffer or constant; None: a call passes it."""
    kind: str = "tensor"
    """`tensor`, `size` or `constant`."""
    constant: Any = None
    """What a call must pass for a `constant`."""

    @property
    def is_tensor(self) -> bool:
        """True for an input that is a tensor."""
        return self.kind == "tensor"


def inputs_of(program: ExportedProgram) -> list[Input]:
    """The placeholders of `program`, in order. Raises UnsupportedError for an object of Python."""
    found = []
    for spec in program.graph_signature.input_specs:
        argument = spec.arg
        name = argument.name
        if spec.kind is InputKind.USER_INPUT:
            if isinstance(argument, ConstantArgument):
                found.append(Input(name, None, "constant", argument.value))
            elif isinstance(argument, TensorArgument):
                found.append(Input(name, None))
            elif isinstance(argument, SymIntArgument):
                found.append(Input(name, None, "size"))
            else:
                raise UnsupportedError(
                    f"the argument {name} is an object of Python, a {type(argument).__name__}, not "
                    "a tensor, a number, a string or None; make it an attribute of the model"
                )
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            found.append(Input(name, spec.target))
        else:
            raise UnsupportedError(f"the argument {name} is a {spec.kind.name.lower()}")
    return found


def check_number(leaf: Any, given: Input, program: str) -> None:
    """Raise TypeError unless `leaf` is what `given`, which is no tensor, takes."""
    if given.kind == "size":
        try:
            is_whole = not isinstance(leaf, bool) and operator.index(leaf) is not None
        except (TypeError, RuntimeError):  # the latter of tensors with several elements
            is_whole = False
        if not is_whole:
            raise TypeError(f"{program}: {given.name} must be an int, got {_text(leaf)}")
    elif not _is_same(leaf, given.constant):
        raise TypeError(
            f"{program}: {given.name} must be {given.constant!r}, as when the program was "
            f"exported, got {_text(leaf)}"
        )


def _is_same(leaf: Any, constant: Any) -> bool:
    """True for the same constant: a bool is no number here, and NaN is itself."""
    if isinstance(leaf, bool) != isinstance(constant, bool) or isinstance(leaf, torch.Tensor):
        return False
    if isinstance(leaf, float) and isinstance(constant, float) and math.isnan(constant):
        return math.isnan(leaf)
    return leaf is constant or (isinstance(leaf, type(constant)) and bool(leaf == constant))


def _text(leaf: Any) -> str:
    """`leaf` on one line."""
    return f"a {type(leaf).__name__}" if isinstance(leaf, torch.Tensor) else repr(leaf)


# -- structures -----------------------------------------------------------------------------------


def leaves_of(args: tuple[Any, ...], kwargs: dict[str, Any], spec: pytree.TreeSpec) -> list[Any]:
    """The leaves of arguments in the order of `spec`; dicts may have another order.

    Raises TypeError, which tells the first difference, for another structure.
    """
    with contextlib.suppress(ValueError, TypeError, KeyError):
        leaves: list[Any] = spec.flatten_up_to((args, kwargs))
        if all(map(pytree.tree_is_leaf, leaves)):
            return leaves
    raise TypeError(_difference(args, kwargs, spec))


def _difference(args: tuple[Any, ...], kwargs: dict[str, Any], spec: pytree.TreeSpec) -> str:
    """How the arguments of a call differ from those of the export, by the first place."""
    by_place, by_name = spec.children()
    count, names = len(by_place.children()), list(by_name.context or ())
    if len(args) != count:
        return (
            f"takes {count} arguments by position{_listed(' and by name ', names)}, as in the "
            f"export, got {len(args)}{_listed(' and ', list(kwargs))}"
        )
    for what, these in (
        ("the arguments lack", [name for name in names if name not in kwargs]),
        ("the export had no argument", [name for name in kwargs if name not in names]),
    ):
        if these:
            return f"{what} {', '.join(these)}; by name it takes {', '.join(names) or 'none'}"
    places = [f"argument {k}" for k in range(count)]
    given = [*args, *map(kwargs.__getitem__, names)]
    specs = [*by_place.children(), *by_name.children()]
    pairs = zip([*places, *names], given, specs, strict=True)
    return next(found for pair in pairs if (found := _first_difference(*pair)) is not None)


def _listed(before: str, names: Sequence[str]) -> str:
    return before + ", ".join(names) if names else ""


def _first_difference(where: str, given: Any, want: pytree.TreeSpec) -> str | None:
    """The first place where `given` has another structure than `want`; None: it has the same."""
    have = pytree.tree_structure(given)
    if have == want:
        return None
    own, kinds = want.children(), (dict, list, tuple)
    if type(given) is not want.type or want.type not in kinds or len(given) != len(own):
        return f"{where} must be {_described(want)}, as in the export, got {_described(have)}"
    if want.type is dict and set(given) != set(want.context):
        return f"{where} must be {_described(want)}, as in the export, got {_described(have)}"
    keys = want.context if want.type is dict else range(len(own))
    found = (
        _first_difference(f"{where}[{key!r}]", given[key], one)
        for key, one in zip(keys, own, strict=True)
    )
    return next((text for text in found if text is not None), None)


def _described(spec: pytree.TreeSpec) -> str:
    if spec.is_leaf():
        return "a tensor or another value"
    if spec.type is dict:
        return f"a dict with the keys {', '.join(map(repr, spec.context)) or 'none'}"
    if spec.type in (list, tuple):
        return f"a {spec.type.__name__} of {len(spec.children())}"
    return f"a {_name(spec)}"


def _name(spec: pytree.TreeSpec) -> str:
    kind = spec.context if spec.type.__name__ == "namedtuple" else spec.type
    return str(getattr(kind, "__name__", kind))
