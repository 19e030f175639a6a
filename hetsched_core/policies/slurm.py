"""Slurm as a site runs it today: multifactor priorities, and backfill on requested time limits.

Sources: Slurm's documentation ("Scheduling Configuration Guide", "Multifactor Priority Plugin",
slurm.conf(5)) and the plug-ins sched/backfill and priority/multifactor. EASY backfilling: Lifka,
"The ANL/IBM SP Scheduling System", JSSPP '95. Conservative against EASY: Mu'alem and Feitelson,
"Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with
Backfilling", IEEE TPDS 12(6), 2001.

At every event that may make room jobs start in the order of priority until one does not fit; every
`bf_interval` seconds, if something has happened, lower ones start where none ahead waits. Jobs
are rigid (the lower median of the requirement set), run on the GPU type they ask for or on any, and
are never preempted. Speeds make no difference: types and nodes are taken in the cluster's order.

A job that does not fit keeps all nodes of its partition from those behind it, whatever their GPU
type; without partitions, those of the types that it could use. One that is to start later keeps
whole nodes from those that would still run then.

Deviations, each with its reason in `docs/policies/slurm.md`: reservations are exact to the second,
and go as far ahead as limits reach; a job is put on as few nodes as could ever hold it; time limits
end no job, and one overdue is taken to end a minute from now.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar

from immutables import Map

from hetsched_core.errors import InputError
from hetsched_core.placement import StrictOrder
from hetsched_core.placement.backfill import Backfill
from hetsched_core.placement.fewest import fewest_fit, layout_of
from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.starts import Promises
from hetsched_core.placement.ways import Way, reach
from hetsched_core.policies.multifactor import Ranking, Weights
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.site import Usage, fair_tree
from hetsched_core.types import (
    Cluster,
    Configuration,
    Entry,
    Job,
    Knowledge,
    Plan,
    Replan,
    Reservation,
    Snapshot,
    Trigger,
    Waiting,
)
from hetsched_core.types.making import maker
from hetsched_core.types.site import Association, ShareTree

_DAY_S = 86_400.0
_VERSION = 1
_LEAST = {
    "bf_interval_s": 0.0,
    "bf_max_job_test": 1,
    "default_time_s": 1.0,
    "weight_age": 0,
    "weight_fairshare": 0,
    "weight_job_size": 0,
    "weight_partition": 0,
    "max_age_s": 1.0,
    "decay_half_life_s": 1.0,
    "calc_period_s": 1.0,
}
_ON_ROOM = frozenset({Trigger.END, Trigger.NODE})
_ON = _ON_ROOM | {Trigger.ARRIVAL}


class Reserve(StrEnum):
    """What keeps the room that it is to have from those that could start before it."""

    NONE = "none"
    EASY = "easy"
    CONSERVATIVE = "conservative"


@dataclass(frozen=True)
class Slurm:
    """Serve by priority and backfill on time limits."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="slurm",
        summary="priority and backfill on time limits, blind to speeds, no preemption",
        paper="Slurm sched/backfill and priority/multifactor; EASY: Lifka, JSSPP '95",
        knows=frozenset({Knowledge.TIME_LIMIT}),
        keeps_limits=True,
        replay_only="a live cluster has Slurm itself",
    )

    backfill: Reserve = parameter(
        Reserve.CONSERVATIVE,
        "no backfill; or whose start it may not delay: the first to wait for a GPU type, everybody",
    )
    bf_interval_s: float = parameter(30.0, "seconds between passes of backfill")
    bf_max_job_test: int = parameter(500, "most jobs that a pass of backfill looks at")
    default_time_s: float = parameter(_DAY_S, "time limit of jobs that have none, seconds")
    weight_age: int = parameter(0, "weight of the time in the queue")
    weight_fairshare: int = parameter(0, "weight of having used less than others")
    weight_job_size: int = parameter(0, "weight of the number of GPUs")
    weight_partition: int = parameter(0, "weight of the partition")
    max_age_s: float = parameter(7 * _DAY_S, "time in the queue that counts in full, seconds")
    favor_small: bool = parameter(False, "whether small jobs go before large ones")
    partitions: str = parameter("", "numbers of partitions, as in long=1,short=10; others have 0")
    decay_half_life_s: float = parameter(7 * _DAY_S, "after which use counts for half, seconds")
    calc_period_s: float = parameter(300.0, "seconds between calculations of the priorities")

    _ranking: Ranking = field(init=False, repr=False, compare=False)
    _backfill: Backfill = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse numbers that no Slurm could use."""
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise InputError(f"slurm.{name}={value} is not a number of at least {least:g}")
        ranking = Ranking(
            Weights(
                self.weight_age, self.weight_fairshare, self.weight_job_size, self.weight_partition
            ),
            self.max_age_s,
            self.favor_small,
            _numbers(self.partitions),
        )
        object.__setattr__(self, "_ranking", ranking)
        object.__setattr__(
            self, "_backfill", Backfill(StrictOrder(ranking, self._fit, _bars), self._limit_s)
        )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Keep what runs, start what is next, and now and then what can go before."""
        now, strict, types = snapshot.now, self._backfill.strict, snapshot.cluster.gpu_types
        ranks_change = self._ranking.weights.change_with_time
        notes = _Notes.read(snapshot.previous.memory)
        if ranks_change:
            self._rank(snapshot, notes)
        if snapshot.site is not None and snapshot.site.limits:
            # Which jobs would pass a limit changes with what others have.
            strict.reorder(strict.key)
        changes = self._backfill.serve(snapshot)
        reservations: Sequence[Reservation] = ()
        on, room, again_s = _ON, None, math.inf
        if strict.waiting and self.backfill is not Reserve.NONE:
            due_s = notes.backfilled_s + self.bf_interval_s
            if now < due_s:
                again_s = due_s
                reservations = self._still_kept(snapshot, changes)
                spoken_for = strict.spoken_for(snapshot.cluster)
                in_order = self._ranking.by_submission and snapshot.site is None
                if in_order and len(spoken_for) == len(types):
                    # What comes now is behind another on every node, which most ends give no room.
                    on, room = _ON_ROOM, self._wanted(snapshot, spoken_for)
            else:
                notes.backfilled_s = now
                waited = len(strict.waiting)
                reservations = self._backfill.fill(
                    snapshot,
                    changes,
                    self.bf_max_job_test,
                    reserve_all=self.backfill is Reserve.CONSERVATIVE,
                )
                if len(strict.waiting) < waited and waited > self.bf_max_job_test:
                    # Others move up into what a pass looks at.
                    again_s = now + self.bf_interval_s
        if ranks_change:
            notes.usage = notes.usage.holding(strict.placed.values())
            if strict.waiting:
                again_s = min(again_s, notes.ranked_s + self.calc_period_s)
        return strict.conclude(
            snapshot,
            changes,
            _make_replan(on, again_s if again_s < math.inf else None, room),
            reservations=reservations,
            memory=notes.written(),
        )

    def _wanted(
        self, snapshot: Snapshot, spoken_for: Mapping[str, Sequence[str]]
    ) -> Mapping[str, int]:
        """GPU type -> GPUs that a node must have free for what is next to start there."""
        room = {}
        for gpu_type, who in spoken_for.items():
            wanted = []
            for job_id in who:
                job = snapshot.jobs[job_id].job
                way, shapes = self._backfill.strict.ways[job_id], snapshot.shapes_for(job)
                layout = layout_of(job, way, snapshot.cluster, shapes)
                # Of a mix of types a single GPU may be what is missing.
                wanted.append(next((least for t, _, least in layout.alone if t == gpu_type), 1))
            room[gpu_type] = min(wanted)
        return room

    def _still_kept(
        self, snapshot: Snapshot, changes: Mapping[str, Entry]
    ) -> Sequence[Reservation]:
        """Return what the last pass promised, but for what no longer waits."""
        kept, waiting = snapshot.previous.reservations, self._backfill.strict.waiting
        if isinstance(kept, Promises):
            before = snapshot.previous.entries
            concerned = itertools.chain(changes, snapshot.changed, snapshot.gone)
            left = {
                job_id
                for job_id in concerned
                if job_id not in waiting and isinstance(before.get(job_id), Waiting)
            }
            return kept.without(left) if left else kept
        return tuple(promise for promise in kept if promise.job in waiting)

    def _fit(
        self, snapshot: Snapshot, free: FreeGpus, job: Job, way: Way, types: tuple[str, ...]
    ) -> Configuration | None:
        """Return where a job goes: not where it could reach into a window.

        Slurm stops no job for one.
        """
        ends_s = snapshot.effective_s + self._limit_s(job)
        for window in snapshot.windows:
            if window.from_s < ends_s and window.until_s > snapshot.effective_s:
                free = free.outside(snapshot.cluster.mask(window.nodes))
        return fewest_fit(snapshot, free, job, way, types)

    def _limit_s(self, job: Job) -> float:
        return self.default_time_s if job.time_limit_s is None else job.time_limit_s

    def _rank(self, snapshot: Snapshot, notes: _Notes) -> None:
        """Carry the usage on to now, and put the jobs into the order that holds now."""
        usage = notes.usage.carried_on(snapshot.now, self.decay_half_life_s)
        unknown = snapshot.changed if usage.gpu_s else snapshot.jobs
        notes.usage = usage.knowing(snapshot.jobs[name].job for name in unknown)
        if snapshot.now >= notes.ranked_s + self.calc_period_s:
            tree = (snapshot.site and snapshot.site.tree) or ShareTree()
            used = notes.usage.gpu_s
            notes.ranked_s, notes.shares = snapshot.now, fair_tree(tree.with_users(used), used)
        ranking = replace(self._ranking, at_s=notes.ranked_s, shares=notes.shares)
        if ranking != self._backfill.strict.key:
            self._backfill.strict.reorder(ranking)


def _bars(job: Job, way: Way, cluster: Cluster) -> int:
    """Return the nodes of a job's partition, as Slurm's main scheduler passes over them all.

    Where no partitions are known each GPU type stands for one.
    """
    return reach(job, way, cluster) if job.nodes is None else cluster.mask(job.nodes)


_make_replan = maker(Replan)

_UNUSED = Usage()


@dataclass(slots=True)
class _Notes:
    """What the policy remembers from plan to plan."""

    backfilled_s: float = -math.inf
    ranked_s: float = -math.inf
    shares: Mapping[Association, float] = Map()
    usage: Usage = _UNUSED

    @classmethod
    def read(cls, memory: Mapping[str, Any]) -> _Notes:
        """Return what is written in a plan's memory; a new start where that is something else."""
        if memory.get("version") != _VERSION:
            return cls()
        ranked = memory.get("ranked")
        backfilled_s = memory.get("backfilled_s", -math.inf)
        if ranked is None:
            return cls(backfilled_s)
        return cls(
            backfilled_s,
            ranked["at_s"],
            {(account, user): share for account, user, share in ranked["shares"]},
            Usage(
                ranked["used_s"],
                {(account, user): gpu_s for account, user, gpu_s, _ in ranked["usage"]},
                {(account, user): gpus for account, user, _, gpus in ranked["usage"] if gpus},
            ),
        )

    def written(self) -> Mapping[str, object]:
        """Return the notes as JSON values."""
        memory: dict[str, object] = {"version": _VERSION}
        if self.backfilled_s > -math.inf:
            memory["backfilled_s"] = self.backfilled_s
        if self.ranked_s > -math.inf:
            usage = self.usage
            memory["ranked"] = {
                "at_s": self.ranked_s,
                "shares": [[*who, share] for who, share in sorted(self.shares.items())],
                "used_s": usage.at_s,
                "usage": [
                    [*who, gpu_s, usage.gpus.get(who, 0)]
                    for who, gpu_s in sorted(usage.gpu_s.items())
                ],
            }
        return memory


def _numbers(text: str) -> dict[str, int]:
    """Read `long=1,short=10`."""
    numbers = {}
    for part in filter(None, text.split(",")):
        name, equals, number = part.strip().partition("=")
        if not (name and equals and number.isdecimal()):
            raise InputError(
                f"slurm.partitions={text!r}: {part!r} is not NAME=NUMBER, as in long=1,short=10"
            )
        numbers[name] = int(number)
    return numbers
