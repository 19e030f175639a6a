"""The line of waiting jobs against a sorted list."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.placement.waiting_line import WaitingLine


@given(seed=st.integers(0, 10**9), near=st.sampled_from([1, 5, 10**6]))
def test_the_first_of_the_line_are_those_of_a_list_sorted_anew(seed: int, near: int) -> None:
    rng, line = Random(seed), WaitingLine()
    there: list[tuple[float, str, int, float]] = []
    for number in range(400):
        if there and rng.random() < 0.45:
            line.remove(there.pop(rng.randrange(min(near, len(there))))[1])
        else:
            # Most come at the end; no key comes twice.
            key = rng.random() if rng.random() < 0.2 else 1.0 + number
            there = sorted([*there, (key, f"j{number}", number, rng.random())])
            line.put(*there[[job for _, job, *_ in there].index(f"j{number}")])
        line.remove("nobody")
        most = rng.randint(0, 40)
        found, expected = line.first(most), there[:most]
        assert list(found.jobs) == [job for _, job, *_ in expected]
        assert found.kinds.tolist() == [kind for *_, kind, _ in expected]
        assert found.limits_s.tolist() == [limit_s for *_, limit_s in expected]
        assert len(line._order) <= len(there) + max(64, len(there) + 1)


def test_what_was_first_stays_as_it_was_when_the_line_moves_on() -> None:
    line = WaitingLine()
    line.put(1.0, "a", 5, 60.0)
    line.put(2.0, "b", 6, 70.0)
    found = line.first(2)
    line.remove("a")
    line.put(0.0, "c", 7, 80.0)
    assert list(found.jobs) == ["a", "b"]
    assert found.kinds.tolist() == [5, 6]
    assert found.limits_s.tolist() == [60.0, 70.0]
