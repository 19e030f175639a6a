"""The time axis: dates in a zone, or time since the start of a trace that has no calendar."""

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from hetsched_core.report.clock import ReportClock
from hetsched_core.report.history import History, LoggedHistory
from hetsched_core.report.units import DAY, HOUR, MINUTE, Unit
from tests.hetsched_core.report.runs import MONDAY_S, logged_jobs, run_log, usual
from tests.hetsched_core.worlds import submission

OSLO = ZoneInfo("Europe/Oslo")


def test_the_axis_goes_from_the_first_submission_to_the_last_end_of_any_policy_or_log() -> None:
    histories = usual("fifo", "las")
    clock = ReportClock.of(histories, UTC)
    assert clock.begin_s == MONDAY_S
    assert clock.end_s == max(history.held.until_s.max() for history in histories)
    edges = clock.edges(4)
    assert (edges[0], edges[-1], len(edges)) == (clock.begin_s, clock.end_s, 5)
    site = LoggedHistory.of(logged_jobs(wait_s=1e6))
    assert site is not None
    longer = ReportClock.of([*histories, site], UTC)
    assert (longer.begin_s, longer.end_s) == (MONDAY_S, site.held.until_s.max())
    assert longer.end_s > clock.end_s


def test_dates_are_those_of_the_zone_and_a_trace_that_counts_from_its_start_has_none() -> None:
    assert ReportClock(MONDAY_S, MONDAY_S + 1, UTC).date(MONDAY_S) == "Mon 2025-03-03 11:06"
    assert ReportClock(MONDAY_S, MONDAY_S + 1, OSLO).date(MONDAY_S) == "Mon 2025-03-03 12:06"
    log = run_log("fifo", [submission("a", 100.0)])
    assert ReportClock.of([History.of("fifo", log)], OSLO).zone is None


@pytest.mark.parametrize(
    ("hours", "unit"), [(0.5, MINUTE), (2.5, HOUR), (100.0, HOUR), (121.0, DAY)]
)
def test_without_a_calendar_the_axis_has_the_unit_that_suits_it(hours: float, unit: Unit) -> None:
    assert ReportClock(0.0, hours * 3600.0, None).unit == unit
