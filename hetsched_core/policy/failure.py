"""What is said of a policy that failed."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path

from hetsched_core.errors import PlanError, described
from hetsched_core.policy.protocol import Policy


def failure(policy: Policy, error: Exception) -> str:
    """Return in one line what a policy raised, and at which line of its own.

    What was raised further on is told at the last line in the policy's folder that led there, an
    invalid plan at the beginning of `plan`, anything else where it was raised.
    """
    code = getattr(inspect.unwrap(type(policy).plan), "__code__", None)
    if code is None:
        return described(error)
    own = Path(code.co_filename)
    places = [
        (Path(frame.filename).name, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).parent == own.parent
    ]
    if isinstance(error, PlanError):
        places.insert(0, (own.name, code.co_firstlineno))
    if not places:
        return described(error)
    file, line = places[-1]
    return f"{file}:{line}: {type(error).__name__}: {' '.join(str(error).split())}"
