"""A small checkpoint file that is always whole: written beside the old one, then renamed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a state; whatever is killed when, the file holds this state or the one before.

    Raises:
        OSError: the file cannot be written; the state before is still there.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(path: Path, nonce: str) -> dict[str, Any] | None:
    """Return the state that was saved for the job of this nonce; None if there is none.

    Raises:
        ValueError: the file holds something else.
        OSError: it cannot be read.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        state = json.loads(text)
    except ValueError:
        state = None
    if not isinstance(state, dict):
        raise ValueError(f"{path} is no checkpoint; move it away to begin anew")
    return state if state.get("nonce") == nonce else None
