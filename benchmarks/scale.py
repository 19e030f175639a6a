"""Cost of a whole replay against the number of jobs: measures it, and draws what was measured.

    python benchmarks/scale.py --policies fifo,slurm --jobs 10000,30000,100000

Each replay is a process of its own, reading of the workload and measures included. Its line is put
into `docs/benchmarks/scale.csv`, in the place of an older one of the same policy and size. Then
`docs/benchmarks/scale.svg` and the table of `docs/benchmarks.md` are made of all lines; without
`--jobs` nothing is measured.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.papers.page import filled, markdown

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
TABLE = FOLDER / "scale.csv"
PAGE = FOLDER.with_suffix(".md")
CLUSTER = "--gpus 2000 --types a100,v100,t4 --name scale"
LOAD = 0.8


class ReplayLine(NamedTuple):
    """One replay: seconds on the clock and of CPU, peak memory (MiB), plans made."""

    policy: str
    jobs: int
    elapsed_s: float
    cpu_s: float
    peak_mib: int
    plans: int


def generate(jobs: int, folder: Path) -> None:
    """Write the cluster and a workload of so many jobs into a folder."""
    cluster, workload = folder / "c.toml", folder / "w.jsonl"
    _hetsched(*f"cluster generate {CLUSTER}".split(), into=cluster)
    ask = f"workload generate --cluster {cluster} --jobs {jobs} --load {LOAD} {workload}"
    _hetsched(*ask.split())


def measure(policy: str, jobs: int, folder: Path) -> ReplayLine:
    """Replay the generated jobs in a process of its own."""
    cluster, workload, result = (folder / name for name in ("c.toml", "w.jsonl", "r.json"))
    begun = perf_counter()
    replay = f"replay {workload} --cluster {cluster} --policy {policy} --json {result}"
    used = _hetsched(*replay.split())
    elapsed_s = perf_counter() - begun
    plans = json.loads(result.read_text())["policies"][policy]["plans"]
    cpu_s = used.ru_utime + used.ru_stime
    return ReplayLine(
        policy, jobs, round(elapsed_s, 1), round(cpu_s, 1), round(used.ru_maxrss / 1024), plans
    )


def _hetsched(*words: str, into: Path | None = None) -> resource.struct_rusage:
    """Run a command and return what it used."""
    command = [sys.executable, "-c", "from hetsched_core.cli import main; main()", *words]
    with (into or Path(os.devnull)).open("wb") as out:
        redirect = [(os.POSIX_SPAWN_DUP2, out.fileno(), 1)]
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=redirect)
        _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"hetsched {' '.join(words)} failed")
    return used


def slope(lines: list[ReplayLine]) -> float:
    """Return the exponent of cost by number of jobs: 1 is linear."""
    jobs = np.log([line.jobs for line in lines])
    return float(np.polyfit(jobs, np.log([line.cpu_s for line in lines]), 1)[0])


def draw(lines: list[ReplayLine], path: Path) -> None:
    """Draw seconds of CPU against jobs, both on logarithmic axes."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for policy in sorted({line.policy for line in lines}):
        ours = sorted((line for line in lines if line.policy == policy), key=lambda n: n.jobs)
        jobs, cpu_s = [n.jobs for n in ours], [n.cpu_s for n in ours]
        (mark,) = axes.loglog(jobs, cpu_s, "o-", label=f"{policy}: jobs^{slope(ours):.2f}")
        linear = [cpu_s[0] * n / jobs[0] for n in jobs]
        axes.loglog(jobs, linear, ":", color=mark.get_color(), linewidth=1)
    axes.set(xlabel="jobs", ylabel="CPU seconds of a replay (dotted: linear)")
    axes.legend()
    with mpl.rc_context({"svg.hashsalt": "scale", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


Known = dict[tuple[str, int], ReplayLine]
"""What was measured, by policy and number of jobs."""


def measured() -> Known:
    """Read what was ever measured."""
    with TABLE.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    lines = [
        ReplayLine(name, int(jobs), float(elapsed_s), float(cpu_s), int(peak_mib), int(plans))
        for name, jobs, elapsed_s, cpu_s, peak_mib, plans in rows
    ]
    return {(line.policy, line.jobs): line for line in lines}


def table_of(known: Known) -> str:
    """Return the table of the page."""
    heads = ("jobs", "`fifo`: CPU s / elapsed s / MiB / plans", "`slurm`: the same")
    lines = [
        (f"{jobs:,}", _cell(known.get(("fifo", jobs))), _cell(known.get(("slurm", jobs))))
        for jobs in sorted({jobs for _, jobs in known})
    ]
    return markdown(heads, lines)


def _cell(line: ReplayLine | None) -> str:
    if line is None:
        return "not measured"
    cpu_s, elapsed_s = _seconds(line.cpu_s), _seconds(line.elapsed_s)
    return f"{cpu_s} / {elapsed_s} / {line.peak_mib:,} / {line.plans:,}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 200 else f"{seconds:.0f}"


def main() -> None:
    """Measure what is asked for, then show everything that was ever measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default="fifo,slurm")
    parser.add_argument("--jobs", default="")
    chosen = parser.parse_args()
    known = measured()
    for jobs in map(int, filter(None, chosen.jobs.split(","))):
        with tempfile.TemporaryDirectory() as folder:
            generate(jobs, Path(folder))
            for policy in chosen.policies.split(","):
                known[policy, jobs] = measure(policy, jobs, Path(folder))
            # At once: the next one may take long.
            _write(known)
    draw([known[key] for key in sorted(known)], FOLDER / "scale.svg")
    PAGE.write_text(filled(PAGE.read_text(), {"scale": table_of(known)}))


def _write(known: Known) -> None:
    with TABLE.open("w", newline="") as file:
        rows = [ReplayLine._fields, *(known[key] for key in sorted(known))]
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
