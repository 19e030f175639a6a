"""Gavel's rounds: who is served when, on which type, and what is remembered in between."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

import pytest

from hetsched_core.contract import check_policy
from hetsched_core.errors import InputError
from hetsched_core.optimize import Point
from hetsched_core.policies.gavel import Gavel, Notes, Objective, Queue
from hetsched_core.runlog import RunLog
from hetsched_core.simulate import Settings, simulate
from hetsched_core.types import (
    Cluster,
    Placed,
    Plan,
    Reason,
    ReasonCode,
    Round,
    Snapshot,
    Trigger,
    Waiting,
)
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    snapshot_of,
    submission,
    view,
)

PAPER_CLUSTER = cluster_of(v=("v100", 1), k=("k80", 1))
PAPER_SPEEDS = linear_speeds(
    PAPER_CLUSTER,
    {
        "job0": {"v100": 40.0, "k80": 10.0},
        "job1": {"v100": 12.0, "k80": 4.0},
        "job2": {"v100": 100.0, "k80": 50.0},
    },
)


def hours_on(log: RunLog, cluster: Cluster) -> dict[tuple[str, str], float]:
    """Hours that each job held GPUs of each type."""
    hours: dict[tuple[str, str], float] = defaultdict(float)
    for run in log.runs:
        for name, _ in run.configuration:
            hours[run.job, cluster[name].gpu_type] += (run.freed_s - run.since_s) / 3600
    return hours


def placed_jobs(plan: Plan) -> dict[str, str]:
    return {
        job: str(entry.placements[0].configuration)
        for job, entry in sorted(plan.entries.items())
        if isinstance(entry, Placed)
    }


def test_over_many_rounds_each_job_receives_the_shares_that_the_paper_prints() -> None:
    # 110 rounds of 6 minutes; job 0 ends the simulation for all by being withdrawn last.
    ends_s = 110 * 360.0
    log = simulate(
        [submission(f"job{n}", 1e9, profile=f"job{n}", cancel_s=ends_s) for n in range(3)],
        PAPER_CLUSTER,
        Gavel(),
        PAPER_SPEEDS,
        Settings(restart_cost_s=0.0),
    )
    hours = hours_on(log, PAPER_CLUSTER)
    # 5/11, 5/11 and 1/11 of 11 hours on the V100; 0, 1/11 and 10/11 on the K80.
    assert [hours[f"job{n}", "v100"] for n in range(3)] == pytest.approx([5, 5, 1], abs=0.15)
    assert [hours[f"job{n}", "k80"] for n in range(3)] == pytest.approx([0, 1, 10], abs=0.15)


def round_snapshot(snapshot: Snapshot, previous: Plan | None = None) -> Snapshot:
    """The snapshot at the start of the round that its time lies in."""
    index = int(snapshot.now // 360)
    return replace(
        snapshot,
        triggers=frozenset({Trigger.ROUND}),
        round=Round(index, 360.0 * index, 360.0 * (index + 1)),
        previous=previous or snapshot.previous,
    )


def test_who_has_received_least_of_its_share_is_served_next() -> None:
    one_gpu = cluster_of(a=("v100", 1))
    first, second = view("first"), view("second", submit_s=1.0)
    at_start = Gavel().plan(round_snapshot(snapshot_of(one_gpu, [first, second], now=360.0)))
    assert placed_jobs(at_start) == {"first": "a:1"}
    ran = replace(view("first", held(on(a=1))), attained_gpu_s=(("v100", 360.0),), observed_s=720.0)
    later = snapshot_of(one_gpu, [ran, second], now=720.0, previous=at_start)
    next_round = Gavel().plan(round_snapshot(later))
    assert placed_jobs(next_round) == {"second": "a:1"}
    assert next_round.entries["first"] == Waiting(Reason(ReasonCode.AHEAD))


def test_all_gpus_of_a_job_are_of_one_type_and_the_fastest_type_is_served_first() -> None:
    cluster = cluster_of(k=("k80", 4), v=("v100", 2))
    speeds = linear_speeds(cluster, {"m": {"v100": 3.0, "k80": 1.0}})
    wide, narrow = view("wide", counts=(4,)), view("narrow", counts=(2,), submit_s=1.0)
    plan = Gavel().plan(
        round_snapshot(snapshot_of(cluster, [wide, narrow], now=360.0, speeds=speeds))
    )
    assert placed_jobs(plan) == {"wide": "k:4", "narrow": "v:2"}


def test_who_comes_after_the_shares_runs_on_what_is_left_until_they_are_computed_again() -> None:
    two_gpus = cluster_of(a=("v100", 2))
    old, new = view("old"), view("new", submit_s=400.0)
    policy = Gavel(reallocate_s=1080.0)
    before = policy.plan(round_snapshot(snapshot_of(two_gpus, [old], now=360.0)))
    between = policy.plan(
        round_snapshot(snapshot_of(two_gpus, [old, new], now=720.0, previous=before))
    )
    assert placed_jobs(between) == {"old": "a:1", "new": "a:1"}
    assert between.memory == before.memory
    after = policy.plan(
        round_snapshot(snapshot_of(two_gpus, [old, new], now=1440.0, previous=between))
    )
    assert after.memory["at_s"] == 1440.0
    assert after.memory["shares"] == {"old": [1.0], "new": [1.0]}


def test_without_shares_the_fastest_type_is_filled_first_whatever_the_order_of_nodes() -> None:
    cluster = cluster_of(k=("k80", 1), v=("v100", 1))
    speeds = linear_speeds(cluster, {"m": {"v100": 3.0, "k80": 1.0}})
    none = Gavel().plan(round_snapshot(snapshot_of(cluster, [view("gone")], now=360.0)))
    new = view("new", submit_s=400.0)
    between = snapshot_of(cluster, [new], now=720.0, speeds=speeds, previous=none)
    assert placed_jobs(Gavel().plan(round_snapshot(between))) == {"new": "v:1"}


def test_time_received_is_seconds_on_a_type_whatever_the_number_of_gpus() -> None:
    cluster = cluster_of(v=("v100", 4), k=("k80", 4))
    wide = replace(
        view("wide", held(on(k=4)), counts=(4,)),
        attained_gpu_s=(("v100", 400.0), ("k80", 40.0)),
        observed_s=100.0,
    )
    queue = Queue.of(snapshot_of(cluster, [wide], now=130.0), {})
    # 400 / 4 on the V100s; 40 / 4, and 30 s since it was seen, on the K80s.
    assert queue.received_s.tolist() == [[100.0, 40.0]]


@pytest.mark.parametrize(("received_s", "first"), [(179.0, "more"), (181.0, "less")])
def test_everybody_counts_as_half_a_round_served(received_s: float, first: str) -> None:
    # Rounds of 360 s: 0.6 / (t + 180) is above 0.3 / 180 up to t = 180.
    ran = replace(view("more"), attained_gpu_s=(("v100", received_s),), observed_s=720.0)
    jobs = [ran, view("less", submit_s=1.0)]
    snapshot = round_snapshot(snapshot_of(cluster_of(a=("v100", 1)), jobs, now=720.0))
    notes = Notes(
        ("v100",),
        at_s=360.0,
        shares={"more": [0.6], "less": [0.3]},
        received_s={"more": [0.0], "less": [0.0]},
    )
    queue = Queue.of(snapshot, {})
    order = [queue.views[job].id for job, _ in queue.by_priority(notes)]
    assert order[0] == first


@pytest.mark.parametrize("reallocate_s", [-1.0, math.inf, math.nan])
def test_an_interval_that_no_clock_reaches_is_refused(reallocate_s: float) -> None:
    with pytest.raises(InputError, match=f"gavel.reallocate_s={reallocate_s} is not a number"):
        Gavel(reallocate_s=reallocate_s)


def test_what_was_received_before_the_shares_does_not_count() -> None:
    one_gpu = cluster_of(a=("v100", 1))
    served = replace(view("served"), attained_gpu_s=(("v100", 3600.0),), observed_s=3600.0)
    jobs = [served, view("never", submit_s=1.0)]
    plan = Gavel().plan(round_snapshot(snapshot_of(one_gpu, jobs, now=3600.0)))
    assert placed_jobs(plan) == {"served": "a:1"}


def test_speeds_are_those_of_one_node_where_one_is_large_enough() -> None:
    cluster = cluster_of(v=("v100", 4), k1=("k80", 2), k2=("k80", 2))
    speeds = linear_speeds(cluster, {"m": {"v100": 3.0, "k80": 1.0}}, several_nodes=0.5)
    wide = view("wide", counts=(4,))
    assert Queue.of(snapshot_of(cluster, [wide], speeds=speeds), {}).speeds.tolist() == [
        [12.0, 2.0]
    ]


def test_a_job_of_twice_the_weight_has_twice_the_share() -> None:
    one_gpu = cluster_of(a=("v100", 1))
    heavy = view("heavy")
    heavy = replace(heavy, job=replace(heavy.job, weight=2.0))
    plan = Gavel().plan(snapshot_of(one_gpu, [heavy, view("light")]))
    assert plan.memory["shares"] == {
        "heavy": [pytest.approx(2 / 3)],
        "light": [pytest.approx(1 / 3)],
    }


def test_finish_time_fairness_counts_the_time_since_submission() -> None:
    # As by hand for the programme: 100 s of work each, and one has waited 100 s: a^2 - 3a + 1 = 0.
    one_gpu = cluster_of(a=("v100", 1))
    jobs = [view("new", submit_s=900.0), view("old", submit_s=800.0)]
    jobs = [replace(v, job=replace(v.job, total_samples=100.0)) for v in jobs]
    plan = Gavel(objective=Objective.FINISH_TIME_FAIRNESS).plan(
        snapshot_of(one_gpu, jobs, now=900.0)
    )
    share = (3 - 5**0.5) / 2
    assert plan.memory["shares"] == {
        "new": [pytest.approx(share, rel=1e-4)],
        "old": [pytest.approx(1 - share, rel=1e-4)],
    }


def test_shares_are_computed_again_when_gpus_come_back_and_not_when_nothing_changed() -> None:
    cluster = cluster_of(a=("v100", 1), b=("v100", 1))
    jobs = [view("x"), view("y")]
    policy = Gavel(reallocate_s=0.0)
    down = policy.plan(
        round_snapshot(snapshot_of(cluster, jobs, now=360.0, nodes={"b": {"foreign_gpus": 1}}))
    )
    assert down.memory["capacity"] == [1.0]
    back = policy.plan(round_snapshot(snapshot_of(cluster, jobs, now=720.0, previous=down)))
    assert (back.memory["at_s"], back.memory["capacity"]) == (720.0, [2.0])
    same = policy.plan(round_snapshot(snapshot_of(cluster, jobs, now=1080.0, previous=back)))
    assert same.memory == back.memory
    assert same.diagnostics == back.diagnostics
    assert same.changed == frozenset()


def test_a_job_that_may_not_be_moved_stays_and_the_others_share_the_rest() -> None:
    cluster = cluster_of(a=("v100", 2), b=("v100", 1))
    fixed = view("fixed", held(on(a=2)), counts=(2,), preemptible=False)
    plan = Gavel().plan(
        round_snapshot(snapshot_of(cluster, [fixed, view("x"), view("y")], now=360.0))
    )
    assert plan.memory["capacity"] == [1.0]
    assert plan.entries["fixed"] == placed(a=2)
    assert plan.memory["shares"] == {"x": [0.5], "y": [0.5]}


def test_what_a_chosen_job_cannot_use_goes_to_who_can() -> None:
    # Two GPUs are left, one on each node, and the first job cannot be spread.
    cluster = cluster_of(a=("v100", 2), b=("v100", 2))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}}, several_nodes=0.0)
    fixed = [view(f"on-{n}", held(on(**{n: 1})), preemptible=False) for n in "ab"]
    jobs = [*fixed, view("wide", counts=(2,), submit_s=1.0), view("small", submit_s=2.0)]
    snapshot = round_snapshot(snapshot_of(cluster, jobs, now=360.0, speeds=speeds))
    plan = Gavel().plan(snapshot)
    assert plan.entries["wide"] == Waiting(Reason(ReasonCode.AHEAD))
    assert placed_jobs(plan) == {"on-a": "a:1", "on-b": "b:1", "small": "a:1"}


def test_a_job_has_no_share_of_a_type_that_is_too_small_for_it_now() -> None:
    cluster = cluster_of(v=("v100", 4), k=("k80", 4))
    speeds = linear_speeds(cluster, {"m": {"v100": 9.0, "k80": 1.0}})
    in_use = {"v": {"foreign_gpus": 2}}
    wide, huge = view("wide", counts=(4,)), view("none", counts=(4,), gpu_types=frozenset({"v100"}))
    snapshot = snapshot_of(cluster, [wide, huge], now=360.0, speeds=speeds, nodes=in_use)
    assert Gavel().plan(round_snapshot(snapshot)).memory["shares"] == {
        "wide": [0.0, 1.0],
        "none": [0.0, 0.0],
    }


@pytest.mark.parametrize(
    ("limit_s", "done", "share"), [(300.0, 0.0, 0.75), (None, 600.0, 0.75), (None, 0.0, 1 / 101)]
)
def test_where_a_size_is_unknown_the_limit_stands_in_then_what_is_done(
    limit_s: float | None, done: float, share: float
) -> None:
    # One GPU at 2 samples/s; the known job has 100 s left. A new job without a limit counts 1 s.
    one_gpu = cluster_of(a=("v100", 1))
    speeds = linear_speeds(one_gpu, {"m": {"v100": 2.0}})
    known, unknown = view("known"), view("unknown")
    known = replace(known, job=replace(known.job, total_samples=200.0))
    unknown = replace(
        unknown,
        job=replace(unknown.job, total_samples=None, time_limit_s=limit_s),
        samples_done=done,
    )
    snapshot = snapshot_of(one_gpu, [known, unknown], speeds=speeds)
    shares = Gavel(objective=Objective.MAKESPAN).plan(snapshot).memory["shares"]
    assert isinstance(shares, dict)
    assert shares["unknown"] == [pytest.approx(share)]


@pytest.mark.parametrize(
    ("counts", "detail"), [((4,), "only a mix of GPU types holds it"), ((9,), "")]
)
def test_a_job_that_no_single_type_holds_is_told_so(counts: tuple[int, ...], detail: str) -> None:
    cluster = cluster_of(a=("v100", 2), b=("k80", 2))
    entry = Gavel().plan(snapshot_of(cluster, [view("big", counts=counts)])).entries["big"]
    assert isinstance(entry, Waiting)
    assert entry.reason.code is ReasonCode.NEVER_FITS
    assert entry.reason.detail.startswith(detail)


def test_prices_and_the_objective_are_reported() -> None:
    jobs = [
        replace(v, job=replace(v.job, profile=v.id)) for v in map(view, ("job0", "job1", "job2"))
    ]
    plan = Gavel().plan(snapshot_of(PAPER_CLUSTER, jobs, speeds=PAPER_SPEEDS))
    assert plan.diagnostics.method == "max-min-fairness, vertex point"
    assert plan.diagnostics.objective == pytest.approx(8 / 11)
    assert set(plan.diagnostics.prices) == {"v100", "k80"}
    assert plan.diagnostics.prices["v100"] > plan.diagnostics.prices["k80"] > 0


def test_the_makespan_objective_ends_jobs_of_unequal_size_together() -> None:
    one_gpu = cluster_of(a=("v100", 1))
    log = simulate(
        [submission("short", 3600.0), submission("long", 3 * 3600.0)],
        one_gpu,
        Gavel(objective=Objective.MAKESPAN),
        linear_speeds(one_gpu, {"m": {"v100": 1.0}}),
        Settings(restart_cost_s=0.0),
    )
    ends = {record.job.id: record.end_s for record in log.jobs}
    assert ends["short"] == pytest.approx(4 * 3600, abs=2 * 360)
    assert ends["long"] == 4 * 3600


def test_finish_time_fairness_remembers_what_isolation_would_have_taken() -> None:
    one_gpu = cluster_of(a=("v100", 1))
    policy = Gavel(objective=Objective.FINISH_TIME_FAIRNESS, reallocate_s=0.0)
    jobs = [replace(v, job=replace(v.job, total_samples=7200.0)) for v in (view("x"), view("y"))]
    first = policy.plan(round_snapshot(snapshot_of(one_gpu, jobs, now=360.0)))
    # Half a GPU each in isolation: 0.5 samples/s.
    assert first.memory["isolated"] == {"x": [0.0, 0.0, 0.5], "y": [0.0, 0.0, 0.5]}
    ran = replace(jobs[0], samples_done=360.0)
    alone = policy.plan(round_snapshot(snapshot_of(one_gpu, [ran], now=720.0, previous=first)))
    assert alone.memory["isolated"] == {"x": [720.0, 360.0, 1.0]}


@pytest.mark.parametrize(
    ("objective", "point"),
    [(objective, Point.VERTEX) for objective in Objective]
    + [(Objective.MAX_MIN_FAIRNESS, Point.INTERIOR)],
)
def test_every_objective_keeps_the_contracts(objective: Objective, point: Point) -> None:
    verdict = check_policy(Gavel(objective=objective, point=point, reallocate_s=90.0), seeds=(3,))
    assert verdict.kept, str(verdict)
