"""The daemon beside a private Slurm, for what is measured live (needs: docs/live/testbed.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until


@contextmanager
def enforcing(cluster: Testbed, folder: Path, *options: str) -> Iterator[Path]:
    """Run hetschedd with these options, from when it holds the nodes; yield its database.

    What it says and keeps is in the folder.
    """
    database = folder / "daemon.duckdb"
    command = [
        *(sys.executable, "-m", "slurm_plugin.cli.hetschedd", "--mode=enforce", "--partitions=gpu"),
        *(f"--database={database}", f"--socket={folder}/socket", *options),
    ]
    environment = os.environ | cluster.environment()
    held = "reservation"
    with (
        (folder / "daemon.log").open("w") as log,
        subprocess.Popen(command, env=environment, stderr=log) as daemon,
    ):
        try:
            wait_until(lambda: "ACTIVE" in cluster.command("scontrol", "show", held), held, 60)
            yield database
        finally:
            daemon.terminate()
