"""Values of declared types, to and from text: parameters of policies, settings of the daemon.

A type is bool, int, float, str, Path, an Enum, or frozenset[str], or one of these or None, which is
written `none`.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from hetsched_core.errors import InputError, unknown

_NONE = "none"

_FORMS = {float: "a number, such as 0.5", int: "a whole number, such as 5"}


def kind_of(hint: Any) -> tuple[Any, bool]:
    """Return the type T of a T or a T | None, and whether it is the latter."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    others = [kind for kind in kinds if kind is not NoneType]
    return (others[0], True) if len(others) == 1 < len(kinds) else (hint, False)


def is_settable(hint: Any) -> bool:
    """Whether values of this type can be written as text."""
    kind, _ = kind_of(hint)
    return kind in (bool, int, float, str, Path, frozenset[str]) or _is_enum(kind)


def choices_of(hint: Any) -> tuple[str, ...]:
    """Return all texts that this type has; () where they are not a short list."""
    kind, optional = kind_of(hint)
    if kind is bool:
        found: tuple[str, ...] = ("true", "false")
    elif _is_enum(kind):
        found = tuple(str(member.value) for member in kind)
    else:
        return ()
    return (*found, _NONE) if optional else found


def to_text(value: object) -> str:
    """Write a value down."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def from_text(key: str, text: str, hint: Any) -> Any:
    """Read a value of type `hint`; `key` names it in messages.

    Raises:
        InputError: it is none of this type's.
    """
    kind, optional = kind_of(hint)
    if optional and text == _NONE:
        return None
    choices = choices_of(hint)
    if choices:
        if text not in choices:
            raise unknown(f"value of {key}", text, choices)
        return text == "true" if kind is bool else kind(text)
    if kind == frozenset[str]:
        return frozenset(filter(None, (part.strip() for part in text.split(","))))
    try:
        value = kind(text)
        if value != value:
            raise ValueError(text)
        return value
    except ValueError:
        or_none = f", or {_NONE!r}" if optional else ""
        wanted = _FORMS.get(kind, f"of type {kind.__name__}")
        raise InputError(f"{key}={text!r} is not {wanted}{or_none}") from None


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)
