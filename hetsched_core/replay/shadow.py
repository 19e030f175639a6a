"""What a policy would have changed: the jobs of a store as they ran, and replayed under the policy.

The daemon keeps when each job came, started and left, and how much work it was; its decisions hold
the cluster, the speeds and the policy. From that the window is replayed. What is assumed stands in
the report.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from hetsched_core.errors import InputError
from hetsched_core.measures.fairness import RunTimes
from hetsched_core.policy import make_policy
from hetsched_core.records.decision_record import RecordedDecision, read_decision
from hetsched_core.records.runlog import JobRecord
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.store import Store, StoredJob
from hetsched_core.types import Cluster, EndState, Snapshot, Speeds, SpeedTable, Submission

SOONER_S = 60.0
"""A job gains or loses if its completion moves by more than this, and by a twentieth."""

_SHARE = 0.05
_MOST_NAMED = 3

_ASSUMED = """\
A job's work is what it told, or its GPU time at the estimated speed; it is as fast as estimated \
wherever the policy puts it.
Jobs that still waited or ran at the end of the window are left out, and those that never ran.
What jobs that are not managed hold is taken from each node throughout: the median of the window.
Nodes were up; nobody submits otherwise because jobs end sooner or later."""

ASSUMED = tuple(_ASSUMED.splitlines())


@dataclass(frozen=True, slots=True)
class Side:
    """Figures of one of the two: what Slurm did, or the policy. Times are seconds."""

    mean_wait_s: float
    median_wait_s: float
    p90_wait_s: float
    mean_completion_s: float
    mean_latency_ratio: float | None
    max_latency_ratio: float | None
    restarts: int


@dataclass(frozen=True, slots=True)
class UserChange:
    """What changes for one user: mean completion times in seconds, jobs sooner and later."""

    user: str
    jobs: int
    before_s: float
    after_s: float
    sooner: int
    later: int


@dataclass(frozen=True, slots=True)
class JobChange:
    """What changes for one job: completion times in seconds."""

    job: str
    user: str
    before_s: float
    after_s: float


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """What a policy would have changed.

    Attributes:
        policy, parameters: the policy.
        from_s, to_s: the window, seconds UTC.
        jobs: how many jobs it is about; `left_out` more cannot be replayed.
        before, after: what Slurm did, and the policy.
        moves: runs that the policy stops for others or for a better place.
        sooner, later: jobs that gain and lose.
        users: what changes for whom, those with most jobs first.
        losers: the jobs that lose most.
        assumed: what had to be assumed.
    """

    policy: str
    parameters: Mapping[str, str]
    from_s: float
    to_s: float
    jobs: int
    left_out: int
    before: Side
    after: Side
    moves: int
    sooner: int
    later: int
    users: tuple[UserChange, ...]
    losers: tuple[JobChange, ...]
    assumed: tuple[str, ...] = ASSUMED


def shadow_report(
    store: Store, since_s: float, policy: str = "", parameters: Mapping[str, str] | None = None
) -> ShadowReport:
    """Return what a policy would have made of the jobs that came since a time.

    Args:
        store: the daemon's.
        since_s: seconds UTC.
        policy: its name; "" for the one that decided last, with its parameters.
        parameters: of the policy named.

    Raises:
        InputError: nothing to compare was recorded.
        PlanError: the policy made an invalid plan.
    """
    recorded = _recorded(store, since_s)
    latest = recorded[-1]
    name = policy or latest.policy
    chosen = dict(parameters or {}) if policy else dict(latest.parameters)
    speeds = _speeds(recorded)
    came = [one for one in store.jobs() if one.job.submit_s >= since_s]
    jobs = [one for one in came if _replayable(one, speeds)]
    if not jobs:
        raise InputError(
            f"none of the {len(came)} jobs on record that came in this time has run and left since "
            "then; name more days"
        )
    snapshot = latest.snapshot
    log = simulate(
        [_submission(one) for one in jobs],
        _left_to_us(recorded),
        make_policy(name, chosen),
        speeds,
        _settings(snapshot),
    )
    records = {record.job.id: record for record in log.jobs}
    pairs = [
        (one, record)
        for one in jobs
        if (record := records[_unique(one)]).end_state is EndState.COMPLETED
    ]
    if not pairs:
        raise InputError(
            f"under {name} no job on record would have ended; is the cluster the same?"
        )
    return _compared(name, chosen, since_s, len(came), pairs, speeds, snapshot.cluster)


def _recorded(store: Store, since_s: float) -> list[RecordedDecision]:
    found = []
    for _, decision in store.sampled_decisions(since_s):
        try:
            found.append(read_decision(decision.document))
        except InputError:
            continue
    if not found:
        raise InputError(
            "no decision on record since then holds a snapshot; name more days, or let the daemon "
            "run for longer"
        )
    return found


def _speeds(recorded: Iterable[RecordedDecision]) -> Speeds:
    """Return the latest estimates of every profile that was ever active."""
    tables: dict[str, SpeedTable] = {}
    cluster: Cluster | None = None
    for one in recorded:
        cluster = one.snapshot.cluster
        speeds = one.snapshot.speeds
        tables |= {name: speeds.table(name) for name in speeds.profiles}
    assert cluster is not None
    return Speeds(cluster, tables)


def _replayable(one: StoredJob, speeds: Speeds) -> bool:
    return (
        one.ended_s is not None
        and one.first_start_s is not None
        and one.samples > 0
        and one.job.profile in speeds.profiles
    )


def _unique(one: StoredJob) -> str:
    # Slurm hands ids out again.
    return f"{one.job.id} {one.nonce}"


def _submission(one: StoredJob) -> Submission:
    return Submission(replace(one.job, id=_unique(one)), one.samples)


def _left_to_us(recorded: Sequence[RecordedDecision]) -> Cluster:
    """Return the last cluster without the GPUs that others hold most of the time."""
    cluster = recorded[-1].snapshot.cluster
    nodes = []
    for node in cluster:
        foreign = [
            one.snapshot.nodes[node.name].foreign_gpus
            for one in recorded
            if node.name in one.snapshot.nodes
        ]
        left = node.gpus - math.floor(median(foreign))
        if left > 0:
            nodes.append(replace(node, gpus=left))
    if not nodes:
        raise InputError("others hold all GPUs most of the time; there is nothing to replay on")
    return Cluster(tuple(nodes), cluster.name)


def _settings(snapshot: Snapshot) -> SimulationSettings:
    restart_cost_s = max((v.restart_cost_s for v in snapshot.jobs.values()), default=10.0)
    return SimulationSettings(
        round_s=snapshot.round.end_s - snapshot.round.start_s,
        restart_cost_s=restart_cost_s,
        grace_s=snapshot.grace_s,
        seed=snapshot.seed,
        shapes=snapshot.shapes,
        runs_per_job=snapshot.runs_per_job,
    )


def _compared(
    policy: str,
    parameters: Mapping[str, str],
    since_s: float,
    came: int,
    pairs: Sequence[tuple[StoredJob, JobRecord]],
    speeds: Speeds,
    cluster: Cluster,
) -> ShadowReport:
    times = RunTimes(speeds, cluster)
    expected_s = [times.expected_run_s(one.job, one.samples) for one, _ in pairs]
    changes = [
        JobChange(
            one.job.id,
            one.job.user,
            (one.ended_s or 0.0) - one.job.submit_s,
            (record.end_s or 0.0) - one.job.submit_s,
        )
        for one, record in pairs
    ]
    before = _side(
        [one.wait_s for one, _ in pairs],
        [change.before_s for change in changes],
        expected_s,
        sum(one.restarts for one, _ in pairs),
    )
    after = _side(
        [record.wait_s for _, record in pairs],
        [change.after_s for change in changes],
        expected_s,
        sum(record.restarts for _, record in pairs),
    )
    later = sorted((c for c in changes if _moved(c) > 0), key=lambda c: c.before_s - c.after_s)
    return ShadowReport(
        policy=policy,
        parameters=parameters,
        from_s=since_s,
        to_s=max(one.ended_s or 0.0 for one, _ in pairs),
        jobs=len(pairs),
        left_out=came - len(pairs),
        before=before,
        after=after,
        moves=after.restarts,
        sooner=sum(_moved(change) < 0 for change in changes),
        later=len(later),
        users=_by_user(changes),
        losers=tuple(later[:_MOST_NAMED]),
    )


def _moved(change: JobChange) -> int:
    """Return -1 for a job that ends sooner, 1 for one that ends later, 0 for neither."""
    by_s = change.after_s - change.before_s
    if abs(by_s) <= max(SOONER_S, _SHARE * change.before_s):
        return 0
    return 1 if by_s > 0 else -1


def _side(
    waits_s: Sequence[float],
    completions_s: Sequence[float],
    expected_s: Sequence[float | None],
    restarts: int,
) -> Side:
    ratios = [wait_s / run_s for wait_s, run_s in zip(waits_s, expected_s, strict=True) if run_s]
    return Side(
        mean_wait_s=float(np.mean(waits_s)),
        median_wait_s=float(np.median(waits_s)),
        p90_wait_s=float(np.percentile(waits_s, 90)),
        mean_completion_s=float(np.mean(completions_s)),
        mean_latency_ratio=float(np.mean(ratios)) if ratios else None,
        max_latency_ratio=max(ratios, default=None),
        restarts=restarts,
    )


def _by_user(changes: Iterable[JobChange]) -> tuple[UserChange, ...]:
    by_user: dict[str, list[JobChange]] = defaultdict(list)
    for change in changes:
        by_user[change.user].append(change)
    found = [
        UserChange(
            user,
            len(own),
            float(np.mean([change.before_s for change in own])),
            float(np.mean([change.after_s for change in own])),
            sum(_moved(change) < 0 for change in own),
            sum(_moved(change) > 0 for change in own),
        )
        for user, own in by_user.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.jobs, each.user)))
