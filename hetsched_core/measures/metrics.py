"""The measures of a run log: what a scheduler is judged by.

`docs/formats/result.md` defines each of them. They are the same for every policy and for simulated
and live runs, because they see nothing but the run log, the true speeds and the site's shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hetsched_core.errors import InputError
from hetsched_core.measures.accounts import AccountUse, account_use, repeated
from hetsched_core.measures.fairness import RunTimes, finish_time_fairness, latency_ratio
from hetsched_core.records.runlog import JobRecord, NodeRecord, RunLog
from hetsched_core.types import EndState, NodeCondition, Purpose, Speeds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNFAIR_FTF = 1.0 + 1e-9
"""Finish-time fairness above which a job counts as treated unfairly, rounding allowed for."""


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """Wall-clock seconds that one plan took."""

    mean: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of one run; None where there is nothing to measure.

    Counts are of jobs, times seconds, `*_gpu_s` GPU seconds, the rest ratios or means.
    """

    jobs: int
    completed: int
    failed: int
    cancelled: int
    never: int
    unfinished: int
    makespan_s: float | None
    avg_jct_s: float | None
    p50_jct_s: float | None
    p99_jct_s: float | None
    avg_wait_s: float | None
    max_latency_ratio: float | None
    avg_fragments: float | None
    avg_queue_length: float | None
    ftf_max: float | None
    ftf_unfair_share: float | None
    gpu_utilisation: float | None
    gpu_s: float
    lost_gpu_s: float
    profiling_gpu_s: float
    restarts: int
    preemptions: int
    rounds: int
    plans: int
    plan_s: PlanTimes | None
    wall_s: float
    gru: float | None = None
    cru: float | None = None
    avg_latency_ratio: float | None = None
    jain_slowdown: float | None = None
    worst_share_error: float | None = None
    late_share: float | None = None
    p99_wait_s: float | None = None


class Better(Enum):
    """Which values of a measure are good; of some neither is."""

    LESS = "less"
    MORE = "more"
    NEITHER = "neither"


class MeasureKind(Enum):
    """What sort of number a measure is, and so in which unit it is shown."""

    COUNT = "count"
    DURATION = "duration"
    GPU_TIME = "GPU time"
    SHARE = "share"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure: its key in the result file, its name, its meaning in plain words, what is better.

    `only_if_any` leaves it out of tables where it is 0 or unknown for all policies.
    """

    key: str
    label: str
    meaning: str
    kind: MeasureKind = MeasureKind.DURATION
    better: Better = Better.LESS
    only_if_any: bool = False


MEASURES = (
    Measure(
        "completed",
        "Jobs completed",
        "Jobs that ended with all their work done. Means, medians and extremes over jobs are over "
        "these only.",
        MeasureKind.COUNT,
        Better.NEITHER,
    ),
    Measure(
        "failed",
        "Jobs failed",
        "Jobs that failed in the input: they fail here after the same work, and are counted apart.",
        MeasureKind.COUNT,
        Better.NEITHER,
        only_if_any=True,
    ),
    Measure(
        "cancelled",
        "Jobs cancelled",
        "Jobs that their users withdrew.",
        MeasureKind.COUNT,
        Better.NEITHER,
        only_if_any=True,
    ),
    Measure(
        "never",
        "Jobs that can never run",
        "Jobs whose GPU count, GPU type, CPUs or memory no part of this cluster can give.",
        MeasureKind.COUNT,
        Better.NEITHER,
        only_if_any=True,
    ),
    Measure(
        "unfinished",
        "Jobs unfinished",
        "Jobs that had not ended when the run was stopped.",
        MeasureKind.COUNT,
        Better.LESS,
        only_if_any=True,
    ),
    Measure(
        "avg_jct_s",
        "Completion time, mean",
        "Time from a job's submission to its end, waiting included (JCT).",
    ),
    Measure(
        "p50_jct_s", "Completion time, median", "Half of the jobs take less than this, half more."
    ),
    Measure(
        "p99_jct_s",
        "Completion time, 99th percentile",
        "One job in a hundred takes longer than this.",
    ),
    Measure(
        "avg_wait_s",
        "Wait, mean",
        "Time in which a job was ready to run and held no GPU; later waits, after it was "
        "interrupted, included.",
    ),
    Measure("p99_wait_s", "Wait, 99th percentile", "One job in a hundred waits longer than this."),
    Measure(
        "max_latency_ratio",
        "Latency ratio, worst job",
        "Wait / the job's expected run time without waiting: 2 means that it waited twice as long "
        "as it needed to run.",
        MeasureKind.NUMBER,
    ),
    Measure(
        "late_share",
        "Deadlines missed",
        "Jobs that did not end by their deadline, of those that have one.",
        MeasureKind.SHARE,
        only_if_any=True,
    ),
    Measure(
        "avg_queue_length",
        "Jobs waiting, mean",
        "Mean number of jobs that are ready to run and hold no GPU.",
        MeasureKind.NUMBER,
    ),
    Measure(
        "ftf_unfair_share",
        "Jobs worse off than on a fair share",
        "Jobs that take longer than they would on a part of the cluster of their own, of all GPUs "
        "/ mean number of jobs in the system (finish-time fairness above 1).",
        MeasureKind.SHARE,
    ),
    Measure(
        "ftf_max",
        "Finish-time fairness, worst job",
        "Completion time / time on such a part of the cluster. Above 1, the job lost by sharing.",
        MeasureKind.NUMBER,
    ),
    Measure(
        "jain_slowdown",
        "Evenness of users’ slowdowns",
        "Jain’s index of the users’ mean slowdowns: 1 where waiting slows all of them down alike, "
        "1 / the number of users where it hits only one.",
        MeasureKind.NUMBER,
        Better.MORE,
        only_if_any=True,
    ),
    Measure(
        "worst_share_error",
        "GPU time off its due, worst account",
        "How far the GPU time that an account had is from what was due to it by its shares while "
        "it had jobs, as a part of that.",
        MeasureKind.SHARE,
        only_if_any=True,
    ),
    Measure(
        "gpu_utilisation",
        "GPUs held",
        "GPUs held by jobs / GPUs of the nodes that are up. A held GPU need not be busy, and the "
        "same work on slower GPUs holds more of them.",
        MeasureKind.SHARE,
        Better.NEITHER,
    ),
    Measure(
        "avg_fragments",
        "GPUs idle while jobs wait, mean",
        "GPUs that no waiting job was given (fragments); 0 at times when no job waits.",
        MeasureKind.NUMBER,
    ),
    Measure(
        "gpu_s",
        "GPU time held",
        "GPUs × hours, over all runs. The same work takes less of it on faster GPUs.",
        MeasureKind.GPU_TIME,
        Better.NEITHER,
    ),
    Measure(
        "lost_gpu_s",
        "GPU time lost",
        "GPU time held without progress that was kept: restarts, saving state, lost work.",
        MeasureKind.GPU_TIME,
    ),
    Measure(
        "profiling_gpu_s",
        "GPU time for profiling",
        "GPU time spent on measuring the speed of jobs.",
        MeasureKind.GPU_TIME,
        only_if_any=True,
    ),
    Measure(
        "restarts",
        "Restarts",
        "Starts of a job after its first one, over all jobs.",
        MeasureKind.COUNT,
    ),
    Measure(
        "preemptions",
        "Interruptions",
        "Times that a running job was stopped and had to wait again (preemptions).",
        MeasureKind.COUNT,
    ),
    Measure("makespan_s", "Makespan", "Time from the first submission to the last end."),
)
"""The measures that are compared, in the order of the report; terminals show some of them."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Which jobs count: not those of the time in which a cluster fills up, or runs empty.

    Attributes:
        warm_up_s: the jobs of so many seconds after the first submission do not count.
        drain_s: nor do those of so many seconds before the last.
    """

    warm_up_s: float = 0.0
    drain_s: float = 0.0

    def span_s(self, submit_s: Sequence[float]) -> tuple[float, float] | None:
        """Return from when until when jobs are submitted that count, seconds UTC; None for all.

        Args:
            submit_s: when jobs are submitted, one at least.

        Raises:
            InputError: no job would count.
        """
        if not (self.warm_up_s or self.drain_s):
            return None
        first, last = min(submit_s), max(submit_s)
        span = first + self.warm_up_s, last - self.drain_s
        if not any(span[0] <= each <= span[1] for each in submit_s):
            raise InputError(
                f"a warm-up of {self.warm_up_s:g} s and a drain of {self.drain_s:g} s leave no job "
                f"to count: all are submitted within {last - first:g} s; give less"
            )
        return span


ALL_JOBS = Counted()
"""Every job counts."""


def submitted_in(
    jobs: Sequence[JobRecord], span_s: tuple[float, float] | None
) -> Sequence[JobRecord]:
    """Return the jobs that were submitted in a span, seconds UTC, both ends included; None: all."""
    if span_s is None:
        return jobs
    return [r for r in jobs if span_s[0] <= r.job.submit_s <= span_s[1]]


def measure(
    log: RunLog,
    speeds: Speeds,
    use: AccountUse | None = None,
    span_s: tuple[float, float] | None = None,
) -> Measures:
    """Return the measures of a run log.

    Args:
        log: what happened.
        speeds: the true speeds, for finish-time fairness.
        use: what accounts and users had and were due of it; None where all have equal shares.
        span_s: from when until when jobs are submitted that count, seconds UTC. GPUs held and idle
            and jobs that wait are counted in that time, by whichever jobs. None for all.
    """
    use = use or account_use(log)
    jobs = submitted_in(log.jobs, span_s)
    counted = {record.job.id for record in jobs}
    states = Counter(record.end_state for record in jobs)
    done = [r for r in jobs if r.end_state is EndState.COMPLETED and r.end_s is not None]
    jct_s = np.array([_end_s(r) - r.job.submit_s for r in done])
    wait_s = np.array([r.wait_s for r in done])
    span, whole = _span(jobs), _span(log.jobs)
    grid = _Occupancy.sample(log, *(span_s or span)) if span else None
    ftf = _ftf(log, done, jct_s, speeds, *whole) if whole else np.empty(0)
    ratios = _latency_ratios(done)
    gpu_s = lost_gpu_s = profiling_gpu_s = own_gpu_s = busy_gpu_s = 0.0
    for run in log.runs:
        gpus = run.times * run.configuration.gpus
        held_gpu_s = gpus * (run.freed_s - run.since_s)
        profiles, counts = run.purpose is Purpose.PROFILE, run.job in counted
        if counts:
            gpu_s += held_gpu_s
            profiling_gpu_s += held_gpu_s if profiles else 0.0
            lost_gpu_s += 0.0 if profiles else held_gpu_s - gpus * run.productive_s
        if not profiles:
            own_gpu_s += held_gpu_s
            busy_gpu_s += gpus * run.productive_s
    slots_gpu_s = log.header.cluster.gpus * log.rounds * log.header.round_s
    return Measures(
        jobs=len(jobs),
        completed=states[EndState.COMPLETED],
        failed=states[EndState.FAILED],
        cancelled=states[EndState.CANCELLED],
        never=states[EndState.NEVER],
        unfinished=states[EndState.UNFINISHED],
        makespan_s=span[1] - span[0] if span else None,
        avg_jct_s=_mean(jct_s),
        p50_jct_s=_percentile(jct_s, 50),
        p99_jct_s=_percentile(jct_s, 99),
        avg_wait_s=_mean(wait_s),
        max_latency_ratio=_max(ratios),
        avg_fragments=_mean(grid.fragments) if grid else None,
        avg_queue_length=_mean(grid.waiting) if grid else None,
        ftf_max=_max(ftf),
        ftf_unfair_share=_mean(ftf > UNFAIR_FTF),
        gpu_utilisation=grid.utilisation if grid else None,
        gpu_s=gpu_s,
        lost_gpu_s=max(0.0, lost_gpu_s),  # rounding may leave less than nothing
        profiling_gpu_s=profiling_gpu_s,
        restarts=sum(r.restarts for r in jobs),
        preemptions=sum(r.preemptions for r in jobs),
        rounds=log.rounds,
        plans=len(log.plans),
        plan_s=_plan_times(log.plans.plan_s),
        wall_s=log.wall_s,
        gru=busy_gpu_s / own_gpu_s if own_gpu_s else None,
        cru=busy_gpu_s / slots_gpu_s if slots_gpu_s else None,
        avg_latency_ratio=_mean(ratios),
        jain_slowdown=use.jain_slowdown,
        worst_share_error=use.worst_share_error,
        late_share=_late_share(jobs),
        p99_wait_s=_percentile(wait_s, 99),
    )


def _late_share(jobs: Sequence[JobRecord]) -> float | None:
    """Part of the jobs with a deadline that ended after it, or have not ended."""
    here = (r for r in jobs if r.end_state in (EndState.COMPLETED, EndState.UNFINISHED))
    return _mean(np.array([_end_s(r) > r.job.deadline_s for r in here if r.job.deadline_s]))


def _end_s(record: JobRecord) -> float:
    return np.inf if record.end_s is None else record.end_s


def _span(jobs: Sequence[JobRecord]) -> tuple[float, float] | None:
    """First submission of a job that can run, last end of one that ran to its end."""
    begin = min((r.job.submit_s for r in jobs if r.end_state is not EndState.NEVER), default=None)
    ran = (EndState.COMPLETED, EndState.FAILED)
    end = max((r.end_s for r in jobs if r.end_state in ran and r.end_s is not None), default=None)
    return None if begin is None or end is None else (begin, end)


def _latency_ratios(done: Sequence[JobRecord]) -> Floats:
    pairs = [(r.wait_s, r.expected_run_s) for r in done if r.expected_run_s]
    wait_s, expected_run_s = np.array(pairs, np.float64).reshape(-1, 2).T
    return latency_ratio(wait_s, expected_run_s)


def _ftf(
    log: RunLog, done: Sequence[JobRecord], jct_s: Floats, speeds: Speeds, begin: float, end: float
) -> Floats:
    """Finish-time fairness of the completed jobs that have a speed."""
    if end <= begin:
        return np.empty(0)
    here = [r for r in log.jobs if r.end_state is not EndState.NEVER]
    come = np.array([r.job.submit_s for r in here])
    gone = np.array([_end_s(r) for r in here])
    stay_s = np.clip(np.minimum(gone, end) - np.maximum(come, begin), 0.0, None)
    # A job alone has the whole cluster and no more, also where the mean counts idle hours.
    active = max(1.0, float(stay_s.sum()) / (end - begin))
    cluster = log.header.cluster
    times = RunTimes(speeds, cluster)
    share = cluster.gpus / active
    isolated_s = np.array([times.isolated_run_s(r.job, r.samples, share) or np.nan for r in done])
    known = ~np.isnan(isolated_s)
    return finish_time_fairness(jct_s[known], isolated_s[known])


@dataclass(frozen=True, slots=True)
class _Occupancy:
    """The cluster at each round start of the makespan, right after the plans of that instant.

    (K,) arrays: `capacity` GPUs of nodes that are up, `held` those among them that are held,
    `waiting` the number of jobs that hold none.
    """

    capacity: Ints
    held: Ints
    waiting: Ints

    @property
    def fragments(self) -> Ints:
        """Idle GPUs where a job waits, else 0."""
        return np.where(self.waiting > 0, self.capacity - self.held, 0)

    @property
    def utilisation(self) -> float | None:
        """GPUs held / GPUs available, over all instants."""
        available = int(self.capacity.sum())
        return int(self.held.sum()) / available if available else None

    @classmethod
    def sample(cls, log: RunLog, begin: float, end: float) -> _Occupancy:
        """Sample a run log at the round starts in [begin, end)."""
        instants = _round_starts(log, begin, end)
        capacity, held = _gpus(log, instants)
        return cls(capacity, held, _waiting(log, instants))


def _round_starts(log: RunLog, begin: float, end: float) -> Floats:
    # What the plan of a round's start made of it shows once that plan is in force.
    origin, step = log.header.origin_s + log.header.decision_s, log.header.round_s
    first = max(0, int((begin - origin) // step))
    last = max(first, int((end - origin) // step) + 1)
    instants = origin + step * np.arange(first, last + 1, dtype=np.float64)
    return instants[(instants >= begin) & (instants < end)]


def _slots(instants: Floats, since_s: Floats, until_s: Floats) -> tuple[Ints, Ints]:
    """The instants [first, last) that lie in each interval [since, until)."""
    return np.searchsorted(instants, since_s), np.searchsorted(instants, until_s)


def _count(first: Ints, last: Ints, weight: Ints, size: int) -> Ints:
    """The summed weight of the intervals [first, last) at each of `size` instants."""
    change = np.zeros(size + 1, np.int64)
    np.add.at(change, first, weight)
    np.subtract.at(change, last, weight)
    return change.cumsum()[:size]


def _gpus(log: RunLog, instants: Floats) -> tuple[Ints, Ints]:
    """GPUs of the nodes that are up, and how many of these are held, at each instant."""
    cluster = log.header.cluster
    size = len(instants)
    names = {node.name: at for at, node in enumerate(cluster)}
    pieces = [
        (names[node], gpus, run.since_s, run.freed_s, run.times, run.every_s)
        for run in log.runs
        for node, gpus in run.configuration
    ]
    columns = repeated(np.array(pieces, np.float64).reshape(-1, 6))
    node, weight = columns[:2].astype(np.int64)
    first, last = _slots(instants, columns[2], columns[3])
    held = _count(first, last, weight, size)
    capacity = np.full(size, cluster.gpus, np.int64)
    by_node = np.argsort(node, kind="stable")
    starts = np.searchsorted(node, np.arange(len(cluster) + 1), sorter=by_node)
    for name, out_first, out_last in _outages(log.nodes, instants):
        at = names[name]
        capacity[out_first:out_last] -= cluster.nodes[at].gpus
        here = by_node[starts[at] : starts[at + 1]]
        begun = np.maximum(first[here], out_first)
        ended = np.maximum(np.minimum(last[here], out_last), begun)
        held -= _count(begun, ended, weight[here], size)
    return capacity, held


def _outages(records: Sequence[NodeRecord], instants: Floats) -> Iterator[tuple[str, int, int]]:
    """(node, first, last) for each time [first, last) of instants in which a node was not up."""
    by_node: dict[str, list[NodeRecord]] = {}
    for record in records:
        by_node.setdefault(record.node, []).append(record)
    for name, changes in by_node.items():
        times = np.array([change.at_s for change in changes])
        slots = [*np.searchsorted(instants, times).tolist(), len(instants)]
        for change, (first, last) in zip(changes, pairwise(slots), strict=True):
            if change.condition is not NodeCondition.UP and first < last:
                yield name, first, last


def _waiting(log: RunLog, instants: Floats) -> Ints:
    """Number of jobs that are eligible, not ended and without any GPU, at each instant."""
    size = len(instants)
    here = [r for r in log.jobs if r.end_state is not EndState.NEVER]
    eligible = np.array([r.job.eligible_from_s for r in here])
    come, gone = _slots(instants, eligible, np.array([_end_s(r) for r in here]))
    gone = np.maximum(gone, come)
    active = _count(come, gone, np.ones(len(here), np.int64), size)

    index = {r.job.id: at for at, r in enumerate(here)}
    held = [
        (index[r.job], 0, r.since_s, r.freed_s, r.times, r.every_s)
        for r in log.runs
        if r.job in index
    ]
    columns = repeated(np.array(held, np.float64).reshape(-1, 6))
    job = columns[0].astype(np.int64)
    first, last = _slots(instants, columns[2], columns[3])
    # GPUs that are still being vacated after the end do not make up for another job's wait.
    first, last = np.maximum(first, come[job]), np.minimum(last, gone[job])
    order = np.lexsort((first, job))
    job, first, last = job[order], first[order], last[order]
    # A job may hold GPUs several times over (copies, tasks, profiling): count what each run adds
    # to those that began before it. The offset keeps the running maximum inside one job.
    offset = job * (size + 1)
    reach = np.maximum.accumulate(np.concatenate(([0], offset + last)))[:-1]
    first = np.maximum(first, reach - offset)
    adds = first < last
    return active - _count(first[adds], last[adds], np.ones(int(adds.sum()), np.int64), size)


def _mean(values: Floats | Ints | NDArray[np.bool_]) -> float | None:
    return float(np.mean(values)) if values.size else None


def _max(values: Floats) -> float | None:
    return float(values.max()) if values.size else None


def _percentile(values: Floats, percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values.size else None


def _plan_times(plan_s: Floats) -> PlanTimes | None:
    if plan_s.size == 0:
        return None
    return PlanTimes(float(plan_s.mean()), float(np.percentile(plan_s, 95)), float(plan_s.max()))
