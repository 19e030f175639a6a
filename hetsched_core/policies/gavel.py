"""Gavel: shares of time on each GPU type from a linear programme, made real in rounds.

Source: Narayanan, Santhanam, Kazhamiaka, Phanishayee, Zaharia, "Heterogeneity-Aware Cluster
Scheduling Policies for Deep Learning Workloads", OSDI '20: objectives in section 4
(`gavel_shares`), rounds in section 5. When jobs came or went, the programme gives each job a share
of its time on each type. In every round the job with the highest priority x_ij / (time received on
type j since then) is served first, with all its GPUs of one type; jobs without a share take what is
left. GPUs that come free during a round wait for the next one, but at a site
(`placement.between_rounds`).

It knows speeds by GPU type and, for the objectives of size, how many samples a job has.

Deviations. No two jobs share a GPU (no packing), no cost or SLO terms. Jobs are rigid: the lower
median of the requirement set. A job counts as half a round served when shares are computed, as in
the published simulator; that one computes them at most every 1,920 s and lets a job that came since
block GPUs without running, where here it may run on what is left (`reallocate_s`). Jobs that are
not preemptible keep what they have, outside the programme. A job that only a mix of GPU types holds
is refused. Where a size is unknown, the time limit stands in, then what the job has done so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetsched_core.errors import InputError
from hetsched_core.optimize import Point
from hetsched_core.placement.entries import behind, plan_placing
from hetsched_core.placement.keep import immovable
from hetsched_core.placement.one_type import OneTypeChoice, assign, one_type_way
from hetsched_core.placement.pools import Pools
from hetsched_core.placement.ways import type_speeds
from hetsched_core.policies.gavel_shares import (
    GavelDemand,
    finish_time_fairness,
    isolated_speeds,
    makespan,
    max_min_fairness,
    total_throughput,
)
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.site import in_turn
from hetsched_core.types import (
    Diagnostics,
    JobView,
    Knowledge,
    Placed,
    Plan,
    Replan,
    Snapshot,
    Trigger,
)

Floats = NDArray[np.float64]

_VERSION = 1


class Objective(StrEnum):
    """What the shares are to be best for (Gavel section 4)."""

    MAX_MIN_FAIRNESS = "max-min-fairness"
    TOTAL_THROUGHPUT = "total-throughput"
    MAKESPAN = "makespan"
    FINISH_TIME_FAIRNESS = "finish-time-fairness"


@dataclass(frozen=True)
class Gavel:
    """Time shares per GPU type by a linear programme, turned into rounds."""

    objective: Objective = parameter(Objective.MAX_MIN_FAIRNESS, "what the shares are best for")
    reallocate_s: float = parameter(
        1920.0, "least seconds between two computations of the shares, when jobs come and go"
    )
    point: Point = parameter(
        Point.VERTEX, "which of several optimal shares: a corner, or what is open spread out"
    )

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="gavel",
        summary="shares of time per GPU type by a linear programme, in rounds",
        paper="Gavel (Narayanan et al., OSDI '20)",
        knows=frozenset({Knowledge.TOTAL_SAMPLES, Knowledge.TIME_LIMIT}),
        takes_turns=True,
    )

    def __post_init__(self) -> None:
        """Refuse an interval that no clock reaches."""
        if not 0 <= self.reallocate_s < math.inf:
            raise InputError(
                f"gavel.reallocate_s={self.reallocate_s} is not a number of at least 0 seconds"
            )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Compute shares if jobs came or went, and serve what is furthest behind its share."""
        fixed = immovable(snapshot)
        queue = GavelQueue.of(snapshot, fixed)
        notes = GavelNotes.read(snapshot.previous.memory, snapshot.cluster.gpu_types)
        diagnostics = snapshot.previous.diagnostics
        if notes.outdated(queue) and snapshot.now >= notes.at_s + self.reallocate_s:
            notes, diagnostics = self._allocate(queue, notes)
        order = queue.by_priority(notes)
        chosen = queue.choose(order)
        spare = (queue.choice(*place) for place in order if place[0] not in chosen)
        placed = assign(snapshot, fixed, list(chosen.values()), spare)

        return plan_placing(
            snapshot,
            placed,
            behind,
            Replan(on=frozenset({Trigger.ROUND, Trigger.NODE})),
            memory=notes.as_memory(),
            diagnostics=diagnostics,
        )

    def _allocate(self, queue: GavelQueue, notes: GavelNotes) -> tuple[GavelNotes, Diagnostics]:
        """Solve the programme for the jobs that can run on what there is now."""
        shares = np.zeros_like(queue.speeds)
        isolated: dict[str, list[float]] = {}
        diagnostics = Diagnostics()
        speeds = queue.by_pool(queue.speeds)
        speeds = np.where(queue.counts[:, None] <= queue.capacity, speeds, 0.0)
        able = np.flatnonzero(speeds.any(axis=1))
        if able.size:
            demand = GavelDemand(speeds[able], queue.counts[able], queue.capacity)
            if len(queue.capacity) > len(queue.gpu_types):
                own = queue.by_pool(np.ones_like(queue.speeds)) > 0
                demand = replace(demand, inside=queue.pools.inside, own=own[able])
            views = [queue.views[at] for at in able]
            now = queue.snapshot.now
            match self.objective:
                case Objective.MAX_MIN_FAIRNESS:
                    weights = np.array([view.job.weight for view in views])
                    found = max_min_fairness(demand, weights, self.point)
                case Objective.TOTAL_THROUGHPUT:
                    found = total_throughput(demand, self.point)
                case Objective.MAKESPAN:
                    found = makespan(demand, _remaining(views, demand, now), self.point)
                case Objective.FINISH_TIME_FAIRNESS:
                    isolated = _isolated(views, isolated_speeds(demand), notes, now)
                    found = finish_time_fairness(
                        demand,
                        _remaining(views, demand, now),
                        np.array([now - view.job.submit_s for view in views]),
                        np.array([isolated[view.id][0] for view in views]),
                        self.point,
                    )
            shares[able] = queue.by_type(able, found.time)
            diagnostics = Diagnostics(
                method=f"{self.objective.value}, {self.point.value} point",
                objective=found.objective,
                prices=dict(zip(queue.pools.labels, found.prices.tolist(), strict=True)),
            )
        ids = [view.id for view in queue.views]
        return (
            GavelNotes(
                at_s=queue.snapshot.now,
                gpu_types=notes.gpu_types,
                capacity=queue.capacity.tolist(),
                shares=dict(zip(ids, shares.tolist(), strict=True)),
                received_s=dict(zip(ids, queue.received_s.tolist(), strict=True)),
                isolated=isolated,
            ),
            diagnostics,
        )


@dataclass(frozen=True, slots=True)
class GavelNotes:
    """What Gavel remembers between rounds: the last shares, and the state they were made from.

    Lists by GPU type, for each job of that time: `shares` of its time, `received_s` on each type
    until then. `isolated` (finish-time fairness): the seconds that a job's samples would have taken
    in isolation, the samples, and the isolated speed from then on.
    """

    gpu_types: tuple[str, ...]
    at_s: float = -math.inf
    capacity: list[float] = field(default_factory=list)
    shares: dict[str, list[float]] = field(default_factory=dict)
    received_s: dict[str, list[float]] = field(default_factory=dict)
    isolated: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def read(cls, memory: Mapping[str, Any], gpu_types: tuple[str, ...]) -> GavelNotes:
        """Return the notes of a plan's memory; empty ones if they are lost or of other types."""
        if memory.get("version") != _VERSION or tuple(memory["gpu_types"]) != gpu_types:
            return cls(gpu_types)
        return cls(
            gpu_types,
            *(memory[key] for key in ("at_s", "capacity", "shares", "received_s", "isolated")),
        )

    def as_memory(self) -> dict[str, object]:
        """Return the notes as JSON values."""
        if self.at_s == -math.inf:
            return {}
        return {
            "version": _VERSION,
            "gpu_types": list(self.gpu_types),
            "at_s": self.at_s,
            "capacity": self.capacity,
            "shares": self.shares,
            "received_s": self.received_s,
            "isolated": self.isolated,
        }

    def outdated(self, queue: GavelQueue) -> bool:
        """Whether jobs or GPUs came or went since the shares were computed."""
        return (
            len(self.shares) != len(queue.views)
            or any(view.id not in self.shares for view in queue.views)
            or self.capacity != queue.capacity.tolist()
        )


@dataclass(frozen=True, slots=True, eq=False)
class GavelQueue:
    """The I jobs that compete, by submission, for the J GPU types of the cluster.

    Attributes:
        snapshot: where they come from.
        gpu_types: the J types.
        views: the I jobs.
        counts: (I,) GPUs.
        speeds: (I, J) samples/s of the whole job, 0 where it cannot run.
        received_s: (I, J) seconds that it has held its GPUs of each type.
        pools: the P pools that there are to be shared; the first J are whole types.
        own: (I, J) the job's pool of each type, -1 for none.
    """

    snapshot: Snapshot
    gpu_types: tuple[str, ...]
    views: list[JobView]
    counts: Floats
    speeds: Floats
    received_s: Floats
    pools: Pools
    own: NDArray[np.int64]

    @property
    def capacity(self) -> Floats:
        """(P,) GPUs of each pool."""
        return self.pools.capacity

    @classmethod
    def of(cls, snapshot: Snapshot, fixed: Mapping[str, Placed]) -> GavelQueue:
        """Return the jobs that may run and may be moved, and what `fixed` leaves to them."""
        types = snapshot.cluster.gpu_types
        index = {gpu_type: at for at, gpu_type in enumerate(types)}
        views, counts, speeds, received = [], [], [], []
        for view in snapshot.by_submission():
            if view.blocked is not None or view.id in fixed:
                continue
            way = one_type_way(view, snapshot)
            if way is None:
                continue
            views.append(view)
            counts.append(way.count)
            speeds.append(type_speeds(snapshot.cluster, snapshot.speeds, view.job, way))
            received.append(_received_s(view, way.count, index, snapshot))
        shape = (len(views), len(types))
        pools = Pools.of(snapshot, fixed, (view.job for view in views))
        return cls(
            snapshot,
            types,
            views,
            np.array(counts, np.float64),
            np.array(speeds, np.float64).reshape(shape),
            np.array(received, np.float64).reshape(shape),
            pools,
            np.array([tuple(pools.own(view.job)) for view in views], np.int64).reshape(shape),
        )

    def by_pool(self, values: Floats) -> Floats:
        """Return (I, P) what (I, J) values by type are in each job's own pools, 0 elsewhere."""
        pooled = np.zeros((len(self.views), len(self.capacity)))
        job, gpu_type = np.nonzero(self.own >= 0)
        pooled[job, self.own[job, gpu_type]] = values[job, gpu_type]
        return pooled

    def by_type(self, jobs: NDArray[np.intp], pooled: Floats) -> Floats:
        """Return what values of some jobs in their own pools are by type."""
        own = self.own[jobs]
        return np.where(own >= 0, np.take_along_axis(pooled, np.maximum(own, 0), axis=1), 0.0)

    def by_priority(self, notes: GavelNotes) -> list[tuple[int, int]]:
        """Return (job, type) places in the order in which they are served.

        The types come fastest first, and on each the jobs with the highest share per time received;
        equals keep the order of submission. One that came after the shares has none: last.
        """
        half_round_s = (self.snapshot.round.end_s - self.snapshot.round.start_s) / 2.0
        none = [0.0] * len(notes.gpu_types)
        ids = [view.id for view in self.views]
        at = {job: number for number, job in enumerate(ids)}
        shares = np.array([notes.shares.get(i, none) for i in ids]).reshape(self.speeds.shape)
        before = np.array([notes.received_s.get(i, none) for i in ids]).reshape(self.speeds.shape)
        priority = shares / (np.maximum(self.received_s - before, 0.0) + half_round_s)
        order = []
        for gpu_type in self._fastest_first():
            on_type = np.flatnonzero(self.speeds[:, gpu_type] > 0)
            ranked = on_type[np.argsort(-priority[on_type, gpu_type], kind="stable")]
            turn = in_turn(
                self.snapshot, [self.views[job] for job in ranked.tolist()], running_stay=False
            )
            order += [(at[view.id], gpu_type) for view in turn]
        return order

    def choose(self, order: Iterable[tuple[int, int]]) -> dict[int, OneTypeChoice]:
        """Return what is served where: each job once, as long as its type has GPUs for it."""
        left, counts = self.capacity.tolist(), self.counts.tolist()
        around, own = self.pools.around(), self.own.tolist()
        chosen: dict[int, OneTypeChoice] = {}
        for job, gpu_type in order:
            if job in chosen or own[job][gpu_type] < 0:
                continue
            pools = around[own[job][gpu_type]]
            if all(counts[job] <= left[pool] for pool in pools):
                for pool in pools:
                    left[pool] -= counts[job]
                chosen[job] = self.choice(job, gpu_type)
        return chosen

    def choice(self, job: int, gpu_type: int) -> OneTypeChoice:
        """Return the choice that a (job, type) place stands for."""
        return OneTypeChoice(self.views[job], self.gpu_types[gpu_type], int(self.counts[job]))

    def _fastest_first(self) -> list[int]:
        """Types by the speed that the jobs have there, relative to their best, on average."""
        if not self.views:
            return []
        relative = self.speeds / self.speeds.max(axis=1, keepdims=True)
        order: list[int] = np.argsort(-relative.mean(axis=0), kind="stable").tolist()
        return order


def _received_s(
    view: JobView, count: int, index: Mapping[str, int], snapshot: Snapshot
) -> list[float]:
    """Seconds that a job has held `count` GPUs of each type."""
    gpu_s = [0.0] * len(index)
    for gpu_type, seconds in view.attained_at(snapshot.now, snapshot.cluster).items():
        if gpu_type in index:
            gpu_s[index[gpu_type]] += seconds
    return [seconds / count for seconds in gpu_s]


def _remaining(views: Sequence[JobView], demand: GavelDemand, now: float) -> Floats:
    """Samples left of each job, at least what it does in a second at its best."""
    fastest = demand.speeds.max(axis=1).tolist()
    return np.array(
        [_remaining_of(view, speed, now) for view, speed in zip(views, fastest, strict=True)]
    )


def _remaining_of(view: JobView, fastest: float, now: float) -> float:
    done, total = view.samples_at(now), view.job.total_samples
    if total is None and view.job.time_limit_s is not None:
        total = view.job.time_limit_s * fastest
    return max(done if total is None else total - done, fastest)


def _isolated(
    views: Sequence[JobView], speeds: Floats, notes: GavelNotes, now: float
) -> dict[str, list[float]]:
    """Carry on how long the samples done so far would have taken each job in isolation."""
    isolated = {}
    for view, speed in zip(views, speeds.tolist(), strict=True):
        seconds, samples, speed_then = notes.isolated.get(view.id, (0.0, 0.0, speed))
        done = view.samples_at(now)
        isolated[view.id] = [seconds + max(0.0, done - samples) / speed_then, done, speed]
    return isolated
