"""Hadar's utilities and the bounds of its prices."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from hetsched_core.errors import InputError
from hetsched_core.policies.hadar.prices import UTILITIES, PricedJobs, Utility, price_bounds

THROUGHPUT = UTILITIES[Utility.EFFECTIVE_THROUGHPUT]


def jobs_of(*jobs: tuple[float, int, tuple[float, ...]]) -> PricedJobs:
    work, gpus, rates = zip(*jobs, strict=True)
    return PricedJobs(np.array(work), np.array(gpus, np.float64), np.array(rates, np.float64))


H2 = jobs_of((1000.0, 2, (10.0, 2.0)), (600.0, 1, (6.0, 3.0)))


def test_h2_bounds_with_the_horizon_in_the_condition_on_eta() -> None:
    assert H2.shortest_s.tolist() == [50.0, 100.0]
    assert H2.longest_s.tolist() == [250.0, 200.0]
    until = np.array([1000.0, 1000.0])
    bounds = price_bounds(H2, THROUGHPUT, gpus=4, horizon_s=1000.0, until_horizon_s=until)
    assert bounds.highest.tolist() == [10.0, 10.0]
    assert bounds.eta == pytest.approx(20.0, abs=1e-9)
    assert bounds.lowest.tolist() == pytest.approx([2.5e-5] * 2, abs=1e-12)
    assert bounds.alpha == pytest.approx(12.899220, abs=5e-7)
    # The start of the dual objective stays below half of the least that anybody can add to it.
    assert 1000 * 4 * bounds.lowest[0] == pytest.approx(0.1)
    assert 1000 * 4 * bounds.lowest[0] <= 0.5 * THROUGHPUT(H2, until).min()


@pytest.mark.parametrize("utility", list(Utility))
def test_the_dual_objective_starts_below_half_the_least_utility_whatever_the_jobs(
    utility: Utility,
) -> None:
    rng = Random(3)
    for _ in range(200):
        jobs = jobs_of(
            *(
                (rng.uniform(1, 1e6), rng.randint(1, 8), (rng.uniform(1, 9), rng.uniform(1, 9)))
                for _ in range(rng.randint(1, 6))
            )
        )
        horizon_s, gpus, slot_s = rng.uniform(1e3, 1e7), rng.randint(1, 64), rng.uniform(1, 400)
        until = np.array([horizon_s - rng.uniform(0, 900) for _ in jobs.work])
        value = UTILITIES[utility]
        bounds = price_bounds(
            jobs, value, gpus=gpus, horizon_s=horizon_s, until_horizon_s=until, slot_s=slot_s
        )
        start = horizon_s / slot_s * gpus * bounds.lowest[0]
        assert start <= 0.5 * value(jobs, until).min() * (1 + 1e-9)
        assert (bounds.highest >= bounds.lowest).all()
        # On an idle node every job that ends within the horizon pays.
        assert (value(jobs, until) >= jobs.gpus * bounds.lowest[0]).all()


@pytest.mark.parametrize(
    ("utility", "expected"),
    [
        (Utility.EFFECTIVE_THROUGHPUT, [10.0, 3.0]),
        (Utility.RELATIVE_SPEED, [0.5, 0.5]),
        (Utility.INVERSE_JCT, [0.01, 0.005]),
    ],
)
def test_what_a_job_is_worth_by_hand(utility: Utility, expected: list[float]) -> None:
    durations = np.array([100.0, 200.0])
    assert UTILITIES[utility](H2, durations).tolist() == pytest.approx(expected)
    table = UTILITIES[utility](H2, np.column_stack((durations, 2 * durations)))
    assert table[:, 0].tolist() == pytest.approx(expected)
    assert (2 * table[:, 1]).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    "jobs",
    [jobs_of((1.0, 1, (0.0, 0.0))), PricedJobs(np.empty(0), np.empty(0), np.empty((0, 2)))],
    ids=["runs nowhere", "no job"],
)
def test_prices_of_nothing_are_refused(jobs: PricedJobs) -> None:
    with pytest.raises(InputError, match="at least one job"):
        price_bounds(jobs, THROUGHPUT, gpus=1, horizon_s=1.0, until_horizon_s=np.ones(1))


def test_prices_are_constant_of_a_type_that_nobody_can_use_and_where_no_job_ends_in_time() -> None:
    one = jobs_of((1000.0, 2, (10.0, 0.0)))
    bounds = price_bounds(one, THROUGHPUT, gpus=4, horizon_s=1e4, until_horizon_s=np.array([1e4]))
    assert bounds.highest[1] == bounds.lowest[1]
    assert bounds.highest[0] == 10.0
    soon = np.full(2, 1e-3)
    bounds = price_bounds(H2, THROUGHPUT, gpus=4, horizon_s=1e-3, until_horizon_s=soon)
    assert (bounds.highest == bounds.lowest).all()
