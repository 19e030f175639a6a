"""Times without a zone, at clock changes above all. Oslo's changes were at 1:00 UTC."""

import contextlib
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct.clock import SacctClock, SettledTimes, parse_zone
from hetsched_core.traces.sacct.fields import FieldError

OSLO = ZoneInfo("Europe/Oslo")
# 2025-10-26 00:00:00 UTC; the hour 02:00 to 03:00 in Oslo comes twice, from 0:00 and from 1:00 UTC.
FOLD_DAY = 1_761_436_800.0
DAY = "2025-10-26T"


def test_a_local_time_is_read_in_the_zone_in_winter_and_in_summer() -> None:
    assert SacctClock(UTC).read("2025-09-12T14:06:12") == 1_757_678_772.0 + 7_200
    clock = SacctClock(OSLO)
    for _ in range(2):
        assert clock.read("2025-09-12T14:06:12") == 1_757_678_772.0
        assert clock.read("2025-01-15T12:00:00") == 1_736_938_800.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *((word, None) for word in ("Unknown", "None", "", "0", "4294967294", "4294967295")),
        ("1757686000", 1_757_686_000.0),
        ("2025-09-12T14:06:12+0200", 1_757_678_772.0),
    ],
)
def test_times_of_other_forms_are_read_too(text: str, seconds: float | None) -> None:
    clock = SacctClock(OSLO)
    assert clock.read(text) == seconds
    assert not clock.naive


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["yesterday", "2025-09-12", "14:06:12", "Sep 12 14:06"], "no time such as 2025-09-12T14:"),
        (["2025-13-01T00:00:00", "99999999999"], "no time such as 2025-09-12T14:06:12"),
        (["1969-12-30T12:00:00", "1969-12-30T12:00:01"], "before 1970"),
        (["2025-03-30T02:30:00"], r"does not exist in Europe/Oslo.*--tz"),
    ],
)
def test_what_is_no_time_is_refused(texts: list[str], why: str) -> None:
    clock = SacctClock(OSLO)
    for text in texts:
        with pytest.raises(FieldError, match=why):
            clock.read(text)


@pytest.mark.parametrize("text", ["2025-09-12", "2025-09-12T14", "2025-09-12T14:06"])
def test_a_time_that_was_cut_off_is_refused_also_where_its_day_was_read_before(text: str) -> None:
    clock = SacctClock(OSLO)
    clock.read("2025-09-12T14:06:12")
    with pytest.raises(FieldError, match="no time such as"):
        clock.read(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00", "9999-12-31T23:59:59"])
def test_the_ends_of_the_calendar_do_not_break_the_clock(text: str) -> None:
    for zone in (UTC, OSLO, ZoneInfo("Pacific/Kiritimati"), ZoneInfo("America/Los_Angeles")):
        with contextlib.suppress(FieldError):
            assert SacctClock(zone).read(text) is not None


def test_a_time_that_comes_twice_has_two_candidates() -> None:
    clock = SacctClock(OSLO)
    assert clock.candidates(DAY + "02:30:00") == (FOLD_DAY + 1_800, FOLD_DAY + 5_400)
    assert clock.candidates(DAY + "01:30:00") == (FOLD_DAY - 1_800,)
    assert clock.candidates(DAY + "03:30:00") == (FOLD_DAY + 9_000,)
    assert clock.change_days == {"2025-10-26"}


@pytest.mark.parametrize(
    ("start", "end", "span_s", "expected_start", "expected_end"),
    [
        ("01:30:00", "02:30:00", 3_600, -1_800, 1_800),
        ("01:30:00", "02:30:00", 7_200, -1_800, 5_400),
        ("02:30:00", "03:30:00", 7_200, 1_800, 9_000),
        ("02:30:00", "03:30:00", 3_600, 5_400, 9_000),
        ("02:40:00", "02:30:00", 3_000, 2_400, 5_400),
    ],
)
def test_a_clock_change_is_settled_so_that_the_elapsed_time_is_right(
    start: str, end: str, span_s: float, expected_start: float, expected_end: float
) -> None:
    settled = SacctClock(OSLO).settle(DAY + "01:00:00", "", DAY + start, DAY + end, span_s)
    expected = SettledTimes(
        FOLD_DAY - 3_600, None, FOLD_DAY + expected_start, FOLD_DAY + expected_end, certain=True
    )
    assert settled == expected


def test_what_the_elapsed_time_cannot_settle_is_not_certain() -> None:
    settled = SacctClock(OSLO).settle(DAY + "01:00:00", "", DAY + "02:10:00", DAY + "02:20:00", 600)
    assert settled.end_s is not None
    assert settled.start_s is not None
    assert settled.end_s - settled.start_s == 600
    assert not settled.certain


def test_a_job_cannot_start_before_it_was_submitted_whatever_the_clock_shows() -> None:
    submit, start, end = (DAY + time for time in ("02:50:00", "02:10:00", "03:10:00"))
    settled = SacctClock(OSLO).settle(submit, submit, start, end, 3_600)
    expected = SettledTimes(
        FOLD_DAY + 3_000, FOLD_DAY + 3_000, FOLD_DAY + 4_200, FOLD_DAY + 7_800, True
    )
    assert settled == expected


def test_an_unknown_zone_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown time zone 'Europe/Olso': did you mean 'Europe/O"):
        parse_zone("Europe/Olso")
    for name in ("", "../etc/passwd", "/etc/passwd", "CEST", "\0"):
        with pytest.raises(InputError, match="unknown time zone"):
            parse_zone(name)
    assert parse_zone("Europe/Oslo") == OSLO
