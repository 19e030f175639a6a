"""What a policy answers: the desired state of the cluster, never commands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from immutables import Map

from hetsched_core.types.cluster import Configuration
from hetsched_core.types.job import Purpose
from hetsched_core.types.making import cheaply_made, maker
from hetsched_core.types.reason import Horizon, Reason


class ExecutionModel(StrEnum):
    """How a policy's placements run.

    `gang`: one placement a job, all its GPUs at once. `copies`: several placements a job, each
    taking all GPUs of its node (HadarE). `tasks`: sequences of mini-batches on each GPU (Hare).
    """

    GANG = "gang"
    COPIES = "copies"
    TASKS = "tasks"


class Trigger(StrEnum):
    """What can make a policy plan (again)."""

    ROUND = "round"
    ARRIVAL = "arrival"
    END = "end"
    NODE = "node"
    PROFILE = "profile"
    BUDGET = "budget"
    TIMER = "timer"


@cheaply_made
@dataclass(frozen=True, slots=True)
class Placement:
    """GPUs for one copy of a job.

    `budget` is how many samples this run may do, counted from its start, so that the same plan
    applied twice grants nothing twice; a later plan raises it to let the run go on. `until_s` is
    the time (UTC) at which a profiling run is given up.
    """

    configuration: Configuration
    copy: int = 0
    purpose: Purpose = Purpose.RUN
    budget: float | None = None
    until_s: float | None = None


@cheaply_made
@dataclass(frozen=True, slots=True)
class Placed:
    """The job should run: one placement (gang), one per copy, or none (tasks, in sequences)."""

    placements: tuple[Placement, ...]


@cheaply_made
@dataclass(frozen=True, slots=True)
class Waiting:
    """The job should hold no GPUs, for this reason."""

    reason: Reason


Entry = Placed | Waiting


@dataclass(frozen=True, slots=True)
class TaskItem:
    """`tasks` mini-batches of one training round of a job, one after another on one GPU."""

    job: str
    training_round: int
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class TaskBlock:
    """Items run in order, `times` times; each repetition advances every item by one round."""

    items: tuple[TaskItem, ...]
    times: int = 1


@dataclass(frozen=True, slots=True)
class TaskSequence:
    """What GPU number `gpu` of a node runs, in order (run-length form)."""

    node: str
    gpu: int
    blocks: tuple[TaskBlock, ...]


@dataclass(frozen=True, slots=True)
class ProfilePlacement:
    """A profiling run of a job, on top of whatever else the plan says about it."""

    job: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Reservation:
    """GPUs promised to a waiting job later: nothing is held, but `when` and backfill read it."""

    job: str
    configuration: Configuration
    start_s: float
    end_s: float


@cheaply_made
@dataclass(frozen=True, slots=True)
class Replan:
    """When the policy wants to be asked again: on these triggers, and at a time of its own.

    Attributes:
        on: the triggers; changes of nodes ask always.
        at_s: the time (UTC).
        room: GPU type -> GPUs. The ends of jobs that held GPUs need not ask, though `on` says so,
            before so many are free on a node of a host that a run has left since; nodes of other
            types never do. Once another job ends, or a run of a job that goes on, whatever happens
            asks. None if every end is to ask.
    """

    on: frozenset[Trigger] = frozenset({Trigger.ARRIVAL, Trigger.END, Trigger.NODE})
    at_s: float | None = None
    room: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """How the plan was found: for reports, never for decisions.

    `gap` is the proven relative gap, `limits` names the limits that the solver hit, `prices` is the
    price of a GPU by node class.
    """

    method: str = ""
    objective: float | None = None
    bound: float | None = None
    gap: float | None = None
    limits: tuple[str, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)


class _Token:
    """Tells one plan from another without comparing what they hold."""

    __slots__ = ()


@cheaply_made
@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The desired state of every active job.

    Plans are persistent: `revise` shares all unchanged entries with the plan it starts from and
    remembers which changed, so that checking and applying a plan cost by the number of changes.

    Attributes:
        entries: job id -> Placed or Waiting, for every active job; a missing job is an error.
        profiles: profiling runs, on top.
        sequences: for the `tasks` model, what each GPU runs.
        reservations: promised starts.
        valid_from_s: when the plan takes effect (UTC); -inf for at once. Until then the one in
            force goes on and asks for plans as it says; a plan made meanwhile replaces this one.
        replan: when to plan again.
        diagnostics: how it was found.
        memory: the policy's own notes, JSON values only with a "version"; may be lost at any time.
        base: the identity of the plan this one revises, None for a plan made afresh.
        changed: the jobs whose entries differ from `base`'s or are gone; None with no base.
    """

    entries: Map[str, Entry]
    profiles: tuple[ProfilePlacement, ...] = ()
    sequences: tuple[TaskSequence, ...] = ()
    reservations: Sequence[Reservation] = ()
    valid_from_s: float = -math.inf
    replan: Replan = Replan()
    diagnostics: Diagnostics = Diagnostics()
    memory: Mapping[str, object] = field(default_factory=dict)
    base: object = None
    changed: frozenset[str] | None = None
    identity: object = field(default_factory=_Token)

    def never(self, job: str) -> bool:
        """Whether a job waits of which the policy says that it can never place it."""
        entry = self.entries.get(job)
        return isinstance(entry, Waiting) and entry.reason.code.horizon is Horizon.NEVER

    def revise(
        self,
        entries: Mapping[str, Entry],
        gone: Iterable[str] = (),
        *,
        replan: Replan | None = None,
        profiles: tuple[ProfilePlacement, ...] = (),
        sequences: tuple[TaskSequence, ...] = (),
        valid_from_s: float = -math.inf,
        reservations: Sequence[Reservation] = (),
        diagnostics: Diagnostics | None = None,
        memory: Mapping[str, object] | None = None,
    ) -> Plan:
        """Return this plan with some entries replaced and the jobs that are `gone` left out."""
        revised, changed = self.entries.update(entries), set(entries)
        for job in gone:
            if job in revised:
                revised = revised.delete(job)
                changed.add(job)
        return _make_plan(
            revised,
            profiles=profiles,
            sequences=sequences,
            valid_from_s=valid_from_s,
            reservations=reservations,
            replan=self.replan if replan is None else replan,
            diagnostics=self.diagnostics if diagnostics is None else diagnostics,
            memory=self.memory if memory is None else memory,
            base=self.identity,
            changed=frozenset(changed),
        )


_make_plan = maker(Plan)

EMPTY_PLAN = Plan(Map())
"""The plan in force before the first one: no jobs."""
