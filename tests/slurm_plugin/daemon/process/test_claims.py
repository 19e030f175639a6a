"""The claim: two daemons of one cluster see each other, whatever databases they have."""

import hashlib
import io
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.backend import AwayError, SlurmSite
from slurm_plugin.daemon.process.claims import ClusterClaim
from slurm_plugin.daemon.process.configuration import LogForm
from slurm_plugin.daemon.process.database import DaemonDatabase
from slurm_plugin.daemon.process.lock import DaemonLock
from slurm_plugin.daemon.process.log import open_log
from slurm_plugin.daemon.process.run import _Held
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import WAITING, Clock, daemon_of, state
from tests.slurm_plugin.daemon.process.test_hetschedd import hetschedd
from tests.slurm_plugin.jobs import deadline

HOLD = """
import os, sys
from slurm_plugin.daemon.process.claims import ClusterClaim
os.setuid(int(sys.argv[2]))
with ClusterClaim() as claim:
    claim.be_of(sys.argv[1])
    claim.hold()
    print("held", flush=True)
    for line in sys.stdin:
        print(claim.check(), flush=True)
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes other users' rights")


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    """The name of a cluster that no other test knows."""
    return f"{tmp_path}"


def claim_of(cluster: str) -> ClusterClaim:
    """What a daemon of a cluster may claim."""
    claim = ClusterClaim()
    claim.be_of(cluster)
    return claim


@contextmanager
def claiming(cluster: str, uid: int) -> "Iterator[subprocess.Popen[str]]":
    """A process of a user that claims a cluster, once it has tried, until it is killed."""
    words = [sys.executable, "-c", HOLD, cluster, str(uid)]
    with subprocess.Popen(words, stdin=-1, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def in_the_way(cluster: str) -> Iterator[str]:
    """Keep the name of a cluster's claim for a while, and answer nobody; the name."""
    name = f"hetschedd/{hashlib.sha256(cluster.encode()).hexdigest()[:32]}"
    with socket.socket(socket.AF_UNIX) as another:
        another.bind(f"\0{name}")
        yield f"@{name}"


def refuses(claim: ClusterClaim, words: str) -> None:
    """Hold that a claim cannot be had, and what is said."""
    with pytest.raises(InputError, match=words):
        claim.hold()


MINE = f"this cluster: process {os.getpid()} of "


def test_the_second_daemon_of_a_cluster_is_told_of_the_first(cluster: str) -> None:
    with claiming(cluster, os.geteuid()) as first:
        with claim_of(cluster) as claim:
            refuses(claim, f"holds nodes of this cluster: process {first.pid} of ")
        with claim_of(f"{cluster} too") as claim:
            claim.hold()
    # The kernel takes it from the dead.
    with claim_of(cluster) as claim:
        claim.hold()
        claim.hold()


def test_what_is_wanted_is_claimed_once_slurm_says_which_cluster_it_is_and_before_it_is_read(
    cluster: str,
) -> None:
    class Slurm(FakeBackend):
        answers = False

        def site(self) -> SlurmSite:
            if not self.answers:
                raise AwayError("nobody answers")
            return replace(self.where, cluster=cluster)

    slurm = Slurm(state(WAITING))
    with claim_of(cluster) as first, ClusterClaim() as second:
        second.hold()
        daemon = daemon_of(second.watched(slurm), Clock())
        assert daemon.cycle().away == "nobody answers"
        first.hold()
        slurm.answers = True
        with pytest.raises(InputError, match=MINE):
            daemon.cycle()
        assert slurm.calls == []


def test_a_cluster_whose_slurmctld_moves_is_claimed_under_its_new_name(cluster: str) -> None:
    with claim_of(f"{cluster} at a") as first, claim_of(f"{cluster} at b") as second:
        first.hold()
        first.be_of(f"{cluster} at b")
        refuses(second, "another daemon holds nodes of this cluster")
        # A reload that is refused leaves nothing behind that would end the daemon later.
        second.be_of(f"{cluster} at b")


@pytest.mark.slurm
def test_a_second_daemon_is_refused_though_slurm_conf_is_a_new_file_under_another_name(
    testbed: Testbed, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    conf = testbed.layout.slurm_conf
    first = hetschedd(testbed, one, "--mode=enforce", f"--socket={one}/s")
    second = None
    try:
        latest = deadline(20)
        while "event=up" not in (one / "daemon.log").read_text():
            assert first.poll() is None, (one / "daemon.log").read_text()
            assert time.monotonic() < latest
            time.sleep(0.1)
        # As `sed -i` does.
        shutil.copy2(conf, f"{conf}.new")
        Path(f"{conf}.new").replace(conf)
        link = two / "slurm.conf"
        link.symlink_to(conf)
        words = ("--mode=enforce", f"--socket={two}/s", "--backend=commands")
        second = hetschedd(testbed, two, *words, SLURM_CONF=str(link))
        assert second.wait(60) == 1
        said = (two / "daemon.log").read_text()
        assert f"another daemon holds nodes of this cluster: process {first.pid} of " in said
        assert first.poll() is None
        # It has begun no database.
        assert [path.name for path in two.glob("*.duckdb*")] == ["daemon.duckdb.lock"]
    finally:
        for process in (first, second):
            if process is not None:
                process.terminate()
                process.wait(60)


@as_root
def test_a_daemon_that_another_user_keeps_from_its_claim_says_so_once_and_claims_it_later(
    cluster: str,
) -> None:
    # Another user's daemon goes on, and root is told who it is.
    with claiming(cluster, 65_534) as hostile, claiming(cluster, 1) as daemon:
        with claim_of(cluster) as claim:
            refuses(claim, " of nobody")

        def checked() -> str:
            assert daemon.stdin is not None
            assert daemon.stdout is not None
            print(file=daemon.stdin, flush=True)
            return daemon.stdout.readline()

        said = f"the cluster is not claimed: process {hostile.pid} of nobody holds @hets"
        assert said in checked()
        assert checked() == "('', False)\n"
        hostile.kill()
        hostile.wait()
        assert checked() == "('', True)\n"
        assert checked() == "('', False)\n"
        # It is a claim as any other by now.
        with claim_of(cluster) as claim:
            refuses(claim, f"this cluster: process {daemon.pid} of ")


def test_a_name_that_does_not_answer_is_logged_once_and_claimed_once_it_is_free(
    cluster: str, tmp_path: Path
) -> None:
    slurm, path, said = FakeBackend(state(WAITING)), tmp_path / "daemon.duckdb", io.StringIO()
    slurm.where = replace(slurm.where, cluster=cluster)
    log = open_log(LogForm.LOGFMT, said)
    with DaemonLock(path, 0.0) as lock, ClusterClaim() as claim, DaemonDatabase(path) as database:
        database.open(0.0)
        held = _Held(lock, claim, database)
        claim.hold()
        daemon = daemon_of(claim.watched(slurm), Clock())
        with in_the_way(cluster) as name:
            for _ in range(3):
                held.check(daemon, log)
                daemon.cycle()
        (line,) = said.getvalue().splitlines()
        assert "event=beware" in line
        assert f"the cluster is not claimed: one that does not answer holds {name}" in line
        held.check(daemon, log)
        held.check(daemon, log)
        assert said.getvalue().count("\n") == 2
        assert said.getvalue().endswith("event=claimed\n")
        with claim_of(cluster) as second:
            refuses(second, "another daemon")


def test_a_daemon_that_lacks_a_claim_ends_if_another_of_its_user_is_quicker(cluster: str) -> None:
    with claim_of(cluster) as first, claim_of(cluster) as second:
        with in_the_way(cluster):
            first.hold()
            assert first.check()[0]
        second.hold()
        with pytest.raises(InputError, match=MINE):
            first.check()


def test_however_many_have_looked_the_next_is_told_as_well(cluster: str) -> None:
    with claim_of(cluster) as first, claim_of(cluster) as second:
        first.hold()
        for at in range(300):
            refuses(second, MINE)
            if at % 100 == 99:
                first.check()
