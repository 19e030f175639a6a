"""One daemon at a time, whatever becomes of the lock's file."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.daemon.lock import DaemonLock

HOLDER = """
import sys
from pathlib import Path
from slurm_plugin.daemon.lock import DaemonLock
with DaemonLock(Path(sys.argv[1]), 1.76e9):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(database: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock until it is killed."""
    words = [sys.executable, "-c", HOLDER, str(database)]
    process = subprocess.Popen(words, stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_is_told_of_the_first_and_takes_over_when_that_is_killed(
    tmp_path: Path,
) -> None:
    database = tmp_path / "daemon.duckdb"
    with holder(database) as first:
        with pytest.raises(InputError) as refused:
            DaemonLock(database, 2e9)
        # What the first has said of itself is not written over.
        with pytest.raises(InputError):
            DaemonLock(database, 2e9)
        said = str(refused.value)
        assert f"process {first.pid} on {socket.gethostname()}" in said
        assert "since 2025-10-09T08:53:20+00:00" in said
        first.send_signal(signal.SIGKILL)
        first.wait()
        with DaemonLock(database, 2e9) as lock:
            lock.check()
            told = json.loads((tmp_path / "daemon.duckdb.lock").read_text())
        assert told["pid"] == os.getpid()


def test_a_lock_whose_file_was_deleted_is_taken_again(tmp_path: Path) -> None:
    database = tmp_path / "daemon.duckdb"
    with DaemonLock(database, 1.0) as lock:
        (tmp_path / "daemon.duckdb.lock").unlink()
        lock.check()
        with pytest.raises(InputError, match="another daemon runs"):
            DaemonLock(database, 2.0)


def test_of_two_whose_file_was_deleted_one_gives_way(tmp_path: Path) -> None:
    database = tmp_path / "daemon.duckdb"
    with DaemonLock(database, 1.0) as lock:
        (tmp_path / "daemon.duckdb.lock").unlink()
        with holder(database) as quicker:
            with pytest.raises(InputError, match=f"process {quicker.pid} on "):
                lock.check()
            quicker.kill()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "since_s": 1e999}'])
def test_a_holder_who_has_not_said_who_it_is_holds_it_all_the_same(
    tmp_path: Path, text: str
) -> None:
    database = tmp_path / "daemon.duckdb"
    with DaemonLock(database, 1.0):
        (tmp_path / "daemon.duckdb.lock").write_text(text)
        with pytest.raises(InputError, match="it has not said who it is"):
            DaemonLock(database, 2.0)


def test_a_lock_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape("daemon.duckdb.lock cannot be opened")):
        DaemonLock(tmp_path / "missing" / "daemon.duckdb", 1.0)
    # Nobody makes the daemon write into another file.
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "daemon.duckdb.lock").symlink_to(other)
    with pytest.raises(InputError, match="cannot be opened"):
        DaemonLock(tmp_path / "daemon.duckdb", 1.0)
    assert other.read_text() == "mine"
