"""One daemon at a time, whatever becomes of the lock's file."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.daemon.process.lock import DaemonLock

HOLDER = """
import sys
from pathlib import Path
from slurm_plugin.daemon.process.lock import DaemonLock
with DaemonLock(Path(sys.argv[1]), 1.76e9):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database; its lock lies beside it."""
    return tmp_path / "daemon.duckdb"


def refused(path: Path) -> str:
    """What a daemon is told that cannot have the lock."""
    with pytest.raises(InputError) as refused:
        DaemonLock(path, 2e9)
    return str(refused.value)


def holder(path: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock until it is killed."""
    words = [sys.executable, "-c", HOLDER, str(path)]
    process = subprocess.Popen(words, stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_is_told_of_the_first_and_takes_over_when_that_is_killed(path: Path) -> None:
    with holder(path) as first:
        # What the first has said of itself is not written over.
        for said in (refused(path), refused(path)):
            assert f"process {first.pid} on {socket.gethostname()}" in said
            assert "since 2025-10-09T08:53:20+00:00" in said
        first.send_signal(signal.SIGKILL)
        first.wait()
        with DaemonLock(path, 2e9) as lock:
            lock.check()
            told = json.loads(path.with_name("daemon.duckdb.lock").read_text())
        assert told["pid"] == os.getpid()


def test_a_lock_whose_file_was_deleted_is_taken_again_or_given_up_to_who_was_quicker(
    path: Path,
) -> None:
    with DaemonLock(path, 1.0) as lock:
        path.with_name("daemon.duckdb.lock").unlink()
        lock.check()
        assert "another daemon runs" in refused(path)
        path.with_name("daemon.duckdb.lock").unlink()
        with holder(path) as quicker:
            with pytest.raises(InputError, match=f"process {quicker.pid} on "):
                lock.check()
            quicker.kill()


def test_a_lock_whose_folder_is_gone_is_held_on_to_and_taken_again_once_there_is_one(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "var"
    folder.mkdir()
    with DaemonLock(folder / "daemon.duckdb", 1.0) as lock:
        folder.rename(tmp_path / "away")
        lock.check()
        folder.mkdir()
        lock.check()
        assert "another daemon runs" in refused(folder / "daemon.duckdb")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "since_s": 1e999}'])
def test_a_holder_who_has_not_said_who_it_is_holds_it_all_the_same(path: Path, text: str) -> None:
    with DaemonLock(path, 1.0):
        path.with_name("daemon.duckdb.lock").write_text(text)
        assert "it has not said which it is" in refused(path)


def test_a_lock_that_cannot_be_had_is_told(path: Path) -> None:
    assert "daemon.duckdb.lock cannot be opened" in refused(path.parent / "missing" / path.name)
    # Nobody makes the daemon write into another file.
    other = path.with_name("other")
    other.write_text("mine")
    path.with_name("daemon.duckdb.lock").symlink_to(other)
    assert "cannot be opened" in refused(path)
    assert other.read_text() == "mine"
