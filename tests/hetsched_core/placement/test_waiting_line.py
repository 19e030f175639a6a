"""The line of waiting jobs against a sorted list."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.placement.waiting_line import WaitingLine


@given(seed=st.integers(0, 10**9))
def test_the_first_of_the_line_are_those_of_a_list_sorted_anew(seed: int) -> None:
    rng = Random(seed)
    line = WaitingLine()
    there: dict[str, tuple[float, int, float]] = {}
    for number in range(rng.randint(1, 60)):
        if there and rng.random() < 0.4:
            job = rng.choice(sorted(there))
            del there[job]
            line.remove(job)
        else:
            # In any order, and none twice.
            job, key = f"j{number}", rng.random()
            there[job] = (key, number, rng.random())
            line.put(key, job, *there[job][1:])
        line.remove("nobody")
        most = rng.randint(0, 40)
        expected = sorted(there, key=lambda job: (there[job][0], job))[:most]
        found = line.first(most)
        assert list(found.jobs) == expected
        assert found.kinds.tolist() == [there[job][1] for job in expected]
        assert found.limits_s.tolist() == [there[job][2] for job in expected]


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
