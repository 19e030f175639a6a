"""A job inside the simulation, where time is a float of today's size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.simulate.state import Active, Held, finish_time
from hetsched_core.types import Placement, Purpose
from tests.hetsched_core.worlds import on, submission

NOW = 1_700_000_000.0


@given(
    st.floats(0.0, 1e5),
    st.lists(st.tuples(st.floats(1e-3, 1e4), st.floats(1e-3, 1e6)), min_size=1, max_size=3),
)
def test_every_budget_comes_to_its_end_however_time_rounds(
    later: float, copies: list[tuple[float, float]]
) -> None:
    """At most two looks for each: one at the time foreseen, one at what rounding left over."""
    start_s = NOW + later
    whole = submission("j", 1e12)
    active = Active(whole, whole.job, start_s, start_s, restart_cost_s=0.0)
    for number, (speed, budget) in enumerate(copies):
        placement = Placement(on(a=1), number, budget=budget)
        active.runs[Purpose.RUN, number] = Held(
            number, placement, start_s, start_s, speed, (("v100", 1),), budget=budget
        )
    noticed: set[int] = set()
    for _ in range(2 * len(copies)):
        if len(noticed) == len(copies):
            break
        active.settle(active.next_budget_at())
        noticed |= {held.number for _, held in active.used_up()}
    assert len(noticed) == len(copies)
    for (_, budget), held in zip(copies, active.runs.values(), strict=True):
        assert held.samples == budget


def test_workers_that_begin_at_different_times_share_the_work() -> None:
    assert finish_time(10.0, [(0.0, 1.0)]) == 10.0
    assert finish_time(10.0, [(4.0, 2.0), (0.0, 1.0)]) == 6.0
    assert finish_time(3.0, [(4.0, 2.0), (0.0, 1.0)]) == 3.0
    assert finish_time(0.0, [(4.0, 2.0)]) == 4.0
    assert finish_time(1.0, []) == float("inf")
    assert finish_time(1.0, [(0.0, 0.0)]) == float("inf")
