"""What Slurm counts as the use of accounts, of jobs that run on and of jobs that soon end.

Three accounts have one job of 4 GPUs each nearly all the time: one that runs on, one of 9 s after
the other, and one of which each is cancelled after 9 s. Prints each minute what Slurm has counted
more. Needs what the testbed needs (docs/live/testbed.md).
Usage: python -m benchmarks.live_usage [--minutes 5]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import click

from benchmarks.live_shares import NODES, SETTINGS
from slurm_plugin.testbed import Testbed, default_cache, install, usual_site
from tests.slurm_plugin.clusters import up

ACCOUNTS = ("runs-on", "ends", "cancelled")


def main() -> None:
    """Print a row of a table each minute."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=int, default=5)
    minutes = parser.parse_args().minutes
    usual = usual_site(NODES)
    # Nearly nothing of what was counted goes.
    settings = (*usual.settings, *SETTINGS, "PriorityDecayHalfLife=7-0")
    with up(install(default_cache()), replace(usual, settings=settings)) as cluster:
        for account in ACCOUNTS:
            for words in (f"add account {account}", f"add user root account={account}"):
                cluster.command("sacctmgr", "--immediate", *words.split())
        click.echo(f"| {' | '.join(ACCOUNTS)} |\n| --- | --- | --- |")
        submit(cluster, "runs-on", 3600)
        before = dict.fromkeys(ACCOUNTS, 0)
        for _ in range(minutes):
            for _ in range(6):
                submit(cluster, "ends", 9)
                job = submit(cluster, "cancelled", 600)
                time.sleep(9.0)
                cluster.command("scancel", job)
                time.sleep(1.0)
            now = counted(cluster)
            click.echo(f"| {' | '.join(f'{now[each] - before[each]}' for each in ACCOUNTS)} |")
            before = now


def submit(cluster: Testbed, account: str, seconds: int) -> str:
    """Submit a job of 4 GPUs; return its id."""
    options = ("--parsable", f"--account={account}", "--gpus=4", "--output=/dev/null")
    return cluster.command("sbatch", *options, f"--wrap=sleep {seconds}").strip()


def counted(cluster: Testbed) -> dict[str, int]:
    """Return the GPU seconds that Slurm has counted of each account."""
    options = ("--all", "-P", "--noheader", "--format=Account,User,RawUsage")
    rows = (line.split("|") for line in cluster.command("sshare", *options).splitlines())
    return {account.strip(): int(use) for account, user, use in rows if not user and use}


if __name__ == "__main__":
    main()
