"""The folder of a pool, as its scheduler and those who ask see it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hetsched_core.errors import InputError
from hetsched_core.records.files import replacing
from hetsched_core.values.json import strict_json
from hetsched_core.values.records import structure, unstructure
from job_wrappers.pool.asked import MOST_BYTES, SCHEMA
from slurm_plugin.pool.records import (
    LINES,
    Line,
    Member,
    PoolRecord,
    Result,
    Training,
)

FOLDERS = ("trainings", "members", "orders", "outcomes", "rounds", "results")

MOST_READ = 1 << 20
"""Of outcomes, at a time."""

MOST_RESULT_BYTES = 32 << 20
"""Of a result: a loss takes up to 26 bytes of it, and each of 999,999 rounds may have one."""

MOST_LINE = 1 << 16

_Record = TypeVar("_Record", PoolRecord, Training, Member, Result)


@dataclass(frozen=True)
class Pool:
    """A pool.

    Attributes:
        path: its folder.
    """

    path: Path

    @classmethod
    def at(cls, path: Path) -> Pool:
        """Return the pool in a folder.

        Raises:
            InputError: there is none.
        """
        if not (path / "pool.json").is_file():
            raise InputError(f"{path} is no pool; `hetsched pool create {path}` makes it one")
        return cls(path)

    def record(self) -> PoolRecord:
        """Return what the pool is.

        Raises:
            InputError: the file is no good.
        """
        try:
            return _read(self.path / "pool.json", PoolRecord)
        except InputError as error:
            raise InputError(
                f"{error}; `hetsched pool create {self.path}` makes it anew, and keeps trainings"
            ) from None

    def names(self, folder: str) -> set[str]:
        """Return the names in one of its folders, without `.json`."""
        with os.scandir(self.path / folder) as entries:
            return {e.name[:-5] for e in entries if e.name[-5:] == ".json" and e.name[:1] != "."}

    def training(self, name: str) -> Training:
        """Return what was submitted.

        Raises:
            InputError: the file is no good.
        """
        found = _read(self.path / "trainings" / f"{name}.json", Training)
        if found.name != name:
            raise InputError(f"{self.path}/trainings/{name}.json: it is of {found.name!r}")
        return found

    def member(self, id_: str) -> Member:
        """Return a member.

        Raises:
            FileNotFoundError: it is gone.
            InputError: the file is no good.
        """
        found = _read(self.path / "members" / f"{id_}.json", Member)
        if found.id != id_:
            raise InputError(f"{self.path}/members/{id_}.json: it is of {found.id!r}")
        return found

    def result(self, name: str) -> Result | None:
        """Return how a training ended; None while it has not, or where that cannot be read."""
        try:
            return self.end_of(name)
        except (OSError, InputError):
            return None

    def end_of(self, name: str) -> Result:
        """Return how a training ended.

        Raises:
            OSError: it has not, or that cannot be seen now.
            InputError: the file is no good.
        """
        return _read(self.path / "results" / f"{name}.json", Result, MOST_RESULT_BYTES)

    def end(self, name: str, result: Result) -> bool:
        """Leave how a training ended; return whether it had not ended before.

        Raises:
            InputError: it cannot be written.
        """
        path = self.path / "results" / f"{name}.json"
        part = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
        with replacing(part) as file:
            file.write(json.dumps(unstructure(result)))
        try:
            os.link(part, path)
        except FileExistsError:
            return False
        finally:
            part.unlink()
        return True

    def order(self, id_: str, begun: int, tasks: Iterable[tuple[str, int, int]]) -> None:
        """Leave a member's order: the tasks after the first `begun` that it has begun."""
        path = self.path / "orders" / f"{id_}.json"
        part = path.with_name(f".{path.name}.part")
        # It need not outlast a crash of the machine, so nothing waits for the disk.
        part.write_text(json.dumps({"begun": begun, "tasks": list(tasks)}))
        part.replace(path)

    def forget(self, id_: str) -> None:
        """Remove what a member that was killed has left, but for its outcomes."""
        for folder in ("members", "orders"):
            (self.path / folder / f"{id_}.json").unlink(missing_ok=True)

    def ordered(self, id_: str) -> list[tuple[str, int, int]]:
        """Return the order of a member as it stands; nothing where it has none."""
        try:
            said = json.loads((self.path / "orders" / f"{id_}.json").read_text())
            return [(str(job), int(r), int(k)) for job, r, k in said["tasks"]]
        except (OSError, ValueError, LookupError, TypeError):
            return []

    def progress(self, name: str, scale: int) -> tuple[int, frozenset[int]]:
        """Return the rounds that a training has done, and which tasks of the next have gradients.

        A task counts once its gradient is a file, a round once the state of the next is.

        Raises:
            OSError: they cannot be listed now.
        """
        done, gradients = 0, set()
        try:
            with os.scandir(self.path / "rounds" / name) as entries:
                names = [entry.name for entry in entries]
        except FileNotFoundError:
            return 0, frozenset()
        for each in names:
            stem, _, kind = each.rpartition(".")
            round_, _, task = stem.removeprefix("round-").partition(".task-")
            if stem[:6] != "round-" or not round_.isdecimal():
                continue
            if kind == "state":
                done = max(done, int(round_))
            elif kind == "gradient" and task.isdecimal():
                gradients.add((int(round_), int(task)))
        return done, frozenset(k for r, k in gradients if r == done and k < scale)

    def state(self, name: str, round_: int) -> Path:
        """Return the file of what a round begins with."""
        return self.path / "rounds" / name / f"round-{round_:06}.state"

    @property
    def stopped(self) -> bool:
        """Whether the pool is to end."""
        # A Path raises where the folder cannot be read just now.
        return os.path.exists(self.path / "stop")  # noqa: PTH110

    @property
    def stops_when_done(self) -> bool:
        """Whether it is to end once all of its trainings have."""
        return (self.path / "stop-when-done").exists()

    def stop(self, when_done: bool = False) -> None:
        """Have the pool end, at once or when its trainings have."""
        (self.path / ("stop-when-done" if when_done else "stop")).touch(mode=0o600)


@dataclass
class OutcomeReader:
    """Reads what is new in the outcomes of members.

    Attributes:
        rejected: lines that were none.
    """

    pool: Pool
    rejected: int = 0
    _read: dict[str, int] = field(default_factory=dict)

    def new(self, id_: str) -> Iterator[Line]:
        """Yield a member's lines that are whole and were not read before, all that there are."""
        while text := self._more(id_):
            yield from self._lines(text)

    def _more(self, id_: str) -> bytes:
        path = self.pool.path / "outcomes" / f"{id_}.jsonl"
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size <= self._read.get(id_, 0):
                    return b""
                file.seek(self._read.get(id_, 0))
                text = file.read(MOST_READ)
        except OSError:
            return b""
        whole = text.rfind(b"\n") + 1
        if not whole and len(text) == MOST_READ:
            whole = len(text)
        self._read[id_] = self._read.get(id_, 0) + whole
        return text[:whole]

    def _lines(self, text: bytes) -> Iterator[Line]:
        for line in text.splitlines():
            try:
                said: Any = strict_json(line.decode()) if len(line) <= MOST_LINE else None
                kind = LINES[said.pop("what")]
                found: Line = structure(said, kind)
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError, InputError):
                self.rejected += 1
                continue
            yield found


def _read(path: Path, kind: type[_Record], most: int = MOST_BYTES) -> _Record:
    try:
        with path.open("rb") as file:
            text = file.read(most + 1)
        if len(text) > most:
            raise InputError(f"more than {most} bytes")
        said: Any = strict_json(text.decode())
        if not isinstance(said, dict) or said.get("schema") != SCHEMA:
            raise InputError(f"its schema is not {SCHEMA}")
        found: _Record = structure(said, kind)
    except (ValueError, RecursionError, InputError) as error:
        raise InputError(f"{path}: {error}") from None
    return found
