"""Times without a zone, at clock changes above all. Oslo's changes were at 1:00 UTC."""

import contextlib
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct.clock import Clock, Settled, parse_zone
from hetsched_core.traces.sacct.fields import FieldError

OSLO = ZoneInfo("Europe/Oslo")
# 2025-10-26 00:00:00 UTC; the hour 02:00 to 03:00 in Oslo comes twice, from 0:00 and from 1:00 UTC.
FOLD_DAY = 1_761_436_800.0


def test_a_local_time_is_read_in_the_zone() -> None:
    assert Clock(OSLO).read("2025-09-12T14:06:12") == 1_757_678_772.0
    assert Clock(UTC).read("2025-09-12T14:06:12") == 1_757_678_772.0 + 7_200


def test_winter_and_summer_have_their_own_offset() -> None:
    clock = Clock(OSLO)
    for _ in range(2):
        assert clock.read("2025-01-15T12:00:00") == 1_736_938_800.0
        assert clock.read("2025-07-15T12:00:00") == 1_752_573_600.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Unknown", None),
        ("None", None),
        ("", None),
        ("0", None),
        ("4294967294", None),
        ("4294967295", None),
        ("1757686000", 1_757_686_000.0),
        ("2025-09-12T14:06:12+0200", 1_757_678_772.0),
        ("2025-09-12T12:06:12Z", 1_757_678_772.0),
    ],
)
def test_times_of_other_forms_are_read_too(text: str, seconds: float | None) -> None:
    clock = Clock(OSLO)
    assert clock.read(text) == seconds
    assert not clock.naive


@pytest.mark.parametrize(
    "text",
    ["yesterday", "2025-09-12", "14:06:12", "2025-13-01T00:00:00", "Sep 12 14:06", "99999999999"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="no time such as 2025-09-12T14:06:12"):
        Clock(OSLO).read(text)


def test_the_epoch_and_before_are_no_times_of_jobs() -> None:
    for zone in (UTC, OSLO, ZoneInfo("America/Los_Angeles")):
        clock = Clock(zone)
        for text in ("1969-12-30T12:00:00", "1969-12-30T12:00:01"):
            with pytest.raises(FieldError, match="before 1970"):
                clock.read(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00", "9999-12-31T23:59:59"])
def test_the_ends_of_the_calendar_do_not_break_the_clock(text: str) -> None:
    for zone in (UTC, OSLO, ZoneInfo("Pacific/Kiritimati"), ZoneInfo("America/Los_Angeles")):
        with contextlib.suppress(FieldError):
            assert Clock(zone).read(text) is not None


def test_a_time_that_the_zone_skips_says_that_the_zone_may_be_wrong() -> None:
    with pytest.raises(FieldError, match=r"does not exist in Europe/Oslo.*--tz"):
        Clock(OSLO).read("2025-03-30T02:30:00")


def test_a_time_that_comes_twice_has_two_candidates() -> None:
    clock = Clock(OSLO)
    assert clock.candidates("2025-10-26T02:30:00") == (FOLD_DAY + 1_800, FOLD_DAY + 5_400)
    assert clock.candidates("2025-10-26T01:30:00") == (FOLD_DAY - 1_800,)
    assert clock.candidates("2025-10-26T03:30:00") == (FOLD_DAY + 9_000,)
    assert clock.change_days == {"2025-10-26"}


@pytest.mark.parametrize(
    ("start", "end", "span_s", "expected_start", "expected_end"),
    [
        ("01:30:00", "02:30:00", 3_600, -1_800, 1_800),
        ("01:30:00", "02:30:00", 7_200, -1_800, 5_400),
        ("02:30:00", "03:30:00", 7_200, 1_800, 9_000),
        ("02:30:00", "03:30:00", 3_600, 5_400, 9_000),
        ("02:30:00", "02:40:00", 4_200, 1_800, 6_000),
        ("02:40:00", "02:30:00", 3_000, 2_400, 5_400),
    ],
)
def test_a_clock_change_is_settled_so_that_the_elapsed_time_is_right(
    start: str, end: str, span_s: float, expected_start: float, expected_end: float
) -> None:
    day = "2025-10-26T"
    settled = Clock(OSLO).settle(day + "01:00:00", "", day + start, day + end, span_s)
    expected = Settled(
        FOLD_DAY - 3_600, None, FOLD_DAY + expected_start, FOLD_DAY + expected_end, certain=True
    )
    assert settled == expected


def test_what_the_elapsed_time_cannot_settle_is_not_certain() -> None:
    day = "2025-10-26T"
    settled = Clock(OSLO).settle(day + "01:00:00", "", day + "02:10:00", day + "02:20:00", 600)
    assert settled.end_s is not None
    assert settled.start_s is not None
    assert settled.end_s - settled.start_s == 600
    assert not settled.certain


def test_a_job_cannot_start_before_it_was_submitted_whatever_the_clock_shows() -> None:
    day = "2025-10-26T"
    settled = Clock(OSLO).settle(
        day + "02:50:00", day + "02:50:00", day + "02:10:00", day + "03:10:00", 3_600
    )
    expected = Settled(FOLD_DAY + 3_000, FOLD_DAY + 3_000, FOLD_DAY + 4_200, FOLD_DAY + 7_800, True)
    assert settled == expected


def test_an_unknown_zone_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown time zone 'Europe/Olso': did you mean 'Europe/O"):
        parse_zone("Europe/Olso")
    for name in ("", "../etc/passwd", "/etc/passwd", "CEST", "\0"):
        with pytest.raises(InputError, match="unknown time zone"):
            parse_zone(name)
    assert parse_zone("Europe/Oslo") == OSLO
