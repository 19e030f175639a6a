"""Hops: configurations on nodes for the head of the queue, by a priority-weighted programme.

Source: Wang, Wang, Zheng, "Hops: Fine-grained heterogeneous sensing, efficient and fair Deep
Learning cluster scheduling system", SoCC '24, section 3.6; profiling queue section 3.2. At the
start of a round every GPU counts as idle, and the jobs of the service window, running and waiting,
compete for configurations. Then, and whenever jobs come or end within the round, the GPUs that are
left over are planned again, for jobs that hold none. What holds each part:

    round                one call: what is done in which order, and the answer
    standing             what jobs keep meanwhile
    queue                priorities and their weights, service window, notes for the next plan
    profiling            the profiling queue
    demand               what jobs ask for, sensitivity to being spread
    room                 what there is to share out, in classes of interchangeable nodes
    configurations       what each job could get, and how fast it is there
    solve                one plan: the programme, and nodes for what it chose

It knows speeds, by node where they were measured, and sizes as far as the priority asks for them.

Deviations: `docs/policies/hops.md` traces every paragraph of the paper and names them all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from hetsched_core.errors import InputError
from hetsched_core.policies.hops.configurations import Neighbours
from hetsched_core.policies.hops.queue import Priority
from hetsched_core.policies.hops.round import HopsRound
from hetsched_core.policies.hops.standing import Standing
from hetsched_core.policy import Policy, PolicyInfo, parameter
from hetsched_core.types import (
    Knowledge,
    Plan,
    Replan,
    Snapshot,
    Trigger,
)

MOST_AHEAD = 0.9
"""What part of a round a plan may be made ahead: in the rest, later plans use what falls idle."""

_TRIGGERS = frozenset({Trigger.ROUND, Trigger.ARRIVAL, Trigger.END, Trigger.NODE, Trigger.PROFILE})


def refuse_outside(policy: Policy, **ranges: tuple[float, float]) -> None:
    """Refuse a policy's parameters that are not within their least and most values.

    Raises:
        InputError: one is not.
    """
    for name, (least, most) in ranges.items():
        value = getattr(policy, name)
        if not least <= value <= most:
            raise InputError(
                f"{policy.info.name}.{name}={value} is not between {least:g} and {most:g}"
            )


@dataclass(frozen=True)
class Hops:
    """Throughput weighted with priority, for as many jobs as the cluster could hold."""

    priority: Priority = parameter(Priority.LATENCY_RATIO, "what orders and weighs the queue")
    lam: float = parameter(1.0, "lambda: 0 for throughput alone, large or inf for strict priority")
    gap: float = parameter(5e-4, "relative gap at which a solution is good enough")
    sensitivity: float = parameter(
        1.4, "speed per GPU on one node over that on two, above which a job is not spread (sigma)"
    )
    window: float = parameter(
        1.0, "smallest requirements in the service window, relative to the cluster's GPUs"
    )
    adjustment: bool = parameter(
        True, "let jobs behind the window that are easily spread fill what is left"
    )
    neighbours: Neighbours = parameter(
        Neighbours.ANY, "nodes a job may be spread over: any, or neighbours in the cluster's order"
    )
    groups: bool = parameter(True, "keep a spread job inside a topology group that can hold it")
    restart_weight: float = parameter(
        3.0, "how many times its cost a restart counts in the decision; 0: not at all (paper)"
    )
    speed_step: float = parameter(
        0.05, "nodes of a type count as equally fast if their mean speeds differ by no more"
    )
    plan_ahead_s: float = parameter(
        0.0, "make a round's plan so many seconds before it, up to 0.9 rounds; 0: at its start"
    )
    profile_iterations: int = parameter(
        50, "iterations of a profiling run; 0: no profiling, estimates as they are"
    )
    profile_limit_s: float = parameter(300.0, "seconds after which a profiling run is given up")

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="hops",
        summary="priority-weighted throughput by an integer programme, in rounds and between them",
        paper="Hops (Wang, Wang, Zheng, SoCC '24, section 3.6)",
        knows=frozenset({Knowledge.TOTAL_SAMPLES, Knowledge.TIME_LIMIT}),
        takes_turns=True,
    )
    _standing: Standing = field(default_factory=Standing, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        refuse_outside(
            self,
            lam=(0.0, math.inf),
            gap=(0.0, 1.0),
            sensitivity=(0.0, math.inf),
            window=(1e-6, math.inf),
            restart_weight=(0.0, 1e3),
            speed_step=(0.0, math.inf),
            plan_ahead_s=(0.0, 1e9),
            profile_iterations=(0, 1e9),
            profile_limit_s=(1e-3, 1e9),
        )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan a whole round when one starts, or ahead of it; else what is left over."""
        start_s, end_s = snapshot.round.start_s, snapshot.round.end_s
        begin_s = end_s - min(self.plan_ahead_s, MOST_AHEAD * (end_s - start_s))
        ahead = self.plan_ahead_s > 0 and snapshot.now >= begin_s
        if ahead:
            begin_s += end_s - start_s
        hops_round = HopsRound(
            self,
            snapshot,
            self._standing,
            new_round=ahead or (Trigger.ROUND in snapshot.triggers and self.plan_ahead_s == 0),
            from_s=end_s if ahead else snapshot.now,
        )
        hops_round.share_out()
        return hops_round.answer(
            Replan(on=_TRIGGERS, at_s=begin_s if self.plan_ahead_s > 0 else None),
            valid_from_s=end_s if ahead else -math.inf,
        )
