"""`base/records.py` makes what `dataclasses.dataclass` makes."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import ClassVar

import pytest

from shlo_disc.base import records


def _plain(dataclass):
    @dataclass
    class Plain:
        a: int
        b: list[int] = dataclasses.field(default_factory=list)
        unseen: int = dataclasses.field(default=3, init=False, compare=False, repr=False)
        shared: ClassVar[int] = 7

        def __post_init__(self):
            self.unseen += self.a

    return Plain


def _frozen(dataclass):
    @dataclass(frozen=True)
    class Base:
        a: int
        b: float = 2.0

    @dataclass(frozen=True)
    class Frozen(Base):
        c: str = dataclasses.field(default="c", compare=False)
        b: float = 4.0

        def __repr__(self):
            return "its own"

    return Frozen


def _by_name(dataclass):
    @dataclass(frozen=True, kw_only=True)
    class ByName:
        a: int = 1
        b: int

    return ByName


def _identity(dataclass):
    @dataclass(eq=False)
    class Identity:
        a: int

    return Identity


def _own_comparison(dataclass):
    @dataclass(frozen=True)
    class Own:
        a: int

        def __eq__(self, other):
            return isinstance(other, Own)

        def __hash__(self):
            return 5

    return Own


def _empty(dataclass):
    @dataclass(frozen=True)
    class Empty:
        pass

    return Empty


MADE = {_plain: ((1,), (1, [2]), (2,)), _frozen: ((1,), (1, 4.0, "x"), (1, 5.0), (2,)),
        _identity: ((1,), (1,)), _own_comparison: ((1,), (2,)), _empty: ((), ())}  # fmt: skip


def _hash(value):
    try:
        return hash(value)
    except TypeError:
        return "none"


@pytest.fixture(params=[1, 2, 100], ids="compiled at {}".format, autouse=True)
def _compiled(request, monkeypatch):
    monkeypatch.setattr(records, "_COMPILED", request.param)


@pytest.mark.parametrize("make", MADE)
def test_objects_compare_and_print_as_those_of_dataclasses(make):
    kind, standard = make(records.dataclass), make(dataclasses.dataclass)
    theirs = [standard(*given) for given in MADE[make]]
    ours = [kind(*given) for given in MADE[make]]
    assert [repr(a) for a in ours] == [repr(a) for a in theirs]
    assert [vars(a) for a in ours] == [vars(a) for a in theirs]
    assert [[a == b for b in ours] for a in ours] == [[a == b for b in theirs] for a in theirs]
    assert ours[0] != theirs[0] or make is _own_comparison
    if make is not _identity:
        assert [_hash(a) for a in ours] == [_hash(a) for a in theirs]
    assert kind.__match_args__ == standard.__match_args__
    assert [dataclasses.asdict(a) for a in ours] == [dataclasses.asdict(a) for a in theirs]
    fields = [[(f.name, f.type, f.init) for f in dataclasses.fields(k)] for k in (kind, standard)]
    assert fields[0] == fields[1]


@pytest.mark.parametrize("dataclass", [dataclasses.dataclass, records.dataclass])
def test_arguments_replacements_and_what_is_frozen(dataclass):
    kind = _frozen(dataclass)
    value = kind(1)
    assert dataclasses.replace(value, c="d").c == "d"
    assert copy.copy(value) == value == copy.deepcopy(value)
    for change in (lambda: setattr(value, "a", 2), lambda: setattr(value, "new", 2),
                   lambda: delattr(value, "a")):  # fmt: skip
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'a'"):
        kind()
    with pytest.raises(TypeError, match="unexpected keyword argument 'd'"):
        kind(1, d=2)
    with pytest.raises(TypeError, match="multiple values for argument 'a'"):
        kind(1, a=2)
    with pytest.raises(TypeError, match="takes from 2 to 4 positional arguments"):
        kind(1, 2, 3, 4)
    assert _by_name(dataclass)(b=2).a == 1
    with pytest.raises(TypeError, match="positional"):
        _by_name(dataclass)(1, b=2)
    with pytest.raises(ValueError, match="init=False"):
        dataclasses.replace(_plain(dataclass)(1), unseen=3)


def test_subclasses_that_are_none_and_bytes():
    class Named(_Point):
        def __init__(self, x):
            super().__init__(x, 2)
            self.name = "named"

    assert repr(Named(1)) == f"{Named.__qualname__}(x=1, y=2)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        Named(1).x = 3
    assert pickle.loads(pickle.dumps(_Point(1, 2))) == _Point(1, 2)


@records.dataclass(frozen=True)
class _Point:
    x: int
    y: int
