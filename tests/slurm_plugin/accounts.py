"""What Slurm's own records say of the runs of jobs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from ClusterShell.NodeSet import NodeSet

from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.jobs import deadline

UNTOLD = "Unknown"
"""The end of a run of which the records know no end yet."""


@dataclass(frozen=True, slots=True)
class Accounted:
    """A run of a job in Slurm's own records; `job` is its id as squeue writes it."""

    state: str
    nodes: frozenset[str]
    gpus: int
    start: str
    end: str
    restarts: int
    job: str = ""
    partition: str = ""
    cpus: int = 0
    memory_mb: int = 0

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return (
            datetime.fromisoformat(self.end) - datetime.fromisoformat(self.start)
        ).total_seconds()


def recorded(cluster: Testbed, *which: str) -> dict[str, list[Accounted]]:
    """What sacct says now of the runs of the jobs that its options choose, by their own ids."""
    text = cluster.command(
        *("sacct", "-X", "-D", "-n", "-P", "--noconvert", *which),
        "--format=JobIDRaw,State,NodeList,AllocTRES,Start,End,Restarts,JobID,Partition",
    )
    found: dict[str, list[Accounted]] = defaultdict(list)
    for line in text.splitlines():
        own, state, nodes, tres, start, end, restarts, job, partition = line.split("|")
        names = frozenset(NodeSet(nodes)) if "None" not in nodes else frozenset()
        counts = dict(part.split("=") for part in tres.split(",") if part)
        row = Accounted(
            *(state, names, int(counts.get("gres/gpu", 0)), start, end, int(restarts or 0)),
            *(job, partition, int(counts.get("cpu", 0)), int(counts.get("mem", "0").rstrip("M"))),
        )
        found[own].append(row)
    return found


def accounted(testbed: Testbed, jobs: list[str]) -> dict[str, Accounted]:
    """What sacct says of the last run of jobs, once it knows of the end of all of them."""
    return {job: rows[-1] for job, rows in accounted_runs(testbed, jobs).items()}


def accounted_runs(testbed: Testbed, jobs: list[str]) -> dict[str, list[Accounted]]:
    """What sacct says of all runs of jobs, once it knows of the end of all of them."""
    latest = deadline(20)
    while True:
        found = recorded(testbed, f"--jobs={','.join(jobs)}")
        known = len(found) == len(jobs)
        if known and all(row.end != UNTOLD for rows in found.values() for row in rows):
            return {job: sorted(rows, key=lambda row: row.restarts) for job, rows in found.items()}
        assert time.monotonic() < latest, f"sacct lacks jobs: {found}"
        time.sleep(0.3)


def most_at_once(
    rows: Sequence[Accounted], held_by: Callable[[Accounted], int] = attrgetter("gpus")
) -> int:
    """The greatest number of GPUs, or of something else, that rows hold at the same time."""
    events = sorted(
        event
        for row in rows
        for event in ((row.start, 1, held_by(row)), (row.end, 0, -held_by(row)))
    )
    held = most = 0
    for _, _, change in events:
        held += change
        most = max(most, held)
    return most
