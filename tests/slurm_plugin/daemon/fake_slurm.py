"""What a fake Slurm shows, a clock that a test moves, and a daemon on both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from immutables import Map

from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.store import Store
from hetsched_core.types import (
    NodeCondition,
    NodeView,
    Plan,
    Reason,
    ReasonCode,
    Snapshot,
    Waiting,
)
from slurm_plugin.backend import (
    ApplyResult,
    Change,
    Enter,
    JobState,
    Leave,
    Requeue,
    SlurmBackend,
    SlurmJob,
    SlurmNode,
    SlurmReservation,
    SlurmState,
    Terms,
    hold_named,
)
from slurm_plugin.daemon import Daemon, DaemonMode, DaemonSettings
from slurm_plugin.daemon.jobs.request import Request, own_of, read_mark, request_of
from tests.slurm_plugin.backend.fake import LASTING, PENDING, FakeBackend

HOLD = hold_named(1)

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}))

WAITING = replace(
    PENDING,
    mark='hetsched/2 {"nonce":"a1","gpu-set":"1,2"}',
    submit_s=900.0,
    begin_s=900.0,
    time_limit_s=600.0,
)
"""A job that accepts one GPU or two."""

MOVABLE = replace(WAITING, mark='hetsched/2 {"nonce":"a1","gpu-set":"1,2","can-checkpoint":true}')
"""One that may be stopped, too."""

RIGID = replace(WAITING, id="5", mark="")
"""A job of one GPU, as it was submitted."""


def requested(job: SlurmJob, more: str = "") -> Request:
    """What a job asks for that is shown for the first time, with more fields in its mark."""
    mark = read_mark(job.mark.removesuffix("}") + more + "}" if more else job.mark)
    return request_of(job.id, mark, job, own_of(job, mark))


def element(number: int, of: SlurmJob = WAITING, array: str = "7", **more: Any) -> SlurmJob:
    """An element of an array of such jobs."""
    return replace(of, **{"id": f"{array}_{number}", "array": array, "element": number, **more})


def placed(job: SlurmJob, *nodes: str) -> SlurmJob:
    """A waiting job, once it has been placed on nodes."""
    return replace(job, reservation=HOLD, pinned=nodes, reason="None")


def running(job: SlurmJob, *nodes: str, since_s: float = 1000.0, gpus: int = 1) -> SlurmJob:
    """A job that runs on nodes, in the reservation."""
    return replace(
        placed(job, *nodes),
        state=JobState.RUNNING,
        nodes=nodes,
        start_s=since_s,
        gpus=gpus,
        gpu_types=("v100",),
    )


def node(name: str, used: int = 0, condition: NodeCondition = NodeCondition.UP) -> SlurmNode:
    """A node of four V100 GPUs in partition `gpu`."""
    in_use = (("v100", used),) if used else ()
    partitions = frozenset({"gpu"})
    return SlurmNode(name, condition, (("v100", 4),), in_use, 32, 0, 64000, 0, partitions)


def held(*nodes: str, until_s: float = LASTING) -> SlurmReservation:
    """The reservation that holds nodes, for as long as a test lasts unless it says otherwise."""
    return SlurmReservation(HOLD, nodes or ("n0",), 0.0, until_s)


def state(
    *jobs: SlurmJob,
    nodes: tuple[SlurmNode, ...] = (node("n0"),),
    reservations: tuple[SlurmReservation, ...] | None = None,
) -> SlurmState:
    """What Slurm shows; by default its nodes are held."""
    if reservations is None:
        reservations = (held(*sorted(each.name for each in nodes)),)
    return SlurmState(nodes, {job.id: job for job in jobs}, reservations)


def entry(
    job: SlurmJob, *nodes: str, gpus: int = 1, due: bool = False, cpus: int | None = None
) -> Enter:
    """How a job that accepts several counts is placed: so many GPUs on each node."""
    own = job.resources
    resources = own.placed(len(nodes), f"gres/gpu:v100:{gpus}", len(nodes))
    each = gpus if cpus is None else cpus
    terms = Terms(10, each, None, each * len(nodes))
    return Enter(job.id, HOLD, nodes, left(job), resources, terms, due)


def left(job: SlurmJob) -> Leave:
    """How such a job gives its place back."""
    return Leave(job.id, (), job.resources, Terms(10, 1, None, 1))


@dataclass(slots=True)
class Clock:
    """A clock that a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def daemon_of(
    backend: SlurmBackend,
    clock: Clock,
    policy: Policy | None = None,
    mode: DaemonMode = DaemonMode.ENFORCE,
    settings: DaemonSettings = SETTINGS,
    store: Store | None = None,
    stopwatch: Callable[[], float] = lambda: 0.0,
) -> Daemon:
    """A daemon on a clock of the test's."""
    if isinstance(backend, FakeBackend):
        backend.clock = clock
    return Daemon(
        backend,
        policy or make_policy("fifo"),
        settings,
        mode=mode,
        clock=clock,
        sleep=lambda _: None,
        store=store,
        stopwatch=stopwatch,
    )


class Site:
    """A daemon beside a fake Slurm, on a clock of the test's.

    Slurm shows the jobs that it was told to show last; its nodes, which are held, and reservations
    stay as they are until others are given.
    """

    def __init__(
        self,
        *jobs: SlurmJob,
        nodes: tuple[SlurmNode, ...] = (node("n0"),),
        reservations: tuple[SlurmReservation, ...] | None = None,
        policy: str | Policy = "fifo",
        now: float = 1000.0,
        backend: FakeBackend | None = None,
        **daemon: Any,
    ) -> None:
        """Show the jobs to a daemon that has not looked yet; `daemon` is for `daemon_of`."""
        self.clock = Clock(now)
        self.backend = FakeBackend() if backend is None else backend
        self.nodes, self.reservations = nodes, reservations
        self.show(*jobs)
        made = make_policy(policy) if isinstance(policy, str) else policy
        self.daemon = daemon_of(self.backend, self.clock, made, **daemon)
        self.world = self.daemon.world

    def show(
        self,
        *jobs: SlurmJob,
        nodes: tuple[SlurmNode, ...] | None = None,
        reservations: tuple[SlurmReservation, ...] | None = None,
    ) -> None:
        """Have Slurm show these from now on."""
        self.nodes = self.nodes if nodes is None else nodes
        self.reservations = self.reservations if reservations is None else reservations
        self.backend.state = state(*jobs, nodes=self.nodes, reservations=self.reservations)

    def cycle(self, seconds: float = 0, every_s: float = 1.0) -> list[Change]:
        """Let time pass, with a cycle at its end and every so often; return what was called.

        No plan may be wrong.
        """
        before, until_s = len(self.backend.calls), self.clock.now + seconds
        while True:
            self.clock.now = min(until_s, self.clock.now + every_s)
            self.report = self.daemon.cycle()
            assert self.report.violations == ()
            if self.clock.now >= until_s:
                return self.backend.calls[before:]

    def see(
        self,
        *jobs: SlurmJob,
        seconds: float = 0,
        nodes: tuple[SlurmNode, ...] | None = None,
        reservations: tuple[SlurmReservation, ...] | None = None,
    ) -> list[Change]:
        """Show these, and do the cycles of so many seconds; return what was called."""
        self.show(*jobs, nodes=nodes, reservations=reservations)
        return self.cycle(seconds)

    def until_called(self, most_s: float) -> tuple[float, list[Change]]:
        """Do a cycle a second until something is called; return after how long, and what."""
        since_s = self.clock.now
        while not (calls := self.cycle(1)):
            assert self.clock.now < since_s + most_s
        return self.clock.now - since_s, calls

    def forget_stop(self, job: str) -> float:
        """Have a stop taken of which Slurm shows nothing; return when that was."""
        at_s = self.clock.now
        self.daemon._carried_out((), ApplyResult((Requeue(job),), (), ()), at_s)
        self.clock.now += 4.0
        return at_s

    def blocked(self, job: str = "1") -> Reason:
        """Return why a job may not start."""
        reason = self.world.jobs[job].blocked
        assert reason is not None
        return reason

    def uses(self, name: str = "n0") -> tuple[int, int]:
        """Return how many GPUs of a node our jobs hold, and others."""
        view: NodeView = self.world.nodes[name]
        return view.held_gpus, view.foreign_gpus


def places(calls: Iterable[Change]) -> dict[str, tuple[str, ...]]:
    """Return where jobs are placed."""
    return {call.job: call.nodes for call in calls if isinstance(call, Enter)}


def named(calls: Iterable[Change]) -> list[tuple[str, str]]:
    """Return the kind and the job of each change."""
    return [(type(call).__name__, call.job) for call in calls]


@dataclass(frozen=True)
class Evict:
    """A policy that stops whatever runs."""

    info: ClassVar[PolicyInfo] = PolicyInfo("evict", "", "")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Let every job wait."""
        return Plan(Map({job: Waiting(Reason(ReasonCode.AHEAD)) for job in snapshot.jobs}))
