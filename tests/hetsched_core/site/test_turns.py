"""Turns of accounts and users: what is at the front of the order is due to whom it is of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from hetsched_core.site import in_turn, portions
from hetsched_core.types import JobView, Snapshot
from hetsched_core.types.site import Association, ShareTree, Site, association_of
from tests.hetsched_core.worlds import cluster_of, held, on, snapshot_of, view

CLUSTER = cluster_of(n0=("a100", 8), n1=("a100", 8))
THREE_TO_ONE = Site(ShareTree({("A", ""): 3, ("B", ""): 1}))


def job(name: str, account: str, *, gpus: int = 1, user: str = "u", tier: int = 0) -> JobView:
    return view(name, counts=(gpus,), account=account, user=user, tier=tier)


def snapshot(views: list[JobView], site: Site | None = THREE_TO_ONE) -> Snapshot:
    return replace(snapshot_of(CLUSTER, views), site=site)


def names(views: list[JobView]) -> str:
    return " ".join(each.id for each in views)


def gpus_of_the_first(views: list[JobView], gpus: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in views:
        if found.total() >= gpus:
            break
        found[each.job.account] += each.job.requirements.lower_median
    return found


def test_who_has_had_too_much_is_held_back_and_comes_back_to_its_share() -> None:
    views = [job(f"{account}{at:02d}", account) for account in "AB" for at in range(16)]
    for part_of_b, gpus_of_b in ((0.25, 4), (0.15, 16), (0.24, 6), (0.26, 2), (0.5, 0)):
        used: Map[Association, float] = Map({("A", "u"): 1 - part_of_b, ("B", "u"): part_of_b})
        site = replace(THREE_TO_ONE, used=used)
        order = in_turn(snapshot(views, site), views, running_stay=False)
        assert gpus_of_the_first(order, 16)["B"] == gpus_of_b, part_of_b


def test_higher_tiers_go_first_and_count_against_what_is_due_to_their_accounts() -> None:
    views = [job(f"a{at}", "A", gpus=4) for at in range(4)] + [
        job(f"b{at}", "B", gpus=4, tier=at // 2) for at in range(4)
    ]
    order = in_turn(snapshot(views), views, running_stay=False)
    assert names(order) == "b2 b3 a0 a1 a2 a3 b0 b1"


def test_what_runs_and_stays_is_counted_first() -> None:
    runs = replace(job("b0", "B", gpus=4), runs=(held(on(n0=4)),))
    views = [job("b1", "B", gpus=4), *(job(f"a{at}", "A", gpus=4) for at in range(4)), runs]
    assert names(in_turn(snapshot(views), views, running_stay=True)) == "b0 a0 a1 a2 a3 b1"
    # Where it may be stopped its place is the policy's.
    assert names(in_turn(snapshot(views), views, running_stay=False)) == "a0 b1 a1 a2 a3 b0"


def test_what_holds_gpus_and_is_not_asked_about_has_its_part_of_what_is_due() -> None:
    runs = replace(job("r", "B", gpus=8), runs=(held(on(n0=8)),))
    waiting = [job(f"{account}{at}", account.upper()) for account in "ba" for at in range(8)]
    state = snapshot([runs, *waiting])
    # B holds twice what is due to it: the eight GPUs that are left are A's.
    first, second, *_ = portions(state, waiting)
    assert {each.job.account for each in first} == {"A"}
    assert len(first) == 8
    assert {each.job.account for each in second} == {"B"}
    # Without shares there is one portion.
    assert portions(snapshot([runs, *waiting], Site()), waiting) == [waiting]


def test_each_portion_asks_for_twice_as_many_gpus_as_the_one_before() -> None:
    views = [job(f"{account}{at:03d}", account) for at in range(60) for account in "AB"]
    assert [len(portion) for portion in portions(snapshot(views), views)] == [16, 32, 64, 8]


def naive(site: Site, gpus: int, views: list[JobView]) -> list[str]:
    """Pick one job after the other, working everything out anew for each (twin)."""
    users = sorted({association_of(each.job) for each in views})
    assert site.tree is not None
    tree = site.tree.with_users(users)
    total: dict[Association, float] = defaultdict(float)
    for user, used in site.used.items():
        for step in (("root", ""), *tree.path(user)):
            total[step] += used
    given: Counter[Association] = Counter()
    left, order = list(views), []
    while left:
        chosen = next_of(tree, ("root", ""), left, given, total, float(gpus))
        order.append(chosen.id)
        left.remove(chosen)
        for step in tree.path(association_of(chosen.job)):
            given[step] += chosen.job.requirements.lower_median
    return order


def next_of(
    tree: ShareTree,
    step: Association,
    waiting: list[JobView],
    given: Counter[Association],
    total: Mapping[Association, float],
    due: float,
) -> JobView:
    """Return the job of an account or user that is served next (twin)."""
    if step[1]:
        return waiting[0]
    members = tree.children[step[0]]
    shares = {each: tree.shares.get(each, 1) or 0 for each in members}
    best = None
    for each in members:
        mine = [v for v in waiting if each in tree.path(association_of(v.job))]
        if mine:
            share = shares[each] / sum(shares.values())
            head = next_of(tree, each, mine, given, total, due * share)
            busy = min(1.0, total["root", ""])
            part = total[each] / total[step] if total[step] else 0.0
            mass = 10.0 * busy * part * due + given[each] + head.job.requirements.lower_median / 2
            key = (mass / share, waiting.index(head))
            if best is None or key < best[0]:
                best = (key, head)
    assert best is not None
    return best[1]


@given(st.integers(0, 10**6))
def test_turns_are_those_of_the_naive_twin(seed: int) -> None:
    rng = Random(seed)
    users = [("A", "x"), ("A", "y"), ("lab", "z"), ("B", "u"), ("new", "v")]
    tree = ShareTree(
        {("A", ""): 3, ("B", ""): 2, ("A", "x"): rng.randint(1, 5), ("lab", ""): rng.randint(1, 3)},
        parents={"lab": "A"},
    )
    used: Map[Association, float] = Map(
        {user: rng.choice([0.0, 1.0, rng.random()]) for user in users}
    )
    chosen = [rng.choice(users) for _ in range(rng.randint(1, 12))]
    views = [
        job(f"j{at}", account, user=user, gpus=rng.choice([1, 2, 4, 8]))
        for at, (account, user) in enumerate(chosen)
    ]
    site = Site(tree.with_users(users), used)
    served = in_turn(snapshot(views, site), views, running_stay=False)
    assert [each.id for each in served] == naive(site, CLUSTER.gpus, views)


@pytest.mark.parametrize("shares", [None, 0])
def test_who_has_no_shares_of_its_own_is_served_all_the_same(shares: int | None) -> None:
    tree = ShareTree({("A", "x"): shares, ("A", "y"): 1})
    views = [job("x", "A", user="x"), job("y", "A", user="y")]
    order = in_turn(snapshot(views, Site(tree)), views, running_stay=False)
    assert names(order) == ("y x" if shares == 0 else "x y")
