"""A highly available slurmctld: the first dies, the backup takes over, and the daemon goes on."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from slurm_plugin.testbed import Installation, Layout, Testbed, TestbedError, fake_nodes
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.faults.site import SETS, Site, of_one_job, shared_gpus
from tests.slurm_plugin.jobs import await_hold

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

BACKUP = """\
(cat /etc/hosts; echo 127.0.0.2 backup) >{folder}/hosts
mount --bind {folder}/hosts /etc/hosts
hostname backup
exec {slurmctld} -f {conf}
"""
"""A slurmctld whose host has another name, in a world of its own."""


class Doubled(Layout):
    """A cluster with two controllers, each on an address of its own."""

    def files(self) -> dict[str, str]:
        files = Layout.files(self)
        first = f"SlurmctldHost={self.host}(127.0.0.1)\n"
        text = files["slurm.conf"].replace(first, f"{first}SlurmctldHost=backup(127.0.0.2)\n")
        text = text.replace("SlurmctldTimeout=60", "SlurmctldTimeout=3")
        return files | {"slurm.conf": f"{text}CommunicationParameters=NoCtldInAddrAny\n"}


def start_backup(cluster: Testbed, folder: Path) -> Path:
    """Start the second controller; return the file that names its process."""
    shutil.copytree(cluster.layout.configuration, folder)
    own = folder / "slurm.conf"
    own.write_text(own.read_text().replace("/slurmctld.", "/backup."))
    slurmctld = cluster.installed.program("slurmctld")
    script = BACKUP.format(folder=folder, slurmctld=slurmctld, conf=own)
    done = subprocess.run(
        ["unshare", "--uts", "--mount", "sh", "-c", script],
        env=os.environ | cluster.environment() | {"SLURM_CONF": str(own)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no host of another name can be made here: {done.stderr.strip()}")
    return cluster.layout.runtime / "backup.pid"


@pytest.fixture
def available(installation: Installation, short_folder: Path, tmp_path: Path) -> Iterator[Site]:
    """A cluster with two controllers."""
    nodes = fake_nodes(2, "a100:4")
    cluster = Testbed.create(installation, short_folder / "slurm", nodes)
    own = {each.name: getattr(cluster.layout, each.name) for each in fields(Layout)}
    cluster = replace(cluster, layout=Doubled(**own))
    backup: Path | None = None
    try:
        cluster.up()
        # A backup that finds no saved state does not start.
        cluster.stop_controller()
        cluster.start_controller()
        backup = start_backup(cluster, short_folder / "backup")
        wait_until(lambda: "backup is UP" in _ping(cluster), "a backup", 120)
        options = ("--mode=enforce", "--cycle-s=0.2", "--grace-s=10", "--spool-s=0.5")
        site = Site(cluster, tmp_path, options, random.Random(1))
        yield site
        site.close()
    finally:
        if backup is not None and backup.exists():
            os.kill(int(backup.read_text()), signal.SIGKILL)
        cluster.down()


def _ping(cluster: Testbed) -> str:
    """Return who of the controllers is there; it fails where none is."""
    try:
        return cluster.command("scontrol", "ping")
    except TestbedError as error:
        return str(error)


def _jobs(site: Site, state: str) -> set[str]:
    try:
        listing = site.cluster.command("squeue", "-h", f"--states={state}", "--format=%i")
    except TestbedError:
        return set()
    return set(listing.split())


def test_the_daemon_and_its_jobs_go_on_when_the_backup_takes_over(available: Site) -> None:
    site, layout = available, available.cluster.layout
    site.start_daemon()
    await_hold(site.cluster)
    # Some run for longer than a take-over takes, and keep others waiting.
    for size, jobs in ((1600.0, 4), (200.0, 6)):
        site.samples = (size, size)
        for _ in range(jobs):
            site.submit(SETS)
    site.await_that(lambda: len(site.seen()) >= 2, 60, "jobs run")
    begun = max(run.begin for runs in site.seen().values() for run in runs)
    site.await_saved(begun)
    runs, waits = _jobs(site, "R"), _jobs(site, "PD")
    assert runs
    assert waits
    site.cluster.kill_controller()
    site.await_that(lambda: _jobs(site, "all") >= runs | waits, 90, "the backup knows all jobs")
    assert f"{layout.host} is DOWN" in _ping(site.cluster)
    said = len(site.log)
    later = site.submit(SETS)
    site.await_log(f"event=place job={site.submitted[later].job} ", after=said, timeout_s=120)
    site.await_ends(120)
    seen = site.seen()
    assert [name for name in site.submitted if not site.is_done(name)] == []
    assert [words for runs in seen.values() for words in of_one_job(runs)] == []
    assert list(shared_gpus(run for runs in seen.values() for run in runs)) == []
