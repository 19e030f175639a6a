"""What is in use on the nodes: by jobs of ours, and by all others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hetsched_core.types import Cluster, Node, NodeCondition, NodeView
from slurm_plugin.backend import JobState, SlurmNode
from slurm_plugin.backend.gres import UNTYPED
from slurm_plugin.daemon.jobs.managed import ManagedJob


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


def _on(nodes: tuple[str, ...], uses: Mapping[str, Use]) -> Use:
    """Return what is in use on the scheduling nodes of a host together."""
    if len(nodes) == 1:
        return uses.get(nodes[0], _NOTHING)
    found = Use()
    for use in (uses[name] for name in nodes if name in uses):
        found.add(use.gpus, use.cpus, use.memory_mb)
    return found


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
    cluster: Cluster,
    views: Mapping[str, NodeView],
    managed: Iterable[ManagedJob],
    before: Mapping[str, Use],
    ending: Mapping[str, int],
    left_out: Mapping[str, str],
) -> Iterator[NodeView]:
    """Yield the nodes as they stand now.

    What is in use and not held by jobs of ours is of other jobs. Nodes are read a moment before
    jobs are, so that a node may still count what has ended since the last look, or no longer:
    within what that leaves open, others use what they used. The CPUs and memory that others use of
    a host with several GPU types are told of the first of its scheduling nodes.

    Args:
        nodes: those of the cluster, as Slurm shows them.
        cluster: what they have.
        views: as they stood before, by name.
        managed: our jobs.
        before: what was `used_by` them at the last look.
        ending: the GPUs of jobs that end and are none of ours, by node; by host where their type is
            not told, and then on all its nodes. Slurm may show them as free long before their
            processes have ended, and starts nothing on them.
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
        parts = cluster.on_host(node.name)
        now = _on(parts, begun)
        perhaps = now.or_more(_on(parts, before))
        first, taken = views[parts[0]], _on(parts, facts)
        # Others have no more than what runs of ours leave: Slurm may show more in use than there
        # is, of a node whose configuration has changed.
        cpus = min(
            max(0.0, first.node.cpus - taken.cpus),
            _others(node.cpus_used, now.cpus, perhaps.cpus, first.foreign_cpus),
        )
        memory_mb = min(
            max(0.0, first.node.memory_mb - taken.memory_mb),
            _others(node.memory_used_mb, now.memory_mb, perhaps.memory_mb, first.foreign_memory_mb),
        )
        for name in parts:
            view, mine = views[name], begun.get(name, _NOTHING)
            used = _gpus_used(node, view.node, now.gpus - mine.gpus)
            used = max(used, mine.gpus + ending.get(name, ending.get(node.name, 0)))
            maybe = max(mine.gpus, before.get(name, _NOTHING).gpus)
            most = max(0, view.node.gpus - facts.get(name, _NOTHING).gpus)
            holds = held.get(name, _NOTHING)
            yield NodeView(
                view.node,
                node.condition,
                foreign_gpus=round(min(most, _others(used, mine.gpus, maybe, view.foreign_gpus))),
                foreign_cpus=cpus if view is first else 0.0,
                foreign_memory_mb=memory_mb if view is first else 0.0,
                held_gpus=holds.gpus,
                held_cpus=holds.cpus,
                held_memory_mb=holds.memory_mb,
                left_out=left_out.get(node.name, "") if node.condition is NodeCondition.UP else "",
            )


def _gpus_used(shown: SlurmNode, part: Node, ours_beside: int) -> int:
    """Return how many GPUs of a scheduling node are in use.

    Those in use of which Slurm names no type, and which are not `ours_beside`, the other scheduling
    nodes of the host have, count on each.
    """
    if part.name == part.host:
        return sum(count for _, count in shown.gpus_used)
    used = dict(shown.gpus_used)
    return used.get(part.gpu_type, 0) + max(0, used.get(UNTYPED, 0) - ours_beside)


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
