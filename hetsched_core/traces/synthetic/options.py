"""What a generated workload is asked to be."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched_core.errors import InputError
from hetsched_core.traces.synthetic.statistics import TRACES, TraceStatistics
from hetsched_core.types.requirement import MAX_SET_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticOptions:
    """What is drawn.

    Attributes:
        trace: Statistics of run times, numbers of GPUs and arrivals.
        jobs: Number of jobs.
        time_scale: Run times relative to those of the trace.
        load: GPU seconds of all jobs over those of the cluster between the first and the last
            submission; None: as many submissions an hour as in the trace.
        arrival_cv: Coefficient of variation of the time between submissions; None: the trace's.
        day_night: How many times as busy the busiest hour is as the quietest.
        elastic_share: Share of jobs that accept several numbers of GPUs.
        max_requirements: How many numbers such a job accepts at most.
        largest_requirement: The largest of them; jobs on more GPUs are rigid.
        typed_share: Share of jobs that ask for one GPU type.
        users: Number of users; the k-th submits 1/k as much as the first.
        seed: Another seed, other jobs.
    """

    trace: TraceStatistics = TRACES["philly"]
    jobs: int = 10_000
    time_scale: float = 1.0
    load: float | None = None
    arrival_cv: float | None = None
    day_night: float = 3.0
    elastic_share: float = 0.0
    max_requirements: int = 8
    largest_requirement: int = 16
    typed_share: float = 0.3
    users: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        for name, value, least, most in (
            ("number of jobs", self.jobs, 2, 10**9),
            ("scale of run times", self.time_scale, 1e-3, 1e3),
            ("load", 1.0 if self.load is None else self.load, 1e-6, 1e6),
            ("ratio of day to night", self.day_night, 1, 1e6),
            ("share of elastic jobs", self.elastic_share, 0, 1),
            ("number of requirements", self.max_requirements, 2, MAX_SET_SIZE),
            ("largest requirement", self.largest_requirement, self.max_requirements, 10**4),
            ("share of typed jobs", self.typed_share, 0, 1),
            ("number of users", self.users, 1, 10**6),
            ("seed", self.seed, 0, 2**63),
        ):
            # Not a number is within nothing.
            if not least <= value <= most:
                raise InputError(f"the {name} is {value:g}; expected {least:g} to {most:g}")
