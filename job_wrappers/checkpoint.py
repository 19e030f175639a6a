"""A small checkpoint as one JSON file, for a job without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from job_wrappers.files import write_whole


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a state; whatever is killed when, the file holds this state or the one before.

    Raises:
        OSError: the file cannot be written; the state before is still there.
    """
    text = json.dumps(state).encode()
    write_whole(path, lambda file: file.write(text))


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
