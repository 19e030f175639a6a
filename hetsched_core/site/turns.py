"""Accounts and users by turns, each as often as is due to it: fair queueing over a tree of shares.

In the manner of weighted fair queueing (Demers, Keshav and Shenker, SIGCOMM '89), hierarchical as
in Bennett and Zhang (SIGCOMM '96), with GPUs in the place of bits. The jobs at the front of the
order, which get the GPUs, are then of each account in the proportion of its shares at any time.
Fair Tree would serve one account alone until another is owed more, which stops jobs in turn where
they can be stopped.

What was used counts, too: siblings are served by

    (memory * busy * part * due + given + wanted / 2) / share

where `busy` is how much of the cluster was used of late (decayed), `part` what it has of what its
siblings and it have used, `due` what its account would hold of the cluster's GPUs by shares,
`given` what its jobs ahead in the order have, `wanted` what its next job asks for. With `part` at
`share` for all, the past says nothing. What has had more than is due to it is held back in
proportion, and so comes back to its share within some half-life / (1 + memory).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from hetsched_core.site.fair_tree import effective_usage
from hetsched_core.types import JobView, Snapshot
from hetsched_core.types.site import ROOT, Association, ShareTree, association_of

BEYOND = 0.01
"""What a GPU beyond what is due to an account counts in an objective: little enough that it goes
to somebody else who is due it, and more than nothing, so that none is idle."""

MEMORY = 10.0
"""How much more the past counts than the present: an account that has had a tenth more than is due
to it, of all GPUs, is served as if it held all of them now."""


def wanted_gpus(view: JobView) -> int:
    """Return the GPUs that a job holds, or asks for."""
    if view.configuration is not None:
        return view.configuration.gpus
    return view.job.requirements.lower_median


def in_turn(
    snapshot: Snapshot,
    order: Sequence[JobView],
    *,
    running_stay: bool,
    wanted: Callable[[JobView], float] = wanted_gpus,
) -> list[JobView]:
    """Return jobs in the order in which the site wants them to be served.

    Higher tiers come first. Within a tier accounts and users take turns by what is due to them, and
    the jobs of a user keep their order. Without tiers and shares it is the order given. What holds
    GPUs and is not among the jobs is counted first.

    Args:
        snapshot: says what is due.
        order: active jobs in the order of the policy.
        running_stay: whether what holds GPUs keeps them whatever the order. It is first then.
        wanted: how many GPUs a job gets when it is served.
    """
    if snapshot.site is None:
        return list(order)
    first = [view for view in order if running_stay and view.configuration is not None]
    rest = [view for view in order if not (running_stay and view.configuration is not None)]
    rest.sort(key=lambda view: -view.job.tier)
    if snapshot.site.tree is None:
        return first + rest
    users = {association_of(view.job) for view in order}
    tree = snapshot.site.tree.with_users(users)
    turns = _Turns(tree, snapshot.site.used, snapshot.cluster.gpus, wanted)
    for view in (*_others(snapshot, order), *first):
        turns.give(association_of(view.job), wanted(view))
    for _, tier in groupby(rest, key=lambda view: view.job.tier):
        first += turns.serve(tier)
    return first


def portions(
    snapshot: Snapshot,
    views: Sequence[JobView],
    *,
    wanted: Callable[[JobView], float] = wanted_gpus,
) -> list[list[JobView]]:
    """Cut jobs into portions: the first asks for all GPUs, each further one for twice as many.

    So the first has what is due to whom now. What holds GPUs and is not among the jobs has its part
    of them already; what is, is first among those of its user. One portion where the site makes no
    difference between the jobs: the order is the policy's alone.

    Args:
        snapshot: says what is due, and what there is.
        views: active jobs in the order of the policy.
        wanted: how many GPUs a job gets when it is served.
    """
    if _alike(snapshot, views):
        return [list(views)]
    gpus: float = sum(node.capacity for node in snapshot.node_views() if node.open)
    gpus = max(1.0, gpus - sum(map(wanted_gpus, _others(snapshot, views))))
    found: list[list[JobView]] = [[]]
    left = gpus
    running_first = sorted(views, key=lambda view: view.configuration is None)
    for view in in_turn(snapshot, running_first, running_stay=False, wanted=wanted):
        if left <= 0:
            found.append([])
            left = gpus = 2 * gpus
        found[-1].append(view)
        left -= wanted(view)
    return found


def weights(
    snapshot: Snapshot,
    views: Sequence[JobView],
    *,
    wanted: Callable[[JobView], float] = wanted_gpus,
) -> NDArray[np.float64]:
    """Return (J,) what each job counts in an objective: 1 within what is due, `BEYOND` above it.

    Args:
        snapshot: says what is due, and what there is.
        views: active jobs in the order of the policy.
        wanted: how many GPUs a job gets when it is served.
    """
    first = {view.id for view in portions(snapshot, views, wanted=wanted)[0]}
    return np.array([1.0 if view.id in first else BEYOND for view in views])


def _others(snapshot: Snapshot, views: Iterable[JobView]) -> list[JobView]:
    """Return what holds GPUs and is not among these jobs."""
    among = {view.id for view in views}
    return [
        view
        for view in snapshot.by_submission()
        if view.configuration is not None and view.id not in among
    ]


def _alike(snapshot: Snapshot, views: Iterable[JobView]) -> bool:
    """Whether the site makes no difference between jobs: they are of one user and one tier."""
    site = snapshot.site
    if site is None:
        return True
    if len({view.job.tier for view in views}) > 1:
        return False
    return site.tree is None or len({association_of(view.job) for view in views}) < 2


class _Turns:
    """The tree of shares, with what each account and user has been given so far."""

    def __init__(
        self,
        tree: ShareTree,
        used: Mapping[Association, float],
        gpus: int,
        wanted: Callable[[JobView], float],
    ) -> None:
        self._tree, self._wanted = tree, wanted
        self._given: dict[Association, float] = {}
        # What each would have been given for its part in the past, and how much is due to it.
        self._past: dict[Association, float] = {}
        self._share: dict[Association, float] = {}
        part, memory = effective_usage(tree, used), MEMORY * min(1.0, sum(used.values()))
        levels = [(ROOT, float(gpus))]
        while levels:
            account, of_account = levels.pop()
            # What counts as its account has one share and no past of its own.
            asked = {each: tree.shares.get(each, 1) for each in tree.children.get(account, ())}
            shares = {each: 1 if raw is None else raw for each, raw in asked.items()}
            whole = sum(shares.values())
            for each, raw in shares.items():
                self._share[each] = raw / whole if whole else 0.0
                due = self._share[each] * of_account
                self._past[each] = 0.0 if asked[each] is None else memory * part[each] * of_account
                if not each[1]:
                    levels.append((each[0], due))

    def give(self, user: Association, gpus: float) -> None:
        """Count GPUs that a user has, ahead of all that is served later."""
        for step in self._tree.path(user):
            self._given[step] = self._given.get(step, 0.0) + gpus

    def serve(self, views: Iterable[JobView]) -> list[JobView]:
        """Return the jobs by turns of their users."""
        # Account or user -> its jobs in order, or the heap of its members that have jobs.
        jobs: dict[Association, deque[tuple[int, JobView]]] = {}
        for at, view in enumerate(views):
            jobs.setdefault(association_of(view.job), deque()).append((at, view))
        members: dict[Association, set[Association]] = {}
        for user in jobs:
            above = (ROOT, "")
            for step in self._tree.path(user):
                members.setdefault(above, set()).add(step)
                above = step
        heaps: dict[Association, list[_Place]] = {}
        heads: dict[Association, tuple[int, JobView]] = {user: q[0] for user, q in jobs.items()}
        # From the users up: who is next in an account is known once its members are in order.
        for account in sorted(members, key=lambda each: -len(self._tree.path(each))):
            heaps[account] = [self._place(each, heads[each]) for each in members[account]]
            heapify(heaps[account])
            heads[account] = heads[heaps[account][0][2]]
        served = []
        while heaps.get((ROOT, "")):
            path = [(ROOT, "")]
            while path[-1] in heaps:
                path.append(heaps[path[-1]][0][2])
            user = path[-1]
            _, view = jobs[user].popleft()
            served.append(view)
            self.give(user, self._wanted(view))
            left = bool(jobs[user])
            if left:
                heads[user] = jobs[user][0]
            for account, member in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
                if left:
                    heapreplace(heaps[account], self._place(member, heads[member]))
                else:
                    heappop(heaps[account])
                left = bool(heaps[account])
                if left:
                    heads[account] = heads[heaps[account][0][2]]
        return served

    def _place(self, member: Association, head: tuple[int, JobView]) -> _Place:
        """Return where a member stands among its siblings: the least is served next."""
        at, view = head
        share = self._share[member]
        mass = self._past[member] + self._given.get(member, 0.0) + self._wanted(view) / 2
        return (mass / share if share else float("inf"), at, member)


_Place = tuple[float, int, Association]
