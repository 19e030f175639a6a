"""Limits over several jobs: what a policy is shown of the jobs under them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policy.check import check_plan
from hetsched_core.site import within_limits, without_excess
from hetsched_core.types import (
    ExecutionModel,
    JobView,
    Placed,
    Placement,
    Reason,
    ReasonCode,
    Snapshot,
    Waiting,
)
from hetsched_core.types.site import Limit, ShareTree, Site
from tests.hetsched_core.worlds import cluster_of, held, on, placed, plan_of, snapshot_of, view

CLUSTER = cluster_of(n0=("a100", 8), n1=("a100", 8))
LIMITS = {"gpus": Limit(gpus=6), "jobs": Limit(jobs=2), "both": Limit(gpus=8, jobs=3)}


def job(name: str, *counts: int, under: str = "", runs_on: int = 0) -> JobView:
    runs = (held(on(n0=runs_on)),) if runs_on else ()
    return view(name, *runs, counts=counts, limits=tuple(under.split()))


def snapshot(*views: JobView, limits: dict[str, Limit] = LIMITS) -> Snapshot:
    return replace(snapshot_of(CLUSTER, views), site=Site(ShareTree(), limits=limits))


def shown(*views: JobView) -> dict[str, object]:
    """What a policy sees of each job: the counts that it may have, or the limit that it has met."""
    return {
        name: each.job.requirements.counts if each.blocked is None else each.blocked.detail
        for name, each in sorted(within_limits(snapshot(*views)).jobs.items())
    }


def test_no_more_start_than_a_limit_has_room_for_and_smaller_ones_pass() -> None:
    found = shown(
        job("a", 4, under="gpus"), job("b", 4, under="gpus"), job("c", 2, under="gpus"), job("d", 8)
    )
    assert found == {"a": (4,), "b": "gpus, of 6 GPUs", "c": (2,), "d": (8,)}


def test_what_runs_counts_first_and_is_not_touched() -> None:
    found = shown(job("a", 2, under="gpus"), job("b", 5, under="gpus", runs_on=5))
    assert found == {"a": "gpus, of 6 GPUs", "b": (5,)}
    # Even above a limit that has been lowered meanwhile.
    assert shown(job("b", 8, under="gpus", runs_on=8)) == {"b": (8,)}


def test_elastic_jobs_accept_no_more_than_what_is_left() -> None:
    found = shown(job("a", 1, 2, 4, 8, under="gpus"), job("b", 1, 2, under="gpus"))
    # One GPU is kept for b; of the rest a may have all, in a count that it accepts.
    assert found == {"a": (1, 2, 4), "b": (1, 2)}
    found = shown(job("a", 2, 4, 8, under="gpus", runs_on=4), job("b", 1, 8, under="gpus"))
    assert found == {"a": (2, 4), "b": (1,)}


def test_jobs_are_counted_too_and_a_job_may_come_under_several_limits() -> None:
    found = shown(*(job(name, 1, under="jobs both") for name in "abc"), job("d", 1, under="both"))
    assert found == {"a": (1,), "b": (1,), "c": "jobs, of 2 jobs", "d": (1,)}
    found = shown(*(job(name, 3, under="both") for name in "abcd"))
    assert found == {"a": (3,), "b": (3,), "c": "both, of 8 GPUs and 3 jobs"} | {
        "d": "both, of 8 GPUs and 3 jobs"
    }


def test_a_limit_that_is_not_known_binds_no_job_and_held_jobs_take_nothing() -> None:
    held_back = replace(job("a", 6, under="gpus"), blocked=Reason(ReasonCode.HELD))
    found = shown(held_back, job("b", 6, under="gpus other"))
    assert found == {"a": "", "b": (6,)}


@pytest.mark.parametrize(
    ("limits", "entries", "broken"),
    [
        (
            LIMITS,
            {"a": placed(n0=4), "b": placed(n1=4)},
            "8 GPUs under gpus, which allows 6",
        ),
        (LIMITS, {"a": placed(n0=4), "b": Waiting(Reason(ReasonCode.QUOTA))}, None),
        (
            {"gpus": Limit(jobs=1)},
            {"a": placed(n0=4), "b": placed(n1=4)},
            "2 jobs under gpus, which allows 1",
        ),
    ],
)
def test_a_plan_that_starts_more_than_a_limit_allows_is_invalid(
    limits: dict[str, Limit], entries: dict[str, Placed], broken: str | None
) -> None:
    state = snapshot(job("a", 4, under="gpus"), job("b", 4, under="gpus"), limits=limits)
    found = check_plan(state, plan_of(entries), ExecutionModel.GANG)
    assert [each.detail for each in found] == ([broken] if broken else [])


def test_what_runs_above_a_limit_is_a_fact_and_no_fault_of_a_plan() -> None:
    state = snapshot(job("a", 8, under="gpus", runs_on=8))
    assert check_plan(state, plan_of({"a": placed(n0=8)}), ExecutionModel.GANG) == ()


def test_copies_above_a_limit_go_and_a_job_that_gets_none_is_told_the_limit() -> None:
    state = snapshot(
        job("a", 4, under="both"), job("b", 4, under="both"), limits={"both": Limit(gpus=8)}
    )
    two = Placed((Placement(on(n0=4), 0), Placement(on(n1=4), 1)))
    plan = without_excess(state, plan_of({"a": two, "b": two}))
    assert plan.entries["a"] == two
    assert plan.entries["b"] == Waiting(
        Reason(ReasonCode.QUOTA, behind=("a",), detail="both, of 8 GPUs")
    )
