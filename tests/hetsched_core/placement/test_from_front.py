"""Rows that are taken out near the front, against a sorted list."""

from __future__ import annotations

from array import array
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.placement.from_front import FromFront


@given(seed=st.integers(0, 10**9), near=st.sampled_from([1, 5, 10**6]))
def test_rows_are_those_of_a_list_sorted_anew(seed: int, near: int) -> None:
    rng = Random(seed)
    names: list[str] = []
    sizes = array("q")
    rows = FromFront(names, sizes)
    there: list[int] = []
    for _ in range(600):
        if there and rng.random() < 0.1:
            there.pop(0)
            rows.remove_first()
        elif there and rng.random() < 0.4:
            gone = there.pop(rng.randrange(min(near, len(there))))
            rows.remove(gone)
        else:
            # Most come at the end.
            item = rng.randint(0, 10**9) if rng.random() < 0.2 else 10**9 + len(names) * 10**6
            if item not in there:
                there = sorted([*there, item])
                assert rows.put(item, str(item), 2 * item) is (there[0] == item)
        assert len(rows) == len(there)
        if there:
            assert rows.first == there[0]
        assert rows.order[rows.begin :] == there
        assert names[rows.begin :] == [str(item) for item in there]
        assert sizes[rows.begin :].tolist() == [2 * item for item in there]
        assert len(rows.order) < len(rows) + max(64, len(rows) + 1)
