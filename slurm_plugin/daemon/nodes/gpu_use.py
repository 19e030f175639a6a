"""What the GPUs of a node are used for: every GPU once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hetsched_core.types import NodeView, Snapshot


@dataclass(frozen=True, slots=True)
class GpuUse:
    """GPUs held by jobs of ours, foreign (other jobs'), idle, or closed: not to be used now."""

    held: int = 0
    foreign: int = 0
    closed: int = 0
    idle: int = 0

    def __add__(self, other: GpuUse) -> GpuUse:
        """Return both together."""
        return GpuUse(
            self.held + other.held,
            self.foreign + other.foreign,
            self.closed + other.closed,
            self.idle + other.idle,
        )

    @property
    def all(self) -> int:
        """All GPUs."""
        return self.held + self.foreign + self.closed + self.idle


def gpu_uses(snapshot: Snapshot) -> Iterator[tuple[NodeView, str, GpuUse]]:
    """Yield each node, its word, and how its GPUs are used.

    The word is `reserved` of one that is so now, for others, and `asleep` of one that is powered
    down.
    """
    now = (each.nodes for each in snapshot.windows if each.from_s <= snapshot.now)
    reserved = frozenset[str]().union(*now)
    for view in snapshot.node_views():
        theirs = view.open and view.node.name in reserved
        left = max(0, view.node.gpus - view.held_gpus - view.foreign_gpus)
        idle = left if view.open and not theirs else 0
        use = GpuUse(view.held_gpus, view.foreign_gpus, left - idle, idle)
        rests = view.open and view.node.name in snapshot.asleep
        yield view, "reserved" if theirs else "asleep" if rests else view.word, use
