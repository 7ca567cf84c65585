"""The decorator behaves like the standard one; only the moment at which methods are made differs."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from hermes.patterns import lazy_pattern
from hermes.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """A place."""

    kind: ClassVar[str] = "point"
    x: int
    y: int = 0
    marks: Sequence[str] = ()
    notes: list[str] = dataclasses.field(default_factory=list, compare=False)

    def moved(self, by: int) -> Point:
        return dataclasses.replace(self, x=self.x + by)


@dataclass(frozen=True, slots=True)
class Place(Point):
    name: str = "nowhere"
    y: int = 7


@dataclass(slots=True)
class Counter(Generic[T]):
    of: T
    count: int = 0

    def __post_init__(self) -> None:
        self.count += 1


def test_defaults_factories_and_class_variables_are_those_of_the_declaration() -> None:
    first, second = Point(1), Point(1)
    assert (first.x, first.y, first.marks, first.kind) == (1, 0, (), "point")
    assert first.notes is not second.notes
    assert Point.__doc__ == "A place."


def test_records_are_compared_hashed_and_shown_by_their_fields() -> None:
    assert Point(1, 2) == Point(1, 2, notes=["not compared"]) != Point(1, 3)
    assert len({Point(1, 2), Point(1, 2)}) == 1
    assert Point(1) != Place(1, 0)
    assert repr(Point(1)) == "Point(x=1, y=0, marks=(), notes=[])"


def test_a_frozen_record_cannot_be_changed_and_has_no_dict() -> None:
    point: Any = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert not hasattr(point, "__dict__")


def test_an_open_record_can_be_changed_and_not_hashed() -> None:
    counter = Counter("x")
    counter.count += 1
    assert counter == Counter("x", 1)
    with pytest.raises(TypeError):
        hash(counter)


def test_a_record_inherits_fields_and_overrides_defaults() -> None:
    place = Place(1, name="here")
    assert [item.name for item in dataclasses.fields(Place)] == ["x", "y", "marks", "notes", "name"]
    assert (place.x, place.y, place.name) == (1, 7, "here")
    assert place.moved(2) == Place(3, name="here")


def test_the_fields_can_be_asked_for_before_there_is_an_instance() -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh:
        a: int
        b: str = "b"

    assert dataclasses.is_dataclass(Fresh)
    assert [item.name for item in dataclasses.fields(Fresh)] == ["a", "b"]
    assert dataclasses.asdict(Fresh(1)) == {"a": 1, "b": "b"}
    match Fresh(1):
        case Fresh(a, b):
            assert (a, b) == (1, "b")


def test_wrong_arguments_of_the_first_instance_are_refused_like_those_of_any_other() -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh:
        a: int

    for _ in range(2):
        with pytest.raises(TypeError, match="missing 1 required"):
            Fresh()  # type: ignore[call-arg]


def test_records_can_be_copied_and_pickled() -> None:
    place = Place(1, marks=("m",))
    assert copy.deepcopy(place) == place == pickle.loads(pickle.dumps(place))


def test_a_pattern_is_compiled_when_it_is_used() -> None:
    broken = lazy_pattern("(")
    word = lazy_pattern("W(O)RD", re.I)
    assert word.sub("x", "a word") == "a x"
    assert word.pattern == "W(O)RD"
    with pytest.raises(Exception, match="unterminated"):
        broken.search("text")
