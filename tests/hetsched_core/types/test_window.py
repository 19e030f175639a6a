"""What a window closes to a job, and until when."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hetsched_core.errors import InputError
from hetsched_core.types import Closed, Configuration, Job, Window, closed_to
from tests.hetsched_core.worlds import on, submission

MAINTENANCE = Window(frozenset({"a", "b"}), 1000.0, 2000.0, "maintenance")
OPEN, SHUT = frozenset[str](), frozenset({"a", "b"})


def job(limit_s: float | None, *, preemptible: bool) -> Job:
    return submission("j", 1.0, time_limit_s=limit_s, preemptible=preemptible).job


def closed(
    limit_s: float | None,
    now: float,
    *,
    preemptible: bool = False,
    lead_s: float = 50.0,
    runs: tuple[tuple[Configuration, float], ...] = (),
) -> Closed:
    return closed_to(job(limit_s, preemptible=preemptible), runs, [MAINTENANCE], now, lead_s)


ON_A = on(a=1)


def test_who_cannot_be_moved_may_start_as_long_as_its_limit_ends_in_time() -> None:
    found = closed(300.0, 700.0)
    assert found.nodes == OPEN
    assert found.until_s == pytest.approx(700.0)
    assert found.until_s > 700.0
    assert closed(300.0, found.until_s) == closed(300.0, 1500.0) == Closed(SHUT, 2000.0)
    assert closed(300.0, 2000.0) == Closed(OPEN, math.inf)
    # Without a limit it may not start while a window is ahead.
    assert closed(None, 0.0) == Closed(SHUT, 2000.0)


def test_who_can_be_moved_may_start_until_there_is_just_time_to_leave() -> None:
    assert closed(None, 0.0, preemptible=True) == Closed(OPEN, 950.0)
    assert closed(None, 950.0, preemptible=True) == Closed(SHUT, 2000.0)
    # A short one even after that.
    assert closed(20.0, 975.0, preemptible=True).nodes == OPEN
    assert closed(20.0, 981.0, preemptible=True).nodes == SHUT


def test_before_a_strict_window_who_can_be_moved_starts_only_if_its_limit_ends_in_time() -> None:
    strict = replace(MAINTENANCE, strict=True)
    movable = job(300.0, preemptible=True)
    assert closed_to(movable, (), [strict], 700.0, 50.0).nodes == OPEN
    assert closed_to(movable, (), [strict], 701.0, 50.0) == Closed(SHUT, 2000.0)
    # What runs there stays as long as before any other.
    runs = ((ON_A, 650.0),)
    assert closed_to(movable, runs, [strict], 701.0, 50.0) == Closed(frozenset({"b"}), 950.0)


def test_who_runs_stays_if_its_limit_ends_in_time_or_if_it_cannot_be_moved() -> None:
    bounded = closed(300.0, 960.0, preemptible=True, runs=((ON_A, 700.0),))
    assert bounded == Closed(frozenset({"b"}), 1000.0)
    unbounded = closed(301.0, 960.0, preemptible=True, runs=((ON_A, 700.0),))
    assert unbounded == Closed(SHUT, 2000.0)
    fixed = closed(301.0, 960.0, runs=((ON_A, 700.0),))
    assert fixed == Closed(frozenset({"b"}), 2000.0)


def test_who_has_run_past_its_limit_has_to_leave() -> None:
    assert closed(100.0, 960.0, preemptible=True, runs=((ON_A, 870.0),)).nodes == frozenset({"b"})
    # It should have ended at 970 s.
    assert closed(100.0, 970.0, preemptible=True, runs=((ON_A, 870.0),)).nodes == SHUT


def test_several_windows_close_what_each_of_them_does() -> None:
    windows = [MAINTENANCE, Window(frozenset({"b", "c"}), 500.0, 600.0)]
    given = job(100.0, preemptible=False)
    assert closed_to(given, (), windows, 450.0, 0.0) == Closed(frozenset({"b", "c"}), 600.0)
    assert closed_to(given, (), windows, 950.0, 0.0) == Closed(SHUT, 2000.0)


@pytest.mark.parametrize(("from_s", "until_s"), [(10.0, 10.0), (10.0, 5.0), (math.nan, 1.0)])
def test_a_window_has_to_end_after_it_begins(from_s: float, until_s: float) -> None:
    with pytest.raises(InputError, match="it has to end after it begins"):
        Window(frozenset({"a"}), from_s, until_s, "w")
