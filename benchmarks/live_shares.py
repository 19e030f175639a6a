"""GPU time of two accounts of shares 3 and 1 on a real slurmctld, under policies that run live.

Both always have work: jobs of 1, 2 and 4 GPUs, which save their state. Slurm counts use each
minute, its least, and of what runs then (`live_usage`): jobs are to be several minutes long, and
the half-life several times as long as they. Needs what the testbed needs (docs/live/testbed.md).
Usage: python -m benchmarks.live_shares [--policies fifo,las] [--minutes 60] [--from-minute 15]
[--job-s 30] [--half-life 00:15:00]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import click

from benchmarks.live import enforcing
from hetsched_core.policy import make_policy, policy_names
from slurm_plugin.testbed import Testbed, default_cache, fake_nodes, install, usual_site
from tests.slurm_plugin.clusters import up

ACCOUNTS = {"big": 3, "small": 1}
NODES = fake_nodes(3)
GPUS = sum(node.gpus for node in NODES)
SETTINGS = ("PriorityCalcPeriod=00:01:00", "AccountingStorageEnforce=associations")
SCRIPT = """\
#!/bin/bash
#HETSCHED --gpu-set={gpus} --can-checkpoint
left={folder}/left.$SLURM_JOB_ID
[ -e $left ] || echo {seconds} >$left
while s=$(<$left) && [ $s -gt 0 ]; do sleep 1; echo $((s - 1)) >$left; done
"""


def main() -> None:
    """Print a row of a table for each policy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    live = [name for name in policy_names() if make_policy(name).info.live]
    parser.add_argument("--policies", default=",".join(live))
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--from-minute", type=float, default=15.0)
    parser.add_argument("--job-s", type=float, default=30.0)
    parser.add_argument("--half-life", default="00:15:00")
    chosen = parser.parse_args()
    click.echo("| policy | big, % of the GPU time of both | GPUs in use, % |\n| --- | --- | --- |")
    for policy in chosen.policies.split(","):
        had = measured(
            policy, 60 * chosen.minutes, 60 * chosen.from_minute, chosen.job_s, chosen.half_life
        )
        both = sum(had.values())
        whole = GPUS * 60 * (chosen.minutes - chosen.from_minute)
        part, use = 100 * had["big"] / both, 100 * both / whole
        click.echo(f"| `{policy}` | {part:.1f} | {use:.0f} |")


def measured(
    policy: str, seconds: float, from_s: float, job_s: float, half_life: str
) -> Counter[str]:
    """Return the GPU seconds that each account has had under a policy, on a cluster of its own."""
    usual = usual_site(NODES)
    decay = f"PriorityDecayHalfLife={half_life}"
    site = replace(usual, settings=(*usual.settings, *SETTINGS, decay))
    with (
        up(install(default_cache()), site) as cluster,
        tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name,
    ):
        for account, shares in ACCOUNTS.items():
            for words in (
                f"add account {account} fairshare={shares}",
                f"add user root account={account}",
            ):
                cluster.command("sacctmgr", "--immediate", *words.split())
        # Slurm takes no name into a reservation that has no association.
        cluster.command("sacctmgr", "--immediate", "add", "user", "daemon", "account=root")
        submit(cluster, Path(name), jobs=20 + round(GPUS * seconds / (2 * job_s)), job_s=job_s)
        with enforcing(cluster, Path(name), f"--policy={policy}", "--round-s=20", "--grace-s=5"):
            return watched(cluster, seconds, from_s)


def submit(cluster: Testbed, folder: Path, jobs: int, job_s: float) -> None:
    """Submit more jobs of each account than it can do, held back until all are there."""
    draw, script = random.Random(1), folder / "job.sh"
    for _ in range(jobs):
        for account in ACCOUNTS:
            gpus, run_s = draw.choice((1, 1, 2, 4)), round(job_s * draw.lognormvariate(0.0, 0.5))
            script.write_text(SCRIPT.format(gpus=gpus, seconds=run_s, folder=folder))
            job = (f"--account={account}", "--output=/dev/null", f"--gpus={gpus}", "--hold")
            cluster.command("sbatch", *job, script)
    ids = cluster.command("squeue", "--noheader", "--format=%i").split()
    cluster.command("scontrol", "release", ",".join(ids))


def watched(cluster: Testbed, seconds: float, from_s: float) -> Counter[str]:
    """Look every second at who holds how many GPUs; return the GPU seconds from `from_s` on."""
    had: Counter[str] = Counter()
    begun_s = before_s = time.monotonic()
    while (now_s := time.monotonic()) - begun_s < seconds:
        told = cluster.command(
            "squeue", "--noheader", "--states=R", "--Format=Account,tres-alloc:80"
        )
        for line in told.splitlines() if now_s - begun_s >= from_s else ():
            account, tres = line.split()
            gpus = int(tres.partition("gres/gpu=")[2].partition(",")[0])
            had[account] += round(1000 * gpus * (now_s - before_s))
        before_s = now_s
        time.sleep(1.0)
    return Counter({account: amount // 1000 for account, amount in had.items()})


if __name__ == "__main__":
    main()
