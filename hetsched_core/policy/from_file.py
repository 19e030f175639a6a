"""Policies by name, or by the file that they are in."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from hetsched_core.errors import InputError, unknown
from hetsched_core.policy.protocol import Policy
from hetsched_core.policy.registry import checked_type, is_policy, loading, policy_type

_IN_A_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<cls>\w+))?")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


def find_policy(word: str) -> tuple[str, type[Policy]]:
    """Return the name and the class of a policy that somebody asked for.

    Args:
        word: the name of a registered policy; or `FILE.py:CLASS`, or `FILE.py` where there is one
            policy in the file, which is run. The name is then what its `info` says.

    Raises:
        InputError: there is no such policy or file, or the file has several policies.
        PolicyLoadError: the package or the file is broken.
    """
    file, name = file_and_class(word)
    if file is None:
        return word, policy_type(word)
    if not file.is_file():
        raise InputError(f"policy {word!r}: there is no file {file}; give FILE.py:CLASS")
    with loading(f"policy {word!r}", "mend the file"):
        return _in_file(word, file, name)


def file_and_class(word: str) -> tuple[Path | None, str | None]:
    """Return the file of a policy that is asked for as `FILE.py:CLASS`, and the class if named.

    There is no file where the policy is asked for by its name.
    """
    match = _IN_A_FILE.fullmatch(word)
    return (Path(match["file"]), match["cls"]) if match else (None, None)


def _in_file(word: str, file: Path, name: str | None) -> tuple[str, type[Policy]]:
    spec = spec_from_file_location(f"hetsched policy {file.resolve()}", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Dataclasses look up the types of their fields there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    known = {
        key: value
        for key, value in vars(module).items()
        if is_policy(value) and value.__module__ == spec.name
    }
    if name is None:
        if len(known) != 1:
            raise InputError(
                f"policy {word!r}: {file} has {len(known)} policies; name one class, as in "
                f"{file}:{next(iter(known), 'CLASS')} (there is {', '.join(known) or 'none'})"
            )
        (name,) = known
    elif not hasattr(module, name):
        raise unknown(f"class of {file}", name, known)
    cls = checked_type(getattr(module, name), f"policy {word!r}")
    if not _NAME.fullmatch(cls.info.name):
        raise InputError(
            f"policy {word!r}: the name in its info is {cls.info.name!r}; expected one word of "
            "small letters, digits and . _ -"
        )
    return cls.info.name, cls
