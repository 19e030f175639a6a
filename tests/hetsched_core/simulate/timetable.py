"""A policy that does what it is told, when it is told: for tests of the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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

    @dataclass(frozen=True)
    class Timetable:
        info: ClassVar[PolicyInfo] = PolicyInfo(
            name="timetable", summary="as told", paper="", model=model, knows=knows
        )

        def plan(self, snapshot: Snapshot) -> Plan:
            if seen is not None:
                seen.append(snapshot)
            begun = [s for s in program if s <= snapshot.effective_s]
            step = program[max(begun)] if begun else Step()
            made = plan_of(
                {job: step.entries.get(job, NO_ROOM) for job in snapshot.jobs},
                profiles={j: p for j, p in step.profiles.items() if j in snapshot.jobs},
                sequences=step.sequences,
            )
            later = [s for s in program if s > snapshot.effective_s]
            replan = Replan() if on is None else Replan(on=on)
            return Plan(
                made.entries,
                profiles=made.profiles,
                sequences=made.sequences,
                replan=Replan(replan.on, at_s=min(later, default=None)),
            )

    return Timetable()
