"""The ranks that are started here, and the address at which all ranks of a run connect.

A run may reach over several elements of a Slurm array (docs/live/shapes.md). Every element has its
own batch script and its own launcher, and each asks Slurm the same: which elements run, where, and
since when. So all come to the same ranks and the same meeting place without a word to each other.
The script of each goes on only once all have started.
"""

from __future__ import annotations

import random
import re
import shutil
import socket
import time
from collections.abc import Mapping
from typing import Callable

from job_wrappers.allocation import Allocation
from job_wrappers.launch.part import PART, RunPart
from job_wrappers.launch.workers import say
from job_wrappers.slurm import address_of, ask

PATIENCE_S = 600.0
"""For how long Slurm is asked again that does not answer: slurmctld may be starting anew."""

FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Below the ports that Linux gives to outgoing connections, so that none of them takes ours."""

_AGAIN_S = 5.0

_RUNNING = re.compile(r"(\d+)\|(\d+)\|\S*?gpu[:=](?:[^:=,|]+[:=])?(\d+)\|(\S+)\|(\S+)")


class GivenUpError(Exception):
    """Slurm did not answer before this run was told to stop."""


def own_part(
    allocation: Allocation,
    environment: Mapping[str, str],
    meet: str,
    told_to_stop: Callable[[], bool],
) -> RunPart:
    """Return what this element has of its run.

    Args:
        allocation: what it holds.
        environment: of this element; names the others, where there are any.
        meet: where srun has started this launcher, ADDRESS:PORT of rank 0; else "".
        told_to_stop: whether there is nothing to ask for any more.

    Raises:
        ValueError: Slurm does not tell which elements run, for `PATIENCE_S`.
        GivenUpError: this run is to stop, and Slurm has not answered yet.
    """
    if "HETSCHED_ELEMENTS" in environment:
        if PART in environment:
            return RunPart.of(environment[PART])
        array = environment.get("SLURM_ARRAY_JOB_ID", "")
        squeue = ("squeue", "-hr", "--states=R", f"--jobs={array}", "--format=%K|%D|%b|%N|%S")
        rows = _running(_ask(told_to_stop, *squeue), environment.get("SLURM_ARRAY_TASK_ID") or "")
        if len(rows) > 1:
            return _part_among(rows, environment, told_to_stop)
    if not meet:
        alone = allocation.node_count == 1
        address = "127.0.0.1" if alone else address_of(allocation.host)
        meet = f"{address}:{free_port(random.SystemRandom())}"
    return RunPart(0, 0, allocation.gpus, allocation.node_count, meet)


_Row = tuple[int, int, int, str, str]
"""Of an element: its number, nodes, GPUs on each, the nodes' names, and when it began."""


def _running(said: str, me: str) -> list[_Row]:
    """Return the elements that squeue shows, in order."""
    rows = sorted(
        (int(found[1]), int(found[2]), int(found[3]), found[4], found[5])
        for found in map(_RUNNING.fullmatch, said.split())
        if found
    )
    if me not in {str(row[0]) for row in rows}:
        raise ValueError(f"Slurm does not show element {me} as running, but:\n{said}")
    return rows


def _part_among(
    rows: list[_Row], environment: Mapping[str, str], told_to_stop: Callable[[], bool]
) -> RunPart:
    # Of the same run all elements know when its leader began. Where something listens there by
    # chance, the leader has itself queued again, and the next run meets somewhere else.
    _, _, _, nodes, start = rows[0]
    ports = random.Random(f"{environment.get('HETSCHED_NONCE', '')} {start}")
    first = _ask(told_to_stop, "scontrol", "show", "hostnames", nodes).split()
    meet = f"{address_of(first[0] if first else nodes)}:{ports.randrange(FIRST_PORT, LAST_PORT)}"
    before = [row for row in rows if row[0] < int(environment["SLURM_ARRAY_TASK_ID"])]
    return RunPart(
        sum(row[1] * row[2] for row in before),
        sum(row[1] for row in before),
        sum(row[1] * row[2] for row in rows),
        sum(row[1] for row in rows),
        meet,
    )


def _ask(told_to_stop: Callable[[], bool], *command: str) -> str:
    """Return what a command of Slurm's says, asked again while it fails."""
    until_s, told = time.monotonic() + PATIENCE_S, False
    while True:
        said, problem = ask(*command)
        if not problem:
            return said
        there = shutil.which(command[0]) is not None
        if there and told_to_stop():
            raise GivenUpError(f"{command[0]}: {problem}")
        if not there or time.monotonic() >= until_s:
            raise ValueError(f"{command[0]}: {problem}")
        if not told:
            told = True
            say(f"{command[0]}: {problem}; asked again for {PATIENCE_S:g} s")
        again_s = time.monotonic() + _AGAIN_S
        while time.monotonic() < again_s and not told_to_stop():
            time.sleep(min(0.1, _AGAIN_S))


def is_free(port: int) -> bool:
    """Whether nothing listens on a port here."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_port(chance: random.Random) -> int:
    """Return a port that nothing listens on here, searched for from anywhere.

    It is not held until rank 0 listens there, some seconds later: so that jobs that begin at the
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
