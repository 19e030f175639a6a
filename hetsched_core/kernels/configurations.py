"""Generating configurations over node classes, and the options of jobs (Hops, SoCC '24, 3.6).

The naive twins are in `tests/hetsched_core/policies/hops/naive.py`. A *want* is a GPU count that
some job accepts; a *need* is what a job takes beside its GPUs, which limits how many GPUs of a
node it can use. Classes are sorted by GPU type and, inside a type, by *pool*: the topology group
that a distributed configuration stays in, unless no group could ever hold it.
"""

from __future__ import annotations

import numpy as np

from hetsched_core.kernels import (
    Floats,
    FloatsOut,
    FloatTable,
    Ints,
    IntsOut,
    IntTable,
    IntTableOut,
    kernel,
    scalar,
)

ONE_NODE, UNEVEN, EVEN = 0, 1, 2
"""What configurations may look like: on one node; over several; over several in equal parts."""

MOST_STEPS = 20_000
"""After so many steps the search for distributed configurations of one want in a pool ends."""


@scalar
def _emit(pieces: int, piece: Ints, at: Ints, write: bool, ends: Ints, out: Ints) -> None:
    """Put out a configuration of `pieces` triples (class, GPUs, nodes), in ascending order.

    `at` holds how many configurations and pieces have been put out so far.
    """
    if write:
        for k in range(1, pieces):
            node_class, gpus, nodes = piece[k, 0], piece[k, 1], piece[k, 2]
            i = k
            while i > 0 and (
                piece[i - 1, 0] > node_class
                or (piece[i - 1, 0] == node_class and piece[i - 1, 1] > gpus)
            ):
                for column in range(3):
                    piece[i, column] = piece[i - 1, column]
                i -= 1
            piece[i, 0], piece[i, 1], piece[i, 2] = node_class, gpus, nodes
        for k in range(pieces):
            for column in range(3):
                out[at[1] + k, column] = piece[k, column]
        ends[at[0]] = at[1] + pieces
    at[0] += 1
    at[1] += pieces


@scalar
def _members(usable: Ints, count: Ints, first: int, last: int, below: int) -> Ints:
    """Return the (M, 3) class, usable GPUs and nodes of a pool's classes that can be used at all.

    Those with `below` usable GPUs or more are left out; the most usable GPUs come first.
    """
    able = 0
    members = np.empty((last - first, 3), dtype=np.int64)
    for c in range(first, last):
        if not 0 < usable[c] < below or count[c] == 0:
            continue
        i = able
        while i > 0 and members[i - 1, 1] < usable[c]:
            members[i] = members[i - 1]
            i -= 1
        members[i, 0], members[i, 1], members[i, 2] = c, usable[c], count[c]
        able += 1
    return members[:able]


@scalar
def _fewest(members: Ints, want: int, even: bool, least: int, most: int) -> int:
    """Return on how few nodes of a pool, from `least` to `most`, `want` GPUs can be had; 0 if none.

    On any nodes, all full but one, with a `least` of 2; with `even` in equal parts.
    """
    if even:
        for nodes in range(least, min(want, most) + 1):
            if want % nodes == 0:
                able = 0
                for i in range(len(members)):
                    if members[i, 1] >= want // nodes:
                        able += members[i, 2]
                if able >= nodes:
                    return nodes
        return 0
    total = 0
    fewest = 0
    for i in range(len(members)):
        gpus, count = members[i, 1], members[i, 2]
        if total + gpus * count >= want:
            fewest += (want - total + gpus - 1) // gpus
            if fewest == 1 and (count > 1 or len(members) > 1):
                fewest = 2
            return int(fewest) if 1 < fewest <= most else 0
        total += gpus * count
        fewest += count
    return 0


@scalar
def _on_any_nodes(
    members: Ints, want: int, nodes: int, most: int, at: Ints, write: bool, ends: Ints, out: Ints
) -> None:
    """Put out the multisets of `nodes` nodes of which all are full but one, which takes the rest.

    At most `most` of them.
    """
    classes, full = len(members), nodes - 1
    chosen = np.zeros(full, dtype=np.int64)
    used = np.zeros(classes, dtype=np.int64)
    piece = np.empty((classes + 1, 3), dtype=np.int64)
    level = total = steps = found = 0
    while level >= 0 and found < most and steps < MOST_STEPS:
        steps += 1
        i = chosen[level]
        if i < classes and total + (full - level) * members[i, 1] + members[0, 1] < want:
            # Nor do those with fewer GPUs reach it.
            i = classes
        if i == classes:
            level -= 1
            if level >= 0:
                used[chosen[level]] -= 1
                total -= members[chosen[level], 1]
                chosen[level] += 1
            continue
        if used[i] == members[i, 2] or total + members[i, 1] >= want:
            chosen[level] += 1
            continue
        if level < full - 1:
            used[i] += 1
            total += members[i, 1]
            level += 1
            chosen[level] = i
            continue
        used[i] += 1
        rest = want - total - members[i, 1]
        for j in range(classes):
            gpus = members[j, 1]
            # If the last node is full too, it has been counted among the others.
            if used[j] == members[j, 2] or gpus < rest or (gpus == rest and j < i):
                continue
            if found == most:
                break
            pieces = 0
            for m in range(classes):
                whole = used[m] + (m == j and gpus == rest)
                if whole > 0:
                    piece[pieces, 0], piece[pieces, 1] = members[m, 0], members[m, 1]
                    piece[pieces, 2] = whole
                    pieces += 1
            if gpus > rest:
                piece[pieces, 0], piece[pieces, 1], piece[pieces, 2] = members[j, 0], rest, 1
                pieces += 1
            _emit(pieces, piece, at, write, ends, out)
            found += 1
        used[i] -= 1
        chosen[level] += 1


@scalar
def _in_equal_parts(
    members: Ints, want: int, nodes: int, at: Ints, write: bool, ends: Ints, out: Ints
) -> None:
    """Put out equal parts on `nodes` nodes: from each class on, those with fewer GPUs after it."""
    piece = np.empty((len(members), 3), dtype=np.int64)
    for start in range(len(members)):
        pieces, left = 0, nodes
        for i in range(start, len(members)):
            if members[i, 1] >= want // nodes and left > 0:
                piece[pieces, 0], piece[pieces, 1] = members[i, 0], want // nodes
                piece[pieces, 2] = min(members[i, 2], left)
                left -= piece[pieces, 2]
                pieces += 1
        if left == 0:
            _emit(pieces, piece, at, write, ends, out)


@scalar
def _next_nodes(
    usable: Ints, start: int, last: int, want: int, each: int, below: int, most: int, piece: Ints
) -> int:
    """Take nodes in the order of ids from `start` on until they have `want` GPUs.

    Every node is filled, or gives `each` if that is above 0; those that cannot are passed over, and
    in the latter case those with `below` usable GPUs or more.

    Returns:
        how many nodes it takes, at most `most`; 0 if there are too few, or one would do.
    """
    if not max(1, each) <= usable[start] < (below if each > 0 else want):
        return 0
    pieces, left = 0, want
    for c in range(start, last):
        if usable[c] < max(1, each) or (each > 0 and usable[c] >= below):
            continue
        if pieces == most:
            break
        piece[pieces, 0], piece[pieces, 1] = c, each if each > 0 else min(usable[c], left)
        piece[pieces, 2] = 1
        left -= piece[pieces, 1]
        pieces += 1
        if left == 0:
            return pieces
    return 0


@scalar
def _fewest_neighbours(
    usable: Ints,
    first: int,
    last: int,
    want: int,
    even: bool,
    fewest: int,
    furthest: int,
    below: int,
    piece: Ints,
) -> int:
    """Return on how few nodes in the order of ids `want` GPUs are; 0 if on none.

    On `fewest`, 2 or more, to `furthest` nodes.
    """
    if even:
        for nodes in range(fewest, min(want, furthest) + 1):
            if want % nodes == 0:
                for start in range(first, last):
                    each = want // nodes
                    if _next_nodes(usable, start, last, want, each, below, nodes, piece):
                        return nodes
        return 0
    best = 0
    for start in range(first, last):
        most = min(best - 1 if best else len(piece), furthest)
        nodes = _next_nodes(usable, start, last, want, 0, below, most, piece)
        if nodes:
            best = nodes
    return best


@scalar
def _spread(
    usable: Ints,
    count: Ints,
    pools: Ints,
    want: int,
    even: bool,
    least: int,
    furthest: int,
    by_id: bool,
    most: int,
    at: Ints,
    write: bool,
    ends: Ints,
    out: Ints,
) -> None:
    """Put out the distributed configurations of one want, on the fewest nodes of any pool.

    `pools` holds where each pool begins, and where the last one ends.
    """
    neighbours = np.empty((min(want, len(usable)) if by_id else 0, 3), dtype=np.int64)
    fewest = np.zeros(len(pools) - 1, dtype=np.int64)
    # A node that could hold all is left out, unless the job may not be on one.
    below = want if even and least < 2 else np.iinfo(np.int64).max
    few = max(2, least)
    best = 0
    for p in range(len(fewest)):
        first, last = pools[p], pools[p + 1]
        if by_id:
            fewest[p] = _fewest_neighbours(
                usable, first, last, want, even, few, furthest, below, neighbours
            )
        else:
            members = _members(usable, count, first, last, below)
            fewest[p] = _fewest(members, want, even, few, furthest)
        if fewest[p] and (best == 0 or fewest[p] < best):
            best = fewest[p]
    for p in range(len(fewest)):
        if best == 0 or fewest[p] != best:
            continue
        first, last = pools[p], pools[p + 1]
        if by_id:
            each = want // best if even else 0
            for start in range(first, last):
                nodes = _next_nodes(usable, start, last, want, each, below, best, neighbours)
                if nodes:
                    _emit(nodes, neighbours, at, write, ends, out)
        elif even:
            members = _members(usable, count, first, last, below)
            _in_equal_parts(members, want, best, at, write, ends, out)
        else:
            members = _members(usable, count, first, last, below)
            _on_any_nodes(members, want, best, most, at, write, ends, out)


@kernel()
def on_classes(
    wants: Ints,
    usable: IntTable,
    count: Ints,
    type_from: Ints,
    pool_from: Ints,
    type_pools: Ints,
    in_pool: IntTable,
    least: Ints,
    furthest: Ints,
    shape: Ints,
    by_id: bool,
    most: int,
    write: bool,
    size: IntsOut,
    starts: IntsOut,
    spread_from: IntsOut,
    ends: IntsOut,
    out: IntTableOut,
) -> None:
    """Put out every configuration of each (need, GPU type, want), aggregated ones first.

    Distributed ones are on the fewest nodes that hold the want; every node is filled but the last.

    Args:
        wants: (U,) ascending GPU counts.
        usable: (D, C) GPUs of a node of each class that a job of each need can use.
        count: (C,) nodes of each class.
        type_from: (T+1,) where the classes of each type begin.
        pool_from: (L+1,) where the classes of each pool begin.
        type_pools: (T+1,) where the pools of each type begin.
        in_pool: (D T, U) whether a want stays in one pool; else it takes nodes of all pools.
        least: (D,) on how many nodes a job of each need has to be; above 1 they give equal parts.
        furthest: (D,) on how many it may be.
        shape: (D,) `ONE_NODE`, `UNEVEN` or `EVEN`.
        by_id: whether a configuration's nodes follow each other in the order of ids; every class is
            one node then.
        most: distributed configurations of one want in a pool, if not `by_id`.
        write: whether to fill `ends` and `out`; without, only `size` is filled.
        size: (2,) out; configurations and pieces.
        starts: (D T U + 1,) out; where the configurations of each (need, type, want) begin.
        spread_from: (D T U,) out; where the distributed ones among them begin.
        ends: (Q,) out; where the pieces of each configuration end.
        out: (P, 3) out; class and GPUs of each piece, ascending inside a configuration, and on how
            many nodes it is.
    """
    types = len(type_from) - 1
    at = np.zeros(2, dtype=np.int64)
    piece = np.ones((1, 3), dtype=np.int64)
    entry = 0
    for d in range(len(usable)):
        for t in range(types):
            first, last = type_from[t], type_from[t + 1]
            pools = pool_from[type_pools[t] : type_pools[t + 1] + 1]
            whole_type = np.array([first, last])
            for u in range(len(wants)):
                want = wants[u]
                starts[entry] = at[0]
                for c in range(first, last):
                    if usable[d, c] >= want and least[d] < 2:
                        piece[0, 0], piece[0, 1] = c, want
                        _emit(1, piece, at, write, ends, out)
                spread_from[entry] = at[0]
                if shape[d] != ONE_NODE and want > 1 and last > first and furthest[d] > 1:
                    _spread(
                        usable[d],
                        count,
                        pools if in_pool[d * types + t, u] else whole_type,
                        want,
                        shape[d] == EVEN or least[d] > 1,
                        least[d],
                        furthest[d],
                        by_id,
                        most,
                        at,
                        write,
                        ends,
                        out,
                    )
                entry += 1
    starts[entry] = at[0]
    size[:] = at


@kernel()
def of_jobs(
    kind: Ints,
    segment_from: Ints,
    begin: Ints,
    end: Ints,
    speed: Floats,
    factor_row: Ints,
    factor: FloatTable,
    code: Ints,
    own: Ints,
    own_speed: Floats,
    out_job: IntsOut,
    out_stays: IntsOut,
    out_speed: FloatsOut,
    out_configuration: IntsOut,
    size: IntsOut,
) -> None:
    """Put out the options of each job: the segments of configurations that its kind can take.

    Args:
        kind: (J,) of each job.
        segment_from: (K+1,) where the segments of each kind begin.
        begin: (S,) first configuration of each segment, all of one GPU count on one type.
        end: (S,) the one after its last.
        speed: (S,) samples/s there on nodes of the type's own speed, above 0.
        factor_row: (K,) row of `factor` for each kind.
        factor: (F, Q) of each configuration: speed of its slowest node relative to the type.
        code: (Q,) equal for configurations of equal pieces, 0 or more.
        own: (J,) the configuration that the job has, among the Q, -1 for none. It is put out last
            if it is not in the job's segments.
        own_speed: (J,) samples/s there.
        out_job: out; the job of each option.
        out_stays: out; 1 where it is what the job has, else 0.
        out_speed: out; samples/s there.
        out_configuration: out; which it is, among the Q.
        size: (1,) out; options.
    """
    options = 0
    for j in range(len(kind)):
        k, missing = kind[j], own[j] >= 0
        row, own_code = factor_row[k], code[own[j]] if missing else -1
        for s in range(segment_from[k], segment_from[k + 1]):
            for q in range(begin[s], end[s]):
                stays = code[q] == own_code
                if stays:
                    missing = False
                out_job[options], out_stays[options] = j, stays
                out_speed[options] = speed[s] * factor[row, q]
                out_configuration[options] = q
                options += 1
        if missing and own_speed[j] > 0.0:
            q = own[j]
            out_job[options], out_stays[options], out_speed[options] = j, 1, own_speed[j]
            out_configuration[options] = q
            options += 1
    size[0] = options
