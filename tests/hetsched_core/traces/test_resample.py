"""Workloads with fewer jobs, or at another load."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.traces.resample import at_load, thinned
from hetsched_core.traces.summary import summarise
from hetsched_core.traces.workload import Workload
from hetsched_core.types import Job, LoggedRun, RequirementSet, Submission
from tests.hetsched_core.worlds import cluster_of, linear_speeds

CLUSTER = cluster_of(n0=("a100", 4), n1=("v100", 8))
SPEEDS = linear_speeds(CLUSTER, {"m": {"a100": 3.0, "v100": 1.0}})


def workload(*submit_s: float, gpus: int = 2, samples: float = 600.0) -> Workload:
    """Jobs of one kind, each with a deadline, that the site ran at once."""
    return Workload(
        tuple(
            Submission(
                Job(
                    f"{at:03d}",
                    each,
                    RequirementSet.rigid(gpus),
                    "m",
                    eligible_s=each,
                    deadline_s=each + 50,
                ),
                samples,
                cancel_s=each + 70,
                logged=(LoggedRun(each, each + 9, gpus),),
            )
            for at, each in enumerate(submit_s)
        )
    )


def test_the_load_at_the_mean_speed_counts_each_gpu_type_by_its_gpus() -> None:
    summary = summarise(workload(0.0, 100.0), SPEEDS, CLUSTER)
    # On A100 each job has 6 samples/s for 100 s; (4 * 6 + 8 * 2) / 12 is 10/3, for 180 s.
    assert summary.load == pytest.approx(2 * 2 * 100 / (12 * 100))
    assert summary.mean_load == pytest.approx(2 * 2 * 180 / (12 * 100))


@given(
    st.lists(st.floats(1.7e9, 1.8e9), min_size=2, max_size=20).filter(
        lambda s: max(s) > min(s) + 1
    ),
    st.floats(0.05, 20),
)
def test_a_workload_has_the_load_that_it_was_given_and_its_order(
    submit_s: list[float], load: float
) -> None:
    before = workload(*sorted(submit_s))
    after = at_load(before, load, SPEEDS, CLUSTER)
    assert summarise(after, SPEEDS, CLUSTER).mean_load == pytest.approx(load)
    jobs = [each.job for each in after.submissions]
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)
    assert jobs[0].submit_s == before.submissions[0].job.submit_s
    for each in after.submissions:
        times = (each.job.eligible_s, each.job.deadline_s, each.cancel_s)
        waits_s = [at_s - each.job.submit_s for at_s in times if at_s is not None]
        assert waits_s == pytest.approx([0, 50, 70], abs=1e-5)
        assert min(waits_s) >= 0
        assert each.logged == ()
    assert f"a load of {load:g}" in after.assumptions[-1]


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        (workload(3.0, 3.0), "all jobs arrive at once"),
        (workload(3.0, 9.0, gpus=16), "no job fits the cluster"),
        (workload(3.0, 9.0, samples=1e15), "beyond the year 5138"),
    ],
)
def test_a_load_that_cannot_be_is_refused(jobs: Workload, said: str) -> None:
    with pytest.raises(InputError, match=said):
        at_load(jobs, 0.5, SPEEDS, CLUSTER)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_load_or_a_share_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(InputError, match="give more than 0"):
        at_load(workload(0.0, 9.0), wrong, SPEEDS, CLUSTER)
    with pytest.raises(InputError, match="give more than 0"):
        thinned(workload(0.0, 9.0), wrong, seed=1)


def test_a_share_of_the_jobs_is_drawn_by_the_seed() -> None:
    before = workload(*map(float, range(1000)))
    after = thinned(before, 0.3, seed=7)
    assert 250 < len(after.submissions) < 350
    assert set(after.submissions) < set(before.submissions)
    assert after == thinned(before, 0.3, seed=7) != thinned(before, 0.3, seed=8)
    assert replace(thinned(before, 1.0, seed=7), assumptions=()) == before
    with pytest.raises(InputError, match="leaves none of 2 jobs"):
        thinned(workload(0.0, 1.0), 1e-9, seed=7)
