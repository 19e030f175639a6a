"""The traces that a generated workload may look like."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hetsched_core.errors import InputError, unknown


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


def statistics_like(name: str) -> TraceStatistics:
    """Return the statistics of a trace.

    Raises:
        UnknownNameError: There is no trace of this name.
    """
    if name not in TRACES:
        raise unknown("trace", name, TRACES)
    return TRACES[name]
