"""The texts of places: each says one place, and is printed as it was read."""

import pytest

from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.passes.place import At, Place
from shlo_disc.passes.places import (
    Carry,
    Mode,
    carries_of,
    places_of,
    reuses_of,
    scalars_of,
    set_carries,
    set_places,
    set_reuses,
    set_scalars,
)

PLACES = {
    "slot:0": Place(At.SLOT, 0),
    "slot:12": Place(At.SLOT, 12),
    "host:7": Place(At.HOST, 7),
    "result:3": Place(At.RESULT, 3),
    "next:0": Place(At.NEXT, 0),
    "inplace": Place(At.INPLACE),
    "inplace:2": Place(At.INPLACE, 2),
    "update:3": Place(At.UPDATE, 3),
}
CARRIES = {
    "same": Carry(Mode.SAME),
    "stored": Carry(Mode.STORED),
    "inplace:init": Carry(Mode.INITIAL),
    "swap:1,10": Carry(Mode.SWAP, slots=(Place(At.SLOT, 1), Place(At.SLOT, 10))),
    "swap:host:0,2": Carry(Mode.SWAP, slots=(Place(At.HOST, 0), Place(At.HOST, 2))),
    "inplace:slot:4": Carry(Mode.COPIED, buffer=Place(At.SLOT, 4)),
    "inplace:result:0": Carry(Mode.COPIED, buffer=Place(At.RESULT, 0)),
    "inplace:next:1": Carry(Mode.COPIED, buffer=Place(At.NEXT, 1)),
}


@pytest.mark.parametrize(("kind", "table"), [(Place, PLACES), (Carry, CARRIES)])
def test_every_text_says_one_place(kind, table):
    for text, value in table.items():
        assert kind.parse(text) == value
        assert str(value) == text
    assert {place.at for place in PLACES.values()} == set(At)
    assert {carry.mode for carry in CARRIES.values()} == set(Mode)


@pytest.mark.parametrize("text", ["", "slots:1", "slot:", "slot:x", "next:1,2"])
def test_no_place(text):
    with pytest.raises(ValueError, match=r"is not a valid At|invalid literal"):
        Place.parse(text)


@pytest.mark.parametrize(
    "text", ["", "swap", "swap:1", "swap:1,2,3", "swap:x:1,2", "inplace:", "other:1"]
)
def test_no_carry(text):
    with pytest.raises(ValueError, match=r"not a valid At|invalid literal|unpack|does not say"):
        Carry.parse(text)


def test_attributes_keep_what_was_set():
    with new_context(), ir.Location.unknown():
        op = ir.Operation.create("disc.empty")
        assert places_of(op) == carries_of(op) == reuses_of(op) == []
        assert scalars_of(op) == 0
        set_places(op, PLACES.values())
        set_carries(op, CARRIES.values())
        set_reuses(op, [(0, 1), (10, 0)])
        set_scalars(op, 3)
        assert places_of(op) == list(PLACES.values())
        assert carries_of(op) == list(CARRIES.values())
        assert reuses_of(op) == [(0, 1), (10, 0)]
        assert scalars_of(op) == 3
