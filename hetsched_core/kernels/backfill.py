"""One pass of a backfill scheduler: the earliest start of each job in turn, on expected run times.

The naive twin is `tests/hetsched_core/placement/naive_backfill.py`.

It starts from the chains of `hetsched_core.kernels.expected_room`, which say when the room of each
host is expected to change. A host that a job is booked on gets a copy of its chain, in the rows
behind all chains, so that the expected ones stay as they are for the next pass; `heads` says where
the chain of each host begins now.

So that few chains need to be walked, the *windows* of each node are kept beside them: for some
numbers of GPUs, from when and until when a node has so many free, and only those windows that are
longer than all before them. A job can start in the first that is long enough.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hetsched_core.kernels import (
    BoolsOut,
    BoolTableOut,
    FloatCubeOut,
    Floats,
    FloatsOut,
    FloatTable,
    FloatTableOut,
    Ints,
    IntsOut,
    IntTable,
    IntTableOut,
    kernel,
    scalar,
)

SLACK = 1e-6
"""Slack for sums of CPUs and MiB, which are products of fractions per GPU."""

ALL = 1 << 30
"""More GPUs than there are."""

WINDOWS = 4
"""How many windows of a node are kept for a number of GPUs."""

MORE = -1.0
"""Stands for the end of the last window kept where others follow."""

HOST, PLACE, NAME, TYPE, AT = range(5)
"""The columns of `members`."""

CPUS, MEMORY = range(2)
"""The columns of `needs`: CPUs and MiB per GPU."""


class Chains(NamedTuple):
    """What is free at each of H hosts from now on: those of `expected_room`, and where they begin.

    Attributes:
        at_s: (S,) when each step begins; behind those of `expected_room` there are rows for a copy
            of all, and two more for each piece of a job that is booked.
        gpus: (S, G) the GPUs of each step.
        room: (S, 2) its CPUs and MiB.
        following: (S,) the row of the step that follows.
        heads: (H,) the row of the first step of each host.
    """

    at_s: FloatsOut
    gpus: IntTableOut
    room: FloatTableOut
    following: IntsOut
    heads: IntsOut


class Windows(NamedTuple):
    """When M nodes have each of C numbers of GPUs free.

    Attributes:
        begins_s, ends_s: (WINDOWS, C, M) from when and until when.
        reach_s: (T, C) for how long from now on, on that node of each type where it is longest.
    """

    begins_s: FloatCubeOut
    ends_s: FloatCubeOut
    reach_s: FloatTableOut


class Places(NamedTuple):
    """Where a job might go, and where it does, while it is looked at.

    Attributes:
        starts_s: (M,) from when on each node could take part.
        free_until_s: (M,) up to when it is free from then on; not known where a chain was walked.
        first_s: (M,) the first of those starts, in order.
        ready: (M,) the nodes that could take part at a time.
        free, served: (M,) the GPUs that each of them has then, and for how many there are CPUs and
            memory.
        found: (M, 2) nodes that a job could get, and how many GPUs of each.
        taken: (M, 2) those that it gets.
        mixed: (M, 5) `members` of those types of which a job takes a mix.
        waited_for: (T,) whether a job waits for a GPU type.
        waited_at: (M,) whether a job waits for a node.
        changed: (C,) whether a node has a number of GPUs free at other times than before.
    """

    starts_s: FloatsOut
    free_until_s: FloatsOut
    first_s: FloatsOut
    ready: IntsOut
    free: IntsOut
    served: IntsOut
    found: IntTableOut
    taken: IntTableOut
    mixed: IntTableOut
    waited_for: BoolsOut
    waited_at: BoolsOut
    changed: BoolsOut


class Limited(NamedTuple):
    """Of which nodes, and when, jobs may have GPUs.

    Attributes:
        may_use: (K, M) whether jobs of each kind may have GPUs of each node.
        all_nodes: (K,) whether they may of all nodes.
        evenly: (K,) whether all nodes of such a job must give the same number of GPUs.
        shut: (W,) nodes that are closed for a time, as rows of `members`.
        shut_s: (W, 2) from when and until when.
    """

    may_use: BoolTableOut
    all_nodes: BoolsOut
    evenly: BoolsOut
    shut: IntsOut
    shut_s: FloatTableOut


@scalar
def _served(gpus: int, cpus: float, memory_mb: float, need: Floats) -> int:
    """Return how many of these GPUs can be used beside these CPUs and this memory."""
    if need[CPUS] > 0.0 and (cpus + SLACK) / need[CPUS] < gpus:
        gpus = math.floor((cpus + SLACK) / need[CPUS])
    if need[MEMORY] > 0.0 and (memory_mb + SLACK) / need[MEMORY] < gpus:
        gpus = math.floor((memory_mb + SLACK) / need[MEMORY])
    return gpus


@scalar
def _earliest(
    chains: Chains,
    member: Ints,
    count: int,
    need: Floats,
    limit_s: float,
    from_s: float,
    until_s: float,
) -> float:
    """Return the first time in [from_s, until_s] at which a node can take a job for its limit.

    Infinity if it never has `count` GPUs for so long.
    """
    at_s, gpus, room, following, heads = chains
    begun_s = math.inf
    step = heads[member[HOST]]
    while step >= 0 and (begun_s < math.inf or at_s[step] <= until_s):
        after = following[step]
        free = gpus[step, member[PLACE]]
        if free < count or _served(free, room[step, 0], room[step, 1], need) < count:
            begun_s = math.inf
        else:
            if begun_s == math.inf:
                begun_s = max(at_s[step], from_s)
            if after < 0 or at_s[after] >= begun_s + limit_s:
                return begun_s
        step = after
    return math.inf


@scalar
def _steady(
    chains: Chains, member: Ints, need: Floats, limit_s: float, from_s: float
) -> tuple[int, int]:
    """Return what stays free for a job's limit from `from_s` on.

    The GPUs of the node, and for how many GPUs its host has CPUs and memory.
    """
    at_s, gpus, room, following, heads = chains
    until_s = from_s + limit_s
    free, served = ALL, ALL
    step = heads[member[HOST]]
    while step >= 0 and at_s[step] < until_s:
        after = following[step]
        if after < 0 or at_s[after] > from_s:
            free = min(free, gpus[step, member[PLACE]])
            served = min(served, _served(ALL, room[step, 0], room[step, 1], need))
        step = after
    return free, served


@scalar
def _own(chains: Chains, steps: int, host: int, now_s: float) -> int:
    """Give a host a copy of its chain, from row `steps` on; return the number of rows in use."""
    at_s, gpus, room, following, heads = chains
    step, heads[host] = heads[host], steps
    while step >= 0:
        at_s[steps] = max(at_s[step], now_s)
        # Element by element: compiled, an assignment of rows this short costs far more.
        for place in range(gpus.shape[1]):
            gpus[steps, place] = gpus[step, place]
        room[steps, 0], room[steps, 1] = room[step, 0], room[step, 1]
        step = following[step]
        following[steps] = steps + 1 if step >= 0 else -1
        steps += 1
    return steps


@scalar
def _split(chains: Chains, steps: int, step: int, when_s: float) -> tuple[int, int]:
    """Let a step begin at `when_s`, after that of row `step`; return its row, and all rows."""
    at_s, gpus, room, following, _ = chains
    while following[step] >= 0 and at_s[following[step]] <= when_s:
        step = following[step]
    if at_s[step] == when_s:
        return step, steps
    at_s[steps] = when_s
    for place in range(gpus.shape[1]):
        gpus[steps, place] = gpus[step, place]
    room[steps, 0], room[steps, 1] = room[step, 0], room[step, 1]
    following[steps] = following[step]
    following[step] = steps
    return steps, steps + 1


@scalar
def _book(
    chains: Chains,
    steps: int,
    member: Ints,
    from_s: float,
    until_s: float,
    count: int,
    need: Floats,
    sizes: Ints,
    changed: BoolsOut,
    whole: bool,
) -> int:
    """Take GPUs, CPUs and memory of a host with a chain of its own for [from_s, until_s).

    Or the `whole` node, whatever else is free there. Note which numbers of GPUs its node has free
    no more; return the number of rows in use.
    """
    _, gpus, room, following, heads = chains
    changed[:] = False
    step, steps = _split(chains, steps, heads[member[HOST]], from_s)
    last, steps = _split(chains, steps, step, until_s)
    while step != last:
        free = gpus[step, member[PLACE]]
        left = min(free, 0) if whole else free - count
        for c in range(len(sizes)):
            changed[c] = changed[c] or left < sizes[c] <= free
        gpus[step, member[PLACE]] = left
        room[step, 0] -= count * need[CPUS]
        room[step, 1] -= count * need[MEMORY]
        step = following[step]
    return steps


@scalar
def _look(chains: Chains, member: Ints, count: int, windows: Windows, c: int, i: int) -> None:
    """Find the windows of node `i` for the number of GPUs in column `c`."""
    at_s, gpus, _, following, heads = chains
    begins_s, ends_s, _ = windows
    kept, longest_s, begun_s = 0, 0.0, math.inf
    step, place = heads[member[HOST]], member[PLACE]
    while step >= 0:
        if gpus[step, place] >= count:
            begun_s = min(begun_s, at_s[step])
        elif begun_s < math.inf:
            if at_s[step] - begun_s > longest_s:
                if kept == WINDOWS:
                    ends_s[WINDOWS - 1, c, i] = MORE
                    return
                longest_s = at_s[step] - begun_s
                begins_s[kept, c, i], ends_s[kept, c, i] = begun_s, at_s[step]
                kept += 1
            begun_s = math.inf
        step = following[step]
    if kept == WINDOWS:
        ends_s[WINDOWS - 1, c, i] = MORE
        return
    # The last one has no end; where there is none, it never begins.
    begins_s[kept, c, i], ends_s[kept, c, i] = begun_s, math.inf


@scalar
def _shut(
    chains: Chains,
    steps: int,
    shared: int,
    members: Ints,
    limited: Limited,
    now_s: float,
    sizes: Ints,
    windows: Windows,
) -> int:
    """Close nodes for as long as they are closed; return the number of rows in use."""
    for w in range(len(limited.shut)):
        i = limited.shut[w]
        host, place = members[i, HOST], members[i, PLACE]
        if chains.heads[host] < shared:
            steps = _own(chains, steps, host, now_s)
        step, steps = _split(chains, steps, chains.heads[host], max(now_s, limited.shut_s[w, 0]))
        last, steps = _split(chains, steps, step, limited.shut_s[w, 1])
        while step != last:
            chains.gpus[step, place] = -ALL
            step = chains.following[step]
        for c in range(len(sizes)):
            _look(chains, members[i], sizes[c], windows, c, i)
    return steps


@scalar
def _opening(windows: Windows, c: int, i: int, limit_s: float) -> tuple[float, float]:
    """Return the first window of a node that is long enough, or the last that is kept."""
    begins_s, ends_s, _ = windows
    w = 0
    while w < WINDOWS - 1 and ends_s[w, c, i] < begins_s[w, c, i] + limit_s:
        w += 1
    return begins_s[w, c, i], ends_s[w, c, i]


@scalar
def _one_node(
    chains: Chains,
    members: Ints,
    begin: int,
    end: int,
    windows: Windows,
    column: int,
    count: int,
    need: Floats,
    limit_s: float,
    until_s: float,
    may_use: BoolsOut,
) -> tuple[float, int]:
    """Return when, at `until_s` at the latest, and on which of the members a job can start first.

    Of several the one whose GPUs it comes nearest to filling, then the first.
    """
    counted = need[CPUS] > 0.0 or need[MEMORY] > 0.0
    best_s, best, least = math.inf, -1, -1
    # A view, since most are passed over here: compiled, three indices cost more than one.
    first_s = windows.begins_s[0, column, begin:end]
    for at in range(len(first_s)):
        if first_s[at] > until_s or not may_use[begin + at]:
            continue
        i = begin + at
        start_s, end_s = _opening(windows, column, i, limit_s)
        if start_s > until_s or start_s == math.inf:
            continue
        if end_s == MORE or counted:
            start_s = _earliest(chains, members[i], count, need, limit_s, start_s, until_s)
            if start_s == math.inf:
                continue
        if start_s < best_s:
            best_s, best, least = start_s, i, -1
            until_s = start_s
            continue
        if least < 0:
            least, _ = _steady(chains, members[best], need, limit_s, best_s)
        free, _ = _steady(chains, members[i], need, limit_s, best_s)
        if free < least:
            best, least = i, free
    return best_s, best


@scalar
def _last_of_first(values: Floats, least: Floats) -> float:
    """Fill `least` with the least of the values, in order; return the last of them."""
    least[:] = math.inf
    end = len(least) - 1
    for value in values:
        if value < least[end]:
            at = end
            while at > 0 and least[at - 1] > value:
                least[at] = least[at - 1]
                at -= 1
            least[at] = value
    return float(least[end])


@scalar
def _several_nodes(
    chains: Chains,
    members: Ints,
    windows: Windows,
    column: int,
    nodes: int,
    least: int,
    even: bool,
    count: int,
    need: Floats,
    limit_s: float,
    from_s: float,
    until_s: float,
    places: Places,
    may_use: BoolsOut,
) -> tuple[float, int]:
    """Return when a job can start on so many of the members, each giving at least `least` GPUs.

    And on how many it does; fill `places.found` with which, and what each gives.
    """
    starts_s, free_until_s = places.starts_s, places.free_until_s
    first_s, ready = places.first_s[:nodes], places.ready
    counted = need[CPUS] > 0.0 or need[MEMORY] > 0.0
    for i in range(len(members)):
        starts_s[i] = math.inf
        if windows.begins_s[0, column, members[i, AT]] > until_s or not may_use[members[i, AT]]:
            continue
        start_s, end_s = _opening(windows, column, members[i, AT], limit_s)
        if start_s < math.inf and (end_s == MORE or counted):
            start_s = _earliest(chains, members[i], least, need, limit_s, start_s, until_s)
            end_s = -math.inf
        starts_s[i], free_until_s[i] = start_s, end_s
    # Nothing can start before the last of the first so many nodes is ready.
    from_s = max(from_s, _last_of_first(starts_s[: len(members)], first_s))
    while from_s <= until_s and from_s < math.inf:
        many = 0
        for i in range(len(members)):
            if starts_s[i] > from_s:
                continue
            if starts_s[i] < from_s:
                if free_until_s[i] >= from_s + limit_s:
                    starts_s[i] = from_s
                else:
                    starts_s[i] = _earliest(
                        chains, members[i], least, need, limit_s, from_s, until_s
                    )
                    free_until_s[i] = -math.inf
                    if starts_s[i] > from_s:
                        continue
            ready[many] = i
            many += 1
        if many < nodes:
            from_s = _last_of_first(starts_s[: len(members)], first_s)
            continue
        parts = _fill(chains, members, many, nodes, even, count, need, limit_s, from_s, places)
        if parts > 0:
            return from_s, parts
        from_s = _next_step(chains, members, from_s)
    return math.inf, 0


@scalar
def _fill(
    chains: Chains,
    members: Ints,
    many: int,
    nodes: int,
    even: bool,
    count: int,
    need: Floats,
    limit_s: float,
    from_s: float,
    places: Places,
) -> int:
    """Fill `places.found` with what so many of the `ready` nodes give, those with the most first.

    Return on how many nodes the job is, 0 if so many are not enough.
    """
    ready, free, served, found = places.ready, places.free, places.served, places.found
    for k in range(many):
        free[k], served[k] = _steady(chains, members[ready[k]], need, limit_s, from_s)
    rest = count
    for parts in range(nodes):
        best, most = -1, 0
        for k in range(many):
            if min(free[k], served[k]) > most:
                best, most = k, min(free[k], served[k])
        if best < 0 or (even and most < count // nodes):
            return 0
        gives = count // nodes if even else min(most, rest)
        i = ready[best]
        # In the order of the members.
        part = parts
        while part > 0 and found[part - 1, 0] > members[i, AT]:
            found[part, 0], found[part, 1] = found[part - 1, 0], found[part - 1, 1]
            part -= 1
        found[part, 0], found[part, 1] = members[i, AT], gives
        rest -= gives
        if rest == 0:
            return parts + 1
        free[best] = 0
        for k in range(many):
            # CPUs and memory that another node of the same host has not taken.
            if members[ready[k], HOST] == members[i, HOST]:
                served[k] -= gives
    return 0


@scalar
def _next_step(chains: Chains, members: Ints, from_s: float) -> float:
    """Return when the free room of any member changes next; infinity if it does not."""
    at_s, _, _, following, heads = chains
    next_s = math.inf
    for i in range(len(members)):
        step = heads[members[i, HOST]]
        while step >= 0 and at_s[step] <= from_s:
            step = following[step]
        if step >= 0:
            next_s = min(next_s, at_s[step])
    return next_s


@scalar
def _reach(now_s: float, windows: Windows, column: int, begin: int, end: int) -> float:
    """Return for how long GPUs are free from now on, on that of the nodes where it is longest."""
    begins_s, ends_s, _ = windows
    reach_s = -math.inf
    for i in range(begin, end):
        if begins_s[0, column, i] <= now_s:
            reach_s = max(reach_s, ends_s[0, column, i] - now_s)
            if reach_s == math.inf:
                break
    return reach_s


@scalar
def _may_start(nodes: Ints, columns: Ints, limit_s: float, reach_s: Floats) -> bool:
    """Whether any node has GPUs for this job from now on for long enough."""
    may = False
    for t in range(len(reach_s)):
        may = may or (nodes[t] != 0 and reach_s[t, columns[t]] >= limit_s)
    return may


@kernel(allocates=False)
def earliest_starts(
    now_s: float,
    reserve_all: bool,
    first_rows: Ints,
    chains: Chains,
    ready_s: FloatTable,
    members: IntTable,
    type_from: Ints,
    sizes: Ints,
    counts: Ints,
    needs: FloatTable,
    nodes: IntTable,
    columns: IntTable,
    limited: Limited,
    kinds: Ints,
    limits: Floats,
    windows: Windows,
    places: Places,
    start_s: FloatsOut,
    pieces: IntTableOut,
    used: IntsOut,
) -> None:
    """Find the earliest start of each job, given those of the jobs before it.

    A job that cannot start now keeps the whole nodes that it is to have GPUs of, if all jobs do
    (`reserve_all`) or if it is the first that waits for one of its GPU types, or nodes. The jobs
    are followed up to the last one that can start now or that is the first to want a GPU type: the
    rest keep no job from anything.

    Args:
        now_s: the earliest start.
        reserve_all: whether every job that waits keeps room (conservative), or the first (EASY).
        first_rows: (H + 1,) the row of the first step of each host's chain, and the first behind
            all of them.
        chains: those of `expected_room`; `heads`, and the rows behind, are overwritten.
        ready_s: (C, M) from when on each node has so many GPUs at all times.
        members: (M, 5) host, place, number, type and row here of the nodes that take work, type by
            type.
        type_from: (T + 1,) where the nodes of each type begin in `members`.
        sizes: (C,) the numbers of GPUs that jobs want of a node.
        counts: (K,) GPUs of a job of each kind.
        needs: (K, 2) CPUs and MiB per GPU.
        nodes: (K, T + 1) on how many nodes of each type a job is to be, 0 where it cannot be; in
            the last column on how many nodes of all types that have a -1.
        columns: (K, T + 1) which of the `sizes` every one of these nodes has to give at least.
        limited: of which nodes, and when, jobs of each kind may have GPUs.
        kinds: (J,) the kind of each job.
        limits: (J,) its time limit, seconds.
        windows: overwritten.
        places: overwritten.
        start_s: (J,) out, seconds; infinity for a job that does not start now and keeps no room.
        pieces: (P, 3) out: job, number of the node and GPUs, job by job.
        used: (1,) out: the number of pieces.
    """
    types = len(type_from) - 1
    heads, (begins_s, ends_s, reach_s) = chains.heads, windows
    for h in range(len(heads)):
        heads[h] = first_rows[h]
    steps = shared = first_rows[-1]
    for c in range(len(sizes)):
        for i in range(len(members)):
            begins_s[0, c, i] = max(ready_s[c, i], now_s)
            ends_s[0, c, i] = math.inf
    steps = _shut(chains, steps, shared, members, limited, now_s, sizes, windows)
    for c in range(len(sizes)):
        for t in range(types):
            reach_s[t, c] = _reach(now_s, windows, c, type_from[t], type_from[t + 1])

    first = 0
    for t in range(types):
        for j in range(len(kinds)):
            if nodes[kinds[j], t] != 0:
                first = max(first, j)
                break
    last, cut = len(kinds) - 1, 0
    taken, mixed, waited_for, waited_at, changed = (
        places.taken,
        places.mixed,
        places.waited_for,
        places.waited_at,
        places.changed,
    )
    waited_for[:] = False
    waited_at[:] = False
    piece = 0
    start_s[:] = math.inf
    for j in range(len(kinds)):
        while last > first and not _may_start(
            nodes[kinds[last]], columns[kinds[last]], limits[last], reach_s
        ):
            last -= 1
        if j > last:
            break
        kind, limit_s = kinds[j], limits[j]
        need, count = needs[kind], counts[kind]
        keeps, may_use = reserve_all, limited.may_use[kind]
        for t in range(types):
            if keeps or nodes[kind, t] == 0:
                continue
            keeps = limited.all_nodes[kind] and not waited_for[t]
            if not limited.all_nodes[kind]:
                for i in range(type_from[t], type_from[t + 1]):
                    keeps = keeps or (may_use[i] and not waited_at[i] and not waited_for[t])
        if not keeps and not _may_start(nodes[kind], columns[kind], limit_s, reach_s):
            continue
        best_s, until_s = math.inf, math.inf if keeps else now_s
        parts = 0
        for t in range(types + 1):
            wanted, column = nodes[kind, t], columns[kind, t]
            if wanted < 1:
                continue
            if wanted == 1:
                begin, end = type_from[t], type_from[t + 1]
                found_s, node = _one_node(
                    chains,
                    members,
                    begin,
                    end,
                    windows,
                    column,
                    count,
                    need,
                    limit_s,
                    until_s,
                    may_use,
                )
                if found_s < best_s:
                    best_s, parts = found_s, 1
                    taken[0, 0], taken[0, 1] = node, count
            else:
                if t < types:
                    here = members[type_from[t] : type_from[t + 1]]
                else:
                    size = 0
                    for i in range(len(members)):
                        if nodes[kind, members[i, TYPE]] == -1:
                            for of in range(members.shape[1]):
                                mixed[size, of] = members[i, of]
                            size += 1
                    here = mixed[:size]
                if len(here) < wanted:
                    continue
                found_s, many = _several_nodes(
                    chains,
                    here,
                    windows,
                    column,
                    wanted,
                    sizes[column],
                    limited.evenly[kind],
                    count,
                    need,
                    limit_s,
                    now_s,
                    until_s,
                    places,
                    may_use,
                )
                if found_s < best_s:
                    best_s, parts = found_s, many
                    for k in range(many):
                        taken[k, 0], taken[k, 1] = places.found[k, 0], places.found[k, 1]
            if best_s == now_s:
                break
            # Only a job that could start earlier on another type would.
            until_s = min(until_s, np.nextafter(best_s, now_s))
        start_s[j] = best_s
        if best_s == math.inf:
            continue
        if best_s > now_s:
            for t in range(types):
                if nodes[kind, t] == 0 or waited_for[t]:
                    continue
                waited_for[t] = True
                for i in range(type_from[t], type_from[t + 1]):
                    waited_at[i] = waited_at[i] or may_use[i]
                    waited_for[t] = waited_for[t] and waited_at[i]
        else:
            cut = j
        for k in range(parts):
            i, gives = taken[k, 0], taken[k, 1]
            host, of_type = members[i, HOST], members[i, TYPE]
            pieces[piece, 0], pieces[piece, 1], pieces[piece, 2] = j, members[i, NAME], gives
            piece += 1
            if heads[host] < shared:
                steps = _own(chains, steps, host, now_s)
            until_s, whole = best_s + limit_s, best_s > now_s
            steps = _book(
                chains, steps, members[i], best_s, until_s, gives, need, sizes, changed, whole
            )
            for c in range(len(sizes)):
                if not changed[c]:
                    continue
                reached = (
                    begins_s[0, c, i] <= now_s and ends_s[0, c, i] - now_s == reach_s[of_type, c]
                )
                _look(chains, members[i], sizes[c], windows, c, i)
                if reached:
                    reach_s[of_type, c] = _reach(
                        now_s, windows, c, type_from[of_type], type_from[of_type + 1]
                    )
    cut = max(cut, first)
    start_s[cut + 1 :] = math.inf
    while piece > 0 and pieces[piece - 1, 0] > cut:
        piece -= 1
    used[0] = piece
