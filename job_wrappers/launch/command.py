"""The act: allocation, meeting place, environment, workers, end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from job_wrappers.allocation import Allocation
from job_wrappers.guardian import Guardian
from job_wrappers.launch.meeting import GivenUpError, is_free, own_part
from job_wrappers.launch.options import LauncherOptions, own_root, python_path, read_options
from job_wrappers.launch.part import PART, RunPart
from job_wrappers.launch.workers import Step, Watch, say, start
from job_wrappers.outcome import (
    OUTCOME,
    STOPPED,
    tell_heard,
    tell_stopped,
    was_heard,
    was_stopped,
)
from job_wrappers.slurm import gpu_type_of, requeue

SHORT_S = 60.0
"""A run that ends itself sooner than this, to be started again, has come to nothing."""

MOST_SHORT = 5
"""Such a run is not queued again once the job has been so many times."""


_WITHOUT_SLURM = (
    "; to try it on a machine without Slurm: "
    "SLURM_JOB_ID=1 SLURM_GPUS_ON_NODE=1 hetsched-run --no-requeue -- python train.py"
)


def main(words: Sequence[str] | None = None) -> int:
    """Run one run of a job; return its exit code."""
    options = read_options(words, os.environ)
    given = sys.argv[1:] if words is None else list(words)
    # From here on a signal is kept for the workers, and does not end a launcher that has none yet.
    with Watch().listening() as watch:
        try:
            allocation = Allocation.of(os.environ)
            part = own_part(allocation, os.environ, options.meet, watch.told_to_stop)
        except ValueError as error:
            say(f"{error}{'' if os.environ.get('SLURM_JOB_ID') else _WITHOUT_SLURM}")
            return 2
        except GivenUpError as error:
            again = f"; {requeue(allocation.element)}" if options.requeue else ""
            say(f"stopped before Slurm had said which elements run ({error}){again}")
            return STOPPED
        return _run(options, allocation, part, given, watch)


def _run(
    options: LauncherOptions, allocation: Allocation, part: RunPart, words: list[str], watch: Watch
) -> int:
    if options.meet:
        try:
            own = _own_node(allocation, part)
        except ValueError as error:
            say(str(error))
            return 2
        code = _on_node(options, allocation, own, watch)
        if watch.heard:
            tell_heard(os.environ)
        # To srun a node that ends with another code than 0 has failed, and it ends the others.
        return tell_stopped(os.environ, own.first_node) if code == STOPPED else code
    if options.torchrun and (problem := _torch_missing(options.command)):
        say(problem)
        return 2
    if part.first_rank == 0 and not is_free(int(part.port)):
        say(f"another process listens on {part.meet}, where the workers of this run were to meet")
        if options.requeue:
            say(f"the next run meets elsewhere; {requeue(allocation.element)}")
        return STOPPED
    if options.unscaled:
        say(options.unscaled)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hetsched-") as folder:
        outcome = Path(folder) / "outcome"
        os.environ.update(_told(options, allocation, part), **{OUTCOME: str(outcome)})
        if allocation.node_count == 1:
            code = _on_node(options, allocation, _own_node(allocation, part), watch)
        else:
            code = _on_all_nodes(options, words, allocation, part.meet, watch)
        stopped = code == STOPPED or was_stopped(outcome)
        by_itself = not watch.heard and not was_heard(outcome)
    if not stopped:
        return code
    if code not in (0, STOPPED):
        # All ranks had written what they had, or said that they could not, before any of them left.
        say("its session had stopped before that, so this run counts as stopped")
    short = by_itself and time.monotonic() - began_s < SHORT_S
    if options.requeue and short and allocation.run >= MOST_SHORT:
        say(
            f"run {allocation.run} asked within {SHORT_S:g} s to be started again, though no "
            "signal has stopped it; it is not, since that would never end: look why the command "
            f"ends with {STOPPED}"
        )
        return 1
    if options.requeue:
        say(f"stopped; {requeue(allocation.element)}")
    return STOPPED


def run() -> None:
    """Run it as a zip file's main function, of which Python keeps no return value."""
    sys.exit(main())


def _own_node(allocation: Allocation, part: RunPart) -> RunPart:
    """Return what this node has of an element's part."""
    told = os.environ.get("SLURM_NODEID", "0") if allocation.node_count > 1 else "0"
    if not told.isdecimal() or int(told) >= allocation.node_count:
        raise ValueError(
            f"SLURM_NODEID={told}: expected a number from 0 to {allocation.node_count - 1}, which "
            "srun sets; run this in a job, without --meet"
        )
    if not part.port.isdecimal():
        raise ValueError(
            f"--meet {part.meet}: expected ADDRESS:PORT; leave it out, it is set by itself"
        )
    return part.of_node(int(told), allocation.gpus_per_node)


def _on_node(options: LauncherOptions, allocation: Allocation, own: RunPart, watch: Watch) -> int:
    """Run the workers of this node to their end."""
    with closing(Guardian(options.kill_after_s)) as guardian:
        try:
            workers = start(
                own,
                allocation.gpus_per_node,
                options.command,
                os.environ,
                torchrun=options.torchrun,
                logs=options.logs,
                label=allocation.element,
                started=guardian.guard,
            )
        except OSError as error:
            say(f"{error.filename or options.command[0]}: {error.strerror}")
            return 127 if isinstance(error, FileNotFoundError) else 126
        return watch.wait(workers, options.kill_after_s)


def _on_all_nodes(
    options: LauncherOptions, words: list[str], allocation: Allocation, meet: str, watch: Watch
) -> int:
    """Have srun start this launcher once on each node."""
    nodes = str(allocation.node_count)
    # Slurm passes signals to what it has just started, which does not take them yet; one that asks
    # to save would end it, though there is nothing to save so soon.
    deaf = ["/bin/sh", "-c", "trap '' USR1; exec \"$@\"", "hetsched-run"]
    me = [*deaf, sys.executable, str(_own_path()), "--meet", meet]
    srun = [
        *("srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"),
        *("--cpu-bind=none", "--kill-on-bad-exit=1", "--unbuffered"),
    ]
    with closing(Guardian(options.kill_after_s)) as guardian:
        try:
            process = subprocess.Popen([*srun, *me, *words], start_new_session=True)
        except OSError as error:
            say(f"srun: {error.strerror}; it starts the workers on the other nodes")
            return 127
        guardian.guard(process.pid)
        return watch.wait([Step("srun", process, job=allocation.element)], kill_after_s=0.0)


def _own_path() -> Path:
    """Return what Python is given to run this launcher: its zip file, or its folder."""
    root = own_root()
    return root if zipfile.is_zipfile(root) else root / "job_wrappers" / "launch"


def _told(options: LauncherOptions, allocation: Allocation, part: RunPart) -> dict[str, str]:
    """Return what all workers are told by their environment."""
    rate = options.rate.at(part.gpus)
    told = {
        PART: part.text(),
        "HETSCHED_GPUS": str(part.gpus),
        "HETSCHED_NODES": str(part.nodes),
        "HETSCHED_RESTARTS": str(allocation.run),
        "HETSCHED_GPU_TYPE": options.gpu_type or gpu_type_of(allocation.host) or "gpu",
        "HETSCHED_LR_SCALING": options.rate.scaling,
        "PYTHONPATH": python_path(os.environ),
    }
    if rate is not None:
        told["HETSCHED_LEARNING_RATE"] = repr(rate)
    if options.spool is not None:
        told["HETSCHED_SPOOL"] = str(options.spool)
    cpus = os.environ.get("SLURM_CPUS_ON_NODE", "")
    if "OMP_NUM_THREADS" not in os.environ and cpus.isdecimal():
        told["OMP_NUM_THREADS"] = str(max(1, int(cpus) // allocation.gpus_per_node))
    return told


def _torch_missing(command: Sequence[str]) -> str:
    """Return what to say where the Python of a command has no torch; "" where it has."""
    python = command[0] if Path(command[0]).name.startswith("python") else "python3"
    look = "import sys, importlib.util as u; sys.exit(u.find_spec('torch') is None)"
    try:
        absent = subprocess.run([python, "-c", look], timeout=60).returncode != 0
    except (OSError, subprocess.SubprocessError) as error:
        return f"{python}: {error}"
    return f"--torchrun needs torch, which {python} does not have: pip install torch" * absent
