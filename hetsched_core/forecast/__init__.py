"""When a waiting job will start: a range, from what is known, and how good such ranges were.

    experience     how much work jobs had, against what was said of it; what came, and when
    draws          possible futures of the present snapshot: the same engine and policy as a replay
    ranges         from possible starts to a range that holds as often as it says; how good it was

Method: `docs/live/asking.md`; figures: `docs/reproduction/when.md`.
"""

from hetsched_core.forecast.draws import HORIZON_S, LEAST_DRAWS, Futures, possible_starts
from hetsched_core.forecast.experience import Experience, PastJob, claim_of, work_done
from hetsched_core.forecast.ranges import Calibration, RangeAccuracy, StartRange, range_accuracy

__all__ = [
    "HORIZON_S",
    "LEAST_DRAWS",
    "Calibration",
    "Experience",
    "Futures",
    "PastJob",
    "RangeAccuracy",
    "StartRange",
    "claim_of",
    "possible_starts",
    "range_accuracy",
    "work_done",
]
