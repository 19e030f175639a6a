"""Why a job waits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class Horizon(StrEnum):
    """What a reason means for the job that waits."""

    NEVER = "never"
    NOT_YET = "not yet"
    BEHIND = "behind"


class ReasonCode(Enum):
    """The reasons a policy or the cluster can give: a word, its horizon, and its sentence."""

    NEVER_FITS = ("never_fits", Horizon.NEVER, "no accepted GPU count fits this cluster")
    NODES_DOWN = ("nodes_down", Horizon.NOT_YET, "the nodes it fits on are down or drained")
    CLOSED = ("closed", Horizon.NOT_YET, "its nodes are closed to it")
    NO_ROOM = ("no_room", Horizon.NOT_YET, "too few GPUs are free where it fits")
    NO_CPUS = (
        "no_cpus",
        Horizon.NOT_YET,
        "GPUs are free where it fits, and too few CPUs or too little memory beside them",
    )
    AHEAD = ("ahead", Horizon.BEHIND, "jobs ahead of it in the queue go first")
    BELOW_WINDOW = ("below_window", Horizon.BEHIND, "it is behind the service window")
    PRICE = ("price", Horizon.NOT_YET, "no placement pays at the present prices")
    PROFILING = ("profiling", Horizon.NOT_YET, "its speed is being measured first")
    RESTARTING = ("restarting", Horizon.NOT_YET, "it is being moved")
    GRACE = ("grace", Horizon.NOT_YET, "its GPUs are being vacated by another job")
    PLACED = ("placed", Horizon.NOT_YET, "its GPUs are kept for it, and Slurm has yet to start it")
    HELD = ("held", Horizon.NOT_YET, "its user, an admin or Slurm holds it")
    DEPENDENCY = ("dependency", Horizon.NOT_YET, "a job it depends on has not ended")
    BEGIN = ("begin", Horizon.NOT_YET, "its user lets it start later")
    INVALID_PLAN = ("invalid_plan", Horizon.NOT_YET, "what was planned for it breaks a rule")
    REFUSED = (
        "refused",
        Horizon.NOT_YET,
        "Slurm did not take its last placement, or would take none",
    )
    DEPENDENCY_NEVER = (
        "dependency_never",
        Horizon.NEVER,
        "a job it depends on has not ended as it must; cancel it, or change the dependency",
    )
    QUOTA = ("quota", Horizon.NOT_YET, "a limit of its account, QOS or array is reached")
    LICENSES = ("licenses", Horizon.NOT_YET, "licenses that it asks for are in use")
    NOT_PLANNED = ("not_planned", Horizon.NOT_YET, "no policy is asked about it")
    NOT_STARTED = ("not_started", Horizon.NOT_YET, "Slurm does not start it")
    SUSPENDED = ("suspended", Horizon.NOT_YET, "it is suspended in Slurm, and keeps its GPUs")

    def __init__(self, word: str, horizon: Horizon, sentence: str) -> None:
        """Keep the three parts under their names."""
        self.word = word
        self.horizon = horizon
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits: a code, the jobs it is behind where that is known, and free detail."""

    code: ReasonCode
    behind: tuple[str, ...] = ()
    detail: str = ""

    def __str__(self) -> str:
        """Return a sentence for a user."""
        text = f"{self.code.horizon.value}: {self.code.sentence}"
        if self.behind:
            text += f" ({', '.join(self.behind)})"
        return f"{text}: {self.detail}" if self.detail else text
