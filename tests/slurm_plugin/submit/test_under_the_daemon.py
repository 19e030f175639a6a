"""What users do with their jobs while the daemon manages them."""

import time

import pytest

from hetsched_core.policy import make_policy
from slurm_plugin.backend import JobState, Leave, SlurmBackend, Terms, apply_changes
from slurm_plugin.daemon import Daemon, DaemonMode
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.daemon.test_daemon_live import (
    SETTINGS,
    daemon_of,
    drive,
)
from tests.slurm_plugin.jobs import Submitter, await_job, is_in, pending, running
from tests.slurm_plugin.submit.asking import NOTHING, sbatch, script_instead

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("submitter")]


@pytest.fixture
def daemon(backend: SlurmBackend) -> Daemon:
    return daemon_of(backend)


def test_without_lua_options_are_read_from_the_script_and_shadow_becomes_enforcing_and_ends(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    daemon = daemon_of(backend, mode=DaemonMode.SHADOW)
    with script_instead(testbed, NOTHING):
        blocker = sbatch(testbed, "--exclusive", "--nodes=6", "--wrap=sleep 600")
        await_job(backend, blocker, running)
        job = submitter.submit("--gpu-set=2,4 --gpu-types=v100", "--gpus=2")
        rigid = sbatch(testbed, "--gpus=3", "--wrap=sleep 600")
        # In the first cycle there may be too many to ask about.
        drive(daemon, lambda: {job, rigid} <= set(daemon.world.jobs), 30)
    assert backend.read().jobs[job].mark == ""
    wanted = daemon.world.jobs[job].job
    assert (set(wanted.requirements.counts), wanted.gpu_types) == ({2, 4}, frozenset({"v100"}))
    assert backend.read().reservations == ()
    daemon.adopt(make_policy("fifo"), SETTINGS, DaemonMode.ENFORCE)
    daemon.cycle()
    late = sbatch(testbed, "--gpus=1", "--wrap=sleep 600")
    testbed.command("scancel", blocker)
    drive(daemon, is_in(backend, JobState.RUNNING, job, rigid, late), 60)
    jobs = backend.read().jobs
    assert set(jobs[job].nodes) <= {"n1", "n4"}
    # Looking on again, it hands the nodes back: Slurm starts what is submitted.
    daemon.adopt(make_policy("fifo"), SETTINGS, DaemonMode.SHADOW)
    last = sbatch(testbed, "--gpus=1", "--wrap=sleep 600")
    await_job(backend, last, running, 60)
    assert [backend.read().jobs[each].restarts for each in (job, rigid)] == [0, 0]


@pytest.mark.parametrize("change", [Terms(cpus=70_000), Terms(memory_mb=1 << 70)])
def test_a_number_that_slurm_has_no_room_for_is_refused_and_ends_nothing(
    backend: SlurmBackend, testbed: Testbed, change: Terms
) -> None:
    job = sbatch(testbed, "--hold", "--gpu-set=1", "--wrap=sleep 600")
    outcome = apply_changes(backend, [Leave(job, terms=change)], time.sleep)
    assert [refused.job for refused, _ in outcome.refused] == [job]
    assert pending(backend.read().jobs[job])
