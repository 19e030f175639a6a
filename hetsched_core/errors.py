"""What goes wrong, in one tree.

    HetschedError             the command line prints its one line and exits with 1
    ├── InputError            bad input: a file, an option, a setting
    │   └── UnknownNameError  a name that is none of the valid ones
    └── PlanError             a policy's plan breaks a rule that every plan must keep

Modules derive their own exceptions from these. A message names the value that was wrong, the
choices or the form that would be right, and the next step.
"""

import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class HetschedError(Exception):
    """Anything that hetsched itself reports, with a message for the person who reads it."""


class InputError(HetschedError):
    """Input that cannot be used: the message alone must be enough to mend it."""


class UnknownNameError(InputError):
    """A name that is none of the valid ones; see ``unknown``."""


class PlanError(HetschedError):
    """An invalid plan: the policy is at fault, not the user."""


def described(error: BaseException) -> str:
    """Return an unexpected exception as one line for a log, with where it was raised."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    # What Python's own import raises says itself what it is about.
    place = "" if at.filename.startswith("<") else f" ({Path(at.filename).name}:{at.lineno})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"


def unknown(kind: str, value: str, choices: Iterable[str]) -> UnknownNameError:
    """Build the error for a name that does not exist, with the likely and the valid ones.

    Args:
        kind: What was named, as in "policy" or "GPU type".
        value: The name as given.
        choices: All valid names, in any order.

    Returns:
        The error, for the caller to raise.
    """
    valid = sorted(set(choices))
    if not valid:
        return UnknownNameError(f"unknown {kind} {value!r}: there is none to choose from")
    # Case is often all that is wrong with a GPU type's name.
    folded = {name.casefold(): name for name in reversed(valid)}
    close = get_close_matches(value.casefold(), folded, n=1)
    hint = f"did you mean {folded[close[0]]!r}? " if close else ""
    return UnknownNameError(f"unknown {kind} {value!r}: {hint}valid: {', '.join(valid)}")
