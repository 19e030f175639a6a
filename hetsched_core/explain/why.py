"""Why a job waits: every reason that holds, and what change to the job would help.

The policy's own word comes first; other reasons are found by looking at the cluster. What would
help is asked of the policy itself, which plans once more for the same cluster with the job changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from hetsched_core.errors import InputError
from hetsched_core.placement import FreeGpus, Way, ways_to_fit
from hetsched_core.placement.free import PerGpu, on_one_node
from hetsched_core.placement.pack import fits, why_no_nodes
from hetsched_core.policy import Policy, plan_by
from hetsched_core.types import (
    Configuration,
    Horizon,
    Job,
    JobView,
    Node,
    Phase,
    Placed,
    Plan,
    Reason,
    ReasonCode,
    RequirementSet,
    Reservation,
    Shape,
    Snapshot,
    Trigger,
    Waiting,
)

_COUNTS = (1, 2, 4, 8, 16)
"""GPU counts that a remedy may name beside those that the job accepts."""

_MORE_THAN_NO_ROOM = frozenset(
    {ReasonCode.AHEAD, ReasonCode.NO_CPUS, ReasonCode.NODES_DOWN, ReasonCode.CLOSED}
)
"""Reasons of the cluster's that say more than a policy's word that there is no room."""

_NO_END_S = 1e11
"""A time beyond it, in the year 5138, is none."""

_MOST_TRIES = 12
"""How often the policy is asked what a change would bring."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """With these GPU counts on these GPU types the policy would place the job in its next plan."""

    counts: tuple[int, ...]
    gpu_types: tuple[str, ...]

    def __str__(self) -> str:
        """Return for example `2 or 4 GPUs on a100 or v100 would start now`."""
        gpus = "GPU" if self.counts == (1,) else "GPUs"
        counts = " or ".join(map(str, self.counts))
        return f"{counts} {gpus} on {' or '.join(self.gpu_types)} would start now"


@dataclass(frozen=True, slots=True)
class Why:
    """What there is to say about a job.

    Attributes:
        job: its id.
        phase: where it stands.
        holds: what it holds or is about to hold; None while it waits.
        reasons: why it waits, the policy's own word first, before it only which window closes its
            nodes; () if it does not.
        reservation: GPUs that the plan promises it later; None if there are none.
        remedies: changes to the job that would let it start now.
        measured_until_s: when the run that measures its speed is given up, seconds UTC; None
            without such a run, or if the plan in force knows of none any more.
    """

    job: str
    phase: Phase
    holds: Configuration | None
    reasons: tuple[Reason, ...]
    reservation: Reservation | None
    remedies: tuple[Remedy, ...]
    measured_until_s: float | None = None


def code_of(snapshot: Snapshot, view: JobView, reason: Reason) -> ReasonCode:
    """Return in a word why a job waits of which a plan says this."""
    # Policies look at what is free, and not at why there is no more.
    full = reason.code is ReasonCode.NO_ROOM and view.blocked is None
    return (full and why_no_nodes(snapshot, view.job)) or reason.code


def active_job(snapshot: Snapshot, job_id: str) -> JobView:
    """Return a job that somebody asks about.

    Raises:
        InputError: no active job has this id.
    """
    view = snapshot.jobs.get(job_id)
    if view is None:
        raise InputError(f"no active job {job_id!r}; it has ended, or is not managed here")
    return view


def why(policy: Policy, snapshot: Snapshot, plan: Plan, job_id: str) -> Why:
    """Say why a job waits.

    Args:
        policy: the one that made the plan.
        snapshot: what is known now.
        plan: the plan in force.
        job_id: the job.

    Raises:
        InputError: no active job has this id.
    """
    view = active_job(snapshot, job_id)
    phase, entry = view.phase(snapshot.now), plan.entries.get(job_id)
    holds = view.holds
    if phase is Phase.PLACED:
        return Why(job_id, phase, holds, (Reason(ReasonCode.PLACED),), None, ())
    if phase is Phase.PROFILING:
        profile = next((p for p in plan.profiles if p.job == job_id), None)
        until_s = None if profile is None else profile.placement.until_s
        return Why(job_id, phase, holds, (), None, (), until_s)
    if not view.waiting and phase is not Phase.DRAINING:
        return Why(job_id, phase, holds, (), None, ())
    reasons = tuple(_distinct(_reasons(snapshot, plan, view)))
    reservation = next((r for r in plan.reservations if r.job == job_id), None)
    if isinstance(entry, Placed) and entry.placements:
        return Why(job_id, phase, entry.placements[0].configuration, reasons, None, ())
    remedies = () if view.blocked else tuple(_remedies(policy, snapshot, plan, view))
    return Why(job_id, phase, holds, reasons, reservation, remedies)


def _distinct(reasons: Iterator[Reason]) -> Iterator[Reason]:
    """Yield one reason of each code: what was said first, with details from wherever they are."""
    found: dict[ReasonCode, Reason] = {}
    for reason in reasons:
        before = found.setdefault(reason.code, reason)
        if not before.detail:
            found[reason.code] = replace(before, detail=reason.detail)
    yield from found.values()


def _reasons(snapshot: Snapshot, plan: Plan, view: JobView) -> Iterator[Reason]:
    entry = plan.entries.get(view.id)
    if view.phase(snapshot.now) is Phase.DRAINING:
        yield Reason(ReasonCode.RESTARTING)
    if isinstance(entry, Placed):
        yield from _before_start(snapshot, entry)
        return
    by_the_cluster = () if view.blocked else tuple(_by_the_cluster(snapshot, view.job))
    if isinstance(entry, Waiting) and _whatever_is_free(entry.reason):
        yield entry.reason
        yield from (reason for reason in by_the_cluster if reason.code is entry.reason.code)
        return
    # When its nodes open says more than that there is no room on them.
    yield from (reason for reason in by_the_cluster if reason.code is ReasonCode.CLOSED)
    # What is free now says more than that too little was left beside what is planned.
    better = not {reason.code for reason in by_the_cluster}.isdisjoint(_MORE_THAN_NO_ROOM)
    # What the plan says of a job that is blocked may be of another time.
    if isinstance(entry, Waiting) and not (
        (view.blocked is not None and entry.reason.code is view.blocked.code)
        or (better and entry.reason.code is ReasonCode.NO_ROOM)
    ):
        yield _measuring(snapshot, plan, view, entry.reason)
    if view.blocked is not None:
        # Whether there is room says nothing about a job that may not start.
        closed = view.blocked.code is ReasonCode.CLOSED and _closed(snapshot, view.job)
        yield replace(view.blocked, detail=closed) if closed else view.blocked
        return
    yield from by_the_cluster


def _whatever_is_free(reason: Reason) -> bool:
    """Whether a policy's word holds of a job however much room there is."""
    return reason.code is ReasonCode.QUOTA or reason.code.horizon is Horizon.NEVER


def _measuring(snapshot: Snapshot, plan: Plan, view: JobView, reason: Reason) -> Reason:
    """Return a reason with the runs that measure the job's speed, and until when at the latest."""
    others = [
        profile
        for profile in plan.profiles
        if profile.job != view.id
        and profile.job in snapshot.jobs
        and snapshot.jobs[profile.job].job.profile == view.job.profile
    ]
    if reason.code is not ReasonCode.PROFILING or reason.behind or not others:
        return reason
    ends_s = [p.placement.until_s for p in others if p.placement.until_s is not None]
    until = _when(max(ends_s)) if ends_s else ""
    return replace(
        reason,
        behind=tuple(dict.fromkeys(profile.job for profile in others)),
        detail=reason.detail or (until and f"until {until} at the latest"),
    )


def _before_start(snapshot: Snapshot, entry: Placed) -> Iterator[Reason]:
    """Yield what keeps a job that has its GPUs in the plan from holding them."""
    wanted = {name for placement in entry.placements for name, _ in placement.configuration}
    leaving = tuple(
        sorted(
            other.id
            for other in snapshot.jobs.values()
            for run in other.runs
            if run.draining_until_s is not None
            and any(name in wanted for name, _ in run.configuration)
        )
    )
    if leaving:
        yield Reason(ReasonCode.GRACE, leaving)


def _by_the_cluster(snapshot: Snapshot, job: Job) -> Iterator[Reason]:
    """Yield what the cluster alone says: too small, down, full, or room that is kept for others."""
    ways = ways_to_fit(job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
    if not ways:
        yield Reason(ReasonCode.NEVER_FITS, detail=_why_never(snapshot, job))
    elif (shut := why_no_nodes(snapshot, job)) is ReasonCode.NODES_DOWN:
        nodes = [
            view.node.name
            for view in snapshot.node_views()
            if not (view.open or view.left_out) and job.may_start_on(view.node.name)
        ]
        yield Reason(ReasonCode.NODES_DOWN, detail=_few(nodes))
    elif shut is ReasonCode.CLOSED:
        yield Reason(ReasonCode.CLOSED, detail=_closed(snapshot, job))
    elif fits(snapshot, (idle := _idle(snapshot)), job):
        yield Reason(ReasonCode.AHEAD, detail="there is room, and the policy keeps it for others")
    elif fits(snapshot, idle, replace(job, cpus_per_gpu=0.0, memory_mb_per_gpu=0.0)):
        yield Reason(ReasonCode.NO_CPUS, detail=f"it asks for {_beside(job)} beside each GPU")
    else:
        yield Reason(ReasonCode.NO_ROOM, detail=_most_free(snapshot, job))


def _beside(job: Job) -> str:
    return f"{job.cpus_per_gpu:.10g} CPUs and {job.memory_mb_per_gpu:.10g} MiB"


def _why_never(snapshot: Snapshot, job: Job) -> str:
    if job.gpu_types is not None and not job.gpu_types:
        return "no GPU type of this cluster is what it asks for, in type and memory"
    shapes = snapshot.shapes_for(job)

    def ways(job: Job, *more: Shape) -> tuple[Way, ...]:
        return ways_to_fit(job, snapshot.cluster, snapshot.speeds, shapes | {*more})

    accepts = f"it accepts {job.requirements} GPUs"
    if others := ways(replace(job, gpu_types=None)):
        types = dict.fromkeys(name for way in others for name in way.types)
        return f"it would on {' or '.join(types)}, which it does not accept"
    if job.nodes is not None and ways(job, Shape.EVEN, Shape.MIXED_TYPES):
        return f"{accepts}, all of one type; its nodes ({_own_nodes(snapshot, job)}) have several"
    if job.nodes is not None or job.min_nodes > 1 or job.max_nodes is not None:
        unlimited = replace(job, nodes=None, min_nodes=1, max_nodes=None)
        if ways(unlimited):
            return f"it would, were it not for {_limits(snapshot, job)}"
    has = {
        gpu_type: sum(node.gpus for node in snapshot.cluster if node.gpu_type == gpu_type)
        for gpu_type in snapshot.cluster.gpu_types
        if job.accepts_type(gpu_type)
    }
    have = " and ".join(f"{gpus} {gpu_type}" for gpu_type, gpus in has.items())
    least = job.requirements.smallest
    largest = max(node.gpus for node in snapshot.cluster if node.gpu_type in has)
    if least > sum(has.values()):
        return f"{accepts}; there are {have}"
    if least > max(has.values()) and Shape.MIXED_TYPES not in shapes:
        return f"{accepts}, all of one type; there are {have}"
    if ways(job, Shape.EVEN):
        return f"{accepts} on one node; a node has at most {largest}"
    if ways(job, Shape.EVEN, Shape.UNEVEN):
        return f"{accepts}, as many on each of its nodes; the nodes have at most {largest}"
    if ways(replace(job, cpus_per_gpu=0.0, memory_mb_per_gpu=0.0)):
        return f"{accepts} with {_beside(job)} beside each; no nodes have so much"
    return f"{accepts}, and has no speed on so many; a node has at most {largest}, there are {have}"


def _most_free(snapshot: Snapshot, job: Job) -> str:
    """Say how much is free of the types it accepts: in all, and together on one node."""
    idle = _idle(snapshot)
    if job.nodes is not None or job.closed:
        return _free_of_its_nodes(snapshot, idle, job)
    parts = []
    for gpu_type in snapshot.cluster.gpu_types:
        total = idle.idle(gpu_type)
        if job.accepts_type(gpu_type) and total:
            most = max(k for k in range(1, total + 1) if idle.nodes_with(gpu_type, k))
            parts.append(f"{total} {gpu_type}" + (f", {most} on one node" if most < total else ""))
    text = f"free: {'; '.join(parts) or 'none of its types'}"
    others = sum(
        view.foreign_gpus
        for view in snapshot.node_views()
        if job.accepts_type(view.node.gpu_type) and view.open
    )
    return f"{text}; jobs that are not managed here hold {others}" if others else text


def _free_of_its_nodes(snapshot: Snapshot, idle: FreeGpus, job: Job) -> str:
    """Say which nodes it may use, and how much of them is free."""
    mine = [node for node in snapshot.cluster if job.may_start_on(node.name)]
    free = {
        node.name: gpus
        for node in mine
        if job.accepts_type(node.gpu_type)
        and snapshot.nodes[node.name].open
        and (gpus := _free_on(idle, node))
    }
    some = _few([f"{gpus} on {name}" for name, gpus in free.items()])
    return (
        f"its nodes are {_few([n.name for n in mine])}, {f'free: {some}' if some else 'all busy'}"
    )


def _free_on(idle: FreeGpus, node: Node) -> int:
    counts = range(node.gpus, 0, -1)
    return next((k for k in counts if idle.fits(PerGpu(), on_one_node(node.name, k))), 0)


def _own_nodes(snapshot: Snapshot, job: Job) -> str:
    return _few([n.name for n in snapshot.cluster if n.name in (job.nodes or ())])


def _limits(snapshot: Snapshot, job: Job) -> str:
    """Say to which nodes, and how many, a job is limited."""
    said = []
    if job.nodes is not None:
        said.append(f"its nodes ({_own_nodes(snapshot, job)})")
    if job.min_nodes > 1 or job.max_nodes is not None:
        most = "any number" if job.max_nodes is None else str(job.max_nodes)
        said.append(f"how many it has to be on ({job.min_nodes} to {most})")
    return " and ".join(said)


def _closed(snapshot: Snapshot, job: Job) -> str:
    """Say which windows close nodes to a job, and which of its nodes are left out."""
    return "; ".join((*_windows(snapshot, job), *_left_out(snapshot, job)))


def _left_out(snapshot: Snapshot, job: Job) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for view in snapshot.node_views():
        mine = job.accepts_type(view.node.gpu_type) and job.may_start_on(view.node.name)
        if mine and view.left_out:
            found.setdefault(view.left_out, []).append(view.node.name)
    for words, names in found.items():
        yield f"{_few(names)} {'is' if len(names) == 1 else 'are'} left out: {words}"


def _windows(snapshot: Snapshot, job: Job) -> Iterator[str]:
    mine = job.closed if job.nodes is None else job.closed & job.nodes
    return (
        f"{window.name or 'window'} on {_few(sorted(window.nodes & mine))} "
        f"from {_when(window.from_s)}"
        + (f" until {_when(window.until_s)}" if window.until_s < _NO_END_S else "")
        for window in snapshot.windows
        if not window.nodes.isdisjoint(mine)
    )


def _when(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _few(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _idle(snapshot: Snapshot) -> FreeGpus:
    """Return what no job holds now."""
    idle = FreeGpus.of(snapshot)
    for view in snapshot.jobs.values():
        for run in view.runs:
            idle.take(view.job, run.configuration)
    return idle


# What would help ----------------------------------------------------------------------------------


def _remedies(policy: Policy, snapshot: Snapshot, plan: Plan, view: JobView) -> Iterator[Remedy]:
    """Yield changes with which the policy places the job, types with the same counts together."""
    idle, tries = _idle(snapshot), 0
    helpful: dict[str, list[int]] = {}
    for gpu_type in snapshot.cluster.gpu_types:
        for count in sorted({*_COUNTS, *view.job.requirements}):
            changed = replace(
                view.job,
                requirements=RequirementSet.rigid(count),
                gpu_types=frozenset({gpu_type}),
            )
            accepted = count in view.job.requirements and view.job.accepts_type(gpu_type)
            if accepted or tries == _MOST_TRIES or not fits(snapshot, idle, changed):
                continue
            tries += 1
            if _would_start(policy, snapshot, plan, replace(view, job=changed)):
                helpful.setdefault(gpu_type, []).append(count)
    by_counts: dict[tuple[int, ...], list[str]] = {}
    for gpu_type, found in helpful.items():
        by_counts.setdefault(tuple(found), []).append(gpu_type)
    for counts, gpu_types in by_counts.items():
        yield Remedy(counts, tuple(gpu_types))


def _would_start(policy: Policy, snapshot: Snapshot, plan: Plan, changed: JobView) -> bool:
    """Whether the policy places the job in the plan of a new round, on GPUs that no job holds."""
    placed = would_place(policy, snapshot, plan, changed)
    idle = _idle(snapshot)
    return bool(placed) and all(idle.fits(changed.job, each) for each in placed)


def would_place(
    policy: Policy, snapshot: Snapshot, plan: Plan, changed: JobView
) -> tuple[Configuration, ...]:
    """Return where the policy places a job in the plan of a new round; () if it lets it wait."""
    asked = replace(
        snapshot,
        triggers=frozenset({Trigger.ROUND, Trigger.ARRIVAL}),
        round=replace(snapshot.round, index=snapshot.round.index + 1),
        jobs=snapshot.jobs.set(changed.id, changed),
        previous=plan,
        changed=snapshot.changed | {changed.id},
    )
    entry = plan_by(policy, asked).entries.get(changed.id)
    placements = entry.placements if isinstance(entry, Placed) else ()
    return tuple(each.configuration for each in placements)
