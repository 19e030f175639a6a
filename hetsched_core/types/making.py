"""Frozen dataclasses that are made by the million, at less than half the cost.

A replay makes some 250 fields of frozen values for each job. The `__init__` that `dataclass` writes
sets each through `object.__setattr__`, which looks the field up by its name. What is made here is,
while it is made, of another class with the same slots that is not frozen: there a field is set by a
plain assignment.

What is made at every event is made by a `maker`, since to call a class by keywords costs a dict of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from typing import Any, ParamSpec, TypeVar, cast

_Class = TypeVar("_Class")
_Made = TypeVar("_Made")
P = ParamSpec("P")


def cheaply_made(cls: type[_Class]) -> type[_Class]:
    """Give a frozen dataclass with slots an `__init__` that is equal to its own, and cheaper.

    Raises:
        TypeError: the class has a `__post_init__`, no slots of its own, or a field that is not set
            from an argument.
    """
    own = _fields_to_set(cls)
    set_class = object.__dict__["__class__"].__set__
    names = _names(own) | {"open_class": _open_class(cls), "set_class": set_class}
    exec(  # as dataclass itself does
        f"def __init__(self, {_arguments(own)}):\n"
        "    frozen_class = self.__class__\n"
        "    set_class(self, open_class)\n"
        f"{_assignments(own)}"
        "    self.__class__ = frozen_class\n",
        names,
    )
    init = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__doc__ = cls.__init__.__doc__
    init.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = init  # type: ignore[method-assign]
    return cls


def maker(made: Callable[P, _Made]) -> Callable[P, _Made]:
    """Return a function that makes what this dataclass would make of the same arguments.

    Example:
        >>> make_run = maker(Run)
        >>> make_run(number=0, configuration=where, since_s=0.0, progress_from_s=0.0, speed=1.0)

    Raises:
        TypeError: as for `cheaply_made`.
    """
    cls = cast(type, made)
    own = _fields_to_set(cls)
    new, open_class = object.__new__, _open_class(cls)
    names = _names(own) | {"new": new, "open_class": open_class, "frozen_class": cls}
    exec(
        f"def make({_arguments(own)}):\n"
        "    self = new(open_class)\n"
        f"{_assignments(own)}"
        "    self.__class__ = frozen_class\n"
        "    return self\n",
        names,
    )
    make: Callable[P, _Made] = names["make"]
    return make


def _fields_to_set(cls: type) -> tuple[Field[Any], ...]:
    own = fields(cls)
    slots = cls.__dict__.get("__slots__", ())
    if hasattr(cls, "__post_init__") or not all(f.init and f.name in slots for f in own):
        raise TypeError(f"{cls.__name__} needs the __init__ that dataclass gives it")
    return own


def _open_class(cls: type) -> type:
    """A class that is not frozen, which values of this one can be given in its stead."""
    return type(cls)(cls.__name__, cls.__bases__, {"__slots__": cls.__dict__["__slots__"]})


def _names(own: tuple[Field[Any], ...]) -> dict[str, Any]:
    """What the arguments and values below are written with."""
    names: dict[str, Any] = {f"new_{f.name}": f.default_factory for f in own}
    names |= {f"usual_{f.name}": f.default for f in own}
    return names | {"MISSING": MISSING}


def _arguments(own: tuple[Field[Any], ...]) -> str:
    return ", ".join(_parameters(own))


def _parameters(own: tuple[Field[Any], ...]) -> Iterator[str]:
    """The parameters, those that are given by keyword last."""
    by_keyword = [field for field in own if field.kw_only]
    for field in (*(f for f in own if not f.kw_only), *by_keyword):
        if by_keyword and field is by_keyword[0]:
            yield "*"
        if field.default_factory is not MISSING:
            yield f"{field.name}=MISSING"
        elif field.default is not MISSING:
            yield f"{field.name}=usual_{field.name}"
        else:
            yield field.name


def _assignments(own: tuple[Field[Any], ...]) -> str:
    return "".join(f"    self.{f.name} = {_value(f)}\n" for f in own)


def _value(field: Field[Any]) -> str:
    name = field.name
    if field.default_factory is MISSING:
        return name
    return f"new_{name}() if {name} is MISSING else {name}"
