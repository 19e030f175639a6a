"""Copies under a Slurm that loses nodes, fails copies and forgets daemons at random."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.types import NodeCondition
from slurm_plugin.backend import (
    Cancel,
    Change,
    Enter,
    Hold,
    JobState,
    Leave,
    RefusedError,
    Requeue,
    SlurmJob,
    SlurmReservation,
    SlurmSite,
    SlurmState,
)
from slurm_plugin.daemon import Daemon
from tests.slurm_plugin.daemon.fake_slurm import Clock, daemon_of, node, placed
from tests.slurm_plugin.daemon.jobs.test_copies import SETTINGS, element, mark


@dataclass
class World:
    """A Slurm that does what it is told at once, and loses nodes and ends elements at random."""

    rng: Random
    clock: Clock
    down: set[str] = field(default_factory=set)
    jobs: dict[str, SlurmJob] = field(default_factory=dict)
    work: dict[str, int] = field(default_factory=dict)
    clashes: list[str] = field(default_factory=list)
    holds: tuple[SlurmReservation, ...] = ()
    total: int = 60

    def submit(self, array: str, copies: int) -> None:
        """Queue an array of copies, which Slurm keeps as one at first."""
        whole = element(0, array=array, id=array, unsplit=tuple(range(copies)))
        text = mark(f"c{array}", 1e5 * self.rng.randint(1, 9), copies)
        self.jobs[array] = replace(whole, mark=text)
        self.work[array] = 0

    def site(self) -> SlurmSite:
        """Return what the site has set."""
        return SlurmSite(30.0, {"gpu": None})

    def read(self) -> SlurmState:
        """Return what there is."""
        held = {name for job in self.jobs.values() for name in job.nodes if _active(job)}
        every = []
        for name in ("n0", "n1", "n2", "n3", "n4"):
            condition = NodeCondition.DOWN if name in self.down else NodeCondition.UP
            every.append(node(name, used=4 if name in held else 0, condition=condition))
        return SlurmState(tuple(every), dict(self.jobs), self.holds)

    def script(self, job: str) -> str:
        """Never asked for: all jobs have marks."""
        raise AssertionError(job)

    def apply(self, change: Change) -> None:
        """Make a change, to the job that it names; an element is split off first."""
        if isinstance(change, Hold):
            now = self.clock.now
            self.holds = (SlurmReservation(change.name, change.nodes, now, now + change.seconds),)
            return
        array, _, number = change.job.partition("_")
        if change.job not in self.jobs:
            self._split(array, int(number))
        job = self.jobs[change.job]
        match change:
            case Enter(nodes=(name,)) if job.state is JobState.PENDING:
                self.clashes += [
                    f"{change.job} is placed on {name}, which {other.id} holds"
                    for other in self.jobs.values()
                    if name in other.nodes and _active(other)
                ]
                job = replace(placed(job, name), gpus=4)
                if name not in self.down:
                    job = replace(job, state=JobState.RUNNING, nodes=(name,))
                    job = replace(job, start_s=self.clock.now)
            case Requeue() if job.state is JobState.RUNNING:
                job = self._queued(job)
            case Leave() if job.state is JobState.PENDING:
                job = replace(job, pinned=(), reservation="", reason="Reservation")
            case Cancel():
                job = self._ended(job, "CANCELLED")
            case _:
                raise RefusedError(f"{change}: {job.state}")
        self.jobs[change.job] = job

    def go_on(self) -> None:
        """Let a second pass."""
        self.clock.now += 1
        if self.rng.random() < 0.05:
            self.down ^= {self.rng.choice(("n0", "n1", "n2"))}
        for name, job in self.jobs.items():
            array = name.partition("_")[0]
            if job.state is JobState.RUNNING:
                self.work[array] += 1
                if not self.down.isdisjoint(job.nodes):
                    self.jobs[name] = self._queued(job)
                elif self.work[array] >= self.total:
                    self.jobs[name] = self._ended(job, "COMPLETED")
                elif self.rng.random() < 0.004:
                    self.jobs[name] = self._ended(job, "FAILED")

    def _split(self, array: str, number: int) -> None:
        whole = self.jobs.pop(array)
        one = replace(whole, id=f"{array}_{number}", element=number, unsplit=())
        self.jobs[one.id] = one
        if kept := tuple(each for each in whole.unsplit if each != number):
            self.jobs[array] = replace(whole, element=kept[0], unsplit=kept)

    def _queued(self, job: SlurmJob) -> SlurmJob:
        back = replace(job, state=JobState.PENDING, nodes=(), start_s=None, reason="BeginTime")
        return replace(back, restarts=job.restarts + 1, begin_s=self.clock.now + 121)

    def _ended(self, job: SlurmJob, outcome: str) -> SlurmJob:
        return replace(job, state=JobState.ENDED, outcome=outcome, end_s=self.clock.now)


def _active(job: SlurmJob) -> bool:
    return job.state is JobState.RUNNING


def hadare(slurm: World) -> Daemon:
    """A daemon that knows nothing but what Slurm shows."""
    return daemon_of(slurm, slurm.clock, make_policy("hadare"), settings=SETTINGS)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_job_comes_to_its_end_and_leaves_nothing(seed: int) -> None:
    rng = Random(seed)
    slurm = World(rng, Clock())
    daemon = hadare(slurm)
    copies: set[int] = set()
    for second in range(900):
        if second % 40 == 0 and len(slurm.work) < 4:
            slurm.submit(str(7 + len(slurm.work)), rng.randint(2, 4))
        if rng.random() < 0.03:
            # Killed, and started anew.
            daemon = hadare(slurm)
        report = daemon.cycle()
        assert report.violations == ()
        assert report.outcome is not None
        slurm.go_on()
        assert slurm.clashes == []
        copies |= {len(view.runs) for view in daemon.world.jobs.values()}
        over = all(job.state is JobState.ENDED for job in slurm.jobs.values())
        if len(slurm.work) == 4 and over:
            break
    ends = {name: job.outcome for name, job in slurm.jobs.items()}
    assert all(job.state is JobState.ENDED for job in slurm.jobs.values()), ends
    for array in slurm.work:
        own = [job for job in slurm.jobs.values() if job.array == array]
        if "COMPLETED" not in {job.outcome for job in own}:
            # Only what has never run is lost with element 0.
            lost = [job for job in own if job.outcome == "CANCELLED"]
            assert [job.id for job in lost if job.restarts or job.nodes] == []
    assert max(copies) > 1
