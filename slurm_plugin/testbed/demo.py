"""A show: six jobs on a testbed, placed and moved by the daemon while you watch the queue."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_plugin.testbed.errors import TestbedError
from slurm_plugin.testbed.fake_site import fake_nodes
from slurm_plugin.testbed.install import Installation
from slurm_plugin.testbed.testbed import Testbed

_JOB = """\
#!/bin/bash
#HETSCHED --gpu-set={counts} --can-checkpoint
#SBATCH --job-name={name} --output=/dev/null
saved={folder}/$SLURM_JOB_ID.saved
done=$(cat $saved 2>/dev/null || echo 0)
trap 'echo $done >$saved; exit 0' TERM
while [ $done -lt {steps} ]; do sleep 0.1; done=$((done + 1)); done
"""
"""Stands in for training: it does steps, and saves how many when it is told to stop."""

_JOBS = (
    ("wide-1", "8", 80),
    ("wide-2", "4,8", 80),
    ("medium", "4", 80),
    ("late-1", "2,4", 30),
    ("late-2", "1-4", 30),
    ("late-3", "8", 30),
)
_LATE_S = 5.0
_MOST_S = 300.0


def show(installed: Installation, say: Callable[[str], None]) -> None:
    """Bring a small cluster up, run six jobs under `las`, and take it down.

    Raises:
        TestbedError: the daemon died, or the jobs took too long.
    """
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        folder = Path(name)
        cluster = Testbed.create(installed, folder / "slurm", fake_nodes(3))
        try:
            say("bringing up three nodes: a100:4, v100:8, t4:4")
            cluster.up()
            with _daemon(cluster, folder) as daemon:
                _watch(cluster, folder, daemon, say)
        finally:
            cluster.down()
    say("all done; the testbed is down")


@contextmanager
def _daemon(cluster: Testbed, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        *(sys.executable, "-m", "slurm_plugin.cli.hetschedd", "--mode=enforce", "--policy=las"),
        *("--partitions=gpu", "--cycle-s=0.3", "--round-s=4"),
        *(f"--database={folder}/decisions.duckdb", f"--socket={folder}/hetschedd.sock"),
        # The testbed's KillWait; the jobs need less.
        "--grace-s=10",
    ]
    # What it does goes to the terminal, between the pictures of the queue.
    with subprocess.Popen(command, env=os.environ | cluster.environment()) as daemon:
        try:
            yield daemon
        finally:
            daemon.terminate()


def _watch(
    cluster: Testbed, folder: Path, daemon: subprocess.Popen[bytes], say: Callable[[str], None]
) -> None:
    # Until the nodes are held Slurm starts what it likes.
    while "State=ACTIVE" not in cluster.command("scontrol", "show", "reservation"):
        _check(daemon)
        time.sleep(0.2)
    begun = time.monotonic()
    waiting = list(_JOBS)
    shown = ""
    while True:
        late = time.monotonic() - begun > _LATE_S
        while waiting and (late or not waiting[0][0].startswith("late")):
            _submit(cluster, folder, *waiting.pop(0))
        queue = cluster.command("squeue", "--format=%.5i %.8j %.10T %.4D %.10b %.8N %r")
        if queue != shown:
            say(f"\n{time.monotonic() - begun:.0f} s\n{queue.rstrip()}")
            shown = queue
        _check(daemon)
        if time.monotonic() - begun > _MOST_S:
            raise TestbedError(f"the jobs have not ended within {_MOST_S:g} s")
        if not waiting and queue.count("\n") <= 1:
            return
        time.sleep(0.5)


def _check(daemon: subprocess.Popen[bytes]) -> None:
    if daemon.poll() is not None:
        raise TestbedError("the daemon has ended before the jobs; it says above why")


def _submit(cluster: Testbed, folder: Path, name: str, counts: str, steps: int) -> None:
    script = folder / f"{name}.sh"
    script.write_text(_JOB.format(name=name, counts=counts, steps=steps, folder=folder))
    cluster.command("sbatch", script)
