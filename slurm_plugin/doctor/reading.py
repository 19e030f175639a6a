"""Reads Slurm once by a backend, as a process of its own: `python -m slurm_plugin.doctor.reading`.

A pyslurm that does not fit ends the process that loads it, without a word that could be caught.
"""

from __future__ import annotations

import subprocess
import sys

from hetsched_core.errors import HetschedError
from slurm_plugin.backend import open_backend, settled
from slurm_plugin.daemon.finding import Finding, good, wrong

_PATIENCE_S = 120.0


def backend_finding(configured: str) -> Finding:
    """Return whether the backend of this name reads the nodes and jobs of the Slurm there is."""
    about = "backend"
    try:
        name, no_pyslurm = settled(configured)
    except HetschedError as error:
        return wrong(about, str(error))
    command = [sys.executable, "-m", __name__, name]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return wrong(about, f"{name} has not read Slurm within {_PATIENCE_S:g} s", "try again")
    if done.returncode < 0:
        return wrong(
            about,
            f"{name} ends its process with signal {-done.returncode} as it reads this Slurm",
            'install the pyslurm of Slurm\'s release, or set backend = "commands"',
        )
    if done.returncode:
        # Of a traceback the last line says what it is about.
        return wrong(about, f"{name}: {''.join(done.stderr.splitlines()[-1:])}")
    return good(about, f"{name} reads {done.stdout.strip()}", no_pyslurm)


def main() -> int:
    """Print what the backend that the command line names has read."""
    try:
        state = open_backend(sys.argv[1]).read()
    except HetschedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    gpus = sum(count for node in state.nodes for _, count in node.gpus)
    sys.stdout.write(f"{len(state.nodes)} nodes, {gpus} GPUs, {len(state.jobs)} jobs\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
