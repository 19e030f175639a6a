"""A node goes away under a job on a real Slurm: other jobs are placed elsewhere meanwhile."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import JobState, SlurmBackend, open_backend
from slurm_plugin.testbed import Installation, Testbed, TestbedError, fake_nodes, usual_site
from tests.slurm_plugin.clusters import up
from tests.slurm_plugin.jobs import Submitter, await_job, deadline, end_all, pending
from tests.slurm_plugin.live import daemon_of, drive, ended, started

pytestmark = pytest.mark.slurm


def is_condition(backend: SlurmBackend, node: str, condition: NodeCondition) -> Callable[[], bool]:
    """Whether a node stands so."""
    return lambda: next(n for n in backend.read().nodes if n.name == node).condition is condition


def are_placed(backend: SlurmBackend, jobs: Sequence[str]) -> Callable[[], bool]:
    """Whether all of these jobs have been placed."""
    return lambda: all(backend.read().jobs[job].reservation for job in jobs)


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
    daemon = daemon_of(backend, "steady")
    stays = submitter.submit("--gpu-set=4 --no-move", "--gpus=4", seconds=600)
    drive(daemon, started(submitter, [stays]))
    (node,) = backend.read().jobs[stays].nodes
    testbed.freeze_node(node)
    try:
        # Slurm finds out by itself within half a minute.
        testbed.command("scontrol", "update", f"node={node}", "state=noresp")
        drive(daemon, is_condition(backend, node, NodeCondition.DOWN))
        waiting = [submitter.submit("--gpu-set=4", "--gpus=4", seconds=600) for _ in range(2)]
        drive(daemon, started(submitter, waiting))
        # What runs there is a fact until Slurm says otherwise.
        assert backend.read().jobs[stays].state is JobState.RUNNING
        testbed.command("scontrol", "update", f"node={node}", "state=down", "reason=test")
        await_job(backend, stays, pending)
        later = submitter.submit("--gpu-set=4", "--gpus=4", seconds=600)
        drive(daemon, started(submitter, [later]))
        for job in (*waiting, later):
            assert node not in submitter.told(job)[0].nodes.split(",")
    finally:
        testbed.thaw_node(node)
        come_back(testbed, backend, node)


def test_before_maintenance_jobs_that_may_be_moved_start_where_slurm_starts_them(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    first, *others = sorted(node.name for node in backend.read().nodes)
    works = ("reservation=works", f"nodes={first}", "users=root", "flags=maint")
    when = ("starttime=now+10minutes", "duration=10")
    testbed.command("scontrol", "create", *works, *when)
    try:
        daemon = daemon_of(backend, "steady")
        words = ("--gpu-set=4 --can-checkpoint", "--gpus=4")
        long = [submitter.submit(*words, "--time=30", seconds=600) for _ in others]
        short = submitter.submit(*words, "--time=5", seconds=600)
        drive(daemon, started(submitter, [*long, short]))
        assert submitter.told(short)[0].nodes == first
    finally:
        testbed.command("scontrol", "delete", "reservation=works")


def test_a_job_without_gpus_that_shares_no_node_waits_for_an_empty_one_and_keeps_none_idle(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    daemon = daemon_of(backend, "steady")
    runs = submitter.submit("--gpu-set=1 --no-move", "--gpus=1", seconds=600)
    drive(daemon, started(submitter, [runs]))
    (node,) = backend.read().jobs[runs].nodes
    script = ("--output=/dev/null", "--wrap=sleep 600")
    alone = testbed.command("sbatch", "--parsable", "--exclusive", f"-w{node}", *script).strip()
    gpus = sum(count for each in backend.read().nodes for _, count in each.gpus)
    later = [submitter.submit("--gpu-set=1", "--gpus=1", seconds=600) for _ in range(gpus - 4)]
    drive(daemon, started(submitter, later))
    for job in (runs, *later):
        seen = backend.read().jobs[job]
        if seen.nodes == (node,):
            testbed.command("scancel", job)
    drive(daemon, lambda: backend.read().jobs[alone].state is JobState.RUNNING)
    assert backend.read().jobs[alone].nodes == (node,)
    last = submitter.submit("--gpu-set=1", "--gpus=1", seconds=600)
    drive(daemon, started(submitter, [last]))
    assert submitter.told(last)[0].nodes != node


def test_jobs_that_are_put_off_after_they_were_placed_keep_no_gpus_idle(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    daemon = daemon_of(backend, "steady")
    wide = ("--gpu-set=4", "--gpus=4")
    jobs: list[str] = []
    put_off: set[str] = set()
    latest = deadline(60)
    # Slurm may start all of them before they are put off.
    while not put_off:
        assert time.monotonic() < latest
        if jobs:
            testbed.command("scancel", *jobs)
            drive(daemon, ended(backend, jobs))
        jobs = [submitter.submit(*wide, seconds=600) for _ in backend.read().nodes]
        drive(daemon, are_placed(backend, jobs))
        for job in jobs:
            with contextlib.suppress(TestbedError):
                testbed.command("scontrol", "update", f"jobid={job}", "starttime=now+1hour")
        shown = backend.read().jobs
        put_off = {job for job in jobs if pending(shown[job])}
    other = submitter.submit(*wide, seconds=600)
    drive(daemon, started(submitter, [other]))
    assert daemon.world.intake.later.keys() == put_off
    shown = backend.read().jobs
    assert {shown[job].reservation for job in put_off} == {""}


@contextlib.contextmanager
def set_up(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, *settings: str
) -> Iterator[Testbed]:
    """Three nodes with further lines of slurm.conf."""
    site = usual_site(fake_nodes(3))
    with up(installation, replace(site, settings=(*site.settings, *settings))) as cluster:
        for key, value in cluster.environment().items():
            monkeypatch.setenv(key, value)
        yield cluster
        end_all(cluster)


@pytest.fixture
def slow_to_start(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Testbed]:
    """Nodes on which what is placed starts minutes later."""
    slow = "SchedulerParameters=defer,sched_min_interval=600000000"
    with set_up(installation, monkeypatch, slow) as cluster:
        yield cluster


def test_jobs_that_slurm_holds_since_their_reservation_is_gone_are_placed_anew(
    slow_to_start: Testbed, tmp_path: Path
) -> None:
    cluster = slow_to_start
    submitter, backend = Submitter(cluster, tmp_path), open_backend("commands")
    daemon = daemon_of(backend, "steady")
    jobs = [submitter.submit("--gpu-set=1", "--gpus=1", "--time=5", seconds=1) for _ in range(2)]
    jobs.append(submitter.submit("", "--ntasks=1", "--time=5", seconds=1))
    drive(daemon, are_placed(backend, jobs))
    # An operator has named a partition in it, which slurm.conf then has no more.
    cluster.command("scontrol", "update", "reservation=hetsched", "partition=short")
    conf = cluster.layout.slurm_conf
    lines = conf.read_text().splitlines(keepends=True)
    gone = "PartitionName=short", "SchedulerParameters="
    conf.write_text("".join(line for line in lines if not line.startswith(gone)))
    cluster.command("scontrol", "reconfigure")
    for job in jobs:
        await_job(backend, job, lambda seen: seen.lost_reservation)
    drive(daemon, ended(backend, jobs), 60)


@pytest.fixture
def prolog_fails(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, short_folder: Path
) -> Iterator[Testbed]:
    """Three nodes whose prolog fails for the jobs with the comment `fails`."""
    prolog = short_folder / "prolog"
    prolog.write_text('#!/bin/sh\n[ "$SLURM_JOB_COMMENT" != fails ]\n')
    prolog.chmod(0o755)
    more = f"Prolog={prolog}", "PrologFlags=Alloc"
    with set_up(installation, monkeypatch, *more) as cluster:
        yield cluster


def test_a_job_whose_prolog_fails_drains_one_node(prolog_fails: Testbed, tmp_path: Path) -> None:
    submitter, backend = Submitter(prolog_fails, tmp_path), open_backend("commands")
    daemon = daemon_of(backend, "steady")
    fails = submitter.submit("--gpu-set=1", "--gpus=1", "--comment=fails", seconds=1)
    drive(daemon, lambda: backend.read().jobs[fails].held_by_slurm)
    later = [submitter.submit("--gpu-set=1", "--gpus=1", seconds=8) for _ in range(3)]
    drive(daemon, ended(backend, later))
    closed = [node for node in backend.read().nodes if node.condition is not NodeCondition.UP]
    assert [node.reason for node in closed] == ["Prolog error"]
    # Its user mends it and lets it go. Slurm would begin it two minutes later.
    mended = "comment=", "starttime=now"
    prolog_fails.command("scontrol", "update", f"jobid={fails}", *mended)
    prolog_fails.command("scontrol", "release", fails)
    drive(daemon, ended(backend, [fails]))
