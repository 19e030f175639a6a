"""Many speeds at once are the speeds one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.types import Layer, SpeedTable

SPEED = st.floats(0.0, 1e4)


@given(
    counts=st.sets(st.integers(1, 64), min_size=1, max_size=5),
    asked=st.lists(st.integers(1, 100), max_size=6),
    data=st.data(),
)
def test_speeds_at_many_counts_are_those_at_each(
    counts: set[int], asked: list[int], data: st.DataObject
) -> None:
    row = st.lists(SPEED, min_size=len(counts), max_size=len(counts))
    one, several = (np.array([data.draw(row), data.draw(row)]) for _ in range(2))
    layers = np.full(one.shape, Layer.TRUTH, np.int8)
    table = SpeedTable(("a", "b"), np.array(sorted(counts)), one, several, layers)
    types = ("b", "elsewhere", "a")
    found = table.per_gpu_at(types, np.array(asked, np.int64))
    assert found.shape == (3, 2, len(asked))
    for t, gpu_type in enumerate(types):
        for half, nodes in enumerate((1, 3)):
            for u, count in enumerate(asked):
                expected = table.per_gpu(gpu_type, count, nodes)
                assert found[t, half, u] == pytest.approx(expected, rel=1e-12, abs=1e-9)
