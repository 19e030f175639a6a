"""Hops's configurations and plans, written down as slowly and plainly as possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

Config = tuple[tuple[int, int], ...]
"""(node, GPUs) pairs, ascending."""

Pools = Sequence[Sequence[int]]
"""The nodes of each pool, in the order of ids."""


def on_one_node(idle: Sequence[int], want: int) -> set[Config]:
    """Each node that has so many GPUs idle."""
    return {((node, want),) for node, gpus in enumerate(idle) if gpus >= want}


def on_any_nodes(idle: Sequence[int], pools: Pools, want: int) -> set[Config]:
    """As few nodes of one pool as possible, at least two; all full but one."""
    for nodes in range(2, want + 1):
        found = set()
        for pool in pools:
            for members in combinations([n for n in pool if idle[n] > 0], nodes):
                for last in members:
                    rest = want - sum(idle[n] for n in members if n != last)
                    if 1 <= rest <= idle[last]:
                        pieces = {n: idle[n] for n in members} | {last: rest}
                        found.add(tuple(sorted(pieces.items())))
        if found:
            return found
    return set()


def on_neighbours(idle: Sequence[int], pools: Pools, want: int) -> set[Config]:
    """From each node on, the next ones with idle GPUs, each filled; on as few as possible."""
    found = []
    for pool in pools:
        for start in range(len(pool)):
            pieces, left = [], want
            for node in pool[start:]:
                gpus = min(idle[node], left)
                if gpus:
                    pieces.append((node, gpus))
                    left -= gpus
                elif not pieces:
                    break
            if left == 0 and len(pieces) > 1:
                found.append(tuple(pieces))
    fewest = min(map(len, found), default=0)
    return {pieces for pieces in found if len(pieces) == fewest}


def in_equal_parts_by_id(idle: Sequence[int], pools: Pools, want: int) -> set[Config]:
    """From each node on, the next that can give an equal part; none that would do alone."""
    for nodes in range(2, want + 1):
        if want % nodes:
            continue
        each, found = want // nodes, set()
        for pool in pools:
            able = [n for n in pool if each <= idle[n] < want]
            for start in range(len(able) - nodes + 1):
                found.add(tuple((n, each) for n in able[start : start + nodes]))
        if found:
            return found
    return set()


def in_equal_parts(idle: Sequence[int], pools: Pools, want: int) -> set[Config]:
    """From each number of idle GPUs on, as many equal nodes as there are, then those with fewer."""
    for nodes in range(2, want + 1):
        if want % nodes:
            continue
        each, found = want // nodes, set()
        for pool in pools:
            able = [n for n in pool if each <= idle[n] < want]
            able.sort(key=lambda n: -idle[n])
            for level in {idle[n] for n in able}:
                members = [n for n in able if idle[n] <= level][:nodes]
                if len(members) == nodes:
                    found.add(tuple(sorted((n, each) for n in members)))
        if found:
            return found
    return set()


def choices(
    jobs: Sequence[Mapping[Config, float]], idle: Sequence[int]
) -> Iterator[tuple[float, tuple[Config | None, ...]]]:
    """Every choice of at most one configuration a job that fits, with the sum of its values."""
    for choice in product(*([None, *options] for options in jobs)):
        used = [0] * len(idle)
        value = 0.0
        for options, configuration in zip(jobs, choice, strict=True):
            if configuration is not None:
                value += options[configuration]
                for node, gpus in configuration:
                    used[node] += gpus
        if all(u <= i for u, i in zip(used, idle, strict=True)):
            yield value, choice
