"""A search in a pool against the same trainings as whole jobs under 2d-las, on a real slurmctld.

Two nodes of one GPU each, a100 and t4, of which the second takes three times as long. Twelve
trainings in two groups are submitted over a minute, of lengths that a seed draws; on a machine
without GPUs a task trains a small network and sleeps for what is left of its time. As whole jobs
each is the executor alone, which goes on from its last round when it is moved. Needs torch, and
what the testbed needs (docs/live/testbed.md).
Usage: python -m benchmarks.pool_live [--seeds 5] [--policies hlas,hlas-p,hare]
[--set hlas-p.first_threshold_s=4] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median

import click

from benchmarks.live import enforcing
from job_wrappers.pool import result, submit
from slurm_plugin.pool import create
from slurm_plugin.pool.folder import Pool
from slurm_plugin.testbed import Installation, Testbed, default_cache, fake_nodes, install
from slurm_plugin.testbed import usual_site as site_of
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.clusters import up

ROOT = Path(__file__).resolve().parents[1]
WITHIN_S = 60.0
LATEST_S = 900.0
PARAMETERS = {"hlas": {"groups": "2"}, "hlas-p": {"groups": "2"}}
WHOLE = "2d-las"

WORK = """\
import os, time, torch
from job_wrappers.executor import Work
SLOWER = {"a100": 1.0, "t4": 3.0}[os.environ["HETSCHED_GPU_TYPE"]]
def training(seconds, width):
    model = torch.nn.Sequential(torch.nn.Linear(32, width), torch.nn.Linear(width, 4))
    def loss(model, batch):
        begun = time.monotonic()
        found = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        time.sleep(max(0.0, seconds * SLOWER - (time.monotonic() - begun)))
        return found
    batch = lambda round, task: (torch.randn(16, 32), torch.randint(4, (16,)))
    return Work(model, lambda parameters: torch.optim.Adam(parameters), batch, loss)
"""

POOL_JOB = """\
#!/bin/bash
#SBATCH --nodes=2 --ntasks=2 --gpus-per-node=1 --output={folder}/pool.out
export PYTHONPATH={root} OMP_NUM_THREADS=1
exec {python} -m job_wrappers.launch -- {python} -m job_wrappers.pool {folder}/pool --device=cpu
"""

WHOLE_JOB = """\
#!/bin/bash
#HETSCHED --gpu-set=1 --can-checkpoint
#SBATCH --gpus=1 --open-mode=append --output={folder}/{name}.out
export PYTHONPATH={root} OMP_NUM_THREADS=1
case $SLURMD_NODENAME in n0) export HETSCHED_GPU_TYPE=a100;; *) export HETSCHED_GPU_TYPE=t4;; esac
date +%s.%N >>{folder}/{name}.runs
{python} -m job_wrappers.executor {folder}/{name}.json --folder {folder}/rounds &&
    date +%s.%N >{folder}/{name}.end
"""


@dataclass(frozen=True)
class Drawn:
    """A training: when it comes (seconds), how many rounds it has, of how long on an a100."""

    name: str
    group: str
    comes_s: float
    rounds: int
    task_s: float


@dataclass(frozen=True)
class Measured:
    """What one seed came to: mean completion time, the last end, starts of whole jobs."""

    policy: str
    seed: int
    mean_jct_s: float
    median_jct_s: float
    makespan_s: float
    starts: int


def drawn(seed: int) -> list[Drawn]:
    """Return the twelve trainings of a seed, by when they come."""
    draw = random.Random(seed)
    found = []
    for at in range(12):
        group, task_s = (("short", 0.1), ("long", 0.2))[at % 2]
        rounds = min(300, max(8, round(30 * draw.lognormvariate(0.0, 0.8))))
        found.append(Drawn(f"{group}-{at}", group, draw.uniform(0, WITHIN_S), rounds, task_s))
    return sorted(found, key=lambda each: each.comes_s)


def main() -> None:
    """Print a table, a row for each policy, and what each seed came to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--policies", default="hlas,hlas-p,hare")
    parser.add_argument("--set", action="append", default=[], metavar="POLICY.NAME=VALUE")
    parser.add_argument("--no-whole", action="store_true", help="pools alone")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    policies = [*chosen.policies.split(","), *([] if chosen.no_whole else [WHOLE])]
    for text in chosen.set:
        place, _, value = text.partition("=")
        policy, _, name = place.partition(".")
        PARAMETERS.setdefault(policy, {})[name] = value
    installed, found = install(default_cache()), []
    for seed in range(1, chosen.seeds + 1):
        for policy in policies:
            found.append(measured(installed, policy, seed))
            click.echo(json.dumps(asdict(found[-1])), err=True)
            if chosen.json:
                chosen.json.write_text(json.dumps([asdict(each) for each in found]))
    for line in table(found):
        click.echo(line)


def table(found: Sequence[Measured]) -> list[str]:
    """Return the rows of a table: a policy, its means over the seeds, and how often it was best."""
    rows = ["| | mean completion | median | last end | starts |", "| --- | --- | --- | --- | --- |"]
    for policy in dict.fromkeys(each.policy for each in found):
        own = [each for each in found if each.policy == policy]
        low, high = min(e.mean_jct_s for e in own), max(e.mean_jct_s for e in own)
        rows.append(
            f"| `{policy}` | {mean(e.mean_jct_s for e in own):.1f} s ({low:.1f} to {high:.1f}) "
            f"| {mean(e.median_jct_s for e in own):.1f} s "
            f"| {mean(e.makespan_s for e in own):.1f} s | {mean(e.starts for e in own):.1f} |"
        )
    return rows


def measured(installed: Installation, policy: str, seed: int) -> Measured:
    """Run the trainings of a seed on a cluster of their own."""
    trainings = drawn(seed)
    with (
        up(installed, site_of(fake_nodes(2, "a100:1,t4:1"))) as cluster,
        tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name)
        (folder / "work.py").write_text(WORK)
        act = _whole if policy == WHOLE else _in_a_pool
        jct_s, makespan_s, starts = act(cluster, folder, policy, trainings)
    return Measured(policy, seed, mean(jct_s), median(jct_s), makespan_s, starts)


Ends = tuple[list[float], float, int]
"""Completion times, when the last had ended since the first could come, starts."""


def _in_a_pool(cluster: Testbed, folder: Path, policy: str, trainings: Sequence[Drawn]) -> Ends:
    pool = folder / "pool"
    create(pool, policy, PARAMETERS.get(policy, {}))
    script = folder / "pool.sh"
    script.write_text(POOL_JOB.format(folder=folder, root=ROOT, python=sys.executable))
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    cluster.command("sbatch", script)
    wait_until(lambda: len(Pool(pool).names("members")) == 2, "two members", 240)

    def one(each: Drawn) -> None:
        arguments = {"seconds": each.task_s, "width": 64}
        submit(
            *(pool, f"{folder}/work.py:training"),
            name=each.name,
            rounds=each.rounds,
            group=each.group,
            key=each.group,
            arguments=arguments,
        )

    begun_s = _submitted(trainings, one)
    wait_until(lambda: all(result(pool, each.name) for each in trainings), "all results", LATEST_S)
    found = [result(pool, each.name) for each in trainings]
    assert all(each is not None and not each["failed"] for each in found), found
    ended = [each["ended_s"] for each in found if each is not None]
    Pool(pool).stop()
    wait_until(lambda: not cluster.command("squeue", "-h").strip(), "the job's end", 120)
    return _ends(trainings, begun_s, ended, 1)


def _whole(cluster: Testbed, folder: Path, policy: str, trainings: Sequence[Drawn]) -> Ends:
    def one(each: Drawn) -> None:
        job = {
            "name": each.name,
            "make": f"{folder}/work.py:training",
            "rounds": each.rounds,
            "arguments": {"seconds": each.task_s, "width": 64},
        }
        order = [[each.name, number, 0] for number in range(each.rounds)]
        (folder / f"{each.name}.json").write_text(json.dumps({"jobs": [job], "order": order}))
        script = folder / f"{each.name}.sh"
        script.write_text(
            WHOLE_JOB.format(folder=folder, name=each.name, root=ROOT, python=sys.executable)
        )
        cluster.command("sbatch", script)

    options = ("--round-s=30", "--grace-s=5", "--restart-cost-s=5", "--cycle-s=0.5")
    with enforcing(cluster, folder, f"--policy={policy}", *options):
        begun_s = _submitted(trainings, one)
        ends = [folder / f"{each.name}.end" for each in trainings]
        wait_until(lambda: all(path.exists() for path in ends), "the ends of all jobs", LATEST_S)
    ended = [float(path.read_text()) for path in ends]
    starts = sum(len(path.read_text().splitlines()) for path in folder.glob("*.runs"))
    return _ends(trainings, begun_s, ended, starts)


def _submitted(trainings: Sequence[Drawn], submit_one: Callable[[Drawn], object]) -> float:
    """Submit each when it is to come; return when the first could (UTC)."""
    begun_s = time.time()
    for each in trainings:
        time.sleep(max(0.0, begun_s + each.comes_s - time.time()))
        submit_one(each)
    return begun_s


def _ends(trainings: Sequence[Drawn], begun_s: float, ended: Sequence[float], starts: int) -> Ends:
    jct_s = [at - (begun_s + each.comes_s) for at, each in zip(ended, trainings, strict=True)]
    return jct_s, max(ended) - begun_s, starts


if __name__ == "__main__":
    main()
