"""What accounts and users had and were due: by hand on small logs, naively on random ones."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched_core.measures.accounts import (
    AccountMeasures,
    AccountUse,
    account_use,
    bounded_slowdown,
    jain,
)
from hetsched_core.measures.metrics import measure
from hetsched_core.records.runlog import JobRecord, RunLog
from hetsched_core.types import EndState, RequirementSet
from hetsched_core.types.site import ShareTree
from tests.hetsched_core.measures.naive_accounts import had_and_due
from tests.hetsched_core.measures.test_metrics import (
    ORIGIN,
    SPEEDS,
    a_job,
    a_log,
    a_run,
    job_records,
    run_records,
)

THREE_TO_ONE = ShareTree({("a", ""): 3, ("b", ""): 1})


def of(record: JobRecord, account: str, user: str = "ann") -> JobRecord:
    return replace(record, job=replace(record.job, account=account, user=user))


def asking(record: JobRecord, *counts: int) -> JobRecord:
    return replace(record, job=replace(record.job, requirements=RequirementSet(counts)))


def due(use: AccountUse) -> dict[str, float]:
    return {row.account: row.due_gpu_s for row in use.accounts}


def had(use: AccountUse) -> dict[str, float]:
    return {row.account: row.had_gpu_s for row in use.accounts}


def two_jobs(wants: int = 4) -> RunLog:
    """8 GPUs for 100 s: all of them for the job of b, while that of a waits."""
    return a_log(
        jobs=[
            of(asking(a_job("waits", 0, 110, wait=100.0), wants), "a"),
            of(asking(a_job("runs", 0, 100), 8), "b"),
        ],
        runs=[
            a_run("runs", 0, 100, {"a0": 4, "b0": 4}),
            a_run("waits", 100, 110, {"a0": wants}),
        ],
    )


def test_gpus_in_use_are_due_by_shares_to_those_that_have_demand() -> None:
    use = account_use(two_jobs(wants=8), THREE_TO_ONE)
    assert due(use) == pytest.approx({"a": 600.0 + 80.0, "b": 200.0})
    assert had(use) == pytest.approx({"a": 80.0, "b": 800.0})
    assert use.worst_share_error == pytest.approx(600 / 200)


def test_an_account_has_what_all_in_it_have_and_one_that_does_not_compete_has_its_row() -> None:
    tree = ShareTree(
        {("science", ""): 1, ("a", ""): None, ("b", ""): 1}, {"a": "science", "b": "science"}
    )
    use = account_use(two_jobs(wants=8), tree)
    rows = {row.account: row for row in use.accounts}
    assert set(rows) == {"science", "a", "b"}
    assert rows["science"].had_gpu_s == rows["science"].due_gpu_s == pytest.approx(880.0)
    assert (rows["science"].jobs, rows["a"].jobs, rows["b"].jobs) == (2, 1, 1)
    # Ann of a and account b are siblings.
    assert due(use)["a"] == pytest.approx(480.0)
    assert rows["a"].shares is None


def test_jobs_waits_and_slowdowns_are_of_the_completed_jobs_of_each() -> None:
    log = a_log(
        jobs=[
            of(a_job("slow", 0, 300, wait=200.0, expected=100.0), "a"),
            of(a_job("short", 0, 40, wait=39.0, expected=1.0), "a"),
            of(a_job("unknown", 0, 40, wait=1.0, expected=None), "a"),
            of(a_job("fails", 0, 900, EndState.FAILED, wait=800.0), "a"),
            of(a_job("late", 0, 600, eligible=500, expected=200.0), "b"),
        ]
    )
    row = account_use(log).users[0]
    assert (row.account, row.user, row.jobs, row.completed) == ("a", "ann", 4, 3)
    assert row.avg_wait_s == pytest.approx(240 / 3)
    # 300 / 100, and 40 s against the bound of 10; the speed of the third is unknown.
    assert row.avg_slowdown == pytest.approx((3.0 + 4.0) / 2)
    # What waits for its time is not slowed down, and nobody is slowed down by less than 1.
    assert account_use(log).users[1].avg_slowdown == 1.0


def test_the_bound_keeps_short_jobs_from_counting_as_slowed_down() -> None:
    assert bounded_slowdown(20.0, 0.1) == 2.0
    assert bounded_slowdown(5.0, 0.1) == 1.0
    assert bounded_slowdown(300.0, 100.0) == 3.0


def test_jains_index_is_that_of_the_paper() -> None:
    assert jain(np.array([3.0, 3.0, 3.0])) == pytest.approx(1.0)
    # A fifth of the users have all: a fifth.
    assert jain(np.array([7.0, 0.0, 0.0, 0.0, 0.0])) == pytest.approx(0.2)
    assert jain(np.array([1.0, 2.0, 3.0])) == pytest.approx(36 / (3 * 14))


def test_one_user_alone_has_no_spread_and_one_account_no_error() -> None:
    one = a_log(jobs=[of(a_job("x", 0, 10), "a")], runs=[a_run("x", 0, 10, {"a0": 4})])
    assert (account_use(one).jain_slowdown, account_use(one).worst_share_error) == (None, None)
    found = measure(two_jobs(), SPEEDS)
    assert found.jain_slowdown == pytest.approx((1.1 + 1) ** 2 / (2 * (1.1**2 + 1)))
    assert found.worst_share_error == pytest.approx(400 / 400)
    shared = account_use(two_jobs(wants=8), THREE_TO_ONE)
    assert measure(two_jobs(wants=8), SPEEDS, shared).worst_share_error == pytest.approx(3.0)


def test_an_account_that_is_due_next_to_nothing_is_not_the_worst() -> None:
    rows = [
        AccountMeasures(name, "", 1, 1, 1, had_gpu_s, due_gpu_s, 0.0, 1.0)
        for name, had_gpu_s, due_gpu_s in (("a", 990.0, 991.0), ("b", 10.0, 9.0))
    ]
    users = tuple(replace(row, user="ann") for row in rows)
    use = AccountUse(tuple(rows), users, np.zeros(0), {}, {})
    assert use.worst_share_error == pytest.approx(1 / 991)
    nearly = replace(rows[0], had_gpu_s=np.nextafter(991.0, 0.0))
    assert replace(use, accounts=(nearly, rows[1])).worst_share_error == 0.0


def test_a_log_without_jobs_has_no_accounts() -> None:
    use = account_use(a_log())
    assert (use.accounts, use.users, use.had_gpu_s) == ((), (), {})
    assert (use.jain_slowdown, use.worst_share_error) == (None, None)


def test_the_curves_end_at_the_totals_and_never_fall() -> None:
    use = account_use(two_jobs(), THREE_TO_ONE)
    assert use.at_s[0] == ORIGIN
    assert use.at_s[-1] == ORIGIN + 110
    for row in use.accounts:
        for curve, total in (
            (use.had_gpu_s[row.account, ""], row.had_gpu_s),
            (use.due_gpu_s[row.account, ""], row.due_gpu_s),
        ):
            assert curve[-1] == pytest.approx(total)
            assert (np.diff(curve) >= 0).all()
    at_50_s = np.interp(ORIGIN + 50, use.at_s, use.due_gpu_s["b", ""])
    assert at_50_s == pytest.approx(200.0)


ACCOUNTS = ("a", "b", "c", "science", "")
SHARES = st.sampled_from([None, 0, 1, 1, 2, 7])


@st.composite
def trees(draw: st.DrawFn) -> ShareTree:
    parents = draw(st.sampled_from([{}, {"a": "science"}, {"a": "science", "c": "a"}]))
    who = st.tuples(st.sampled_from(ACCOUNTS[:4]), st.sampled_from(["", "ann", "bob"]))
    return ShareTree(draw(st.dictionaries(who, SHARES, max_size=8)), parents)


@st.composite
def logs(draw: st.DrawFn) -> RunLog:
    names = [f"j{k}" for k in range(draw(st.integers(0, 6)))]
    jobs = [
        of(record, draw(st.sampled_from(ACCOUNTS)), draw(st.sampled_from(["", "ann", "bob"])))
        for record in draw(job_records(names))
    ]
    runs = [
        replace(run, times=times, every_s=run.freed_s - run.since_s + gap_s)
        for run in draw(run_records(names))
        for times, gap_s in [draw(st.sampled_from([(1, 0.0), (1, 0.0), (3, 0.0), (2, 4.0)]))]
    ]
    return a_log(jobs=jobs, runs=runs, closed_s=ORIGIN + 60)


@settings(max_examples=300, deadline=None)
@given(logs(), trees())
def test_what_was_had_and_due_is_that_of_the_naive_twin(log: RunLog, tree: ShareTree) -> None:
    use = account_use(log, tree)
    found = {(row.account, row.user): (row.had_gpu_s, row.due_gpu_s) for row in use.users}
    naive = had_and_due(log, tree)
    assert set(found) == set(naive)
    for user, expected in naive.items():
        assert found[user] == pytest.approx(expected, rel=1e-9, abs=1e-5)
    total_had, total_due = np.array([*found.values(), (0.0, 0.0)]).sum(axis=0)
    assert total_had == pytest.approx(total_due)
