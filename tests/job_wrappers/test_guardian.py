"""What a guardian ends once its process is killed, and what it has let go of by then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from job_wrappers.executor.process import Process
from job_wrappers.guardian import Guardian
from job_wrappers.outcome import Wishes
from job_wrappers.pool import keeper
from tests.job_wrappers.worlds import JOB_PYTHON, environment, tool

GUARDED = """
import os, subprocess
from job_wrappers.guardian import Guardian
guardian = Guardian(0.0)
sleep = ["sleep", "3600"]
groups = [
    subprocess.Popen(sleep, start_new_session=True, stdout=subprocess.DEVNULL).pid for _ in range(3)
]
for group in groups:
    guardian.guard(group)
guardian.release(groups[1])
print(*groups, flush=True)
os.kill(os.getpid(), 9)
"""


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_group_that_was_released_is_not_ended_with_the_others() -> None:
    words = [JOB_PYTHON, "-c", GUARDED]
    killed = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True)
    said, _ = killed.communicate(timeout=60)
    first, released, last = map(int, said.split())
    try:
        while runs(first) or runs(last):
            time.sleep(0.01)
        assert runs(released)
    finally:
        os.kill(released, signal.SIGKILL)


class Listed(Guardian):
    """A guardian of which it is known what it was told: groups, less than 0 where released."""

    told: ClassVar[list[int]] = []

    def guard(self, group: int) -> None:
        super().guard(group)
        self.told.append(group)

    def release(self, group: int) -> None:
        super().release(group)
        self.told.append(-group)


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    Listed.told.clear()


def test_a_process_of_a_training_is_guarded_until_it_was_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tool(tmp_path, "python", "exec sleep 3600")))
    with closing(Listed(0.0)) as guardian:
        process = Process("cpu", guardian)
        assert guardian.told == [process.pid]
        process.kill()
        assert guardian.told == [process.pid, -process.pid]


def test_what_a_keeper_has_waited_for_it_guards_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wishes, "listen", lambda _: None)
    monkeypatch.setattr(keeper, "Guardian", Listed)
    log = tmp_path / "starts"
    fails_once = ["sh", "-c", f"echo x >>{log}; [ $(wc -l <{log}) = 2 ]"]
    assert keeper.keep([keeper.Kept("x", fails_once)], 1, lambda: False) == 0
    first, released, second, last = Listed.told
    assert (released, last) == (-first, -second)
