"""A job of ours between two reads, and what Slurm's record of a job says to a scheduler."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from hetsched_core.store import JobProgress
from hetsched_core.types import (
    OPEN,
    Closed,
    Cluster,
    Configuration,
    Job,
    JobView,
    Placement,
    Reason,
    ReasonCode,
    Run,
)
from slurm_plugin.backend import JobState, SlurmJob
from slurm_plugin.daemon.jobs.gangs import is_finishing, spares
from slurm_plugin.daemon.jobs.kept_back import LIMITS, KeptBack
from slurm_plugin.daemon.jobs.request import Request
from slurm_plugin.daemon.jobs.service import Service
from slurm_plugin.daemon.jobs.slurm_reasons import (
    code_of,
    word_of,
)

CLOCKS_S = 1.0
"""How far Slurm's clock may be ahead of the daemon's: it then has what ended before end later."""

LINGERS_S = 60.0
"""How much longer than expected a run may take to end before no job waits for its GPUs."""


@dataclass(slots=True)
class ManagedJob:
    """A job of ours between two reads.

    `attained` is GPU seconds by type up to `observed_s`. `placed_s` is when it was first seen
    placed and free to start, `placement` what it was placed for last, `progress` what its spool
    files said last, `warned_s` when its present run was told to save its state. `limit_s` is the
    time limit of the default count, None where its user gave none. `share` is the CPUs and MiB that
    the present run holds, by node. `refused` is why limits let it start in no way, `kept_back`
    where it is not placed for the time being. `partial_s` is when a part of its run was first seen
    without the rest, `ending_s` when it was first seen to end. `stopped` is the number of the run
    that Slurm was last told to stop, which was at `stopped_s`. Of a job of copies `copies` are
    its elements that have not ended, by id, which have the runs, and `surplus` those beyond what
    the policy may give a job, which are to have none. `carried` is the samples of a job of copies
    up to `observed_s`: what was told, and what all copies that ran since will have done.
    `partition` is the one of several on whose nodes it is to be, "" where that is no matter.
    """

    request: Request
    slurm: SlurmJob
    whole: Job
    job: Job
    observed_s: float
    closed: Closed = OPEN
    run: Run | None = None
    share: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    warned_s: float | None = None
    wait_s: float = 0.0
    attained: dict[str, float] = field(default_factory=dict)
    first_start_s: float | None = None
    refused: Reason | None = None
    kept_back: KeptBack = field(default_factory=KeptBack)
    blocked: Reason | None = None
    placed_s: float | None = None
    partial_s: float | None = None
    ending_s: float | None = None
    placement: Placement | None = None
    progress: JobProgress | None = None
    carried: float = 0.0
    partition: str = ""
    stopped: int | None = None
    stopped_s: float = 0.0
    copies: dict[str, ManagedJob] = field(default_factory=dict)
    surplus: dict[str, ManagedJob] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What names the job for good."""
        return self.request.key

    @property
    def runs(self) -> tuple[Run, ...]:
        """What it holds: one run, or those of its copies."""
        if not self.copies:
            return () if self.run is None else (self.run,)
        return tuple(unit.run for unit in self.copies.values() if unit.run is not None)

    @property
    def leading(self) -> ManagedJob:
        """What tells in its spool files how far the job is: of copies element 0, if it is there."""
        return self.copies.get(f"{self.slurm.id}_0", self)

    @property
    def samples(self) -> float:
        """Samples done up to `observed_s`: what was told, carried on at the speed of the run."""
        told = self.progress
        if told is None:
            return 0.0
        if self.request.mark.copies:
            return self.carried
        speeds = (
            run.speed
            for run in self.runs
            if run.begun and run.draining_until_s is None and run.number == told.run
        )
        return told.samples + sum(speeds) * max(0.0, self.observed_s - told.at_s)

    def hear(self, told: JobProgress) -> None:
        """Take in how far the job was a moment ago."""
        self.progress = told
        self.carried = self._carried_on(told.samples, told.at_s, self.observed_s)

    def _carried_on(self, samples: float, since_s: float, until_s: float) -> float:
        """Return the samples of a job of copies at a later time, at the speeds of what runs."""
        for unit in self.copies.values():
            run = unit.run
            if run is None or unit.slurm.state is not JobState.RUNNING:
                continue
            samples += run.speed * max(0.0, until_s - max(since_s, run.progress_from_s))
        total = self.request.mark.options.total_samples
        return samples if total is None else min(samples, total)

    @property
    def only_waits(self) -> bool:
        """Whether it waits, and neither time nor what happens to others changes what is known."""
        seen, waits = self.slurm, self.slurm.state is JobState.PENDING and self.run is None
        kept_back = self.blocked or self.refused or self.kept_back or self.closed.nodes
        return waits and not (kept_back or seen.entered or seen.array)

    @property
    def overdue(self) -> bool:
        """Whether it was placed, and Slurm has not started it in time."""
        return self.run is None and self.placed_s is not None

    def was_stopped(self, again: SlurmJob) -> bool:
        """Whether the run before the one that waits now was told to stop, or to save its state."""
        warned = self.warned_s is not None and again.restarts > self.slurm.restarts
        return warned or self.stopped == again.restarts - 1

    def lost_its_stop(self, seen: SlurmJob, now: float) -> bool:
        """Whether its run has ended by itself, says Slurm, after Slurm had been told to stop it.

        A controller that is killed forgets the stop if it has not saved it: for all that it knows
        the job is over, with work left. A job that its user has cancelled since stays so, and one
        that had ended before, which Slurm takes as well, does.
        """
        if seen.state is not JobState.ENDED or self.stopped != seen.restarts or seen.end_s is None:
            return False
        lately = self.stopped_s + CLOCKS_S < seen.end_s <= now < seen.end_s + LINGERS_S
        return lately and seen.outcome != "CANCELLED"

    def lingers(self, now: float, grace_s: float) -> bool:
        """Whether it has been ending for longer than it may: it may do so for ever.

        One that comes back has longer, since it may not start elsewhere before.
        """
        most_s = grace_s if self.slurm.over else grace_s + LINGERS_S
        return self.ending_s is not None and now > self.ending_s + most_s

    def keep_off(self, nodes: Mapping[str, Reason], now: float) -> bool:
        """Keep it off these nodes, and off those that it avoided before no more.

        Return whether anything changes.
        """
        if nodes == self.kept_back.avoided:
            return False
        self.kept_back.avoided = nodes
        self.closed = replace(self.closed, until_s=now)
        return True

    def settle(self, now: float, cluster: Cluster, end_s: float | None = None) -> None:
        """Bring what grows with time up to `now`; service does not while the job is suspended.

        Nor does it after the end of its run: at `end_s`, or else from when it was seen to end.
        """
        seconds, until_s = max(0.0, now - self.observed_s), min(now, end_s or now)
        if not any(run.begun for run in self.runs):
            self.wait_s += seconds
        for run in self._served_runs():
            served_s = max(0.0, until_s - max(self.observed_s, run.since_s))
            for name, gpus in run.configuration:
                gpu_type = cluster[name].gpu_type
                self.attained[gpu_type] = self.attained.get(gpu_type, 0.0) + gpus * served_s
        if self.progress is not None:
            self.carried = self._carried_on(self.carried, self.observed_s, now)
        self.observed_s = now

    def go_on(self, had: Service | None, now: float, cluster: Cluster) -> None:
        """Count what it has had before this daemon saw it: as an earlier one noted, or in this run.

        Args:
            had: what was noted; None for nothing.
            now: seconds UTC.
            cluster: the nodes.
        """
        begun_s = min((run.since_s for run in self.runs if run.begun), default=None)
        if had is not None:
            had = had.as_seen(self.slurm, now)
            self.attained, self.first_start_s = dict(had.gpu_s), had.first_start_s
        if begun_s is not None:
            self.wait_s = max(0.0, self.wait_s - max(0.0, now - begun_s))
            self.observed_s = min(now, begun_s if had is None else had.at_s)
            self.settle(now, cluster, self.slurm.end_s)

    def service(self, cluster: Cluster) -> Service | None:
        """Return what it has had up to `observed_s`; None if it has not run."""
        if self.first_start_s is None:
            return None
        used = Counter[str]()
        for run in self._served_runs():
            for name, gpus in run.configuration:
                used[cluster[name].gpu_type] += gpus
        attained, now_used = tuple(self.attained.items()), tuple(sorted(used.items()))
        return Service(self.observed_s, attained, now_used, self.first_start_s)

    def _served_runs(self) -> Iterator[Run]:
        """Yield the runs in which it attains service now."""
        if self.slurm.state is not JobState.SUSPENDED:
            yield from (run for run in self.runs if run.begun and run.draining_until_s is None)

    def seen(self, restart_cost_s: float) -> JobView:
        """Return the job as policies see it."""
        return JobView(
            job=self.job,
            observed_s=self.observed_s,
            runs=self.runs,
            samples_done=self.samples,
            wait_s=self.wait_s,
            attained_gpu_s=tuple(self.attained.items()),
            first_start_s=self.first_start_s,
            restarts=self.slurm.restarts,
            restart_cost_s=restart_cost_s,
            blocked=self.blocked,
        )


def editable(seen: SlurmJob) -> tuple[object, ...]:
    """Return what may change, beside what a job holds, of what its view is made from."""
    return (
        *(seen.resources, seen.asked, seen.time_limit_s, seen.qos, seen.account),
        *(seen.partitions, seen.constraint, seen.excluded, seen.pinned),
        *(seen.disk_mb, seen.gres, seen.licenses, seen.exclusive),
        *(spares(seen), is_finishing(seen)),
        *(seen.state is JobState.SUSPENDED, seen.held and seen.state is JobState.RUNNING),
    )


def share_of(
    seen: SlurmJob, configuration: Configuration, cluster: Cluster
) -> dict[str, tuple[float, float]]:
    """Return the CPUs and MiB that a running job holds on each node of its configuration."""
    shares = {
        name: (element.cpus / len(element.nodes), element.memory_mb / len(element.nodes))
        for element in (seen, *seen.members)
        for name in element.nodes
    }
    # Of a host it has one share, whichever of the GPU types there it has.
    return {name: shares.pop(cluster[name].host, (0.0, 0.0)) for name, _ in configuration}


def configuration_of(pieces: Iterable[tuple[str, int]], cluster: Cluster) -> Configuration | None:
    """Return so many GPUs on these nodes; None for none, or nodes that are not ours."""
    found = dict(pieces)
    if not found or not all(found.values()) or any(name not in cluster for name in found):
        return None
    return Configuration.of(found)


def described(seen: SlurmJob, request: Request) -> Job:
    """Return the job as it was submitted."""
    options = request.mark.options
    return Job(
        id=seen.id,
        submit_s=_submitted_s(seen, request),
        requirements=request.counts,
        profile=options.profile,
        total_samples=options.total_samples,
        time_limit_s=seen.time_limit_s,
        gpu_types=request.gpu_types,
        name=seen.name,
        user=seen.user,
        account=seen.account,
        partition=seen.partition,
        asked_count=request.default_count,
        learning_rate=request.learning_rate,
    )


def moment(at_s: float) -> str:
    """Return a time, seconds UTC, as it is told to users."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_begin_later(seen: SlurmJob, request: Request) -> JobView:
    """Return a job that its user lets start later; until then no policy is told of it."""
    begin_s = seen.begin_s or 0.0
    reason = Reason(ReasonCode.BEGIN, detail=f"from {moment(begin_s)} on")
    # It has waited for nothing before.
    return JobView(described(seen, request), observed_s=begin_s, blocked=reason)


def _submitted_s(seen: SlurmJob, request: Request) -> float:
    """Return when a job was submitted, moved within its second into the order of the ids.

    Whole seconds are told, and Slurm numbers jobs as they come. No job is moved into the future.
    """
    number = int(re.match(r"\d*", seen.id)[0] or 0)  # type: ignore[index]
    return (request.mark.submitted_s or seen.submit_s) - 1.0 + number % 1_000_000 / 1e6


def blocked_by(seen: SlurmJob) -> Reason | None:
    """Return why a waiting job may not start wherever it is placed, as far as Slurm says."""
    if seen.state is not JobState.PENDING:
        return None
    code = code_of(seen.reason)
    # Where it cannot start by its constraints or the topology Slurm sets its priority to 0 as well:
    # that is no word of its user's, and says something of the nodes.
    held = seen.held and not (seen.entered and word_of(seen.reason) == "BadConstraints")
    # An element of a gang that is held keeps the others from starting without it.
    if code is ReasonCode.HELD or held or any(member.held for member in seen.members):
        told = code is ReasonCode.HELD or seen.held_by_slurm or seen.lost_reservation
        return Reason(ReasonCode.HELD, detail=seen.reason if told else "")
    # Of limits it has nothing to say before it has been placed: Slurm has not tried to start it.
    if code in LIMITS and not seen.entered:
        return None
    if code not in (None, ReasonCode.NOT_STARTED):
        return Reason(code, detail=seen.reason)
    # Slurm's word of it goes with each change of the job, until its scheduler comes to it again.
    if seen.dependency and not seen.members:
        return Reason(ReasonCode.DEPENDENCY, detail="Dependency")
    # What starts with a gang's leader may come under a limit that the leader does not.
    placed = (member.reason for member in seen.members if member.entered)
    return next((Reason(c, detail=said) for said in placed if (c := code_of(said)) in LIMITS), None)


def not_started(seen: SlurmJob) -> Reason | None:
    """Return why Slurm does not start a job where it was placed; None where it still may."""
    if code_of(seen.reason) is None:
        return None
    return Reason(ReasonCode.NOT_STARTED, detail=seen.reason)
