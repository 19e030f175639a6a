"""A node goes away under a job on a real Slurm: other jobs are placed elsewhere meanwhile."""

import contextlib
import time
from collections.abc import Callable

import pytest

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import JobState, SlurmBackend
from slurm_plugin.testbed import Testbed, TestbedError
from tests.slurm_plugin.daemon.test_daemon_live import daemon_of, drive, started
from tests.slurm_plugin.jobs import Submitter, await_job, deadline, pending

pytestmark = pytest.mark.slurm


def is_condition(backend: SlurmBackend, node: str, condition: NodeCondition) -> Callable[[], bool]:
    """Whether a node stands so."""
    return lambda: next(n for n in backend.read().nodes if n.name == node).condition is condition


def come_back(testbed: Testbed, backend: SlurmBackend, node: str) -> None:
    """Have a node back, which may come back by itself."""
    latest = deadline(20)
    while not is_condition(backend, node, NodeCondition.UP)():
        assert time.monotonic() < latest, f"{node} does not come back"
        with contextlib.suppress(TestbedError):
            testbed.command("scontrol", "update", f"node={node}", "state=resume")
        time.sleep(0.2)


def test_a_node_that_does_not_answer_and_then_is_down_keeps_no_job_from_other_nodes(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    daemon = daemon_of(backend)
    stays = submitter.submit("--gpu-set=4 --no-move", "--gpus=4", seconds=600)
    drive(daemon, started(submitter, [stays]), 20)
    (node,) = backend.read().jobs[stays].nodes
    testbed.freeze_node(node)
    try:
        # Slurm finds out by itself within half a minute.
        testbed.command("scontrol", "update", f"node={node}", "state=noresp")
        drive(daemon, is_condition(backend, node, NodeCondition.DOWN), 20)
        waiting = [submitter.submit("--gpu-set=4", "--gpus=4", seconds=600) for _ in range(2)]
        drive(daemon, started(submitter, waiting), 20)
        # What runs there is a fact until Slurm says otherwise.
        assert backend.read().jobs[stays].state is JobState.RUNNING
        testbed.command("scontrol", "update", f"node={node}", "state=down", "reason=test")
        await_job(backend, stays, pending)
        later = submitter.submit("--gpu-set=4", "--gpus=4", seconds=600)
        drive(daemon, started(submitter, [later]), 20)
        for job in (*waiting, later):
            assert node not in submitter.told(job)[0].nodes.split(",")
    finally:
        testbed.thaw_node(node)
        come_back(testbed, backend, node)
