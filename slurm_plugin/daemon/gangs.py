"""A gang: one job of several elements of a Slurm array, each with one count of GPUs on its nodes.

So one job has 2 GPUs here and 4 there. Element 0 leads: what holds of it (its state, begin time,
limit, restarts) holds of the job. The others are its members. Those that a placement needs are
pinned first and wait for the leader's start (`after:`); pinning and starting the leader is the one
act that starts them all. Spare ones are set aside: they wait for what cannot be, so that Slurm
cancels them once the leader ends, whether there is a daemon or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from slurm_plugin.backend import (
    Cancel,
    Change,
    JobState,
    Park,
    Place,
    Requeue,
    SetAside,
    SlurmJob,
    Terms,
    Together,
)
from slurm_plugin.daemon.mark import PREFIX

_ACTIVE = frozenset({JobState.RUNNING, JobState.COMPLETING, JobState.SUSPENDED})

_TOGETHER_S = 1.0
"""How much earlier than its leader a member's start may read, since whole seconds are told."""

Pieces = Iterator[tuple[str, int]]
"""(node, GPUs) pairs."""


def folded(jobs: Mapping[str, SlurmJob]) -> tuple[dict[str, SlurmJob], tuple[SlurmJob, ...]]:
    """Make one job of each gang, under the id of its array; all others stay as they are.

    Returns:
        the jobs; and the members that have not ended and whose leader has, or is gone.
    """
    found: dict[str, SlurmJob] = {}
    elements: dict[tuple[str, str], list[SlurmJob]] = defaultdict(list)
    for job_id, job in jobs.items():
        if job.array and job.mark.startswith(PREFIX):
            elements[job.array, job.mark].append(job)
        else:
            found[job_id] = job
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
    # What splits the leader off before its members would take its number from it.
    return f"{seen.array}_{element}" if seen.array and not seen.unsplit else seen.id


def job_of(changed: str) -> str:
    """Return the job to which an id belongs under which Slurm changes it or elements of it."""
    return changed.partition("_")[0]


def of_leader(changed: str) -> bool:
    """Whether such an id is that of a job, or of its leader, if beside others."""
    element = changed.partition("_")[2]
    return element in ("", "0") or element.startswith(("[0,", "[0-"))


def leads_alone(seen: SlurmJob) -> bool:
    """Whether the leader of a gang has not begun, though its state may say that others end."""
    return bool(seen.array) and seen.start_s is None


def pieces_held(seen: SlurmJob) -> Pieces:
    """Yield what a job holds that has begun and not ended.

    Beside a leader that runs, members that are about to start count, and those that have ended
    before it, until it ends too.
    """
    for name in seen.nodes:
        yield name, seen.gpus_per_node
    running = seen.state in (JobState.RUNNING, JobState.SUSPENDED)
    for member in seen.members:
        if member.state in _ACTIVE or (running and _ended_with(seen, member)):
            nodes = member.nodes
        else:
            nodes = member.pinned if running and member.state is JobState.PENDING else ()
        for name in nodes:
            yield name, member.gpus_per_node


def pieces_pinned(seen: SlurmJob) -> Pieces:
    """Yield where a job is pinned to."""
    for element in (seen, *seen.members) if seen.pinned else ():
        for name in element.pinned if element.state is JobState.PENDING else ():
            yield name, element.gpus_per_node


def _ended_with(leader: SlurmJob, member: SlurmJob) -> bool:
    """Whether a member took part in the leader's present run and has ended."""
    if member.state is not JobState.ENDED or member.start_s is None or leader.start_s is None:
        return False
    return member.start_s >= leader.start_s - _TOGETHER_S


def finishing(seen: SlurmJob) -> bool:
    """Whether a part of a job's present run has ended well, and the rest is about to."""
    return seen.state is JobState.RUNNING and any(
        _ended_with(seen, member) for member in seen.members
    )


def complete(seen: SlurmJob) -> bool:
    """Whether all that take part in the present run of a job have started."""
    return not any(member.state is JobState.PENDING and member.pinned for member in seen.members)


def spares(seen: SlurmJob) -> int:
    """Return how many members a job still has that could be placed, now or later."""
    if seen.unsplit:
        low, _, high = seen.unsplit.partition("%")[0].partition("-")
        return int(high) - int(low) if low == "0" and high.isdecimal() else 0
    return sum(member.state is not JobState.ENDED for member in seen.members)


def together(
    seen: SlurmJob, places: Iterable[tuple[tuple[str, ...], int, str, Terms]], park: Park
) -> Place | Together | None:
    """Return how a job is placed; None if it has too few elements left.

    Args:
        seen: the job, which waits.
        places: for each element (nodes, GPUs on each, their type, terms), the leader's first.
        park: what becomes of the leader if Slurm refuses.
    """
    leader = element_id(seen)
    (nodes, gpus, gpu_type, terms), *others = places
    first = Place(leader, nodes, gpus, park, gpu_type, terms)
    if not seen.array:
        return None if others else first
    free = [member for member in seen.members if member.state is JobState.PENDING]
    if seen.unsplit or len(free) < len(others):
        return None
    placed = []
    for member, (nodes, gpus, gpu_type, terms) in zip(free, others, strict=False):
        name = element_id(seen, member.element)
        aside = SetAside(name, leader)
        placed.append(Place(name, nodes, gpus, aside, gpu_type, terms, f"after:{leader}"))
    return Together(leader, (*placed, first))


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


def tidied(seen: SlurmJob, placed: Place | Together | None, starting: bool) -> Iterator[Change]:
    """Yield what brings the members of a gang into line with its leader.

    Args:
        seen: the gang, which has not ended.
        placed: how it is placed in this cycle.
        starting: whether it has been placed, and the leader has still time to start.
    """
    leader = f"{seen.array}_0"
    if seen.unsplit:
        low, dash, rest = seen.unsplit.partition("%")[0].partition("-")
        if low == "0" and dash:
            yield SetAside(f"{seen.array}_[1-{rest}]", leader)
        return
    taking_part = (
        {place.job for place in placed.steps} if isinstance(placed, Together) else frozenset()
    )
    ended = seen.state is JobState.COMPLETING
    for member in seen.members:
        name = element_id(seen, member.element)
        if member.state is JobState.PENDING and name not in taking_part:
            waits_for_leader = member.dependency.startswith("after:")
            aside = "afternotok:" in member.dependency
            if member.pinned and seen.state is JobState.RUNNING and not aside:
                if waits_for_leader:
                    # Slurm would look at it again by itself, at its next round.
                    yield Place(
                        name,
                        member.pinned,
                        member.gpus_per_node,
                        SetAside(name, leader),
                        member.gpu_type,
                        dependency="",
                    )
            elif member.pinned and starting:
                pass
            elif member.pinned or not aside:
                yield SetAside(name, leader)
        elif member.state is JobState.RUNNING and ended and leads_alone(seen):
            # Its leader has been stopped, or has not begun: there is no half a gang.
            yield Requeue(name)
        elif member.outcome == "COMPLETED" and seen.state is JobState.PENDING:
            # It ended just as its leader was stopped, which goes on and needs it.
            yield Requeue(name)


def broken(seen: SlurmJob, now: float, patience_s: float) -> Iterator[Change]:
    """Yield the end of a gang that has lost a member: cancelled, or failed a while ago."""
    for member in seen.members:
        if member.outcome in ("COMPLETED", ""):
            continue
        if member.outcome == "CANCELLED" or (member.end_s or 0.0) + patience_s < now:
            yield Cancel(seen.array)
            return


def leftover(
    left: Iterable[SlurmJob], jobs: Mapping[str, SlurmJob], now: float, patience_s: float
) -> Iterator[Cancel]:
    """Yield the end of members whose leader has ended; one that ended well lets them finish."""
    for member in left:
        leader = jobs.get(member.array)
        well = leader is not None and leader.outcome == "COMPLETED"
        over_s = (leader.end_s or 0.0) + patience_s if leader is not None and well else 0.0
        if member.state is JobState.PENDING or over_s < now:
            yield Cancel(element_id(member, member.element))
