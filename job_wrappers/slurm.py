"""What a job asks Slurm by its commands."""

from __future__ import annotations

import re
import subprocess


def ask(*command: str) -> tuple[str, str]:
    """Return what a command of Slurm's says, and why it failed; "" where it did not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    problem = done.stderr.strip() or f"it ended with {done.returncode}"
    return done.stdout.strip(), problem if done.returncode else ""


def gpu_type_of(node: str) -> str | None:
    """Return the type of a node's GPUs; None where it has none, or Slurm does not answer."""
    return _of_node(node, r"Gres=\S*?gpu:([^:,()\s]+):\d")


def address_of(node: str) -> str:
    """Return the address under which Slurm reaches a node; its name where Slurm does not tell.

    A node's name need not be known to anything but Slurm.
    """
    return _of_node(node, r"\bNodeAddr=(\S+)") or node


def _of_node(node: str, pattern: str) -> str | None:
    said, _ = ask("scontrol", "-o", "show", "node", node)
    found = re.search(pattern, said)
    return found[1] if found else None


def requeue(job: str) -> str:
    """Queue a stopped job again; return in words what came of it.

    Where a job was stopped by a requeue, a cancellation or its time limit, what becomes of it is
    decided: Slurm then shows it as running no more, and it is left alone. Asked to, Slurm would
    start even a cancelled job again.
    """
    state, _ = ask("squeue", "--noheader", f"--jobs={job}", "--format=%T")
    if state != "RUNNING":
        return f"Slurm shows the job as {state or 'gone'}; what becomes of it is decided elsewhere"
    _, problem = ask("scontrol", "requeue", job)
    return f"the job could not be queued again: scontrol: {problem}" if problem else "queued again"
