"""What a `TrainingSession` costs the loop around which it lies, on CPU.

    python -m benchmarks.wrapper_cost table
    python -m benchmarks.wrapper_cost running|profiling [--model tiny] [--processes 2]
    python -m benchmarks.wrapper_cost checkpoint [--gigabytes 1]

Two equal trainings take turns, block by block, one in a plain loop and one in a session. What is
told is the mean difference of a step, and the ratio of the blocks of each pair with its 95 %
interval. `checkpoint` saves a state of a size while small steps go on. `table` does it all, each in
a process of its own, and writes it into docs/live/training.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
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

from benchmarks.papers.page import filled
from benchmarks.wrappers.models import CASES, Case
from job_wrappers.session import TrainingSession, report
from job_wrappers.session.profile import WARM_UP

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "live" / "training.md"
ROW = "row | "

ROWS = {
    "running mode, a step of Python mostly": "running",
    "the same on two processes": "running --processes 2 --pairs 160",
    "running mode, a small convolution": "running --model convolution --steps 20 --pairs 80",
    "profiling mode, the same": "profiling --model convolution --steps 20 --pairs 80",
    "profiling mode, a transformer on two processes": (
        "profiling --model transformer --processes 2 --steps 20 --pairs 80"
    ),
}
"""What the page tells of, and how each is measured; some 4 minutes together."""


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def training(case: Case, in_session: bool, device: str) -> Iterator[None]:
    """Train without end; yields after each step."""
    torch.manual_seed(0)
    model = case.model().to(device)
    if torch.distributed.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(case.data(), case.batch, shuffle=True)
    session = TrainingSession(model, optimizer, loader) if in_session else None
    batches: Any = loader if session is None else session
    for _ in itertools.repeat(0) if session is None else session.epochs(10**6):
        for inputs, targets in batches:
            out = model(inputs.to(device))
            torch.nn.functional.cross_entropy(out, targets.to(device)).backward()
            optimizer.step()
            optimizer.zero_grad()
            yield


def compare(case: Case, steps: int, pairs: int, device: str, as_row: bool) -> None:
    """Let both take turns, and tell on rank 0."""
    plain, ours = training(case, False, device), training(case, True, device)
    settle = torch.cuda.synchronize if device != "cpu" else lambda: None
    for loop in (plain, ours):
        for _ in range(2 * WARM_UP + 30):
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
            settle()
            blocks[which].append((time.perf_counter() - begun) / steps)
            worked[which].append((time.thread_time() - cpu_s) / steps)
    if int(os.environ.get("RANK", "0")) != 0:
        return
    plain_s, ours_s = (statistics.median(blocks[which]) for which in (False, True))
    extra = [b - a for a, b in zip(blocks[False], blocks[True], strict=True)]
    ratios = [math.log(b / a) for a, b in zip(blocks[False], blocks[True], strict=True)]
    mean, half = statistics.fmean(ratios), 1.96 * statistics.stdev(ratios) / math.sqrt(pairs)
    more = [b - a for a, b in zip(worked[False], worked[True], strict=True)]
    # Of each middle, where it lies with 95 %: the ranks of a binomial.
    low, high = _middle(extra)
    if as_row:
        cells = (
            f"{plain_s * 1e3:.2f} ms",
            f"{statistics.median(more) * 1e6:+.0f} µs",
            f"{statistics.median(extra) * 1e6:+.0f} µs ({low * 1e6:+.0f} to {high * 1e6:+.0f})",
            f"{math.exp(mean - half):.3f} to {math.exp(mean + half):.3f}",
        )
        say(f"{ROW}{' | '.join(cells)} |")
        return
    say(
        f"plain {plain_s * 1e3:.3f} ms a step, in a session {ours_s * 1e3:.3f} ms; "
        f"{statistics.median(extra) * 1e6:+.0f} us a step (median of {pairs} pairs of {steps}); "
        f"ratio {math.exp(mean):.4f}, 95 % from {math.exp(mean - half):.4f} to "
        f"{math.exp(mean + half):.4f}; CPU of the training thread "
        f"{statistics.median(more) * 1e6:+.0f} us a step"
    )


def _middle(values: list[float]) -> tuple[float, float]:
    """Return between what the median lies, with 95 %."""
    ordered = sorted(values)
    off = math.floor(0.98 * math.sqrt(len(values)))
    at = len(values) // 2
    return ordered[max(0, at - 1 - off)], ordered[min(len(values) - 1, at + off)]


def table() -> None:
    """Measure everything that the page tells, and write it there."""
    before = os.getloadavg()[0]
    lines = [
        "| | a step without | CPU of a step more | wall time of a step more, 95 % | ratio, 95 % |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, words in ROWS.items():
        said = _said(*words.split(), "--row")
        cells = next(line for line in said if line.startswith(ROW))
        what = re.sub(r" --(steps|pairs) \d+", "", words)
        lines.append(f"| {name} (`{what}`) {cells.removeprefix('row ')}")
        say(lines[-1])
    turns = [line for line in _said("checkpoint") if "stopped" in line]
    load = f"load average {before:.1f} at the beginning and {os.getloadavg()[0]:.1f} at the end"
    lines += ["", f"{os.cpu_count()} cores, {load}. A checkpoint of 1 GB (`checkpoint`):", ""]
    lines += [f"- {line}" for line in turns]
    say("\n".join(lines))
    PAGE.write_text(filled(PAGE.read_text(), {"costs": "\n".join(lines)}))


def _said(*words: str) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.wrapper_cost", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def checkpoint(gigabytes: float) -> None:
    """Save a great state while small steps go on."""
    model = CASES["tiny"].model()
    for at in range(20):
        model.register_buffer(f"ballast{at}", torch.ones(int(gigabytes * 1e9 / 80)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(CASES["tiny"].data(), 8, shuffle=True)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        session = TrainingSession(model, optimizer, loader, checkpoint=folder, keep=1)
        # Without an end: the faster the machine, the more steps fit beside a checkpoint.
        loop = (batch for _ in session.epochs(10**6) for batch in session)

        def steps(while_busy: bool, most: int) -> list[float]:
            times: list[float] = []
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
    parser.add_argument("what", choices=["table", "running", "profiling", "checkpoint"])
    parser.add_argument("--model", default="tiny", choices=CASES)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50, help="in a block")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument(
        "--device", default="cpu", help="of one process; `checkpoint` has cpu alone"
    )
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--row", action="store_true", help="print a row of the table")
    given = parser.parse_args()
    if given.what == "table":
        table()
        return
    if given.processes > 1 and "RANK" not in os.environ:
        os.environ |= {"SLURM_JOB_ID": "9", "SLURM_GPUS_ON_NODE": str(given.processes)}
        os.environ["PYTHONPATH"] = str(ROOT)
        launcher = [sys.executable, "-m", "job_wrappers.launch", "--no-requeue", "--"]
        sys.exit(
            subprocess.call(
                [*launcher, sys.executable, "-m", "benchmarks.wrapper_cost", *sys.argv[1:]],
                cwd=ROOT,
            )
        )
    torch.set_num_threads(1)
    if given.processes > 1:
        torch.distributed.init_process_group("gloo")
    load = f"load {os.getloadavg()[0]:.1f}"
    if given.what == "checkpoint":
        checkpoint(given.gigabytes)
    else:
        if given.what == "profiling":
            # As it is told to itself: it goes on profiling.
            report.ITERATIONS = 10**9  # type: ignore[attr-defined]
        compare(CASES[given.model], given.steps, given.pairs, given.device, given.row)
    if int(os.environ.get("RANK", "0")) == 0:
        say(f"{load} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
