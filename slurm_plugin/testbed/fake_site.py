"""What a testbed's cluster is made of: nodes, their partitions, and how it is run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from hetsched_core.errors import InputError

DEFAULT_GPUS = "a100:4,v100:8,t4:4"
"""GPU types and counts that nodes get in turn."""

DEVICES_PER_NODE = 16
NODE_CPUS = 32
NODE_MEMORY_MB = 64_000
NODE_DISK_MB = 1_000
MAX_NODES = 512
PARTITION = "gpu"

_TYPE = re.compile(r"\w[\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class FakeNode:
    """A node of the testbed: a slurmd of this name with fake GPUs.

    Attributes:
        name: its name.
        gpu_type: the type of its GPUs, the first if it has several.
        gpus: how many of that type.
        others: further types of GPUs that it has, and how many of each.
        features: what jobs can ask for by `--constraint`.
        weight: Slurm takes nodes of low weight first.
    """

    name: str
    gpu_type: str
    gpus: int
    others: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()
    weight: int = 1

    @property
    def kinds(self) -> tuple[tuple[str, int], ...]:
        """All its GPU types, each with its count."""
        return ((self.gpu_type, self.gpus), *self.others)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of the testbed, as its line in slurm.conf.

    Attributes:
        name: its name.
        nodes: its nodes as Slurm writes them, `n[0-2,4]` or `ALL`; partitions may share nodes.
        default: whether jobs that name no partition go there.
        max_time: the longest time limit of a job, as Slurm writes it.
        priority_tier: Slurm considers the jobs of a higher one first.
        settings: what else its line says, for example `PreemptMode=REQUEUE`.
    """

    name: str
    nodes: str = "ALL"
    default: bool = False
    max_time: str = "INFINITE"
    priority_tier: int = 1
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FakeSite:
    """A cluster as those who run it would describe it.

    Attributes:
        nodes: all nodes.
        partitions: the partitions that they are in.
        settings: lines of slurm.conf: priorities, scheduling parameters, licences, limits.
    """

    nodes: tuple[FakeNode, ...]
    partitions: tuple[Partition, ...]
    settings: tuple[str, ...] = ()


def usual_site(nodes: tuple[FakeNode, ...], partitions: tuple[Partition, ...] = ()) -> FakeSite:
    """Return nodes as a site has them: shared by partitions, under priorities, with a licence.

    Slurm's scheduling parameters are its own defaults, so that backfill passes 30 s apart.

    Args:
        nodes: the nodes. Every second gets the feature `ib`, those of the second half get `nvme`,
            and those with fewer GPUs go first.
        partitions: without any, `gpu` of all nodes, the default, and `short` of the first half.
    """
    half = (len(nodes) + 1) // 2
    featured = tuple(
        replace(
            node,
            features=(
                *node.features,
                *(["ib"] if at % 2 == 0 else []),
                *(["nvme"] if at >= half else []),
            ),
            weight=sum(count for _, count in node.kinds),
        )
        for at, node in enumerate(nodes)
    )
    first = NodeSet.fromlist([node.name for node in nodes[:half]], resolver=RESOLVER_NOGROUP)
    usual = (
        Partition(PARTITION, default=True, max_time="7-00:00:00"),
        Partition("short", nodes=str(first), max_time="01:00:00"),
    )
    settings = (
        "PriorityType=priority/multifactor",
        # Fair Tree is what multifactor makes of shares by itself.
        "PriorityWeightFairshare=100000",
        "PriorityWeightQOS=10000",
        "PriorityWeightAge=1000",
        "PriorityWeightPartition=1000",
        "PriorityWeightJobSize=100",
        "Licenses=cad:2",
    )
    return FakeSite(featured, partitions or usual, settings)


def fake_nodes(count: int, gpus: str = DEFAULT_GPUS) -> tuple[FakeNode, ...]:
    """Return `count` nodes, which get the types and counts of `gpus` in turn.

    Args:
        count: how many nodes.
        gpus: `type:count` pairs, separated by commas; a node with several types joins them by `+`.

    Raises:
        InputError: there would be none or too many, or `gpus` is not of that form.
    """
    if not 1 <= count <= MAX_NODES:
        raise InputError(f"a testbed of {count} nodes; give 1 to {MAX_NODES}")
    kinds = [_kinds(part, gpus) for part in gpus.split(",")]
    return tuple(
        FakeNode(f"n{at}", *first, tuple(others))
        for at in range(count)
        for first, *others in [kinds[at % len(kinds)]]
    )


def parse_partitions(text: str, nodes: tuple[FakeNode, ...]) -> tuple[Partition, ...]:
    """Return the partitions of `gpu=n[0-5],short=n[0-2]`; the first is the default.

    Raises:
        InputError: the text is not of that form, names one twice, or nodes that are not there.
    """
    there = NodeSet.fromlist([node.name for node in nodes], resolver=RESOLVER_NOGROUP)
    found: dict[str, Partition] = {}
    for part in re.split(r",(?=[^,\[\]]*=)", text):
        name, _, named = part.partition("=")
        try:
            wanted = NodeSet(named, resolver=RESOLVER_NOGROUP)
        except NodeSetException as error:
            raise _no_partition(part, text, f"{error}") from None
        if not re.fullmatch(r"[A-Za-z][\w-]*", name, re.ASCII) or not wanted:
            raise _no_partition(part, text, "it is not a name, =, and nodes")
        if name in found:
            raise _no_partition(part, text, f"{name} is there twice")
        if missing := wanted - there:
            raise _no_partition(part, text, f"there is no {missing}, only {there}")
        found[name] = Partition(name, named, default=not found)
    return tuple(found.values())


def _no_partition(part: str, whole: str, why: str) -> InputError:
    return InputError(
        f"{part!r} in {whole!r} is no partition: {why}; write for example gpu=n[0-5],short=n[0-2]"
    )


def _kinds(part: str, whole: str) -> list[tuple[str, int]]:
    kinds = [_kind(each, whole) for each in part.split("+")]
    if sum(count for _, count in kinds) > DEVICES_PER_NODE or len(dict(kinds)) < len(kinds):
        raise InputError(
            f"{part!r} in {whole!r} names a type twice, or more than {DEVICES_PER_NODE} GPUs in "
            "all; write for example v100:8+t4:2"
        )
    return kinds


def _kind(part: str, whole: str) -> tuple[str, int]:
    gpu_type, _, count = part.strip().partition(":")
    named = _TYPE.fullmatch(gpu_type) and count.isdecimal()
    if not (named and 1 <= int(count) <= DEVICES_PER_NODE):
        raise InputError(
            f"{part!r} in {whole!r} is not a GPU type and a count of 1 to {DEVICES_PER_NODE}; "
            f"write for example {DEFAULT_GPUS}"
        )
    return gpu_type, int(count)
