"""A controller that has started again does not show on how many nodes a waiting job may run."""

from dataclasses import replace

import pytest

from slurm_plugin.backend import Resources, SlurmBackend
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.daemon.fake_slurm import RIGID, Site, node
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.live import daemon_of as live_daemon
from tests.slurm_plugin.live import drive

NODES = (node("n0", used=2), node("n1", used=2))


def test_what_was_known_of_the_nodes_of_a_job_is_kept() -> None:
    one = replace(RIGID, gpus=4, resources=Resources((1, 1), 1, "gres/gpu:4", "", "", ""))
    site = Site(one, nodes=NODES)
    for nodes in ((1, 1), (1, 0)):
        shown = replace(one, resources=replace(one.resources, nodes=nodes))
        assert site.see(shown) == []
        assert site.world.jobs[one.id].job.max_nodes == 1


@pytest.mark.parametrize(("gpus", "nodes"), [(4, 1), (8, 2)])
def test_gpus_on_each_node_say_on_how_many_nodes_a_job_runs(gpus: int, nodes: int) -> None:
    asks = Resources((1, 0), nodes, "", "gres/gpu:4", "", "")
    site = Site(replace(RIGID, gpus=gpus, resources=asks))
    site.cycle()
    job = site.world.jobs[RIGID.id].job
    assert (job.min_nodes, job.max_nodes) == (nodes, nodes)


@pytest.mark.slurm
def test_a_job_for_one_node_is_placed_on_no_more_once_slurm_was_reconfigured(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    nodes = [each for each in backend.read().nodes if each.gpus[0][1] == 4]
    daemon = live_daemon(backend, "fifo")
    for each in nodes:
        submitter.submit("", "--gpus=2", f"--nodelist={each.name}", seconds=600)
    daemon_reads = daemon.world
    waits = [
        submitter.submit("", "-N1", "-c4", f"--gpus{how}=a100:4", seconds=600)
        for how in ("", "-per-node")
    ]
    drive(daemon, lambda: all(job in daemon_reads.jobs for job in waits))
    testbed.command("scontrol", "reconfigure")

    def forgotten() -> bool:
        return all(backend.read().jobs[job].resources.nodes == (1, 0) for job in waits)

    drive(daemon, forgotten)
    for job in waits:
        assert daemon_reads.jobs[job].job.max_nodes == 1
        assert not backend.read().jobs[job].entered
