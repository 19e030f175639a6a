"""How numbers are shown: units, decimals, changes."""

import pytest

from hetsched_core.report.units import SPACE, change, decimals, duration, durations, number


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (42.3, "42.3 s"),
        (119.0, "119.0 s"),
        (120.0, "2.00 min"),
        (7200.0, "2.00 h"),
        (172_800.0, "2.00 d"),
        (86_400_000.0, "1,000 d"),
    ],
)
def test_a_duration_has_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds).replace(SPACE, " ") == text


def test_durations_that_are_compared_share_a_unit_and_stay_apart_from_0() -> None:
    shown = [text.replace(SPACE, " ") for text in durations(864_000.0, 86_400.0, 864.0, 0.0)]
    assert shown == ["10.0 d", "1.0 d", "0.010 d", "0 d"]


@pytest.mark.parametrize(
    ("relative", "text"),
    [
        (0.0, "±0 %"),
        (0.0004, "±0 %"),
        (-0.0004, "±0 %"),
        (0.03, "+3.0 %"),
        (-0.7, "−70 %"),
        (-0.997, "−99.7 %"),
        (-0.99997, "−99.9 %"),
        (-1.0, "−100 %"),
        (1.37, "+137 %"),
        (8.99, "+899 %"),
        (9.0, "×10"),
        (51.44, "×52"),
    ],
)
def test_a_change_has_its_sign_and_no_more_digits_than_it_bears(relative: float, text: str) -> None:
    assert change(relative).replace(SPACE, " ") == text


def test_a_number_keeps_two_digits_however_large_those_beside_it_are() -> None:
    values = (0.0, 0.0004, 0.05, 0.66, 1.44, 12.3, 1234.56)
    places = decimals(values)
    shown = " ".join(number(value, places) for value in values)
    assert shown == "0 0.00040 0.050 0.66 1.4 12 1,235"
    counts = (0, 3, 12)
    assert decimals(counts) == 0
    assert [number(count, 0) for count in (*counts, 12_000)] == ["0", "3", "12", "12,000"]
