"""Find policies by name, ours and third parties', and set their parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import EntryPoint, entry_points
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from hetsched_core.errors import HetschedError, InputError, unknown
from hetsched_core.policy.protocol import Policy

GROUP = "hetsched.policies"
"""The entry-point group in which a package names its policies."""


_NONE = "none"
"""How None is written, where a parameter may be that."""


class PolicyLoadError(HetschedError):
    """A registered policy cannot be loaded: its package is broken."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a policy: its default as text, its choices if any, and its meaning."""

    name: str
    default: str
    choices: tuple[str, ...]
    doc: str


def parameter(default: Any, doc: str) -> Any:
    """Declare a policy's parameter as a dataclass field with its default and its meaning.

    It is a bool, int, float, str or Enum, or one of these or None, which is written `none`.
    """
    return dataclasses.field(default=default, metadata={"doc": doc})


def policy_names() -> tuple[str, ...]:
    """Return the names of all registered policies, sorted."""
    return tuple(sorted(_found()))


def policy_type(name: str) -> type[Policy]:
    """Return the class registered under `name`.

    Raises:
        UnknownNameError: no policy has this name.
        PolicyLoadError: its package fails to import, is not a policy, or has a parameter that
            cannot be set from text.
    """
    found = _found()
    if name not in found:
        raise unknown("policy", name, found)
    try:
        loaded = found[name].load()
    except Exception as error:
        raise PolicyLoadError(
            f"policy {name!r} ({found[name].value}) cannot be loaded: {error!r}; "
            "repair or uninstall the package that provides it"
        ) from error
    if not dataclasses.is_dataclass(loaded) or not hasattr(loaded, "info"):
        raise PolicyLoadError(
            f"policy {name!r} ({found[name].value}) is no dataclass with an `info`; "
            "see the example in docs/policies/writing-one.md"
        )
    cls: type[Policy] = loaded  # type: ignore[assignment]
    for key, hint in _hints(cls).items():
        if not _from_text(_kind(hint)[0]):
            raise PolicyLoadError(
                f"parameter {key!r} of policy {name!r} ({found[name].value}) is a {hint!r}, which "
                "cannot be set from text; make it a bool, int, float, str or Enum, or that | None"
            )
    return cls


def make_policy(name: str, settings: Mapping[str, str] | None = None) -> Policy:
    """Return the policy `name` with the given parameters, the others at their defaults.

    Raises:
        InputError: the policy or a parameter is unknown, or a value is not of its type.
        PolicyLoadError: see `policy_type`.
    """
    cls = policy_type(name)
    hints = _hints(cls)
    values: dict[str, Any] = {}
    for key, text in (settings or {}).items():
        if key not in hints:
            raise unknown(f"parameter of policy {name!r}", key, hints)
        values[key] = _convert(f"{name}.{key}", text, hints[key])
    return cls(**values)


def parameters_of(cls: type[Policy]) -> tuple[Parameter, ...]:
    """Return the parameters of a policy class, in the order of its fields."""
    hints = _hints(cls)
    return tuple(
        Parameter(
            field.name, _text(field.default), _choices(hints[field.name]), field.metadata["doc"]
        )
        for field in _fields(cls)
    )


def settings_of(policy: Policy) -> dict[str, str]:
    """Return the parameters of a policy instance as text, for results and records."""
    return {field.name: _text(getattr(policy, field.name)) for field in _fields(type(policy))}


def _found() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _fields(cls: type[Policy]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if "doc" in field.metadata]  # type: ignore[arg-type]


def _hints(cls: type[Policy]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in _fields(cls)}


def _text(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _kind(hint: Any) -> tuple[Any, bool]:
    """The type T of a T or a T | None, and whether it is the latter."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    others = [kind for kind in kinds if kind is not NoneType]
    return (others[0], True) if len(others) == 1 < len(kinds) else (hint, False)


def _from_text(kind: Any) -> bool:
    return kind in (bool, int, float, str) or (isinstance(kind, type) and issubclass(kind, Enum))


def _choices(hint: Any) -> tuple[str, ...]:
    kind, optional = _kind(hint)
    if kind is bool:
        found: tuple[str, ...] = ("true", "false")
    elif isinstance(kind, type) and issubclass(kind, Enum):
        found = tuple(str(member.value) for member in kind)
    else:
        return ()
    return (*found, _NONE) if optional else found


def _convert(key: str, text: str, hint: Any) -> Any:
    kind, optional = _kind(hint)
    if optional and text == _NONE:
        return None
    choices = _choices(hint)
    if choices:
        if text not in choices:
            raise unknown(f"value of {key}", text, choices)
        return text == "true" if kind is bool else kind(text)
    try:
        value = kind(text)
        if value != value:
            raise ValueError(text)
        return value
    except ValueError:
        or_none = f" or {_NONE!r}" if optional else ""
        raise InputError(
            f"{key}={text!r} is not of type {kind.__name__}{or_none}; see `hetsched policies`"
        ) from None
