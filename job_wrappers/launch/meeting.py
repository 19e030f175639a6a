"""Where the workers of a run meet: the address of the first node and a free port on it."""

from __future__ import annotations

import re
import socket
import subprocess

FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Below the ports that Linux gives to outgoing connections, so that none of them takes ours."""


def address_of(node: str) -> str:
    """Return the address under which Slurm reaches a node; its name where Slurm does not tell.

    A node's name need not be known to anybody but Slurm.
    """
    try:
        said = subprocess.run(
            ["scontrol", "-o", "show", "node", node], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return node
    found = re.search(r"\bNodeAddr=(\S+)", said.stdout)
    return found[1] if found else node


def free_port(job: str, run: int) -> int:
    """Return a port that nobody listens on here, another one for each job and run to begin with.

    Raises:
        OSError: there is none.
    """
    number = sum(int(digits) for digits in re.findall(r"\d+", job))
    ports = LAST_PORT - FIRST_PORT
    for step in range(ports):
        port = FIRST_PORT + (number * 16 + run + step) % ports
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port from {FIRST_PORT} to {LAST_PORT}")
