"""What the daemon is told."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched_core.errors import InputError
from hetsched_core.types import Shape

LIVE_SHAPES = frozenset({Shape.SINGLE_NODE, Shape.EVEN})
"""The shapes that one Slurm job takes exactly: one node, or the same count on several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """Times are seconds.

    Attributes:
        partitions: the partitions whose marked jobs are managed.
        round_s: length of a scheduling round.
        restart_cost_s: time without progress that is expected at each start of a job but its first.
        grace_s: how long a stopped run is expected to keep its GPUs.
        start_timeout_s: a job that has not started so long after it was placed is parked again.
        slack_s: how far ahead the begin time of a waiting job is kept; if the daemon stays away for
            longer, Slurm starts the job by itself.
        seed: for policies that draw random numbers.
    """

    partitions: frozenset[str]
    round_s: float = 360.0
    restart_cost_s: float = 10.0
    grace_s: float = 30.0
    start_timeout_s: float = 30.0
    slack_s: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what no daemon can work with."""
        if not self.partitions:
            raise InputError("no partition to manage; name at least one")
        for name, least in (
            ("round_s", 1.0),
            ("restart_cost_s", 0.0),
            ("grace_s", 0.0),
            ("start_timeout_s", 5.0),
            ("slack_s", 20),
        ):
            value = getattr(self, name)
            if not least <= value <= 86_400:
                raise InputError(f"{name}={value} is not within {least:g} and 86400 seconds")
