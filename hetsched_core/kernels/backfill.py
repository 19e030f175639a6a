"""One pass of a backfill scheduler: the earliest start of each job in turn, on expected run times.

The naive twin is `tests/hetsched_core/placement/naive_backfill.py`.

What is free is kept for each host (its CPUs and memory, and the GPUs of each of its nodes) as a
*chain* of steps in time, which are short because a host holds few jobs at once. A chain is four
arrays with a row for each step: when it begins, GPUs by place on the host, (CPUs, MiB), and the row
of the step that follows, -1 where none does. The first step of a host is the row of its number.

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
    boolean,
    cube,
    float64,
    int64,
    kernel,
    scalar,
    table,
    void,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Chain = tuple[Floats, Ints, Floats, Ints]

SLACK = 1e-6
"""Slack for sums of CPUs and MiB, which are products of fractions per GPU."""

ALL = 1 << 30
"""More GPUs than there are."""

WINDOWS = 4
"""How many windows of a node are kept for a number of GPUs."""

MORE = -1.0
"""Stands for the end of the last window kept where others follow."""

HOST, PLACE, NAME = range(3)
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
    chain: Chain,
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
    at_s, gpus, room, following = chain
    begun_s = math.inf
    step = member[HOST]
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
    chain: Chain, member: Ints, need: Floats, limit_s: float, from_s: float
) -> tuple[int, int]:
    """Return what stays free for a job's limit from `from_s` on.

    The GPUs of the node, and for how many GPUs its host has CPUs and memory.
    """
    at_s, gpus, room, following = chain
    until_s = from_s + limit_s
    free, served = ALL, ALL
    step = member[HOST]
    while step >= 0 and at_s[step] < until_s:
        after = following[step]
        if after < 0 or at_s[after] > from_s:
            free = min(free, gpus[step, member[PLACE]])
            served = min(served, _served(ALL, room[step, 0], room[step, 1], need))
        step = after
    return free, served


@scalar
def _split(chain: Chain, steps: int, step: int, when_s: float) -> tuple[int, int]:
    """Let a step begin at `when_s`, after that of row `step`; return its row, and all rows."""
    at_s, gpus, room, following = chain
    while following[step] >= 0 and at_s[following[step]] <= when_s:
        step = following[step]
    if at_s[step] == when_s:
        return step, steps
    at_s[steps] = when_s
    # Element by element: compiled, an assignment of rows this short costs many times as much.
    for place in range(gpus.shape[1]):
        gpus[steps, place] = gpus[step, place]
    room[steps, 0], room[steps, 1] = room[step, 0], room[step, 1]
    following[steps] = following[step]
    following[step] = steps
    return steps, steps + 1


@scalar
def _book(
    chain: Chain,
    steps: int,
    member: Ints,
    from_s: float,
    until_s: float,
    count: int,
    need: Floats,
) -> int:
    """Take GPUs, CPUs and memory for [from_s, until_s); return the number of rows now in use."""
    _, gpus, room, following = chain
    step, steps = _split(chain, steps, member[HOST], from_s)
    last, steps = _split(chain, steps, step, until_s)
    while step != last:
        gpus[step, member[PLACE]] -= count
        room[step, 0] -= count * need[CPUS]
        room[step, 1] -= count * need[MEMORY]
        step = following[step]
    return steps


@scalar
def _as_expected(
    chain: Chain,
    steps: int,
    host: int,
    now_s: float,
    overdue_s: float,
    held: Ints,
    held_until: Floats,
    order: Ints,
) -> int:
    """Make the chain of a host, whose first step is there and idle; return the rows in use."""
    at_s, gpus, room, following = chain
    at_s[host], following[host] = now_s, -1
    running = 0
    for r in range(len(held)):
        if held[r, 1] == 0:
            continue
        gpus[host, held[r, 0]] -= held[r, 1]
        room[host, 0] -= held_until[r, 1]
        room[host, 1] -= held_until[r, 2]
        k = running
        while k > 0 and held_until[order[k - 1], 0] > held_until[r, 0]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = r
        running += 1
    # Who is overdue ends at one time, which need not be before all others.
    overdue = 0
    while overdue < running and held_until[order[overdue], 0] <= now_s:
        overdue += 1
    step = host
    for k in range(overdue, running):
        r = order[k]
        step, steps = _split(chain, steps, step, held_until[r, 0])
        gpus[step, held[r, 0]] += held[r, 1]
        room[step, 0] += held_until[r, 1]
        room[step, 1] += held_until[r, 2]
    for k in range(overdue):
        r = order[k]
        step, steps = _split(chain, steps, host, now_s + overdue_s)
        while step >= 0:
            gpus[step, held[r, 0]] += held[r, 1]
            room[step, 0] += held_until[r, 1]
            room[step, 1] += held_until[r, 2]
            step = following[step]
    return steps


@scalar
def _look(chain: Chain, member: Ints, count: int, window: Floats) -> None:
    """Fill the windows (WINDOWS, 2) of a node for a number of GPUs."""
    at_s, gpus, _, following = chain
    kept, longest_s, begun_s = 0, 0.0, math.inf
    step = member[HOST]
    while step >= 0:
        if gpus[step, member[PLACE]] >= count:
            begun_s = min(begun_s, at_s[step])
        elif begun_s < math.inf:
            if at_s[step] - begun_s > longest_s:
                if kept == WINDOWS:
                    window[WINDOWS - 1, 1] = MORE
                    return
                longest_s = at_s[step] - begun_s
                window[kept, 0], window[kept, 1] = begun_s, at_s[step]
                kept += 1
            begun_s = math.inf
        step = following[step]
    if kept == WINDOWS:
        window[WINDOWS - 1, 1] = MORE
        return
    # The last one has no end; where there is none, it never begins.
    window[kept, 0], window[kept, 1] = begun_s, math.inf


@scalar
def _one_node(
    chain: Chain,
    members: Ints,
    windows: Floats,
    count: int,
    need: Floats,
    limit_s: float,
    until_s: float,
) -> tuple[float, int]:
    """Return when, at `until_s` at the latest, and on which of the members a job can start first.

    Of several the one whose GPUs it comes nearest to filling, then the first.
    """
    best_s, best, least = math.inf, -1, ALL
    for i in range(len(members)):
        if windows[i, 0, 0] > until_s:
            continue
        w = 0
        while w < WINDOWS - 1 and windows[i, w, 1] < windows[i, w, 0] + limit_s:
            w += 1
        start_s, end_s = windows[i, w, 0], windows[i, w, 1]
        if start_s > until_s or start_s == math.inf:
            continue
        if end_s == MORE or need[CPUS] > 0.0 or need[MEMORY] > 0.0:
            start_s = _earliest(chain, members[i], count, need, limit_s, start_s, until_s)
            if start_s == math.inf:
                continue
        free, _ = _steady(chain, members[i], need, limit_s, start_s)
        if start_s < best_s or free < least:
            best_s, best, least = start_s, i, free
            until_s = start_s
    return best_s, best


@scalar
def _several_nodes(
    chain: Chain,
    members: Ints,
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
    starts_s = np.full(len(members), -math.inf)
    while from_s <= until_s and from_s < math.inf:
        for i in range(len(members)):
            if starts_s[i] < from_s:
                starts_s[i] = _earliest(chain, members[i], least, need, limit_s, from_s, until_s)
        # Nothing can start before the last of the first so many nodes is ready.
        ready_s = float(np.partition(starts_s, nodes - 1)[nodes - 1])
        if ready_s > from_s:
            from_s = ready_s
            continue
        if _fill(chain, members, starts_s, nodes, even, count, need, limit_s, from_s, share):
            return from_s
        from_s = _next_step(chain, members, from_s)
    return math.inf


@scalar
def _fill(
    chain: Chain,
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
            free[i], served[i] = _steady(chain, members[i], need, limit_s, from_s)
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
def _next_step(chain: Chain, members: Ints, from_s: float) -> float:
    """Return when the free room of any member changes next; infinity if it does not."""
    at_s, _, _, following = chain
    next_s = math.inf
    for i in range(len(members)):
        step = members[i, HOST]
        while step >= 0 and at_s[step] <= from_s:
            step = following[step]
        if step >= 0:
            next_s = min(next_s, at_s[step])
    return next_s


@scalar
def _reach(now_s: float, windows: Floats) -> float:
    """Return for how long GPUs are free from now on, on that of the nodes where it is longest."""
    reach_s = -math.inf
    for i in range(len(windows)):
        if windows[i, 0, 0] <= now_s:
            end_s = windows[i, 0, 1]
            reach_s = max(reach_s, math.inf if end_s == MORE else end_s - now_s)
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
        float64,
        boolean,
        boolean,
        table(int64),
        table(),
        cube(int64),
        cube(),
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
    )
)
def earliest_starts(
    now_s: float,
    overdue_s: float,
    reserve_all: bool,
    even: bool,
    capacity: Ints,
    hosts: Floats,
    held: Ints,
    held_until: Floats,
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
) -> None:
    """Find the earliest start of each job, given those of the jobs before it.

    A job that cannot start now keeps the room that it is to have, if all jobs do (`reserve_all`) or
    if it is the first that waits for one of its GPU types. The jobs are followed up to the last one
    that can start now or that is the first to want a GPU type: the rest keep nobody from anything.

    Args:
        now_s: the earliest start.
        overdue_s: what should have ended is taken to end so much later than now.
        reserve_all: whether every job that waits keeps room (conservative), or the first (EASY).
        even: whether all nodes of a job must give the same number of GPUs.
        capacity: (H, G) GPUs that jobs may hold at each place of each host.
        hosts: (H, 2) CPUs and MiB of each host, infinite where they are not counted.
        held: (H, R, 2) place and GPUs of what is in use; 0 GPUs in rows that are void.
        held_until: (H, R, 3) until when, CPUs and MiB.
        members: (M, 3) host, place and number of the nodes that take work, type by type.
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
        pieces: (P, 3) out: job, number of the node and GPUs, job by job; -1 after the last.
    """
    types = len(type_from) - 1
    rows = len(hosts) + held.shape[0] * held.shape[1] + 2 * len(pieces)
    gpus = np.empty((rows, capacity.shape[1]), np.int64)
    room = np.empty((rows, 2))
    chain = (np.empty(rows), gpus, room, np.empty(rows, np.int64))
    gpus[: len(hosts)] = capacity
    room[: len(hosts)] = hosts
    steps = len(hosts)
    order = np.empty(held.shape[1], np.int64)
    for h in range(len(hosts)):
        steps = _as_expected(chain, steps, h, now_s, overdue_s, held[h], held_until[h], order)

    windows = np.empty((len(sizes), len(members), WINDOWS, 2))
    reach_s = np.empty((types, len(sizes)))
    for c in range(len(sizes)):
        for i in range(len(members)):
            _look(chain, members[i], sizes[c], windows[c, i])
        for t in range(types):
            reach_s[t, c] = _reach(now_s, windows[c, type_from[t] : type_from[t + 1]])

    first = 0
    for t in range(types):
        for j in range(len(kinds)):
            if nodes[kinds[j], t] != 0:
                first = max(first, j)
                break
    last, cut = len(kinds) - 1, 0
    waited_for = np.zeros(types, np.bool_)
    everyone = np.arange(len(members))
    mixed = np.empty(len(members), np.int64)
    among = np.empty_like(members)
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
            if t < types:
                begin, end = type_from[t], type_from[t + 1]
                numbers = everyone[begin:end]
                here = members[begin:end]
            else:
                size = 0
                for u in range(types):
                    if nodes[kind, u] == -1:
                        for i in range(type_from[u], type_from[u + 1]):
                            mixed[size] = i
                            among[size, HOST] = members[i, HOST]
                            among[size, PLACE] = members[i, PLACE]
                            size += 1
                numbers = mixed[:size]
                here = among[:size]
            if len(here) < wanted:
                continue
            if wanted == 1:
                found_s, node = _one_node(
                    chain, here, windows[column, begin:end], count, need, limit_s, until_s
                )
                if found_s < best_s:
                    best_s, parts = found_s, 1
                    taken[0, 0], taken[0, 1] = numbers[node], count
            else:
                found_s = _several_nodes(
                    chain,
                    here,
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
                            taken[parts, 0], taken[parts, 1] = numbers[i], share[i]
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
            pieces[piece, 0], pieces[piece, 1], pieces[piece, 2] = j, members[i, NAME], gives
            piece += 1
            steps = _book(chain, steps, members[i], best_s, best_s + limit_s, gives, need)
            at_type = np.searchsorted(type_from, i, side="right") - 1
            for c in range(len(sizes)):
                free_now = windows[c, i, 0, 0] <= now_s
                _look(chain, members[i], sizes[c], windows[c, i])
                if free_now:
                    begin, end = type_from[at_type], type_from[at_type + 1]
                    reach_s[at_type, c] = _reach(now_s, windows[c, begin:end])
    cut = max(cut, first)
    start_s[cut + 1 :] = math.inf
    while piece > 0 and pieces[piece - 1, 0] > cut:
        piece -= 1
    pieces[piece:, 0] = -1
