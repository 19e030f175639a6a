"""One workload on a real slurmctld and in a replay: do both come to the same times?

Elastic jobs that a seed draws are submitted to the daemon on a testbed of two GPU types. Each is a
stub that sleeps at the speed of its built-in profile where it was placed, and saves its progress
when it is moved. Then the same jobs, submitted when they were, go through a replay with the
daemon's settings. Needs what the testbed needs (docs/live/testbed.md), and 15 to 20 minutes for
each policy.
Usage: python -m benchmarks.replay_and_live [--policies hops,hadar,steady] [--seed 1]
[--folder FOLDER], in which live runs are kept: one that is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Self

import cattrs
import click

from benchmarks.live import enforcing
from hetsched_core.policy import make_policy
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.throughput import ProfileSet, builtin_speeds, profile_set
from hetsched_core.types import Cluster, Job, Node, RequirementSet, Submission
from slurm_plugin.daemon.settings import LIVE_SHAPES
from slurm_plugin.testbed import FakeSite, Partition, Testbed, default_cache, fake_nodes, install
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.accounts import Accounted, accounted_runs
from tests.slurm_plugin.clusters import up

ROOT = Path(__file__).resolve().parents[1]
NODES = fake_nodes(4, "v100:4,t4:4")
CLUSTER = Cluster(tuple(Node(node.name, node.gpu_type, node.gpus) for node in NODES))
SPEEDS = builtin_speeds(CLUSTER)
_PARAMETERS = ("SchedulerParameters=batch_sched_delay=1",)
SITE = FakeSite(NODES, (Partition("gpu", default=True),), _PARAMETERS)
"""It has no priorities: where a site says nothing of shares, policies are as in their papers."""

JOBS, WITHIN_S, COUNTS = 25, 300.0, ((1,), (1, 2), (1, 2, 4), (2, 4), (2, 4, 8), (4, 8))
RUN_S = (60.0, 300.0)
"""Jobs run so long on the middle count that they accept, at the mean speed of both types."""

CYCLE_S = 0.5
SETTINGS = SimulationSettings(
    round_s=60.0,
    # Until the daemon looks, on average; from then until a job works; and from when one is told to
    # stop until others have its GPUs. As measured: a job worked 1.0 s after it had come or another
    # had ended, and 1.2 s after the start of a round that moved it.
    decision_s=CYCLE_S / 2,
    restart_cost_s=0.75,
    grace_s=0.25,
    shapes=LIVE_SHAPES,
    runs_per_job=1,
)
"""What the daemon is told as well, as far as it has such a setting."""

GRID = Submission(Job("grid", 0.0, RequirementSet((1,)), "resnet50-imagenet", 1.0), 1.0)
"""The rounds of a replay begin with the first job: this one, a round before the others."""

SHIFTED = 20
"""So many more replays, with every submission and start moved by up to half a cycle."""

EARLY_S = 2.0
"""The first job comes so long before a round, so that policies that work in rounds plan it then."""

ALIKE_S, LATEST_S = 3.0, 2400.0

SCRIPT = """\
#!/bin/bash
#HETSCHED --gpu-set={counts} --profile-key={profile} --total-samples={samples} --can-checkpoint
#SBATCH --gpus={asked} --open-mode=append --output={folder}/%j.out
export PYTHONPATH={root}
declare -A speed=({speeds})
gpus=$((SLURM_JOB_NUM_NODES * SLURM_GPUS_ON_NODE))
# So large a batch that no iteration is ever timed: what it would tell of other counts is not so.
exec {python} -m job_wrappers.stub --samples={samples} --batch=1000000000 --gpu-type=any \\
    --spool={folder}/spool --checkpoint={folder}/$SLURM_JOB_ID.json --report-every=2 \\
    --speed=${{speed[$SLURMD_NODENAME.$gpus.$SLURM_JOB_NUM_NODES]}}
"""


@dataclass(frozen=True, slots=True)
class Lived:
    """What became of a job, live or in a replay, in seconds since the first round began.

    `runs` are when each began, and what it held.
    """

    job: str
    submit_s: float
    end_s: float
    restarts: int
    runs: tuple[tuple[float, str], ...]

    @classmethod
    def of(cls, submit_s: float, rows: Sequence[Accounted], origin_s: float) -> Self:
        """Return what Slurm's accounts say of a job, from the time of its submission on."""
        ran = [row for row in rows if row.nodes]
        begun_s, ended_s = (
            [datetime.fromisoformat(text).timestamp() - origin_s for text in texts]
            for texts in ([row.start for row in ran], [row.end for row in ran])
        )
        held = [held_on((node, row.gpus // len(row.nodes)) for node in row.nodes) for row in ran]
        runs = tuple(zip(begun_s, held, strict=True))
        return cls(rows[-1].job, submit_s, ended_s[-1], rows[-1].restarts, runs)


def held_on(pieces: Iterable[tuple[str, int]]) -> str:
    """Return how many GPUs of which type are held on each node; nodes of a type are alike."""
    return "+".join(sorted(f"{gpus} {CLUSTER[node].gpu_type}" for node, gpus in pieces))


def makespan_s(jobs: Sequence[Lived]) -> float:
    """Return the seconds from the first submission to the last end."""
    return max(job.end_s for job in jobs) - min(job.submit_s for job in jobs)


def mean_jct_s(jobs: Sequence[Lived]) -> float:
    """Return the mean of the seconds from submission to end."""
    return mean(job.end_s - job.submit_s for job in jobs)


def restarts(jobs: Sequence[Lived]) -> int:
    """Return how often jobs were stopped and started again."""
    return sum(job.restarts for job in jobs)


def drawn(seed: int) -> tuple[Submission, ...]:
    """Return the jobs of a seed in the order in which they come, the first at 0 s."""
    draw = random.Random(seed)
    models = [model.name for model in profile_set(ProfileSet.LOG)]
    models = [m for m in models if all(map(SPEEDS.table(m).runs_on, CLUSTER.gpu_types))]
    come_s = sorted(draw.uniform(0.0, WITHIN_S) for _ in range(JOBS))
    found = []
    for number, at_s in enumerate(come_s):
        profile, counts, run_s = draw.choice(models), draw.choice(COUNTS), draw.uniform(*RUN_S)
        middle = counts[(len(counts) - 1) // 2]
        rates = [SPEEDS.per_gpu(profile, kind, middle) * middle for kind in CLUSTER.gpu_types]
        samples = float(round(run_s * sum(rates) / len(rates)))
        job = Job(str(number), at_s - come_s[0], RequirementSet(counts), profile, samples)
        found.append(Submission(job, samples))
    return tuple(found)


def main() -> None:
    """Print a row of a table for each policy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--policies", default="hops,hadar,steady")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    submissions, rows = drawn(chosen.seed), []
    for policy in chosen.policies.split(","):
        with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
            kept = (chosen.folder or Path(name)) / f"{policy}-{chosen.seed}"
            live = lived(policy, submissions, kept)
        rows.append(row(policy, live, submissions))
    click.echo(
        "| policy | makespan live | replay | off by | mean JCT live | replay "
        "| off by | restarts live | replay | starts alike |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n" + "\n".join(rows)
    )


def row(policy: str, live: Sequence[Lived], submissions: Sequence[Submission]) -> str:
    """Return a row of the table; in brackets, from where to where the shifted replays reach."""
    draw = random.Random(0)
    shifts = [lambda: 0.0, *[lambda: draw.uniform(-CYCLE_S / 2, CYCLE_S / 2)] * SHIFTED]
    again, *shifted = (replayed(policy, submissions, live, shift_s) for shift_s in shifts)
    cells = []
    for measured in (makespan_s, mean_jct_s):
        seen, told, *others = map(measured, (live, again, *shifted))
        around = f"{told:.0f} s ({min(others):.0f} to {max(others):.0f})"
        cells += [f"{seen:.0f} s", around, f"{100 * (told / seen - 1):+.1f} %"]
    often, *more = map(restarts, (again, *shifted))
    cells += [f"{restarts(live)}", f"{often} ({min(more)} to {max(more)})"]
    cells.append(f"{alike(live, again)} of {sum(len(job.runs) for job in live)}")
    return f"| `{policy}` | {' | '.join(cells)} |"


def replayed(
    policy: str,
    submissions: Sequence[Submission],
    live: Sequence[Lived],
    shift_s: Callable[[], float],
) -> tuple[Lived, ...]:
    """Return what becomes of the jobs in a replay, submitted when they were.

    The look of the daemon, each submission and how long starts of a job take are moved by what
    `shift_s` returns.
    """
    jobs = [GRID]
    for each, seen in zip(submissions, live, strict=True):
        at_s = SETTINGS.round_s + seen.submit_s + shift_s()
        # As the daemon takes what Slurm tells in whole seconds: a second before that, by number.
        told_s = math.floor(at_s) - 1.0 + int(seen.job) / 1e6
        job = replace(each.job, id=seen.job, submit_s=told_s, eligible_s=at_s)
        cost_s = SETTINGS.restart_cost_s + shift_s()
        jobs.append(replace(each, job=job, start_cost_s=cost_s, restart_cost_s=cost_s))
    settings = replace(SETTINGS, decision_s=SETTINGS.decision_s + shift_s())
    log = simulate(jobs, CLUSTER, make_policy(policy), SPEEDS, settings)
    runs = defaultdict[str, list[tuple[float, str]]](list)
    for run in log.runs:
        runs[run.job].append((run.since_s - SETTINGS.round_s, held_on(run.configuration)))
    grid_s = SETTINGS.round_s
    found = {}
    for one in log.jobs:
        submit_s, end_s = one.job.eligible_from_s - grid_s, (one.end_s or math.inf) - grid_s
        found[one.job.id] = Lived(
            one.job.id, submit_s, end_s, one.restarts, tuple(runs[one.job.id])
        )
    return tuple(found[seen.job] for seen in live)


def alike(live: Sequence[Lived], again: Sequence[Lived]) -> int:
    """Return how many runs began live as in the replay, within `ALIKE_S`, on the like GPUs."""
    return sum(
        any(abs(other_s - at_s) < ALIKE_S and held == other for other_s, other in there.runs)
        for here, there in zip(live, again, strict=True)
        for at_s, held in here.runs
    )


def lived(policy: str, submissions: Sequence[Submission], folder: Path) -> tuple[Lived, ...]:
    """Run the jobs on a cluster of their own, unless the folder holds what came of that."""
    told = folder / "live.json"
    if told.exists():
        return cattrs.structure(json.loads(told.read_text()), tuple[Lived, ...])
    (folder / "spool").mkdir(parents=True)
    options = (
        *(f"--policy={policy}", f"--spool={folder}/spool", "--spool-s=2", f"--cycle-s={CYCLE_S}"),
        *(f"--round-s={SETTINGS.round_s}", f"--restart-cost-s={SETTINGS.restart_cost_s}"),
        f"--grace-s={SETTINGS.grace_s}",
    )
    with up(install(default_cache()), SITE) as cluster:
        with enforcing(cluster, folder, *options):
            # What is compiled when it is used first is compiled for a job that does not count.
            submit(cluster, replace(submissions[0], samples=submissions[0].samples / 20), folder)
            _await_end(cluster)
            round_s = SETTINGS.round_s
            origin_s = round_s * ((time.time() + EARLY_S) // round_s + 1)
            ids, at_s = [], []
            for each in submissions:
                time.sleep(max(0.0, origin_s - EARLY_S + each.job.submit_s - time.time()))
                ids.append(submit(cluster, each, folder))
                at_s.append(time.time() - origin_s)
            _await_end(cluster)
        accounts = accounted_runs(cluster, ids)
    live = tuple(
        Lived.of(came_s, accounts[job], origin_s) for job, came_s in zip(ids, at_s, strict=True)
    )
    told.write_text(json.dumps([asdict(job) for job in live]))
    return live


def submit(cluster: Testbed, each: Submission, folder: Path) -> str:
    """Submit a job, and return its id."""
    job = each.job
    speeds = (
        f"[{node.name}.{gpus}.{nodes}]={SPEEDS.per_gpu(job.profile, node.gpu_type, gpus, nodes)}"
        for node in NODES
        for gpus in job.requirements.counts
        for nodes in range(1, len(NODES) + 1)
    )
    script = folder / "job.sh"
    text = SCRIPT.format(
        counts=",".join(map(str, job.requirements.counts)),
        asked=job.requirements.counts[0],
        profile=job.profile,
        samples=f"{each.samples:.0f}",
        speeds=" ".join(speeds),
        folder=folder,
        root=ROOT,
        python=sys.executable,
    )
    script.write_text(text)
    return cluster.command("sbatch", "--parsable", script).strip()


def _await_end(cluster: Testbed) -> None:
    wait_until(lambda: not cluster.command("squeue", "-h").strip(), "all ends", LATEST_S, 2.0)


if __name__ == "__main__":
    main()
