"""How numbers are shown: the unit that suits them, and no more decimals than they bear."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

ABSENT = "–"
SPACE = "\N{NO-BREAK SPACE}"
"""Between a number and its unit, which belong on one line."""

LOGGED = "logged"
"""What the site's own scheduler is called beside the policies."""

UNCHANGED = f"±0{SPACE}%"


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit and what it is worth in the unit that values are stored in."""

    name: str
    size: float = 1.0


NUMBER = Unit("")
PERCENT = Unit("%", 0.01)
SECOND = Unit("s")
MINUTE = Unit("min", 60.0)
HOUR = Unit("h", 3_600.0)
DAY = Unit("d", 86_400.0)

GPU_HOUR = Unit("GPU h", 3_600.0)


def duration_unit(seconds: Iterable[float | None]) -> Unit:
    """Return the one unit that suits the largest of these durations."""
    largest = max((s for s in seconds if s is not None), default=0.0)
    return next((unit for unit in (DAY, HOUR, MINUTE) if largest >= 2 * unit.size), SECOND)


def decimals(values: Iterable[float | None]) -> int:
    """Return as many decimals as the largest of these values leaves room for; counts have none."""
    known = [value for value in values if value is not None]
    largest = max(map(abs, known), default=0.0)
    if all(isinstance(value, int) for value in known) or largest >= 1000:
        return 0
    return 1 if largest >= 10 else 2


def duration(seconds: float) -> str:
    """Return a duration in the unit that suits it, such as `7.8 h`."""
    return durations(seconds)[0]


def durations(*seconds: float) -> tuple[str, ...]:
    """Return durations that are to be compared, in the one unit that suits the longest."""
    unit = duration_unit(seconds)
    values = [one / unit.size for one in seconds]
    places = decimals(values)
    return tuple(f"{number(value, places)}{SPACE}{unit.name}" for value in values)


def exact(seconds: float) -> str:
    """Return a duration as it was given, not rounded."""
    unit = duration_unit([seconds])
    return f"{seconds / unit.size:g}{SPACE}{unit.name}"


def number(value: float, places: int) -> str:
    """Return a number with so many decimals, or as many as it takes to show two digits of it."""
    if value == 0:
        return "0"
    if not isinstance(value, int):
        places = max(places, 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


MANY_TIMES = 10.0
"""From so many times on a change is shown as that: `+5144 %` says less than `×52`."""


def change(relative: float) -> str:
    """Return a relative change such as `−70 %`, `+3 %` or `×12`; `±0 %` for next to none."""
    if relative >= MANY_TIMES - 1.0:
        return f"×{relative + 1.0:,.0f}"
    percent = 100.0 * relative
    if abs(percent) < 0.05:
        return UNCHANGED
    sign = "+" if percent > 0 else "−"
    # A fall from 3000 to 9 is not one to nothing, and from 3,000,000 neither.
    if relative > -1.0:
        percent = max(percent, -99.9)
    places = 0 if 10 <= abs(percent) < 99 or abs(percent) >= 100 else 1
    return f"{sign}{abs(percent):.{places}f}{SPACE}%"
