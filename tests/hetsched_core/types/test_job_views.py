"""What is read off a job and its runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from hetsched_core.types import Phase, Purpose
from tests.hetsched_core.worlds import cluster_of, held, on, submission, view


def test_the_copy_that_is_furthest_on_speaks_for_the_job() -> None:
    works = held(on(a=1))
    starts = held(on(b=1), progress_from_s=50.0)
    kept = held(on(e=1), begun=False)
    stops = held(on(c=1), draining_until_s=30.0)
    measured = held(on(d=1), purpose=Purpose.PROFILE)
    for runs, phase in (
        ((works, starts, kept, stops, measured), Phase.RUNNING),
        ((starts, kept, stops, measured), Phase.STARTING),
        ((kept, stops, measured), Phase.PLACED),
        ((stops, measured), Phase.DRAINING),
        ((replace(measured, draining_until_s=30.0), starts), Phase.STARTING),
        ((measured,), Phase.PROFILING),
        ((), Phase.WAITING),
    ):
        for order in permutations(runs):
            assert view("j", *order).phase(10.0) is phase


def test_a_job_attains_nothing_from_gpus_that_are_kept_for_it_and_waits_on() -> None:
    cluster = cluster_of(a=("v100", 4), b=("t4", 4))
    kept = view("j", held(on(a=2), begun=False))
    assert (kept.begun, kept.waiting, kept.configuration) == (False, False, on(a=2))
    assert kept.holds == on(a=2)
    assert (kept.wait_at(10.0), kept.service_at(10.0), kept.samples_at(10.0)) == (10.0, 0.0, 0.0)
    assert kept.attained_at(10.0, cluster) == {}
    # Beside a copy that runs it is that one alone that counts.
    both = replace(kept, runs=(*kept.runs, held(on(b=3), copy=1)), attained_gpu_s=(("t4", 1.0),))
    assert (both.begun, both.wait_at(10.0)) == (True, 0.0)
    assert (both.service_at(10.0), both.samples_at(10.0)) == (31.0, 10.0)
    assert both.attained_at(10.0, cluster) == {"t4": 31.0}


def test_what_is_placed_starts_now_as_far_as_a_policy_can_tell() -> None:
    kept = held(on(a=1), begun=False)
    measured = replace(kept, purpose=Purpose.PROFILE)
    assert [view("j", *runs).started_at(7.0) for runs in ((), (measured,), (kept,))] == [
        *(None, None, 7.0),
    ]
    assert replace(view("j", kept), first_start_s=3.0).started_at(7.0) == 3.0


@pytest.mark.parametrize(
    ("submit_s", "eligible_s", "expected"),
    [(5.0, None, 5.0), (5.0, 8.0, 8.0), (5.0, 3.0, 5.0), (-5.0, 0.0, 0.0), (5.0, 0.0, 5.0)],
)
def test_a_job_may_start_once_it_is_submitted_and_eligible(
    submit_s: float, eligible_s: float | None, expected: float
) -> None:
    job = submission("j", 1.0, submit_s=submit_s, eligible_s=eligible_s).job
    assert job.eligible_from_s == expected
