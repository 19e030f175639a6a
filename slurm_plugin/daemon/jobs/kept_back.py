"""Where a job is not placed for the time being, by what Slurm has said or done of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from hetsched_core.types import Reason, ReasonCode
from slurm_plugin.backend import SlurmJob
from slurm_plugin.daemon.jobs.request import Request
from slurm_plugin.daemon.jobs.slurm_reasons import code_of, keeps_back, of_job, of_nodes, word_of

QUOTA_S = 60.0
"""How long a job is not placed again that Slurm did not start for a limit, or did not place."""

LONGEST_S = 600.0
"""The longest time after which a job is tried again that Slurm has not started."""

BELIEVED_S = 600.0
"""How long Slurm's word of a limit keeps a job back that is not placed."""

SEEN_S = 5.0
"""It takes at most so long, about, before what was placed is seen there."""

LIMITS = (ReasonCode.QUOTA, ReasonCode.LICENSES)
"""Reasons that other jobs' ends take away; Slurm names them only of what is placed."""


def again_after_s(times: int) -> float:
    """Return how long it waits that has waited so often in vain before: longer each time.

    Other jobs may be stopped for it each time that it is placed.
    """
    return min(LONGEST_S, QUOTA_S * 2.0 ** min(times, 10))


class Ban(NamedTuple):
    """Why a job is not placed somewhere, and until when (seconds UTC)."""

    why: Reason
    until_s: float

    def holds(self, now: float, longest_s: float = LONGEST_S) -> bool:
        """Whether it is in force; `longest_s` is the longest that one is made for."""
        # The clock may have been set back.
        return now < self.until_s <= now + longest_s


@dataclass(slots=True)
class KeptBack:
    """Where one job is not placed.

    Attributes:
        everywhere: why it is placed nowhere at all.
        on_nodes: the nodes on which Slurm has not started it.
        on_types: the GPU types on which Slurm has named a limit of it.
        avoided: the nodes that it is kept off besides, for a limit, or since others like it did not
            start there.
        in_vain: the nodes on which it has just failed, none where that is not for the nodes, and
            since when it was there.
        failures: how often Slurm has not started it since it last did.
        limited_s: since when Slurm has named a limit of it while it was not placed.
        waited_for: the partitions for which it was last seen to wait.
    """

    everywhere: Ban | None = None
    on_nodes: dict[str, Ban] = field(default_factory=dict)
    on_types: dict[str, Ban] = field(default_factory=dict)
    avoided: Mapping[str, Reason] = field(default_factory=dict)
    in_vain: tuple[tuple[str, ...], float] | None = None
    failures: int = 0
    limited_s: float | None = None
    waited_for: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything of this may keep it back, or may end with time."""
        somewhere = self.on_nodes or self.on_types or self.avoided
        return bool(self.everywhere or somewhere) or self.limited_s is not None

    def not_started_on(
        self, nodes: Collection[str], why: Reason, said: str, placed_s: float, now: float
    ) -> None:
        """Note that Slurm has not started it where it was placed.

        It is tried elsewhere at once if that was for the nodes, and not for the second time; else
        nowhere for a while.

        Args:
            nodes: where that was.
            why: what is told of it.
            said: what Slurm says of it.
            placed_s: since when it was placed there.
            now: seconds UTC.
        """
        there = of_nodes(said)
        before = self.nodes_at(now)
        if before.issuperset(nodes):
            return
        self.failures += 1
        ban = Ban(why, now + again_after_s(max(0, self.failures - 2)))
        marked = () if of_job(said) or keeps_back(said) else tuple(nodes)
        # One that was placed with it may have started before either was seen there.
        self.in_vain = marked, placed_s - SEEN_S
        if before or not there:
            self.everywhere = ban
        if there:
            self.on_nodes |= dict.fromkeys(nodes, ban)

    def nodes_at(self, now: float) -> frozenset[str]:
        """Return the nodes on which it is not tried now."""
        self.on_nodes = {name: ban for name, ban in self.on_nodes.items() if ban.holds(now)}
        return frozenset(self.on_nodes).union(self.avoided)

    @property
    def why_not_there(self) -> Reason | None:
        """Why it is not tried on one of the nodes that it is kept off; None if it is off none."""
        own = (ban.why for ban in self.on_nodes.values())
        return next(chain(own, self.avoided.values()), None)

    def limited(self, seen: SlurmJob, request: Request, now: float) -> Reason | None:
        """Return the limit, or closed partition, that Slurm names of it while it is not placed.

        That is believed for a while: behind many others Slurm looks at a job again only now and
        then. Of a set of counts Slurm knows the submitted one alone.
        """
        alone = seen.gpus <= request.counts.smallest
        # What it asks for is changed of one that is not rigid.
        stays = keeps_back(seen.reason) or (request.rigid and of_job(seen.reason))
        if seen.entered or not alone or not stays:
            self.limited_s = None
            return None
        if self.limited_s is None:
            self.limited_s = now
        if not now < self.limited_s + BELIEVED_S <= now + BELIEVED_S:
            return None
        return Reason(code_of(seen.reason) or ReasonCode.QUOTA, detail=seen.reason)

    def limit_may_be_gone(self, ended: SlurmJob, seen: SlurmJob, now: float) -> None:
        """Believe Slurm's last word of a limit no more where a job that counted there ends.

        Of a limit on other things than jobs, one is to free what this one asks for: no other job
        is to make room for it in vain.
        """
        if self.everywhere is not None and _frees(ended, seen, self.everywhere.why.detail):
            self.everywhere = None
        self.on_types = {
            gpu_type: ban
            for gpu_type, ban in self.on_types.items()
            if not _frees(ended, seen, ban.why.detail)
        }
        counts_jobs = "Job" in word_of(seen.reason)
        if self.limited_s is not None and counts_jobs and _frees(ended, seen, seen.reason):
            self.limited_s = now - BELIEVED_S
            self.everywhere = None


_COUNTED: Mapping[str, Callable[[SlurmJob], float]] = {
    "Job": lambda _: 1,
    "GRES": attrgetter("gpus"),
    "Cpu": attrgetter("cpus"),
    "Mem": attrgetter("memory_mb"),
    "Node": lambda job: len(job.nodes) or job.least_nodes,
}
"""A part of Slurm's word for a limit -> what counts there of a job."""

_OF_ONE = ("Min", "PerJob", "PerNode", "PerLimit", "ArrayTask")
"""Parts of words for limits on what one job has, or on what is used up."""


def _frees(ended: SlurmJob, waits: SlurmJob, said: str) -> bool:
    """Whether the end of a job may take away the limit that Slurm names of one that waits."""
    word = word_of(said)
    if code_of(word) is not ReasonCode.QUOTA or any(part in word for part in _OF_ONE):
        return False
    of = attrgetter("user" if "User" in word else "qos" if word[:3] == "QOS" else "account")
    counted = next((each for part, each in _COUNTED.items() if part in word), None)
    return counted is not None and of(ended) == of(waits) and counted(ended) >= counted(waits)
