"""What can be taken from the daemon itself: its database, its disk, its clock, its life."""

import os
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hetsched_core.errors import HetschedError
from hetsched_core.store import Store
from slurm_plugin.api.client import ask
from tests.conftest import fill
from tests.slurm_plugin.accounts import accounted_runs
from tests.slurm_plugin.faults.site import Seen, Site
from tests.slurm_plugin.jobs import await_hold

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def test_the_database_is_damaged_at_the_start_meets_a_full_disk_and_is_deleted(
    site: Site, small_disk: Callable[[str], Path]
) -> None:
    disk = small_disk("8m")
    path = disk / "daemon.duckdb"
    path.write_bytes(os.urandom(100_000))
    site.options = (*site.options, f"--database={path}")
    site.begin(40)
    assert "event=database" in site.log
    assert "set aside as daemon.duckdb.damaged-1" in site.log
    said = len(site.log)
    ballast = fill(disk)
    site.await_log("nothing was changed: make room", after=said)
    for _ in range(5):
        site.submit()
    # What runs and waits is seen to, though nothing is recorded.
    site.await_log("event=place", after=said)
    ballast.unlink()
    said = len(site.log)
    path.unlink()
    site.await_log("was deleted or replaced: a new one is begun", after=said)
    # On a slow machine all others may have ended by now.
    site.submit()
    site.await_log("event=decision", after=said)
    # In the middle of the file, while it is in use.
    said = len(site.log)
    with path.open("r+b", buffering=0) as file:
        file.seek(4096)
        file.write(os.urandom(50_000))
    site.await_log("was written to by another process", after=said)
    site.await_log("set aside as daemon.duckdb.damaged-2", after=said)
    site.submit()
    site.await_log("event=decision", after=said)
    # Its mode alone is changed: it is in use, and could not be opened again.
    said = len(site.log)
    path.chmod(0)
    site.await_log("had mode 0000; it is the daemon's alone again", after=said)
    site.kill_daemon()
    said = len(site.log)
    site.start_daemon()
    site.submit()
    site.await_log("event=decision", after=said)
    site.finish()
    site.check()
    # What came after is recorded, and sound.
    with Store.open(path) as store:
        assert store.faults() == ()
        assert store.summary().decisions > 0


@pytest.fixture
def clock(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the seconds by which the clock of a daemon is off that is started from now on."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no C compiler here")
    library, offset = tmp_path / "clock.so", tmp_path / "offset"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["gcc", "-O2", "-fPIC", "-shared", "-o", library, source], check=True)
    offset.write_bytes(struct.pack("l", 0))
    monkeypatch.setenv("CLOCK_OFFSET", str(offset))
    site.preload = str(library)
    return offset


def test_the_daemon_s_clock_is_stepped_back_and_forth(site: Site, clock: Path) -> None:
    site.begin(40)
    for seconds in (-30, -3600, 3600, 0):
        said = len(site.log)
        with clock.open("r+b", buffering=0) as file:
            file.write(struct.pack("l", seconds))

        def decided(after: int = said, off_s: int = seconds) -> bool:
            times = re.findall(r"^time=(\S+) .*event=decision", site.log[after:], re.MULTILINE)
            now = time.time() + off_s
            return any(abs(datetime.fromisoformat(at).timestamp() - now) < 14 for at in times)

        site.await_that(decided, 60, f"a decision {seconds} s off")
    site.finish()
    site.check()


def test_gpu_hours_in_the_history_are_slurm_s_whatever_daemons_looked(site: Site) -> None:
    job = site.plain_job(gpus=2)

    def told() -> list[dict[str, Any]]:
        with suppress(HetschedError):
            (one,) = ask(site.folder / "hetschedd.sock", "history", job=job)["jobs"]
            return list(one["events"])
        return []

    def looks() -> None:
        site.start_daemon()
        site.await_that(lambda: bool(told()), 60, "the daemon has looked")

    looks()
    site.await_run(job, least_s=4)
    site.kill_daemon()
    site.await_run(job, least_s=8)
    looks()
    site.stop_daemon()
    site.cluster.command("scontrol", "requeue", job)
    looks()
    site.await_run(job, run=1, least_s=4)
    site.kill_daemon()
    site.await_run(job, run=1, least_s=8)
    site.cluster.command("scancel", job)
    site.await_that(lambda: not site.queue(), 60, "the job has ended")
    rows = accounted_runs(site.cluster, [job])[job]
    looks()
    site.await_that(lambda: told()[-1]["event"] == "left", 60, "the job has left")
    left = told()[-1]
    hours = float(re.findall(r"after (\S+) GPU hours", left["detail"])[0])
    # A run that is changed as it starts has two records.
    assert len({row.restarts for row in rows}) == 2
    # Slurm tells whole seconds of each begin and end, and queues a job again once it has ended.
    assert hours * 3600 == pytest.approx(2 * sum(row.seconds for row in rows), abs=2 * 4)
    ended_s = datetime.fromisoformat(rows[-1].end).astimezone().timestamp()
    assert left["at_s"] == pytest.approx(ended_s, abs=1)
    assert [each["event"] for each in told()].count("runs") == 2


def waiting(site: Site) -> set[str]:
    """The jobs that wait, have not been placed and have never run, by our names."""
    pending = ("squeue", "-h", "--array", "--states=PD", "--format=%i %v")
    told = map(str.split, site.cluster.command(*pending).splitlines())
    found = {job for job, reservation in told if reservation == "(null)"}
    return {name for name, job in site.submitted.items() if job.job in found} - site.seen().keys()


def await_first(site: Site, names: set[str], since_s: float) -> dict[str, Seen]:
    """Wait until some of these jobs have begun; return the first run of each that has."""

    def first() -> dict[str, Seen]:
        seen = site.seen()
        runs = {name: seen[name][0] for name in names if seen.get(name)}
        return {name: run for name, run in runs.items() if run.begin > since_s}

    site.await_that(lambda: len(first()) > 5, 60, f"Slurm starts some of {sorted(names)}")
    return first()


def test_a_daemon_that_stops_lets_go_at_once_and_one_that_dies_when_its_hold_ends(
    site: Site,
) -> None:
    site.options = (*site.options, "--slack-s=600")
    # So many of such a length that some wait all the while.
    site.samples = (600.0, 900.0)
    site.begin(60)
    site.stop_daemon()
    stopped_s, left = time.time(), waiting(site)
    begun = await_first(site, left, stopped_s)
    site.options = (*site.options, "--slack-s=20")
    site.start_daemon()
    await_hold(site.cluster)
    for _ in range(15):
        site.submit()
    said = len(site.log)
    site.await_log("event=place", after=said)
    # On a slow machine GPUs may have come free for all of these.
    while len(waiting(site)) < 12:
        site.submit()
    site.kill_daemon()
    site.daemon, killed_s = None, time.time()
    left = waiting(site)
    again = await_first(site, left, killed_s)
    # The hold was renewed before half of it was over.
    assert min(run.begin for run in again.values()) > killed_s + 8.0
    site.await_all(240)
    site.check()
    # Those that had not run yet began in the shape in which they were submitted.
    found = {name: len(run.gpus) for name, run in (begun | again).items()}
    assert found == {name: site.gpus[name] for name in found}
