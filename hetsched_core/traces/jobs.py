"""From an accounting log to jobs: which model each job ran, and how much work it did.

A log says when a job ran on which GPUs, and nothing of what it computed. Its work is taken to be
what its model does on the GPUs it really had in the time it really had them, and where the site's
rules do not tell the model, one is drawn (docs/formats/rules.md describes all of it).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b

from hetsched_core.throughput import ModelProfile, SizeClass, match_gpu
from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.rules import Rule, Rules
from hetsched_core.traces.sacct import (
    FieldError,
    JobRuns,
    LoggedAllocation,
    LoggedState,
    link_runs,
    parse_job_id,
)
from hetsched_core.traces.workload import RejectedJob, Workload, arrival_order
from hetsched_core.types import (
    Cluster,
    EndState,
    Job,
    LoggedRun,
    RequirementSet,
    Speeds,
    Submission,
)

SECONDS_PER_HOUR = 3600.0
LEAST_RUN_S = 1.0
"""What a run of zero seconds counts for: accounting has whole seconds."""

_FAILURES = frozenset(
    {
        LoggedState.FAILED,
        LoggedState.OUT_OF_MEMORY,
        LoggedState.NODE_FAIL,
        LoggedState.BOOT_FAIL,
        LoggedState.LAUNCH_FAILED,
        LoggedState.DEADLINE,
    }
)
_CUT_SHORT = frozenset(
    {
        LoggedState.TIMEOUT,
        LoggedState.CANCELLED,
        LoggedState.PREEMPTED,
        LoggedState.REQUEUED,
        LoggedState.REVOKED,
    }
)


class RejectReason(StrEnum):
    """Why a job of a log cannot be replayed."""

    TYPE = (
        "neither the log nor the cluster tells the type of its GPUs: name it in node_types of the "
        "cluster file or partition_types of the rules"
    )
    ELAPSED = "the log does not tell how long it ran"
    TOO_LARGE = "no model runs on the GPUs it had"
    RULE_TOO_LARGE = "the model that the rules name does not run on the GPUs it had"
    SAME_ID = "another job of the log has the same id"


class Assumption(StrEnum):
    """What is assumed about jobs of a log; the report counts the jobs of each."""

    WORK = "work is what the model does on the logged GPUs in the logged time, lost work included"
    DRAWN = "the model is not known: drawn from those of the same class of GPU hours"
    OTHER_CLASS = "no model of its class fits its GPUs: drawn from all that do"
    RUNNING = "still running when the log ended: the work so far counts as all of it"
    CUT_SHORT = (
        "cancelled, preempted, requeued or timed out: it completes with the work it had done"
    )
    FAILED = "failed: it fails after the same work"
    SEVERAL_RUNS = "ran several times: one job with the work of all runs, submitted at the first"
    REPEATED = "a row of it was in the log more than once: counted once"
    LOST_RUNS = "its earlier runs are not in the log: work and waiting are less than they were"
    NO_TIME = f"ran for less than a second: counted as {LEAST_RUN_S:g} s"
    ANY_TYPE = "the log does not tell whether a GPU type was asked for: any type will do"
    LOGGED_TYPE = "held to the GPU types that it ran on (--types logged)"
    UNTYPED = "the type of its GPUs is told from its nodes"
    ONLY_TYPE = "the type of its GPUs is not told: they are of the only type of the cluster"
    SEVERAL_TYPES = "its GPUs are of several types: the slowest sets the pace"
    SHRUNK = "more CPUs or memory than the cluster's nodes have: cut down to fit"
    WIDENED = "elastic: half, all and twice the logged GPUs will do"


_ASSUMED_FIELDS = {
    Assumption.WORK: ("total_samples",),
    Assumption.DRAWN: ("profile",),
    Assumption.ANY_TYPE: ("gpu_types",),
    Assumption.LOGGED_TYPE: ("gpu_types",),
    Assumption.SHRUNK: ("cpus_per_gpu", "memory_mb_per_gpu"),
    Assumption.WIDENED: ("requirements",),
}
"""Fields of a job that are inferred where something is assumed of it."""


# GPU types ----------------------------------------------------------------------------------------

_Types = frozenset[str]


class LogTypes:
    """Tells types; remembers its answers, for a log has few names and many jobs."""

    def __init__(self, cluster: ClusterFile) -> None:
        """Tell types in the words of this cluster."""
        self._cluster = cluster
        self._types = cluster.cluster.gpu_types
        self._names: dict[str, str] = {}
        self._hosts: dict[str, str | None] = {}

    def held(self, run: LoggedAllocation, assumed: set[Assumption]) -> _Types:
        """Return the types of the GPUs that a run held, none where they cannot be told."""
        types: set[str] = set()
        for name, _ in run.gpus:
            if name is not None:
                types.add(self.known_as(name))
                continue
            on_nodes = {self._type_on(node) for node in run.nodes} or {None}
            if None not in on_nodes:
                types |= {gpu_type for gpu_type in on_nodes if gpu_type}
                assumed.add(Assumption.UNTYPED)
            elif len(self._types) == 1:
                types.add(self._types[0])
                assumed.add(Assumption.ONLY_TYPE)
            else:
                return _Types()
        return _Types(types)

    def known_as(self, name: str) -> str:
        """Return the cluster's name for a GPU type, or the given one where the cluster has none.

        Two names are of the same type where both are certain to be of the same published one.
        """
        if name not in self._names:
            own = name.lower()
            if own not in self._types:
                match = match_gpu(own)
                alike = (match_gpu(t) for t in self._types if not match.assumed)
                own = next((m.name for m in alike if not m.assumed and m.spec == match.spec), own)
            self._names[name] = own
        return self._names[name]

    def _type_on(self, node: str) -> str | None:
        if node not in self._hosts:
            self._hosts[node] = self._cluster.gpu_type_on(node)
        return self._hosts[node]


# Jobs ---------------------------------------------------------------------------------------------


def jobs_from_log(
    allocations: Iterable[LoggedAllocation],
    cluster: ClusterFile,
    speeds: Speeds,
    profiles: Sequence[ModelProfile],
    rules: Rules | None = None,
    seed: int = 0,
    elastic: bool = False,
    logged_types: bool = False,
) -> Workload:
    """Return the jobs of a log.

    The result depends on the allocations as a set, not on their order, and a job does not depend
    on the others.

    Args:
        allocations: Runs that held GPUs.
        cluster: Where the jobs will run; tells the types of untyped GPUs by their nodes.
        speeds: True speeds of the profiles, on the GPU types of the log as well.
        profiles: The models to draw from.
        rules: What the site knows of its jobs.
        seed: Of the drawn models.
        elastic: Whether rigid jobs are widened.
        logged_types: Whether each job keeps to the GPU types that it ran on.
    """
    types = LogTypes(cluster)
    conversion = _Conversion(
        cluster.cluster, types, speeds, profiles, rules or Rules(), seed, elastic, logged_types
    )
    return conversion.convert(link_runs(allocations))


@dataclass(frozen=True, slots=True)
class _RunSize:
    """What one run held: GPUs of these types, on so many nodes, for so long, suspensions apart."""

    gpus: int
    gpu_types: _Types
    nodes: int
    seconds: float


@dataclass(slots=True)
class _Conversion:
    """One log being converted, and what was assumed so far."""

    cluster: Cluster
    names: LogTypes
    speeds: Speeds
    profiles: Sequence[ModelProfile]
    rules: Rules
    seed: int
    elastic: bool
    logged_types: bool
    assumed: Counter[Assumption] = field(default_factory=Counter)
    # Answers that many jobs of a log share.
    usable: dict[tuple[str, _Types | None], _Types] = field(default_factory=dict)
    running: dict[tuple[_Types, _Types | None], list[ModelProfile]] = field(default_factory=dict)
    room: dict[tuple[_Types, int, int], tuple[float, float]] = field(default_factory=dict)
    followed: set[Rule] = field(default_factory=set)

    def convert(self, jobs: Iterable[JobRuns]) -> Workload:
        """Return the jobs, the assumptions about them, and what was rejected."""
        submissions: dict[str, Submission] = {}
        rejected = []
        for job in jobs:
            # Slurm hands an id out again after a crash of its controller.
            job_id = f"{job.job_id}#{job.reuse}" if job.reuse else job.job_id
            found = RejectReason.SAME_ID if job_id in submissions else self._submit(job_id, job)
            if isinstance(found, Submission):
                submissions[job_id] = found
            else:
                rejected.append(RejectedJob(job_id, found, job.runs[0].line))
        return Workload(
            tuple(sorted(submissions.values(), key=arrival_order)),
            assumptions=(
                *(
                    f"{self.assumed[assumption]} of {len(submissions)} jobs: {assumption}."
                    for assumption in Assumption
                    if self.assumed[assumption]
                ),
                *self._idle_rules(),
            ),
            rejected=tuple(rejected),
        )

    def _idle_rules(self) -> Iterator[str]:
        """Name the rules that no job followed: a pattern may be misspelt."""
        for number, rule in enumerate(self.rules.rules, 1):
            if rule not in self.followed:
                yield (
                    f"Rule {number} ({rule.patterns}) decides nothing: no job matches it, or "
                    "earlier rules match them all."
                )

    def _submit(self, job_id: str, job: JobRuns) -> Submission | RejectReason:
        """Return one job, or why it cannot be replayed."""
        assumed = _of_states(job)
        held = []
        for run, following in zip(job.runs, (*job.runs[1:], None), strict=True):
            seconds = _seconds(run, following)
            if seconds is None:
                return RejectReason.ELAPSED
            types = self.names.held(run, assumed)
            if not types:
                return RejectReason.TYPE
            if len(types) > 1:
                assumed.add(Assumption.SEVERAL_TYPES)
            held.append(_RunSize(run.gpu_count, types, _node_count(run), seconds))
        longest = max(range(len(held)), key=lambda at: held[at].seconds)
        main, run = held[longest], job.runs[longest]
        if not main.seconds:
            assumed.add(Assumption.NO_TIME)
            main = held[longest] = replace(main, seconds=LEAST_RUN_S)

        rule = self.rules.find(
            job_name=run.name, partition=run.partition, account=run.account, user=run.user
        )
        self.followed.add(rule)
        if self.logged_types:
            accepted: _Types | None = main.gpu_types
            assumed.add(Assumption.LOGGED_TYPE)
        else:
            accepted = self._accepted(run, rule, assumed)
        draw = f"{self.seed}/{_drawn_as(job.job_id)}/{job.reuse}"
        profile = rule.profile or self._draw(draw, held, accepted, assumed)
        if profile is None:
            return RejectReason.TOO_LARGE
        samples = sum(self._samples_per_s(profile, part) * part.seconds for part in held)
        if not samples:
            return RejectReason.RULE_TOO_LARGE
        usable = self._usable(profile, accepted)
        requirements = rule.requirements or self._requirements(main.gpus, usable, assumed)
        cpus, memory_mb = self._per_gpu(run, main, usable, assumed)

        self.assumed.update(assumed)
        first, last = job.runs[0], job.runs[-1]
        eligible_s = first.eligible_s
        return Submission(
            Job(
                job_id,
                first.submit_s,
                requirements,
                profile,
                total_samples=samples,
                time_limit_s=last.time_limit_s or None,
                eligible_s=eligible_s if (eligible_s or 0.0) > first.submit_s else None,
                gpu_types=None if accepted is None and self._is_any(usable) else usable,
                cpus_per_gpu=cpus,
                memory_mb_per_gpu=memory_mb,
                name=run.name,
                user=run.user,
                account=run.account,
                partition=run.partition,
                asked_count=main.gpus,
                qos=run.qos,
                assumed=frozenset(key for a in assumed for key in _ASSUMED_FIELDS.get(a, ())),
            ),
            samples,
            EndState.FAILED if Assumption.FAILED in assumed else EndState.COMPLETED,
            logged=tuple(map(_logged, job.runs, held)),
        )

    # GPU types

    def _accepted(
        self, run: LoggedAllocation, rule: Rule, assumed: set[Assumption]
    ) -> _Types | None:
        """Return the types that a job asked for, None for any."""
        if rule.gpu_types:
            return frozenset(map(self.names.known_as, rule.gpu_types))
        if not run.requested_gpus:
            assumed.add(Assumption.ANY_TYPE)
        return (
            frozenset(self.names.known_as(name) for name, _ in run.requested_gpus if name) or None
        )

    def _usable(self, profile: str, accepted: _Types | None) -> _Types:
        """Return those of the accepted types that the cluster has and the profile runs on."""
        key = profile, accepted
        if key not in self.usable:
            table = self.speeds.table(profile)
            self.usable[key] = frozenset(
                gpu_type
                for gpu_type in self.cluster.gpu_types
                if (accepted is None or gpu_type in accepted) and table.runs_on(gpu_type)
            )
        return self.usable[key]

    def _is_any(self, gpu_types: _Types) -> bool:
        return len(gpu_types) == len(self.cluster.gpu_types)

    # Model and work

    def _draw(
        self,
        draw: str,
        held: Sequence[_RunSize],
        accepted: _Types | None,
        assumed: set[Assumption],
    ) -> str | None:
        """Return a model that ran on these GPUs, by chance but always the same for one `draw`."""
        running = self._running(_Types().union(*(part.gpu_types for part in held)), accepted)
        size = SizeClass.of(sum(part.gpus * part.seconds for part in held) / SECONDS_PER_HOUR)
        candidates = [p for p in running if p.size is size]
        if not candidates:
            assumed.add(Assumption.OTHER_CLASS)
            candidates = running
        if not candidates:
            return None
        assumed.add(Assumption.DRAWN)
        number = int.from_bytes(blake2b(draw.encode(), digest_size=8).digest(), "big")
        return candidates[number % len(candidates)].name

    def _running(self, had: _Types, accepted: _Types | None) -> list[ModelProfile]:
        """Return the models that run on all the types that a job had."""
        key = had, accepted
        if key not in self.running:
            found = [
                p for p in self.profiles if all(self.speeds.table(p.name).runs_on(t) for t in had)
            ]
            # A job that moves to a cluster without these types should run there, too.
            self.running[key] = [p for p in found if self._usable(p.name, accepted)] or found
        return self.running[key]

    def _samples_per_s(self, profile: str, held: _RunSize) -> float:
        return held.gpus * min(
            self.speeds.per_gpu(profile, gpu_type, held.gpus, held.nodes)
            for gpu_type in held.gpu_types
        )

    # Shape

    def _requirements(self, gpus: int, usable: _Types, assumed: set[Assumption]) -> RequirementSet:
        """Return the logged count, or with `elastic` half and twice as many too."""
        if not self.elastic:
            return RequirementSet.rigid(gpus)
        by_type = self.cluster.gpus_by_type()
        most = max((by_type[gpu_type] for gpu_type in usable), default=0)
        counts = {gpus} | {n for n in (gpus // 2, gpus * 2) if 1 <= n <= most}
        if len(counts) > 1:
            assumed.add(Assumption.WIDENED)
        return RequirementSet(tuple(sorted(counts)))

    def _per_gpu(
        self, run: LoggedAllocation, held: _RunSize, usable: _Types, assumed: set[Assumption]
    ) -> tuple[float, float]:
        """Return CPUs and MiB per GPU, as many as let the logged shape fit on usable nodes."""
        per_gpu = []
        for total, most in zip(
            (run.cpus, run.memory_mb), self._room_per_gpu(held, usable), strict=True
        ):
            logged = (total or 0.0) / held.gpus
            if logged > most:
                assumed.add(Assumption.SHRUNK)
            per_gpu.append(min(logged, most))
        return per_gpu[0], per_gpu[1]

    def _room_per_gpu(self, held: _RunSize, usable: _Types) -> tuple[float, float]:
        """Return the most CPUs and MiB per GPU with which this shape finds enough nodes."""
        on_one = math.ceil(held.gpus / held.nodes)
        key = usable, on_one, held.nodes
        if key not in self.room:
            nodes = [n for n in self.cluster if n.gpu_type in usable and n.gpus >= on_one]
            room = []
            for sizes in ([node.cpus for node in nodes], [node.memory_mb for node in nodes]):
                # A size of 0 is not counted, so everything fits there.
                largest = sorted((size or math.inf for size in sizes), reverse=True)[: held.nodes]
                room.append(largest[-1] / on_one if largest else math.inf)
            self.room[key] = room[0], room[1]
        return self.room[key]


def _drawn_as(job_id: str) -> str | int:
    """Return the number of a Slurm job, which all tasks of an array share, or an id as it is."""
    try:
        return parse_job_id(job_id).job
    except FieldError:
        return job_id


def _of_states(job: JobRuns) -> set[Assumption]:
    """Return what is assumed because of how the job ran and ended."""
    assumed = {Assumption.WORK}
    last = job.runs[-1]
    if last.state in _FAILURES:
        assumed.add(Assumption.FAILED)
    elif last.state in _CUT_SHORT:
        assumed.add(Assumption.CUT_SHORT)
    elif last.end_s is None:
        assumed.add(Assumption.RUNNING)
    if len(job.runs) > 1:
        assumed.add(Assumption.SEVERAL_RUNS)
    if job.repeated:
        assumed.add(Assumption.REPEATED)
    if job.runs[0].restarts:
        assumed.add(Assumption.LOST_RUNS)
    return assumed


def _seconds(run: LoggedAllocation, following: LoggedAllocation | None) -> float | None:
    """Return how long a run held its GPUs; None where the log does not tell.

    A run without an end may be a runaway, which the log counts up to its own time: it held them at
    most until its time limit and until the job ran again.
    """
    if run.elapsed_s is None or run.end_s is not None:
        return run.elapsed_s
    limit = math.inf if run.time_limit_s is None else run.time_limit_s
    until = math.inf if following is None else following.start_s - run.start_s
    return max(0.0, min(run.elapsed_s, limit, until))


def _logged(run: LoggedAllocation, held: _RunSize) -> LoggedRun:
    """Return when the site ran it; what has no end ends where its work is taken to end."""
    end_s = run.start_s + held.seconds if run.end_s is None else run.end_s
    return LoggedRun(run.start_s, max(end_s, run.start_s), held.gpus)


def _node_count(run: LoggedAllocation) -> int:
    return run.n_nodes or len(run.nodes) or 1
