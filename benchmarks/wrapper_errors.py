"""How far the estimator's iteration times are from measured ones, for real models on CPU.

    python -m benchmarks.wrapper_errors [--steps 80] [--minutes 9] [--only convolution]

Each model is trained on one process and on two. A `TrainingSession` profiles the first steps; the
script itself times the later ones. What is predicted comes from the run's spool lines alone, by the
estimator's own code: modes are fitted to T_d and T_w, then formula (4) of Hops. T_c is that of the
bandwidth that an all-reduce of the model's size shows between processes that do nothing else. For
two processes a profile of one is used as well: what is known of a count that never ran. That one is
taken while another process trains the same beside it, as two do that share a machine, and as two
GPUs do not: else the contention of the cores would be taken for an error of the estimator.

All models have a turn, again and again until `--minutes` are over; told is the median of the turns.
An error has two parts: that of the model is the prediction against the very steps that were
profiled, and the rest is that those steps took another time than the later ones, which no estimator
could know. Without `--only` the table of docs/live/training.md is written.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.papers.page import filled, markdown
from benchmarks.wrappers.models import CASES
from hetsched_core.records.spool import Profile, Progress, SpoolLine
from hetsched_core.throughput.data_time import fit_modes
from hetsched_core.throughput.iteration import (
    Bandwidths,
    IterationTimes,
    Pattern,
    communication_s,
    expected_iteration_s,
)
from tests.job_wrappers.worlds import environment, spooled

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "live" / "training.md"
AIM = 0.05
_RUNS = itertools.count()


@dataclass(frozen=True)
class TimedRun:
    """One run: mean seconds of the timed and of the profiled steps, and what it told."""

    mean_s: float
    profiled_s: float
    parameters: int
    reduction_s: float
    lines: list[SpoolLine]


@dataclass(frozen=True)
class ComparedPrediction:
    """One prediction held against what was measured, in seconds; T_d hidden or not.

    `own_s` is what is predicted of the profiled steps from nothing but themselves.
    """

    measured_s: float
    profiled_s: float
    predicted_s: float
    own_s: float
    pattern: int


def trained(name: str, gpus: int, steps: int, folder: Path, *, beside: bool = False) -> TimedRun:
    """Train a model once, or twice at the same time; return what rank 0 timed and told."""
    runs = [_begun(name, gpus, steps, folder) for _ in range(1 + beside)]
    found = [_ended(*run, folder) for run in runs]
    return found[0]


def _begun(
    name: str, gpus: int, steps: int, folder: Path
) -> tuple[subprocess.Popen[str], int, Path]:
    (folder / "spool").mkdir(exist_ok=True)
    run = next(_RUNS)
    more = {"HETSCHED_GPU_TYPE": "cpu", "OMP_NUM_THREADS": "1"}
    told = os.environ | environment(run, gpus, more)
    out = folder / f"times-{run}.json"
    worker = [sys.executable, "-m", "benchmarks.wrappers.worker", name, str(steps), str(out)]
    launcher = [sys.executable, "-m", "job_wrappers.launch", "--no-requeue"]
    launcher += [f"--spool={folder}/spool", "--", *worker]
    process = subprocess.Popen(launcher, env=told, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    return process, run, out


def _ended(process: subprocess.Popen[str], run: int, out: Path, folder: Path) -> TimedRun:
    _, said = process.communicate()
    if process.returncode:
        sys.exit(said)
    timed = json.loads(out.read_text())
    return TimedRun(
        statistics.fmean(timed["times"]),
        statistics.fmean(timed["profiled"]),
        timed["parameters"],
        timed["reduction_s"],
        spooled(folder, run),
    )


def predicted_s(lines: list[SpoolLine], communication: float = 0.0) -> float:
    """The estimator's time of an iteration from what a run told of itself."""
    (profile,) = (line for line in lines if isinstance(line, Profile))
    told = [line for line in lines if isinstance(line, Profile | Progress)]
    data = np.array([value for line in told for value in line.data_s])
    wait = np.array([value for line in told for value in line.wait_s])
    times = IterationTimes(0.0, profile.forward_s, profile.backward_s, profile.update_s, 0.0)
    modes = fit_modes(data, wait)
    return expected_iteration_s(times, modes, communication, Pattern(profile.pattern))


def turns(case: str, steps: int, folder: Path) -> dict[str, ComparedPrediction]:
    """Train a model on one process, on two, and on one twice; return what was predicted of each."""
    one = trained(case, 1, steps, folder)
    two = trained(case, 2, steps, folder)
    apart = trained(case, 1, steps, folder, beside=True)
    # T_c = P / B * (N-1)/N holds for the bandwidth that this reduction shows.
    link = two.parameters / two.reduction_s / 2
    cost = communication_s(two.parameters, 2, 1, Bandwidths(link, link))
    return {
        "1": _turn(one, one, 0.0),
        "2": _turn(two, two, cost),
        "2, from 1": _turn(two, apart, cost),
    }


def _turn(run: TimedRun, profile: TimedRun, communication: float) -> ComparedPrediction:
    (line,) = (line for line in profile.lines if isinstance(line, Profile))
    predicted = predicted_s(profile.lines, communication)
    own = predicted_s([line], communication)
    return ComparedPrediction(run.mean_s, run.profiled_s, predicted, own, line.pattern)


def row(case: str, processes: str, found: list[ComparedPrediction]) -> list[str]:
    """Return a line of the table: medians over the turns, and how far the errors lie apart."""
    errors = [100 * (turn.predicted_s / turn.measured_s - 1) for turn in found]
    model = [100 * (turn.own_s / turn.profiled_s - 1) for turn in found]
    patterns = "/".join(sorted({str(turn.pattern) for turn in found}))
    return [
        *(case, "stable" if CASES[case].stable else "unstable", processes, patterns),
        f"{1e3 * statistics.median(turn.measured_s for turn in found):.2f}",
        f"{1e3 * statistics.median(turn.predicted_s for turn in found):.2f}",
        f"{statistics.median(errors):+.1f} ({min(errors):+.1f} to {max(errors):+.1f})",
        f"{statistics.median(model):+.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--steps", type=int, default=80, help="timed in each run")
    parser.add_argument("--minutes", type=float, default=9.0, help="for which turns go on")
    parser.add_argument("--only", help="one model")
    given = parser.parse_args()
    before, begun_s = os.getloadavg()[0], time.monotonic()
    found: dict[tuple[str, str], list[ComparedPrediction]] = {}
    cases = [case for case in CASES if given.only in (None, case)]
    rounds, longest_s = 0, 0.0
    while not rounds or time.monotonic() - begun_s + longest_s < 60 * given.minutes:
        round_s = time.monotonic()
        with tempfile.TemporaryDirectory() as name:
            for case in cases:
                for processes, turn in turns(case, given.steps, Path(name)).items():
                    found.setdefault((case, processes), []).append(turn)
                    say(" | ".join(row(case, processes, [turn])))
        rounds += 1
        longest_s = max(longest_s, time.monotonic() - round_s)
    heads = ["model", "loading", "processes", "pattern", "measured, ms", "predicted, ms"]
    heads += ["error, %", "of the model, %"]
    load = f"load average {before:.1f} at the beginning and {os.getloadavg()[0]:.1f} at the end"
    said = f"Medians of {rounds} turns, in brackets the least and the greatest; {os.cpu_count()}"
    table = markdown(heads, [row(*key, each) for key, each in found.items()])
    lines = [table, "", f"{said} cores, {load}.{_within(found)}"]
    say("\n".join(lines))
    if given.only is None:
        PAGE.write_text(filled(PAGE.read_text(), {"errors": "\n".join(lines)}))


def _within(found: dict[tuple[str, str], list[ComparedPrediction]]) -> str:
    """Return how many of the predictions for stable loading keep to the aim."""
    counts = []
    for processes in ("1", "2", "2, from 1"):
        errors = [
            abs(statistics.median(turn.predicted_s / turn.measured_s - 1 for turn in each))
            for (case, at), each in found.items()
            if at == processes and CASES[case].stable
        ]
        within = sum(error <= AIM for error in errors)
        counts.append(f"{processes}: {within} of {len(errors)}")
    return f" Within {100 * AIM:.0f} % for stable loading, by processes: {'; '.join(counts)}."


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
