"""Groups of equal speed against all groupings there are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from hetsched_core.policies.hare.grouping import group_gpus

R4 = 1.0 / np.array([[3, 3, 1.8, 1.8], [1, 2, 2.5, 1]])


def groupings(gpus: int, groups: int) -> Iterator[list[list[int]]]:
    """All ways to put GPUs into groups of which none is empty."""
    for of_gpu in product(range(groups), repeat=gpus):
        if list(dict.fromkeys(of_gpu)) == list(range(groups)):
            yield [[m for m in range(gpus) if of_gpu[m] == group] for group in range(groups)]


def spread(speeds: NDArray[np.float64], found: list[list[int]]) -> float:
    sums = np.array([speeds[:, group].sum(axis=1) for group in found])
    return float(np.ptp(sums, axis=0).max())


def test_r4_the_groups_of_fig_9() -> None:
    found = group_gpus(R4, 2)
    assert found.groups == ((0, 2), (1, 3))
    assert found.spread == pytest.approx(0.1)
    assert found.proven
    assert found.mean_speed == pytest.approx((0.888889, 1.45), abs=1e-6)
    by_mean = group_gpus(R4, 2, normalised=True)
    assert by_mean.groups == ((0, 2), (1, 3))
    assert by_mean.spread == pytest.approx(0.0689655, abs=1e-6)
    assert by_mean.mean_speed == pytest.approx(found.mean_speed)


@pytest.mark.parametrize(("groups", "expected"), [(2, 1.0), (3, 2.0)])
def test_r5_two_and_three_groups_of_six_gpus(groups: int, expected: float) -> None:
    speeds = np.array([[7.0, 7, 3, 3, 1, 1], [2, 2, 2, 1, 1, 1]])
    found = group_gpus(speeds, groups)
    assert found.spread == pytest.approx(expected)
    assert found.proven


@pytest.mark.parametrize(
    ("normalised", "groups", "expected"),
    [(False, ((0, 2), (1, 3)), 3.0), (True, ((0, 3), (1, 2)), 0.4)],
)
def test_r6_absolute_and_normalised_speeds_group_differently(
    normalised: bool, groups: tuple[tuple[int, ...], ...], expected: float
) -> None:
    found = group_gpus(np.array([[2.0, 1, 5, 3], [20, 30, 30, 20]]), 2, normalised=normalised)
    assert found.groups == groups
    assert found.spread == pytest.approx(expected)


def test_small_groupings_are_the_best_of_all() -> None:
    rng = Random(0)
    for _ in range(40):
        gpus, groups, jobs = rng.randint(2, 6), rng.randint(2, 3), rng.randint(1, 3)
        groups = min(groups, gpus)
        kinds = [[float(rng.randint(0, 9)) for _ in range(jobs)] for _ in range(3)]
        speeds = np.array([rng.choice(kinds) for _ in range(gpus)]).T
        found = group_gpus(speeds, groups)
        assert sorted(m for group in found.groups for m in group) == list(range(gpus))
        assert all(found.groups)
        best = min(spread(speeds, each) for each in groupings(gpus, groups))
        assert found.spread == pytest.approx(best, abs=1e-6)
        assert found.spread == pytest.approx(spread(speeds, [list(g) for g in found.groups]))
        assert found.proven


def test_many_groups_are_annealed_and_better_than_dealing_round_robin() -> None:
    rng = np.random.default_rng(1)
    speeds = rng.uniform(0.5, 2.0, (20, 4))[:, np.repeat(np.arange(4), (50, 50, 33, 27))]
    found = group_gpus(speeds, 40)
    dealt = [list(range(j, 160, 40)) for j in range(40)]
    assert not found.proven
    assert found.spread < spread(speeds, dealt)
    assert sorted(m for group in found.groups for m in group) == list(range(160))


def test_there_are_no_more_groups_than_gpus() -> None:
    assert group_gpus(np.ones((1, 3)), 9).groups == ((0,), (1,), (2,))
