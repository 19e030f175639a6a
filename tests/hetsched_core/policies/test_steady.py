"""Steady: what a job weighs, when it is planned for, and what it may be given."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hetsched_core.errors import InputError
from hetsched_core.policies.steady import Sizes, Steady, least_of_the_shorter
from hetsched_core.policy import check_plan
from hetsched_core.runlog import RunEnd
from hetsched_core.simulate import Settings, simulate
from hetsched_core.types import (
    ExecutionModel,
    JobView,
    Placed,
    Plan,
    Run,
    Shape,
    Snapshot,
    Trigger,
)
from tests.hetsched_core.worlds import (
    NO_ROOM,
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    plan_of,
    snapshot_of,
    submission,
    view,
)

ROUND = frozenset({Trigger.ROUND})
ARRIVAL = frozenset({Trigger.ARRIVAL})


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


def where(policy: Steady, snapshot: Snapshot) -> dict[str, str]:
    """Return who is placed where; the plan is a valid one."""
    plan: Plan = policy.plan(snapshot)
    assert check_plan(snapshot, plan, ExecutionModel.GANG) == ()
    return {
        name: str(entry.placements[0].configuration)
        for name, entry in sorted(plan.entries.items())
        if isinstance(entry, Placed)
    }


def test_of_two_new_jobs_the_shorter_goes_first() -> None:
    cluster = cluster_of(a=("t", 1))
    views = [job("long", samples=2000.0), job("short", samples=1000.0, submit_s=1.0)]
    assert where(Steady(), snapshot_of(cluster, views, now=360.0, triggers=ROUND)) == {
        "short": "a:1"
    }


def test_who_has_waited_long_for_its_length_goes_before_a_shorter_job() -> None:
    cluster = cluster_of(a=("t", 1))
    patience_s = Steady().patience_s
    for wait_s, first in ((0.9 * patience_s, "short"), (1.1 * patience_s, "long")):
        long = job("long", samples=2000.0, wait_s=wait_s, observed_s=360.0)
        views = [long, job("short", submit_s=360.0, observed_s=360.0)]
        snapshot = snapshot_of(cluster, views, now=360.0, triggers=ROUND)
        assert list(where(Steady(), snapshot)) == [first]


def test_what_is_left_counts_and_not_what_was() -> None:
    cluster = cluster_of(a=("t", 1))
    runs = job("nearly done", held(on(a=1)), samples=4000.0, samples_done=3500.0)
    views = [runs, job("short", samples=1000.0, submit_s=1.0)]
    previous = plan_of({"nearly done": placed(a=1), "short": NO_ROOM})
    snapshot = snapshot_of(cluster, views, now=360.0, triggers=ROUND, previous=previous)
    assert where(Steady(), snapshot) == {"nearly done": "a:1"}


@pytest.mark.parametrize(
    ("policy", "samples", "first"),
    [
        (Steady(), 100.0, "new"),
        # It would be done after the next round has begun.
        (Steady(), 1000.0, "runs"),
        (Steady(urgent=0.0), 100.0, "runs"),
    ],
)
def test_who_would_be_done_before_the_next_round_need_not_wait_for_it(
    policy: Steady, samples: float, first: str
) -> None:
    cluster = cluster_of(a=("t", 1))
    views = [job("runs", held(on(a=1)), samples=9000.0), job("new", samples=samples, submit_s=60.0)]
    previous = plan_of({"runs": placed(a=1)})
    snapshot = snapshot_of(cluster, views, now=60.0, triggers=ARRIVAL, previous=previous)
    assert list(where(policy, snapshot)) == [first]


def test_where_something_is_idle_an_arrival_moves_nobody() -> None:
    cluster = cluster_of(a=("slow", 1), b=("fast", 1))
    speeds = linear_speeds(cluster, {"m": {"slow": 1.0, "fast": 2.0}})
    views = [job("runs", held(on(b=1)), samples=9000.0), job("new", samples=100.0, submit_s=60.0)]
    snapshot = snapshot_of(
        cluster,
        views,
        now=60.0,
        triggers=ARRIVAL,
        previous=plan_of({"runs": placed(b=1)}),
        speeds=speeds,
    )
    assert where(Steady(), snapshot) == {"new": "a:1", "runs": "b:1"}


def test_a_job_is_moved_only_where_that_is_worth_its_restart() -> None:
    """Both would gain by a move to the faster node; one is done before that has paid."""
    cluster = cluster_of(a=("slow", 1), b=("fast", 1))
    speeds = linear_speeds(cluster, {"m": {"slow": 1.0, "fast": 1.3}})
    previous = plan_of({"runs": placed(a=1)})
    found = {}
    for samples in (30.0, 9000.0):
        runs = job("runs", held(on(a=1)), samples=360.0 + samples, restart_cost_s=10.0)
        snapshot = snapshot_of(
            cluster, [runs], now=360.0, triggers=ROUND, previous=previous, speeds=speeds
        )
        found[samples] = where(Steady(), snapshot)["runs"]
    assert found == {30.0: "a:1", 9000.0: "b:1"}


def test_a_long_job_is_moved_to_a_faster_type_however_dear_a_restart_is_beside_a_round() -> None:
    """Days on GPUs of half the speed cost more than five minutes of a restart; minutes do not."""
    cluster = cluster_of(a=("slow", 1), b=("fast", 1))
    speeds = linear_speeds(cluster, {"m": {"slow": 1.0, "fast": 2.0}})
    previous = plan_of({"runs": placed(a=1)})
    found = {}
    for hours in (0.1, 50.0):
        runs = job("runs", held(on(a=1)), samples=3600.0 * hours, restart_cost_s=300.0)
        snapshot = snapshot_of(
            cluster, [runs], now=360.0, triggers=ROUND, previous=previous, speeds=speeds
        )
        found[hours] = where(Steady(), snapshot)["runs"]
    assert found == {0.1: "a:1", 50.0: "b:1"}


def test_a_slow_gpu_goes_to_who_is_least_slow_on_it_though_others_are_before_it() -> None:
    cluster = cluster_of(a=("fast", 1), b=("slow", 1))
    speeds = linear_speeds(
        cluster, {"picky": {"fast": 4.0, "slow": 0.4}, "m": {"fast": 1.0, "slow": 1.0}}
    )
    first, second = (job(name, samples=2200.0) for name in ("first", "second"))
    picky = [replace(each, job=replace(each.job, profile="picky")) for each in (first, second)]
    views = [*picky, job("third", samples=3500.0, submit_s=1.0)]
    snapshot = snapshot_of(cluster, views, now=360.0, triggers=ROUND, speeds=speeds)
    assert set(where(Steady(window=1.0), snapshot)) == {"first", "second"}
    assert where(Steady(), snapshot) == {"first": "a:1", "third": "b:1"}


def test_gpus_of_several_types_are_given_where_no_one_type_has_enough() -> None:
    cluster = cluster_of(a=("v", 2), b=("p", 2), c=("v", 2))
    speeds = linear_speeds(cluster, {"m": {"v": 1.0, "p": 0.5}})
    views = [
        job("holds", held(on(c=2)), samples=100.0, counts=(2,)),
        job("wide", samples=5000.0, counts=(4,), submit_s=1.0),
    ]
    snapshot = snapshot_of(
        cluster,
        views,
        now=360.0,
        triggers=ROUND,
        previous=plan_of({"holds": placed(c=2)}),
        speeds=speeds,
    )
    alone = {"holds": "c:2"}
    assert where(Steady(), snapshot) == alone | {"wide": "a:2+b:2"}
    # On a mix it runs at the slowest GPUs' speed: half of what four of type v would do.
    assert where(Steady(mixed=0.45), snapshot) == alone | {"wide": "a:2+b:2"}
    assert where(Steady(mixed=0.55), snapshot) == alone
    one_type = replace(snapshot, shapes=frozenset(Shape) - {Shape.MIXED_TYPES})
    assert where(Steady(), one_type) == alone


def test_of_jobs_whose_sizes_nobody_knows_the_one_that_ran_least_goes_first() -> None:
    cluster = cluster_of(a=("t", 1))
    ran = job("ran", held(on(a=1)), samples=None, samples_done=300.0)
    new = job("new", samples=None, submit_s=355.0)
    new = replace(new, job=replace(new.job, user="bob"))
    previous = plan_of({"ran": placed(a=1), "new": NO_ROOM})
    snapshot = snapshot_of(cluster, [ran, new], now=360.0, triggers=ROUND, previous=previous)
    assert where(Steady(), snapshot) == {"new": "a:1"}


def test_a_job_of_unknown_size_is_not_stopped_before_that_can_pay() -> None:
    """With a restart of 10 s and a grace time of 30 s that is after twelve times as long."""
    cluster = cluster_of(a=("t", 1))
    found = {}
    for now in (360.0, 720.0):
        ran = job("ran", held(on(a=1)), samples=None, samples_done=now, restart_cost_s=10.0)
        new = job("new", samples=None, submit_s=now, observed_s=now, restart_cost_s=10.0)
        new = replace(new, job=replace(new.job, user="bob"))
        previous = plan_of({"ran": placed(a=1), "new": NO_ROOM})
        snapshot = snapshot_of(cluster, [ran, new], now=now, triggers=ROUND, previous=previous)
        found[now] = list(where(Steady(), replace(snapshot, grace_s=30.0)))
    assert found == {360.0: ["ran"], 720.0: ["new"]}


@pytest.mark.parametrize("samples", [None, 36_000.0])
def test_of_equal_jobs_none_is_stopped_for_another_however_long_that_has_waited(
    samples: float | None,
) -> None:
    cluster = cluster_of(a=("t", 2))
    runs = [
        job(name, held(on(a=1)), samples=samples, samples_done=7200.0, submit_s=0.0)
        for name in ("r1", "r2")
    ]
    waits = [job(f"w{k:02d}", samples=samples) for k in range(40)]
    entries = {each.id: placed(a=1) for each in runs} | {each.id: NO_ROOM for each in waits}
    snapshot = snapshot_of(
        cluster, [*waits, *runs], now=7200.0, triggers=ROUND, previous=plan_of(entries)
    )
    assert set(where(Steady(), snapshot)) == {"r1", "r2"}


def test_a_stop_gains_more_than_the_restart_and_the_grace_time() -> None:
    """The one that waits has waited for an hour; what counts is what it has less to do."""
    cluster = cluster_of(a=("t", 1))
    found = {}
    for less_s in (30.0, 50.0):
        runs = job("runs", held(on(a=1)), samples=1360.0, restart_cost_s=10.0)
        wait = job("waits", samples=1000.0 - less_s, wait_s=3600.0, restart_cost_s=10.0)
        previous = plan_of({"runs": placed(a=1), "waits": NO_ROOM})
        snapshot = snapshot_of(cluster, [runs, wait], now=360.0, triggers=ROUND, previous=previous)
        found[less_s] = list(where(Steady(), replace(snapshot, grace_s=30.0)))
    assert found == {30.0: ["runs"], 50.0: ["waits"]}


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
    cluster = cluster_of(a=("t", 1))
    ran = job("ran", held(on(a=1)), samples=330.0, samples_done=300.0)
    new = job("new", samples=5000.0, submit_s=355.0)
    views = [ran, replace(new, job=replace(new.job, user="bob"))]
    previous = plan_of({"ran": placed(a=1), "new": NO_ROOM})
    snapshot = snapshot_of(cluster, views, now=360.0, triggers=ROUND, previous=previous)
    assert list(where(Steady(), snapshot)) == ["ran"]
    assert list(where(Steady(sizes=Sizes.ATTAINED), snapshot)) == ["new"]


def test_a_stream_of_short_jobs_does_not_starve_a_long_one() -> None:
    cluster = cluster_of(a=("t", 1))
    jobs = [submission("long", 3600.0)]
    jobs += [submission(f"s{k:03d}", 300.0, submit_s=1.0 + 300.0 * k) for k in range(150)]
    speeds = linear_speeds(cluster, {"m": {"t": 1.0}})
    log = simulate(jobs, cluster, Steady(patience_s=600.0), speeds, Settings(restart_cost_s=0.0))
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
