"""Steady: what a job weighs, when it is planned for, and what it may be given."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetsched_core.errors import InputError
from hetsched_core.policies.steady import Sizes, Steady, least_of_the_shorter
from hetsched_core.runlog import RunEnd
from hetsched_core.simulate import Settings, simulate
from hetsched_core.types import Cluster, JobView, Run, Shape, Snapshot
from tests.hetsched_core.policies.hops.worlds import ARRIVAL, answer, with_profile
from tests.hetsched_core.policies.hops.worlds import at_round as any_round
from tests.hetsched_core.policies.hops.worlds import where as where_of
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    submission,
    view,
)

ONE = cluster_of(a=("t", 1))
SLOW_AND_FAST = cluster_of(a=("slow", 1), b=("fast", 1))


def job(
    name: str,
    *runs: Run,
    samples: float | None = 1000.0,
    wait_s: float = 0.0,
    counts: tuple[int, ...] = (1,),
    submit_s: float = 0.0,
    **more: object,
) -> JobView:
    """A job of so many samples, at 1 a second and GPU, which has waited so long."""
    made = view(name, *runs, counts=counts, submit_s=submit_s)
    told = replace(made.job, total_samples=samples)
    started = 0.0 if runs else None
    made = replace(made, job=told, wait_s=wait_s, first_start_s=started)
    return replace(made, **more)  # type: ignore[arg-type]


def other_user(job_view: JobView) -> JobView:
    return replace(job_view, job=replace(job_view.job, user="bob"))


def at_round(*views: JobView, now: float = 360.0, cluster: Cluster = ONE, **more: Any) -> Snapshot:
    return any_round(cluster, *views, now=now, **more)


def where(policy: Steady, snapshot: Snapshot) -> dict[str, str]:
    return where_of(answer(policy, snapshot))


def test_of_two_new_jobs_the_shorter_goes_first() -> None:
    views = job("long", samples=2000.0), job("short", samples=1000.0, submit_s=1.0)
    assert where(Steady(), at_round(*views)) == {"short": "a:1"}


@pytest.mark.parametrize(("patiences", "first"), [(0.9, "short"), (1.1, "long")])
def test_a_job_that_has_waited_long_for_its_length_goes_before_a_shorter_one(
    patiences: float, first: str
) -> None:
    wait_s = patiences * Steady().patience_s
    long = job("long", samples=2000.0, wait_s=wait_s, observed_s=360.0)
    short = job("short", submit_s=360.0, observed_s=360.0)
    assert list(where(Steady(), at_round(long, short))) == [first]


def test_what_is_left_counts_and_not_what_was() -> None:
    runs = job("nearly done", held(on(a=1)), samples=4000.0, samples_done=3500.0)
    short = job("short", samples=1000.0, submit_s=1.0)
    assert where(Steady(), at_round(runs, short)) == {"nearly done": "a:1"}


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
    assert list(where(policy, at_round(*views, now=60.0, triggers=ARRIVAL))) == [first]


def test_where_a_gpu_is_idle_an_arrival_moves_no_job() -> None:
    cluster = SLOW_AND_FAST
    speeds = linear_speeds(cluster, {"m": {"slow": 1.0, "fast": 2.0}})
    views = job("runs", held(on(b=1)), samples=9000.0), job("new", samples=100.0, submit_s=60.0)
    snapshot = at_round(*views, now=60.0, cluster=cluster, triggers=ARRIVAL, speeds=speeds)
    assert where(Steady(), snapshot) == {"new": "a:1", "runs": "b:1"}


@pytest.mark.parametrize(
    ("faster", "left_s", "restart_s", "place"),
    [
        # It would gain by a move, and is done before that has paid.
        (1.3, 30.0, 10.0, "a:1"),
        (1.3, 9000.0, 10.0, "b:1"),
        # A restart is dear beside a round: days at half the speed cost more, minutes do not.
        (2.0, 0.0, 300.0, "a:1"),
        (2.0, 180_000.0 - 360.0, 300.0, "b:1"),
    ],
)
def test_a_job_is_moved_to_a_faster_type_only_where_that_is_worth_its_restart(
    faster: float, left_s: float, restart_s: float, place: str
) -> None:
    speeds = linear_speeds(SLOW_AND_FAST, {"m": {"slow": 1.0, "fast": faster}})
    runs = job("runs", held(on(a=1)), samples=360.0 + left_s, restart_cost_s=restart_s)
    snapshot = at_round(runs, cluster=SLOW_AND_FAST, speeds=speeds)
    assert where(Steady(), snapshot) == {"runs": place}


def test_a_slow_gpu_goes_to_the_job_least_slow_on_it_though_others_are_before_it() -> None:
    cluster = cluster_of(a=("fast", 1), b=("slow", 1))
    speeds = linear_speeds(
        cluster, {"picky": {"fast": 4.0, "slow": 0.4}, "m": {"fast": 1.0, "slow": 1.0}}
    )
    picky = [with_profile(job(name, samples=2200.0), "picky") for name in ("first", "second")]
    third = job("third", samples=3500.0, submit_s=1.0)
    snapshot = at_round(*picky, third, cluster=cluster, speeds=speeds)
    assert set(where(Steady(window=1.0), snapshot)) == {"first", "second"}
    assert where(Steady(), snapshot) == {"first": "a:1", "third": "b:1"}


@pytest.mark.parametrize("gpus", [1, 2])
def test_gpus_of_several_types_are_given_where_no_one_type_has_enough(gpus: int) -> None:
    cluster = cluster_of(a=("v", gpus), b=("p", gpus), c=("v", gpus))
    speeds = linear_speeds(cluster, {"m": {"v": 1.0, "p": 0.5}})
    views = [
        job("holds", held(on(c=gpus)), samples=100.0, counts=(gpus,)),
        job("wide", samples=5000.0, counts=(2 * gpus,), submit_s=1.0),
    ]
    snapshot = at_round(*views, cluster=cluster, speeds=speeds)
    alone = {"holds": f"c:{gpus}"}
    both = alone | {"wide": f"a:{gpus}+b:{gpus}"}
    assert where(Steady(), snapshot) == both
    # On a mix it runs at the slowest GPUs' speed: half of what as many of type v would do.
    assert where(Steady(mixed=0.45), snapshot) == both
    assert where(Steady(mixed=0.55), snapshot) == alone
    one_type = replace(snapshot, shapes=frozenset(Shape) - {Shape.MIXED_TYPES})
    assert where(Steady(), one_type) == alone


def test_of_jobs_of_unknown_size_the_one_that_ran_least_goes_first() -> None:
    ran = job("ran", held(on(a=1)), samples=None, samples_done=300.0)
    new = other_user(job("new", samples=None, submit_s=355.0))
    assert where(Steady(), at_round(ran, new)) == {"new": "a:1"}


@pytest.mark.parametrize(("now", "first"), [(360.0, "ran"), (720.0, "new")])
def test_a_job_of_unknown_size_is_not_stopped_before_that_can_pay(now: float, first: str) -> None:
    """With a restart of 10 s and a grace time of 30 s that is after twelve times as long."""
    ran = job("ran", held(on(a=1)), samples=None, samples_done=now, restart_cost_s=10.0)
    new = job("new", samples=None, submit_s=now, observed_s=now, restart_cost_s=10.0)
    snapshot = replace(at_round(ran, other_user(new), now=now), grace_s=30.0)
    assert list(where(Steady(), snapshot)) == [first]


@pytest.mark.parametrize("samples", [None, 36_000.0])
def test_of_equal_jobs_none_is_stopped_for_another_however_long_that_has_waited(
    samples: float | None,
) -> None:
    runs = [
        job(name, held(on(a=1)), samples=samples, samples_done=7200.0, submit_s=0.0)
        for name in ("r1", "r2")
    ]
    waits = [job(f"w{k:02d}", samples=samples) for k in range(40)]
    snapshot = at_round(*waits, *runs, now=7200.0, cluster=cluster_of(a=("t", 2)))
    assert set(where(Steady(), snapshot)) == {"r1", "r2"}


@pytest.mark.parametrize(("less_s", "first"), [(30.0, "runs"), (50.0, "waits")])
def test_a_stop_gains_more_than_the_restart_and_the_grace_time(less_s: float, first: str) -> None:
    """The one that waits has waited for an hour; what counts is what it has less to do."""
    runs = job("runs", held(on(a=1)), samples=1360.0, restart_cost_s=10.0)
    wait = job("waits", samples=1000.0 - less_s, wait_s=3600.0, restart_cost_s=10.0)
    assert list(where(Steady(), replace(at_round(runs, wait), grace_s=30.0))) == [first]


def test_equal_jobs_of_unknown_size_run_to_their_ends_without_a_stop() -> None:
    cluster = cluster_of(**{f"n{k}": ("t", 4) for k in range(3)})
    jobs = [submission(f"j{k:03d}", 3000.0, submit_s=float(k // 5)) for k in range(100)]
    jobs = [replace(each, job=replace(each.job, total_samples=None)) for each in jobs]
    settings = Settings(restart_cost_s=10.0, grace_s=30.0)
    log = simulate(jobs, cluster, Steady(), linear_speeds(cluster, {"m": {"t": 1.0}}), settings)
    assert {run.ended_by for run in log.runs} == {RunEnd.COMPLETED}
    assert len(log.runs) == 100


def test_the_least_priority_of_the_shorter_is_that_of_its_naive_twin() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        runners, waiting = rng.integers(0, 6, 2)
        left_s, than_s = (rng.integers(0, 5, n).astype(float) for n in (runners, waiting))
        priorities = rng.random(runners)
        naive = [min(priorities[left_s <= than], default=math.inf) for than in than_s]
        assert least_of_the_shorter(left_s, priorities, than_s).tolist() == naive


def test_sizes_that_are_told_can_be_left_out_of_account() -> None:
    ran = job("ran", held(on(a=1)), samples=330.0, samples_done=300.0)
    snapshot = at_round(ran, other_user(job("new", samples=5000.0, submit_s=355.0)))
    assert list(where(Steady(), snapshot)) == ["ran"]
    assert list(where(Steady(sizes=Sizes.ATTAINED), snapshot)) == ["new"]


def test_a_stream_of_short_jobs_does_not_starve_a_long_one() -> None:
    jobs = [submission("long", 3600.0)]
    jobs += [submission(f"s{k:03d}", 300.0, submit_s=1.0 + 300.0 * k) for k in range(150)]
    speeds = linear_speeds(ONE, {"m": {"t": 1.0}})
    log = simulate(jobs, ONE, Steady(patience_s=600.0), speeds, Settings(restart_cost_s=0.0))
    long = next(record for record in log.jobs if record.job.id == "long")
    last_s = max(record.end_s or 0.0 for record in log.jobs)
    assert long.end_s is not None
    assert long.end_s < 0.8 * last_s


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("patience_s", 0.0),
        ("power", -1.0),
        ("floor_s", 0.0),
        ("urgent", -1.0),
        ("mixed", -0.1),
        ("window", 0.0),
    ],
)
def test_numbers_that_mean_nothing_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"steady.{name}"):
        Steady(**{name: value})  # type: ignore[arg-type]
