"""Gavel's rounds: who is served when, on which type, and what is remembered in between."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from hetsched_core.policies.gavel import Gavel, GavelNotes, GavelQueue, Objective
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import Cluster, JobView, Plan, Round, Snapshot
from tests.hetsched_core.policies.worlds import ROUND, ends, reasons, with_job
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    snapshot_of,
    submission,
    view,
    where,
)

PAPER = cluster_of(v=("v100", 1), k=("k80", 1))
PAPER_SPEEDS = linear_speeds(
    PAPER,
    {
        "job0": {"v100": 40.0, "k80": 10.0},
        "job1": {"v100": 12.0, "k80": 4.0},
        "job2": {"v100": 100.0, "k80": 50.0},
    },
)
ONE = cluster_of(a=("v100", 1))
TWO = cluster_of(a=("v100", 1), b=("v100", 1))
FAIR = Objective.FINISH_TIME_FAIRNESS


def at_round(cluster: Cluster, *views: JobView, now: float = 360.0, **more: object) -> Snapshot:
    """The snapshot at the start of the round that `now` lies in."""
    snapshot = snapshot_of(cluster, views, now=now, triggers=ROUND, **more)  # type: ignore[arg-type]
    index = int(now // 360)
    return replace(snapshot, round=Round(index, 360.0 * index, 360.0 * (index + 1)))


def planned(cluster: Cluster, *views: JobView, policy: Gavel | None = None, **more: object) -> Plan:
    return (policy or Gavel()).plan(at_round(cluster, *views, **more))  # type: ignore[arg-type]


def served(name: str, v100_s: float, now: float, samples: float = 0.0) -> JobView:
    """A job that has had a V100 for so long."""
    attained = (("v100", v100_s),)
    return replace(view(name), attained_gpu_s=attained, observed_s=now, samples_done=samples)


# -- who is served ---------------------------------------------------------------------------------


def test_over_many_rounds_each_job_receives_the_shares_that_the_paper_prints() -> None:
    # 110 rounds of 6 minutes, at whose end all are withdrawn.
    jobs = [submission(f"job{n}", 1e9, profile=f"job{n}", cancel_s=110 * 360.0) for n in range(3)]
    log = simulate(jobs, PAPER, Gavel(), PAPER_SPEEDS, SimulationSettings(restart_cost_s=0.0))
    hours: dict[tuple[str, str], float] = defaultdict(float)
    for run in log.runs:
        hours[run.job, str(run.configuration)] += (run.freed_s - run.since_s) / 3600
    # 5/11, 5/11 and 1/11 of 11 hours on the V100; 0, 1/11 and 10/11 on the K80.
    assert [hours[f"job{n}", "v:1"] for n in range(3)] == pytest.approx([5, 5, 1], abs=0.15)
    assert [hours[f"job{n}", "k:1"] for n in range(3)] == pytest.approx([0, 1, 10], abs=0.15)


def test_the_makespan_objective_ends_jobs_of_unequal_size_together() -> None:
    jobs = [submission("short", 3600.0), submission("long", 3 * 3600.0)]
    speeds = linear_speeds(ONE, {"m": {"v100": 1.0}})
    log = simulate(
        jobs, ONE, Gavel(Objective.MAKESPAN), speeds, SimulationSettings(restart_cost_s=0.0)
    )
    assert ends(log)["short"] == pytest.approx(4 * 3600, abs=2 * 360)
    assert ends(log)["long"] == 4 * 3600


@pytest.mark.parametrize(("received_s", "first"), [(179.0, "more"), (181.0, "less")])
def test_everybody_counts_as_half_a_round_served(received_s: float, first: str) -> None:
    # Rounds of 360 s: 0.6 / (t + 180) is above 0.3 / 180 up to t = 180.
    jobs = served("more", received_s, 720.0), view("less", submit_s=1.0)
    notes = GavelNotes(
        ("v100",),
        at_s=360.0,
        shares={"more": [0.6], "less": [0.3]},
        received_s={"more": [0.0], "less": [0.0]},
    )
    queue = GavelQueue.of(at_round(ONE, *jobs, now=720.0), {})
    order = [queue.views[job].id for job, _ in queue.by_priority(notes)]
    assert order[0] == first


# -- shares ----------------------------------------------------------------------------------------


def test_finish_time_fairness_counts_the_time_since_submission() -> None:
    # As by hand for the programme: 100 s of work each, and one has waited 100 s: a^2 - 3a + 1 = 0.
    jobs = [view("new", submit_s=900.0), view("old", submit_s=800.0)]
    jobs = [with_job(each, total_samples=100.0) for each in jobs]
    share = (3 - 5**0.5) / 2
    assert planned(ONE, *jobs, policy=Gavel(FAIR), now=900.0).memory["shares"] == {
        "new": [pytest.approx(share, rel=1e-4)],
        "old": [pytest.approx(1 - share, rel=1e-4)],
    }


@pytest.mark.parametrize(
    ("limit_s", "done", "share"), [(300.0, 0.0, 0.75), (None, 600.0, 0.75), (None, 0.0, 1 / 101)]
)
def test_where_a_size_is_unknown_the_limit_stands_in_then_what_is_done(
    limit_s: float | None, done: float, share: float
) -> None:
    # One GPU at 2 samples/s; the known job has 100 s left. A new job without a limit counts 1 s.
    speeds = linear_speeds(ONE, {"m": {"v100": 2.0}})
    unknown = with_job(served("?", 0.0, 0.0, done), total_samples=None, time_limit_s=limit_s)
    jobs = with_job(view("known"), total_samples=200.0), unknown
    plan = planned(ONE, *jobs, policy=Gavel(Objective.MAKESPAN), now=0.0, speeds=speeds)
    shares = plan.memory["shares"]
    assert isinstance(shares, dict)
    assert shares["?"] == [pytest.approx(share)]


# -- what is remembered ----------------------------------------------------------------------------


def test_finish_time_fairness_remembers_what_isolation_would_have_taken() -> None:
    policy = Gavel(FAIR, reallocate_s=0.0)
    jobs = [with_job(view(name), total_samples=7200.0) for name in "xy"]
    first = planned(ONE, *jobs, policy=policy)
    # Half a GPU each in isolation: 0.5 samples/s.
    assert first.memory["isolated"] == {"x": [0.0, 0.0, 0.5], "y": [0.0, 0.0, 0.5]}
    ran = replace(jobs[0], samples_done=360.0)
    alone = planned(ONE, ran, policy=policy, now=720.0, previous=first)
    assert alone.memory["isolated"] == {"x": [720.0, 360.0, 1.0]}


def test_prices_and_the_objective_are_reported() -> None:
    jobs = [with_job(view(name), profile=name) for name in ("job0", "job1", "job2")]
    told = planned(PAPER, *jobs, speeds=PAPER_SPEEDS).diagnostics
    assert told.method == "max-min-fairness, vertex point"
    assert told.objective == pytest.approx(8 / 11)
    assert set(told.prices) == {"v100", "k80"}
    assert told.prices["v100"] > told.prices["k80"] > 0


def test_what_a_chosen_job_cannot_use_goes_to_who_can() -> None:
    # Two GPUs are left, one on each node, and the first job cannot be spread.
    cluster = cluster_of(a=("v100", 2), b=("v100", 2))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}}, several_nodes=0.0)
    jobs = [view(f"on-{n}", held(on(**{n: 1})), preemptible=False) for n in "ab"]
    jobs += [view("wide", counts=(2,), submit_s=1.0), view("small", submit_s=2.0)]
    plan = planned(cluster, *jobs, speeds=speeds)
    assert reasons(plan) == {"wide": "ahead"}
    assert where(plan) == {"on-a": "a:1", "on-b": "b:1", "small": "a:1"}


def test_a_job_of_twice_the_weight_has_twice_the_share() -> None:
    plan = planned(ONE, with_job(view("heavy"), weight=2.0), view("light"))
    assert plan.memory["shares"] == {
        "heavy": [pytest.approx(2 / 3)],
        "light": [pytest.approx(1 / 3)],
    }


def test_a_job_has_no_share_of_a_type_that_is_too_small_for_it_now() -> None:
    cluster = cluster_of(v=("v100", 4), k=("k80", 4))
    speeds = linear_speeds(cluster, {"m": {"v100": 9.0, "k80": 1.0}})
    jobs = view("wide", counts=(4,)), view("none", counts=(4,), gpu_types=frozenset({"v100"}))
    plan = planned(cluster, *jobs, speeds=speeds, nodes={"v": {"foreign_gpus": 2}})
    assert plan.memory["shares"] == {"wide": [0.0, 1.0], "none": [0.0, 0.0]}


def test_jobs_of_one_node_share_no_more_of_it_than_there_is() -> None:
    cluster = cluster_of(a=("v100", 8), b=("v100", 8))
    jobs = [
        with_job(view(name, counts=(8,)), nodes=nodes)
        for name, nodes in (("x", frozenset("a")), ("y", frozenset("a")), ("z", None))
    ]
    plan = planned(cluster, *jobs)
    # Of two nodes without limits they would have two thirds each.
    assert plan.memory["shares"] == {job: [pytest.approx(0.5)] for job in "xyz"}
    assert sum(plan.diagnostics.prices.values()) > 0
    assert "v100 in a" in plan.diagnostics.prices


def test_shares_are_computed_again_when_gpus_come_back_and_not_when_nothing_changed() -> None:
    jobs, policy = (view("x"), view("y")), Gavel(reallocate_s=0.0)
    down = planned(TWO, *jobs, policy=policy, nodes={"b": {"foreign_gpus": 1}})
    assert down.memory["capacity"] == [1.0]
    back = planned(TWO, *jobs, policy=policy, now=720.0, previous=down)
    assert (back.memory["at_s"], back.memory["capacity"]) == (720.0, [2.0])
    same = planned(TWO, *jobs, policy=policy, now=1080.0, previous=back)
    assert (same.memory, same.diagnostics) == (back.memory, back.diagnostics)
    assert same.changed == frozenset()
