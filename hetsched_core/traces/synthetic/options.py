"""What a generated workload is asked to be, and the traces that it may look like."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hetsched_core.errors import InputError
from hetsched_core.types.requirement import MAX_SET_SIZE


@dataclass(frozen=True, slots=True)
class GpuClass:
    """The jobs on one number of GPUs: their shares of all jobs and of all GPU hours."""

    gpus: int
    jobs: float
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class TraceStatistics:
    """Statistics of the GPU jobs of one trace.

    Attributes:
        name: What the trace is called.
        arrivals_per_h: Jobs submitted in an hour, on average.
        arrival_cv: Coefficient of variation of the time between two submissions; 1 is Poisson's.
        percentiles: Ascending (share of jobs, seconds that they run at most).
        mean_s: Mean of the run time, seconds.
        gpu_classes: By number of GPUs, ascending; the shares count by their ratios only.
    """

    name: str
    arrivals_per_h: float
    arrival_cv: float
    percentiles: tuple[tuple[float, float], ...]
    mean_s: float
    gpu_classes: tuple[GpuClass, ...]

    def at_most(self, gpus: int) -> TraceStatistics:
        """Return the statistics without the jobs on more GPUs than these.

        Raises:
            InputError: Nothing is left.
        """
        kept = tuple(c for c in self.gpu_classes if c.gpus <= gpus)
        if not kept:
            raise InputError(
                f"the jobs of {self.name} have {self.gpu_classes[0].gpus} GPUs or more, and no GPU "
                f"type of the cluster has so many: it has {gpus}"
            )
        return replace(self, gpu_classes=kept)

    def lasting(self, scale: float) -> TraceStatistics:
        """Return the statistics with all run times multiplied."""
        return replace(
            self,
            percentiles=tuple((share, s * scale) for share, s in self.percentiles),
            mean_s=self.mean_s * scale,
        )


def _trace(
    name: str,
    arrivals_per_h: float,
    arrival_cv: float,
    seconds: tuple[float, float, float, float, float],
    mean_s: float,
    gpu_classes: dict[int, tuple[float, float]],
) -> TraceStatistics:
    """Return statistics from p10, p50, p75, p90, p99 and {GPUs: (% of jobs, % of GPU hours)}."""
    return TraceStatistics(
        name,
        arrivals_per_h,
        arrival_cv,
        tuple(zip((0.1, 0.5, 0.75, 0.9, 0.99), seconds, strict=True)),
        mean_s,
        tuple(GpuClass(gpus, *shares) for gpus, shares in gpu_classes.items()),
    )


TRACES = {
    trace.name: trace
    for trace in (
        # Microsoft's clusters, 82,247 jobs in 108.9 days of 2017 (Jeon et al., ATC '19). More than
        # 32 GPUs have 0.1 % of the GPU hours, and are left out.
        _trace(
            "philly",
            31.5,
            15.1,
            (61, 1_144, 2_932, 11_265, 254_758),
            13_136,
            {
                1: (93.2, 18.1),
                2: (2.2, 3.2),
                4: (2.3, 16.7),
                8: (2.0, 48.4),
                16: (0.3, 11.5),
                32: (0.1, 2.0),
            },
        ),
        # SenseTime's clusters under Slurm, 10,796 jobs in 20.2 days of one of them in 2020 (Hu et
        # al., SC '21).
        _trace(
            "helios",
            22.3,
            3.9,
            (10, 277, 2_547, 18_370, 293_589),
            13_683,
            {
                1: (39.6, 3.3),
                2: (3.6, 3.2),
                4: (4.4, 2.9),
                8: (16.1, 30.0),
                16: (3.9, 18.7),
                32: (2.4, 20.7),
                64: (2.0, 21.2),
            },
        ),
        # MIT SuperCloud under Slurm, 2,401 jobs in 74.4 days of 2021 (Samsi et al., HPEC '21).
        _trace(
            "supercloud",
            1.3,
            4.6,
            (748, 10_067, 45_993, 108_672, 360_002),
            41_518,
            {
                1: (20.5, 47.3),
                2: (3.6, 27.2),
                4: (0.3, 1.8),
                8: (0.3, 5.4),
                16: (0.2, 18.4),
            },
        ),
    )
}
"""By name. A class stands for the counts from half of it, not included, up to it: the published
tables count 3 and 4 GPUs together, 5 to 8, 9 to 16, and so on."""


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
