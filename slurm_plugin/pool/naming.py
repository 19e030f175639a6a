"""What is said of a training's name that is none."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches

from hetsched_core.errors import UnknownNameError

MOST_LISTED = 10

CLOSE = 0.8
"""So like a name must be, its numbers left out."""


def unknown_training(name: str, names: Collection[str]) -> UnknownNameError:
    """Build the error for a training that is not there; `names` are those that may be meant."""
    if not names:
        return UnknownNameError(f"unknown training {name!r}: none runs or waits")
    near = close(name, names)
    hint = f"did you mean {near!r}? " if near else ""
    listed = sorted(names)
    more = f" and {len(listed) - MOST_LISTED} more" if len(listed) > MOST_LISTED else ""
    return UnknownNameError(
        f"unknown training {name!r}: {hint}valid: {', '.join(listed[:MOST_LISTED])}{more}"
    )


def close(name: str, names: Collection[str]) -> str | None:
    """Return which name may be meant: one of the same numbers, for others name other trainings."""
    numbers = _numbers(name)
    words = {_words(each): each for each in sorted(names) if _numbers(each) == numbers}
    found = get_close_matches(_words(name), words, n=1, cutoff=CLOSE)
    return words[found[0]] if found else None


def _numbers(name: str) -> list[str]:
    return [digits.lstrip("0") for digits in re.findall(r"[0-9]+", name)]


def _words(name: str) -> str:
    return re.sub(r"[0-9]+", "#", name).casefold()
