"""A partition goes from shadow to enforcing, and back, with jobs in it."""

import time

import pytest

from hetsched_core.policy import make_policy
from slurm_plugin.backend import JobState, SlurmBackend
from slurm_plugin.daemon import Daemon, DaemonSettings, Mode
from slurm_plugin.submit import ENFORCE_LIST
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.jobs import Submitter, await_job, deadline, running
from tests.slurm_plugin.submit.asking import mark_of, sbatch, shown

pytestmark = pytest.mark.slurm

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}))


def daemon_of(backend: SlurmBackend, mode: Mode) -> Daemon:
    """A daemon under fifo, on the wall clock."""
    policy = make_policy("fifo")
    return Daemon(backend, policy, SETTINGS, mode=mode, clock=time.time, sleep=time.sleep)


def submit_in_shadow(testbed: Testbed, *words: str) -> str:
    """Submit a job while the partition is not enforced."""
    listed = testbed.layout.configuration / ENFORCE_LIST
    text = listed.read_text()
    listed.write_text("")
    try:
        return sbatch(testbed, "--gpu-set=2,4", *words, "--wrap=sleep 600")
    finally:
        listed.write_text(text)


def fill(backend: SlurmBackend, testbed: Testbed) -> list[str]:
    """Take all nodes."""
    names = [node.name for node in testbed.layout.nodes]
    jobs = [
        sbatch(testbed, "--exclusive", f"--nodelist={name}", "--wrap=sleep 600") for name in names
    ]
    for job in jobs:
        await_job(backend, job, running)
    return jobs


@pytest.mark.parametrize(
    "words",
    [
        ("--gpus=2",),
        ("--gpus-per-node=2",),
        ("--nodes=2", "--gpus-per-node=1", "--ntasks-per-node=2"),
        ("--gpus=2", "--ntasks=4"),
    ],
)
def test_a_job_from_shadow_keeps_its_shape_and_starts_by_itself(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, words: tuple[str, ...]
) -> None:
    blockers = fill(backend, testbed)
    job = submit_in_shadow(testbed, *words)
    assert mark_of(backend, job).shadow
    names = ("NumNodes", "NumTasks", "NumCPUs", "ReqTRES", "ReqNodeList")
    before = {name: shown(testbed, job)[name] for name in names}
    shadow = daemon_of(backend, Mode.SHADOW)
    shadow.cycle()
    assert job in shadow.world.jobs
    # The same daemon, told to act; and one that has never been anything else.
    shadow.adopt(make_policy("fifo"), SETTINGS, Mode.ENFORCE)
    for daemon in (shadow, daemon_of(backend, Mode.ENFORCE)):
        said = ""
        for _ in range(3):
            report = daemon.cycle()
            assert (report.violations, report.changes) == ((), ())
            said += " ".join(report.warnings)
        assert said.count(f"job={job}: submitted while hetsched_enforce did not name") == 1
        assert job not in daemon.world.jobs
    assert {name: shown(testbed, job)[name] for name in names} == before
    testbed.command("scancel", *blockers)
    # Its GPUs are then those of a stranger.
    await_job(backend, job, running)
    after = sbatch(testbed, "--gpu-set=8", "--wrap=sleep 600")
    daemon = daemon_of(backend, Mode.ENFORCE)
    latest = deadline(20)
    while not running(backend.read().jobs[after]):
        assert daemon.cycle().violations == ()
        assert time.monotonic() < latest
        time.sleep(0.2)
    assert running(backend.read().jobs[job])


def test_a_job_that_was_kept_back_starts_by_itself_once_the_daemon_only_looks_on(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    job = sbatch(testbed, "--gpu-set=2,4", "--wrap=sleep 600")
    assert not mark_of(backend, job).shadow
    testbed.command("scontrol", "update", f"JobId={job}", "StartTime=now+2")
    daemon = daemon_of(backend, Mode.SHADOW)
    latest = deadline(20)
    while not running(backend.read().jobs[job]):
        daemon.cycle()
        assert time.monotonic() < latest
        time.sleep(0.3)
    seen = backend.read().jobs[job]
    assert (seen.state, seen.gpus_per_node) == (JobState.RUNNING, 2)
    daemon.adopt(make_policy("fifo"), SETTINGS, Mode.ENFORCE)
    report = daemon.cycle()
    assert (report.violations, report.changes) == ((), ())
    assert job in daemon.world.jobs
