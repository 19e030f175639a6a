"""Cost of single plans of every policy against the size of the cluster: measures and draws it.

    python -m benchmarks.cost_by_size --policies hops,steady --gpus 64,512

Each policy and size is a process of its own, as in `benchmarks.slowest_plans`: a replay of a
world of its execution model, cut short after `PLANS` plans. Its line is put into
`docs/benchmarks/cost-by-size.json`, or the file that `--json` names, in the place of an older one;
the table of `docs/benchmarks.md` and the drawing are made of all lines there. A plan of more than
`MOST_S` CPU seconds ends the process, and larger clusters are not tried with that policy. Without
`--policies` it is every policy; with `--gpus ''` nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count, groupby
from pathlib import Path

import numpy as np

from benchmarks.hops_rounds import ROUND_S, cluster_of, speeds_of
from benchmarks.papers.page import filled, markdown
from benchmarks.plan_worlds import PlanWorld
from benchmarks.scale_lines import FOLDER, digits, drawing, read, write
from benchmarks.slowest_plans import measure
from hetsched_core.policy import policy_names, policy_type
from hetsched_core.types import (
    ExecutionModel,
    Job,
    RequirementSet,
    Speeds,
    Submission,
    TaskShape,
    TaskTimes,
)
from tests.hetsched_core.choose.instances import requirement_sets

FILE = FOLDER / "cost-by-size.json"
PAGE = FOLDER.with_suffix(".md")
SIZES = (64, 512, 2048, 16_384)
PLANS = 41
"""Of a world: the first, when all jobs wait and nothing is kept, does not count."""

LEAST_PLANS = 20
"""As many worlds are replayed as give so many that count."""

MOST_S = 10.0
EVENTS_A_ROUND = 2
"""About so many jobs come in a round, and end: the work of a plan is what is looked at, not how
many there are."""


@dataclass(frozen=True, slots=True)
class CostLine:
    """Plans of a policy on so many GPUs: CPU seconds of the median and slowest, peak memory in MiB.

    All three are None where a plan took more than `MOST_S`.
    """

    policy: str
    gpus: int
    plans: int = 0
    median_s: float | None = None
    slowest_s: float | None = None
    peak_mib: int | None = None


Lines = dict[tuple[str, int], CostLine]
"""What was measured, by policy and GPUs."""


def world_of(gpus: int, seed: int, model: ExecutionModel) -> PlanWorld:
    """Return a cluster with as many jobs as GPUs from the start, and others that come.

    The nodes, counts and speeds are those of `benchmarks.hops_rounds`.
    """
    draw = np.random.default_rng(seed)
    cluster = cluster_of(gpus)
    speeds = speeds_of(cluster, draw)
    types, profiles = cluster.gpu_types, sorted(speeds.profiles)
    if model is ExecutionModel.TASKS:
        times = (
            {t: TaskTimes(draw.uniform(1.0, 5.0), draw.uniform(0.0, 2.0)) for t in types}
            for _ in profiles
        )
        speeds = Speeds(
            cluster,
            {
                name: replace(speeds.table(name), tasks=each)
                for name, each in zip(profiles, times, strict=True)
            },
        )
    later = EVENTS_A_ROUND * PLANS
    accepted = requirement_sets(draw, gpus + later)
    come_s = np.cumsum(draw.exponential(ROUND_S / EVENTS_A_ROUND, later))
    submit_s = np.concatenate([np.zeros(gpus), come_s])
    run_s = draw.exponential(ROUND_S * gpus / EVENTS_A_ROUND, gpus + later)
    made = []
    for at in range(gpus + later):
        counts = tuple((1 + np.flatnonzero(accepted[at])).tolist())
        requirements = RequirementSet(counts)
        profile, asked = profiles[draw.integers(len(profiles))], requirements.lower_median
        on_it = asked * speeds.per_gpu(profile, types[len(types) // 2], asked)
        samples = float(run_s[at]) * on_it
        tasks = None
        if model is ExecutionModel.TASKS:
            tasks = TaskShape(asked, int(draw.integers(1, 50)))
            samples = float(tasks.scale * (tasks.rounds or 1))
        job = Job(
            f"j{at:05d}",
            float(submit_s[at]),
            requirements,
            profile,
            total_samples=samples,
            time_limit_s=2.0 * float(run_s[at]),
            tasks=tasks,
        )
        made.append(Submission(job, samples))
    return PlanWorld(f"{gpus} GPUs and jobs", cluster, speeds, tuple(made))


def cost_of(policy: str, gpus: int) -> CostLine:
    """Measure a policy on so many GPUs, in this process, which a plan that takes too long ends."""
    plan_s: list[float] = []
    peak_mib = 0
    for seed in count():
        found = measure(policy, seed, partial(world_of, gpus), PLANS, MOST_S)
        # A policy that knows the future plans a world once.
        plan_s += found.plan_s[1:] or found.plan_s
        peak_mib = found.peak_mib
        if len(plan_s) >= LEAST_PLANS:
            break
    median_s, slowest_s = (float(f"{each:.3g}") for each in (np.median(plan_s), max(plan_s)))
    return CostLine(policy, gpus, len(plan_s), median_s, slowest_s, peak_mib)


def cost_apart(policy: str, gpus: int) -> CostLine:
    """Measure a policy on so many GPUs in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.cost_by_size"]
    command += ["--policies", policy, "--one", str(gpus)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode == -signal.SIGXCPU:
        return CostLine(policy, gpus)
    done.check_returncode()
    return CostLine(**json.loads(done.stdout))


def table_of(lines: Lines) -> str:
    """Return the table of the page."""
    sizes = sorted({gpus for _, gpus in lines})
    rows = [
        (f"`{policy}`", *(_cell(lines.get((policy, gpus))) for gpus in sizes))
        for policy in sorted({policy for policy, _ in lines})
    ]
    return markdown(("CPU ms: median / slowest; MiB", *(f"{n:,} GPUs" for n in sizes)), rows)


def _cell(line: CostLine | None) -> str:
    if line is None:
        return "–"
    if line.median_s is None or line.slowest_s is None:
        return f"over {MOST_S:g} s"
    median, slowest = (digits(1000.0 * each) for each in (line.median_s, line.slowest_s))
    return f"{median} / {slowest}; {line.peak_mib}"


def draw(lines: Iterable[CostLine]) -> None:
    """Draw the median of each policy against GPUs, up to the slowest: a line and what is above."""
    by_policy = groupby(sorted(lines, key=lambda n: (n.policy, n.gpus)), lambda n: n.policy)
    with drawing("cost-by-size", height=5.6) as axes:
        for at, (policy, ours) in enumerate(by_policy):
            known = [line for line in ours if line.median_s and line.slowest_s]
            gpus = [line.gpus for line in known]
            whole = policy_type(policy).info.model is ExecutionModel.GANG
            (mark,) = axes.plot(
                gpus,
                [line.median_s or 0.0 for line in known],
                "-" if whole else "--",
                color=f"C{at % 10}",
                marker="os^"[at // 10],
                markersize=4,
                label=policy,
            )
            slowest = [line.slowest_s or 0.0 for line in known]
            axes.plot(gpus, slowest, ":", color=mark.get_color(), linewidth=0.8)
        axes.axhline(MOST_S, color="grey", linewidth=0.8)
        axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.12))


def main() -> None:
    """Measure what is asked for, then show everything that the file holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default=",".join(policy_names()))
    parser.add_argument("--gpus", default=",".join(map(str, SIZES)))
    parser.add_argument("--json", type=Path, default=FILE, help="where what was measured is kept")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    policies = given.policies.split(",")
    if given.one is not None:
        json.dump(asdict(cost_of(policies[0], given.one)), sys.stdout)
        return
    lines: Lines = read(CostLine, given.json)
    for policy in policies:
        for gpus in sorted(map(int, filter(None, given.gpus.split(",")))):
            line = lines[policy, gpus] = cost_apart(policy, gpus)
            sys.stdout.write(f"{policy}, {gpus} GPUs: {_cell(line)}\n")
            sys.stdout.flush()
            if line.median_s is None:
                lines = {k: v for k, v in lines.items() if k[0] != policy or k[1] <= gpus}
            # At once: the next one may take long.
            write(given.json, lines)
            if line.median_s is None:
                break
    PAGE.write_text(filled(PAGE.read_text(), {"cost-by-size": table_of(lines)}))
    draw(lines.values())


if __name__ == "__main__":
    main()
