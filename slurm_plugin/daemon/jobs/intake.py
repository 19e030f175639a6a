"""Which jobs that want the managed nodes are placed, and what becomes of those that are not."""

from __future__ import annotations

from hetsched_core.types import JobView
from slurm_plugin.backend import JobState, Leave, SlurmJob
from slurm_plugin.daemon.cpu_jobs import CpuJob
from slurm_plugin.daemon.jobs.descriptions import Descriptions
from slurm_plugin.daemon.jobs.gangs import element_id
from slurm_plugin.daemon.jobs.managed import ManagedJob, described, editable, to_begin_later
from slurm_plugin.daemon.jobs.remembered_requests import Requests
from slurm_plugin.daemon.jobs.request import Request
from slurm_plugin.daemon.jobs.requeue_delays import Delays
from slurm_plugin.daemon.nodes.closures import Closures
from slurm_plugin.daemon.nodes.managed_nodes import ManagedNodes
from slurm_plugin.daemon.settings import JobSelection

_NO_GPUS = (
    "it asks for no GPUs, and starts in Slurm's own order, on cores and memory that idle GPUs do "
    "not need"
)
_NO_NODES = (
    "it asks for no GPUs, and all nodes that it may run on are closed to it: they are reserved, "
    "launches fail there, jobs end there, or jobs of other users are on them, and they or it share "
    "no node"
)
_UNMARKED = 'it has no requirement set, and under jobs = "marked" Slurm places it on other nodes'
_UNREAD = "what it asks for has not been read yet; ask again in a moment"


class Intake:
    """What one read shows of jobs that no policy was told of before.

    Attributes:
        delays: which of them begin later.
        later: jobs that their users let start later only, and no policy is told of.
        aside: waiting jobs of which no policy is ever told, or not yet, each with why.
        unread: those of which nobody has looked up yet what they ask for.
        intruders: what takes waiting jobs out of the reservation that are not to be placed.
        without_gpus: waiting jobs without GPUs.
    """

    def __init__(
        self,
        requests: Requests,
        descriptions: Descriptions,
        closures: Closures,
        managed_nodes: ManagedNodes,
    ) -> None:
        """Know of no job; the others say what jobs ask for, where they may run, what is closed."""
        self.delays = Delays()
        self.later: dict[str, JobView] = {}
        self.aside: dict[str, str] = {}
        self.unread: list[SlurmJob] = []
        self.intruders: list[Leave] = []
        self.without_gpus: list[CpuJob] = []
        self._requests = requests
        self._descriptions = descriptions
        self._closures = closures
        self._managed_nodes = managed_nodes
        self._before: dict[str, SlurmJob] = {}

    def begin(self) -> None:
        """Begin a read."""
        self._before = {each.job.id: each.job for each in self.without_gpus}
        self.unread, self.intruders, self.without_gpus = [], [], []
        # Anew each time: others may look at the old one.
        self.later, self.aside = {}, {}

    def takes(self, seen: SlurmJob, request: Request) -> bool:
        """Whether such a job is placed."""
        every = self._descriptions.settings.jobs is JobSelection.ALL
        return every or not request.rigid or bool(seen.nodes)

    def take(self, seen: SlurmJob, now: float) -> ManagedJob | None:
        """Return a job that policies are to be told of from now on; None if not, or not yet."""
        request = self._requests.of(seen)
        if request is None:
            self.unread.append(seen)
            self.aside[seen.id] = _UNREAD
            return None
        self.aside.pop(seen.id, None)
        if wrong := self._requests.wrong(seen):
            self._descriptions.warnings[seen.id] = wrong
        later = self.delays.begins_later(seen, now)
        if not self.takes(seen, request):
            self._note_intruder(seen, request)
            self.aside[seen.id] = _UNMARKED
        elif request.rigid and not (seen.gpus or seen.exclusive == "node" or request.why_not):
            if later:
                self._note_intruder(seen, request)
            elif seen.state is JobState.PENDING:
                self._note_without_gpus(seen, request, now)
        elif later:
            self.later[seen.id] = to_begin_later(seen, request)
            self._note_intruder(seen, request)
        else:
            since_s = max(request.mark.submitted_s or seen.submit_s, seen.begin_s or 0.0)
            job = described(seen, request)
            wait_s = max(0.0, now - since_s)
            return ManagedJob(request, seen, job, job, observed_s=now, wait_s=wait_s)
        return None

    def _note_without_gpus(self, seen: SlurmJob, request: Request, now: float) -> None:
        """Note a waiting job that asks for no GPUs, and why it waits."""
        was = self._before.get(seen.id, seen)
        if editable(seen) != editable(was):
            self._requests.edited(seen, was)
            request = self._requests.of(seen) or request
        partition = self._descriptions.partition(request, seen)
        where = self._open(self._descriptions.nodes(request, seen, partition), seen, now)
        self.without_gpus.append(CpuJob(seen, request, where))
        waits = _NO_GPUS if where is None or where else _NO_NODES
        if lacks := self._closures.lacks(seen):
            waits = f"its licenses are in use: {lacks.detail}"
        self.aside[seen.id] = f"Slurm says {seen.reason}" if seen.held else waits

    def _open(
        self, where: frozenset[str] | None, seen: SlurmJob, now: float
    ) -> frozenset[str] | None:
        """Return the nodes on which a job without GPUs may start now; None for all."""
        closed = self._closures.at_start(seen, now)
        every = self._managed_nodes.hosts
        return (every if where is None else where) - closed if closed else where

    def _note_intruder(self, seen: SlurmJob, request: Request) -> None:
        """Note a job that is not managed, and is in the reservation by its user's own word."""
        self.intruders += (
            request.leave(element_id(each), each.partitions)
            for each in seen.copies or (seen,)
            if each.entered
        )
