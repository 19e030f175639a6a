"""The folder that is a pool, as those see it who submit trainings and run their tasks.

    pool.json             what the pool is: its policy, by `hetsched pool create`
    trainings/NAME.json   what was submitted, written once
    members/ID.json       a GPU that runs tasks; touched while it does, gone when it has ended
    orders/ID.json        what it is to run, replaced as a whole
    outcomes/ID.jsonl     what became of it, a line when a task begins and one when it has trained
    rounds/NAME/          the training's states and gradients (`executor.rounds`)
    results/NAME.json     how a training ended
    stop                  once it is there, the pool ends (stop-when-done: with its last training)

The format is `hetsched-pool/1`: docs/formats/pool.md. Every file is written whole by one process.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from job_wrappers import files
from job_wrappers.executor.job import Task, TaskJob
from job_wrappers.pool.asked import SCHEMA


@dataclass(frozen=True)
class PoolFolder:
    """A pool.

    Attributes:
        path: its folder.
    """

    path: Path

    def check(self) -> PoolFolder:
        """Return it if it is a pool.

        Raises:
            ValueError: it is none.
        """
        if not (self.path / "pool.json").is_file():
            raise ValueError(f"{self.path} is no pool; `hetsched pool create {self.path}` makes it")
        return self

    @property
    def rounds(self) -> Path:
        """Where the trainings' states and gradients are."""
        return self.path / "rounds"

    @property
    def stopped(self) -> bool:
        """Whether the pool is to end."""
        # A Path raises where the folder cannot be read just now.
        return os.path.exists(self.path / "stop")  # noqa: PTH110

    def ended(self, name: str) -> bool:
        """Whether a training has ended, however it has."""
        return os.path.exists(self.path / "results" / f"{name}.json")  # noqa: PTH110

    def under_way(self, name: str) -> bool:
        """Whether any GPU has begun a training.

        Raises:
            OSError: that cannot be seen now.
        """
        # A network file system answers for a name as it did before, and lists anew.
        with os.scandir(self.rounds) as entries:
            return any(entry.name == name for entry in entries)

    def training(self, name: str) -> TaskJob:
        """Return what an executor is told of a training.

        Raises:
            OSError: it cannot be seen now; on a network file system it may be a moment later.
            ValueError: the file is no good; names it.
        """
        path = self.path / "trainings" / f"{name}.json"
        known = {field.name for field in fields(TaskJob)}
        try:
            said = json.loads(path.read_text())
            return TaskJob(**{key: value for key, value in said.items() if key in known})
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: {error}") from None


@dataclass(frozen=True)
class OrderFile:
    """What a member is to run.

    Attributes:
        begun: how many tasks the member had begun when this was written, as far as was known.
        tasks: those after them, in order.
    """

    begun: int
    tasks: tuple[Task, ...]

    @classmethod
    def of(cls, text: bytes) -> OrderFile:
        """Read a file's text; of another form, it orders nothing."""
        try:
            said = json.loads(text)
            tasks = tuple(Task(str(job), int(r), int(k)) for job, r, k in said["tasks"])
            return cls(int(said["begun"]), tasks)
        except (ValueError, TypeError, KeyError):
            return cls(0, ())


@dataclass(frozen=True)
class Place:
    """Where a member runs.

    Attributes:
        id: names the member, and no other one ever.
        node: where it runs, as Slurm calls it.
        pids: in which processes are numbered as on that machine, whatever container asks.
        device: as torch names it.
        gpu_type: as Slurm names it.
        pid: of its process there.
        since_s: when it began (UTC).
    """

    id: str
    node: str
    pids: str
    device: str
    gpu_type: str
    pid: int
    since_s: float


class Desk:
    """A member's files: it tells of itself, and is told its order."""

    def __init__(self, folder: PoolFolder, place: Place) -> None:
        """Join the pool.

        Raises:
            OSError: something cannot be written.
        """
        self._folder, self.place = folder, place
        self._member = folder.path / "members" / f"{place.id}.json"
        self._order = folder.path / "orders" / f"{place.id}.json"
        self._seen: object = None
        self.order = OrderFile(0, ())
        self._outcomes = folder.path / "outcomes" / f"{place.id}.jsonl"
        self._show()

    def close(self) -> None:
        """Leave the pool."""
        self._member.unlink(missing_ok=True)
        self._order.unlink(missing_ok=True)

    def beat(self) -> None:
        """Show that it is alive, and see the pool's files as they are.

        A network file system may say for a minute that a file is not there which another host has
        written, unless its folder is opened.
        """
        try:
            os.utime(self._member)
        except FileNotFoundError:
            # It was silent for so long that the scheduler has forgotten it.
            self._show()
        for folder in (self._folder.path, self._folder.path / "results"):
            with os.scandir(folder):
                pass

    def _show(self) -> None:
        text = json.dumps({"schema": SCHEMA, **asdict(self.place)})
        files.write_whole(self._member, [text.encode()])

    def tell(self, what: str, **values: Any) -> None:
        """Add a line to what became of tasks, as one write, once the file system takes it."""
        line = json.dumps({"what": what, **values}).encode() + b"\n"
        files.patiently(self._outcomes, lambda: self._append(line))

    def _append(self, line: bytes) -> None:
        """Add a line, on a line of its own: a full disk may have taken half of the one before."""
        # A network file system brings it to its server when the file is closed, not before.
        try:
            outcomes = os.open(self._outcomes, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except FileNotFoundError:
            # Its folder is not there: the file system is away.
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE)) from None
        try:
            size = os.fstat(outcomes).st_size
            if size and os.pread(outcomes, 1, size - 1) != b"\n":
                line = b"\n" + line
            if os.write(outcomes, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(outcomes)

    def look(self) -> bool:
        """Take the order that stands now; return whether it is another one."""
        seen: object = None
        text = b""
        # A network file system asks its server for a name anew once its folder was opened, and for
        # what a file holds once that was (nfs(5), close-to-open); others may be seconds late.
        with os.scandir(self._order.parent):
            pass
        with suppress(OSError), self._order.open("rb") as file:
            found = os.fstat(file.fileno())
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen == self._seen:
                return False
            text = file.read()
        if seen == self._seen:
            return False
        self._seen, self.order = seen, OrderFile.of(text)
        return True
