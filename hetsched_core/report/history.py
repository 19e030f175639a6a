"""What a run log, and a site's own log, tell, as columns: all that a report is made from.

A column costs tens of bytes a job where a run log costs a thousand, so that a comparison of many
policies holds one run log at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.measures.accounts import AccountUse, account_use
from hetsched_core.measures.fairness import latency_ratio
from hetsched_core.measures.logged import waits_s
from hetsched_core.records.runlog import JobRecord, RunLog, RunRecord, each
from hetsched_core.types import Cluster, EndState, Purpose, Submission

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Intervals [since, until), seconds UTC, each with a weight: (N,) columns."""

    since_s: Floats
    until_s: Floats
    weight: Floats

    @classmethod
    def of(cls, rows: Iterable[tuple[float, float, float]]) -> Spans:
        """Build from (since, until, weight)."""
        columns = np.array(list(rows), np.float64).reshape(-1, 3).T
        return cls(columns[0], columns[1], columns[2])

    def mean_over(self, edges: Floats) -> Floats:
        """Return the mean total weight in each of the K bins between (K + 1,) ascending edges.

        The mean is over time and exact: nothing is sampled.
        """
        times = np.concatenate([self.since_s, self.until_s])
        if times.size == 0:
            return np.zeros(len(edges) - 1)
        order = np.argsort(times, kind="stable")
        times = times[order]
        level = np.concatenate([self.weight, -self.weight])[order].cumsum()
        area = np.concatenate([[0.0], (level[:-1] * np.diff(times)).cumsum()])
        # What rounding leaves of a level that is nothing again must not be seen.
        means: Floats = np.diff(np.interp(edges, times, area)) / np.diff(edges)
        return np.maximum(means, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class JobColumns:
    """(N,) columns, a row for each job in order of (submission, id); NaN where there is nothing.

    Attributes:
        ids: the jobs' ids.
        users: their users, "" where unknown.
        submit_s: submission, seconds UTC.
        jct_s: completion time in seconds, of completed jobs.
        wait_s: seconds in which the job was eligible and held no GPU.
        first_wait_s: those before its first start, of jobs that started.
        latency_ratio: wait / expected run time, of completed jobs whose speed is known.
        gpu_hours: GPU hours held, profiling included.
        gpu_types: the type on which a job held most GPU seconds, "" if it never held one.
        drawn: whether the job's model was drawn.
        inferred: whether its work was inferred from its run time, as that of a log's job is.
    """

    ids: tuple[str, ...]
    users: tuple[str, ...]
    submit_s: Floats
    jct_s: Floats
    wait_s: Floats
    first_wait_s: Floats
    latency_ratio: Floats
    gpu_hours: Floats
    gpu_types: tuple[str, ...]
    drawn: NDArray[np.bool_]
    inferred: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """(P,) columns, a row for the GPUs of one run on one node: a bar of the Gantt chart."""

    node: Ints
    job: Ints
    gpus: Ints
    since_s: Floats
    until_s: Floats

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self.node)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What became of the jobs and of the nodes under one policy.

    Attributes:
        policy: the name that the policy has in the comparison.
        cluster: the nodes.
        jobs: what became of each job.
        pieces: which jobs held GPUs where, and when.
        held: GPUs held.
        work: what they did, in GPUs of average speed (docs/formats/report.md).
        waiting: jobs that were eligible and held no GPU.
        use: what accounts and users had, and what was due to them.
    """

    policy: str
    cluster: Cluster
    jobs: JobColumns
    pieces: Pieces
    held: Spans
    work: Spans
    waiting: Spans
    use: AccountUse

    @classmethod
    def of(cls, policy: str, log: RunLog, use: AccountUse | None = None) -> History:
        """Read the history from the run log of a policy under this name.

        Without `use` all accounts and users have equal shares.
        """
        records = sorted(log.jobs, key=lambda record: (record.job.submit_s, record.job.id))
        by_job: dict[str, list[RunRecord]] = defaultdict(list)
        held = tuple(each(log.runs))
        for run in held:
            by_job[run.job].append(run)
        runs = [by_job.get(record.job.id, []) for record in records]
        cluster = log.header.cluster
        return cls(
            policy=policy,
            cluster=cluster,
            jobs=_jobs(records, runs, cluster),
            pieces=_pieces(runs, cluster),
            held=Spans.of((r.since_s, r.freed_s, r.configuration.gpus) for r in held),
            work=Spans.of(
                span
                for record, own in zip(records, runs, strict=True)
                for span in _work(record, own)
            ),
            waiting=Spans.of(
                (since, until, 1.0)
                for record, own in zip(records, runs, strict=True)
                for since, until in _waits(record, own, log.closed_s)
            ),
            use=use or account_use(log),
        )

    @property
    def span_s(self) -> tuple[float, float]:
        """First submission, and when the last GPU was given back or the last wait ended (UTC)."""
        ends = np.concatenate([self.jobs.submit_s, self.held.until_s, self.waiting.until_s])
        return float(self.jobs.submit_s.min()), float(ends.max())


def _jobs(
    records: Sequence[JobRecord], runs: Sequence[Sequence[RunRecord]], cluster: Cluster
) -> JobColumns:
    by_type = [_gpu_s_by_type(own, cluster) for own in runs]
    jct_s = [
        r.end_s - r.job.submit_s
        if r.end_state is EndState.COMPLETED and r.end_s is not None
        else np.nan
        for r in records
    ]
    wait_s = np.array([r.wait_s for r in records])
    expected_s = np.array([r.expected_run_s or np.nan for r in records])
    completed = np.isfinite(jct_s)
    return JobColumns(
        ids=tuple(r.job.id for r in records),
        users=tuple(r.job.user for r in records),
        submit_s=np.array([r.job.submit_s for r in records]),
        jct_s=np.array(jct_s),
        wait_s=wait_s,
        first_wait_s=np.array(
            [
                np.nan if r.first_start_s is None else r.first_start_s - r.job.eligible_from_s
                for r in records
            ]
        ),
        latency_ratio=np.where(completed, latency_ratio(wait_s, expected_s), np.nan),
        gpu_hours=np.array([sum(gpu_s.values()) for gpu_s in by_type]) / SECONDS_PER_HOUR,
        # Of equal types the one that the cluster names first.
        gpu_types=tuple(max(gpu_s, key=gpu_s.__getitem__, default="") for gpu_s in by_type),
        drawn=np.array(["profile" in r.job.assumed for r in records], np.bool_),
        inferred=np.array(["total_samples" in r.job.assumed for r in records], np.bool_),
    )


def _gpu_s_by_type(runs: Sequence[RunRecord], cluster: Cluster) -> dict[str, float]:
    gpu_s: dict[str, float] = defaultdict(float)
    for run in runs:
        for node, gpus in run.configuration:
            gpu_s[cluster[node].gpu_type] += gpus * (run.freed_s - run.since_s)
    return {gpu_type: gpu_s[gpu_type] for gpu_type in cluster.gpu_types if gpu_type in gpu_s}


def _pieces(runs: Sequence[Sequence[RunRecord]], cluster: Cluster) -> Pieces:
    rows = [
        (cluster.index(node), job, gpus, run.since_s, run.freed_s)
        for job, own in enumerate(runs)
        for run in own
        for node, gpus in run.configuration
    ]
    columns = np.array(rows, np.float64).reshape(-1, 5).T
    node, job, gpus = columns[:3].astype(np.int64)
    return Pieces(node, job, gpus, columns[3], columns[4])


def _work(record: JobRecord, runs: Sequence[RunRecord]) -> Iterator[tuple[float, float, float]]:
    """Each run with its speed: how many GPUs of average speed would do the same for this job.

    The average is that of the expected run time (Hops formula 9). It is spread over the whole run,
    the restart included.
    """
    job = record.job
    if not record.expected_run_s or not job.total_samples:
        return
    gpu_s_per_sample = record.expected_run_s * job.requirements.mean / job.total_samples
    for run in runs:
        if run.purpose is Purpose.RUN and run.freed_s > run.since_s:
            speed = run.samples * gpu_s_per_sample / (run.freed_s - run.since_s)
            yield run.since_s, run.freed_s, speed


def _waits(
    record: JobRecord, runs: Sequence[RunRecord], closed_s: float
) -> Iterator[tuple[float, float]]:
    """When a job was eligible, had not ended and held no GPU; never if it can never run here."""
    if record.end_state is EndState.NEVER:
        return
    job = record.job
    since = job.eligible_from_s
    end = closed_s if record.end_s is None else record.end_s
    # A job may hold GPUs several times over: copies, tasks, profiling.
    for run in sorted(runs, key=lambda run: run.since_s):
        if since < min(run.since_s, end):
            yield since, min(run.since_s, end)
        since = max(since, run.freed_s)
    if since < end:
        yield since, end


@dataclass(frozen=True, slots=True, eq=False)
class LoggedHistory:
    """What the site's own scheduler did with the jobs of its log.

    Attributes:
        first_wait_s: (N,) seconds that each job was eligible before its first start.
        held: GPUs held.
        waiting: jobs that were eligible and held no GPU.
    """

    first_wait_s: Floats
    held: Spans
    waiting: Spans

    @classmethod
    def of(cls, submissions: Iterable[Submission]) -> LoggedHistory | None:
        """Read the history from the logged runs of a workload; None if no job has any."""
        jobs = [(one.job, one.logged) for one in submissions if one.logged]
        if not jobs:
            return None
        return cls(
            first_wait_s=np.array(
                [max(0.0, runs[0].start_s - job.eligible_from_s) for job, runs in jobs]
            ),
            held=Spans.of((run.start_s, run.end_s, run.gpus) for _, runs in jobs for run in runs),
            waiting=Spans.of((*wait, 1.0) for job, runs in jobs for wait in waits_s(job, runs)),
        )

    @property
    def span_s(self) -> tuple[float, float]:
        """First wait or start, and when the last GPU was given back (UTC)."""
        begin_s = np.concatenate([self.held.since_s, self.waiting.since_s]).min()
        return float(begin_s), float(self.held.until_s.max())

    def held_while_waiting(self) -> float | None:
        """Return the mean of the GPUs held over the time in which jobs waited; None without it."""
        edges = np.unique(
            np.concatenate(
                [self.held.since_s, self.held.until_s, self.waiting.since_s, self.waiting.until_s]
            )
        )
        if not self.waiting.since_s.size:
            return None
        waits = self.waiting.mean_over(edges) > 0.5
        seconds = np.diff(edges)[waits]
        return float(np.average(self.held.mean_over(edges)[waits], weights=seconds))
