"""The claim: two daemons of one cluster see each other, whatever databases they have."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.backend import AwayError, SlurmSite
from slurm_plugin.daemon.claims import Claim
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import WAITING, Clock, daemon_of, state
from tests.slurm_plugin.daemon.test_hetschedd import hetschedd
from tests.slurm_plugin.jobs import deadline

HOLD = """
import os, sys
from slurm_plugin.daemon.claims import Claim
os.setuid(int(sys.argv[2]))
with Claim() as claim:
    claim.be_of(sys.argv[1])
    claim.hold()
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    """The name of a cluster that no other test knows."""
    return f"{tmp_path}"


def claim_of(cluster: str) -> Claim:
    """What a daemon of a cluster may claim."""
    claim = Claim()
    claim.be_of(cluster)
    return claim


def holding(cluster: str, uid: int) -> "subprocess.Popen[str]":
    """A process of a user that claims a cluster."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, cluster, str(uid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_second_daemon_of_a_cluster_is_told_of_the_first(cluster: str) -> None:
    with holding(cluster, os.geteuid()) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        words = f"holds nodes of this cluster: process {first.pid} of "
        with claim_of(cluster) as claim, pytest.raises(InputError, match=words):
            claim.hold()
        with claim_of(f"{cluster} too") as claim:
            claim.hold()
        first.kill()
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
            return self.where

    slurm = Slurm(state(WAITING))
    slurm.where = replace(slurm.where, cluster=cluster)
    with claim_of(cluster) as first, Claim() as second:
        second.hold()
        daemon = daemon_of(second.watched(slurm), Clock())
        assert daemon.cycle().away == "nobody answers"
        first.hold()
        slurm.answers = True
        with pytest.raises(InputError, match=f"this cluster: process {os.getpid()} of "):
            daemon.cycle()
        assert slurm.calls == []


def test_a_cluster_whose_slurmctld_moves_is_claimed_under_its_new_name(cluster: str) -> None:
    with claim_of(f"{cluster} at a") as first, claim_of(f"{cluster} at b") as second:
        first.hold()
        first.be_of(f"{cluster} at b")
        with pytest.raises(InputError, match="another daemon holds nodes of this cluster"):
            second.hold()
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
    finally:
        for process in (first, second):
            if process is not None:
                process.terminate()
                process.wait(60)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes other users' rights")
def test_a_claim_of_any_user_keeps_no_daemon_away(cluster: str) -> None:
    with holding(cluster, 65_534) as hostile:
        assert hostile.stdout is not None
        assert hostile.stdout.readline() == "held\n"
        # Another user's daemon goes on.
        with holding(cluster, 1) as daemon:
            assert daemon.stdout is not None
            assert daemon.stdout.readline() == "held\n"
            daemon.kill()
        # Root is told who it is.
        with claim_of(cluster) as claim, pytest.raises(InputError, match=" of nobody"):
            claim.hold()
        hostile.kill()


def test_however_many_have_looked_the_next_is_told_as_well(cluster: str) -> None:
    with claim_of(cluster) as first, claim_of(cluster) as second:
        first.hold()
        for at in range(300):
            with pytest.raises(InputError, match=f"this cluster: process {os.getpid()} of "):
                second.hold()
            if at % 100 == 99:
                first.answer()
