"""Find policies by name, ours and third parties', and set their parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from hetsched_core.errors import HetschedError, InputError, unknown
from hetsched_core.policy.protocol import Policy
from hetsched_core.values.settings import Setting, setting, settings_declared
from hetsched_core.values.text import from_text, is_settable, to_text

GROUP = "hetsched.policies"
"""The entry-point group in which a package names its policies."""


parameter = setting
"""Declares a parameter of a policy, which is a dataclass."""


class PolicyLoadError(HetschedError):
    """A registered policy cannot be loaded: its package is broken."""


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
    for each in settings_declared(cls):
        if not is_settable(each.hint):
            raise PolicyLoadError(
                f"parameter {each.name!r} of policy {name!r} ({found[name].value}) is a "
                f"{each.hint!r}, which "
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
    hints = {each.name: each.hint for each in settings_declared(cls)}
    values: dict[str, Any] = {}
    for key, text in (settings or {}).items():
        if not hints:
            raise InputError(f"policy {name!r} has no parameters; leave {key!r} out")
        if key not in hints:
            raise unknown(f"parameter of policy {name!r}", key, hints)
        values[key] = from_text(f"{name}.{key}", text, hints[key])
    return cls(**values)


def parameters_of(cls: type[Policy]) -> tuple[Setting, ...]:
    """Return the parameters of a policy class, in the order of its fields."""
    return settings_declared(cls)


def settings_of(policy: Policy) -> dict[str, str]:
    """Return the parameters of a policy instance as text, for results and records."""
    declared = settings_declared(type(policy))
    return {each.name: to_text(getattr(policy, each.name)) for each in declared}


def _found() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}
