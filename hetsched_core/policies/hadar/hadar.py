"""Hadar: prices that rise with load, and the jobs that gain most from GPUs at these prices.

Source: Sultana, Yuan, Tzeng, Chen, "Resource Heterogeneity-Aware and Utilization-Enhanced
Scheduling for Deep Learning Clusters" (first published at IPDPS '24), section III: a GPU on a node
with g of its c GPUs in use costs U_min (U_max / U_min)^(g / c) (equation 5); a job is placed where
its utility less that cost is largest, if that is above 0; a dynamic programme over the queue
decides what is placed (Algorithm 2, `queue`). The GPUs of a job may be of several types: it
runs at the speed of the slowest. `docs/policies/hadar.md` traces each formula and line to the code.

It knows speeds and how many samples a job has.

Deviations. The branch of the programme with the larger sum of payoffs wins; that of least cost, as
printed, schedules nothing. A job that finds no paying placement does not keep those behind it from
theirs, and a job left in favour of others gets what still pays it in the end. The price counts for
one slot, the present one. Among the placements of a job the largest payoff wins, not the least
cost, which would pick slow GPUs. The communication cost, not published, is what being spread takes
from the utility by the speeds, and a tenth of it for each further node where these say nothing.
Where a size is unknown, past runs of the profile stand in, then the time limit, then what the job
has done so far. Jobs are rigid: the lower median of the requirement set. Jobs that are not
preemptible keep what they have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np

from hetsched_core.errors import InputError
from hetsched_core.placement import FreeGpus, Way, rigid_way
from hetsched_core.placement.entries import NEVER, NO_ROOM, plan_placing
from hetsched_core.placement.keep import immovable, may_keep, present, staying
from hetsched_core.placement.pack import fastest_fit
from hetsched_core.policies.hadar.market import OpenNodes, bids
from hetsched_core.policies.hadar.prices import UTILITIES, Utility
from hetsched_core.policies.hadar.queue import QueueOutcome, SearchLimits, plan_queue
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.site import portions
from hetsched_core.types import (
    Configuration,
    Diagnostics,
    Job,
    JobView,
    Knowledge,
    Placed,
    Placement,
    Plan,
    Reason,
    ReasonCode,
    Replan,
    Snapshot,
    Trigger,
    Waiting,
)

NOT_AT_THIS_PRICE = Waiting(Reason(ReasonCode.PRICE))


class Replanning(StrEnum):
    """What is planned in a round: the jobs that wait, or all."""

    INCREMENTAL = "incremental"
    FULL = "full"


class Order(StrEnum):
    """What comes first in the queue: the first submitted, or the most utility per GPU at best."""

    ARRIVAL = "arrival"
    DENSITY = "density"


@dataclass(frozen=True)
class Hadar:
    """Place the jobs that gain most from GPUs at prices that rise with load."""

    replan: Replanning = parameter(
        Replanning.INCREMENTAL, "what is planned in a round: the jobs that wait, or all"
    )
    utility: Utility = parameter(Utility.EFFECTIVE_THROUGHPUT, "what a job is worth")
    order: Order = parameter(Order.ARRIVAL, "order of the queue")
    communication: float = parameter(
        0.1, "share of its utility that each further node costs a job where speeds do not tell"
    )
    states: int = parameter(4096, "states of the dynamic programme, over the whole queue")
    beam: int = parameter(8, "states that it keeps after each job at least")

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="hadar",
        summary="prices that rise with load, and a dynamic programme over payoffs; mixes GPU types",
        paper="Hadar (Sultana et al., IPDPS '24, section III)",
        knows=frozenset({Knowledge.TOTAL_SAMPLES, Knowledge.TIME_LIMIT}),
    )

    def __post_init__(self) -> None:
        """Refuse a programme without states, and a cost that is none."""
        if self.states < 1 or self.beam < 1:
            raise InputError(
                f"hadar.states={self.states} and hadar.beam={self.beam}: both count from 1"
            )
        if not 0.0 <= self.communication <= 1.0:
            raise InputError(
                f"hadar.communication={self.communication} is no share; from 0 to 1, such as 0.1"
            )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan the queue at this round's prices."""
        full = self.replan is Replanning.FULL
        kept = _fixed(snapshot) if full else staying(snapshot)
        jobs: list[tuple[JobView, Way]] = []
        active = snapshot.by_submission()
        parts = portions(snapshot, [view for view in active if view.id not in kept])
        part_of = {view.id: at for at, part in enumerate(parts) for view in part}
        queues: list[list[int]] = [[] for _ in parts]
        has = {}
        for view in active:
            way = rigid_way(view.job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
            if way is None or view.blocked is not None:
                continue
            if view.id not in kept:
                queues[part_of[view.id]].append(len(jobs))
                configuration = present(snapshot, view) if full else None
                if (
                    configuration is not None
                    and may_keep(snapshot, view, configuration)
                    and _may_return(snapshot, view.job, configuration)
                ):
                    has[len(jobs)] = configuration
            jobs.append((view, way))
        placed, diagnostics = kept, Diagnostics(method="no job waits")
        left: dict[str, float] = {}
        for queue in filter(None, queues):
            if FreeGpus.beside(snapshot, placed).full:
                left |= dict.fromkeys((jobs[at][0].id for at in queue), -np.inf)
                continue
            outcome, nodes = self._plan_queue(snapshot, placed, jobs, queue, has)
            placed = _on_nodes(snapshot, placed, jobs, nodes, outcome)
            left |= {jobs[at][0].id: payoff for at, payoff in outcome.left.items()}
            diagnostics = _diagnostics(outcome, nodes)

        def waits(snapshot: Snapshot, view: JobView) -> Waiting:
            way = rigid_way(view.job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
            if way is None:
                return NEVER
            return NO_ROOM if left.get(view.id) == -np.inf else NOT_AT_THIS_PRICE

        replan = Replan(on=frozenset({Trigger.ROUND, Trigger.NODE}))
        return plan_placing(snapshot, placed, waits, replan, diagnostics=diagnostics)

    def _plan_queue(
        self,
        snapshot: Snapshot,
        kept: Mapping[str, Placed],
        jobs: list[tuple[JobView, Way]],
        queue: list[int],
        has: Mapping[int, Configuration],
    ) -> tuple[QueueOutcome, OpenNodes]:
        nodes = OpenNodes.of(snapshot, kept, [view.job for view, _ in jobs])
        utility = UTILITIES[self.utility]
        market = bids(snapshot, nodes, jobs, has, utility, self.communication)
        if self.order is Order.DENSITY:
            best = np.maximum(
                market.one_node.max(axis=1, initial=0.0), market.several.max(axis=1, initial=0.0)
            )
            density = (best / market.demand[:, 0])[queue]
            queue = [queue[at] for at in np.argsort(-density, kind="stable")]
        limits = SearchLimits(self.states, self.beam)
        apart = self.replan is Replanning.FULL
        return plan_queue(nodes.nodes, market, queue, limits, apart=apart), nodes


def _fixed(snapshot: Snapshot) -> dict[str, Placed]:
    """Return what keeps its place even where all are planned: it may not move or not come back."""
    fixed = immovable(snapshot)
    for view in snapshot.by_submission():
        running = view.configuration
        if running is None or view.id in fixed or view.blocked is not None:
            continue
        if may_keep(snapshot, view, running) and not _may_return(snapshot, view.job, running):
            fixed[view.id] = Placed((Placement(running),))
    return fixed


def _may_return(snapshot: Snapshot, job: Job, configuration: Configuration) -> bool:
    return all(
        snapshot.nodes[name].open and snapshot.nodes[name].capacity > 0 and job.may_start_on(name)
        for name, _ in configuration
    )


def _on_nodes(
    snapshot: Snapshot,
    kept: Mapping[str, Placed],
    jobs: list[tuple[JobView, Way]],
    nodes: OpenNodes,
    outcome: QueueOutcome,
) -> dict[str, Placed]:
    """Return where all jobs go.

    Nodes that share a host share its CPUs and memory, which prices do not see: who finds these
    taken goes wherever else it fits.
    """
    free, placed = FreeGpus.beside(snapshot, kept), dict(kept)
    for at, pieces in outcome.placed.items():
        view, way = jobs[at]
        found: Configuration | None = Configuration.of(
            (nodes.names[node], gpus) for node, gpus in pieces
        )
        if found is not None and not free.fits(view.job, found):
            found = fastest_fit(snapshot, free, view.job, way, way.types)
        if found is not None:
            free.take(view.job, found)
            placed[view.id] = Placed((Placement(found),))
    return placed


def _diagnostics(outcome: QueueOutcome, nodes: OpenNodes) -> Diagnostics:
    return Diagnostics(
        method=outcome.method,
        objective=outcome.payoff,
        bound=outcome.payoff if outcome.exact else None,
        prices={
            f"{nodes.gpu_types[nodes.type_of_sort[sort]]} {used}/{capacity}": price
            for (sort, capacity, used), price in sorted(outcome.prices.items())
        },
    )
