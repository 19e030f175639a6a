"""AlloX for gangs: the matching and whole runs against enumeration, and gangs by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policies.allox import match
from hetsched_core.policies.allox_jobs import AlloxJobs
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import (
    Cluster,
    JobView,
    Node,
    NodeCondition,
    Shape,
    Speeds,
    Submission,
    Waiting,
)
from tests.hetsched_core.policies.worlds import (
    answer,
    ends,
    order,
    planned,
    reasons,
    shown,
    with_job,
)
from tests.hetsched_core.worlds import (
    cluster_of,
    ended,
    held,
    linear_speeds,
    on,
    sized,
    submission,
    where,
)

INF = math.inf
FREE = SimulationSettings(restart_cost_s=0.0)


@given(data=st.data())
def test_the_matching_of_gangs_is_as_good_as_the_best_by_enumeration(data: st.DataObject) -> None:
    """Each job has a time of its own, one for which it holds up others, and one until it starts."""
    draw = data.draw
    gpus, jobs = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    seconds = st.sampled_from((1.0, 2.0, 3.0, 7.0, 20.0))
    row = st.lists(seconds, min_size=gpus, max_size=gpus)
    rows = st.lists(row, min_size=jobs, max_size=jobs)
    durations, delays, starts = (np.array(draw(rows)) for _ in range(3))
    queues = match(durations, starts, delays)
    assert sorted(job for queue in queues for job in queue) == list(range(jobs))

    def total(sent: list[list[int]]) -> float:
        return sum(
            float(starts[job, gpu] + durations[job, gpu] + delays[job, gpu] * behind)
            for gpu, queue in enumerate(sent)
            for behind, job in enumerate(reversed(queue))
        )

    best = INF
    for places in itertools.product(range(gpus), repeat=jobs):
        for line in itertools.permutations(range(jobs)):
            best = min(best, total([[j for j in line if places[j] == g] for g in range(gpus)]))
    assert total(queues) == pytest.approx(best)


def best_total_s(run_s: list[list[float]]) -> float:
    """The least sum of completion times of jobs (rows) on GPUs (columns), by enumeration."""
    best, gpus = INF, len(run_s[0])
    for places in itertools.product(range(gpus), repeat=len(run_s)):
        total = 0.0
        for gpu in range(gpus):
            mine = sorted(run_s[job][gpu] for job, at in enumerate(places) if at == gpu)
            total += sum(itertools.accumulate(mine))
        best = min(best, total)
    return best


def test_jobs_of_one_gpu_that_are_there_together_end_as_early_as_by_the_best_of_all_plans() -> None:
    rng = Random(3)
    speed = {"a": 9.0, "b": 3.0, "c": 1.0}
    waited_for_a_faster_gpu = 0
    for _ in range(25):
        types = [rng.choice("abc") for _ in range(rng.randint(2, 3))]
        cluster = Cluster(tuple(Node(f"n{at}", name, 1) for at, name in enumerate(types)))
        # Some models gain nothing from a faster type.
        per_gpu = {"m": speed, "flat": dict.fromkeys(speed, 1.0)}
        speeds = linear_speeds(
            cluster, {p: {t: v for t, v in of.items() if t in types} for p, of in per_gpu.items()}
        )
        profiles = [rng.choice(("m", "m", "flat")) for _ in range(rng.randint(3, 5))]
        sizes = [float(rng.randint(1, 30)) for _ in profiles]
        jobs = [
            submission(f"j{at}", size, profile=profile)
            for at, (size, profile) in enumerate(zip(sizes, profiles, strict=True))
        ]
        run_s = [
            [size / per_gpu[profile][name] for name in types]
            for size, profile in zip(sizes, profiles, strict=True)
        ]
        log = simulate(jobs, cluster, AlloxJobs(), speeds, FREE)
        assert sum(end_s or INF for end_s in ends(log).values()) == pytest.approx(
            best_total_s(run_s)
        )
        begun_at_once = sum(run.since_s == 0.0 for run in log.runs)
        waited_for_a_faster_gpu += begun_at_once < min(len(types), len(jobs))
    # In some a GPU was better left idle.
    assert waited_for_a_faster_gpu > 3


TWO_TYPES = cluster_of(fast=("v100", 4), slow=("k80", 4))
SPEED = {"m": {"v100": 4.0, "k80": 1.0}}


def plan_of(*views: JobView) -> dict[str, str]:
    return where(planned(AlloxJobs(), TWO_TYPES, *views, speeds=linear_speeds(TWO_TYPES, SPEED)))


@pytest.mark.parametrize(
    ("left_s", "places"),
    [
        # Behind the one that runs it ends after 20 + 10 s, on the slow GPUs after 40 s.
        (20.0, {"runs": "fast:4"}),
        (35.0, {"runs": "fast:4", "new": "slow:4"}),
    ],
)
def test_a_gang_waits_for_fast_gpus_where_it_ends_sooner_there(
    left_s: float, places: dict[str, str]
) -> None:
    runs = sized("runs", 16.0 * left_s, held(on(fast=4), speed=16.0), counts=(4,))
    new = sized("new", 160.0, counts=(4,))
    speeds = linear_speeds(TWO_TYPES, SPEED)
    plan = planned(AlloxJobs(), TWO_TYPES, runs, new, speeds=speeds)
    assert where(plan) == places
    if "new" not in places:
        entry = plan.entries["new"]
        assert isinstance(entry, Waiting)
        assert "ends sooner" in str(entry.reason)


def test_a_gang_begins_when_all_of_its_gpus_are_free_not_the_first_of_them() -> None:
    """One of the fast GPUs is idle; the other three are not for an hour."""
    runs = sized("runs", 3600.0 * 12.0, held(on(fast=3), speed=12.0), counts=(3,))
    assert plan_of(runs, sized("new", 160.0, counts=(4,)))["new"] == "slow:4"
    # One of a single GPU takes the idle one.
    assert plan_of(runs, sized("new", 160.0))["new"] == "fast:1"


def test_a_short_gang_is_not_passed_on_its_type_by_longer_jobs_that_fit() -> None:
    """Its second GPU is free in 5 s; the other would have the first one for a thousand."""
    cluster = cluster_of(fast=("v100", 2))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}})
    runs = sized("runs", 5.0, held(on(fast=1)))
    short, long = sized("short", 20.0, counts=(2,)), sized("long", 1000.0)
    plan = planned(AlloxJobs(), cluster, runs, short, long, speeds=speeds)
    assert where(plan) == {"runs": "fast:1"}
    assert reasons(plan) == {"long": "ahead", "short": "no_room"}


def test_of_two_that_are_first_the_one_of_fewer_gpu_seconds_begins() -> None:
    """15 GPU seconds before 20, though the gang is over sooner."""
    cluster = cluster_of(n=("v100", 2))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}})
    gang, single = sized("gang", 20.0, counts=(2,)), sized("single", 15.0)
    assert where(planned(AlloxJobs(), cluster, gang, single, speeds=speeds)) == {"single": "n:1"}


def test_gangs_of_several_nodes_count_as_fast_as_they_are_there() -> None:
    cluster = cluster_of(a=("v100", 2), b=("v100", 2), wide=("k80", 4))
    new = sized("new", 100.0, counts=(4,))
    for apart, place in ((0.9, "a:2+b:2"), (0.1, "wide:4")):
        speeds = linear_speeds(cluster, {"m": {"v100": 2.0, "k80": 1.0}}, several_nodes=apart)
        shapes = frozenset({Shape.SINGLE_NODE, Shape.EVEN})
        plan = planned(AlloxJobs(), cluster, new, speeds=speeds, shapes=shapes)
        assert where(plan) == {"new": place}


def test_a_gang_goes_elsewhere_where_idle_gpus_of_its_type_do_not_hold_it() -> None:
    """Two fast GPUs are idle, on one node: it asks for two, and the other is busy for days."""
    cluster = cluster_of(a=("v100", 2), b=("v100", 2), c=("k80", 2), d=("k80", 2))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0, "k80": 0.5}})
    runs = sized("runs", 1e6, held(on(a=2), speed=2.0), counts=(2,))
    new = with_job(sized("new", 100.0, counts=(2,)), min_nodes=2)
    plan = planned(AlloxJobs(), cluster, runs, new, speeds=speeds)
    assert where(plan) == {"runs": "a:2", "new": "c:1+d:1"}


def test_a_gang_that_asks_for_several_nodes_counts_as_fast_as_it_is_on_several() -> None:
    """The fast type is the slower one on two nodes."""
    cluster = cluster_of(a=("v100", 2), b=("v100", 2), c=("k80", 2), d=("k80", 2))
    of_type = {"v100": 1.0, "k80": 0.5}
    near = linear_speeds(cluster, {"m": of_type}).table("m")
    table = replace(near, several_nodes=near.one_node * np.array([[0.1], [1.0]]))
    new = with_job(sized("new", 100.0, counts=(2,)), min_nodes=2)
    plan = planned(AlloxJobs(), cluster, new, speeds=Speeds(cluster, {"m": table}))
    assert where(plan) == {"new": "c:1+d:1"}


def test_a_gang_does_not_wait_for_a_type_of_which_too_much_is_down() -> None:
    cluster = cluster_of(a=("v100", 4), b=("v100", 4), slow=("k80", 8))
    speeds = linear_speeds(cluster, {"m": {"v100": 9.0, "k80": 1.0}})
    new = sized("new", 100.0, counts=(8,))
    for condition, place in ((NodeCondition.UP, "a:4+b:4"), (NodeCondition.DOWN, "slow:8")):
        plan = planned(
            AlloxJobs(), cluster, new, speeds=speeds, nodes={"b": {"condition": condition}}
        )
        assert where(plan) == {"new": place}


def test_sizes_that_are_not_told_are_those_of_past_runs() -> None:
    """The one of a profile that ran for 10 s goes before the one whose kind took a day."""
    cluster = cluster_of(n=("v100", 1))
    speeds = linear_speeds(cluster, {p: {"v100": 1.0} for p in ("m", "quick")})
    views = [
        with_job(sized("long", 1.0), total_samples=None),
        with_job(sized("short", 1.0), total_samples=None, profile="quick", submit_s=1.0),
    ]
    past = ended({"m": 86_400.0, "quick": 10.0})
    plan = planned(AlloxJobs(), cluster, *views, speeds=speeds, now=5.0)
    assert where(plan) == {"long": "n:1"}
    known = replace(shown(cluster, *views, speeds=speeds, now=5.0), ended=past)
    assert where(answer(AlloxJobs(), known)) == {"short": "n:1"}


def test_what_runs_stays_to_its_end_and_the_shortest_goes_first() -> None:
    cluster = cluster_of(n=("v100", 1))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}})
    jobs: list[Submission] = [
        submission("a", 50.0),
        submission("b", 9.0, submit_s=1.0),
        submission("c", 5.0, submit_s=2.0),
    ]
    log = simulate(jobs, cluster, AlloxJobs(), speeds, FREE)
    assert order(log) == ["a", "c", "b"]
    assert ends(log) == {"a": 50.0, "c": 55.0, "b": 64.0}


@pytest.mark.parametrize("jobs", [3, 5, 9])
@pytest.mark.parametrize("count", [1, 2])
def test_of_equal_jobs_those_that_came_first_begin(jobs: int, count: int) -> None:
    cluster = cluster_of(a=("v100", 2), b=("k80", 2))
    names = [f"j{at:02d}" for at in range(jobs)]
    views = [
        with_job(sized(name, 50.0, counts=(count,)), submit_s=float(at))
        for at, name in enumerate(names)
    ]
    plan = planned(AlloxJobs(), cluster, *reversed(views), now=20.0)
    assert list(where(plan)) == names[: 4 // count]


def test_of_many_the_shortest_are_matched_first_and_nothing_stays_idle() -> None:
    """Eight GPUs, and three at a time; by the fast GPU that is left the longest gains most."""
    views = [sized(f"j{at}", 100.0 - at) for at in range(9)]
    speeds = linear_speeds(TWO_TYPES, {"m": {"v100": 1.1, "k80": 1.0}})
    places = where(planned(AlloxJobs(together=3), TWO_TYPES, *views, speeds=speeds))
    assert set(places) == {f"j{at}" for at in range(1, 9)}
    assert {job for job, place in places.items() if place.startswith("fast")} == {
        *("j8", "j7", "j6", "j3")
    }
