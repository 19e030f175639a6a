"""Nodes on which Slurm could not launch jobs: a broken node must not cost job after job its turn.

Slurm queues a job again that it could not launch, holds it, and after some times (MaxBatchRequeue)
for good. It also holds the jobs of a reservation that is gone with what it names, a partition for
example, that slurm.conf has no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import JobState, Release, SlurmJob, SlurmNode
from slurm_plugin.daemon.jobs.gangs import element_id

DOUBTED_S = 300.0
"""How long nothing is started on a node on which Slurm could launch no job."""

_TOLD_S = 5.0
"""Slurm may show that it holds a job before it shows that it has drained the node."""

_MOST = 0.25
"""Where jobs could not be launched on more of the nodes than this share, it is for the jobs."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A job that Slurm holds.

    Attributes:
        since_s: when it was first seen so, and to have left its nodes.
        where: the nodes on which it was placed.
        failed: whether its prolog has failed there.
    """

    since_s: float
    where: frozenset[str]
    failed: bool = False


class Launches:
    """Where launches have failed lately, and of whose jobs.

    That may be for the node or for the job. The node is closed to its user's other jobs for a
    while, and to all once it was so for several users, on few nodes. One that comes back, or whose
    slurmd has started since, is tried again.

    Attributes:
        closed: the nodes that are closed to all.
        stay_held: the jobs that Slurm holds since the prolog failed, for which it has drained the
            node: elsewhere they would cost the next one. `nohold_on_prolog_fail` is the site's word
            that they may. For some seconds, all that it holds.
    """

    def __init__(self) -> None:
        """Begin with none that has failed."""
        self._failed: dict[str, dict[str, float]] = {}
        self._away: frozenset[str] = frozenset()
        self.closed: frozenset[str] = frozenset()
        self._held: dict[str, _Held] = {}
        self._placed: frozenset[str] = frozenset()
        self.stay_held: frozenset[str] = frozenset()

    def note(self, jobs: Iterable[SlurmJob], nodes: Collection[SlurmNode], now: float) -> bool:
        """Note what Slurm holds where it was placed; return whether that closes or opens nodes.

        Args:
            jobs: all that Slurm shows.
            nodes: those that are managed.
            now: seconds UTC.
        """
        before = self._users(), self.closed
        away = frozenset(node.name for node in nodes if node.condition is not NodeCondition.UP)
        again = dict.fromkeys(self._away - away, now)
        since = {node.name: node.up_since_s for node in nodes} | again
        self._away = away
        found: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for name, users in self._failed.items():
            # The clock may have been set back.
            from_s = max(now - DOUBTED_S, since.get(name, 0.0))
            lasting = {user: s for user, s in users.items() if from_s < s <= now}
            if lasting:
                found[name] = lasting
        drained = {node.name for node in nodes if _prolog_failed(node)}
        held: dict[str, _Held] = {}
        placed = set()
        for job in jobs:
            for each in (job, *job.members, *job.copies):
                # Who holds a job oneself keeps it held.
                placing = each.in_hold and not each.held
                if placing or (each.lost_reservation and each.id in self._placed):
                    placed.add(each.id)
                if not each.held_by_slurm:
                    continue
                if each.entered:
                    for name in each.pinned:
                        found[name][each.user] = now
                # It may still be ending there.
                where = frozenset(each.pinned) if each.in_hold else frozenset[str]()
                known = self._held.get(each.id) or _Held(now, where)
                where |= known.where
                failed = known.failed or bool(where & drained)
                since_s = known.since_s if each.state is JobState.PENDING else now
                held[each.id] = _Held(since_s, where, failed)
        self._held, self._placed = held, frozenset(placed)
        young = {job for job, known in held.items() if 0 <= now - known.since_s < _TOLD_S}
        self.stay_held = frozenset(young | {job for job, known in held.items() if known.failed})
        self._failed = dict(found)
        common = frozenset(name for name, users in found.items() if len(users) > 1)
        self.closed = common if len(common) <= max(1.0, len(nodes) * _MOST) else frozenset()
        return before != (self._users(), self.closed)

    def placed(self, jobs: Collection[str]) -> None:
        """Note that jobs were placed, though none may have been seen in the reservation."""
        self._placed |= frozenset(jobs)

    def closed_to(self, user: str) -> frozenset[str]:
        """Return the nodes on which a user's jobs are not started."""
        return frozenset(name for name, users in self._failed.items() if user in users)

    def let_go(self, waiting: Iterable[SlurmJob]) -> Iterator[Release]:
        """Yield the end of each hold that Slurm has put on what it could not launch.

        So too where the reservation was gone into which a job had been placed. Nothing else would
        let go of it. How often Slurm tries to launch it is its MaxBatchRequeue.
        """
        for seen in waiting:
            members = () if seen.state is JobState.RUNNING else seen.members
            for each in (seen, *members):
                failed = each.held_by_slurm and each.id not in self.stay_held
                lost = each.lost_reservation and each.id in self._placed
                if (failed or lost) and each.state is JobState.PENDING:
                    yield Release(element_id(seen, each.element) if seen.array else each.id)

    @property
    def words(self) -> Mapping[str, str]:
        """What is wrong with each node that is closed to all."""
        minutes = f"{DOUBTED_S / 60:.0f}"
        return {
            name: f"Slurm could not launch jobs of {len(self._failed[name])} users there; it is "
            f"tried again {minutes} minutes after the last, or once its slurmd is started anew"
            for name in self.closed
        }

    def _users(self) -> Mapping[str, frozenset[str]]:
        return {name: frozenset(users) for name, users in self._failed.items()}


def _prolog_failed(node: SlurmNode) -> bool:
    """Whether Slurm has drained the node since a prolog failed; other reasons are the node's own.

    It drains one for a job that a restart of slurmd left behind, too (`Duplicate jobid`).
    """
    return node.condition is NodeCondition.DRAINED and node.reason.startswith("Prolog error")
