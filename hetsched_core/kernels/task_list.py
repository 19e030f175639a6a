"""List scheduling of training tasks (Hare, HPDC '22, Algorithm 1).

GPUs of one kind are alike for every job, so that a task goes on one of those that are free first.
A tree for each kind finds it: leaf i says when the kind's i-th GPU is free, every node above the
least of its two. A task costs steps in the kinds and in the logarithm of the GPUs.
"""

from __future__ import annotations

import numpy as np

from hetsched_core.kernels import Floats, FloatsOut, FloatTable, Ints, IntsOut, kernel, scalar


@scalar
def _leaves(gpus: int) -> int:
    """Return the least power of 2 that is as large."""
    leaves = 1
    while leaves < gpus:
        leaves *= 2
    return leaves


@scalar
def _set(tree: Floats, leaf: int, free_s: float) -> None:
    """Say when a GPU is free; the root is node 1, and the second half of the tree the leaves."""
    node = len(tree) // 2 + leaf
    tree[node] = free_s
    while node > 1:
        node //= 2
        tree[node] = min(tree[2 * node], tree[2 * node + 1])


@scalar
def _first_free(tree: Floats, by_s: float) -> int:
    """Return the first leaf that is free by a time at which one is."""
    node, leaves = 1, len(tree) // 2
    while node < leaves:
        node *= 2
        if tree[node] > by_s:
            node += 1
    return node - leaves


@kernel()
def list_schedule(
    order: Ints,
    scale: Ints,
    first: Ints,
    opens_s: Floats,
    train_s: FloatTable,
    sync_s: FloatTable,
    kind_from: Ints,
    of_kind: Ints,
    by_finish: bool,
    free_s: FloatsOut,
    gpu: IntsOut,
    start_s: FloatsOut,
    complete_s: FloatsOut,
) -> None:
    """Give each task of an order its GPU and its start; ties go to the lower GPU.

    A task is available when the round before is trained and in step, the first ones at `opens_s`.
    A GPU is taken for T^c: synchronisation overlaps the next task.

    Args:
        order: (I,) the job of each task; the tasks of a job are its rounds in order.
        scale: (N,) tasks of a round.
        first: (N,) tasks of the job's first round: fewer than `scale` where some have begun.
        opens_s: (N,) when the first round may begin.
        train_s: (N, K) T^c by kind of GPU; infinite where the job cannot run.
        sync_s: (N, K) T^s.
        kind_from: (K + 1,) where the GPUs of each kind begin in `of_kind`.
        of_kind: (M,) the GPUs, those of one kind together and ascending.
        by_finish: take the GPU on which the task is in step first, else the one that is free first.
        free_s: (M,) when each GPU is free; left as it is after the last task.
        gpu: (I,) the result.
        start_s: (I,) the result.
        complete_s: (N,) when the job's last task so far is in step; holds, to begin with, before
            when no round ends.
    """
    kinds = train_s.shape[1]
    tree_from = np.zeros(kinds + 1, np.int64)
    for k in range(kinds):
        tree_from[k + 1] = tree_from[k] + 2 * _leaves(kind_from[k + 1] - kind_from[k])
    trees = np.full(tree_from[kinds], np.inf)
    for k in range(kinds):
        for i in range(kind_from[k + 1] - kind_from[k]):
            _set(trees[tree_from[k] : tree_from[k + 1]], i, free_s[of_kind[kind_from[k] + i]])
    opened = opens_s.copy()
    left = first.copy()
    for i in range(len(order)):
        job = order[i]
        if left[job] == 0:
            opened[job] = complete_s[job]
            left[job] = scale[job]
        best, best_key, best_kind, best_leaf = -1, np.inf, 0, 0
        for k in range(kinds):
            if train_s[job, k] == np.inf:
                continue
            tree = trees[tree_from[k] : tree_from[k + 1]]
            key = by_s = tree[1]
            if by_finish:
                by_s = max(by_s, opened[job])
                key = by_s + train_s[job, k] + sync_s[job, k]
            if best >= 0 and key > best_key:
                continue
            leaf = _first_free(tree, by_s)
            m = of_kind[kind_from[k] + leaf]
            if best < 0 or key < best_key or m < best:
                best, best_key, best_kind, best_leaf = m, key, k, leaf
        begin = max(free_s[best], opened[job])
        trained = begin + train_s[job, best_kind]
        free_s[best] = trained
        _set(trees[tree_from[best_kind] : tree_from[best_kind + 1]], best_leaf, trained)
        gpu[i] = best
        start_s[i] = begin
        complete_s[job] = max(complete_s[job], trained + sync_s[job, best_kind])
        left[job] -= 1


@kernel()
def fluid(
    arrival_s: Floats,
    work: Floats,
    most: Floats,
    preference: Ints,
    begin_s: FloatsOut,
    end_s: FloatsOut,
) -> None:
    """Serve jobs like a fluid by one server of rate 1, those preferred first.

    Args:
        arrival_s: (N,) when each may be served.
        work: (N,) seconds of the whole server.
        most: (N,) the largest share of it that each can take, above 0.
        preference: (N,) the jobs, the first to be served first.
        begin_s: (N,) out, when each begins to be served; infinite to begin with.
        end_s: (N,) out, when it has been.
    """
    jobs = len(work)
    left, share = work.copy(), np.zeros(jobs)
    arrivals = np.sort(arrival_s)
    now, arrived = arrivals[0], 0
    while True:
        while arrived < jobs and arrivals[arrived] <= now:
            arrived += 1
        free, until = 1.0, np.inf
        for n in preference:
            share[n] = 0.0
            if free > 0 and left[n] > 0 and arrival_s[n] <= now:
                share[n] = min(free, most[n])
                free -= share[n]
                until = min(until, left[n] / share[n])
                begin_s[n] = min(begin_s[n], now)
        if np.isinf(until) and arrived == jobs:
            break
        until += now
        if arrived < jobs:
            until = min(until, arrivals[arrived])
        for n in range(jobs):
            if share[n] > 0:
                left[n] -= share[n] * (until - now)
                if left[n] <= 1e-9 * work[n]:
                    left[n], end_s[n] = 0.0, until
        now = until
