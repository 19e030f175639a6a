"""Arrivals come in the bursts and at the hours of the day that were asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.traces.synthetic.arrivals import (
    DAY_S,
    ArrivalClock,
    Gaps,
    fit_gaps,
    seen_cv,
)


def simulated_cv(gaps: Gaps, mean_s: float, clock: ArrivalClock, count: int = 1_000_000) -> float:
    draw = np.random.default_rng(7)
    busy = np.cumsum(gaps.draw(draw.random(count), draw.random(count))) * mean_s
    seen = np.diff(clock.wall(busy))
    return float(seen.std() / seen.mean())


@given(st.floats(1, 50), st.floats(0, 40 * DAY_S))
def test_the_clock_tells_its_time_both_ways(ratio: float, wall_s: float) -> None:
    clock = ArrivalClock(ratio)
    busy_s = clock.busy(np.array([wall_s]))
    assert clock.wall(busy_s)[0] == pytest.approx(wall_s, abs=2)


@pytest.mark.parametrize("ratio", [1.0, 3.0, 10.0])
def test_the_busiest_hour_is_so_many_times_as_busy_as_the_quietest(ratio: float) -> None:
    minutes = np.arange(0, DAY_S + 1, 60)
    pace = np.diff(ArrivalClock(ratio).busy(minutes)) / 60
    assert pace.max() / pace.min() == pytest.approx(ratio, rel=1e-3)
    assert pace.mean() == pytest.approx(1)
    if ratio > 1:
        assert minutes[pace.argmax()] == pytest.approx(15 * 3600, abs=120)


@pytest.mark.parametrize(
    ("cv", "mean_s", "ratio"), [(1, 60, 4), (4, 161, 3), (5, 2769, 3), (15, 114, 3), (15, 27, 10)]
)
def test_the_variation_that_is_seen_is_the_computed_one(
    cv: float, mean_s: float, ratio: float
) -> None:
    gaps, clock = Gaps.of_cv(cv), ArrivalClock(ratio)
    assert seen_cv(gaps, mean_s, clock) == pytest.approx(
        simulated_cv(gaps, mean_s, clock), rel=0.05
    )


@pytest.mark.parametrize("mean_s", [20.0, 600.0, 20_000.0])
@pytest.mark.parametrize("cv", [1.5, 4.6, 15.1])
def test_gaps_are_fitted_to_the_variation_that_is_seen(cv: float, mean_s: float) -> None:
    clock = ArrivalClock(3)
    assert seen_cv(fit_gaps(cv, mean_s, clock), mean_s, clock) == pytest.approx(cv)


@pytest.mark.parametrize("cv", [0.0, 1.0, 2000.0, float("nan")])
def test_a_variation_that_cannot_be_had_is_refused_with_those_that_can(cv: float) -> None:
    with pytest.raises(InputError, match=r"expected 1\.1\d to 1000"):
        fit_gaps(cv, 100.0, ArrivalClock(3))
