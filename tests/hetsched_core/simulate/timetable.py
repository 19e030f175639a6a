"""Policies that do what they are told, when they are told: for tests of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from hetsched_core.policy import Policy, PolicyInfo
from hetsched_core.types import (
    Entry,
    ExecutionModel,
    Knowledge,
    Placement,
    Plan,
    Replan,
    Snapshot,
    TaskSequence,
    Trigger,
)
from tests.hetsched_core.worlds import NO_ROOM, plan_of

AS_TOLD = PolicyInfo(name="as-told", summary="", paper="")


@dataclass(frozen=True)
class Step:
    """What holds from a time on: entries (jobs left out wait), profiling runs, sequences."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    profiles: Mapping[str, Placement] = field(default_factory=dict)
    sequences: tuple[TaskSequence, ...] = ()


def timetable(
    steps: Mapping[float, Step | Mapping[str, Entry]],
    *,
    on: frozenset[Trigger] | None = None,
    model: ExecutionModel = ExecutionModel.GANG,
    knows: frozenset[Knowledge] = frozenset(),
    seen: list[Snapshot] | None = None,
) -> Policy:
    """Return a policy that follows `steps`, {seconds: step}, and is asked again at each of them.

    It keeps what it is shown in `seen`.
    """
    program = {s: e if isinstance(e, Step) else Step(e) for s, e in sorted(steps.items())}
    info = replace(AS_TOLD, model=model, knows=knows)

    def plan(snapshot: Snapshot) -> Plan:
        begun = [s for s in program if s <= snapshot.effective_s]
        step = program[max(begun)] if begun else Step()
        made = plan_of(
            {job: step.entries.get(job, NO_ROOM) for job in snapshot.jobs},
            profiles={j: p for j, p in step.profiles.items() if j in snapshot.jobs},
            sequences=step.sequences,
        )
        later = min((s for s in program if s > snapshot.effective_s), default=None)
        again = Replan(at_s=later) if on is None else Replan(on, later)
        return replace(made, replan=again)

    return watched(policy_of(plan, info), [] if seen is None else seen)


def policy_of(
    make: Callable[[Snapshot], Plan],
    described: PolicyInfo = AS_TOLD,
) -> Policy:
    """Return a policy whose plans this function makes."""

    @dataclass(frozen=True)
    class Made:
        info: ClassVar[PolicyInfo] = described

        def plan(self, snapshot: Snapshot) -> Plan:
            return make(snapshot)

    return Made()


def watched(policy: Policy, seen: list[Snapshot]) -> Policy:
    """Return a policy that keeps in `seen` what it is shown."""

    def plan(snapshot: Snapshot) -> Plan:
        seen.append(snapshot)
        return policy.plan(snapshot)

    return policy_of(plan, policy.info)
