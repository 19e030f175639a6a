"""How long after `sbatch` a job begins: plain, and through the daemon, by turns in one run.

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

TURNS = 12


def main() -> None:
    installed = install(default_cache())
    backend = "pyslurm" if installed.pyslurm else "commands"
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        folder = Path(name)
        cluster = Testbed.create(installed, folder / "slurm", fake_nodes(6))
        try:
            cluster.up()
            command = [
                *(sys.executable, "-m", "slurm_plugin.cli.hetschedd", "--mode=enforce"),
                *("--partitions=gpu", "--cycle-s=0.2", f"--backend={backend}"),
                f"--database={folder}/decisions.duckdb",
            ]
            with subprocess.Popen(command, env=os.environ | cluster.environment()) as daemon:
                time.sleep(3)
                plain, ours = [], []
                for _ in range(TURNS):
                    plain.append(begin(cluster, folder, ""))
                    ours.append(begin(cluster, folder, "#HETSCHED --gpu-set=1"))
                daemon.terminate()
        finally:
            cluster.down()
    for label, times in (("sbatch", plain), ("hetschedd", ours)):
        median, longest = statistics.median(times), max(times)
        sys.stdout.write(f"{label:<10} median {median:.2f} s, longest {longest:.2f} s\n")


def begin(cluster: Testbed, folder: Path, line: str) -> float:
    """Submit a job and return after how many seconds its script began."""
    script, stamp = folder / "job.sh", folder / "stamp"
    script.write_text(f"#!/bin/bash\n{line}\ndate +%s.%N >{stamp}.new; mv {stamp}.new {stamp}\n")
    stamp.unlink(missing_ok=True)
    submitted = time.time()
    cluster.command("sbatch", "--output=/dev/null", "--gpus-per-node=1", script)
    while not stamp.exists():
        time.sleep(0.01)
    return float(stamp.read_text()) - submitted


if __name__ == "__main__":
    main()
