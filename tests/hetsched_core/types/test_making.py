"""Frozen dataclasses that are made cheaply are made as `dataclass` would."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

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
        for make in (cheaply_made, maker):
            with pytest.raises(TypeError, match="needs the __init__ that dataclass gives it"):
                make(cls)


@pytest.mark.parametrize("make", [Cheap, maker(Cheap), maker(Plain)])
def test_what_is_made_cheaply_is_what_dataclass_makes(make: Callable[..., Any]) -> None:
    names = [each.name for each in fields(Plain)]
    for given, named in (((1,), {}), ((1, "a", [2]), {"named": 3.0}), ((), {"first": 4})):
        made, plain = make(*given, **named), Plain(*given, **named)
        for one, other in ((made, plain), (replace(made, usual="b"), replace(plain, usual="b"))):
            assert [getattr(one, n) for n in names] == [getattr(other, n) for n in names]
        assert made == make(*given, **named)
    assert make(1).made is not make(1).made
    with pytest.raises(FrozenInstanceError):
        made.first = 2
    with pytest.raises(TypeError, match="first"):
        make()
