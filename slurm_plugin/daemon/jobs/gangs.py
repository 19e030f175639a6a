"""A gang: one job of several elements of a Slurm array, each with one count of GPUs on its nodes.

So one job has 2 GPUs here and 4 there. Element 0 leads: what holds of it (its state, limit,
restarts) holds of the job. The others are its members. Those that a placement needs are placed just
before the leader, and the first line of the script waits until all of them run. Spare ones wait
where all jobs wait; once the leader has ended they are cancelled, and end at once where Slurm has
begun them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum

from slurm_plugin.backend import (
    Cancel,
    Change,
    Depend,
    Enter,
    JobState,
    Leave,
    Requeue,
    RequeueEnded,
    SlurmJob,
    Together,
)
from slurm_plugin.daemon.jobs.request import mark_in

_ACTIVE = frozenset({JobState.RUNNING, JobState.COMPLETING, JobState.SUSPENDED})

_TOGETHER_S = 1.0
"""How much earlier than its leader a member's start may read, since whole seconds are told."""

Pieces = Iterator[tuple[str, int]]
"""(node, GPUs) pairs."""


class MemberState(Enum):
    """What a member is to the present run of its leader.

    SPARE: it waits, and holds nothing. DUE: placed, it starts with the leader. BEGUN: it has
    started, and has not ended. ENDED: it has taken part in the run and ended. PAST: it has ended
    before.
    """

    SPARE = "spare"
    DUE = "due"
    BEGUN = "begun"
    ENDED = "ended"
    PAST = "past"


def member_state(leader: SlurmJob, member: SlurmJob) -> MemberState:
    """Return what a member is to the present run of its leader, or of the gang that it leads."""
    if member.state in _ACTIVE:
        return MemberState.BEGUN
    if member.state is JobState.ENDED:
        if member.start_s is None or leader.start_s is None:
            return MemberState.PAST
        return (
            MemberState.ENDED
            if member.start_s >= leader.start_s - _TOGETHER_S
            else MemberState.PAST
        )
    return MemberState.DUE if member.entered else MemberState.SPARE


def jobs_of_gangs(jobs: Mapping[str, SlurmJob]) -> tuple[dict[str, SlurmJob], tuple[SlurmJob, ...]]:
    """Make one job of each gang, under the id of its array; all others stay as they are.

    Returns:
        the jobs; and the members that have not ended and whose leader has, or is gone.
    """
    found: dict[str, SlurmJob] = {}
    elements: dict[tuple[str, str], list[SlurmJob]] = defaultdict(list)
    for job_id, job in jobs.items():
        if job.array and mark_in(job.mark).elements > 1:
            elements[job.array, job.mark].append(job)
        else:
            # An element of an array that is no gang is a job like any other.
            found[job_id] = replace(job, array="") if job.array else job
    left: list[SlurmJob] = []
    for (array, _), all_of in elements.items():
        all_of.sort(key=lambda job: job.element)
        leader = None if all_of[0].element else all_of[0]
        members = all_of if leader is None else all_of[1:]
        if leader is None or leader.state is JobState.ENDED:
            left += (member for member in members if member.state is not JobState.ENDED)
        if leader is not None:
            found[array] = replace(
                leader, id=array, state=_state(leader, members), members=tuple(members)
            )
    return found, tuple(left)


def _state(leader: SlurmJob, members: Iterable[SlurmJob]) -> JobState:
    """Return where a gang stands: it has not stopped before its last element has."""
    stopping = any(member.state in _ACTIVE for member in members)
    if leader.state is JobState.PENDING and stopping:
        return JobState.COMPLETING
    return leader.state


def element_id(seen: SlurmJob, element: int = 0) -> str:
    """Return under which id Slurm changes an element of a job; of one without, the job's."""
    return f"{seen.array}_{element}" if seen.array else seen.id


def job_of(changed: str) -> str:
    """Return the job to which an id belongs under which Slurm changes it or elements of it."""
    return changed.partition("_")[0]


def of_leader(changed: str) -> bool:
    """Whether such an id is that of a job, or of its leader, if beside others."""
    element = changed.partition("_")[2]
    return element in ("", "0") or element.startswith(("[0,", "[0-"))


def pieces_held(seen: SlurmJob) -> Pieces:
    """Yield what a job holds that has begun and not ended.

    Beside a leader that runs, members that are about to start count, and those that have ended
    before it, until it ends too.
    """
    yield from own_pieces(seen)
    running = seen.state in (JobState.RUNNING, JobState.SUSPENDED)
    for member in seen.members:
        stands = member_state(seen, member)
        if stands is MemberState.BEGUN or (running and stands is MemberState.ENDED):
            yield from own_pieces(member)
        elif running and stands is MemberState.DUE:
            yield from _spread(member.pinned, member.gpus)


def own_pieces(seen: SlurmJob) -> Pieces:
    """Yield what a job holds without its members."""
    if seen.gpus_on:
        return (each for each in seen.gpus_on if each[1])
    return _spread(seen.nodes, seen.gpus)


def _spread(nodes: Collection[str], gpus: int) -> Pieces:
    """Yield so many GPUs over nodes, evenly as far as that goes."""
    for at, name in enumerate(nodes):
        yield name, gpus // len(nodes) + (at < gpus % len(nodes))


def nodes_entered(seen: SlurmJob) -> frozenset[str]:
    """Return the nodes on which a waiting job, or its elements together, are to start."""
    if not seen.entered:
        return frozenset()
    due = (each for each in seen.members if member_state(seen, each) is MemberState.DUE)
    return frozenset(name for element in (seen, *due) for name in element.pinned)


def is_finishing(seen: SlurmJob) -> bool:
    """Whether a part of a job's present run has ended well, and the rest is about to."""
    return seen.state is JobState.RUNNING and any(
        member_state(seen, member) is MemberState.ENDED for member in seen.members
    )


def complete(seen: SlurmJob) -> bool:
    """Whether all that take part in the present run of a job have started."""
    return not any(member_state(seen, member) is MemberState.DUE for member in seen.members)


def lacks_members(seen: SlurmJob) -> bool:
    """Whether a job waits and has members that have ended and are to be queued again."""
    return seen.state is JobState.PENDING and any(map(_returns, seen.members))


def _returns(member: SlurmJob) -> bool:
    """Whether a member has ended and comes back with its leader; not one that was cancelled."""
    return member.state is JobState.ENDED and member.outcome != "CANCELLED"


def spares(seen: SlurmJob) -> int:
    """Return how many members a job still has that could be placed, now or later."""
    return sum(member.state is not JobState.ENDED for member in seen.members)


def together(seen: SlurmJob, entries: Iterable[Enter]) -> Enter | Together | None:
    """Return how a job is placed; None if it has too few elements left.

    Args:
        seen: the job, which waits.
        entries: how its elements are placed, under the job's id, the leader first.
    """
    first, *others = entries
    leader = element_id(seen)
    if not seen.array:
        return None if others else first
    free = [
        member for member in seen.members if member.state is JobState.PENDING and not member.held
    ]
    if len(free) < len(others):
        return None
    placed = []
    for member, entry in zip(free, others, strict=False):
        name = element_id(seen, member.element)
        otherwise = replace(entry.otherwise, job=name)
        placed.append(replace(entry, job=name, otherwise=otherwise, dependency=f"after:{leader}"))
    first = replace(first, job=leader)
    return Together(leader, (*placed, first)) if placed else first


def stopped_as(seen: SlurmJob) -> str:
    """Return the id under which all running elements of a job are signalled or stopped, at once."""
    if not seen.array:
        return seen.id
    running = [
        str(element.element)
        for element in (seen, *seen.members)
        if element.state is JobState.RUNNING
    ]
    which = f"[{','.join(running)}]" if len(running) > 1 else running[0]
    return f"{seen.array}_{which}"


def member_changes(
    seen: SlurmJob, placed: Enter | Together | None, starting: bool
) -> Iterator[Change]:
    """Yield what brings the members of a gang into line with its leader.

    Args:
        seen: the gang, which has not ended.
        placed: how it is placed in this cycle.
        starting: whether it holds its place and is not being stopped: what was placed may start.
    """
    taking_part = (
        {entry.job for entry in placed.steps} if isinstance(placed, Together) else frozenset()
    )
    runs = seen.state is JobState.RUNNING
    # Its leader has not begun, though its state says that others end: there is no half a gang.
    half = seen.state is JobState.COMPLETING and seen.start_s is None
    for member in seen.members:
        name = element_id(seen, member.element)
        if name in taking_part:
            continue
        match member_state(seen, member):
            case MemberState.DUE if runs and starting:
                # Slurm would look at it again by itself, at its next round: what waits behind
                # another job in a round is not looked at then, though it depends on nothing more.
                if not member.held and member.reason != "BeginTime":
                    yield Depend(name, "")
            case MemberState.DUE if not runs and not starting:
                yield Leave(name)
            case MemberState.BEGUN if half and member.state is JobState.RUNNING:
                yield Requeue(name)
            case MemberState.ENDED | MemberState.PAST if (
                seen.state is JobState.PENDING and _returns(member)
            ):
                # As its leader was stopped or lost, which goes on and needs it.
                yield RequeueEnded(name)
            case _:
                pass


def gang_end(seen: SlurmJob, now: float, patience_s: float) -> Iterator[Change]:
    """Yield the end of a gang that has lost a member: cancelled, or failed a while ago.

    One that has failed since its leader was stopped, or lost, is no loss.
    """
    for member in seen.members:
        lost = seen.state is JobState.RUNNING and member_state(seen, member) is MemberState.ENDED
        failed = lost and member.outcome != "COMPLETED"
        if member.outcome == "CANCELLED" or (failed and (member.end_s or 0.0) + patience_s < now):
            yield Cancel(seen.array)
            return


def leftover(
    left: Iterable[SlurmJob], jobs: Mapping[str, SlurmJob], now: float, patience_s: float
) -> Iterator[Cancel]:
    """Yield the end of members whose leader has ended.

    One that ended well lets them finish, and Slurm cancels spares by itself, in a while.
    """
    for member in left:
        leader = jobs.get(member.array)
        over_s = 0.0
        if leader is not None:
            waits = member.state is JobState.PENDING
            well = leader.outcome == "COMPLETED"
            left_alone = member_state(leader, member) is MemberState.SPARE if waits else well
            over_s = (leader.end_s or 0.0) + patience_s if left_alone else 0.0
        if over_s < now:
            yield Cancel(element_id(member, member.element))
