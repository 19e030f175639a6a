"""What the daemon leaves for a job to read: why and when it was placed or stopped.

The format is `hetsched-moves/2` (docs/formats/moves.md). The files lie in directories of the
daemon's, so that a user reads and does not write them. Only root can give a file to one user alone,
so that each file has a name that only its job can find, in a directory that nobody else can list.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hetsched_core.types import Configuration, Purpose

SCHEMA = "hetsched-moves/2"

MOST_MOVES = 50
"""Older ones are forgotten."""

MOST_REASON = 300
_MOST_BYTES = 1 << 20
_JOB = re.compile(r"[0-9A-Za-z_+-]{1,64}")
_OF_A_JOB = re.compile(rf"\.?({_JOB.pattern})\.[0-9a-f]{{32}}\.json(?:\.part)?")
_GUESSABLE = re.compile(rf"{_JOB.pattern}\.json|\.{_JOB.pattern}\.part")
"""Names that earlier versions gave."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine: number and primary group."""

    uid: int
    gid: int


def user_name(uid: int) -> str:
    """Return the name of a user of this machine; the number where it knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def account_of(user: str) -> Account | None:
    """Return the account of a user; None where this machine knows none of the name, by now."""
    try:
        return _account(user)
    except (KeyError, ValueError):
        return None


@lru_cache(maxsize=4096)
def _account(user: str) -> Account:
    # What is not found raises, and so is looked up again: the directory service may come back.
    found = pwd.getpwnam(user)
    return Account(found.pw_uid, found.pw_gid)


@dataclass(frozen=True, slots=True)
class Move:
    """One decision about a job.

    Attributes:
        at_s: when it was carried out, seconds UTC.
        run: number of the run that was placed, or stopped.
        before, after: what the job held and what it is to hold; None for nothing.
        purpose: what the run is for.
        reason: why, in words.
    """

    at_s: float
    run: int
    before: Configuration | None
    after: Configuration | None
    purpose: Purpose
    reason: str

    def document(self) -> dict[str, object]:
        """Return it as it stands in the file."""
        return {
            "at_s": self.at_s,
            "run": self.run,
            "from": "" if self.before is None else str(self.before),
            "to": "" if self.after is None else str(self.after),
            "purpose": self.purpose.value,
            "reason": self.reason[:MOST_REASON],
        }


class SpoolFolder:
    """The spool directory, as far as it is the daemon's to write.

    Where a user's directory cannot be made, the job goes on without.
    """

    def __init__(self, path: Path, account: Callable[[str], Account | None] = account_of) -> None:
        """Use a directory that exists, and belongs to the daemon's user."""
        self.path = path
        self.account = account
        self._welcomed: set[int] = set()

    def welcome(self, user: str) -> Account | None:
        """Make a user's directories, as far as that is possible; return the account, if any.

        Only root may make a directory for somebody else; otherwise the site makes them.
        """
        account = self.account(user)
        if account is None:
            return None
        # What tidies the spool up takes directories away that were empty for long.
        there = self._moves(account).is_dir() and (self.path / str(account.uid)).is_dir()
        if account.uid in self._welcomed and there:
            return account
        self._welcomed.add(account.uid)
        with contextlib.suppress(OSError):
            _let_in(self.path / "moves", None)
            _let_in(self._moves(account), account.gid)
        own = self.path / str(account.uid)
        if os.geteuid() == 0:
            with contextlib.suppress(OSError):
                own.mkdir(mode=0o700)
                os.chown(own, account.uid, account.gid)
        return account

    def note(self, user: str, job: str, nonce: str, move: Move) -> None:
        """Add a decision to what a job may read of itself: one with a nonce, which others lack.

        Raises:
            OSError: it cannot be written; what was there before stays.
        """
        account = self.welcome(user)
        if account is None or not nonce or not _JOB.fullmatch(job):
            return
        secret = hashlib.sha256(f"{SCHEMA} {nonce}".encode()).hexdigest()[:32]
        path = self._moves(account) / f"{job}.{secret}.json"
        moves = [*_moves_in(path), move.document()][-MOST_MOVES:]
        part = path.with_name(f".{path.name}.part")
        try:
            part.touch(mode=0o600)
            part.write_text(json.dumps({"schema": SCHEMA, "job": job, "moves": moves}))
            # Who has found the name may read.
            part.chmod(0o644)
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise

    def tidy(self, jobs: Collection[str], before_s: float) -> None:
        """Remove what was told of jobs that are gone: nobody reads it any more.

        Args:
            jobs: those that there are, by id; of an array all elements are taken to be there.
            before_s: what was written after this time, seconds UTC, stays in any case.
        """
        there = {_number(job) for job in jobs}
        with contextlib.suppress(OSError):
            for folder in (self.path / "moves").iterdir():
                for path in folder.iterdir():
                    told = _OF_A_JOB.fullmatch(path.name)
                    if told and _number(told[1]) not in there and path.stat().st_mtime < before_s:
                        path.unlink()

    def _moves(self, account: Account) -> Path:
        return self.path / "moves" / str(account.uid)


def _number(job: str) -> str:
    """Return the number that all elements of an array have, and all parts of a job."""
    return re.split("[_+]", job, maxsplit=1)[0]


def _let_in(path: Path, gid: int | None) -> None:
    """Make a directory that others can enter and not list: those of a group, where that can be had.

    One that is so already stays as the site has made it.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    mode = path.stat().st_mode
    if mode & 0o011 and not mode & 0o044:
        return
    mode = 0o711
    if gid is not None:
        with contextlib.suppress(PermissionError):
            os.chown(path, -1, gid)
            mode = 0o710
    path.chmod(mode)
    for old in path.iterdir():
        if _GUESSABLE.fullmatch(old.name):
            old.unlink()


def _moves_in(path: Path) -> list[Any]:
    """Return the decisions in a file of the daemon's own."""
    try:
        with path.open("rb") as file:
            moves = json.loads(file.read(_MOST_BYTES))["moves"]
        return moves if isinstance(moves, list) else []
    except (OSError, ValueError, KeyError, TypeError):
        return []
