"""The runs of the comparison: sweeps run, and read as measures by workload, policy and seed."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetsched_core.cli import main as hetsched
from hetsched_core.cli.sweep import generate_options, replay_options
from hetsched_core.report.estimates import Estimate, estimate
from hetsched_core.report.result import read_result
from hetsched_core.report.units import number
from hetsched_core.store.parquet import read_columns
from hetsched_core.sweep.file import read_sweep
from hetsched_core.sweep.runs import runs_of

Row = Mapping[str, float | None]
"""The measures of one run by name; None where there is nothing to measure."""

Runs = Mapping[str, Mapping[str, Mapping[int, Row]]]
"""Workload -> contender -> seed -> measures, of runs in which every job has ended."""


@dataclass(frozen=True, slots=True)
class MeasureColumn:
    """A measure as a column of a table: less is better.

    `least` is added to both sides of a ratio: what is as good as nothing.
    """

    head: str
    of: Callable[[Row], float | None]
    digits: int = 2
    least: float = 0.0

    def over_seeds(self, seeds: Mapping[int, Row]) -> Estimate | None:
        """Return the mean with its interval; None unless every run has the measure."""
        values = [self.of(seeds[seed]) for seed in sorted(seeds)]
        return None if None in values else estimate(values)


def _times(name: str, factor: float = 1.0) -> Callable[[Row], float | None]:
    def value(row: Row) -> float | None:
        found = row[name]
        return None if found is None else found * factor

    return value


def _restarts_a_job(row: Row) -> float | None:
    restarts, jobs = row["restarts"], row["jobs"]
    return None if restarts is None or not jobs else restarts / jobs


HOUR = 1.0 / 3600.0
JCT = MeasureColumn("mean JCT h", _times("avg_jct_s", HOUR))
P99_JCT = MeasureColumn("99 % JCT h", _times("p99_jct_s", HOUR), 1)
P99_WAIT = MeasureColumn("99 % wait h", _times("p99_wait_s", HOUR), 1, least=0.01)
WAIT = MeasureColumn("mean wait h", _times("avg_wait_s", HOUR), least=0.01)
MAKESPAN = MeasureColumn("makespan h", _times("makespan_s", HOUR), 1)
MAX_RATIO = MeasureColumn("max. LR", _times("max_latency_ratio"), least=0.05)
MEAN_RATIO = MeasureColumn("mean LR", _times("avg_latency_ratio"), least=0.005)
FTF = MeasureColumn("max. FTF", _times("ftf_max"))
FRAGMENTS = MeasureColumn("fragments", _times("avg_fragments"), least=0.05)
MINUTE = 1.0 / 60.0
JCT_MIN = MeasureColumn("mean JCT min", _times("avg_jct_s", MINUTE), 1)
WAIT_MIN = MeasureColumn("mean wait min", _times("avg_wait_s", MINUTE), 1)
MAKESPAN_MIN = MeasureColumn("makespan min", _times("makespan_s", MINUTE), 1)
HELD = MeasureColumn("GPUs held %", _times("gpu_utilisation", 100.0), 0)
RESTARTS = MeasureColumn("restarts", _times("restarts"), 0, least=1.0)
LOST = MeasureColumn("lost GPU h", _times("lost_gpu_s", HOUR), 1)
RESTARTS_A_JOB = MeasureColumn("restarts a job", _restarts_a_job, least=0.01)
PLAN = MeasureColumn("ms a plan", _times("plan_mean_s", 1000.0), 1)
JAIN = MeasureColumn("Jain", _times("jain_slowdown"))
SHARE_ERROR = MeasureColumn("had / due off %", _times("worst_share_error", 100.0), 0)
COLUMNS = (
    JCT,
    WAIT,
    MAKESPAN,
    MAX_RATIO,
    MEAN_RATIO,
    FTF,
    FRAGMENTS,
    HELD,
    RESTARTS,
    LOST,
    PLAN,
)


def run_sweep(name: str, folder: Path) -> Runs:
    """Run what is missing of a sweep, one replay at a time; return its measures.

    All sweeps share one folder of runs, so that none is done twice. A workload named NAME-SEED is
    that seed of NAME. Runs in which some job did not end, or could not run, are left out.
    """
    out = folder / "results"
    if hetsched(["sweep", str(folder / f"{name}.toml"), f"--out={out}"]) != 0:
        sys.stderr.write(f"{name}: some runs failed; the tables leave them out\n")
    return _runs(read_columns(out / "results.parquet"))


def _runs(columns: Mapping[str, Sequence[object]]) -> Runs:
    found: dict[str, dict[str, dict[int, Row]]] = {}
    for at in range(len(columns["workload"])):
        row = {key: values[at] for key, values in columns.items()}
        workload, dash, seed = str(row["workload"]).rpartition("-")
        if not (dash and seed.isdigit()):
            workload, seed = str(row["workload"]), str(row["seed"])
        measures = {
            key: value if isinstance(value, int | float) else None for key, value in row.items()
        }
        if (measures["completed"] or 0) + (measures["failed"] or 0) == measures["jobs"]:
            of_label = found.setdefault(workload, {}).setdefault(str(row["label"]), {})
            of_label[int(seed)] = measures
    return found


WIDE = 8
"""Jobs of so many GPUs and more are wide."""


def waits_by_width(name: str, folder: Path) -> dict[str, list[tuple[float, float, float]]]:
    """Return, by contender, what jobs waited in each run of a sweep that was run, in hours.

    The mean of jobs of one GPU, the mean of wide ones, and of all widths of these the longest 99th
    percentile.
    """
    sweep = read_sweep(folder / f"{name}.toml", replay_options(), generate_options())
    found: dict[str, list[tuple[float, float, float]]] = {}
    for run in runs_of(sweep, folder / "results"):
        ended = [
            width
            for width in read_result(run.result).widths[run.contender.policy]
            if width.avg_wait_s is not None and width.p99_wait_s is not None
        ]
        wide = [width for width in ended if width.gpus >= WIDE]
        means = [
            sum((width.avg_wait_s or 0.0) * width.completed for width in some)
            / sum(width.completed for width in some)
            for some in ([width for width in ended if width.gpus == 1], wide)
        ]
        longest_s = max(width.p99_wait_s or 0.0 for width in wide)
        waits = means[0] * HOUR, means[1] * HOUR, longest_s * HOUR
        found.setdefault(run.contender.label, []).append(waits)
    return found


def log_ratios(
    mine: Mapping[int, Row], other: Mapping[int, Row], column: MeasureColumn
) -> list[float]:
    """Return the logarithm of mine / other for each seed that both have run."""
    logs = []
    for seed in sorted(mine.keys() & other.keys()):
        a, b = column.of(mine[seed]), column.of(other[seed])
        if a is not None and b is not None:
            logs.append(math.log((a + column.least) / (b + column.least)))
    return logs


def as_times(found: Estimate | None) -> str:
    """Return a ratio, given as a logarithm, with its interval."""
    if found is None:
        return "–"
    text = number(math.exp(found.mean), 2)
    if found.half_width:
        low, high = found.mean - found.half_width, found.mean + found.half_width
        text += f" ({number(math.exp(low), 2)} to {number(math.exp(high), 2)})"
    return text


def geometric(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def shown(found: Estimate | None, digits: int) -> str:
    """Return a mean with its interval, as it stands in a table."""
    if found is None:
        return "–"
    mean = _number(found.mean, digits)
    return f"{mean} ± {_number(found.half_width, digits)}" if found.half_width else mean


def _number(value: float, digits: int) -> str:
    """Return a number with so many digits after the point, fewer where it is large."""
    return number(
        value, 0 if abs(value) >= 1000 else min(digits, 1) if abs(value) >= 100 else digits
    )


COPIES = "hadare"
"""Runs copies of a job on whole nodes, where the others keep to the counts that it asks for."""


def relative(of_policy: Mapping[str, Mapping[int, Row]], column: MeasureColumn) -> dict[str, float]:
    """Return each policy's mean of a measure over the least of all that keep to what jobs ask."""
    means = {
        name: found.mean + column.least
        for name, seeds in of_policy.items()
        if (found := column.over_seeds(seeds)) is not None
    }
    least = min((value for name, value in means.items() if name != COPIES), default=1.0)
    return {name: value / least for name, value in means.items()}
