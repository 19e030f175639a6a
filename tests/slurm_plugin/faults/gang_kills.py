"""Thirty jobs of uneven and mixed shapes, and twenty kills of the daemon that starts them.

    python -m tests.slurm_plugin.faults.gang_kills

prints what came of it; `--jobs` and `--kills` make it shorter.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from slurm_plugin.testbed import default_cache, fake_nodes, install
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.clusters import up
from tests.slurm_plugin.daemon.process.test_hetschedd import hetschedd
from tests.slurm_plugin.gang_jobs import Gangs, wrong_in
from tests.slurm_plugin.jobs import await_hold

OPTIONS = (
    *("--mode=enforce", "--policy=las", "--round-s=4", "--cycle-s=0.2"),
    *("--grace-s=10", "--restart-cost-s=1", "--start-timeout-s=20"),
)

LIVES_S = (1.5, 6.0)
"""A daemon lives for so long: it dies while it starts, places, moves and tidies up gangs."""


def run_gangs_with_kills(gangs: Gangs, jobs: int, kills: int, rng: random.Random) -> list[str]:
    """Submit jobs under a daemon, kill it and the next ones at random moments; the last finishes.

    Returns:
        what was wrong, in words.
    """
    for at in range(kills):
        daemon = hetschedd(gangs.cluster, gangs.folder, *OPTIONS)
        if not at:
            await_hold(gangs.cluster)
            for number in range(jobs):
                gangs.submit_some(number, rng.uniform(3.0, 8.0))
        time.sleep(rng.uniform(*LIVES_S))
        assert daemon.poll() is None, (gangs.folder / "daemon.log").read_text()[-3000:]
        daemon.kill()
        daemon.wait()
    assert gangs.queue(), "the jobs had ended before the last kill"
    daemon = hetschedd(gangs.cluster, gangs.folder, *OPTIONS)
    try:
        wait_until(lambda: not gangs.queue(), "an empty queue", 60 + 10 * jobs)
    finally:
        daemon.terminate()
        daemon.wait()
    return list(wrong_in(gangs, {}))


def main() -> int:
    """Kill; 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="gang_kills", description=(__doc__ or "").strip())
    parser.add_argument("--jobs", type=int, default=30, help="how many (default 30)")
    parser.add_argument("--kills", type=int, default=20, help="how often (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and jobs (default 1)")
    given = parser.parse_args()
    with up(install(default_cache()), fake_nodes(6)) as cluster:
        gangs = Gangs(cluster, cluster.layout.base.parent)
        wrong = run_gangs_with_kills(gangs, given.jobs, given.kills, random.Random(given.seed))
        runs = sum(len(gangs.seen(job).get(0, ())) for job in gangs.tokens)
    says = "; ".join(wrong) or "nothing"
    sys.stdout.write(f"{given.jobs} jobs, {given.kills} kills, {runs} runs; wrong: {says}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
