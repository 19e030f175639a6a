"""What a `TrainingSession` costs the loop around which it lies, on CPU.

    python benchmarks/wrapper_cost.py running|profiling [--model tiny] [--processes 2]
    python benchmarks/wrapper_cost.py checkpoint [--gigabytes 1]

Two equal trainings take turns, block by block, one in a plain loop and one in a session. What is
told is the mean difference of a step, and the ratio of the blocks of each pair with its 95 %
interval. `checkpoint` saves a state of a size while small steps go on.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.wrappers.models import CASES, Case
from job_wrappers.session import TrainingSession, report

ROOT = Path(__file__).resolve().parents[1]


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def training(case: Case, in_session: bool) -> Iterator[None]:
    """Train without end; yields after each step."""
    torch.manual_seed(0)
    model = case.model()
    if torch.distributed.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(case.data(), case.batch, shuffle=True)
    session = TrainingSession(model, optimizer, loader) if in_session else None
    batches: Any = loader if session is None else session
    for _ in itertools.repeat(0) if session is None else session.epochs(10**6):
        for inputs, targets in batches:
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
            yield


def compare(case: Case, steps: int, pairs: int) -> None:
    """Let both take turns, and tell on rank 0."""
    plain, ours = training(case, False), training(case, True)
    for loop in (plain, ours):
        for _ in range(2 * report.WARM_UP + 30):
            next(loop)
    blocks: dict[bool, list[float]] = {False: [], True: []}
    worked: dict[bool, list[float]] = {False: [], True: []}
    for pair in range(pairs):
        # Neither always goes first.
        for which in (pair % 2 == 0, pair % 2 == 1):
            loop = ours if which else plain
            begun, cpu_s = time.perf_counter(), time.thread_time()
            for _ in range(steps):
                next(loop)
            blocks[which].append((time.perf_counter() - begun) / steps)
            worked[which].append((time.thread_time() - cpu_s) / steps)
    if int(os.environ.get("RANK", "0")) != 0:
        return
    plain_s, ours_s = (statistics.median(blocks[which]) for which in (False, True))
    extra = [b - a for a, b in zip(blocks[False], blocks[True], strict=True)]
    ratios = [math.log(b / a) for a, b in zip(blocks[False], blocks[True], strict=True)]
    mean, half = statistics.fmean(ratios), 1.96 * statistics.stdev(ratios) / math.sqrt(pairs)
    more = [b - a for a, b in zip(worked[False], worked[True], strict=True)]
    say(
        f"plain {plain_s * 1e3:.3f} ms a step, in a session {ours_s * 1e3:.3f} ms; "
        f"{statistics.median(extra) * 1e6:+.0f} us a step (median of {pairs} pairs of {steps}); "
        f"ratio {math.exp(mean):.4f}, 95 % from {math.exp(mean - half):.4f} to "
        f"{math.exp(mean + half):.4f}; CPU of the training thread "
        f"{statistics.median(more) * 1e6:+.0f} us a step"
    )


def checkpoint(gigabytes: float) -> None:
    """Save a great state while small steps go on."""
    model = CASES["tiny"].model()
    for at in range(20):
        model.register_buffer(f"ballast{at}", torch.ones(int(gigabytes * 1e9 / 80)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(CASES["tiny"].data(), 8, shuffle=True)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        session = TrainingSession(model, optimizer, loader, checkpoint=folder, keep=1)
        loop = iter(session)

        def steps(while_busy: bool, most: int) -> list[float]:
            times = []
            while len(times) < most and not (while_busy and not session.saving):
                begun = time.perf_counter()
                inputs, targets = next(loop)
                torch.nn.functional.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
                optimizer.zero_grad()
                times.append(time.perf_counter() - begun)
            return times

        steps(False, 50)
        for turn in ("first", "second", "third"):
            quiet = steps(False, 50)
            copy = [b.clone() for b in model.buffers()]
            begun = time.perf_counter()
            for to, buffer in zip(copy, model.buffers(), strict=True):
                to.copy_(buffer)
            bare_s = time.perf_counter() - begun
            del copy
            begun = time.perf_counter()
            session.save_beside()
            stopped_s = time.perf_counter() - begun
            busy = steps(True, 10**6)
            session.wait()
            whole_s = time.perf_counter() - begun
            say(
                f"{turn}: stopped {stopped_s:.3f} s (a bare copy {bare_s:.3f} s), on disk after "
                f"{whole_s:.2f} s, {len(busy)} steps meanwhile of "
                f"{statistics.median(busy) * 1e3:.2f} ms, at most {max(busy) * 1e3:.1f} ms ("
                f"without {statistics.median(quiet) * 1e3:.2f} ms, {max(quiet) * 1e3:.1f} ms)"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("what", choices=["running", "profiling", "checkpoint"])
    parser.add_argument("--model", default="tiny", choices=CASES)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50, help="in a block")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    given = parser.parse_args()
    if given.processes > 1 and "RANK" not in os.environ:
        os.environ |= {"SLURM_JOB_ID": "9", "SLURM_GPUS_ON_NODE": str(given.processes)}
        os.environ["PYTHONPATH"] = str(ROOT)
        launcher = [sys.executable, "-m", "job_wrappers.launch", "--no-requeue", "--"]
        sys.exit(subprocess.call([*launcher, sys.executable, *sys.argv], cwd=ROOT))
    torch.set_num_threads(1)
    if given.processes > 1:
        torch.distributed.init_process_group("gloo")
    load = f"load {os.getloadavg()[0]:.1f}"
    if given.what == "checkpoint":
        checkpoint(given.gigabytes)
    else:
        if given.what == "profiling":
            report.ITERATIONS = 10**9
        compare(CASES[given.model], given.steps, given.pairs)
    if int(os.environ.get("RANK", "0")) == 0:
        say(f"{load} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
