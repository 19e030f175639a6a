"""What a generated workload is asked to be; `hetsched workload generate` has an option for each."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched_core.errors import InputError
from hetsched_core.values.settings import check_bounds, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticOptions:
    """What is drawn, declared once. The k-th user submits 1/k as much as the first."""

    jobs: int = setting(10_000, "Number of jobs", least=2, most=1e9)
    like: str = setting("philly", "Trace that it is like: philly, helios or supercloud")
    time_scale: float = setting(
        1.0, "Run times relative to those of the trace", least=1e-3, most=1e3
    )
    load: float | None = setting(
        None,
        "Work over what the cluster can do while jobs arrive; as many jobs an hour as in the "
        "trace where it is not given",
        least=1e-6,
        most=1e6,
    )
    arrival_cv: float | None = setting(
        None,
        "Variation of the time between two arrivals, 1 at random; the trace's if not given",
        least=0,
    )
    day_night: float = setting(
        3.0, "How many times as busy the busiest hour is as the quietest", least=1, most=1e6
    )
    elastic_share: float = setting(
        0.0, "Share of jobs that accept several numbers of GPUs", least=0, most=1
    )
    max_requirements: int = setting(8, "How many numbers these accept", least=2, most=16)
    largest_requirement: int = setting(16, "The largest of the numbers", least=2, most=1e4)
    typed_share: float = setting(0.3, "Share of jobs that ask for one GPU type", least=0, most=1)
    task_s: float | None = setting(
        None,
        "Jobs of training rounds, for policies that schedule tasks: about how many seconds a task "
        "takes on a GPU of mean speed; a round has a task for each GPU of the job",
        least=1e-3,
        most=1e9,
    )
    users: int = setting(100, "Number of users", least=1, most=1e6)
    seed: int = setting(0, "Another seed, other jobs", least=0, most=2**63)

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        check_bounds(self)
        if self.largest_requirement < self.max_requirements:
            raise InputError(
                f"largest_requirement = {self.largest_requirement} is below max_requirements = "
                f"{self.max_requirements}: there are not so many numbers of GPUs"
            )
