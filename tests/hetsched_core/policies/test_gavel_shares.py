"""Gavel's programmes against numbers worked out by hand and against naive twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from hetsched_core.optimize import Point
from hetsched_core.policies.gavel_shares import (
    GavelDemand,
    Shares,
    finish_time_fairness,
    isolated_speeds,
    makespan,
    max_min_fairness,
    total_throughput,
)

Floats = NDArray[np.float64]


def demand_of(speeds: ArrayLike, counts: ArrayLike, capacity: ArrayLike) -> GavelDemand:
    return GavelDemand(*(np.array(part, float) for part in (speeds, counts, capacity)))


PAPER = demand_of([[40, 10], [12, 4], [100, 50]], [1, 1, 1], [1, 1])
"""The example of Gavel section 4.1: one V100, one K80, three jobs."""


@pytest.mark.parametrize("point", Point)
def test_max_min_fairness_gives_the_shares_that_the_paper_prints(point: Point) -> None:
    # Printed: 0.45 0 / 0.45 0.09 / 0.09 0.91. Exactly: jobs 0 and 1 have a and b on the V100, job 1
    # has c on the K80, job 2 the rest of both and no idle time: 40a = 25t, 12b + 4c = 8t,
    # 100c + 50(1 - c) = 75t, a + b + c = 1.
    found = max_min_fairness(PAPER, np.ones(3), point)
    assert found.time * 11 == pytest.approx(np.array([[5, 0], [5, 1], [1, 10]]), abs=1e-4)
    assert found.objective == pytest.approx(8 / 11, abs=1e-6)


def test_a_price_is_what_one_more_gpu_adds() -> None:
    # 3 GPUs: job 0 has 2 of them always, job 1 half of the time, and with one more always.
    found = total_throughput(demand_of([[10], [6]], [2, 2], [3]), Point.VERTEX)
    assert found.objective == pytest.approx(13)
    assert found.prices == pytest.approx([3])


@pytest.mark.parametrize(("isolated_s", "share"), [(1e8, 1.5e-8), (1e13, 0.0)])
def test_a_long_job_that_is_nearly_done_gets_what_it_needs_down_to_nothing(
    isolated_s: float, share: float
) -> None:
    # The others share the GPU: rho = 2 x 10^5 s / 3 x 10^5 s. The first has a second of work left,
    # for which it may take 2/3 of what it has taken in isolation.
    found = finish_time_fairness(
        demand_of([[1]] * 3, [1] * 3, [1]),
        np.array([1.0, 1e5, 1e5]),
        np.zeros(3),
        np.array([isolated_s, 0.0, 0.0]),
        Point.VERTEX,
    )
    assert found.time.ravel() == pytest.approx([share, 0.5, 0.5], rel=1e-6, abs=1e-12)
    assert found.objective == pytest.approx(2 / 3)


def test_isolated_speeds_are_those_of_an_equal_part_of_every_type() -> None:
    # Half of 2 GPUs of each type. One GPU cannot be on both all the time: half of it on each. Four
    # GPUs have a quarter of the time on each type.
    assert isolated_speeds(demand_of([[10, 2], [40, 8]], [1, 4], [2, 2])) == pytest.approx([6, 12])


# Against naive twins -----------------------------------------------------------------------------

SPEEDS = st.sampled_from((0.0, 1.0, 2.0, 2.0, 3.5, 8.0, 40.0))


@st.composite
def demands(draw: st.DrawFn) -> GavelDemand:
    jobs, types = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    row = st.lists(SPEEDS, min_size=types, max_size=types).filter(any)
    capacity = draw(st.lists(st.integers(4, 12), min_size=types, max_size=types))
    counts = draw(st.lists(st.sampled_from((1, 1, 2, 4)), min_size=jobs, max_size=jobs))
    return demand_of(draw(st.lists(row, min_size=jobs, max_size=jobs)), counts, capacity)


def naive_best(
    demand: GavelDemand, cost: Floats, needed: tuple[Floats, Floats] | None = None
) -> float:
    """The most of cost @ (x, z); with gains and needs: gains_i @ x_i >= needs_i z.

    Job by job, nothing grouped or scaled.
    """
    jobs, types = demand.speeds.shape
    rows, bounds = [], []
    for i in range(jobs):
        mine = slice(i * types, (i + 1) * types)
        time, need = np.zeros(jobs * types + 1), np.zeros(jobs * types + 1)
        time[mine] = 1
        if needed is not None:
            need[mine], need[-1] = -needed[0][i], needed[1][i]
        rows += [time, need]
        bounds += [1.0, 0.0]
    for j in range(types):
        used = np.zeros(jobs * types + 1)
        used[j:-1:types] = demand.counts
        rows.append(used)
        bounds.append(demand.capacity[j])
    found = linprog(-cost, np.array(rows), np.array(bounds))
    assert found.status == 0
    return -float(found.fun)


def naive_largest_ratio(demand: GavelDemand, gains: Floats, needs: Floats) -> float:
    """The greatest z with gains_i @ x_i >= needs_i z."""
    only_z = np.append(np.zeros(demand.speeds.size), 1.0)
    return naive_best(demand, only_z, (gains, needs))


def is_feasible(demand: GavelDemand, shares: Shares) -> bool:
    time = shares.time
    return bool(
        (time >= 0).all()
        and (time.sum(axis=1) <= 1 + 1e-6).all()
        and (demand.counts @ time <= demand.capacity + 1e-6).all()
        and (time[demand.speeds == 0] == 0).all()
    )


@given(demands(), st.data(), st.sampled_from(Point))
def test_shares_equal_the_programmes_written_out_job_by_job(
    demand: GavelDemand, data: st.DataObject, point: Point
) -> None:
    jobs = len(demand.counts)

    def numbers(each: st.SearchStrategy[float]) -> Floats:
        return np.array(data.draw(st.lists(each, min_size=jobs, max_size=jobs)))

    weights, left = numbers(st.sampled_from((1.0, 2.5))), numbers(st.floats(10, 1e5))
    equal = demand.speeds @ (demand.capacity / demand.capacity.sum())
    gains = demand.speeds * (demand.counts / weights / equal)[:, None]
    fairest = naive_largest_ratio(demand, gains, np.ones(jobs))
    shortest_s = 1 / naive_largest_ratio(demand, demand.speeds, left)
    most = naive_best(demand, np.append(demand.speeds.ravel(), 0.0))
    for found, objective in (
        (fair := max_min_fairness(demand, weights, point), fairest),
        (makespan(demand, left, point), shortest_s),
        (total_throughput(demand, point), most),
    ):
        assert is_feasible(demand, found)
        assert found.objective == pytest.approx(objective, rel=1e-5)
    assert (gains * fair.time).sum(axis=1).min() == pytest.approx(fair.objective, rel=1e-4)


@given(demands(), st.data(), st.sampled_from(Point))
def test_finish_time_fairness_equals_bisection(
    demand: GavelDemand, data: st.DataObject, point: Point
) -> None:
    jobs = len(demand.counts)
    left, elapsed, isolated = (
        np.array(data.draw(st.lists(st.floats(low, 1e4), min_size=jobs, max_size=jobs)))
        for low in (10, 0, 0)
    )
    alone = isolated + left / isolated_speeds(demand)
    low, high = float((elapsed / alone).max()), 1e6
    for _ in range(100):
        middle = (low + high) / 2
        with np.errstate(divide="ignore"):
            needed = left / np.maximum(middle * alone - elapsed, 0)
        reached = bool(np.isfinite(needed).all()) and (
            naive_largest_ratio(demand, demand.speeds, needed) >= 1
        )
        low, high = (low, middle) if reached else (middle, high)
        if high - low <= 1e-6 * high:
            break
    found = finish_time_fairness(demand, left, elapsed, isolated, point)
    assert is_feasible(demand, found)
    assert found.objective == pytest.approx(high, rel=1.2e-5)
    speeds = (demand.speeds * found.time).sum(axis=1)
    assert ((elapsed + left / speeds) / alone).max() == pytest.approx(found.objective)


def test_jobs_that_look_alike_get_the_same_and_cost_nothing_more() -> None:
    few = max_min_fairness(PAPER, np.ones(3), Point.VERTEX)
    crowd = demand_of(np.repeat(PAPER.speeds, 100, axis=0), np.ones(300), [100, 100])
    many = max_min_fairness(crowd, np.ones(300), Point.VERTEX)
    assert many.time == pytest.approx(np.repeat(few.time, 100, axis=0))
    assert many.objective == pytest.approx(few.objective)
