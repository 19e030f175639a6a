"""Tiresias and 2D-LAS: attained service decides, in queues and without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policies.hare.hlas_slots import HlasSlots
from hetsched_core.policies.las import Las
from hetsched_core.policies.las_2d import Las2D
from hetsched_core.policies.tiresias import Tiresias
from hetsched_core.policy import Policy
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import (
    JobView,
    Round,
    Trigger,
)
from tests.hetsched_core.policies.worlds import ROUND, ends, planned
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

ONE = cluster_of(a=("v100", 1))
FOUR = cluster_of(a=("v100", 4))
BOTH = pytest.mark.parametrize("policy", [Las2D(), Tiresias(threshold_gpu_s=200.0)])


@pytest.mark.parametrize(
    ("policy", "completions"),
    [
        # Everybody in turn, a round each: J1 J2 J3 J1 J2 J3 J2 J3 J3.
        (Las2D(), {"J1": 4.0, "J2": 7.0, "J3": 9.0}),
        # Two seconds each in the first queue, first started first served: J1 J1 | J2 J2 | J3 J3;
        # then in the second queue J2, which started before J3: J2 | J3 J3.
        (Tiresias(threshold_gpu_s=2.0), {"J1": 2.0, "J2": 7.0, "J3": 9.0}),
        # One queue is first come, first served.
        (Tiresias(queues=1), {"J1": 2.0, "J2": 5.0, "J3": 9.0}),
        # Queues end at 1 and 2: J1 | J2 | J3 | J1 | J2 | J3 | J2 | J3 J3, as without queues.
        (
            Tiresias(queues=3, threshold_gpu_s=1.0, factor=2.0),
            {"J1": 4.0, "J2": 7.0, "J3": 9.0},
        ),
    ],
    ids=["2d-las", "tiresias", "one queue", "three queues"],
)
def test_three_jobs_of_2_3_and_4_seconds_on_one_gpu(
    policy: Policy, completions: dict[str, float]
) -> None:
    jobs = [submission(f"J{n}", float(n + 1)) for n in (1, 2, 3)]
    speeds = linear_speeds(ONE, {"m": {"v100": 1.0}})
    log = simulate(jobs, ONE, policy, speeds, SimulationSettings(round_s=1.0, restart_cost_s=0.0))
    assert ends(log) == completions


@BOTH
def test_service_counts_gpus_times_seconds(policy: Policy) -> None:
    # Both have held GPUs for 100 s: 4 of them have had 400 GPU seconds, 1 has had 100.
    wide, narrow = view("wide", held(on(a=4)), counts=(4,)), view("narrow", held(on(b=1)))
    cluster = cluster_of(a=("v100", 4), b=("v100", 1), c=("v100", 1))
    new = view("new", counts=(4,), submit_s=50.0)
    plan = planned(policy, cluster, wide, narrow, new, now=100.0, triggers=ROUND)
    assert where(plan) == {"new": "a:4", "narrow": "b:1"}


@BOTH
def test_a_type_is_chosen_by_room_and_not_by_speed(policy: Policy) -> None:
    cluster = cluster_of(v=("v100", 2), k=("k80", 4))
    speeds = linear_speeds(cluster, {"m": {"v100": 9.0, "k80": 1.0}})

    def served(*jobs: JobView) -> dict[str, str]:
        return where(planned(policy, cluster, *jobs, speeds=speeds, triggers=ROUND))

    jobs = [view(name, counts=(2,), submit_s=s) for name, s in (("first", 1.0), ("second", 2.0))]
    assert served(*jobs) == {"first": "k:2", "second": "v:2"}
    assert served(view("stays", held(on(v=1)))) == {"stays": "v:1"}
    # Who is first gets all GPUs if it needs all.
    assert served(view("wide", counts=(4,)), *jobs) == {"wide": "k:4", "first": "v:2"}


def test_a_job_that_suffers_from_being_spread_waits_for_one_node_and_another_does_not() -> None:
    cluster = cluster_of(a=("v100", 4), b=("v100", 4))
    jobs = [view(f"x{n}", held(on(**{n: 3})), counts=(3,)) for n in "ab"]
    jobs.append(view("two", counts=(2,), submit_s=1.0))

    def served(several_nodes: float, *jobs: JobView) -> dict[str, str]:
        speeds = linear_speeds(cluster, {"m": {"v100": 1.0}}, several_nodes=several_nodes)
        return where(planned(Tiresias(), cluster, *jobs, speeds=speeds, triggers=ROUND))

    assert served(0.95, *jobs)["two"] == "a:1+b:1"
    assert "two" not in served(0.5, *jobs)
    assert served(0.5, view("wide", counts=(8,))) == {"wide": "a:4+b:4"}


@pytest.mark.parametrize(
    "policy",
    [Las(), Las2D(), Tiresias(threshold_gpu_s=1.0), HlasSlots(first_threshold_s=0.1)],
    ids=lambda policy: policy.info.name,
)
def test_what_is_placed_has_attained_nothing_and_keeps_its_turn(policy: Policy) -> None:
    kept = view("kept", held(on(a=4), begun=False), counts=(4,), submit_s=1.0)
    had = replace(view("had", counts=(4,)), attained_gpu_s=(("v100", 4.0),), first_start_s=0.0)
    views = [kept, had, view("new", counts=(4,), submit_s=2.0)]
    snapshot = snapshot_of(FOUR, views, now=1e4, triggers=ROUND | {Trigger.ARRIVAL})
    first = policy.plan(snapshot)
    assert where(first) == {"kept": "a:4"}
    # The next round begins, and Slurm has not started it yet.
    later = replace(snapshot, now=2e4, round=Round(1, 2e4, 3e4), previous=first)
    assert where(policy.plan(later)) == {"kept": "a:4"}


def test_what_is_placed_counts_as_started_where_the_first_start_decides() -> None:
    kept = view("kept", held(on(a=4), begun=False), counts=(4,), submit_s=1.0)
    never_ran = view("never ran", counts=(4,))
    plan = planned(Tiresias(), FOUR, kept, never_ran, now=50.0, triggers=ROUND)
    assert where(plan) == {"kept": "a:4"}
