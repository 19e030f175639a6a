"""How long after it is submitted a job begins: under plain Slurm, and under the daemon.

Needs what the testbed needs (docs/live/testbed.md). Usage: python benchmarks/live_start.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from slurm_plugin.testbed import Testbed, default_cache, fake_nodes, install

TURNS = 6

KINDS = (("sbatch", ""), ("sbatch", "#HETSCHED --gpu-set=1"), ("srun", ""))
"""What submits a job, and a line of its script."""


def main() -> None:
    installed = install(default_cache())
    backend = "pyslurm" if installed.pyslurm else "commands"
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        folder = Path(name)
        cluster = Testbed.create(installed, folder / "slurm", fake_nodes(6))
        try:
            cluster.up()
            plain: dict[tuple[str, str], list[float]] = {kind: [] for kind in KINDS}
            ours: dict[tuple[str, str], list[float]] = {kind: [] for kind in KINDS}
            measure(cluster, folder, plain)
            command = [
                *(sys.executable, "-m", "slurm_plugin.cli.hetschedd", "--mode=enforce"),
                *("--partitions=gpu", "--cycle-s=0.2", f"--backend={backend}"),
                f"--database={folder}/decisions.duckdb",
            ]
            with subprocess.Popen(command, env=os.environ | cluster.environment()) as daemon:
                while "ACTIVE" not in cluster.command("scontrol", "show", "reservation"):
                    time.sleep(0.1)
                measure(cluster, folder, ours)
                daemon.terminate()
            # The machine may have become quicker or slower meanwhile.
            measure(cluster, folder, plain)
        finally:
            cluster.down()
    for label, measured in (("Slurm", plain), ("hetschedd", ours)):
        for (how, line), times in measured.items():
            median, longest = statistics.median(times), max(times)
            words = f"median {median:.2f} s, longest {longest:.2f} s"
            sys.stdout.write(f"{label:<10} {how:<7}{line or 'as it is':<22} {words}\n")


def measure(cluster: Testbed, folder: Path, times: dict[tuple[str, str], list[float]]) -> None:
    """Submit jobs of each kind by turns, and add what they take to begin."""
    for _ in range(TURNS):
        for command, line in KINDS:
            times[command, line].append(begin(cluster, folder, command, line))


def begin(cluster: Testbed, folder: Path, command: str, line: str) -> float:
    """Submit a job and return after how many seconds its script began."""
    script, stamp = folder / "job.sh", folder / "stamp"
    script.write_text(f"#!/bin/bash\n{line}\ndate +%s.%N >{stamp}.new; mv {stamp}.new {stamp}\n")
    stamp.unlink(missing_ok=True)
    submitted = time.time()
    script.chmod(0o755)
    cluster.command(command, "--output=/dev/null", "--gpus-per-node=1", script)
    while not stamp.exists():
        time.sleep(0.01)
    return float(stamp.read_text()) - submitted


if __name__ == "__main__":
    main()
