"""Means over seeds: worked by hand, and checked by how often the interval holds the truth."""

import numpy as np
import pytest

from hetsched_core.report.estimates import Estimate, estimate, relative_change


def test_an_interval_is_students() -> None:
    # t(0.975, 2) = 4.30265, s = 1, n = 3.
    found = estimate([1.0, 2.0, 3.0])
    assert found is not None
    assert found.mean == pytest.approx(2.0)
    assert found.half_width == pytest.approx(4.30265 / 3**0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1], Estimate(0.1, None)),
        ([0.1, 0.1, 0.1], Estimate(0.1, 0.0)),
        ([None, 4.0], Estimate(4.0, None)),
        ([None, None], None),
    ],
    ids=["one seed", "seeds that agree", "a seed without the measure", "none has it"],
)
def test_seeds_that_tell_of_no_spread_have_no_interval_or_an_empty_one(
    values: list[float | None], expected: Estimate | None
) -> None:
    assert estimate(values) == expected


def test_the_interval_holds_the_mean_in_19_of_20_cases() -> None:
    draws = np.random.default_rng(0).normal(10.0, 2.0, (2000, 4))
    found = [estimate(list(row)) for row in draws]
    held = np.mean([abs(one.mean - 10.0) <= (one.half_width or 0.0) for one in found if one])
    assert held == pytest.approx(0.95, abs=0.015)


def test_a_change_is_taken_seed_by_seed_and_in_doubt_where_its_interval_holds_0() -> None:
    # The seeds differ threefold, and the change is the same within each.
    by = relative_change([10.0, 30.0], [5.0, 15.0])
    assert by == Estimate(-0.5, 0.0)
    assert not by.in_doubt
    by = relative_change([10.0, 10.0, 10.0], [9.0, 11.5, 10.0])
    assert by is not None
    assert by.in_doubt
    assert relative_change([0.0, None], [5.0, 5.0]) is None
