"""Find policies by name, ours and third parties', and set their parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_type_hints

from hetsched_core.errors import HetschedError, InputError, unknown
from hetsched_core.policy.protocol import Policy
from hetsched_core.values.text import choices_of, from_text, is_settable, to_text

GROUP = "hetsched.policies"
"""The entry-point group in which a package names its policies."""


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
        if not is_settable(hint):
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
        if not hints:
            raise InputError(f"policy {name!r} has no parameters; leave {key!r} out")
        if key not in hints:
            raise unknown(f"parameter of policy {name!r}", key, hints)
        values[key] = from_text(f"{name}.{key}", text, hints[key])
    return cls(**values)


def parameters_of(cls: type[Policy]) -> tuple[Parameter, ...]:
    """Return the parameters of a policy class, in the order of its fields."""
    hints = _hints(cls)
    return tuple(
        Parameter(
            field.name, to_text(field.default), choices_of(hints[field.name]), field.metadata["doc"]
        )
        for field in _fields(cls)
    )


def settings_of(policy: Policy) -> dict[str, str]:
    """Return the parameters of a policy instance as text, for results and records."""
    return {field.name: to_text(getattr(policy, field.name)) for field in _fields(type(policy))}


def _found() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _fields(cls: type[Policy]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if "doc" in field.metadata]  # type: ignore[arg-type]


def _hints(cls: type[Policy]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in _fields(cls)}
