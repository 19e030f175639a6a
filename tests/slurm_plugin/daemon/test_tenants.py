"""Jobs that share no node with other users keep those off it, and nothing else."""

from dataclasses import replace

import pytest

from hetsched_core.types import Reason, ReasonCode
from slurm_plugin.backend import Enter, JobState, SlurmBackend, SlurmJob
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import RIGID, Clock, daemon_of, node, running, state
from tests.slurm_plugin.daemon.test_daemon_live import daemon_of as live_daemon
from tests.slurm_plugin.daemon.test_daemon_live import drive, started
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.submit.asking import as_user

ANN, BOB = (replace(RIGID, id=number, user=user) for number, user in (("1", "ann"), ("2", "bob")))
OWN = "user"


@pytest.mark.parametrize(
    ("there", "comes", "goes_to"),
    [
        (ANN, BOB, {"n0"}),
        (replace(ANN, exclusive=OWN), BOB, {"n1"}),
        (ANN, replace(BOB, exclusive=OWN), {"n1"}),
        (replace(ANN, exclusive=OWN), replace(ANN, id="3"), {"n0"}),
        (replace(ANN, exclusive=OWN, state=JobState.ENDED), BOB, {"n0"}),
    ],
)
@pytest.mark.parametrize("gpus", [0, 1])
def test_a_job_goes_where_slurm_starts_it(
    there: SlurmJob, comes: SlurmJob, goes_to: set[str], gpus: int
) -> None:
    # n1 has less room, and is taken only where n0 is not to be had.
    nodes = (node("n0", used=1), replace(node("n1", used=1), cpus_used=8))
    others = replace(running(there, "n0"), reservation="")
    if there.state is JobState.ENDED:
        others = replace(others, state=JobState.ENDED)
    backend = FakeBackend(state(others, replace(comes, gpus=gpus), nodes=nodes))
    daemon_of(backend, Clock()).cycle()
    placed = [call for call in backend.calls if isinstance(call, Enter)]
    assert {name for call in placed for name in call.nodes} == goes_to


def test_one_that_fits_nowhere_for_others_is_told_so_and_keeps_no_job_waiting() -> None:
    alone = replace(BOB, exclusive=OWN, submit_s=1.0)
    backend = FakeBackend(
        state(running(ANN, "n0"), alone, replace(ANN, id="3"), nodes=(node("n0", used=1),))
    )
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert [call.job for call in backend.calls if isinstance(call, Enter)] == ["3"]
    said = "jobs of other users are on them, and they or it share no node"
    assert daemon.world.jobs["2"].blocked == Reason(ReasonCode.CLOSED, detail=said)


@pytest.mark.parametrize("exclusive", ["", OWN])
def test_two_that_share_no_node_enter_none_in_one_cycle(exclusive: str) -> None:
    both = replace(ANN, exclusive=exclusive), BOB
    backend = FakeBackend(state(*both, nodes=(node("n0"),)))
    daemon_of(backend, Clock()).cycle()
    entered = [call.job for call in backend.calls if isinstance(call, Enter)]
    assert len(entered) == (1 if exclusive else 2)


@pytest.mark.parametrize("exclusive", ["", "node"])
def test_a_job_without_gpus_enters_no_node_that_one_has_just_taken_for_itself(
    exclusive: str,
) -> None:
    alone, small = replace(ANN, exclusive=exclusive), replace(BOB, gpus=0, cpus=1)
    backend = FakeBackend(state(alone, small, nodes=(node("n0"),)))
    daemon_of(backend, Clock()).cycle()
    entered = {call.job for call in backend.calls if isinstance(call, Enter)}
    assert entered == ({"1"} if exclusive else {"1", "2"})


@pytest.mark.slurm
def test_slurm_starts_what_is_placed_beside_jobs_that_share_no_node_with_other_users(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    daemon = live_daemon(backend, "steady")
    drive(daemon, lambda: daemon.world.cluster is not None, 20)
    words = ("--parsable", "--output=/dev/null", "--exclusive=user", "--gpus=1")
    job = as_user(testbed, "bin", "sbatch", *words, "--wrap=sleep 600").stdout.strip()
    drive(daemon, lambda: backend.read().jobs[job].state is JobState.RUNNING, 20)
    (taken,) = backend.read().jobs[job].nodes
    rest = (each for each in backend.read().nodes if each.name != taken)
    idle = sum(count for each in rest for _, count in each.gpus)
    others = [submitter.submit("--gpu-set=4", "--gpus=4", seconds=600) for _ in range(idle // 4)]
    drive(daemon, started(submitter, others), 20)
    waits = submitter.submit("--gpu-set=1", "--gpus=1", seconds=600)
    drive(daemon, lambda: waits in daemon.world.jobs, 20)
    reason = daemon.world.jobs[waits].blocked
    assert not backend.read().jobs[waits].entered
    assert reason is None or reason.code is ReasonCode.CLOSED
    testbed.command("scancel", job)
