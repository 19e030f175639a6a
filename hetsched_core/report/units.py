"""How numbers are shown: the unit that suits them, and no more decimals than they bear."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ABSENT = "–"


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
    if seconds == 0:
        return "0 s"
    unit = duration_unit([seconds])
    value = seconds / unit.size
    return f"{value:.{decimals([value])}f} {unit.name}"


def change(relative: float) -> str:
    """Return a relative change in per cent, such as `−70 %` or `+3 %`; `±0 %` for next to none."""
    percent = 100.0 * relative
    if abs(percent) < 0.05:
        return "±0 %"
    sign = "+" if percent > 0 else "−"
    places = 0 if abs(percent) >= 10 else 1
    return f"{sign}{abs(percent):.{places}f} %"
