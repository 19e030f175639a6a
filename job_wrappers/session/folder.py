"""A directory of checkpoints: each whole or not there, the last few kept.

`lock` says who uses it now. A checkpoint is a folder `step-000000001200`: `checkpoint.json` says
how far training was and holds size and checksum of each file, `rank-0.pt` and `rank-0.tensors` are
what rank 0 wrote, and so on. One that is being written is called `.step-000000001300.part`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from job_wrappers.files import sync_folder, write_whole
from job_wrappers.session.errors import SessionError, not_writable
from job_wrappers.session.raw import checksum

SCHEMA = "hetsched-checkpoint/1"
MANIFEST = "checkpoint.json"
WAIT_S = 20.0
"""A run that was stopped, or whose node was lost, may hold on a little longer than Slurm shows."""

_STEP = re.compile(r"step-(\d{12})")


class FolderLock:
    """A lock on a folder that ends with the process that holds it, however that ends."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, take its lock, and say in it which job holds it.

        Raises:
            SessionError: another process holds it, and does not let go in `WAIT_S`; or nothing can
                be written there.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: IO[str] = (folder / "lock").open("a+")
            self._take(folder)
        except OSError as error:
            raise not_writable(folder, error) from error

    def release(self) -> None:
        """Let go, also for processes that were forked from this one, such as those that load."""
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()

    def _take(self, folder: Path) -> None:
        deadline = time.monotonic() + WAIT_S
        while not self._taken(folder):
            if time.monotonic() >= deadline:
                self._file.seek(0)
                said = self._file.read()
                self._file.close()
                raise SessionError(
                    f"{folder} is in use by {_described(said)}; let it end, or name "
                    "another checkpoint directory for this one"
                )
            time.sleep(0.2)
        self._file.truncate(0)
        who = {
            "job": os.environ.get("SLURM_JOB_ID", "none"),
            "run": os.environ.get("SLURM_RESTART_COUNT", "0"),
            "pid": os.getpid(),
            "host": os.environ.get("SLURMD_NODENAME") or os.uname().nodename,
        }
        json.dump(who, self._file)
        self._file.flush()

    def _taken(self, folder: Path) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            # A file system without locks: better unlocked than not at all.
            sys.stderr.write(f"hetsched: {folder} cannot be locked: {error.strerror}\n")
        return True


def _described(text: str) -> str:
    try:
        who = json.loads(text)
        return f"job {who['job']} run {who['run']} (process {who['pid']} on {who['host']})"
    except (ValueError, KeyError, TypeError):
        return "another run"


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint that is whole: where it is, and how far training was."""

    path: Path
    progress: Mapping[str, Any]
    ranks: int


class CheckpointFolder:
    """The checkpoints of one training."""

    def __init__(self, path: Path, keep: int) -> None:
        """Look after the folder, in which the last `keep` checkpoints stay.

        Raises:
            SessionError: `keep` would leave none.
        """
        if keep < 1:
            raise SessionError(f"keep={keep}: expected 1 or more checkpoints to keep")
        self.path = path
        self._keep = keep

    def prepare(self) -> None:
        """Make the folder, and remove what a killed run left half done.

        Raises:
            SessionError: nothing can be written there.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.path / "writable", [b"yes\n"])
            (self.path / "writable").unlink()
            for part in self.path.glob(".step-*.part"):
                shutil.rmtree(part)
            for old in self.path.glob(".step-*.old"):
                path = self.path / old.stem[1:]
                if path.exists():
                    shutil.rmtree(old)
                else:
                    old.rename(path)
        except OSError as error:
            raise not_writable(self.path, error) from error

    def newest(self) -> FoundCheckpoint | None:
        """Return the newest checkpoint that is whole; those that are not are put aside, and said.

        Raises:
            SessionError: there are some, and none of them is whole.
        """
        damaged = []
        for path in self._all():
            found = _checked(path)
            if isinstance(found, FoundCheckpoint):
                return found
            damaged.append(f"{path}: {found}")
            sys.stderr.write(f"hetsched: {path} is damaged ({found}); trying the one before\n")
            with contextlib.suppress(OSError):
                path.rename(path.with_name(path.name + ".damaged"))
        # Those of runs before count too: Slurm may start a job again before anybody has looked.
        kept = sorted(self.path.glob("step-*.damaged"))
        if damaged or kept:
            found = "; ".join(damaged) or ", ".join(path.name for path in kept)
            raise SessionError(
                f"no checkpoint in {self.path} is whole: {found}; they are kept as *.damaged: put "
                "one of them right and name it as it was, or move them away to begin anew"
            )
        return None

    @property
    def empty(self) -> bool:
        """Whether there is no checkpoint to go on from."""
        return next(self._all(), None) is None

    def part_of(self, step: int) -> Path:
        """Return where a checkpoint is written."""
        return self.path / f".step-{step:012d}.part"

    def path_of(self, step: int) -> Path:
        """Return where a checkpoint is once it is whole."""
        return self.path / f"step-{step:012d}"

    def finish(self, step: int, ranks: int, progress: Mapping[str, Any], files: Any) -> None:
        """Make a checkpoint count of which all files are on disk, and remove the oldest ones.

        Raises:
            OSError: it cannot be done.
        """
        part, path = self.part_of(step), self.path_of(step)
        manifest = {"schema": SCHEMA, "progress": progress, "ranks": ranks, "files": files}
        write_whole(part / MANIFEST, [json.dumps(manifest, indent=1).encode()])
        before = path.with_name(f".{path.name}.old")
        if path.exists():  # of the same step, but perhaps of the epoch before
            path.rename(before)
        part.rename(path)
        sync_folder(self.path)
        shutil.rmtree(before, ignore_errors=True)
        for old in list(self._all())[self._keep :]:
            shutil.rmtree(old, ignore_errors=True)

    def _all(self) -> Iterator[Path]:
        """Yield checkpoints, the newest first."""
        names = [path.name for path in self.path.iterdir() if _STEP.fullmatch(path.name)]
        for name in sorted(names, reverse=True):
            yield self.path / name


def _checked(path: Path) -> FoundCheckpoint | str:
    """Return a checkpoint, or what is wrong with it.

    Raises:
        SessionError: it cannot be read now, which does not mean that it is damaged.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        if manifest["schema"] != SCHEMA:
            return f"its schema is {manifest['schema']!r}, expected {SCHEMA!r}"
        for name, (crc32, size) in manifest["files"].items():
            found = checksum(path / name)
            if found[1] != size:
                return f"{name} has {found[1]} bytes and not {size}"
            if found[0] != crc32:
                return f"{name} has another checksum than when it was written"
        return FoundCheckpoint(path, manifest["progress"], int(manifest["ranks"]))
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        raise SessionError(f"{path} cannot be read: {error}; start again when it can") from error
    except (ValueError, KeyError, TypeError):
        return f"{MANIFEST} is none"
