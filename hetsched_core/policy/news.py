"""What has come about since a policy was asked for a plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from hetsched_core.types import Trigger


@dataclass(slots=True)
class News:
    """Why to plan anew, and what the next plan has to look at.

    Attributes:
        triggers: reasons to plan that have come up.
        changed: the jobs of which something has changed.
        gone: the jobs that are there no more.
        nodes_changed: whether any node has.
        vacated: the nodes that a run has left.
        disturbed: whether a job that held nothing, or a run of one that goes on, has ended.
    """

    triggers: set[Trigger] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    nodes_changed: bool = False
    vacated: set[str] = field(default_factory=set)
    disturbed: bool = False

    def take_up(self, older: News) -> None:
        """Add what a plan was told of that does not come into force: the next one is told again."""
        self.gone |= older.gone
        self.changed |= older.changed - self.gone
        self.nodes_changed |= older.nodes_changed
