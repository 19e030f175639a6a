"""Sia's programme against the worked example and enumeration, and what a round makes of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hetsched_core.errors import InputError
from hetsched_core.optimize import Limits
from hetsched_core.placement.pools import Pools
from hetsched_core.placement.ways import ways_to_fit
from hetsched_core.policies.sia import Options, Priced, Sia, choose, options_of, restart_factor
from hetsched_core.types import Trigger
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    plan_of,
    snapshot_of,
    view,
    where,
)

Floats = NDArray[np.float64]

EXACT = Limits(gap=0.0)

# Table 1 of Hops: gains of jobs 1 to 4 under configurations 1 to 4 on nodes 0 and 1.
GAINS = ((1, 1.8, 2.6, None), (2, 1, 3, 4.1), (1.2, 1.6, 1, None), (1, 1.8, 3.2, None))
USE = ((1, 0), (2, 0), (0, 4), (2, 4))


def table_1() -> list[Priced]:
    jobs = []
    for gains in GAINS:
        have = [k for k, gain in enumerate(gains) if gain is not None]
        cost = np.array([gains[k] for k in have], float) ** -0.5
        jobs.append(Priced(cost, np.array([USE[k] for k in have])))
    return jobs


def answers(
    priced: Sequence[Priced], capacity: Floats, leave_out: float
) -> Iterator[tuple[float, tuple[int | None, ...]]]:
    """Every feasible choice with its objective, by enumeration."""
    for choice in itertools.product(*([None, *range(len(mine.cost))] for mine in priced)):
        used, objective = np.zeros(len(capacity)), 0.0
        for mine, k in zip(priced, choice, strict=True):
            used += 0 if k is None else mine.use[k]
            objective += leave_out if k is None else mine.cost[k]
        if (used <= capacity).all():
            yield objective, choice


@pytest.mark.parametrize(
    ("idle", "choice", "objective", "second"),
    [
        ((4, 4), (2, 1, 1, 3), 2.924350697, 2.985507376),
        ((2, 4), (None, 1, 1, 3), 3.278994705, None),
    ],
)
def test_w7_table_1_of_hops_under_the_objective_of_sia(
    idle: tuple[int, int], choice: tuple[int | None, ...], objective: float, second: float | None
) -> None:
    capacity = np.array(idle, float)
    found = choose(table_1(), capacity, 1.1, EXACT)
    assert tuple(k if k is None else k + 1 for k in found.configurations) == choice
    assert found.diagnostics.objective == pytest.approx(objective, abs=1e-9)
    best = sorted(objective for objective, _ in answers(table_1(), capacity, 1.1))
    assert best[0] == pytest.approx(objective, abs=1e-9)
    if second is not None:
        assert best[1] == pytest.approx(second, abs=1e-9)


@given(data=st.data())
def test_the_choice_is_as_good_as_the_best_by_enumeration(data: st.DataObject) -> None:
    draw = data.draw
    pools = draw(st.integers(1, 3))
    priced = []
    for _ in range(draw(st.integers(1, 3))):
        use = st.lists(st.integers(0, 4), min_size=pools, max_size=pools).filter(any)
        uses = draw(st.lists(use, min_size=1, max_size=3))
        gains = draw(
            st.lists(st.sampled_from((1.0, 1.5, 2.0, 6.0)), min_size=len(uses), max_size=len(uses))
        )
        factor = draw(st.sampled_from((1.0, 0.9, 0.3)))
        priced.append(Priced((factor * np.array(gains)) ** -0.5, np.array(uses)))
        if draw(st.booleans()):
            priced.append(priced[-1])
    capacity = np.array(draw(st.lists(st.integers(0, 6), min_size=pools, max_size=pools)), float)
    found = choose(priced, capacity, 1.1, EXACT)
    objectives = {choice: objective for objective, choice in answers(priced, capacity, 1.1)}
    best = min(objectives.values())
    assert found.diagnostics.objective == pytest.approx(best, abs=1e-9)
    assert objectives[found.configurations] == pytest.approx(best, abs=1e-9)


def test_gains_are_relative_to_the_least_and_start_at_the_fewest_gpus() -> None:
    cluster = cluster_of(a=("v100", 4), b=("k80", 2), c=("k80", 2))
    speeds = linear_speeds(cluster, {"m": {"v100": 3.0, "k80": 1.0}}, several_nodes=0.5)
    snapshot = snapshot_of(cluster, [], speeds=speeds)
    job = view("j", counts=(2, 4)).job
    options = options_of(
        snapshot,
        job,
        ways_to_fit(job, cluster, speeds, snapshot.shapes),
        Pools.of(snapshot, {}, [job]),
    )
    by_use = dict(zip(map(tuple, options.use.tolist()), options.gain.tolist(), strict=True))
    # Samples/s: V100 6 and 12; K80 2 on one node, 4 GPUs on two nodes at half speed 2.
    assert by_use == {(2, 0): 6.0, (4, 0): 12.0, (0, 2): 2.0, (0, 4): 2.0}


@pytest.mark.parametrize(
    ("first_start_s", "restarts", "factor"),
    [
        (None, 0, 1.0),
        (0.0, 0, 970 / 1000),
        (0.0, 3, (970 - 90) / 1000),
        (960.0, 1, 0.0),
    ],
    ids=["never ran", "first run", "three restarts", "restarts more than it runs"],
)
def test_the_restart_factor_is_the_share_of_time_that_is_not_lost_to_one_more_restart(
    first_start_s: float | None, restarts: int, factor: float
) -> None:
    job = replace(view("j"), first_start_s=first_start_s, restarts=restarts, restart_cost_s=30.0)
    assert restart_factor(job, 970.0) == pytest.approx(factor)


def test_a_job_that_starts_now_and_restarts_at_no_cost_loses_nothing() -> None:
    assert restart_factor(replace(view("j"), first_start_s=970.0, restart_cost_s=0.0), 970.0) == 1.0


def test_what_is_placed_is_not_moved_as_if_it_only_waited() -> None:
    kept = replace(view("j", held(on(a=1), begun=False)), restart_cost_s=30.0)
    assert restart_factor(kept, 970.0) == 0.0


def test_elastic_jobs_grow_when_there_is_room_and_shrink_when_others_come() -> None:
    cluster = cluster_of(a=("v100", 4))
    one = view("one", counts=(1, 2, 4))
    alone = Sia().plan(snapshot_of(cluster, [one]))
    assert where(alone) == {"one": "a:4"}
    more = [one, *(view(f"x{n}", counts=(1, 2, 4), submit_s=1.0) for n in range(3))]
    # Two jobs on two GPUs each: 2 x 2^-0.5 + 2 x 1.1 = 3.61; four jobs on one each: 4.
    assert where(Sia().plan(snapshot_of(cluster, more))) == {"one": "a:2", "x0": "a:2"}
    # With a higher price on leaving jobs out, nobody is: 1.414 + 2 x 1.4 = 4.21.
    shared = where(Sia(leave_out=1.4).plan(snapshot_of(cluster, more)))
    assert shared == dict.fromkeys(("one", "x0", "x1", "x2"), "a:1")


def test_a_running_job_is_moved_only_where_the_gain_outweighs_a_restart() -> None:
    cluster = cluster_of(v=("v100", 1), k=("k80", 1))
    runs = replace(view("j", held(on(k=1))), first_start_s=0.0, restarts=0, restart_cost_s=100.0)

    def after(now: float, v100: float) -> dict[str, str]:
        speeds = linear_speeds(cluster, {"m": {"v100": v100, "k80": 1.0}})
        previous = plan_of({"j": placed(k=1)})
        return where(
            Sia().plan(snapshot_of(cluster, [runs], now=now, speeds=speeds, previous=previous))
        )

    # r = 50 / 150: a GPU three times as fast is not worth it, one four times as fast is:
    # (4/3)^-0.5 + 0.01 = 0.876 < 1. After 10,000 s r = 0.99, and 1.05^-0.5 / 0.995 + 0.01 < 1.
    assert after(50.0, 3.0) == {"j": "k:1"}
    assert after(50.0, 4.0) == {"j": "v:1"}
    assert after(10_000.0, 1.02) == {"j": "k:1"}
    assert after(10_000.0, 1.05) == {"j": "v:1"}


def test_jobs_of_equal_claim_are_served_by_submission() -> None:
    cluster = cluster_of(a=("v100", 2))
    views = [view(name, submit_s=when) for name, when in (("c", 0.0), ("b", 1.0), ("a", 2.0))]
    assert set(where(Sia().plan(snapshot_of(cluster, views)))) == {"c", "b"}
    elastic = [view(name, counts=(1, 2), submit_s=when) for name, when in (("z", 0.0), ("y", 1.0))]
    three = cluster_of(a=("v100", 2), b=("v100", 1))
    assert where(Sia().plan(snapshot_of(three, elastic))) == {"z": "a:2", "y": "b:1"}


def test_who_finds_no_node_for_its_choice_takes_other_room_that_is_left() -> None:
    # 3 + 3 GPUs are there, but no node has 3 beside the job that may not be moved.
    cluster = cluster_of(a=("v100", 4), b=("v100", 4))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}}, several_nodes=0.0)
    fixed = [
        view(f"fixed-{node}", held(on(**{node: 2})), counts=(2,), preemptible=False)
        for node in "ab"
    ]
    plan = Sia().plan(snapshot_of(cluster, [*fixed, view("j", counts=(1, 2, 4))], speeds=speeds))
    assert where(plan)["j"] == "a:2"


def test_diagnostics_say_how_good_the_choice_is_proven_to_be() -> None:
    cluster = cluster_of(a=("v100", 4))
    plan = Sia(gap=0.0).plan(snapshot_of(cluster, [view("one"), view("two", counts=(4,))]))
    # Either: 1 + 1.1 with the job of one GPU, 4^-0.5 + 1.1 with that of four.
    assert where(plan) == {"two": "a:4"}
    assert plan.diagnostics.objective == pytest.approx(1.6)
    assert plan.diagnostics.bound == pytest.approx(1.6)
    assert plan.diagnostics.gap == pytest.approx(0.0)
    assert plan.replan.on == {Trigger.ROUND, Trigger.NODE}


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("p", 0.0, "is not a number below 0"),
        ("p", 0.5, "is not a number below 0"),
        ("p", math.nan, "is not a number below 0"),
        ("p", -math.inf, "is not a number below 0"),
        ("leave_out", -1.0, "is not a number above 0"),
        ("leave_out", 0.0, "is not a number above 0"),
        ("change", -0.1, "is not a number of at least 0"),
        ("gap", -1.0, "is not a number of at least 0"),
        ("gap", math.inf, "is not a number of at least 0"),
        ("nodes", -1, "is not a number of at least 1"),
        ("nodes", 0, "is not a number of at least 1"),
    ],
)
def test_a_parameter_that_means_nothing_is_refused(name: str, value: float, wrong: str) -> None:
    with pytest.raises(InputError, match=f"sia.{name}={value} {wrong}"):
        replace(Sia(), **{name: value})  # type: ignore[arg-type]


def test_configurations_that_are_beaten_outright_cost_no_columns() -> None:
    # Four GPUs are slower than two: nobody should ever get four.
    options = Options(np.array([2.0, 3.0, 2.5]), np.array([[1], [2], [4]]))
    priced = Priced(options.gain**-0.5, options.use)
    assert choose([priced] * 2, np.array([8.0]), 1.1, EXACT).configurations == (1, 1)
    assert math.isclose(
        choose([priced] * 2, np.array([8.0]), 1.1, EXACT).diagnostics.objective or 0,
        2 * 3**-0.5,
    )
