"""Moments: counts, means and spreads that merge exactly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.throughput.moments import Moments

speeds = st.floats(1e-3, 1e6)


@given(st.lists(speeds, min_size=1), st.lists(speeds, min_size=1))
def test_merging_gives_the_moments_of_all_values(some: list[float], others: list[float]) -> None:
    merged, whole = Moments.of(some).merged(Moments.of(others)), Moments.of(some + others)
    assert merged.count == whole.count
    assert merged.mean == pytest.approx(whole.mean, rel=1e-12)
    scale = max(some + others) ** 2 * whole.count
    assert merged.m2 == pytest.approx(whole.m2, rel=1e-9, abs=1e-12 * scale)


def test_the_spread_of_values_far_from_zero_is_not_lost_to_rounding_and_one_has_none() -> None:
    values = [1e9 + step for step in (4.0, 7.0, 13.0, 16.0)]
    one_by_one = Moments.of(values[:1])
    assert (one_by_one, one_by_one.sd) == (Moments(1, values[0], 0.0), 0.0)
    for value in values[1:]:
        one_by_one = one_by_one.merged(Moments(1, value))
    assert one_by_one.variance == pytest.approx(30.0, rel=1e-12)
    assert one_by_one.sd == pytest.approx(np.std(values, ddof=1), rel=1e-12)
