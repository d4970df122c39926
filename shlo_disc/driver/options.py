"""What a user tells `shlo_disc.compile` besides the program, checked and in one form."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def stated_text(option: str, value: Any) -> str | None:
    """An option that is a string or not given; raises TypeError for anything else."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{option} must be a string, got {value!r}")
    return value


def stated_constraints(constraints: Any) -> tuple[str, ...]:
    """Relations of sizes; one alone may be a string. Raises TypeError for what is none."""
    texts = (constraints,) if isinstance(constraints, str) else _items("constraints", constraints)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"a constraint must be a string such as 't >= 2', got {text!r}")
    return texts


def stated_names(names: Any) -> tuple[str | None, ...] | None:
    """The paths of arguments; raises TypeError for what is none."""
    if names is None:
        return None
    found = _items("names", names)
    for name in found:
        stated_text("a name", name)
    return found


def stated_shapes(shapes: Any) -> tuple[tuple[str, ...] | None, ...] | None:
    """The sizes of every argument as texts; raises TypeError for what is none."""
    if shapes is None:
        return None
    found: list[tuple[str, ...] | None] = []
    for number, shape in enumerate(_items("shapes", shapes)):
        if shape is None:
            found.append(None)
            continue
        sizes = _items(f"shapes[{number}]", shape)
        for size in sizes:
            if not isinstance(size, str):
                _whole(f"a size of shapes[{number}]", size)
        found.append(tuple(map(str, sizes)))
    return tuple(found)


def stated_likely(likely: Any) -> dict[str, tuple[int, ...]]:
    """Likely values by symbol; one alone may be a number.

    Raises TypeError for what is no number, ValueError for one that no size has.
    """
    return {} if likely is None else _values("likely", "a likely value", likely)


def _values(option: str, value: str, sizes: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(sizes, Mapping):
        raise TypeError(f"{option} must map names of sizes to numbers, got {sizes!r}")
    found = {}
    for name, given in sizes.items():
        if not isinstance(name, str):
            raise TypeError(f"{option} must map names of sizes to numbers, got the name {name!r}")
        what = f"{value} of {name!r}"
        values = given if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
        numbers = [_whole(what, value) for value in values]
        for number in numbers:
            if not 0 <= number < 1 << 63:
                raise ValueError(f"{what} must be a size, got {number}")
        found[name] = tuple(dict.fromkeys(numbers))
    return found


def stated_first_sizes(sizes: Any) -> dict[str, int] | None:
    """Values by symbol. Raises as :func:`stated_likely`, and ValueError for several values."""
    if sizes is None:
        return None
    found = _values("first_sizes", "a first value", sizes)
    if several := [name for name, values in found.items() if len(values) != 1]:
        raise ValueError(f"first_sizes must have one value of {several[0]!r}")
    return {name: value for name, (value,) in found.items()}


def stated_donated(donated: Any) -> tuple[int, ...]:
    """Positions of arguments; one alone may be a number. Raises TypeError for what is none."""
    given = donated if isinstance(donated, Iterable) else (donated,)
    return tuple(dict.fromkeys(_whole("a donated argument", position) for position in given))


def check_symbols(name: str, option: str, stated: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError where an option of the program `name` names a size that it has not."""
    if unknown := set(stated).difference(known):
        raise ValueError(f"{name}: {option}: no size is called {', '.join(sorted(unknown))}")


def check_donated(donated: Sequence[int], arguments: int) -> None:
    """Raise ValueError for a position that no argument has."""
    for position in donated:
        if not 0 <= position < arguments:
            raise ValueError(
                f"donated names argument {position}, but the program has {arguments} arguments, "
                "which are counted from 0"
            )


def check_weak_results(weak_results: Sequence[bool], results: int) -> None:
    """Raise TypeError or ValueError unless there is one truth value for every result, or none."""
    given = _items("weak_results", weak_results)
    for value in given:
        if not isinstance(value, bool):
            raise TypeError(f"weak_results must hold True and False, got {value!r}")
    if given and len(given) != results:
        raise ValueError(f"weak_results has {len(given)} values for {results} results")


def _items(option: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{option} must be a sequence, got {value!r}")
    return tuple(value)


def _whole(what: str, value: Any) -> int:
    try:
        if isinstance(value, bool | str):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be a whole number, got {value!r}") from None
