"""Steady: what a job weighs, when it is planned for, and what it may be given."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetsched_core.policies.steady import Steady, least_of_the_shorter
from hetsched_core.types import Cluster, EndedJob, EndedJobs, JobView, Run, Shape
from tests.hetsched_core.policies.hops.worlds import at_round
from tests.hetsched_core.policies.worlds import ARRIVAL, answer, with_job
from tests.hetsched_core.worlds import cluster_of, held, linear_speeds, on, view, where

ONE = cluster_of(a=("t", 1))


def job(
    name: str,
    *runs: Run,
    samples: float | None = 1000.0,
    counts: tuple[int, ...] = (1,),
    submit_s: float = 0.0,
    **more: object,
) -> JobView:
    """A job of so many samples, at 1 a second and GPU; `more` are fields of the view."""
    made = with_job(view(name, *runs, counts=counts, submit_s=submit_s), total_samples=samples)
    return replace(made, first_start_s=0.0 if runs else None, **more)  # type: ignore[arg-type]


def placed(
    *views: JobView,
    policy: Steady | None = None,
    now: float = 360.0,
    cluster: Cluster = ONE,
    grace_s: float = 0.0,
    **more: Any,
) -> dict[str, str]:
    """Where jobs go at the start of a round."""
    snapshot = replace(at_round(cluster, *views, now=now, **more), grace_s=grace_s)
    return where(answer(policy or Steady(), snapshot))


RAN = job("ran", held(on(a=1)), samples=None, samples_done=300.0)


def new(samples: float | None = None, submit_s: float = 355.0, **more: object) -> JobView:
    return with_job(job("new", samples=samples, submit_s=submit_s, **more), user="bob")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("views", "policy", "first"),
    [
        # Of two new jobs the shorter goes first; what is left counts and not what was.
        ([job("long", samples=2000.0), job("short", submit_s=1.0)], Steady(), "short"),
        (
            [
                job("nearly done", held(on(a=1)), samples=4000.0, samples_done=3500.0),
                job("short", submit_s=1.0),
            ],
            Steady(),
            "nearly done",
        ),
        # Of jobs of unknown size the one that ran least goes first.
        ([RAN, new()], Steady(), "new"),
        ([with_job(RAN, total_samples=330.0), new(5000.0)], Steady(), "ran"),
    ],
)
def test_the_job_with_least_left_goes_first(
    views: list[JobView], policy: Steady, first: str
) -> None:
    assert placed(*views, policy=policy) == {first: "a:1"}


@pytest.mark.parametrize(
    ("policy", "samples", "first"),
    [
        (Steady(), 100.0, "new"),
        # It would be done after the next round has begun.
        (Steady(), 1000.0, "runs"),
        (Steady(urgent=0.0), 100.0, "runs"),
    ],
)
def test_a_job_that_would_be_done_before_the_next_round_need_not_wait_for_it(
    policy: Steady, samples: float, first: str
) -> None:
    views = job("runs", held(on(a=1)), samples=9000.0), job("new", samples=samples, submit_s=60.0)
    assert placed(*views, policy=policy, now=60.0, triggers=ARRIVAL) == {first: "a:1"}


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize(
    ("mixed", "shapes", "given"),
    [
        # On a mix it runs at the slowest GPUs' speed: half of what as many of type v would do.
        (0.45, frozenset(Shape), True),
        (0.55, frozenset(Shape), False),
        (0.45, frozenset(Shape) - {Shape.MIXED_TYPES}, False),
    ],
)
def test_gpus_of_several_types_are_given_where_no_one_type_has_enough(
    gpus: int, mixed: float, shapes: frozenset[Shape], given: bool
) -> None:
    cluster = cluster_of(a=("v", gpus), b=("p", gpus), c=("v", gpus))
    speeds = linear_speeds(cluster, {"m": {"v": 1.0, "p": 0.5}})
    views = [
        job("holds", held(on(c=gpus)), samples=100.0, counts=(gpus,)),
        job("wide", samples=5000.0, counts=(2 * gpus,), submit_s=1.0),
    ]
    policy = Steady(mixed=mixed)
    found = placed(*views, policy=policy, cluster=cluster, speeds=speeds, shapes=shapes)
    wide = {"wide": f"a:{gpus}+b:{gpus}"} if given else {}
    assert found == {"holds": f"c:{gpus}"} | wide


@pytest.mark.parametrize(("now", "first"), [(360.0, "ran"), (720.0, "new")])
def test_a_job_of_unknown_size_is_not_stopped_before_that_can_pay(now: float, first: str) -> None:
    """With a restart of 10 s and a grace time of 30 s that is after twelve times as long."""
    ran = replace(RAN, samples_done=now, restart_cost_s=10.0)
    came = new(submit_s=now, observed_s=now, restart_cost_s=10.0)
    assert placed(ran, came, now=now, grace_s=30.0) == {first: "a:1"}


@pytest.mark.parametrize(("ran_s", "waited_s"), [(100.0, 20_000.0), (20_000.0, 100.0)])
def test_of_jobs_that_told_no_size_those_go_first_whose_like_took_less(
    ran_s: float, waited_s: float
) -> None:
    jobs = {"ran": ran_s, "waited": waited_s}
    speeds = linear_speeds(ONE, {name: {"t": 1.0} for name in jobs})
    views = [with_job(job(name, samples=None), profile=name) for name in jobs]
    known = EndedJobs.of(
        EndedJob("", name, seconds) for name, seconds in jobs.items() for _ in range(20)
    )
    snapshot = replace(at_round(ONE, *views, now=360.0, speeds=speeds), ended=known)
    assert where(answer(Steady(), snapshot)) == {min(jobs, key=lambda name: jobs[name]): "a:1"}


def test_the_least_priority_of_the_shorter_is_that_of_its_naive_twin() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        runners, waiting = rng.integers(0, 6, 2)
        left_s, than_s = (rng.integers(0, 5, n).astype(float) for n in (runners, waiting))
        priorities = rng.random(runners)
        naive = [min(priorities[left_s <= than], default=math.inf) for than in than_s]
        assert least_of_the_shorter(left_s, priorities, than_s).tolist() == naive


@pytest.mark.parametrize(("less_s", "first"), [(30.0, "runs"), (50.0, "waits")])
def test_a_stop_gains_more_than_the_restart_and_the_grace_time(less_s: float, first: str) -> None:
    """The one that waits has waited for an hour; what counts is what it has less to do."""
    runs = job("runs", held(on(a=1)), samples=1360.0, restart_cost_s=10.0)
    wait = job("waits", samples=1000.0 - less_s, wait_s=3600.0, restart_cost_s=10.0)
    assert placed(runs, wait, grace_s=30.0) == {first: "a:1"}


@pytest.mark.parametrize("least", [1, 2])
def test_what_only_a_mix_of_types_holds_has_one_and_is_not_moved_for_nothing(least: int) -> None:
    def wide(*runs: Run) -> JobView:
        return with_job(job("wide", *runs, counts=(4,)), min_nodes=least, max_nodes=2)

    assert placed(wide(), cluster=cluster_of(a=("s", 2), b=("t", 2))) == {"wide": "a:2+b:2"}
    three = cluster_of(a=("s", 2), b=("t", 2), c=("u", 2))
    assert placed(wide(held(on(a=2, c=2))), cluster=three) == {"wide": "a:2+c:2"}
