"""The measured layers: what a type does, and what its nodes do differently."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hetsched_core.throughput.measured import Axes, SpeedRows, combine
from tests.hetsched_core.throughput import naive

Row = tuple[int, int, int, int, float, int, float]


def rows(*entries: Row) -> SpeedRows:
    """Rows of (profile, place, GPUs, nodes, samples/s per GPU, count, sd)."""
    whole = np.array([entry[:4] + entry[5:6] for entry in entries], dtype=np.int64).reshape(-1, 5)
    real = np.array([(entry[4], entry[6]) for entry in entries], dtype=np.float64).reshape(-1, 2)
    profile, place, gpus, nodes, count = whole.T
    return SpeedRows(profile, place, gpus, nodes, real[:, 0], count, real[:, 1])


TYPES = (0, 0, 1, 1)
"""Of four nodes."""
AXES = Axes(2, 2, np.array([1, 2, 4]), np.array(TYPES))

entity_row = st.builds(
    lambda profile, node, shape, *rest: (profile, node, *shape, *rest),
    st.integers(0, 1),
    st.integers(0, 3),
    st.sampled_from([(1, 1), (2, 1), (4, 1), (4, 2)]),
    st.floats(50, 150),
    st.integers(1, 20),
    st.floats(0, 10),
)


@settings(max_examples=100)
# The equations would have node 1 slower than nothing.
@example(
    [(0, 0, 1, 1, 50.0, 1, 0.0), (0, 1, 2, 1, 50.0, 12, 0.0)],
    [(0, 0, 1, 1, 50.0, 1, 0.0), (0, 0, 1, 1, 50.0, 1, 0.0), (0, 0, 2, 1, 114.0, 1, 0.0)],
)
@given(st.lists(entity_row, min_size=1, max_size=12), st.lists(entity_row, max_size=3))
def test_speeds_and_factors_are_those_of_all_equations_solved_at_once(
    entries: list[Row], elsewhere: list[Row]
) -> None:
    by_node = rows(*entries)
    # Every entity record is also in the type layer, beside those of nodes that are gone.
    every = [(row[0], TYPES[row[1]], *row[2:]) for row in (*entries, *elsewhere)]
    speeds, factors = combine(rows(*every), by_node, AXES)
    for profile, gpu_type in np.ndindex(2, 2):
        cells, expected = naive.node_factors(rows(*every), by_node, AXES, profile, gpu_type)
        np.testing.assert_allclose(speeds[profile, gpu_type], cells, rtol=1e-6)
        found = {n: f for n, f in factors.of(profile).items() if TYPES[n] == gpu_type}
        assert found == pytest.approx(expected, rel=1e-6)
    # Nothing is lost where somebody kept the entity layer alone.
    alone, both = (
        combine(layer, by_node, AXES) for layer in (rows(), rows(*every[: len(entries)]))
    )
    np.testing.assert_allclose(alone[0], both[0], rtol=1e-9)
    np.testing.assert_allclose(alone[1].factor, both[1].factor, rtol=1e-9)


def test_a_noisy_run_moves_a_node_little_and_many_move_it_far() -> None:
    def factor(count: int) -> float:
        # The type's mean comes from elsewhere and is certain.
        by_type = rows((0, 0, 1, 1, 100.0, 10**9, 0))
        _, factors = combine(by_type, rows((0, 0, 1, 1, 95.0, count, 2.0)), AXES)
        return float(factors.factor[0])

    assert 0.95 < factor(100) < factor(10) < factor(1) < 1.0
    assert factor(1) > 0.965
    assert factor(1000) == pytest.approx(0.95, abs=1e-3)
