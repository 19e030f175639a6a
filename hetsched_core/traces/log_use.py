"""What a log shows of the GPUs on each host: their types, and how many were in use."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hetsched_core.traces.node_types import UNTYPED, NodeTypes, normal_gpu_type
from hetsched_core.traces.sacct.allocation import Allocation, Doubt, GpuCounts

Types = Mapping[str, AbstractSet[str]]
"""The GPU types known to be on each host."""


@dataclass(frozen=True, slots=True)
class LogUse:
    """Most GPUs in use on each host, and what had to be left open.

    Attributes:
        most: {host: {GPU type: GPUs}}, GPUs in use at once or in one allocation.
        spread: Allocations over several nodes, of which the log shows only the total.
        uneven: Those of them whose total is no multiple of the number of nodes.
        nowhere: Allocations with GPUs but without nodes.
        open_ended: Hosts whose count rests on allocations that have no end.
        ambiguous: Hosts of several types where GPUs without a type could not be counted.
    """

    most: Mapping[str, Mapping[str, int]]
    spread: int
    uneven: int
    nowhere: int
    open_ended: frozenset[str]
    ambiguous: frozenset[str]


def seen_types(allocations: Iterable[Allocation]) -> dict[str, set[str]]:
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
    return rules.type_on(host) or UNTYPED


def gpus_in_use(allocations: Iterable[Allocation], types: Types, rules: NodeTypes) -> LogUse:
    """Count the GPUs in use on each host; a total over several nodes is spread evenly."""
    held: dict[tuple[str, str], list[_Held]] = defaultdict(list)
    spread = uneven = nowhere = 0
    open_ended, ambiguous = set(), set()
    for allocation in allocations:
        nowhere += not allocation.nodes
        spread += len(allocation.nodes) > 1
        uneven += any(count % len(hosts) for _, count, hosts in _parts(allocation, types))
        for name, count, hosts in _parts(allocation, types):
            for at, host in enumerate(hosts):
                share = count // len(hosts) + (at < count % len(hosts))
                gpu_type = name or resolve_type(host, allocation.gpus, types, rules)
                if gpu_type == UNTYPED and types.get(host):
                    ambiguous.add(host)
                elif share:
                    held[host, gpu_type].append(_Held(share, allocation.start_s, _end(allocation)))
    most: dict[str, dict[str, int]] = defaultdict(dict)
    for (host, gpu_type), parts in held.items():
        most[host][gpu_type] = _most_at_once(parts)
        ended = [part for part in parts if part.until_s < math.inf]
        if len(ended) < len(parts) and _most_at_once(ended) < most[host][gpu_type]:
            open_ended.add(host)
    return LogUse(most, spread, uneven, nowhere, frozenset(open_ended), frozenset(ambiguous))


@dataclass(frozen=True, slots=True)
class _Held:
    gpus: int
    since_s: float
    until_s: float


def _parts(
    allocation: Allocation, types: Types
) -> Iterator[tuple[str | None, int, tuple[str, ...]]]:
    """Yield (GPU type, GPUs, hosts that have them)."""
    if not allocation.nodes:
        return
    for given, count in allocation.gpus:
        name = given and normal_gpu_type(given)
        having = tuple(host for host in allocation.nodes if name in types.get(host, ()))
        yield name, count, having or allocation.nodes


def _end(allocation: Allocation) -> float:
    if allocation.end_s is not None:
        return allocation.end_s
    # A runaway never ends: for ever in use, it would add up with every later job.
    perhaps_runaway = {Doubt.RUNAWAY, Doubt.PAST_TIME_LIMIT}.intersection(allocation.doubts)
    return allocation.start_s if perhaps_runaway else math.inf


def _most_at_once(parts: Iterable[_Held]) -> int:
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
