"""Nodes that Slurm has powered down, on a real Slurm: a job that is placed there wakes them."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import open_backend
from slurm_plugin.testbed import Installation, Testbed, fake_nodes, usual_site
from tests.slurm_plugin.daemon.nodes.test_closed_nodes_live import is_condition
from tests.slurm_plugin.jobs import Submitter, end_all, running
from tests.slurm_plugin.live import SETTINGS, daemon_of, drive, started

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

SUSPEND = """\
#!/bin/sh
kill $(cat {base}/run/slurmd-$1.pid)
"""

RESUME = """\
#!/bin/sh
until [ -e {folder}/boot ]; do sleep 0.1; done
. {folder}/environment
exec slurmd -b -f {base}/etc/slurm.conf -d $(command -v slurmstepd) -N $1
"""
"""A node's slurmd is what there is of it; it comes up when the test allows for it."""


@pytest.fixture
def saving(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, short_folder: Path
) -> Iterator[tuple[Testbed, Path]]:
    """Two nodes, of four A100 and eight V100 GPUs, that Slurm powers down and up."""
    base = short_folder / "slurm"
    site = usual_site(fake_nodes(2))
    power = ["SuspendTime=10000", "SuspendTimeout=3", "ResumeTimeout=300"]
    for script, text in (("Suspend", SUSPEND), ("Resume", RESUME)):
        path = short_folder / script
        path.write_text(text.format(base=base, folder=short_folder))
        path.chmod(0o755)
        power.append(f"{script}Program={path}")
    cluster = Testbed.create(installation, base, replace(site, settings=(*site.settings, *power)))
    words = cluster.environment()
    (short_folder / "environment").write_text(
        "".join(f"export {key}='{value}'\n" for key, value in words.items())
    )
    for key, value in words.items():
        monkeypatch.setenv(key, value)
    try:
        cluster.up()
        yield cluster, short_folder
        end_all(cluster)
    finally:
        (short_folder / "boot").touch()
        cluster.down()


def test_a_job_wakes_a_node_that_is_powered_down_and_holds_it_until_it_is_up(
    saving: tuple[Testbed, Path], tmp_path: Path
) -> None:
    cluster, folder = saving
    submitter, backend = Submitter(cluster, tmp_path), open_backend("commands")
    daemon = daemon_of(backend, settings=replace(SETTINGS, start_timeout_s=5.0))
    cluster.command("scontrol", "update", "node=n1", "state=power_down")
    # Slurm starts nothing on a node that is on its way down.
    drive(daemon, is_condition(backend, "n1", NodeCondition.DRAINED))
    drive(daemon, is_condition(backend, "n1", NodeCondition.UP))
    job = submitter.submit("--gpu-set=8", "--gpus=8", "--nodes=1")
    drive(daemon, lambda: running(backend.read().jobs[job]))
    late = time.monotonic() + 6.0
    drive(daemon, lambda: time.monotonic() > late)
    assert [run.configuration.pieces for run in daemon.world.jobs[job].runs] == [(("n1", 8),)]
    assert submitter.told(job) == []
    (folder / "boot").touch()
    drive(daemon, started(submitter, [job]))
    assert submitter.told(job)[0].restarts == 0
