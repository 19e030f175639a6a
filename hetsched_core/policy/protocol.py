"""The one interface between a scheduling system and everything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from hetsched_core.types import ExecutionModel, Knowledge, Plan, Snapshot


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """What a policy says of itself.

    Attributes:
        name: the name users choose it by.
        summary: one line on what it does.
        paper: where it comes from (authors or system, venue, section), or "" for common practice.
        model: how its placements run.
        knows: what it must be told beyond what every policy sees; it is shown nothing else.
        takes_turns: whether equal jobs take turns, which change when a round starts; else none of
            them is ever stopped for another.
        keeps_limits: whether it counts the site's limits over several jobs itself, as it places
            jobs; else it is shown those as blocked for which nothing is left in the site's order.
        replay_only: why it cannot schedule a live cluster; "" if it can.
    """

    name: str
    summary: str
    paper: str
    model: ExecutionModel = ExecutionModel.GANG
    knows: frozenset[Knowledge] = frozenset()
    takes_turns: bool = False
    keeps_limits: bool = False
    replay_only: str = ""

    @property
    def live(self) -> bool:
        """Whether the policy can schedule a live cluster."""
        return not self.replay_only


class Policy(Protocol):
    """A scheduler: a frozen dataclass whose fields are its parameters, and one pure function.

    `plan` gets everything it may know in the snapshot and returns the desired state of every active
    job: the same snapshot gives the same plan. Whatever it wants to remember goes into
    `Plan.memory`, comes back in `Snapshot.previous.memory`, and may be lost at any time.
    """

    info: ClassVar[PolicyInfo]

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the desired state for this snapshot."""
        ...
