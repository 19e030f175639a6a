"""What the GPUs of a node are used for: every GPU once."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched_core.types import NodeView


@dataclass(frozen=True, slots=True)
class GpuUse:
    """GPUs held by jobs of ours, foreign (other jobs'), idle, or closed: idle, not to be used."""

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


def gpu_use(view: NodeView) -> GpuUse:
    """Return how a node's GPUs are used."""
    left = max(0, view.node.gpus - view.held_gpus - view.foreign_gpus)
    if view.open:
        return GpuUse(view.held_gpus, view.foreign_gpus, 0, left)
    return GpuUse(view.held_gpus, view.foreign_gpus, left, 0)
