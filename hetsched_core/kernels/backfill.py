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

import numpy as np
from numpy.typing import NDArray

from hetsched_core.kernels import (
    FLOATS,
    FLOATS_OUT,
    INTS,
    INTS_OUT,
    boolean,
    float64,
    int64,
    kernel,
    scalar,
    table,
    void,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Chains = tuple[Floats, Ints, Floats, Ints, Ints]
"""What a step is (see `expected_room`), row by row, and the row of each host's first step."""

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
) -> int:
    """Take GPUs, CPUs and memory of a host with a chain of its own for [from_s, until_s).

    Return the number of rows in use.
    """
    _, gpus, room, following, heads = chains
    step, steps = _split(chains, steps, heads[member[HOST]], from_s)
    last, steps = _split(chains, steps, step, until_s)
    while step != last:
        gpus[step, member[PLACE]] -= count
        room[step, 0] -= count * need[CPUS]
        room[step, 1] -= count * need[MEMORY]
        step = following[step]
    return steps


@scalar
def _look(
    chains: Chains, member: Ints, count: int, begins_s: Floats, ends_s: Floats, c: int, i: int
) -> None:
    """Find the windows (WINDOWS, C, M) of node `i` for the number of GPUs in column `c`."""
    at_s, gpus, _, following, heads = chains
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
def _opening(
    begins_s: Floats, ends_s: Floats, c: int, i: int, limit_s: float
) -> tuple[float, float]:
    """Return the first window of a node that is long enough, or the last that is kept."""
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
    begins_s: Floats,
    ends_s: Floats,
    column: int,
    count: int,
    need: Floats,
    limit_s: float,
    until_s: float,
) -> tuple[float, int]:
    """Return when, at `until_s` at the latest, and on which of the members a job can start first.

    Of several the one whose GPUs it comes nearest to filling, then the first.
    """
    counted = need[CPUS] > 0.0 or need[MEMORY] > 0.0
    best_s, best, least = math.inf, -1, -1
    # A view, since most are passed over here: compiled, three indices cost more than one.
    first_s = begins_s[0, column, begin:end]
    for at in range(len(first_s)):
        if first_s[at] > until_s:
            continue
        i = begin + at
        start_s, end_s = _opening(begins_s, ends_s, column, i, limit_s)
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
    begins_s: Floats,
    ends_s: Floats,
    column: int,
    nodes: int,
    least: int,
    even: bool,
    count: int,
    need: Floats,
    limit_s: float,
    from_s: float,
    until_s: float,
    share: Ints,
) -> float:
    """Return when a job can start on so many of the members, each giving at least `least` GPUs.

    Fill `share` (members) with what each gives.
    """
    counted = need[CPUS] > 0.0 or need[MEMORY] > 0.0
    starts_s = np.empty(len(members))
    first_s = np.empty(nodes)
    # Up to when each is free from then on; not known where a chain had to be walked.
    free_until_s = np.empty(len(members))
    for i in range(len(members)):
        start_s, end_s = _opening(begins_s, ends_s, column, members[i, AT], limit_s)
        if start_s < math.inf and (end_s == MORE or counted):
            start_s = _earliest(chains, members[i], least, need, limit_s, start_s, until_s)
            end_s = -math.inf
        starts_s[i], free_until_s[i] = start_s, end_s
    while from_s <= until_s and from_s < math.inf:
        for i in range(len(members)):
            if starts_s[i] >= from_s:
                continue
            if free_until_s[i] >= from_s + limit_s:
                starts_s[i] = from_s
            else:
                starts_s[i] = _earliest(chains, members[i], least, need, limit_s, from_s, until_s)
                free_until_s[i] = -math.inf
        # Nothing can start before the last of the first so many nodes is ready.
        ready_s = _last_of_first(starts_s, first_s)
        if ready_s > from_s:
            from_s = ready_s
            continue
        if _fill(chains, members, starts_s, nodes, even, count, need, limit_s, from_s, share):
            return from_s
        from_s = _next_step(chains, members, from_s)
    return math.inf


@scalar
def _fill(
    chains: Chains,
    members: Ints,
    starts_s: Floats,
    nodes: int,
    even: bool,
    count: int,
    need: Floats,
    limit_s: float,
    from_s: float,
    share: Ints,
) -> bool:
    """Fill `share` with what each member gives from `from_s` on, those with the most GPUs first.

    Return whether so many nodes are enough.
    """
    free = np.zeros(len(members), np.int64)
    served = np.zeros(len(members), np.int64)
    for i in range(len(members)):
        share[i] = 0
        if starts_s[i] <= from_s:
            free[i], served[i] = _steady(chains, members[i], need, limit_s, from_s)
    rest = count
    for _ in range(nodes):
        best, most = -1, 0
        for i in range(len(members)):
            if share[i] == 0 and min(free[i], served[i]) > most:
                best, most = i, min(free[i], served[i])
        if best < 0 or (even and most < count // nodes):
            return False
        gives = count // nodes if even else min(most, rest)
        share[best] = gives
        rest -= gives
        if rest == 0:
            return True
        for i in range(len(members)):
            # CPUs and memory that another node of the same host has not taken.
            if members[i, HOST] == members[best, HOST]:
                served[i] -= gives
    return False


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
def _reach(
    now_s: float, begins_s: Floats, ends_s: Floats, column: int, begin: int, end: int
) -> float:
    """Return for how long GPUs are free from now on, on that of the nodes where it is longest."""
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


@kernel(
    void(
        float64,
        boolean,
        boolean,
        INTS,
        FLOATS_OUT,
        table(int64, out=True),
        table(out=True),
        INTS_OUT,
        table(),
        table(int64),
        INTS,
        INTS,
        INTS,
        table(),
        table(int64),
        table(int64),
        INTS,
        FLOATS,
        FLOATS_OUT,
        table(int64, out=True),
        INTS_OUT,
    )
)
def earliest_starts(
    now_s: float,
    reserve_all: bool,
    even: bool,
    first_rows: Ints,
    at_s: Floats,
    gpus: Ints,
    room: Floats,
    following: Ints,
    ready_s: Floats,
    members: Ints,
    type_from: Ints,
    sizes: Ints,
    counts: Ints,
    needs: Floats,
    nodes: Ints,
    columns: Ints,
    kinds: Ints,
    limits: Floats,
    start_s: Floats,
    pieces: Ints,
    used: Ints,
) -> None:
    """Find the earliest start of each job, given those of the jobs before it.

    A job that cannot start now keeps the room that it is to have, if all jobs do (`reserve_all`) or
    if it is the first that waits for one of its GPU types. The jobs are followed up to the last one
    that can start now or that is the first to want a GPU type: the rest keep nobody from anything.

    Args:
        now_s: the earliest start.
        reserve_all: whether every job that waits keeps room (conservative), or the first (EASY).
        even: whether all nodes of a job must give the same number of GPUs.
        first_rows: (H + 1,) the row of the first step of each host's chain, and the first behind
            all of them.
        at_s: (S,) when each step of the chains of `expected_room` begins; behind them there are
            rows for a copy of all, and two more for each of the P pieces.
        gpus: (S, G) the GPUs of each step.
        room: (S, 2) its CPUs and MiB.
        following: (S,) the row of the step that follows.
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
        kinds: (J,) the kind of each job.
        limits: (J,) its time limit, seconds.
        start_s: (J,) out, seconds; infinity for a job that does not start now and keeps no room.
        pieces: (P, 3) out: job, number of the node and GPUs, job by job.
        used: (1,) out: the number of pieces.
    """
    types = len(type_from) - 1
    heads = first_rows[:-1].copy()
    steps = shared = first_rows[-1]
    chains = (at_s, gpus, room, following, heads)

    begins_s = np.empty((WINDOWS, len(sizes), len(members)))
    ends_s = np.empty((WINDOWS, len(sizes), len(members)))
    reach_s = np.empty((types, len(sizes)))
    for c in range(len(sizes)):
        for i in range(len(members)):
            begins_s[0, c, i] = max(ready_s[c, i], now_s)
            ends_s[0, c, i] = math.inf
        for t in range(types):
            reach_s[t, c] = _reach(now_s, begins_s, ends_s, c, type_from[t], type_from[t + 1])

    first = 0
    for t in range(types):
        for j in range(len(kinds)):
            if nodes[kinds[j], t] != 0:
                first = max(first, j)
                break
    last, cut = len(kinds) - 1, 0
    waited_for = np.zeros(types, np.bool_)
    mixed = np.empty_like(members)
    share = np.empty(len(members), np.int64)
    taken = np.empty((len(members), 2), np.int64)
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
        keeps = reserve_all
        for t in range(types):
            keeps = keeps or (nodes[kind, t] != 0 and not waited_for[t])
        if not keeps and not _may_start(nodes[kind], columns[kind], limit_s, reach_s):
            continue
        best_s, until_s = math.inf, math.inf if keeps else now_s
        parts = 0
        for t in range(types + 1):
            wanted, column = nodes[kind, t], columns[kind, t]
            if wanted < 1:
                continue
            if wanted == 1:
                found_s, node = _one_node(
                    chains,
                    members,
                    type_from[t],
                    type_from[t + 1],
                    begins_s,
                    ends_s,
                    column,
                    count,
                    need,
                    limit_s,
                    until_s,
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
                            mixed[size] = members[i]
                            size += 1
                    here = mixed[:size]
                if len(here) < wanted:
                    continue
                found_s = _several_nodes(
                    chains,
                    here,
                    begins_s,
                    ends_s,
                    column,
                    wanted,
                    sizes[column],
                    even,
                    count,
                    need,
                    limit_s,
                    now_s,
                    until_s,
                    share,
                )
                if found_s < best_s:
                    best_s, parts = found_s, 0
                    for i in range(len(here)):
                        if share[i] > 0:
                            taken[parts, 0], taken[parts, 1] = here[i, AT], share[i]
                            parts += 1
            if best_s == now_s:
                break
            until_s = min(until_s, best_s)
        start_s[j] = best_s
        if best_s == math.inf:
            continue
        if best_s > now_s:
            for t in range(types):
                waited_for[t] = waited_for[t] or nodes[kind, t] != 0
        else:
            cut = j
        for k in range(parts):
            i, gives = taken[k, 0], taken[k, 1]
            host, of_type = members[i, HOST], members[i, TYPE]
            pieces[piece, 0], pieces[piece, 1], pieces[piece, 2] = j, members[i, NAME], gives
            piece += 1
            if heads[host] < shared:
                steps = _own(chains, steps, host, now_s)
            steps = _book(chains, steps, members[i], best_s, best_s + limit_s, gives, need)
            for c in range(len(sizes)):
                reached = (
                    begins_s[0, c, i] <= now_s and ends_s[0, c, i] - now_s == reach_s[of_type, c]
                )
                _look(chains, members[i], sizes[c], begins_s, ends_s, c, i)
                if reached:
                    reach_s[of_type, c] = _reach(
                        now_s, begins_s, ends_s, c, type_from[of_type], type_from[of_type + 1]
                    )
    cut = max(cut, first)
    start_s[cut + 1 :] = math.inf
    while piece > 0 and pieces[piece - 1, 0] > cut:
        piece -= 1
    used[0] = piece
