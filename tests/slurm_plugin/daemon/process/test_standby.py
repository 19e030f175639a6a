"""Two daemons of one cluster as processes: one plans, the other takes over, whatever becomes of it.

They share nothing but slurmctld, as on two hosts: nothing that one does reaches the other but
through it.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from hetsched_core.errors import HetschedError
from hetsched_core.store import Store
from slurm_plugin.api.client import ask
from slurm_plugin.backend import SlurmBackend
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.daemon.process.test_hetschedd import hetschedd
from tests.slurm_plugin.jobs import Submitter, await_job, running

SLACK_S = 20
PATIENCE_S = 90.0
OPTIONS = ("--mode=enforce", "--standby=true", f"--slack-s={SLACK_S}", "--cycle-s=0.5")
_CHANGES = re.compile(r"event=(place|leave|signal|requeue|cancel|release|drop|hold)\b")

pytestmark = pytest.mark.slurm


class Host:
    """What one host has: a daemon, with a database, a socket and a log of its own."""

    def __init__(self, cluster: Testbed, folder: Path, *options: str, **environment: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.socket = folder, folder / "s"
        options = (*OPTIONS, f"--socket={self.socket}", *options)
        self.process = hetschedd(cluster, folder, *options, **environment)

    def log(self) -> str:
        return (self.folder / "daemon.log").read_text()

    def has(self, words: str) -> Host:
        """Wait until its log has something."""

        def there() -> bool:
            assert self.process.poll() is None or words in self.log(), self.log()
            return words in self.log()

        wait_until(there, f"{words} in the log of {self.folder.name}", PATIENCE_S)
        return self


@contextmanager
def hosts(cluster: Testbed, folder: Path) -> Iterator[list[Host]]:
    """What is put into the list is ended."""
    begun: list[Host] = []
    try:
        yield begun
    finally:
        for host in begun:
            host.process.send_signal(signal.SIGCONT)
            host.process.kill()
            host.process.wait(PATIENCE_S)
        names = cluster.command("scontrol", "show", "reservation", "--oneliner")
        for name in re.findall(r"ReservationName=(hetsched\S*)", names):
            with suppress(Exception):
                cluster.command("scontrol", "delete", f"ReservationName={name}")


def test_another_host_s_daemon_takes_over_from_a_killed_one_and_a_stopped_one_that_wakes_ends(
    testbed: Testbed, submitter: Submitter, backend: SlurmBackend, free: str, short_folder: Path
) -> None:
    shared = f"--database={short_folder}/shared.duckdb"
    with hosts(testbed, short_folder) as begun:
        begun.append(first := Host(testbed, short_folder / "a", shared).has("event=up"))
        second = Host(testbed, short_folder / "b", shared, f"--metrics={free}")
        begun.append(second.has("event=standby"))
        assert stands_by(free)
        name = re.escape(socket.gethostname())
        with pytest.raises(HetschedError, match=rf"stands by: {name} \(hetsched\) schedules; ask"):
            ask(second.socket, "status")
        job = submitter.submit("--gpu-set=1", seconds=600)
        await_job(backend, job, running)
        first.process.send_signal(signal.SIGKILL)
        waits = submitter.submit("--gpu-set=2", seconds=600)
        await_job(backend, waits, running, PATIENCE_S)
        # By the other one, and not by Slurm, whose turn would have come.
        second.has(f"event=place job={waits} ")
        wait_until(lambda: not stands_by(free), "figures of one that schedules", PATIENCE_S)
        assert ask(second.socket, "status")["mode"] == "enforce"

        begun.append(third := Host(testbed, short_folder / "c", shared).has("event=standby"))
        second.process.send_signal(signal.SIGSTOP)
        later = [submitter.submit("--gpu-set=1", seconds=600) for _ in range(3)]
        for each in later:
            await_job(backend, each, running, PATIENCE_S)
        third.has(f"event=place job={later[-1]} ")
        before, known = second.log(), backend.read().jobs
        second.process.send_signal(signal.SIGCONT)
        assert second.process.wait(PATIENCE_S) == 1
        said = second.log().removeprefix(before)
        assert "another daemon has taken over (hetsched-3)" in said
        assert not _CHANGES.search(said), said
        # What has run runs, and the third goes on.
        assert {each: known[each].start_s for each in (job, waits, *later)} == {
            each: backend.read().jobs[each].start_s for each in (job, waits, *later)
        }
        # The database was the second's, which stood still, until that had ended.
        assert "event=database" in third.log().partition("event=up")[2]
        third.has(f"{short_folder}/shared.duckdb is in use from now on")
        last = submitter.submit("--gpu-set=1", seconds=600)
        await_job(backend, last, running)
        third.has(f"event=place job={last} ")
        third.process.terminate()
        assert third.process.wait(PATIENCE_S) == 0
    with Store.open(short_folder / "shared.duckdb") as store:
        assert [each for each in (waits, last) if not store.jobs(each)] == []


def stands_by(address: str) -> bool:
    """Whether a daemon tells Prometheus that it does."""
    with urlopen(f"http://{address}/metrics", timeout=60) as answer:
        figures = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
    return bool(float(figures["hetsched_standby"]))


def test_one_whose_way_to_slurm_is_cut_does_nothing_once_it_is_whole_again(
    testbed: Testbed, submitter: Submitter, backend: SlurmBackend, short_folder: Path
) -> None:
    with hosts(testbed, short_folder) as begun, way(testbed, short_folder) as (conf, cut):
        begun.append(first := Host(testbed, short_folder / "a", SLURM_CONF=str(conf)))
        first.has("event=up")
        begun.append(second := Host(testbed, short_folder / "b").has("event=standby"))
        job = submitter.submit("--gpu-set=1", seconds=600)
        await_job(backend, job, running)
        first.has(f"event=place job={job} ")
        cut.send_signal(signal.SIGSTOP)
        later = [submitter.submit("--gpu-set=1", seconds=600) for _ in range(2)]
        for each in later:
            await_job(backend, each, running, PATIENCE_S)
        second.has(f"event=place job={later[-1]} ")
        before = first.log()
        cut.send_signal(signal.SIGCONT)
        assert first.process.wait(PATIENCE_S) == 1
        said = first.log().removeprefix(before)
        assert "another daemon has taken over (hetsched-2)" in said
        assert not _CHANGES.search(first.log().split(f"job={job} ")[-1]), first.log()


@contextmanager
def way(cluster: Testbed, folder: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A slurm.conf that goes to slurmctld by a process, which is stopped to cut the way.

    What is sent then stands still, and arrives once that goes on.
    """
    text = cluster.layout.slurm_conf.read_text()
    port = re.search(r"^SlurmctldPort=(\d+)$", text, re.MULTILINE)
    assert port is not None
    words = [sys.executable, "-c", WAY, port[1]]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        conf = folder / "slurm.conf"
        conf.write_text(text.replace(port[0], f"SlurmctldPort={process.stdout.readline()}"))
        try:
            yield conf, process
        finally:
            process.kill()


WAY = """
import asyncio, sys

async def passed(source, target):
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    target.write_eof()

async def meet(*client):
    server = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    try:
        await asyncio.gather(passed(client[0], server[1]), passed(server[0], client[1]))
    finally:
        client[1].close(), server[1].close()

async def serve():
    here = await asyncio.start_server(meet, "127.0.0.1", 0)
    print(here.sockets[0].getsockname()[1], flush=True)
    await here.serve_forever()

asyncio.run(serve())
"""
