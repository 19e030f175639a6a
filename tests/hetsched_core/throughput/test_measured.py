"""The measured layers: what a type does, and what its nodes do differently."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.throughput.measured import (
    BELIEF,
    USUAL_NOISE,
    USUAL_SPREAD,
    Axes,
    SpeedRows,
    combine,
)
from tests.hetsched_core.throughput import naive

Row = tuple[int, int, int, int, float, int, float]


def rows(*entries: Row) -> SpeedRows:
    """Rows of (profile, place, GPUs, nodes, samples/s per GPU, count, sd)."""
    whole = np.array([entry[:4] + entry[5:6] for entry in entries], dtype=np.int64).reshape(-1, 5)
    real = np.array([(entry[4], entry[6]) for entry in entries], dtype=np.float64).reshape(-1, 2)
    profile, place, gpus, nodes, count = whole.T
    return SpeedRows(profile, place, gpus, nodes, real[:, 0], count, real[:, 1])


def pooled(by_node: SpeedRows, type_of_node: list[int]) -> SpeedRows:
    """The type layer that a store keeps: every entity record is also visible there."""
    cells: dict[tuple[int, int, int, int], list[tuple[float, int]]] = {}
    for at in range(len(by_node)):
        key = (
            int(by_node.profile[at]),
            type_of_node[int(by_node.place[at])],
            int(by_node.gpus[at]),
            int(by_node.nodes[at]),
        )
        cells.setdefault(key, []).append((float(by_node.per_gpu[at]), int(by_node.count[at])))
    return rows(
        *(
            (
                *key,
                sum(s * n for s, n in seen) / sum(n for _, n in seen),
                sum(n for _, n in seen),
                0,
            )
            for key, seen in cells.items()
        )
    )


AXES = Axes(1, 1, np.array([1, 2, 4]), np.array([0, 0, 0]))
CERTAIN = 10**9


def test_what_was_measured_of_a_type_is_its_speed() -> None:
    speeds, factors = combine(
        rows((0, 0, 2, 1, 90.0, 3, 1.0), (0, 0, 4, 2, 70.0, 1, 0)), rows(), AXES
    )
    expected = [[math.nan, 90.0, math.nan], [math.nan, math.nan, 70.0]]
    assert speeds[0, 0] == pytest.approx(np.array(expected), nan_ok=True)
    assert len(factors.node) == 0


def test_rows_of_one_cell_are_averaged_by_their_counts() -> None:
    speeds, _ = combine(rows((0, 0, 1, 1, 100.0, 3, 0), (0, 0, 1, 1, 60.0, 1, 0)), rows(), AXES)
    assert speeds[0, 0, 0, 0] == pytest.approx(90.0)


def test_nodes_measured_often_enough_get_their_own_speed() -> None:
    by_node = rows((0, 0, 1, 1, 90.0, CERTAIN, 0), (0, 2, 1, 1, 110.0, CERTAIN, 0))
    speeds, factors = combine(pooled(by_node, [0, 0, 0]), by_node, AXES)
    assert factors.node.tolist() == [0, 2]
    ordinary = speeds[0, 0, 0, 0]
    assert ordinary * factors.factor == pytest.approx([90.0, 110.0], rel=1e-3)


def test_a_factor_learned_at_one_count_holds_at_another() -> None:
    by_node = rows(
        (0, 0, 1, 1, 80.0, 500, 0.5), (0, 1, 1, 1, 100.0, 500, 0.5), (0, 1, 4, 1, 90.0, 500, 0.5)
    )
    speeds, factors = combine(pooled(by_node, [0, 0, 0]), by_node, AXES)
    slow, fast = factors.factor
    assert slow / fast == pytest.approx(0.8, rel=0.01)
    # Only the fast node ran on four GPUs: an ordinary one would have been slower.
    assert speeds[0, 0, 0, 2] * fast == pytest.approx(90.0, rel=1e-6)
    assert speeds[0, 0, 0, 2] < 90.0


def test_one_noisy_run_moves_a_node_little_and_many_move_it_far() -> None:
    def factor(count: int) -> float:
        # The type's mean comes from elsewhere and is certain.
        by_type = rows((0, 0, 1, 1, 100.0, CERTAIN, 0))
        _, factors = combine(by_type, rows((0, 0, 1, 1, 95.0, count, 2.0)), AXES)
        return float(factors.factor[0])

    assert 0.95 < factor(100) < factor(10) < factor(1) < 1.0
    assert factor(1) > 0.965
    assert factor(1000) == pytest.approx(0.95, abs=1e-3)


def test_one_run_is_weighed_as_the_usual_noise_and_spread_say() -> None:
    by_type = rows((0, 0, 1, 1, 100.0, CERTAIN, 0))
    _, factors = combine(by_type, rows((0, 0, 1, 1, 95.0, 1, 0)), AXES)
    between = 0.05**2 - USUAL_NOISE**2
    spread = (BELIEF * USUAL_SPREAD**2 + between) / (BELIEF + 1)
    drawn = USUAL_NOISE**2 / spread
    assert factors.factor[0] == pytest.approx(1 - 0.05 / (1 + drawn), abs=1e-6)


def test_runs_on_several_nodes_count_for_the_type_alone() -> None:
    by_node = rows((0, 0, 4, 2, 50.0, 100, 0), (0, 1, 4, 2, 50.0, 100, 0))
    speeds, factors = combine(pooled(by_node, [0, 0, 0]), by_node, AXES)
    assert speeds[0, 0, 1, 2] == pytest.approx(50.0)
    assert len(factors.node) == 0


def test_an_entity_layer_without_its_type_layer_loses_nothing() -> None:
    by_node = rows(
        (0, 0, 1, 1, 90.0, 5, 1.0), (0, 1, 1, 1, 100.0, 5, 1.0), (0, 1, 2, 2, 80.0, 1, 0)
    )
    alone = combine(rows(), by_node, AXES)
    both = combine(pooled(by_node, [0, 0, 0]), by_node, AXES)
    np.testing.assert_allclose(alone[0], both[0], rtol=1e-12)
    np.testing.assert_allclose(alone[1].factor, both[1].factor, rtol=1e-12)


def test_profiles_and_types_are_kept_apart() -> None:
    axes = Axes(2, 2, np.array([1, 2]), np.array([0, 1]))
    by_node = rows((0, 0, 1, 1, 10.0, 1, 0), (1, 1, 2, 1, 30.0, 1, 0), (1, 0, 1, 1, 20.0, 1, 0))
    speeds, factors = combine(pooled(by_node, [0, 1]), by_node, axes)
    assert speeds[0, 0, 0, 0] == pytest.approx(10.0)
    assert speeds[1, 0, 0, 0] == pytest.approx(20.0)
    assert speeds[1, 1, 0, 1] == pytest.approx(30.0)
    assert np.isnan(speeds).sum() == speeds.size - 3
    assert factors.start.tolist() == [0, 1, 3]
    assert list(factors.of(0)) == [0]
    assert list(factors.of(1)) == [0, 1]


entity_row = st.tuples(
    st.integers(0, 1),
    st.integers(0, 3),
    st.sampled_from([1, 2, 4]),
    st.just(1),
    st.floats(50, 150),
    st.integers(1, 20),
    st.just(0.0),
)


@settings(max_examples=50)
@given(st.lists(entity_row, min_size=1, max_size=12))
def test_the_factors_are_those_of_all_equations_solved_at_once(entries: list[Row]) -> None:
    types = [0, 0, 0, 0]
    axes = Axes(2, 1, np.array([1, 2, 4]), np.array(types))
    by_node = rows(*entries)
    by_type = pooled(by_node, types)
    speeds, factors = combine(by_type, by_node, axes)
    for profile in range(2):
        # Noise and spread, and so how far factors are drawn, are those of the profile.
        own = rows(*(entry for entry in entries if entry[0] == profile))
        if len(own) == 0:
            continue
        ratio: dict[int, tuple[float, int]] = {}
        own_type = pooled(own, types)
        for _, node, gpus, _, speed, count, _ in (e for e in entries if e[0] == profile):
            at = int(np.flatnonzero(own_type.gpus == gpus)[0])
            summed, runs = ratio.get(node, (0.0, 0))
            apart = count * (speed / own_type.per_gpu[at] - 1)
            ratio[node] = (summed + apart, runs + count)
        freedom = int((own.count - 1).sum())
        noise = BELIEF * USUAL_NOISE**2 / (BELIEF + freedom)
        between = sum((s / n) ** 2 - noise / n for s, n in ratio.values())
        spread = (BELIEF * USUAL_SPREAD**2 + between) / (BELIEF + len(ratio))
        drawn = noise / max(spread, 1e-3 * USUAL_SPREAD**2)
        cells, expected = naive.node_factors(own_type, own, axes, drawn)
        np.testing.assert_allclose(speeds[profile], cells[profile], rtol=1e-6)
        for node, factor in factors.of(profile).items():
            assert factor == pytest.approx(expected[profile, node], rel=1e-6)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param((0, 0, 1, 1, math.nan, 1, 0), "per GPU in row 0 is nan", id="NaN"),
        pytest.param((0, 0, 1, 1, -5.0, 1, 0), "per GPU in row 0 is -5.0", id="negative"),
        pytest.param((0, 0, 1, 1, 0.0, 1, 0), "per GPU in row 0 is 0.0", id="zero"),
        pytest.param((0, 0, 1, 1, 1e15, 1, 0), "expected 1e-12 to 1e", id="absurd"),
        pytest.param((0, 0, 1, 1, 5.0, 0, 0), "measurements in row 0 is 0", id="no measurement"),
        pytest.param((0, 0, 1, 1, 5.0, 1, math.nan), "deviation", id="NaN deviation"),
        pytest.param((0, 0, 0, 1, 5.0, 1, 0), "number of GPUs in row 0 is 0", id="no GPU"),
        pytest.param((0, 0, 2, 3, 5.0, 1, 0), "2 GPUs on 3 nodes", id="more nodes than GPUs"),
        pytest.param((-1, 0, 1, 1, 5.0, 1, 0), "profile in row 0 is -1", id="no profile"),
    ],
)
def test_bad_rows_are_refused_with_row_and_value(row: Row, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rows(row)


def test_columns_of_different_length_are_refused() -> None:
    good = rows((0, 0, 1, 1, 5.0, 1, 0), (0, 0, 1, 1, 6.0, 1, 0))
    with pytest.raises(InputError, match="differ in length"):
        replace(good, count=good.count[:1])


def test_who_made_a_column_cannot_change_it_afterwards() -> None:
    speeds = np.array([5.0])
    good = replace(rows((0, 0, 1, 1, 5.0, 1, 0)), per_gpu=speeds)
    speeds[0] = math.nan
    assert good.per_gpu.tolist() == [5.0]
    with pytest.raises(ValueError, match="read-only"):
        good.per_gpu[0] = 1.0
