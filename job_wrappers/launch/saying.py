"""What the launcher tells the user."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Tell the user, in the job's output."""
    sys.stderr.write(f"hetsched-run: {text}\n")
    sys.stderr.flush()
