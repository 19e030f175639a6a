"""Frozen dataclasses that are made cheaply are made as `dataclass` would."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from hetsched_core.types import Snapshot
from hetsched_core.types.making import cheaply_made, maker


@cheaply_made
@dataclass(frozen=True, slots=True)
class Cheap:
    """A required field, a usual value, one made anew each time, and one by keyword only."""

    first: int
    usual: str = "usual"
    made: list[int] = field(default_factory=list)
    named: float = field(default=1.5, kw_only=True)


@dataclass(frozen=True, slots=True)
class Plain:
    """The same as `dataclass` makes it."""

    first: int
    usual: str = "usual"
    made: list[int] = field(default_factory=list)
    named: float = field(default=1.5, kw_only=True)


def test_fields_are_set_by_place_by_name_and_by_default() -> None:
    made = Cheap(1, made=[2], named=3.0)
    assert (made.first, made.usual, made.made, made.named) == (1, "usual", [2], 3.0)
    assert replace(made, first=4) == Cheap(4, "usual", [2], named=3.0)


def test_what_a_factory_makes_is_made_anew_each_time() -> None:
    assert Cheap(1).made == []
    assert Cheap(1).made is not Cheap(1).made


def test_it_stays_frozen() -> None:
    made = Cheap(1)
    with pytest.raises(FrozenInstanceError):
        made.first = 2  # type: ignore[misc]
    assert made.first == 1


def test_arguments_are_those_of_dataclass() -> None:
    cheap, plain = (inspect.signature(cls).parameters for cls in (Cheap, Plain))
    assert [(p.name, p.kind) for p in cheap.values()] == [(p.name, p.kind) for p in plain.values()]
    assert [p.annotation for p in cheap.values()] == [p.annotation for p in plain.values()]
    with pytest.raises(TypeError, match="first"):
        Cheap()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="5 were given"):
        Cheap(1, "a", [], 2.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="now"):
        Snapshot()  # type: ignore[call-arg]


def test_a_class_that_checks_or_computes_a_field_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Checked:
        first: int

        def __post_init__(self) -> None:
            raise AssertionError

    @dataclass(frozen=True, slots=True)
    class Computed:
        first: int = field(init=False)

    @dataclass(frozen=True)
    class WithoutSlots:
        first: int

    for cls in (Checked, Computed, WithoutSlots):
        with pytest.raises(TypeError, match="needs the __init__ that dataclass gives it"):
            cheaply_made(cls)
        with pytest.raises(TypeError, match="needs the __init__ that dataclass gives it"):
            maker(cls)


@pytest.mark.parametrize("cls", [Plain, Cheap])
def test_what_a_maker_makes_is_what_the_class_makes(cls: type[Plain]) -> None:
    make = maker(cls)
    for given, named in (((1,), {}), ((1, "a", [2]), {"named": 3.0}), ((), {"first": 4})):
        made, plain = make(*given, **named), cls(*given, **named)
        assert made == plain
        assert type(made) is cls
        assert replace(made, usual="b") == replace(plain, usual="b")
    assert make(1).made is not make(1).made
    with pytest.raises(FrozenInstanceError):
        made.first = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="first"):
        make()
