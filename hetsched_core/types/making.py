"""Frozen dataclasses that are made by the million, at less than half the cost.

A replay makes some 250 fields of frozen values for each job. The `__init__` that `dataclass` writes
sets each through `object.__setattr__`, which looks the field up by its name. What is made here is,
while it is made, of another class with the same slots that is not frozen: there a field is set by a
plain assignment.

What is made at every event is made by a `maker`, since to call a class by keywords costs a dict of
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
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
    init = _written(cls, ["self"], "frozen_class = self.__class__; set_class(self, open_class)")
    init.__name__, init.__qualname__ = "__init__", f"{cls.__qualname__}.__init__"
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
    make: Callable[P, _Made] = _written(
        cast(type, made), [], "self = new(open_class)", "return self"
    )
    return make


def _written(cls: type, parameters: list[str], begin: str, end: str = "pass") -> Any:
    """Return a function that sets every field of `self`, which is open when it has begun."""
    own, slots = fields(cls), cls.__dict__.get("__slots__", ())
    if hasattr(cls, "__post_init__") or not all(f.init and f.name in slots for f in own):
        raise TypeError(f"{cls.__name__} needs the __init__ that dataclass gives it")
    names: dict[str, Any] = {
        "open_class": type(cls)(cls.__name__, cls.__bases__, {"__slots__": slots}),
        "set_class": object.__dict__["__class__"].__set__,
        "new": object.__new__,
        "frozen_class": cls,
        "MISSING": MISSING,
    }
    assignments = []
    for field in sorted(own, key=lambda field: bool(field.kw_only)):
        name = value = field.name
        names |= {f"usual_{name}": field.default, f"new_{name}": field.default_factory}
        if field.kw_only and "*" not in parameters:
            parameters.append("*")
        if field.default_factory is not MISSING:
            parameters.append(f"{name}=MISSING")
            value = f"new_{name}() if {name} is MISSING else {name}"
        else:
            parameters.append(name if field.default is MISSING else f"{name}=usual_{name}")
        assignments.append(f"self.{name} = {value}")
    lines = (begin, *assignments, "self.__class__ = frozen_class", end)
    body = "\n    ".join(lines)
    exec(f"def written({', '.join(parameters)}):\n    {body}\n", names)  # as dataclass itself does
    return names["written"]
