"""What can be wrong around a training session, and the torch that it needs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

LEAST_TORCH = (2, 1)


class SessionError(Exception):
    """Training cannot begin, or go on, as asked; the message says why and what to do."""


def told_plainly() -> None:
    """Have this process show an uncaught `SessionError` as its message alone."""
    before = sys.excepthook
    if getattr(before, "tells_plainly", False):
        return

    def show(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(error, SessionError):
            rank = os.environ.get("RANK")
            sys.stderr.write(f"hetsched: {'' if rank is None else f'rank {rank}: '}{error}\n")
        else:
            before(kind, error, trace)

    show.tells_plainly = True  # type: ignore[attr-defined]
    sys.excepthook = show


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
    except ModuleNotFoundError as error:
        raise SessionError(
            f"TrainingSession needs torch {least} or later, and {sys.executable} has none "
            f"({error}); install it into the environment that the job runs in"
        ) from None
    except Exception as error:  # a library that it needs is missing, or of another version
        raise SessionError(
            f"the torch of {sys.executable} cannot be imported ({type(error).__name__}: {error}); "
            "install it anew into the environment that the job runs in"
        ) from None
    version = str(torch.__version__)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < LEAST_TORCH:
        raise SessionError(
            f"TrainingSession needs torch {least} or later, and {sys.executable} has {version}; "
            "install a newer one into the environment that the job runs in"
        )
    return torch
