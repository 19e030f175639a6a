"""One pass of a backfill scheduler: the earliest start of each job in turn, on expected run times.

The naive twin is `tests/hetsched_core/placement/naive_backfill.py`.

What is free is kept for each host (its CPUs and memory, and the GPUs of each of its nodes) as a
chain of steps in time, which are short because a host holds few jobs at once. A chain is four
arrays with a row for each step: when it begins, GPUs by node of the host, (CPUs, MiB), and the row
of the step that follows, -1 where none does. The first step of a host is the row of its number.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hetsched_core.kernels import (
    FLOATS_OUT,
    INTS,
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
Chain = tuple[Floats, Ints, Floats, Ints]

SLACK = 1e-6
"""Slack for sums of CPUs and MiB, which are products of fractions per GPU."""

ALL = 1 << 30
"""More GPUs than there are."""

LIMIT, CPUS, MEMORY = range(3)
"""The columns of `jobs`: seconds, CPUs per GPU, MiB per GPU."""


@scalar
def _served(gpus: int, cpus: float, memory_mb: float, job: Floats) -> int:
    """Return how many of these GPUs can be used beside these CPUs and this memory."""
    if job[CPUS] > 0.0 and (cpus + SLACK) / job[CPUS] < gpus:
        gpus = math.floor((cpus + SLACK) / job[CPUS])
    if job[MEMORY] > 0.0 and (memory_mb + SLACK) / job[MEMORY] < gpus:
        gpus = math.floor((memory_mb + SLACK) / job[MEMORY])
    return gpus


@scalar
def _earliest(
    chain: Chain, host: int, slot: int, count: int, job: Floats, from_s: float, until_s: float
) -> float:
    """Return the first time in [from_s, until_s] at which a node can take a job for its limit.

    Infinity if it never has `count` GPUs for so long.
    """
    at_s, gpus, room, following = chain
    begun_s = math.inf
    step = host
    while step >= 0 and (begun_s < math.inf or at_s[step] <= until_s):
        after = following[step]
        free = gpus[step, slot]
        if free < count or _served(free, room[step, 0], room[step, 1], job) < count:
            begun_s = math.inf
        else:
            if begun_s == math.inf:
                begun_s = max(at_s[step], from_s)
            if after < 0 or at_s[after] >= begun_s + job[LIMIT]:
                return begun_s
        step = after
    return math.inf


@scalar
def _steady(chain: Chain, host: int, slot: int, job: Floats, from_s: float) -> tuple[int, int]:
    """Return what stays free for a job's limit from `from_s` on.

    The GPUs of the node, and for how many GPUs its host has CPUs and memory.
    """
    at_s, gpus, room, following = chain
    until_s = from_s + job[LIMIT]
    free, served = ALL, ALL
    step = host
    while step >= 0 and at_s[step] < until_s:
        after = following[step]
        if after < 0 or at_s[after] > from_s:
            free = min(free, gpus[step, slot])
            served = min(served, _served(ALL, room[step, 0], room[step, 1], job))
        step = after
    return free, served


@scalar
def _split(chain: Chain, steps: int, host: int, when_s: float) -> tuple[int, int]:
    """Let a step begin at `when_s`, no earlier than the first; return its row, and all rows."""
    at_s, gpus, room, following = chain
    step = host
    while following[step] >= 0 and at_s[following[step]] <= when_s:
        step = following[step]
    if at_s[step] == when_s:
        return step, steps
    at_s[steps] = when_s
    # Element by element: compiled, an assignment of rows this short costs many times as much.
    for slot in range(gpus.shape[1]):
        gpus[steps, slot] = gpus[step, slot]
    room[steps, 0], room[steps, 1] = room[step, 0], room[step, 1]
    following[steps] = following[step]
    following[step] = steps
    return steps, steps + 1


@scalar
def _book(
    chain: Chain,
    steps: int,
    host: int,
    slot: int,
    from_s: float,
    until_s: float,
    count: int,
    cpus: float,
    memory_mb: float,
) -> int:
    """Take GPUs, CPUs and memory for [from_s, until_s); return the number of rows now in use."""
    _, gpus, room, following = chain
    step, steps = _split(chain, steps, host, from_s)
    last, steps = _split(chain, steps, host, until_s)
    while step != last:
        gpus[step, slot] -= count
        room[step, 0] -= cpus
        room[step, 1] -= memory_mb
        step = following[step]
    return steps


@scalar
def _one_node(
    chain: Chain,
    members: Ints,
    where: Ints,
    count: int,
    job: Floats,
    from_s: float,
    until_s: float,
) -> tuple[float, int]:
    """Return when and on which of the members a job can start first, if in [from_s, until_s].

    Of several the one whose GPUs it comes nearest to filling, then the first.
    """
    best_s, best, least = math.inf, -1, ALL
    for i in range(len(members)):
        host, slot = where[members[i], 0], where[members[i], 1]
        start_s = _earliest(chain, host, slot, count, job, from_s, until_s)
        if start_s == math.inf:
            continue
        free, _ = _steady(chain, host, slot, job, start_s)
        if start_s < best_s or free < least:
            best_s, best, least = start_s, members[i], free
            until_s = start_s
    return best_s, best


@scalar
def _several_nodes(
    chain: Chain,
    members: Ints,
    where: Ints,
    nodes: int,
    even: bool,
    count: int,
    job: Floats,
    from_s: float,
    until_s: float,
    pieces: Ints,
) -> float:
    """Return when a job can start on so many of the members; fill `pieces` with their GPUs."""
    largest = 0
    for i in range(len(members)):
        largest = max(largest, where[members[i], 2])
    # Each of so few nodes has to give this much.
    least = count // nodes if even else max(1, count - (nodes - 1) * largest)
    starts_s = np.empty(len(members))
    while from_s <= until_s and from_s < math.inf:
        for i in range(len(members)):
            host, slot = where[members[i], 0], where[members[i], 1]
            starts_s[i] = _earliest(chain, host, slot, least, job, from_s, until_s)
        # Nothing can start before the last of the first so many nodes is ready.
        ready_s = np.partition(starts_s, nodes - 1)[nodes - 1]
        if ready_s > from_s:
            from_s = ready_s
            continue
        if _fill(chain, members, where, starts_s, nodes, even, count, job, from_s, pieces):
            return from_s
        from_s = _next_step(chain, members, where, from_s)
    return math.inf


@scalar
def _fill(
    chain: Chain,
    members: Ints,
    where: Ints,
    starts_s: Floats,
    nodes: int,
    even: bool,
    count: int,
    job: Floats,
    from_s: float,
    pieces: Ints,
) -> bool:
    """Fill `pieces` with what each member gives from `from_s` on, those with the most GPUs first.

    Return whether so many nodes are enough.
    """
    free = np.zeros(len(members), np.int64)
    served = np.zeros(len(members), np.int64)
    for i in range(len(members)):
        if starts_s[i] <= from_s:
            free[i], served[i] = _steady(
                chain, where[members[i], 0], where[members[i], 1], job, from_s
            )
    pieces[:] = 0
    rest = count
    for _ in range(nodes):
        best, most = -1, 0
        for i in range(len(members)):
            if pieces[i] == 0 and min(free[i], served[i]) > most:
                best, most = i, min(free[i], served[i])
        if best < 0:
            return False
        piece = min(most, rest)
        if even:
            if most < count // nodes:
                return False
            piece = count // nodes
        pieces[best] = piece
        rest -= piece
        if rest == 0:
            return True
        for i in range(len(members)):
            # CPUs and memory that another node of the same host has not taken.
            if where[members[i], 0] == where[members[best], 0]:
                served[i] -= piece
    return False


@scalar
def _next_step(chain: Chain, members: Ints, where: Ints, from_s: float) -> float:
    """Return when the free room of any member changes next; infinity if it does not."""
    at_s, _, _, following = chain
    next_s = math.inf
    for i in range(len(members)):
        step = where[members[i], 0]
        while step >= 0 and at_s[step] <= from_s:
            step = following[step]
        if step >= 0:
            next_s = min(next_s, at_s[step])
    return next_s


@kernel(
    void(
        float64,
        float64,
        boolean,
        boolean,
        table(),
        table(int64),
        INTS,
        INTS,
        table(int64),
        table(),
        INTS,
        table(),
        table(int64),
        FLOATS_OUT,
        table(int64, out=True),
    )
)
def earliest_starts(
    now_s: float,
    overdue_s: float,
    reserve_all: bool,
    even: bool,
    hosts: Floats,
    where: Ints,
    members: Ints,
    type_from: Ints,
    held: Ints,
    held_until: Floats,
    counts: Ints,
    jobs: Floats,
    nodes: Ints,
    start_s: Floats,
    pieces: Ints,
) -> None:
    """Find the earliest start of each job, given those of the jobs before it.

    A job that cannot start now keeps the room that it is to have, if all jobs do (`reserve_all`) or
    if it is the first that waits for one of its GPU types.

    Args:
        now_s: the earliest start.
        overdue_s: what should have ended is taken to end so much later than now.
        reserve_all: whether every job that waits keeps room (conservative), or the first (EASY).
        even: whether all nodes of a job must give the same number of GPUs.
        hosts: (H, 2) CPUs and MiB of each host, infinite where they are not counted.
        where: (N, 3) host, place on the host, and GPUs of each node.
        members: (M,) the nodes that take work, those of one type together, in order.
        type_from: (T + 1,) where the nodes of each type begin in `members`.
        held: (R, 2) node and GPUs of what is in use; node -1 for rows that are void.
        held_until: (R, 3) until when, CPUs and MiB.
        counts: (J,) GPUs of each job.
        jobs: (J, 3) time limit, CPUs per GPU, MiB per GPU.
        nodes: (J, T + 1) on how many nodes of each type the job is to be, 0 where it cannot be; in
            the last column on how many nodes of all types that have a -1.
        start_s: (J,) out, seconds; infinity for a job that does not start now and keeps no room.
        pieces: (P, 3) out: job, node and GPUs, job by job; -1 after the last.
    """
    types = len(type_from) - 1
    rows = len(hosts) + 2 * (len(held) + len(pieces))
    at_s = np.empty(rows)
    gpus = np.zeros((rows, where[:, 1].max() + 1), np.int64)
    room = np.empty((rows, 2))
    following = np.full(rows, -1, np.int64)
    chain = (at_s, gpus, room, following)
    steps = len(hosts)
    at_s[:steps] = now_s
    room[:steps] = hosts
    for n in range(len(where)):
        gpus[where[n, 0], where[n, 1]] = where[n, 2]
    for r in range(len(held)):
        if held[r, 0] >= 0:
            host, slot = where[held[r, 0], 0], where[held[r, 0], 1]
            until_s = held_until[r, 0] if held_until[r, 0] > now_s else now_s + overdue_s
            cpus, memory_mb = held_until[r, 1], held_until[r, 2]
            steps = _book(chain, steps, host, slot, now_s, until_s, held[r, 1], cpus, memory_mb)

    waited_for = np.zeros(types, np.bool_)
    several = np.empty(len(members), np.int64)
    given = np.zeros(len(members), np.int64)
    taken = np.empty((len(members), 2), np.int64)
    piece = 0
    pieces[:] = -1
    for j in range(len(jobs)):
        job, count = jobs[j], counts[j]
        keeps = reserve_all
        for t in range(types):
            keeps = keeps or (nodes[j, t] != 0 and not waited_for[t])
        best_s, until_s = math.inf, math.inf if keeps else now_s
        parts = 0
        for t in range(types + 1):
            wanted = nodes[j, t]
            if wanted < 1:
                continue
            if t < types:
                among = members[type_from[t] : type_from[t + 1]]
            else:
                size = 0
                for u in range(types):
                    if nodes[j, u] == -1:
                        for i in range(type_from[u], type_from[u + 1]):
                            several[size] = members[i]
                            size += 1
                among = several[:size]
            if len(among) < wanted:
                continue
            if wanted == 1:
                found_s, node = _one_node(chain, among, where, count, job, now_s, until_s)
                if found_s < best_s:
                    best_s, parts = found_s, 1
                    taken[0, 0], taken[0, 1] = node, count
            else:
                share = given[: len(among)]
                found_s = _several_nodes(
                    chain, among, where, wanted, even, count, job, now_s, until_s, share
                )
                if found_s < best_s:
                    best_s, parts = found_s, 0
                    for i in range(len(among)):
                        if share[i] > 0:
                            taken[parts, 0], taken[parts, 1] = among[i], share[i]
                            parts += 1
            if best_s == now_s:
                break
            until_s = min(until_s, best_s)
        start_s[j] = best_s
        if best_s == math.inf:
            continue
        if best_s > now_s:
            for t in range(types):
                waited_for[t] = waited_for[t] or nodes[j, t] != 0
        for i in range(parts):
            node, share_gpus = taken[i, 0], taken[i, 1]
            pieces[piece, 0], pieces[piece, 1], pieces[piece, 2] = j, node, share_gpus
            piece += 1
            steps = _book(
                chain,
                steps,
                where[node, 0],
                where[node, 1],
                best_s,
                best_s + job[LIMIT],
                share_gpus,
                share_gpus * job[CPUS],
                share_gpus * job[MEMORY],
            )
