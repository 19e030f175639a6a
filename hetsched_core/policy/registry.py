"""Find policies by name, ours and third parties', and set their parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from hetsched_core.errors import HetschedError, InputError, described, unknown
from hetsched_core.policy.protocol import Policy, PolicyInfo
from hetsched_core.values.settings import Setting, setting, settings_declared
from hetsched_core.values.text import from_text, is_settable, to_text

GROUP = "hetsched.policies"
"""The entry-point group in which a package names its policies."""


parameter = setting
"""Declares a parameter of a policy, which is a dataclass."""


class PolicyLoadError(HetschedError):
    """A policy cannot be loaded: its package or file is broken."""


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
    what = f"policy {name!r} ({found[name].value})"
    with loading(what, "repair or uninstall the package that provides it"):
        return checked_type(found[name].load(), what)


@contextmanager
def loading(what: str, remedy: str) -> Iterator[None]:
    """Turn whatever the code of a policy raises while it is loaded or made into one line.

    Raises:
        PolicyLoadError: it says what could not be loaded, why, and what to do.
    """
    try:
        yield
    except HetschedError:
        raise
    except (Exception, SystemExit) as error:
        raise PolicyLoadError(f"{what} cannot be loaded: {described(error)}; {remedy}") from error


def is_policy(loaded: object) -> bool:
    """Whether this is a policy's class."""
    return (
        isinstance(loaded, type)
        and dataclasses.is_dataclass(loaded)
        and isinstance(getattr(loaded, "info", None), PolicyInfo)
        and callable(getattr(loaded, "plan", None))
    )


def checked_type(loaded: Any, what: str) -> type[Policy]:
    """Return what was loaded if it is a policy's class whose parameters can be set from text.

    Raises:
        PolicyLoadError: it is not; the message begins with `what`.
    """
    if not is_policy(loaded):
        raise PolicyLoadError(
            f"{what} is no dataclass with an `info` and a `plan`; "
            "see the example in docs/policies/writing-one.md"
        )
    cls: type[Policy] = loaded
    for each in settings_declared(cls):
        if not is_settable(each.hint):
            raise PolicyLoadError(
                f"parameter {each.name!r} of {what} is a {each.hint!r}, which "
                "cannot be set from text; make it a bool, int, float, str or Enum, or that | None"
            )
    return cls


def make_policy(name: str, settings: Mapping[str, str] | None = None) -> Policy:
    """Return the policy `name` with the given parameters, the others at their defaults.

    Raises:
        InputError: the policy or a parameter is unknown, or a value is not of its type.
        PolicyLoadError: see `policy_type`.
    """
    return policy_of(policy_type(name), name, settings)


def policy_of(cls: type[Policy], name: str, settings: Mapping[str, str] | None = None) -> Policy:
    """Return the policy of a class, as `make_policy` does; `name` is for messages."""
    hints = {each.name: each.hint for each in settings_declared(cls)}
    values: dict[str, Any] = {}
    for key, text in (settings or {}).items():
        if not hints:
            raise InputError(f"policy {name!r} has no parameters; leave {key!r} out")
        if key not in hints:
            raise unknown(f"parameter of policy {name!r}", key, hints)
        values[key] = from_text(f"{name}.{key}", text, hints[key])
    with loading(f"policy {name!r}", "give every field a default, as parameter(default, doc) does"):
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
