"""The answers: pure functions from what the daemon has published to JSON values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

from hetsched_core.errors import InputError, unknown
from hetsched_core.explain.plan import explain
from hetsched_core.explain.why import Why, code_of, why
from hetsched_core.policy import Policy
from hetsched_core.types import JobView, Phase, Placed, Plan, Reason, ReasonCode, Snapshot, Waiting
from slurm_plugin.api.records import record_of
from slurm_plugin.backend import JobState, SlurmJob
from slurm_plugin.daemon.jobs.candidates import MOST
from slurm_plugin.daemon.nodes.gpu_use import GpuUse, gpu_uses
from slurm_plugin.daemon.settings import DaemonMode

SCHEMA = 1

QUESTIONS = ("status", "queue", "nodes", "why", "when", "history", "explain", "page", "db")

_FEW = 3
"""So many of an array's elements are named to those behind them."""

_LETTERS = {
    Phase.RUNNING: "R",
    Phase.STARTING: "R",
    Phase.PROFILING: "R",
    Phase.DRAINING: "CG",
    Phase.PLACED: "PL",
    Phase.WAITING: "PD",
}
"""squeue's letters, and PL for what is placed, which squeue shows as PD; in this order they are
counted. What is placed on nodes that are being woken is `CF`, as in squeue."""

_SUSPENDED = "S"
_CONFIGURING = "CF"

_WAKING = Reason(ReasonCode.PLACED, detail="its nodes are being woken or booted")

PLANNED = "planned"
"""What a job waits for that the plan gives GPUs, which it has not entered yet."""

NEW = "new"
"""What a job waits for that has come since the last plan."""


@dataclass(frozen=True, slots=True)
class CycleView:
    """What was true after a cycle. Times are seconds UTC.

    `plan_s` is when the plan in force was made, None before the first; `away` is what was said if
    Slurm does not answer, and then the rest is as old as `at_s`. With `private_jobs` users see
    only their own jobs. `later` are jobs that their users let start later: the snapshot has none.
    `aside` are waiting jobs that are in no plan, each with why; `records` are all of Slurm's.
    `suspended` are the ids of jobs that run, and are suspended in Slurm.
    """

    at_s: float
    up_since_s: float
    policy: Policy
    mode: str
    snapshot: Snapshot
    plan: Plan
    plan_s: float | None = None
    decisions: int = 0
    away: str = ""
    private_jobs: bool = False
    later: Mapping[str, JobView] = field(default_factory=dict)
    aside: Mapping[str, str] = field(default_factory=dict)
    records: Mapping[str, SlurmJob] = field(default_factory=dict)
    suspended: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Peer:
    """Who asks: a user's name, and whether it may see everything."""

    user: str
    admin: bool = False


def answer(published: CycleView, request: Mapping[str, object], peer: Peer) -> dict[str, Any]:
    """Answer a request such as {"ask": "why", "job": "12"}.

    Raises:
        InputError: there is no such question, or it names a job that is not there.
    """
    asked = request.get("ask")
    match asked:
        case "status":
            found = _status(published)
        case "queue":
            found = _queue(published, peer)
        case "nodes":
            found = _nodes(published)
        case "why":
            found = _why(published, job_asked(published, request, peer), peer)
        case "explain":
            found = _explain(published, job_asked(published, request, peer), peer)
        case _:
            raise unknown("question", str(asked), QUESTIONS)
    return {"schema": SCHEMA, "at_s": published.at_s, "away": published.away, **found}


def job_asked(published: CycleView, request: Mapping[str, object], peer: Peer) -> str:
    """Return the job that a question is about, under the id that it has in plans.

    An element of a gang stands for its job. Of an array the first element that waits is meant, or
    the first of all; of one that the peer may not see the array itself, which tells nothing of it.
    """
    asked = str(request.get("job", ""))
    jobs, others = published.snapshot.jobs, (published.later, published.aside)
    job, _, element = asked.partition("_")
    for name in (asked, job):
        if name in jobs or any(name in each for each in others):
            return name
    if element:
        return asked
    elements = [name for name in _elements(jobs, job) if _sees(published, peer, jobs[name])]
    return next((name for name in elements if jobs[name].waiting), (*elements, asked)[0])


def _elements(jobs: Iterable[str], array: str) -> list[str]:
    """Return the elements of an array, by number."""
    found = (name for name in jobs if name.startswith(f"{array}_"))
    return sorted(found, key=lambda name: int(name.partition("_")[2]))


def may_see(published: CycleView, peer: Peer, user: str) -> bool:
    """Whether the peer may be told of a user's jobs."""
    return not published.private_jobs or peer.admin or user == peer.user


def view_of(published: CycleView, job: str, peer: Peer) -> JobView:
    """Return an active job, or one that is to start later, that the peer may see.

    Raises:
        InputError: there is none of this id.
    """
    view = published.snapshot.jobs.get(job) or published.later.get(job)
    if view is not None and _sees(published, peer, view):
        return view
    if reason := outside(published, job, peer):
        raise InputError(f"job {job!r} is in no plan: {reason}")
    raise InputError(f"no active job {job!r}; it has ended, or is not managed here")


def outside(published: CycleView, job: str, peer: Peer) -> Reason | None:
    """Return why a job waits that is in no plan; None where there is none that the peer may see."""
    if job in published.snapshot.jobs or job in published.later:
        return None
    record = record_of(published.records, job)
    if record is None or record.state is not JobState.PENDING:
        return None
    if not may_see(published, peer, record.user):
        return None
    if words := published.aside.get(job):
        return Reason(ReasonCode.NOT_PLANNED, detail=words)
    if record.reservation and not record.in_hold:
        words = f"it is for the reservation {record.reservation}, in which Slurm places it"
        return Reason(ReasonCode.NOT_PLANNED, detail=words)
    first = tuple(_elements(chain(published.snapshot.jobs, published.aside), record.array)[:_FEW])
    if record.array and (first or record.throttle):
        most = f"{record.throttle} run" if record.throttle else f"{MOST} wait for a place"
        return Reason(
            ReasonCode.AHEAD, first, f"the elements of its array, of which at most {most} at a time"
        )
    return Reason(ReasonCode.NOT_PLANNED, detail="it may run on no managed node; Slurm places it")


def _sees(published: CycleView, peer: Peer, view: JobView) -> bool:
    return may_see(published, peer, view.job.user)


def _status(published: CycleView) -> dict[str, Any]:
    snapshot = published.snapshot
    phases = Counter(view.phase(snapshot.now) for view in snapshot.jobs.values())
    jobs = {phase.value: phases[phase] for phase in _LETTERS if phase in phases}
    if published.later:
        jobs["later"] = len(published.later)
    gpus: dict[str, GpuUse] = {}
    for view, _, use in gpu_uses(snapshot):
        gpu_type = view.node.gpu_type
        gpus[gpu_type] = gpus.get(gpu_type, GpuUse()) + use
    return {
        "policy": published.policy.info.name,
        "mode": published.mode,
        "up_since_s": published.up_since_s,
        "plan_s": published.plan_s,
        "decisions": published.decisions,
        "jobs": jobs,
        "gpus": {gpu_type: _told(use) for gpu_type, use in gpus.items()},
    }


def _told(use: GpuUse) -> dict[str, int]:
    return {"all": use.all, **asdict(use)}


def _queue(published: CycleView, peer: Peer) -> dict[str, Any]:
    snapshot = published.snapshot
    return {
        "jobs": [
            _row(published, view)
            for view in (*snapshot.by_submission(), *published.later.values())
            if _sees(published, peer, view)
        ]
    }


def _row(published: CycleView, view: JobView) -> dict[str, Any]:
    now, job = published.snapshot.now, view.job
    phase = view.phase(now)
    # What a run holds that is measured or stopped is held, too.
    holds = view.holds
    return {
        "job": view.id,
        "partition": job.partition,
        "name": job.name,
        "user": job.user,
        "state": _letter(published, view.id, phase),
        "phase": phase.value,
        "submit_s": job.submit_s,
        "waited_s": view.wait_at(now),
        "ran_s": max((now - run.since_s for run in view.runs if run.begun), default=0.0),
        "restarts": view.restarts,
        "gpus": str(job.requirements),
        "nodes": None if holds is None else dict(holds),
        "reason": None
        if view.begun
        else word_of(published.snapshot, published.plan, view, published.mode),
    }


def _letter(published: CycleView, job: str, phase: Phase) -> str:
    if job in published.suspended:
        return _SUSPENDED
    waking = phase is Phase.PLACED and _is_configuring(published, job)
    return _CONFIGURING if waking else _LETTERS[phase]


def _is_configuring(published: CycleView, job: str) -> bool:
    record = record_of(published.records, job)
    return record is not None and record.configuring


def word_of(
    snapshot: Snapshot, plan: Plan, view: JobView, mode: str = DaemonMode.ENFORCE.value
) -> str | None:
    """Return in a word why a job does not run; None before a plan has said anything of it."""
    if view.runs:
        return ReasonCode.PLACED.word
    match plan.entries.get(view.id):
        case Waiting(reason):
            return code_of(snapshot, view, reason).word
        case Placed():
            return "shadow" if mode == DaemonMode.SHADOW else PLANNED
    return view.blocked.code.word if view.blocked is not None else None


def _nodes(published: CycleView) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "node": view.node.name,
                "gpu_type": view.node.gpu_type,
                "condition": condition,
                "why": view.left_out,
                **_told(use),
            }
            for view, condition, use in gpu_uses(published.snapshot)
        ]
    }


def _why(published: CycleView, job: str, peer: Peer) -> dict[str, Any]:
    reason = outside(published, job, peer)
    view = None if reason else view_of(published, job, peer)
    if view is not None and job in published.later:
        reason = view.blocked
    if reason is not None:
        found = Why(job, Phase.WAITING, None, (reason,), None, ())
    else:
        found = why(published.policy, published.snapshot, published.plan, job)
    if job in published.suspended:
        found = replace(found, reasons=(Reason(ReasonCode.SUSPENDED), *found.reasons))
    if found.phase is Phase.PLACED and _is_configuring(published, job):
        found = replace(found, reasons=(_WAKING,))
    kept = found.reservation
    return {
        "job": job,
        "mode": published.mode,
        "state": _letter(published, job, found.phase),
        "holds": None if found.holds is None else dict(found.holds),
        "measured": found.phase is Phase.PROFILING,
        "measured_until_s": found.measured_until_s,
        "reasons": [_reason(seen_by(published, peer, reason)) for reason in found.reasons],
        "reserved": None
        if kept is None
        else {"nodes": dict(kept.configuration), "start_s": kept.start_s},
        "would_help": [str(remedy) for remedy in found.remedies],
        "slurm": _words_of_slurm(published, job, found.phase),
    }


def _words_of_slurm(published: CycleView, job: str, phase: Phase) -> str:
    """Return Slurm's own word for why a job waits; "" for one that does not.

    Of a job that runs as copies others of its elements may wait.
    """
    if phase not in (Phase.WAITING, Phase.PLACED):
        return ""
    record = record_of(published.records, job)
    return "" if record is None or record.state is not JobState.PENDING else record.reason


def _explain(published: CycleView, job: str, peer: Peer) -> dict[str, Any]:
    if view_of(published, job, peer).id in published.later:
        raise InputError(f"job {job!r} is in no plan: {published.later[job].blocked}")
    plan, entry = published.plan, published.plan.entries.get(job)
    if isinstance(entry, Waiting):
        seen = Waiting(seen_by(published, peer, entry.reason))
        plan = replace(plan, entries=plan.entries.set(job, seen))
    found = explain(published.policy, published.snapshot, plan, job)
    return {
        "job": job,
        "policy": published.policy.info.name,
        "plan_s": published.plan_s,
        "decision": published.decisions,
        "submitted_before": found.place,
        "waiting": found.waiting,
        "waited_s": found.waited_s,
        "latency_ratio": found.latency_ratio,
        "service_gpu_s": found.service_gpu_s,
        "chosen": None if found.chosen is None else dict(found.chosen),
        "decided_by": found.decided_by,
        "method": found.method,
        "objective": found.objective,
        "gap": found.gap,
        "prices": dict(found.prices),
        "options": [asdict(option) for option in found.options],
    }


def seen_by(published: CycleView, peer: Peer, reason: Reason) -> Reason:
    """Leave out the jobs that the peer may not see."""
    jobs = published.snapshot.jobs
    seen = tuple(j for j in reason.behind if j not in jobs or _sees(published, peer, jobs[j]))
    return replace(reason, behind=seen)


def _reason(reason: Reason) -> dict[str, Any]:
    return {
        "code": reason.code.word,
        "horizon": reason.code.horizon.value,
        "sentence": str(reason),
        "behind": list(reason.behind),
    }
