"""A cluster inferred from what Slurm prints: accounting, `scontrol show nodes`, `sinfo`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hetsched_core.errors import InputError
from hetsched_core.traces.cluster_file import fold_names
from hetsched_core.traces.node_types import UNKNOWN_TYPE, NodeTypes, normal_gpu_type
from hetsched_core.traces.sacct import Doubt, GpuCounts, LoggedAllocation, expand_nodes, link_runs
from hetsched_core.traces.slurm_nodes import SlurmNodeRecord
from hetsched_core.types import Cluster, Node
from hetsched_core.types.cluster import nodes_of_host


@dataclass(frozen=True, slots=True)
class InferredCluster:
    """A cluster, and in sentences what was assumed about it."""

    cluster: Cluster
    assumptions: tuple[str, ...]


def infer_cluster(
    allocations: Iterable[LoggedAllocation] = (),
    scontrol: Sequence[SlurmNodeRecord] = (),
    sinfo: Sequence[SlurmNodeRecord] = (),
    rules: NodeTypes | None = None,
    name: str = "cluster",
) -> InferredCluster:
    """Put together what several sources tell about the nodes with GPUs.

    What scontrol says of a node goes before sinfo, and sinfo before the log. From a log a node has
    as many GPUs of a type as were in use at once or in one allocation, and its CPUs and memory are
    unknown. GPUs without a type have the one that is known on their host, else the one that `rules`
    give, else `UNKNOWN_TYPE`. A host with several types becomes several nodes. Nodes are in the
    order of their weights, in which Slurm takes them.

    Raises:
        InputError: No source shows a GPU.
    """
    rules = rules or NodeTypes()
    # Linked, a run that two exports show counts once, and a runaway is marked as one.
    used = [run for job in link_runs(allocations) for run in job.runs if run.gpus]
    slurm = {node.name: node for node in sinfo}
    slurm |= {node.name: _merge(node, slurm.get(node.name)) for node in scontrol}
    types = seen_types(used)
    for node in slurm.values():
        types[node.name] |= {name for name, _ in node.gpus or () if name}
    most, left_open = gpus_in_use(used, types, rules)

    nodes: list[Node] = []
    noted: dict[str, list[str]] = {}
    names = expand_nodes(fold_names({*slurm, *most}))
    weights = {name: node.weight or 1 for name, node in slurm.items()}
    hosts = sorted(names, key=lambda name: weights.get(name, 1))
    for host in hosts:
        listed = slurm.get(host, SlurmNodeRecord(host))
        in_use = most.get(host, {})
        if listed.gpus is None:
            gpus = in_use
        else:
            gpus = {}
            for given, count in listed.gpus:
                gpu_type = given or resolve_type(host, listed.gpus, types, rules)
                gpus = {**gpus, gpu_type: gpus.get(gpu_type, 0) + count}
        told = listed.gpus is not None
        for note, applies in (
            (_FROM_LOG, not told and gpus),
            (_LOG_ONLY, not told and slurm and host not in slurm),
            (_EXCEEDED, told and sum(in_use.values()) > sum(gpus.values())),
            (_UNKNOWN, UNKNOWN_TYPE in gpus),
            (_SEVERAL, len(gpus) > 1),
            (_SIZELESS, gpus and not (listed.cpus and listed.memory_mb)),
            (_NO_GPUS, not gpus),
        ):
            noted.setdefault(note, [])
            if applies:
                noted[note].append(host)
        nodes += nodes_of_host(host, gpus, listed.cpus or 0, listed.memory_mb or 0)
    if not nodes and used and not most:
        raise InputError(
            f"no cluster can be inferred: none of {len(used)} GPU allocations names a node; export "
            "the log with NodeList, or describe the nodes in a file for --cluster "
            "(docs/formats/cluster.md)"
        )
    if not nodes:
        raise InputError(
            f"no GPU found on {len(hosts)} nodes; a log shows GPUs only where AllocTRES names "
            "gres/gpu, sinfo only with %G: give --scontrol with the output of: scontrol show nodes"
        )
    said = (f"{fold_names(found)}: {note}." for note, found in noted.items() if found)
    assumptions = (*said, *left_open)
    return InferredCluster(Cluster(tuple(nodes), name), assumptions)


def _merge(node: SlurmNodeRecord, other: SlurmNodeRecord | None) -> SlurmNodeRecord:
    """Fill in from another source what one leaves open."""
    if other is None:
        return node
    return SlurmNodeRecord(
        node.name,
        other.gpus if node.gpus is None else node.gpus,
        other.cpus if node.cpus is None else node.cpus,
        other.memory_mb if node.memory_mb is None else node.memory_mb,
        other.weight if node.weight is None else node.weight,
    )


# What was assumed ---------------------------------------------------------------------------------

_FROM_LOG = (
    "GPUs counted as the most that the log shows in use at once, or in one allocation; a node "
    "that was never full has more"
)
_SIZELESS = "CPUs or memory are not known, and what is not known is not counted"
_UNKNOWN = (
    f"no source names the GPUs' type, {UNKNOWN_TYPE!r} stands for it: set gpu_type in the cluster "
    "file, or name it to hetsched cluster infer with --node-type NODES=TYPE"
)
_SEVERAL = "GPUs of several types: one node for each type, sharing the host's CPUs and memory"
_EXCEEDED = "the log has more GPUs in use than Slurm lists; Slurm's count stands"
_LOG_ONLY = "in the log but not in Slurm's list: perhaps gone, perhaps renamed"
_NO_GPUS = "left out, as no source shows GPUs there"


# What a log shows of the GPUs on each host --------------------------------------------------------


Types = Mapping[str, AbstractSet[str]]
"""The GPU types known to be on each host."""


def seen_types(allocations: Iterable[LoggedAllocation]) -> dict[str, set[str]]:
    """Return the GPU types that allocations name on each host.

    An allocation of several types on several nodes does not tell which node has which.
    """
    types: dict[str, set[str]] = defaultdict(set)
    for allocation in allocations:
        if len(allocation.nodes) == 1 or len(allocation.gpus) == 1:
            named = {normal_gpu_type(name) for name, _ in allocation.gpus if name}
            for host in allocation.nodes:
                types[host] |= named
    return types


def resolve_type(host: str, gpus: GpuCounts, types: Types, rules: NodeTypes) -> str:
    """Return the type of the untyped among these GPUs: the one known on their host, or by a rule.

    Where some of them have a type, those without are of another: one that Slurm does not track.
    """
    known = types.get(host, frozenset[str]())
    if len(known) == 1 and not any(name for name, _ in gpus):
        return next(iter(known))
    return rules.type_on(host) or UNKNOWN_TYPE


def gpus_in_use(
    allocations: Iterable[LoggedAllocation], types: Types, rules: NodeTypes
) -> tuple[Mapping[str, Mapping[str, int]], tuple[str, ...]]:
    """Return the most GPUs in use on each host, and in sentences what had to be left open.

    These are {host: {GPU type: GPUs}}, in use at once or in one allocation. A total over several
    nodes is spread evenly.
    """
    held: dict[tuple[str, str], list[_Use]] = defaultdict(list)
    spread = uneven = nowhere = 0
    open_ended: set[str] = set()
    ambiguous: set[str] = set()
    for allocation in allocations:
        nowhere += not allocation.nodes
        spread += len(allocation.nodes) > 1
        uneven += any(count % len(hosts) for _, count, hosts in _parts(allocation, types))
        for name, count, hosts in _parts(allocation, types):
            for at, host in enumerate(hosts):
                share = count // len(hosts) + (at < count % len(hosts))
                gpu_type = name or resolve_type(host, allocation.gpus, types, rules)
                if gpu_type == UNKNOWN_TYPE and types.get(host):
                    ambiguous.add(host)
                elif share:
                    held[host, gpu_type].append(_Use(share, allocation.start_s, _end(allocation)))
    most: dict[str, dict[str, int]] = defaultdict(dict)
    for (host, gpu_type), parts in held.items():
        most[host][gpu_type] = _most_at_once(parts)
        ended = [part for part in parts if part.until_s < math.inf]
        if len(ended) < len(parts) and _most_at_once(ended) < most[host][gpu_type]:
            open_ended.add(host)
    said = []
    if spread:
        said.append(
            "Of an allocation on several nodes a log shows only the total: spread evenly, "
            f"{spread} allocations, {uneven} of them with a remainder on the first nodes."
        )
    if open_ended:
        said.append(
            f"{fold_names(open_ended)}: the count rests on allocations without an end; if one "
            "is a runaway (sacctmgr show runawayjobs), there are fewer GPUs."
        )
    if ambiguous:
        said.append(
            f"{fold_names(ambiguous)}: untyped allocations on nodes of several GPU types "
            "are not counted."
        )
    if nowhere:
        said.append(f"Allocations that name no node are not counted: {nowhere}.")
    return most, tuple(said)


@dataclass(frozen=True, slots=True)
class _Use:
    gpus: int
    since_s: float
    until_s: float


def _parts(
    allocation: LoggedAllocation, types: Types
) -> Iterator[tuple[str | None, int, tuple[str, ...]]]:
    """Yield (GPU type, GPUs, hosts that have them)."""
    if not allocation.nodes:
        return
    for given, count in allocation.gpus:
        name = given and normal_gpu_type(given)
        having = tuple(host for host in allocation.nodes if name in types.get(host, ()))
        yield name, count, having or allocation.nodes


def _end(allocation: LoggedAllocation) -> float:
    if allocation.end_s is not None:
        return allocation.end_s
    # A runaway never ends: for ever in use, it would add up with every later job.
    perhaps_runaway = {Doubt.RUNAWAY, Doubt.PAST_TIME_LIMIT}.intersection(allocation.doubts)
    return allocation.start_s if perhaps_runaway else math.inf


def _most_at_once(parts: Iterable[_Use]) -> int:
    """Return the most GPUs held at one time; what ends at a time goes before what begins then."""
    changes = []
    most = now = 0
    for part in parts:
        most = max(most, part.gpus)
        changes += [(part.since_s, part.gpus), (part.until_s, -part.gpus)]
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most
