"""Stores that are written in batches, by this process and by others that can be killed."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hetsched_core.store import Measurement, Mode, Moments, ProfileKey, Store

PER_BATCH = 200
NEVER = 1 << 40


def batch(number: int) -> list[Measurement]:
    """Measurements of a profile of their own, each over two nodes."""
    key = ProfileKey(f"profile-{number}", "alice")
    return [
        Measurement(key, "a100", 2, 2, Moments(1, 100.0 + at), 1e9, (f"n{at}", f"m{at}"))
        for at in range(PER_BATCH)
    ]


def batches(path: Path) -> int:
    """How many batches a store holds; it must be sound, each batch whole, and none missing."""
    with Store.open(path) as store:
        assert store.faults() == ()
        known = store.profiles()
    assert all(each.measurements == PER_BATCH for each in known)
    assert all(each.entities == 2 * PER_BATCH for each in known)
    numbers = sorted(int(each.profile.name.removeprefix("profile-")) for each in known)
    assert numbers == list(range(len(known)))
    return len(known)


class Child:
    """Another process that has the store open, and writes batch after batch if it may."""

    SCRIPT = """
import sys
from pathlib import Path
folder, path, mode, checkpoint = sys.argv[1:]
sys.path.insert(0, folder)
from batches import batch
from hetsched_core.store import Mode, Store, database
database.CHECKPOINT_BYTES = int(checkpoint)
print("ready", flush=True)
with Store.open(Path(path), Mode(mode)) as store:
    print("open", flush=True)
    number = store.summary().profiles
    while mode == "write":
        store.record(batch(number))
        number += 1
        print(number, flush=True)
    sys.stdin.read()
"""

    def __init__(self, path: Path, mode: Mode, checkpoint: int) -> None:
        arguments = [str(Path(__file__).parent), str(path), mode.value, str(checkpoint)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def wait_for(self, word: str) -> None:
        """Wait until it has said this."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if self.lines[-1] == word:
                return
        pytest.fail(f"the process ended before it said {word!r}: {self.lines}")

    def kill(self) -> int:
        """Kill it at once; return how many batches it said were recorded."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.stdout is not None
        self.lines += self.process.stdout.read().split()
        assert self.process.wait() == -signal.SIGKILL
        return max((int(line) for line in self.lines if line.isdigit()), default=0)


@contextmanager
def child(path: Path, mode: Mode = Mode.WRITE, checkpoint: int = NEVER) -> Iterator[Child]:
    """A process that is gone in the end."""
    child = Child(path, mode, checkpoint)
    try:
        yield child
    finally:
        child.process.kill()
        child.process.communicate()


def killed(path: Path, recorded: int) -> Path:
    """Kill a writer once it has recorded so many batches; return the log that it left."""
    with child(path) as writer:
        writer.wait_for(str(recorded))
        writer.kill()
    return path.with_name(f"{path.name}.wal")
