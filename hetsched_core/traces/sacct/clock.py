"""Times as sacct prints them: local, without a zone, unless the site set SLURM_TIME_FORMAT."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct.fields import FieldError, quote
from hetsched_core.traces.sacct.report import Flaw

NO_VALUE = 4_294_967_294
"""Slurm's NO_VAL, in JSON a time that never came; INFINITE is one more."""

_NO_TIME = frozenset({"", "Unknown", "None", "N/A"})
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00")
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_SHORTEST = len("2025-09-12T14:06:12")
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_MAX_DAYS = 16_384


def parse_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name, such as `Europe/Oslo`.

    Raises:
        InputError: There is no zone of this name.
    """
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        # Not all six hundred names: the nearest, and how they are built.
        near = get_close_matches(name, available_timezones(), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(
            f"unknown time zone {name!r}: {hint}zones are named as in the tz database, "
            "such as UTC or Europe/Oslo"
        ) from None


@dataclass(frozen=True, slots=True)
class SettledTimes:
    """Times of a run; `certain` is False where others would hold together as well."""

    submit_s: float | None
    eligible_s: float | None
    start_s: float | None
    end_s: float | None
    certain: bool


class SacctClock:
    """Reads times in one zone.

    A local time that a clock change repeats has two candidates; one that it skips does not exist
    and means that the zone is wrong.

    Attributes:
        naive: Whether a time without a zone was read.
        change_days: Days on which an ambiguous time was read, as `YYYY-MM-DD`.
    """

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self.naive = False
        self.change_days: set[str] = set()
        # Seconds from UTC to local time, for days on which it does not change.
        self._offsets: dict[str, float] = {}

    def read(self, text: str) -> float | None:
        """Return the seconds UTC of a time; None for none; the first of two candidates.

        Raises:
            FieldError: It is no time, or one that does not exist in the zone.
        """
        try:
            if len(text) == _SHORTEST:
                return (datetime.fromisoformat(text) - _EPOCH).total_seconds() - self._offsets[
                    text[:10]
                ]
        except (KeyError, TypeError, ValueError):
            pass
        candidates = self.candidates(text)
        return candidates[0] if candidates else None

    def candidates(self, text: str) -> tuple[float, ...]:
        """Return all times that a text may stand for, in order: none, one, or two.

        Raises:
            FieldError: It is no time, or one that does not exist in the zone.
        """
        if text in _NO_TIME:
            return ()
        if text.isascii() and text.isdecimal() and len(text) <= 10:
            seconds = int(text)
            return () if seconds == 0 or seconds >= NO_VALUE else (float(seconds),)
        try:
            if len(text) < _SHORTEST:
                raise ValueError
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is not None:
                found: tuple[float, ...] = ((moment - _EPOCH_UTC).total_seconds(),)
            else:
                self.naive = True
                found = self._local(text, moment)
        except (ValueError, OverflowError):
            raise FieldError(
                Flaw.TIME,
                f"{quote(text)} is no time such as 2025-09-12T14:06:12; "
                "export with SLURM_TIME_FORMAT=standard",
            ) from None
        if found[0] <= 0:
            raise FieldError(Flaw.TIME, f"{quote(text)} is before 1970")
        return found

    def _local(self, text: str, moment: datetime) -> tuple[float, ...]:
        day = text[:10]
        seconds = (moment - _EPOCH).total_seconds()
        first, second = self._offset(moment, 0), self._offset(moment, 1)
        if first == second:
            midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
            # Only days that hold nothing to refuse are read without another look.
            if midnight - _EPOCH > _DAY and all(
                self._offset(midnight + hour * _HOUR, fold) == first
                for hour in range(25)
                for fold in (0, 1)
            ):
                if len(self._offsets) >= _MAX_DAYS:
                    self._offsets.clear()
                self._offsets[day] = first
            return (seconds - first,)
        if first < second:
            raise FieldError(
                Flaw.TIME,
                f"{quote(text)} does not exist in {self.zone}, where the clocks went forward; "
                "is --tz the cluster's zone?",
            )
        self.change_days.add(day)
        return (seconds - first, seconds - second)

    def _offset(self, moment: datetime, fold: int) -> float:
        offset = self.zone.utcoffset(moment.replace(tzinfo=self.zone, fold=fold))
        return 0.0 if offset is None else offset.total_seconds()

    def settle(
        self,
        submit: str,
        eligible: str,
        start: str,
        end: str,
        span_s: float | None,
    ) -> SettledTimes:
        """Return the times of a run near a clock change, chosen so that they hold together.

        Args:
            submit: Time of submission, as the log has it; so are the next three.
            eligible: Time from which it could start.
            start: Start.
            end: End, or a word for none.
            span_s: End - Start as the log tells it otherwise (Elapsed + Suspended).

        Raises:
            FieldError: One of them is no time.
        """
        ends: tuple[float | None, ...] = self.candidates(end) or (None,)
        pairs = [(s, e) for s in self.candidates(start) for e in ends]
        if span_s is not None:
            pairs = [(s, e) for s, e in pairs if e is None or abs(e - s - span_s) < 1.0] or pairs
        submits = self.candidates(submit)
        runs = [(b, s, e) for s, e in pairs for b in submits if b <= s <= (s if e is None else e)]
        certain = len(runs) == 1
        if not runs:
            runs = [(b, s, e) for s, e in pairs for b in submits]
        if not runs:
            return SettledTimes(None, None, None, None, certain=False)
        submit_s, start_s, end_s = runs[0]
        eligibles = self.candidates(eligible)
        eligibles = tuple(t for t in eligibles if submit_s <= t <= start_s) or eligibles
        return SettledTimes(
            submit_s,
            eligibles[0] if eligibles else None,
            start_s,
            end_s,
            certain=certain and len(eligibles) <= 1,
        )
