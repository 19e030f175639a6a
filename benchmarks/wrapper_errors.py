"""How far the estimator's iteration times are from measured ones, for real models on CPU.

    python benchmarks/wrapper_errors.py [--steps 120] [--only convolution]

Each model is trained on one process and on two. A `TrainingSession` profiles the first steps; the
script itself times the later ones. What is predicted comes from the run's spool lines alone, by the
estimator's own code: modes are fitted to T_d and T_w, then formula (4) of Hops. T_c is that of the
bandwidth that an all-reduce of the model's size shows between processes that do nothing else. For
two processes the profile of one is used as well: what is known of a count that never ran.
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
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.wrappers.models import CASES
from hetsched_core.spool import Profile, Progress, Rejection, SpoolLine, SpoolName, SpoolValidator
from hetsched_core.throughput.data_time import fit_modes
from hetsched_core.throughput.iteration import (
    Bandwidths,
    IterationTimes,
    Pattern,
    communication_s,
    expected_iteration_s,
)

ROOT = Path(__file__).resolve().parents[1]
NONCE = "benchmark0"
_RUNS = itertools.count()


def measured(
    name: str, gpus: int, steps: int, folder: Path, run: int
) -> tuple[dict[str, Any], list[SpoolLine]]:
    """Train a model once; return what rank 0 timed and what the spool says."""
    (folder / "spool").mkdir(exist_ok=True)
    environment = os.environ | {
        "SLURM_JOB_ID": "9",
        "SLURM_JOB_NODELIST": "n0",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_GPUS_ON_NODE": str(gpus),
        "SLURM_RESTART_COUNT": str(run),
        "SLURMD_NODENAME": "n0",
        "HETSCHED_NONCE": NONCE,
        "HETSCHED_GPU_TYPE": "cpu",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    out = folder / "times.json"
    worker = [sys.executable, "-m", "benchmarks.wrappers.worker", name, str(steps), str(out)]
    launcher = [sys.executable, "-m", "job_wrappers.launch", "--no-requeue"]
    launcher += [f"--spool={folder}/spool", "--", *worker]
    done = subprocess.run(launcher, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    file = SpoolName("9", run, 0)
    validator = SpoolValidator(file, NONCE)
    text = (folder / "spool" / str(os.getuid()) / str(file)).read_bytes()
    lines = [validator.take(line) for line in text.splitlines(keepends=True)]
    refused = [line for line in lines if isinstance(line, Rejection)]
    if refused:
        sys.exit(f"the scheduler refuses {refused[0]}")
    return json.loads(out.read_text()), lines


def predicted_s(lines: list[SpoolLine], communication: float = 0.0) -> float:
    """The estimator's time of an iteration from what a run told of itself."""
    (profile,) = (line for line in lines if isinstance(line, Profile))
    told = [line for line in lines if isinstance(line, Profile | Progress)]
    data = np.array([value for line in told for value in line.data_s])
    wait = np.array([value for line in told for value in line.wait_s])
    times = IterationTimes(0.0, profile.forward_s, profile.backward_s, profile.update_s, 0.0)
    modes = fit_modes(data, wait)
    return expected_iteration_s(times, modes, communication, Pattern(profile.pattern))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--steps", type=int, default=120, help="timed in each run")
    parser.add_argument("--only", help="one model")
    given = parser.parse_args()
    say(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    say("| model | loading | processes | pattern | measured, ms | predicted, ms | error, % |")
    say("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        for case, model in CASES.items():
            if given.only in (None, case):
                rows(case, "stable" if model.stable else "unstable", given.steps, Path(name))
    say(f"load {os.getloadavg()[0]:.1f}")


def rows(case: str, loading: str, steps: int, folder: Path) -> None:
    """Print the lines of one model."""
    one: list[SpoolLine] = []
    for gpus in (1, 2):
        timed, lines = measured(case, gpus, steps, folder, next(_RUNS))
        mean = statistics.fmean(timed["times"])
        if gpus == 1:
            one = lines
            show(case, loading, "1", lines, mean, predicted_s(lines))
            continue
        # T_c = P / B * (N-1)/N holds for the bandwidth that this reduction shows.
        link = timed["parameters"] / timed["reduction_s"] / 2
        bandwidths = Bandwidths(link, link)
        cost = communication_s(timed["parameters"], 2, 1, bandwidths)
        show(case, loading, "2", lines, mean, predicted_s(lines, cost))
        show(case, loading, "2, from 1", one, mean, predicted_s(one, cost))


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def show(
    case: str, loading: str, processes: str, lines: list[SpoolLine], mean: float, told: float
) -> None:
    """Print one line."""
    (profile,) = (line for line in lines if isinstance(line, Profile))
    error = 100 * (told / mean - 1)
    say(
        f"| {case} | {loading} | {processes} | {profile.pattern} | {mean * 1e3:.2f} "
        f"| {told * 1e3:.2f} | {error:+.1f} |"
    )


if __name__ == "__main__":
    main()
