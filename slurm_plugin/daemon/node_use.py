"""What is in use on the nodes: by jobs of ours, and by all others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hetsched_core.types import Node, NodeCondition, NodeView
from slurm_plugin.backend import JobState, SlurmNode
from slurm_plugin.daemon.managed import ManagedJob


@dataclass(slots=True)
class Use:
    """What is in use on a node: GPUs, CPUs, MiB."""

    gpus: int = 0
    cpus: float = 0.0
    memory_mb: float = 0.0

    def add(self, gpus: int, cpus: float, memory_mb: float) -> None:
        """Use so much more."""
        self.gpus += gpus
        self.cpus += cpus
        self.memory_mb += memory_mb

    def or_more(self, other: Use) -> Use:
        """Return the greater of both, in each respect."""
        return Use(
            max(self.gpus, other.gpus),
            max(self.cpus, other.cpus),
            max(self.memory_mb, other.memory_mb),
        )


_NOTHING = Use()


def used_by(managed: Iterable[ManagedJob]) -> Mapping[str, Use]:
    """Return what Slurm counts as in use by our jobs, by node: those that have begun."""
    found: dict[str, Use] = defaultdict(Use)
    for known in managed:
        if known.run is not None and known.slurm.state is not JobState.PENDING:
            for name, gpus in known.run.configuration:
                found[name].add(gpus, *known.share.get(name, (0.0, 0.0)))
    return found


def node_views(
    nodes: Iterable[SlurmNode],
    views: Mapping[str, NodeView],
    managed: Iterable[ManagedJob],
    before: Mapping[str, Use],
    ending: Mapping[str, int],
    left_out: Mapping[str, str],
) -> Iterator[NodeView]:
    """Yield the nodes as they stand now.

    What is in use and not held by jobs of ours is somebody else's. Nodes are read a moment before
    jobs are, so that a node may still count what has ended since the last look, or no longer:
    within what that leaves open, others use what they used.

    Args:
        nodes: as Slurm shows them.
        views: as they stood before, by name; nodes without one are passed over.
        managed: our jobs.
        before: what was `used_by` them at the last look.
        ending: the GPUs of jobs that end and are none of ours, by node. Slurm may show them as free
            long before their processes have ended, and starts nothing on them.
        left_out: why nothing is to start on nodes, by node, whatever Slurm says of them.
    """
    managed = tuple(managed)
    held: dict[str, Use] = defaultdict(Use)
    facts: dict[str, Use] = defaultdict(Use)
    for known in managed:
        if known.run is None:
            continue
        needs = known.whole
        for name, gpus in known.run.configuration:
            takes = gpus, gpus * needs.cpus_per_gpu, gpus * needs.memory_mb_per_gpu
            held[name].add(*takes)
            if known.slurm.state is not JobState.PENDING:
                facts[name].add(*takes)
    begun = used_by(managed)
    for node in nodes:
        if node.name not in views:
            continue
        now = begun.get(node.name, _NOTHING)
        perhaps = now.or_more(before.get(node.name, _NOTHING))
        view = views[node.name]
        holds = held.get(node.name, _NOTHING)
        used = sum(count for _, count in node.gpus_used)
        used = max(used, now.gpus + ending.get(node.name, 0))
        # Slurm may show more in use than there is, of a node whose configuration has changed.
        left = _left(view.node, facts.get(node.name, _NOTHING))
        yield NodeView(
            view.node,
            node.condition,
            foreign_gpus=round(
                min(left.gpus, _others(used, now.gpus, perhaps.gpus, view.foreign_gpus))
            ),
            foreign_cpus=min(
                left.cpus, _others(node.cpus_used, now.cpus, perhaps.cpus, view.foreign_cpus)
            ),
            foreign_memory_mb=min(
                left.memory_mb,
                _others(
                    node.memory_used_mb, now.memory_mb, perhaps.memory_mb, view.foreign_memory_mb
                ),
            ),
            held_gpus=holds.gpus,
            held_cpus=holds.cpus,
            held_memory_mb=holds.memory_mb,
            left_out=left_out.get(node.name, "") if node.condition is NodeCondition.UP else "",
        )


def _left(node: Node, ours: Use) -> Use:
    """Return what runs of ours leave of a node: others have no more, whatever is shown."""
    return Use(
        max(0, node.gpus - ours.gpus),
        max(0.0, node.cpus - ours.cpus),
        max(0.0, node.memory_mb - ours.memory_mb),
    )


def _others(used: float, ours: float, perhaps_ours: float, before: float) -> float:
    """Return what others use: what they used `before`, as far as `used` allows for it."""
    return max(0.0, min(max(before, used - perhaps_ours), used - ours))


def not_ours(view: NodeView) -> tuple[object, ...]:
    """Return what a plan has no part in: how a node stands, and what others use of it."""
    return (
        view.condition,
        view.left_out,
        view.foreign_gpus,
        view.foreign_cpus,
        view.foreign_memory_mb,
    )
