"""What can be wrong around a training session, and the torch that it needs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

LEAST_TORCH = (2, 1)


class SessionError(Exception):
    """Training cannot begin, or go on, as asked; the message says why and what to do."""


def not_writable(folder: Path, error: OSError) -> SessionError:
    """Return what to say of a checkpoint directory that nothing can be written to."""
    return SessionError(
        f"no checkpoint can be written to {folder}: {error.strerror}; name another directory, or "
        "make this one writable"
    )


def torch_here() -> Any:
    """Return torch.

    Raises:
        SessionError: there is none, or it is too old.
    """
    least = ".".join(map(str, LEAST_TORCH))
    try:
        import torch
    except ImportError as error:
        raise SessionError(
            f"TrainingSession needs torch {least} or later, and {sys.executable} has none "
            f"({error}); install it into the environment that the job runs in"
        ) from None
    version = str(torch.__version__)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < LEAST_TORCH:
        raise SessionError(
            f"TrainingSession needs torch {least} or later, and {sys.executable} has {version}; "
            "install a newer one into the environment that the job runs in"
        )
    return torch
