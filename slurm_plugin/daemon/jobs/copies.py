"""A job of copies: elements of a Slurm array that start and end each by itself, one on a node.

A policy that forks jobs is shown one job, with a run for each element that holds GPUs. What it
plans on a node is an element's: of the one that runs there, or else of the first that waits, so
that element 0 runs whenever it can. One element that ends well ends the job: what still waits of it
is cancelled.

Under a policy that gives a job one placement the first element that can go on is all of the job,
and what else runs is stopped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from hetsched_core.errors import InputError
from hetsched_core.policy import Action, Policy, RunKey, Start, Stop, StopCause
from hetsched_core.types import (
    Cluster,
    ExecutionModel,
    Placement,
    Purpose,
    Reason,
    ReasonCode,
    Run,
)
from slurm_plugin.backend import Cancel, JobState, SlurmJob
from slurm_plugin.daemon.jobs.kept_back import LIMITS
from slurm_plugin.daemon.jobs.managed import ManagedJob
from slurm_plugin.daemon.jobs.request import mark_in

_STANDING = (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING, JobState.PENDING)
"""A job is what the first of these says that any of its elements is."""

_FOR_ALL = (ReasonCode.REFUSED, ReasonCode.NOT_STARTED, *LIMITS)
"""What is not tried with the next element, either."""


@dataclass(frozen=True, slots=True)
class Elements:
    """How elements of arrays follow placements, under the policies of one execution model.

    Attributes:
        runs_per_job: how many runs of a job there may be at a time, as in a snapshot.
        named: gives a run the copy number under which policies place it there.
    """

    runs_per_job: int | None
    named: Callable[[Run, Cluster], Run]


def _by_node(run: Run, cluster: Cluster) -> Run:
    """Name a copy after its node, or its first: whoever looks at Slurm comes to the same."""
    return replace(run, copy=cluster.index(run.configuration.pieces[0][0]))


def _only(run: Run, _: Cluster) -> Run:
    """Name a gang as the only copy of its job; what is measured keeps the name that it has."""
    return replace(run, copy=0) if run.copy and run.purpose is Purpose.RUN else run


ELEMENTS: Mapping[ExecutionModel, Elements] = {
    ExecutionModel.GANG: Elements(1, _only),
    ExecutionModel.COPIES: Elements(None, _by_node),
}
"""The execution models that run live. Those without copies have one element of a job run."""


def check_fit(policy: Policy) -> None:
    """Refuse a policy that cannot schedule a live cluster.

    Raises:
        InputError: says why, and what to choose.
    """
    info = policy.info
    if not info.live:
        raise InputError(f"policy {info.name!r} is for replays only: {info.replay_only}")
    if info.model not in ELEMENTS:
        raise InputError(
            f"policy {info.name!r} places {info.model.value}, and only gangs and copies run live; "
            "choose another, see: hetsched policies"
        )


def jobs_of_copies(
    jobs: Mapping[str, SlurmJob],
) -> tuple[dict[str, SlurmJob], dict[str, SlurmJob]]:
    """Make one job of the elements of each job of copies, under the id of its array.

    Returns:
        those jobs; and all other records.
    """
    others: dict[str, SlurmJob] = {}
    elements: dict[tuple[str, str], list[SlurmJob]] = defaultdict(list)
    for job_id, job in jobs.items():
        if job.array and mark_in(job.mark).copies:
            elements[job.array, job.mark].append(job)
        else:
            others[job_id] = job
    of_copies = {array: _job_of(array, all_of) for (array, _), all_of in elements.items()}
    return of_copies, others


def _job_of(array: str, all_of: Iterable[SlurmJob]) -> SlurmJob:
    elements = [
        replace(each, id=f"{array}_{each.element}", array="")
        for each in sorted(all_of, key=lambda job: job.element)
    ]
    going_on = in_turn(elements)
    states = {each.state for each in going_on}
    state = next((state for state in _STANDING if state in states), JobState.ENDED)
    # It has ended when none can go on: with the last of them.
    ends_s = [each.end_s for each in elements if each.end_s is not None]
    return replace(
        elements[0],
        id=array,
        state=state,
        over=all(each.over for each in going_on) and state is JobState.COMPLETING,
        end_s=max(ends_s, default=None) if state is JobState.ENDED else None,
        copies=tuple(elements),
    )


def has_its_end(job: SlurmJob) -> bool:
    """Whether a copy of a job has ended well: what still runs of it comes to its own end."""
    return any(each.outcome == "COMPLETED" for each in job.copies)


def in_turn(elements: Iterable[SlurmJob]) -> list[SlurmJob]:
    """Return the elements that can go on, first what runs first.

    Where element 0 has ended, what has run can take the job on, and what never ran cannot. Where
    one has ended well, only what still runs goes on.
    """
    elements = tuple(elements)
    left = [each for each in elements if each.state is not JobState.ENDED]
    if any(each.outcome == "COMPLETED" for each in elements):
        return [each for each in left if each.state is not JobState.PENDING]
    leads = any(not each.element for each in left)
    return [each for each in left if leads or each.restarts or each.state is not JobState.PENDING]


def left_of(of_copies: Iterable[SlurmJob]) -> Iterator[Cancel]:
    """Yield the end of elements that wait, of jobs that are over; what runs ends by itself."""
    for job in of_copies:
        if has_its_end(job) or job.state is JobState.ENDED:
            for each in job.copies:
                if each.state is JobState.PENDING:
                    yield Cancel(each.id)


def blocked(known: ManagedJob) -> Reason | None:
    """Return why no copy of a job may start, while none runs; spares have no say."""
    first = next(iter(known.copies.values()), None)
    if known.runs or first is None:
        return None
    return known.refused or first.blocked or _kept_back(known)


def startable(known: ManagedJob) -> int:
    """Return how many copies a job could have now: those that run, and those that may start."""
    copies = known.copies.values()
    free = sum(map(_may_start, copies)) if copies and not _kept_back(known) else 0
    return free + len(known.runs)


def _kept_back(known: ManagedJob) -> Reason | None:
    """Return what keeps one element back and would keep all others back, one after another."""
    bans = (unit.kept_back.everywhere for unit in known.copies.values())
    return next((ban.why for ban in bans if ban is not None and ban.why.code in _FOR_ALL), None)


def _may_start(unit: ManagedJob) -> bool:
    """Whether an element waits, and nothing of its own keeps it back."""
    return (
        unit.slurm.state is JobState.PENDING
        and unit.run is None
        and unit.blocked is None
        and not unit.overdue
    )


class Aim(NamedTuple):
    """An action, and the job or the element that it is about."""

    unit: ManagedJob
    action: Action


def aims(
    managed: Mapping[str, ManagedJob], actions: Iterable[Action], since_s: float
) -> Iterator[Aim]:
    """Yield the job, or the element, that each action is about; one without any is left out.

    What runs beyond what the policy may give a job is stopped, whatever is planned, but of one that
    has its end.

    Args:
        managed: all jobs.
        actions: what differs between the plan and what runs.
        since_s: the start of the present round, seconds UTC. Where an element has ended since, no
            other is begun: it may fail there, too, or its user does not want it.
    """
    taken: set[str] = set()
    for action in actions:
        known = managed.get(action.key.job)
        if known is None:
            continue
        unit: ManagedJob | None = known
        if known.copies:
            match action:
                case Stop(key):
                    unit = _running(known, key.copy, taken)
                case Start(_, placement, True):
                    unit = _free(known, placement, taken, since_s)
                case _:
                    unit = None
        if unit is not None:
            taken.add(unit.slurm.id)
            yield Aim(unit, action)
    for known in managed.values():
        if has_its_end(known.slurm):
            continue
        for number, unit in enumerate(known.surplus.values(), 1):
            if unit.slurm.state is JobState.RUNNING:
                key = RunKey(known.slurm.id, Purpose.RUN, number)
                yield Aim(unit, Stop(key, StopCause.PREEMPT))


def _running(known: ManagedJob, copy: int, taken: set[str]) -> ManagedJob | None:
    """Return the element that runs as a copy. Slurm may have begun two of them on one node."""
    return next(
        (
            unit
            for unit in known.copies.values()
            if unit.run is not None
            and unit.run.copy == copy
            and unit.run.draining_until_s is None
            and unit.slurm.id not in taken
        ),
        None,
    )


def _free(
    known: ManagedJob, placement: Placement, taken: set[str], since_s: float
) -> ManagedJob | None:
    """Return the element that is to run there; None for none, for now."""
    if blocked(known) is not None or _kept_back(known) is not None:
        # The plan may be older than what keeps the job back now.
        return None
    nodes = {name for name, _ in placement.configuration}
    for each in known.slurm.copies:
        late = each.end_s is None or each.end_s >= since_s
        if each.state is JobState.ENDED and late and not nodes.isdisjoint(each.nodes):
            return None
    return next(
        (unit for unit in known.copies.values() if _may_start(unit) and unit.slurm.id not in taken),
        None,
    )
