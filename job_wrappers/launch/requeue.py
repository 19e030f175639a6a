"""Has Slurm start a job again that was stopped by nothing but a signal."""

from __future__ import annotations

import subprocess


def state_of(job: str) -> str:
    """Return what Slurm says a job is doing, for example RUNNING; "" if it does not answer."""
    said, _ = _ask("squeue", "--noheader", f"--jobs={job}", "--format=%T")
    return said


def requeue(job: str) -> str:
    """Queue a stopped job again; return in words what came of it.

    Who stops a job by requeuing or cancelling it, or by its time limit, has already said what
    becomes of it: Slurm then shows it as running no more, and it is left alone. Asked to, Slurm
    would start even a cancelled job again.
    """
    state = state_of(job)
    if state != "RUNNING":
        return f"Slurm shows the job as {state or 'gone'}; what becomes of it is decided elsewhere"
    _, problem = _ask("scontrol", "requeue", job)
    return f"the job could not be queued again: {problem}" if problem else "queued again"


def _ask(*command: str) -> tuple[str, str]:
    """Return what a command of Slurm's said, and why it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    problem = done.stderr.strip() or f"{command[0]} ended with {done.returncode}"
    return done.stdout.strip(), problem if done.returncode else ""
