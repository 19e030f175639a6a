"""Spans in which nodes are closed to our jobs, and what that means for a job now."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hetsched_core.errors import InputError
from hetsched_core.types.cluster import Configuration
from hetsched_core.types.job import Job


@dataclass(frozen=True, slots=True)
class Window:
    """Nodes that are closed to our jobs from `from_s` until `until_s` (UTC).

    Maintenance, and what else is reserved for others. `name` is what users are told. Before one
    that is `strict` nothing starts whose limit reaches into it, even if it can be moved (as before
    Slurm's reservations for maintenance).
    """

    nodes: frozenset[str]
    from_s: float
    until_s: float
    name: str = ""
    strict: bool = False

    def __post_init__(self) -> None:
        """Refuse a span that is none."""
        if not self.from_s < self.until_s or math.isinf(self.from_s):
            raise InputError(
                f"window {self.name!r} is from {self.from_s:.0f} s to {self.until_s:.0f} s; "
                "it has to end after it begins"
            )


@dataclass(frozen=True, slots=True)
class Closed:
    """What is closed to a job: `nodes` now, and at least up to `until_s` (UTC) just these."""

    nodes: frozenset[str] = frozenset()
    until_s: float = math.inf


OPEN = Closed()
"""No node is closed, nor will be."""


def closed_to(
    job: Job,
    runs: Iterable[tuple[Configuration, float]],
    windows: Sequence[Window],
    now: float,
    lead_s: float,
) -> Closed:
    """Return the nodes that windows close to a job now.

    A job may start on a node if its time limit ends before the node's window begins. One that can
    be moved (preemptible) may do so until `lead_s` before that, whatever its limit, unless the
    window is strict; from then on it has to leave, unless its limit, counted from its start, ends
    in time. One that cannot be moved stays where it runs.

    Args:
        job: with its time limit, though a policy may not know of it.
        runs: what it holds and has not been told to leave, with the time at which it took that.
        windows: all there are.
        now: seconds UTC.
        lead_s: how long before a window a run is told to leave, so that it has left in time.
    """
    limit_s = math.inf if job.time_limit_s is None else job.time_limit_s
    nodes: set[str] = set()
    held = tuple(runs)
    changes = math.inf
    for window in windows:
        if window.until_s <= now:
            continue
        leave_s = window.from_s - lead_s if job.preemptible else -math.inf
        # Beyond the last instant at which a run that starts then ends in time.
        too_late_s = math.nextafter(window.from_s - limit_s, math.inf)
        closes_s = too_late_s if window.strict else max(leave_s, too_late_s)
        closed = set(window.nodes) if now >= closes_s else set()
        changes = min(changes, window.until_s if closed else closes_s)
        for configuration, since_s in held:
            stays_s = leave_s
            if not job.preemptible:
                stays_s = math.inf
            elif since_s + limit_s <= window.from_s:
                stays_s = max(leave_s, since_s + limit_s)
            here = [name for name, _ in configuration if name in window.nodes]
            if here and now < stays_s:
                closed.difference_update(here)
                changes = min(changes, stays_s)
            elif here:
                closed.update(here)
        nodes |= closed
    return Closed(frozenset(nodes), changes) if changes < math.inf else OPEN
