"""Uneven and mixed shapes on a real Slurm: an array is one job, started and stopped together."""

from __future__ import annotations

import itertools
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.types import Configuration, Shape, shape_of
from slurm_plugin.backend import Change, Enter, JobState, Leave, Resources, SlurmBackend, hold_named
from slurm_plugin.daemon import Daemon, DaemonSettings
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.job_wrappers.torch.test_on_slurm import InShape
from tests.slurm_plugin.accounts import recorded
from tests.slurm_plugin.gang_jobs import Gangs, wrong_in
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.live import daemon_of, drive

pytestmark = pytest.mark.slurm

SETTINGS = DaemonSettings(
    partitions=frozenset({"gpu"}), round_s=4.0, restart_cost_s=0.0, grace_s=5.0
)


@pytest.fixture
def gangs(testbed: Testbed, submitter: Submitter, tmp_path: Path) -> Gangs:
    """Submits gangs; whatever is left of them is cancelled after the test."""
    return Gangs(testbed, tmp_path)


class Watched:
    """A daemon's cycles, and what each run of a job was planned as."""

    def __init__(self, daemon: Daemon, gangs: Gangs) -> None:
        self.daemon, self.gangs = daemon, gangs
        self.planned: dict[tuple[str, int], Configuration] = {}

    def note(self) -> bool:
        """Take in the present cycle; return whether all jobs have ended."""
        for job, known in self.daemon.world.managed.items():
            if known.placement is not None and known.slurm.state is JobState.RUNNING:
                self.planned[job, known.slurm.restarts] = known.placement.configuration
        return not self.gangs.queue()


def test_jobs_have_exactly_what_was_planned_and_leave_nothing_behind(
    backend: SlurmBackend, gangs: Gangs
) -> None:
    # Shorter than the jobs, so that some are moved.
    daemon = daemon_of(backend, "las", settings=replace(SETTINGS, round_s=2.5))
    watched, rng = Watched(daemon, gangs), random.Random(1)
    jobs = [gangs.submit_some(at, rng.uniform(2.7, 4.5)) for at in range(7)]
    drive(daemon, lambda: len([job for job in jobs if gangs.seen(job)]) >= 3, 60)
    running = [job for job, known in daemon.world.managed.items() if known.run is not None]
    cancelled = {jobs[-1]: jobs[-1], running[0]: f"{running[0]}_1", running[-1]: running[-1]}
    for which in cancelled.values():
        gangs.cluster.command("scancel", which)
    drive(daemon, watched.note, 150)
    assert list(wrong_in(gangs, cancelled)) == []
    cluster = daemon.world.cluster
    assert cluster is not None
    moved = 0
    shapes = {shape_of(planned, cluster) for planned in watched.planned.values()}
    for job in jobs:
        rows = itertools.chain(*recorded(gangs.cluster, f"--jobs={job}").values())
        accounted = {(row.job, row.nodes, row.gpus) for row in rows}
        moved += len(gangs.seen(job).get(0, ())) > 1
        for element, runs in gangs.seen(job).items():
            # One that was stopped at once may not have asked yet what it holds.
            for run in (run for run in runs if run.pieces):
                nodes = frozenset(node for node, _ in run.pieces)
                held = sum(gpus for _, gpus in run.pieces)
                assert (f"{job}_{element}", nodes, held) in accounted
        for number, pieces in gangs.shapes(job).items():
            if (job, number) in watched.planned and job not in cancelled:
                assert pieces == dict(watched.planned[job, number])
    assert shapes >= {Shape.UNEVEN, Shape.MIXED_TYPES}
    assert moved > 0
    assert all(node.gpus_used == () for node in backend.read().nodes)


def test_a_gang_outlives_the_loss_of_its_leader_and_ends_with_an_element_that_is_cancelled(
    backend: SlurmBackend, gangs: Gangs
) -> None:
    daemon = daemon_of(backend, settings=SETTINGS)
    job = gangs.submit("5", "--gpu-types=a100,t4", seconds=60)

    def failed() -> list[JobState]:
        jobs = backend.read().jobs.values()
        return [each.state for each in jobs if each.array == job and each.outcome == "FAILED"]

    def runs() -> list[int]:
        return [len(each) for each in gangs.seen(job).values()]

    drive(daemon, lambda: runs() == [1, 1], 60)
    # As where its node is lost: the other element fails before the daemon looks again.
    gangs.cluster.command("scontrol", "requeue", f"{job}_0")
    gangs.cluster.command("scancel", "--batch", "--signal=KILL", f"{job}_1")
    wait_until(lambda: failed() == [JobState.ENDED], "the end of an element", 30)
    drive(daemon, lambda: runs() == [2, 2], 60)
    gangs.cluster.command("scancel", f"{job}_1")
    drive(daemon, lambda: not gangs.queue())
    assert not gangs.done(job)


class Draining:
    """A backend that closes the node of the first member that is placed, as soon as it is."""

    def __init__(self, backend: SlurmBackend, cluster: Testbed) -> None:
        self.read, self.site, self._apply = backend.read, backend.site, backend.apply
        self.script = backend.script
        self._cluster, self.node = cluster, ""

    def apply(self, change: Change) -> None:
        """Make one change."""
        self._apply(change)
        if isinstance(change, Enter) and change.job.endswith("_1") and not self.node:
            (self.node,) = change.nodes
            self.set_state("DRAIN")

    def set_state(self, state: str) -> None:
        """Close the node, or open it."""
        self._cluster.command(
            "scontrol", "update", f"NodeName={self.node}", f"State={state}", "Reason=test"
        )


def test_an_element_that_does_not_start_in_time_takes_the_others_back(
    backend: SlurmBackend, gangs: Gangs
) -> None:
    draining = Draining(backend, gangs.cluster)
    daemon = daemon_of(draining, settings=replace(SETTINGS, start_timeout_s=5.0))
    job = gangs.submit("5", "--gpu-types=a100,t4")

    def waits_again() -> bool:
        known = daemon.world.managed.get(job)
        return known is not None and known.slurm.restarts > 0 and known.run is None

    try:
        drive(daemon, waits_again, 60)
    finally:
        draining.set_state("RESUME")
    # Its script has not gone on while only a part had started.
    assert gangs.seen(job) == {}
    # Nor would it be of use to place it again at once.
    assert "a part of it has not started" in str(daemon.world.jobs[job].blocked)


def test_a_job_of_two_gpus_of_any_shape_runs_on_two_types_and_is_no_array(
    backend: SlurmBackend, gangs: Gangs
) -> None:
    # An a100 node and a t4 node.
    where = {"n0": 1, "n2": 1}
    daemon = daemon_of(backend, InShape(where), settings=SETTINGS)
    job = gangs.submit("2", seconds=5)
    assert backend.read().jobs[job].array == ""
    drive(daemon, lambda: gangs.done(job), 60)
    drive(daemon, lambda: not gangs.queue(), 60)
    assert gangs.shapes(job) == {0: where}


def test_without_a_daemon_the_leader_runs_alone_and_the_others_end_at_once(
    backend: SlurmBackend, gangs: Gangs
) -> None:
    # A daemon has placed one of them; then it was killed, and the hold has ended.
    daemon_of(backend, settings=SETTINGS)
    job = gangs.submit("4,5,7", seconds=3)
    own = Leave(f"{job}_1")
    one = Resources(per_job="", per_node="gres/gpu:v100:1")
    backend.apply(Enter(own.job, hold_named(1), ("n1",), own, one, dependency=f"after:{job}_0"))
    gangs.cluster.command("scontrol", "update", f"ReservationName={hold_named(1)}", "EndTime=now+1")
    wait_until(lambda: gangs.done(job), "the end of its leader", 60)
    wait_until(lambda: not gangs.queue(), "an empty queue", 60)
    assert list(gangs.shapes(job)) == [0]
    assert [sum(pieces.values()) for pieces in gangs.shapes(job).values()] == [4]
    assert set(gangs.seen(job)) == {0}


def test_hetsched_run_ranks_the_workers_of_all_elements(
    backend: SlurmBackend, gangs: Gangs
) -> None:
    show = (
        "'echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE "
        "$HETSCHED_GPUS $MASTER_ADDR:$MASTER_PORT >>ranks; sleep 3'"
    )
    script = gangs.folder / "run.sh"
    script.write_text(
        "#!/bin/bash\n#HETSCHED --gpu-set=10 --gpu-types=a100,t4 --gpu-shapes=any\n"
        f"cd {gangs.folder}\n{sys.executable} -m job_wrappers.launch -- bash -c {show}\n"
    )
    daemon = daemon_of(backend, settings=SETTINGS)
    path = f"PYTHONPATH={Path(__file__).parents[4]}"
    gangs.cluster.command("sbatch", f"--export=ALL,{path}", "--output=/dev/null", script)
    drive(daemon, lambda: not gangs.queue(), 60)
    lines = [line.split() for line in (gangs.folder / "ranks").read_text().splitlines()]
    assert sorted(int(line[0]) for line in lines) == list(range(10))
    # The elements: two nodes of four GPUs and one of two.
    parts = {(line[4], line[3]) for line in lines}
    assert parts == {("0", "4"), ("1", "4"), ("2", "2")}
    assert all(int(line[1]) == int(line[0]) - 4 * int(line[4]) for line in lines)
    (said,) = {(line[2], line[5], line[6], line[7]) for line in lines}
    assert said[:3] == ("10", "3", "10")
