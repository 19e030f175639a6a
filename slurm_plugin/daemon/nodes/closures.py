"""Which nodes are closed to a job for a while, and why.

They are reserved for others, jobs could not be launched there or have not quite ended, or other
users' jobs are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from hetsched_core.types import Closed, Reason, ReasonCode, Window, closed_to
from slurm_plugin.backend import JobState, SlurmJob, SlurmNode, SlurmSite, SlurmState
from slurm_plugin.daemon.jobs.managed import ManagedJob, moment
from slurm_plugin.daemon.jobs.slurm_reasons import code_of
from slurm_plugin.daemon.nodes.hold import windows_of
from slurm_plugin.daemon.nodes.launches import Launches
from slurm_plugin.daemon.nodes.tenants import Comers, Tenants

_ENDING_S = 3.0
"""A node on which a job has been ending for so long has a slow epilog, or hangs."""

_NOT_LAUNCHED = "jobs could not be launched there"


class Closures:
    """What closes nodes to jobs, as of the last read.

    Attributes:
        windows: when nodes are reserved for others.
        launches: where jobs could not be launched.
    """

    def __init__(self, with_parts: Callable[[frozenset[str]], frozenset[str]]) -> None:
        """Begin with all nodes open; `with_parts` is as in `Where`."""
        self._with_parts = with_parts
        self.windows: tuple[Window, ...] = ()
        self.launches = Launches()
        self._tenants = Tenants()
        self._ending_s: dict[str, float] = {}
        self._now = 0.0

    def note(
        self,
        state: SlurmState,
        records: Collection[SlurmJob],
        nodes: Collection[SlurmNode],
        site: SlurmSite | None,
        now: float,
    ) -> bool:
        """Take in a read; return whether anything closes or opens.

        Args:
            state: what it shows.
            records: all jobs, each element of an array by itself.
            nodes: those that are managed.
            site: what the site has set; None while that is not known.
            now: seconds UTC.
        """
        before = self.windows, self._tenants
        self.windows = tuple(
            replace(each, nodes=self._with_parts(each.nodes))
            for each in windows_of(state.reservations, now)
        )
        limits = (site.cpus_per_node, site.licenses) if site else ({}, {})
        self._tenants = Tenants.of(records, *limits)
        ending = {name for job in records if job.state is JobState.COMPLETING for name in job.nodes}
        self._ending_s = {name: min(now, self._ending_s.get(name, now)) for name in ending}
        self._now = now
        moved = self.launches.note(state.jobs.values(), nodes, now)
        return moved or before != (self.windows, self._tenants)

    def comers(self) -> Comers:
        """Return a count of what enters the nodes from now on."""
        return Comers(self._tenants)

    def lacks(self, job: SlurmJob) -> Reason | None:
        """Return which licence keeps a waiting job from starting.

        Of one that is placed, only where Slurm has come to it and says so.
        """
        if job.entered and code_of(job.reason) is not ReasonCode.LICENSES:
            return None
        words = self._tenants.lacks(job)
        return Reason(ReasonCode.LICENSES, detail=words) if words else None

    def is_outdated(self, job: SlurmJob) -> bool:
        """Whether Slurm's word that a placed job lacks licences is from before they were free."""
        says = job.entered and code_of(job.reason) is ReasonCode.LICENSES
        return says and self._tenants.counts(job) and not self._tenants.lacks(job)

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why nothing is to start on nodes that are closed to all jobs, by node.

        Where a job takes long to end Slurm starts nothing meanwhile.
        """
        long = {name: s for name, s in self._ending_s.items() if self._now - s > _ENDING_S}
        ending = {
            name: f"a job has been ending there since {moment(s)}" for name, s in long.items()
        }
        return ending | dict.fromkeys(self.launches.closed, _NOT_LAUNCHED)

    def of(self, known: ManagedJob, now: float, lead_s: float) -> Closed:
        """Return what is closed to a job that runs or may be placed.

        Args:
            known: the job.
            now: seconds UTC.
            lead_s: how long before a window opens a job that runs has to leave.
        """
        held = tuple(
            (run.configuration, run.since_s) for run in known.runs if run.draining_until_s is None
        )
        closed = closed_to(known.whole, held, self.windows, now, lead_s)
        # What runs there already stays.
        runs_on = {name for configuration, _ in held for name, _ in configuration}
        if not_now := self._not_now(known.slurm) - runs_on:
            closed = Closed(closed.nodes | not_now, closed.until_s)
        for unit in (known, *known.copies.values()):
            if shunned := unit.kept_back.nodes_at(now):
                bans = unit.kept_back.on_nodes.values()
                again_s = min((ban.until_s for ban in bans), default=math.inf)
                closed = Closed(closed.nodes | shunned - runs_on, min(closed.until_s, again_s))
        return closed

    def at_start(self, job: SlurmJob, now: float) -> frozenset[str]:
        """Return the nodes on which a job without GPUs may not start now."""
        limit_s = job.time_limit_s
        ends_s = math.inf if limit_s is None else now + limit_s
        reserved = {name for each in self.windows if each.from_s < ends_s for name in each.nodes}
        return self._not_now(job) | self.launches.closed | reserved | self._ending_s.keys()

    def words(self, job: SlurmJob, nodes: frozenset[str]) -> str:
        """Return what closes these nodes to a job."""
        return ", ".join(dict.fromkeys(self._words(job, nodes)))

    def _words(self, job: SlurmJob, nodes: frozenset[str]) -> Iterator[str]:
        yield from (each.name for each in self.windows if each.nodes & nodes)
        if self._with_parts(self.launches.closed_to(job.user)) & nodes:
            yield _NOT_LAUNCHED
        if self._with_parts(self._tenants.others(job)) & nodes:
            yield "jobs of other users are on them, and they or it share no node"
        if self._with_parts(self._tenants.full(job)) & nodes:
            yield "jobs of its partition have the CPUs there that MaxCPUsPerNode leaves to them"

    def _not_now(self, job: SlurmJob) -> frozenset[str]:
        return self._with_parts(self.launches.closed_to(job.user) | self._tenants.closed_to(job))
