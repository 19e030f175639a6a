"""The room of each host from now on, as the jobs that run there are expected to end.

The naive twin is `tests/hetsched_core/placement/naive_backfill.py`, which holds it together with
`hetsched_core.kernels.backfill`, for which this is made.

What is free is kept for each host (its CPUs and memory, and the GPUs of each of its nodes) as a
*chain* of steps in time, which are short because a host holds few jobs at once. A step is a row in
four arrays: when it begins, GPUs by place on the host, (CPUs, MiB), and the row of the step that
follows, -1 where none does. The chain of a host begins in the row that its number and the length of
all chains (one step for each row of what is held, and one before) tell, and its first step has
begun at any time. Since jobs only end, all room grows from step to step.
"""

from __future__ import annotations

import math

import numpy as np

from hetsched_core.kernels import (
    FloatCube,
    Floats,
    FloatsOut,
    FloatTable,
    FloatTableOut,
    IntCube,
    Ints,
    IntsOut,
    IntTable,
    IntTableOut,
    kernel,
    scalar,
)

Chains = tuple[Floats, Ints, Floats, Ints]

HOST, PLACE = range(2)
"""The columns of `members` that are read here."""

AGAIN = -math.inf
"""Stands for the time up to which a chain holds where it is to be made again."""


@scalar
def _make(
    chains: Chains, first: int, held: Ints, held_until: Floats, ends_s: Floats, order: Ints
) -> None:
    """Make the chain of a host; its first step is there, and idle."""
    at_s, gpus, room, following = chains
    running = 0
    for r in range(len(held)):
        if held[r, 1] == 0:
            continue
        gpus[first, held[r, 0]] -= held[r, 1]
        room[first, 0] -= held_until[r, 1]
        room[first, 1] -= held_until[r, 2]
        k = running
        while k > 0 and ends_s[order[k - 1]] > ends_s[r]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = r
        running += 1
    at_s[first] = -math.inf
    step = first
    for k in range(running):
        r = order[k]
        if ends_s[r] > at_s[step]:
            at_s[step + 1] = ends_s[r]
            # Element by element: compiled, an assignment of rows this short costs far more.
            for place in range(gpus.shape[1]):
                gpus[step + 1, place] = gpus[step, place]
            room[step + 1, 0], room[step + 1, 1] = room[step, 0], room[step, 1]
            following[step] = step + 1
            step += 1
        gpus[step, held[r, 0]] += held[r, 1]
        room[step, 0] += held_until[r, 1]
        room[step, 1] += held_until[r, 2]
    following[step] = -1


@kernel()
def expect_room(
    now_s: float,
    overdue_s: float,
    capacity: IntTable,
    hosts: FloatTable,
    held: IntCube,
    held_until: FloatCube,
    members: IntTable,
    sizes: Ints,
    holds_until_s: FloatsOut,
    at_s: FloatsOut,
    gpus: IntTableOut,
    room: FloatTableOut,
    following: IntsOut,
    ready_s: FloatTableOut,
) -> None:
    """Make the chains anew of those hosts for which they do not hold any more.

    Args:
        now_s: the present.
        overdue_s: what should have ended is taken to end so much later than now.
        capacity: (H, G) GPUs that jobs may hold at each place of each host.
        hosts: (H, 2) CPUs and MiB of each host, infinite where they are not counted.
        held: (H, R, 2) place and GPUs of what is in use; 0 GPUs in rows that are void.
        held_until: (H, R, 3) until when, CPUs and MiB.
        members: (M, 5) host and place of the nodes that take work; the rest is not read.
        sizes: (C,) the numbers of GPUs that jobs want of a node.
        holds_until_s: (H,) in and out: up to when each chain holds; `AGAIN` for one that is to be
            made again at any time.
        at_s: (S,) in and out: when each step begins; the first R + 1 rows are those of the first
            host, and so on. S may be greater than H (R + 1).
        gpus: (S, G) in and out.
        room: (S, 2) in and out.
        following: (S,) in and out.
        ready_s: (C, M) in and out: from when on each node has so many GPUs at all times; infinity
            if it never has.
    """
    chains = (at_s, gpus, room, following)
    length = held.shape[1] + 1
    ends_s = np.empty(held.shape[1])
    order = np.empty(held.shape[1], np.int64)
    made = np.zeros(len(hosts), np.bool_)
    for h in range(len(hosts)):
        if holds_until_s[h] > now_s:
            continue
        made[h] = True
        soonest_s = math.inf
        for r in range(len(ends_s)):
            ends_s[r] = held_until[h, r, 0]
            if held[h, r, 1] > 0:
                soonest_s = min(soonest_s, ends_s[r])
                if ends_s[r] <= now_s:
                    ends_s[r] = now_s + overdue_s
        holds_until_s[h] = soonest_s if soonest_s > now_s else AGAIN
        for place in range(gpus.shape[1]):
            gpus[h * length, place] = capacity[h, place]
        room[h * length, 0], room[h * length, 1] = hosts[h, 0], hosts[h, 1]
        _make(chains, h * length, held[h], held_until[h], ends_s, order)
    for i in range(len(members)):
        if not made[members[i, HOST]]:
            continue
        step = members[i, HOST] * length
        for c in range(len(sizes)):
            # Sizes ascend, and so does the time.
            while step >= 0 and gpus[step, members[i, PLACE]] < sizes[c]:
                step = following[step]
            ready_s[c, i] = at_s[step] if step >= 0 else math.inf
