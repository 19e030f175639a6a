"""Two hundred kills: ten runs of 300 jobs, in each of which the daemon is killed twenty times.

    python -m tests.slurm_plugin.faults.soak docs/live/soak.md

writes what came of it as a page. `--runs` and `--jobs` make it shorter.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Template

from slurm_plugin.testbed import Testbed, default_cache, install
from tests.slurm_plugin.clusters import up
from tests.slurm_plugin.faults.kills import LONGEST_LIFE_S, run_with_kills
from tests.slurm_plugin.faults.site import Site, Verdict, nodes

POLICIES = ("las", "hops", "fifo")
KILLS = 20

_HEAD = """\
| seed | policy | kills | jobs | finished | runs of jobs | of these killed | s | load | wrong |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its seed and policy, how long it took, the load after, and what came of it."""

    seed: int
    policy: str
    kills: int
    seconds: float
    load: float
    verdict: Verdict

    @property
    def row(self) -> str:
        v = self.verdict
        wrong = "; ".join(v.wrong) or "nothing"
        return (
            f"| {self.seed} | {self.policy} | {self.kills} | {v.jobs} | {v.finished} | {v.runs} | "
            f"{v.killed_runs} | {self.seconds:.0f} | {self.load:.1f} | {wrong} |"
        )


def soak(cluster: Testbed, folder: Path, seed: int, jobs: int) -> Run:
    policy = POLICIES[seed % len(POLICIES)]
    options = (
        *("--mode=enforce", f"--policy={policy}", "--round-s=3", "--cycle-s=0.2"),
        *("--grace-s=10", "--restart-cost-s=1", "--spool-s=0.5"),
    )
    begun = time.monotonic()
    site = Site(cluster, folder, options, random.Random(seed))
    lives = run_with_kills(site, jobs, KILLS, patience_s=600)
    verdict = site.verdict()
    return Run(seed, policy, len(lives), time.monotonic() - begun, os.getloadavg()[0], verdict)


def page(runs: Sequence[Run]) -> str:
    template = Template(Path(__file__).with_name("soak_page.txt").read_text())
    return template.substitute(
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        kills=sum(run.kills for run in runs),
        jobs=sum(run.verdict.jobs for run in runs),
        finished=sum(run.verdict.finished for run in runs),
        wrong=sum(len(run.verdict.wrong) for run in runs),
        longest=f"{LONGEST_LIFE_S:g}",
        table="\n".join((_HEAD, *(run.row for run in runs))),
    )


def main() -> int:
    """Soak; 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="soak", description=(__doc__ or "").strip())
    parser.add_argument("page", type=Path, help="where to write the page")
    parser.add_argument("--runs", type=int, default=10, help="how many (default 10)")
    parser.add_argument("--jobs", type=int, default=300, help="in each run (default 300)")
    given = parser.parse_args()
    runs: list[Run] = []
    with up(install(default_cache()), nodes()) as cluster:
        for seed in range(1, given.runs + 1):
            folder = cluster.layout.base.parent / str(seed)
            folder.mkdir()
            runs.append(soak(cluster, folder, seed, given.jobs))
            sys.stdout.write(runs[-1].row + "\n")
            sys.stdout.flush()
            given.page.write_text(page(runs))
    return 1 if any(run.verdict.wrong for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
