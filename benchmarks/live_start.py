"""How long after it is submitted a job begins: under plain Slurm, and under the daemon.

The jobs are of the lowest priority. With `--waiting`, others wait beside them for GPUs of a type
that is taken, and `bf_max_job_test` is large enough for Slurm to look at all of them: by default it
looks at 500. Needs what the testbed needs (docs/live/testbed.md).
Usage: python benchmarks/live_start.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.live import enforcing
from slurm_plugin.testbed import Testbed, default_cache, fake_nodes, install, usual_site
from tests.slurm_plugin.clusters import up

KINDS = (("sbatch", ""), ("sbatch", "#HETSCHED --gpu-set=1"), ("srun", ""))
"""What submits a job, and a line of its script."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--waiting", type=int, default=0)
    parser.add_argument("--pause-s", type=float, default=0.0, help="between two jobs")
    parser.add_argument("--cycle-s", type=float, default=0.2)
    parser.add_argument("--parameters", default="", help="SchedulerParameters of slurm.conf")
    parser.add_argument("--backend", default="auto")
    chosen = parser.parse_args()
    installed = install(default_cache())
    site = usual_site(fake_nodes(6))
    all_jobs = f"bf_max_job_test={2 * chosen.waiting}" if chosen.waiting else ""
    if parameters := ",".join(filter(None, (all_jobs, chosen.parameters))):
        line = f"SchedulerParameters={parameters}"
        site = replace(site, settings=(*site.settings, line))
    plain: dict[tuple[str, str], list[float]] = {kind: [] for kind in KINDS}
    ours: dict[tuple[str, str], list[float]] = {kind: [] for kind in KINDS}
    with (
        up(installed, site) as cluster,
        tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name,
    ):
        folder = Path(name)
        wait(cluster, chosen.waiting)
        measure(cluster, folder, plain, chosen.turns, chosen.pause_s)
        with enforcing(
            cluster, folder, f"--cycle-s={chosen.cycle_s}", f"--backend={chosen.backend}"
        ):
            # It reads first what all that wait ask for.
            begin(cluster, folder, "sbatch", "")
            measure(cluster, folder, ours, chosen.turns, chosen.pause_s)
        # The machine may have become quicker or slower meanwhile.
        measure(cluster, folder, plain, chosen.turns, chosen.pause_s)
    for label, measured in (("Slurm", plain), ("hetschedd", ours)):
        for (how, line), times in measured.items():
            median, longest = statistics.median(times), max(times)
            words = f"median {median:.2f} s, longest {longest:.2f} s"
            sys.stdout.write(f"{label:<10} {how:<7}{line or 'as it is':<22} {words}\n")
    sys.stdout.write(f"load {os.getloadavg()[0]:.1f}\n")


def wait(cluster: Testbed, jobs: int) -> None:
    """Let jobs wait: two others have all GPUs of their type, in the nodes n0 and n3."""
    if not jobs:
        return
    job = "--output=/dev/null --gpus-per-node=a100:4 --wrap='sleep 3600'"
    lines = f"sbatch --nodes=2 {job}; seq {jobs} | xargs -P 4 -I@ sbatch -Q {job}"
    environment = os.environ | cluster.environment()
    subprocess.run(["bash", "-c", lines], env=environment, check=True, stdout=subprocess.DEVNULL)


def measure(
    cluster: Testbed,
    folder: Path,
    times: dict[tuple[str, str], list[float]],
    turns: int,
    pause_s: float,
) -> None:
    """Submit jobs of each kind by turns, and add what they take to begin."""
    for _ in range(turns):
        for command, line in KINDS:
            times[command, line].append(begin(cluster, folder, command, line))
            time.sleep(pause_s)


def begin(cluster: Testbed, folder: Path, command: str, line: str) -> float:
    """Submit a job and return after how many seconds its script began."""
    script, stamp = folder / "job.sh", folder / "stamp"
    script.write_text(f"#!/bin/bash\n{line}\ndate +%s.%N >{stamp}.new; mv {stamp}.new {stamp}\n")
    stamp.unlink(missing_ok=True)
    submitted = time.time()
    script.chmod(0o755)
    options = ("--output=/dev/null", "--nice=100000", "--gpus-per-node=t4:1")
    cluster.command(command, *options, script, timeout_s=600)
    while not stamp.exists():
        time.sleep(0.01)
    return float(stamp.read_text()) - submitted


if __name__ == "__main__":
    main()
