"""What a look at one thing has found, in words for an admin."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How it stands: as it should, so that it is to be known, or so that something fails."""

    OK = "ok"
    BEWARE = "beware"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        about: what, in a word or two.
        verdict: how it stands.
        seen: the value, in words.
        remedy: what to do next; "" for nothing.
    """

    about: str
    verdict: Verdict
    seen: str
    remedy: str = ""

    def __str__(self) -> str:
        """Return what was seen, and what to do."""
        return f"{self.seen}; {self.remedy}" if self.remedy else self.seen


def good(about: str, seen: str, remedy: str = "") -> Finding:
    """Return that it is as it should be; what could be done is only if the site wants that."""
    return Finding(about, Verdict.OK, seen, remedy)


def beware(about: str, seen: str, remedy: str) -> Finding:
    """Return what works, and not as somebody may expect."""
    return Finding(about, Verdict.BEWARE, seen, remedy)


def wrong(about: str, seen: str, remedy: str = "") -> Finding:
    """Return what keeps the daemon, or a part of it, from its work; `seen` may hold the remedy."""
    return Finding(about, Verdict.WRONG, seen, remedy)
