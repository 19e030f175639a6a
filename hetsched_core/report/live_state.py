"""What the page of a running system is made from: its present state, and readings of its past.

Whoever runs the system fills these in; all of them are plain values that JSON can hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hetsched_core.measures.accounts import AccountNow

LEVELS = "0123456789abcdef"
"""Shares of a node's GPUs in use, in fifteenths, as one character each."""

CLOSED = "x"
"""In the place of a level: the node is closed and nothing runs on it."""

UNKNOWN = "-"
"""In the place of a level: the node was not there."""


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node now: GPUs held by managed jobs, foreign (other jobs'), closed or idle."""

    name: str
    gpu_type: str
    condition: str
    held: int
    foreign: int
    closed: int
    idle: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """A managed job now.

    Attributes:
        job: its id.
        user: who submitted it.
        name: its name, which is whatever its user has typed.
        partition: its partition.
        accepts: the GPU counts that it accepts.
        since_s: when it took its GPUs; of a waiting job, when it was submitted (UTC).
        waited_s: for how long it was eligible and did not run.
        restarts: how often it was started again.
        gpus: how many it runs on, 0 while it waits.
        where: the nodes that it runs on, "" while it waits.
        reason: the word of why it waits, or where it is to start or placed; "" if it runs.
        planned_s: when it is to start by the plan, None if the plan does not say.
    """

    job: str
    user: str
    name: str
    partition: str
    accepts: str
    since_s: float
    waited_s: float = 0.0
    restarts: int = 0
    gpus: int = 0
    where: str = ""
    reason: str = ""
    planned_s: float | None = None


@dataclass(frozen=True, slots=True)
class GpusOverTime:
    """(R,) GPUs of one type at each reading: held, foreign, closed, idle."""

    held: tuple[int, ...]
    foreign: tuple[int, ...]
    closed: tuple[int, ...]
    idle: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """R readings of the past, oldest first.

    Attributes:
        step_s: from one reading to the next, where none is missing.
        keep_s: for how long readings are kept.
        at_s: (R,) seconds UTC, rising.
        gpus: GPU type -> GPUs over time.
        running: (R,) managed jobs that run.
        waiting: (R,) all others, with those that are placed.
        plan_s: (R,) the longest time that a plan took since the reading before; None without one.
        nodes: node -> a character for each reading: one of `LEVELS`, `CLOSED` or `UNKNOWN`.
    """

    step_s: float
    keep_s: float
    at_s: tuple[float, ...] = ()
    gpus: Mapping[str, GpusOverTime]
    running: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    plan_s: tuple[float | None, ...] = ()
    nodes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """The running system at `at_s`, as it may be shown to everybody. Times are seconds UTC.

    Attributes:
        at_s: when Slurm was read.
        up_since_s: when the daemon began.
        policy: which policy schedules.
        mode: `shadow` or `enforce`.
        away: what was said if Slurm does not answer; "" if it does.
        plan_s: when the plan in force was made, None before the first.
        decisions: how many plans were made.
        private_jobs: whether jobs are left out because each is its user's business.
        nodes: all nodes, in the cluster's order.
        running_jobs: how many jobs run.
        waiting_jobs: how many do not, with those that are placed.
        longest_wait_s: of those that wait now; None where jobs are private.
        reasons: word of a reason -> how many jobs wait for it.
        running: jobs that run, in the order of submission, up to some number.
        waiting: jobs that do not, likewise.
        accounts: accounts and then users, those that hold most first, up to some number of each.
        past: the readings.
    """

    at_s: float
    up_since_s: float
    policy: str
    mode: str
    away: str
    plan_s: float | None
    decisions: int
    private_jobs: bool
    nodes: tuple[LiveNode, ...]
    running_jobs: int
    waiting_jobs: int
    longest_wait_s: float | None = None
    reasons: Mapping[str, int]
    running: tuple[LiveJob, ...]
    waiting: tuple[LiveJob, ...]
    accounts: tuple[AccountNow, ...] = ()
    past: Past
