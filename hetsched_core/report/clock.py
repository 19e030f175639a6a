"""The time axis that all figures of a report share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
from numpy.typing import NDArray

from hetsched_core.report.history import History
from hetsched_core.report.logged_history import LoggedHistory
from hetsched_core.report.units import DAY, HOUR, Unit, duration_unit

Floats = NDArray[np.float64]

BINS = 300
"""Into so many equal bins the time of a report is divided, whatever the number of jobs."""

_FIRST_REAL_S = datetime(1990, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True)
class Clock:
    """From when to when a report shows, seconds UTC, and in which zone an admin reads it.

    `zone` is None for a trace that counts seconds from its own start, and has no calendar.
    """

    begin_s: float
    end_s: float
    zone: tzinfo | None

    @classmethod
    def of(cls, histories: Sequence[History | LoggedHistory], zone: tzinfo) -> Clock:
        """Return the time from the first submission to the last end under any of the histories."""
        begin_s = min(history.span_s[0] for history in histories)
        end_s = max(history.span_s[1] for history in histories)
        return cls(begin_s, max(end_s, begin_s + 1.0), zone if begin_s > _FIRST_REAL_S else None)

    def edges(self, bins: int = BINS) -> Floats:
        """Return the (bins + 1,) edges of equal bins."""
        return np.linspace(self.begin_s, self.end_s, bins + 1)

    @property
    def bin_s(self) -> float:
        """Seconds of one of the `BINS` bins."""
        return (self.end_s - self.begin_s) / BINS

    @property
    def unit(self) -> Unit:
        """The unit of an axis without a calendar."""
        span_s = self.end_s - self.begin_s
        return DAY if span_s > 5 * DAY.size else duration_unit([min(span_s, 47 * HOUR.size)])

    def date(self, time_s: float) -> str:
        """Return a time of the calendar, such as `Fri 2025-09-26 08:01`; seconds without one."""
        if self.zone is None:
            return f"{time_s:,.0f} s"
        days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
        local = (datetime.fromtimestamp(0, UTC) + timedelta(seconds=time_s)).astimezone(self.zone)
        return f"{days[local.weekday()]} {local:%Y-%m-%d %H:%M}"
