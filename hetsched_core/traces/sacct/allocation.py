"""One run of one job, as Slurm's accounting shows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

GpuCounts = tuple[tuple[str | None, int], ...]
"""(GPU type, number of GPUs) pairs; the type is None where the log does not name one."""


class LoggedState(StrEnum):
    """State of a job in accounting, in Slurm's own words (sacct(1), "JOB STATE CODES").

    REQUEUED ends a run whose End is the time of the requeue call, not the time when the GPUs were
    free. RESIZING ends a row, not a run: the next row of the job goes on with other GPUs.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    CONFIGURING = "CONFIGURING"
    COMPLETING = "COMPLETING"
    RESIZING = "RESIZING"
    REQUEUED = "REQUEUED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    PREEMPTED = "PREEMPTED"
    NODE_FAIL = "NODE_FAIL"
    BOOT_FAIL = "BOOT_FAIL"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    DEADLINE = "DEADLINE"
    REVOKED = "REVOKED"
    UNKNOWN = "UNKNOWN"

    @property
    def is_final(self) -> bool:
        """Whether a row in this state has an End."""
        return self not in _OPEN


_OPEN = frozenset(
    {
        LoggedState.PENDING,
        LoggedState.RUNNING,
        LoggedState.SUSPENDED,
        LoggedState.CONFIGURING,
        LoggedState.COMPLETING,
        LoggedState.UNKNOWN,
    }
)


class Doubt(StrEnum):
    """What is not certain about an allocation that can be used all the same."""

    STILL_RUNNING = "no end: it was running when the log was written"
    PAST_TIME_LIMIT = "no end and past its time limit: perhaps a runaway"
    RUNAWAY = "no end, though its job id ran again later"
    STATE = "the state does not fit the times"
    UNKNOWN_STATE = "the state is unknown"
    ELAPSED = "End - Start is not Elapsed + Suspended"
    REQUEUE = "End is the time of the requeue call, the GPUs were free later"
    CLOCK_CHANGE = "a time in the hour that a clock change repeats could be either"
    REPAIRED = "a name held the delimiter and was put together again"
    LAST_LINE = "the last line has no line break and may be cut off"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAllocation:
    """GPUs that one run of one job held.

    Times are seconds UTC since the epoch, durations seconds, memory MiB of the whole job. What
    the log does not say is None (text: empty). A job that was requeued or resized has several
    allocations with one `job_id`; `link_runs` puts them in order.

    Attributes:
        job_id: The id as displayed: `123`, `123_4` (array task), `123+1` (heterogeneous job);
            `parse_job_id` takes it apart.
        job_id_raw: The number that Slurm itself uses: task 83_3 may be job 83.
        submit_s: When this run was submitted; a requeue submits anew.
        end_s: None while the job runs (or where Slurm lost its end).
        elapsed_s: Time on the GPUs without suspensions; up to the log's own time where there is
            no end.
        suspended_s: Time for which the job was suspended between start and end.
        time_limit_s: None where it has none or the log does not tell.
        nodes: Node names, expanded and sorted.
        gpus: What it held over all nodes; no GPU is counted twice.
        requested_gpus: What it asked for.
        restarts: How often Slurm restarted the job before this run.
        doubts: What is not certain.
        line: Where it stands: line of a text, record of a JSON log, from 1.
    """

    job_id: str
    job_id_raw: str = ""
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    state: LoggedState
    submit_s: float
    eligible_s: float | None = None
    start_s: float
    end_s: float | None
    elapsed_s: float | None = None
    suspended_s: float | None = None
    time_limit_s: float | None = None
    nodes: tuple[str, ...] = ()
    n_nodes: int | None = None
    cpus: int | None = None
    memory_mb: float | None = None
    gpus: GpuCounts
    requested_gpus: GpuCounts = ()
    restarts: int | None = None
    doubts: tuple[Doubt, ...] = ()
    line: int = 0

    @property
    def gpu_count(self) -> int:
        """Number of GPUs, of all types."""
        return sum(count for _, count in self.gpus)
