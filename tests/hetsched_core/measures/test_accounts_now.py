"""What accounts hold now, against what is due to them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from hetsched_core.measures.accounts import AccountNow, accounts_now
from hetsched_core.types import JobView, Reason, ReasonCode, Snapshot
from hetsched_core.types.site import ShareTree, Site
from tests.hetsched_core.worlds import cluster_of, held, on, snapshot_of, view

CLUSTER = cluster_of(n0=("a100", 8), n1=("a100", 8))
TREE = ShareTree({("a", ""): 3, ("b", ""): 1, ("a", "ann"): 1, ("a", "abe"): 2})


def at(snapshot: Snapshot, tree: ShareTree | None = TREE, **used: float) -> tuple[AccountNow, ...]:
    amounts = {(name[0], name): part for name, part in used.items()}
    return accounts_now(replace(snapshot, site=Site(tree, Map(amounts))))


def of(user: str, job: JobView) -> JobView:
    """A job of a user whose account is the first letter of its name."""
    return replace(job, job=replace(job.job, account=user[0], user=user))


def one(found: tuple[AccountNow, ...], account: str, user: str = "") -> AccountNow:
    (row,) = (row for row in found if (row.account, row.user) == (account, user))
    return row


BOTH_WANT_ALL = snapshot_of(
    CLUSTER,
    [
        of("ben", view("1", held(on(n0=8)), counts=(8,))),
        of("ben", view("2", held(on(n1=4)), counts=(4,))),
        of("ann", view("3", held(on(n1=4)), counts=(4, 8))),
        of("abe", view("4", counts=(16,))),
        of("abe", view("5", counts=(16,))),
    ],
)


def test_due_is_by_shares_in_each_account_and_never_more_than_is_asked_for() -> None:
    found = at(BOTH_WANT_ALL)
    assert [(row.account, row.user) for row in found] == [
        *(("b", ""), ("a", "")),
        *(("b", "ben"), ("a", "ann"), ("a", "abe")),
    ]
    # Of the 16 that are held 12 are due to a: a third of them to ann.
    assert one(found, "a").due_gpus == pytest.approx(12.0)
    assert one(found, "a", "ann").due_gpus == pytest.approx(4.0)
    assert one(found, "a", "abe").due_gpus == pytest.approx(8.0)
    assert one(found, "b").due_gpus == pytest.approx(4.0)
    assert (one(found, "b").held_gpus, one(found, "b").running) == (12, 2)
    assert (one(found, "a").held_gpus, one(found, "a").waiting) == (4, 2)
    assert (one(found, "a").shares, one(found, "a", "abe").shares) == (3, 2)


def test_what_is_kept_back_asks_for_nothing() -> None:
    kept = Reason(ReasonCode.DEPENDENCY)
    jobs = {
        job_id: replace(job, blocked=kept) if job_id in ("4", "5") else job
        for job_id, job in BOTH_WANT_ALL.jobs.items()
    }
    found = at(replace(BOTH_WANT_ALL, jobs=Map(jobs)))
    # Its 8 GPUs are all that ann asks for; b has what is left.
    assert one(found, "a").due_gpus == pytest.approx(8.0)
    assert one(found, "a", "abe").due_gpus == 0.0
    assert one(found, "b").due_gpus == pytest.approx(8.0)


def test_use_is_told_where_slurm_counts_it() -> None:
    found = at(BOTH_WANT_ALL, ben=0.3, ann=0.05, abe=0.05)
    assert one(found, "b").used == pytest.approx(0.75)
    assert one(found, "a", "ann").used == pytest.approx(0.5)
    assert {row.used for row in at(BOTH_WANT_ALL, None)} == {None}
    assert {row.used for row in accounts_now(BOTH_WANT_ALL)} == {None}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("ann", "abe", "ben", "cat")),
            st.integers(0, 4),
            st.integers(1, 16),
        ),
        max_size=4,
    )
)
def test_all_that_is_held_is_due_to_somebody_who_asks(jobs: list[tuple[str, int, int]]) -> None:
    views = [
        of(user, view(str(n), *([held(on(n0=has))] if has else []), counts=(max(has, asks),)))
        for n, (user, has, asks) in enumerate(jobs)
    ]
    found = [row for row in at(snapshot_of(CLUSTER, views)) if row.user]
    assert sum(row.due_gpus for row in found) == pytest.approx(sum(has for _, has, _ in jobs))
    for row in found:
        asked = sum(max(has, asks) for user, has, asks in jobs if user == row.user)
        assert row.due_gpus <= asked + 1e-9
