"""What users do with their jobs while the daemon manages them."""

import time
from collections.abc import Callable

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.types import ReasonCode
from slurm_plugin.backend import JobState, Park, SlurmBackend, Terms, apply_changes
from slurm_plugin.daemon import Daemon, DaemonSettings, Mode
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.jobs import Submitter, await_job, deadline, pending, running
from tests.slurm_plugin.submit.asking import mark_of, sbatch, shown

pytestmark = pytest.mark.slurm


@pytest.fixture(autouse=True)
def cleaned(submitter: Submitter) -> None:
    """Whatever a test submits is gone after it."""


@pytest.fixture
def daemon(backend: SlurmBackend) -> Daemon:
    """A daemon under fifo, on the wall clock."""
    settings = DaemonSettings(partitions=frozenset({"gpu"}), grace_s=5.0)
    return Daemon(
        backend,
        make_policy("fifo"),
        settings,
        mode=Mode.ENFORCE,
        clock=time.time,
        sleep=time.sleep,
    )


def drive(daemon: Daemon, until: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Run cycles until something holds; no cycle may find anything wrong."""
    latest = deadline(timeout_s)
    while not until():
        assert time.monotonic() < latest, "it has not come about in time"
        report = daemon.cycle()
        assert (report.violations, report.away) == ((), "")
        assert report.outcome is not None
        assert report.outcome.refused == ()
        time.sleep(0.2)


def is_in(backend: SlurmBackend, job: str, state: JobState) -> Callable[[], bool]:
    """Whether a job is in a state."""
    return lambda: backend.read().jobs[job].state is state


def test_a_held_job_that_is_long_due_is_placed_by_the_daemon_once_it_is_released(
    backend: SlurmBackend, testbed: Testbed, daemon: Daemon
) -> None:
    job = sbatch(testbed, "--hold", "--gpu-set=3", "--gpus=3", "--wrap=sleep 600")
    testbed.command("scontrol", "update", f"JobId={job}", "StartTime=now+1")
    time.sleep(1.5)
    # While it is held the daemon pushes it as it does any other, and neither places nor frees it.
    daemon.cycle()
    seen = backend.read().jobs[job]
    assert (seen.held, seen.pinned) == (True, ())
    assert seen.begin_s is not None
    assert seen.begin_s > time.time() + 30
    testbed.command("scontrol", "release", job)
    time.sleep(1.5)
    assert pending(backend.read().jobs[job])
    drive(daemon, is_in(backend, job, JobState.RUNNING))
    assert backend.read().jobs[job].pinned != ()


def test_a_hold_of_a_running_job_keeps_it_back_after_the_run(
    backend: SlurmBackend, testbed: Testbed, daemon: Daemon
) -> None:
    job = sbatch(testbed, "--gpu-set=1", "--wrap=sleep 600")
    drive(daemon, is_in(backend, job, JobState.RUNNING))
    testbed.command("scontrol", "requeuehold", job)
    await_job(backend, job, pending)
    for _ in range(3):
        report = daemon.cycle()
        assert report.violations == ()
        time.sleep(0.2)
    seen = backend.read().jobs[job]
    assert (seen.state, seen.held) == (JobState.PENDING, True)
    testbed.command("scontrol", "release", job)
    drive(daemon, is_in(backend, job, JobState.RUNNING))
    assert backend.read().jobs[job].restarts == 1


def test_a_job_whose_user_requeues_it_is_placed_again(
    backend: SlurmBackend, testbed: Testbed, daemon: Daemon
) -> None:
    job = sbatch(testbed, "--gpu-set=2", "--wrap=sleep 600")
    drive(daemon, is_in(backend, job, JobState.RUNNING))
    testbed.command("scontrol", "requeue", job)
    drive(
        daemon,
        lambda: running(seen := backend.read().jobs[job]) and seen.restarts == 1,
        timeout_s=45,
    )


def test_a_cancelled_job_frees_its_gpus_for_the_next(
    backend: SlurmBackend, testbed: Testbed, daemon: Daemon
) -> None:
    words = ("--gpu-set=16", "--wrap=sleep 600")
    first, second, third = (sbatch(testbed, *words) for _ in range(3))
    drive(daemon, is_in(backend, first, JobState.RUNNING))
    assert pending(backend.read().jobs[second])
    testbed.command("scancel", second)
    testbed.command("scancel", first)
    drive(daemon, is_in(backend, third, JobState.RUNNING))
    ended = backend.read().jobs
    assert {ended[job].state for job in (first, second)} == {JobState.ENDED}
    assert ended[second].start_s is None or ended[second].nodes == ()


@pytest.mark.parametrize(
    ("kind", "exits", "runs"),
    [("afterok", 0, True), ("afterok", 1, False), ("afternotok", 1, True), ("afterany", 1, True)],
)
def test_a_dependency_holds_as_it_does_without_the_daemon(
    backend: SlurmBackend, testbed: Testbed, daemon: Daemon, kind: str, exits: int, runs: bool
) -> None:
    first = sbatch(testbed, "--gpu-set=1", f"--wrap=sleep 1; exit {exits}")
    second = sbatch(testbed, "--gpu-set=1", f"--dependency={kind}:{first}", "--wrap=sleep 600")
    daemon.cycle()
    assert pending(backend.read().jobs[second])
    blocked = daemon.world.jobs[second].blocked
    assert blocked is not None
    assert blocked.code is ReasonCode.DEPENDENCY
    drive(daemon, is_in(backend, first, JobState.ENDED))
    if runs:
        drive(daemon, is_in(backend, second, JobState.RUNNING))
    else:
        drive(daemon, lambda: shown(testbed, second)["Reason"] == "DependencyNeverSatisfied")
        for _ in range(3):
            daemon.cycle()
        assert pending(backend.read().jobs[second])


@pytest.mark.parametrize("counts", ["2-4", "1,4-8", "3", "16"])
def test_a_job_of_any_set_runs_with_a_count_of_it(
    backend: SlurmBackend, testbed: Testbed, daemon: Daemon, counts: str
) -> None:
    job = sbatch(testbed, f"--gpu-set={counts}", "--wrap=sleep 600")
    drive(daemon, is_in(backend, job, JobState.RUNNING))
    seen = backend.read().jobs[job]
    assert seen.gpus_per_node * len(seen.nodes) in mark_of(backend, job).requirements


def test_a_job_that_needs_much_memory_runs_on_gpus_that_have_it(
    backend: SlurmBackend, testbed: Testbed, daemon: Daemon
) -> None:
    # Published: a100 40 GB; v100 and t4 16 GB.
    job = sbatch(testbed, "--gpu-set=4", "--gpu-mem=40G", "--wrap=sleep 600")
    too_much = sbatch(testbed, "--gpu-set=1", "--gpu-mem=80G", "--wrap=sleep 600")
    drive(daemon, is_in(backend, job, JobState.RUNNING))
    assert backend.read().jobs[job].nodes[0] in {"n0", "n3"}
    assert pending(backend.read().jobs[too_much])


def test_a_wide_job_that_is_parked_again_waits_in_the_shape_that_it_had(
    backend: SlurmBackend, testbed: Testbed, daemon: Daemon
) -> None:
    testbed.command("scontrol", "update", "node=n1,n4", "state=drain", "reason=test")
    try:
        job = sbatch(testbed, "--gpu-set=16", "--gpu-types=v100", "--wrap=sleep 600")
        before = shown(testbed, job)
        # Somebody, as root, has left a pin and another count.
        edits = ("ReqNodeList=n1", "NumTasks=1", "TresPerNode=gres/gpu:2")
        testbed.command("scontrol", "update", f"JobId={job}", *edits)
        drive(daemon, lambda: backend.read().jobs[job].pinned == ())
        after = shown(testbed, job)
    finally:
        testbed.command("scontrol", "update", "node=n1,n4", "state=resume")
        testbed.await_idle()
    for name in ("NumNodes", "NumTasks", "TresPerNode"):
        assert after[name] == before[name]
    assert before["TresPerNode"] == "gres/gpu:v100:8"


def test_ordinary_jobs_and_managed_ones_share_the_nodes(
    backend: SlurmBackend, testbed: Testbed, daemon: Daemon
) -> None:
    ordinary = sbatch(testbed, "--gpus-per-node=6", "--nodelist=n1", "--wrap=sleep 600")
    await_job(backend, ordinary, running)
    managed = sbatch(testbed, "--gpu-set=8", "--gpu-types=v100", "--wrap=sleep 600")
    drive(daemon, is_in(backend, managed, JobState.RUNNING))
    jobs = backend.read().jobs
    assert jobs[managed].nodes == ("n4",)
    assert (jobs[ordinary].state, jobs[ordinary].restarts) == (JobState.RUNNING, 0)


@pytest.mark.parametrize("change", [Terms(cpus=70_000), Terms(memory_mb=1 << 70)])
def test_a_number_that_slurm_has_no_room_for_is_refused_and_ends_nothing(
    backend: SlurmBackend, testbed: Testbed, change: Terms
) -> None:
    job = sbatch(testbed, "--gpu-set=1", "--wrap=sleep 600")
    outcome = apply_changes(backend, [Park(job, 1, 60, terms=change)], time.sleep)
    assert [refused.job for refused, _ in outcome.refused] == [job]
    assert pending(backend.read().jobs[job])
