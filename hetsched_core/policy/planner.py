"""When a policy is asked for a plan, and the check of its answer: in the simulator and the daemon.

Both drive it in the same way: what they observe collects triggers, `due` says whether the plan in
force wants to be made anew on them, `ask` makes it, and `diff` tells what brings the jobs nearer to
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

from immutables import Map

from hetsched_core.errors import PlanError
from hetsched_core.placement.asleep import wake_last
from hetsched_core.placement.between_rounds import filled_up
from hetsched_core.placement.outrank import outrank
from hetsched_core.placement.pack import Packing
from hetsched_core.policy.check import PlanChecker, Violation
from hetsched_core.policy.news import News
from hetsched_core.policy.protocol import Policy
from hetsched_core.site import within_limits, without_excess
from hetsched_core.types import (
    EMPTY_PLAN,
    Cluster,
    ExecutionModel,
    JobView,
    NodeView,
    Plan,
    Snapshot,
    Trigger,
)

_ALWAYS = frozenset({Trigger.NODE, Trigger.TIMER})
"""No policy may sleep through a change of the cluster, or past the time that it named itself."""

_ARRIVAL = frozenset({Trigger.ARRIVAL})
_END = frozenset({Trigger.END})
_FILL = _ARRIVAL | _END
"""On these the plan of a round is filled up before the next one."""


class Observation(Protocol):
    """What is known of a cluster, simulated or live.

    Attributes:
        news: what has come about since the last plan.
        cluster, nodes, jobs: as in a snapshot.
        sited: whether a site's word is known.
    """

    news: News
    jobs: Map[str, JobView]

    @property
    def nodes(self) -> Map[str, NodeView]:
        """The nodes, by name."""
        ...

    @property
    def sited(self) -> bool:
        """Whether a site's word is known."""
        ...

    @property
    def cluster(self) -> Cluster | None:
        """The nodes; None before any is known."""


class Answer(NamedTuple):
    """A policy's plan, the rules that it breaks, and how long it took to make, in seconds."""

    plan: Plan
    violations: tuple[Violation, ...]
    took_s: float


class Planner:
    """A policy, its plan in force, and when it is to be asked for another.

    Attributes:
        policy: the scheduler.
        checker: holds what it answers against the rules.
        plan: the plan in force.
    """

    def __init__(self, policy: Policy, stopwatch: Callable[[], float]) -> None:
        """Begin without a plan; `stopwatch` (seconds) times the decisions."""
        self.policy = policy
        self.checker = PlanChecker(policy.info.model)
        self.plan = EMPTY_PLAN
        self._stopwatch = stopwatch
        self._fills = _fills(policy)

    def due(self, world: Observation) -> bool:
        """Whether something has happened on which the plan in force wants to be made anew.

        At a site GPUs that are idle do not wait for the policy's next round, nor does a job that
        outranks others.
        """
        if world.sited and world.news.triggers & (_FILL if self._fills else _ARRIVAL):
            return True
        if self.plan is EMPTY_PLAN:
            return bool(world.news.triggers and world.jobs)
        replan = self.plan.replan
        if replan.room is not None and world.news.disturbed:
            return bool(world.news.triggers)
        due = world.news.triggers & (replan.on | _ALWAYS)
        if due == _END and replan.room is not None:
            return _has_room(world, replan.room)
        return bool(due)

    def ask(
        self, snapshot: Snapshot, during: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> Answer:
        """Ask for a plan and check it; it is not in force yet.

        Args:
            snapshot: what the policy is told.
            during: what goes on while it thinks.
        """
        begun = self._stopwatch()
        with during():
            plan = plan_by(self.policy, snapshot)
        took_s = self._stopwatch() - begun
        return Answer(plan, self.checker.check(snapshot, plan), took_s)


def plan_by(policy: Policy, snapshot: Snapshot) -> Plan:
    """Return a policy's plan, which keeps the site's limits and in which higher tiers go first.

    Nodes that sleep are woken last.

    Between the rounds of a policy that plans in rounds it is the plan in force, filled up.
    """
    before, model = snapshot.previous, policy.info.model
    asked = snapshot.triggers & (before.replan.on | _ALWAYS)
    known = snapshot.site is not None and before is not EMPTY_PLAN
    fills = _fills(policy)
    if fills and known and not asked:
        # Where jobs take turns, the round stops what has overtaken others.
        packing = Packing.FILL if policy.info.takes_turns else Packing.STRICT_ORDER
        snapshot = within_limits(snapshot, before)
        plan = filled_up(snapshot, packing)
    else:
        if not policy.info.keeps_limits:
            snapshot = within_limits(snapshot)
        plan = policy.plan(snapshot)
        if not isinstance(plan, Plan):
            raise PlanError(f"plan() returned a {type(plan).__name__}, not a Plan")
    if fills:
        return wake_last(snapshot, outrank(snapshot, plan))
    return without_excess(snapshot, plan) if model is ExecutionModel.COPIES else plan


def _fills(policy: Policy) -> bool:
    """Whether GPUs that a plan leaves idle are given away between rounds.

    A baseline that cannot run live gives and stops by itself.
    """
    return policy.info.model is ExecutionModel.GANG and policy.info.live


def _has_room(world: Observation, room: Mapping[str, int]) -> bool:
    """Whether so many GPUs of one of these types are free on a node of a vacated host.

    A run also leaves the CPUs and the memory that it shared with the other nodes of its host.
    """
    cluster = world.cluster
    assert cluster is not None
    hosts = {cluster[name].host for name in world.news.vacated}
    views = (world.nodes[name] for host in hosts for name in cluster.on_host(host))
    return any(
        view.open and view.capacity - view.held_gpus >= room.get(view.node.gpu_type, math.inf)
        for view in views
    )
