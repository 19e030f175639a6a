"""Where the workers of a run meet: the address of the first node and a free port on it."""

from __future__ import annotations

import random
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


def is_free(port: int) -> bool:
    """Whether nobody listens on a port here."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_port(chance: random.Random) -> int:
    """Return a port that nobody listens on here, searched for from anywhere.

    Nobody holds it until rank 0 listens there, some seconds later: so that jobs that begin at the
    same time do not all find the same one, each looks somewhere else.

    Raises:
        OSError: there is none.
    """
    ports = LAST_PORT - FIRST_PORT
    begin = chance.randrange(ports)
    for step in range(ports):
        port = FIRST_PORT + (begin + step) % ports
        if is_free(port):
            return port
    raise OSError(f"no free port from {FIRST_PORT} to {LAST_PORT}")
