"""What the loop is told. Each setting is declared once: type, default, bounds and meaning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from signal import Signals

from ClusterShell.NodeSet import NodeSetException

from hetsched_core.costs import RestartCost
from hetsched_core.errors import InputError
from hetsched_core.types import Round, Shape
from hetsched_core.values.settings import check_bounds, setting
from slurm_plugin.backend.gres import node_names
from slurm_plugin.daemon.spool.moves import account_of

LIVE_SHAPES = frozenset({Shape.SINGLE_NODE, Shape.EVEN})
"""The shapes that one Slurm job takes exactly: one node, or the same count on several."""

DAY_S = 86_400.0


class JobSelection(StrEnum):
    """Which jobs are placed on the managed nodes: all, or those with a requirement set."""

    ALL = "all"
    MARKED = "marked"


class DaemonMode(StrEnum):
    """Whether plans are carried out, or only made and recorded."""

    SHADOW = "shadow"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings(RestartCost):
    """What the loop needs to know of the site. Names that end in _s are seconds."""

    partitions: frozenset[str] = setting(
        frozenset(), "partitions whose nodes are managed, with every job that wants them"
    )
    nodes: str = setting(
        "", "nodes that are managed beside those of `partitions`, such as n[0-3],n7"
    )
    jobs: JobSelection = setting(
        JobSelection.ALL,
        "which jobs are placed on the managed nodes: all that want them, or, for a pilot, those "
        "with a requirement set alone",
    )
    round_s: float = setting(360.0, "length of a scheduling round", least=1.0, most=DAY_S)
    restart_cost_s: float = setting(
        10.0,
        "time without progress that is expected at each start of a job but its first",
        least=0.0,
        most=DAY_S,
    )
    grace_s: float = setting(
        30.0, "how long a stopped run is expected to keep its GPUs", least=0.0, most=DAY_S
    )
    move_without_checkpoint: bool = setting(
        False,
        "whether jobs that nobody says can save their state (--can-checkpoint, --signal, a "
        "checkpoint in the spool) are stopped and moved, too, and then begin anew",
    )
    checkpoint_signal: str = setting(
        "",
        "signal that a job without a --signal of its own gets before it is stopped, for example "
        "USR1, to its script and all steps; empty for none",
    )
    checkpoint_wait_s: float = setting(
        60.0,
        "how long a job that has got a signal may take before it is stopped; 0: no signals",
        least=0.0,
        most=DAY_S,
    )
    start_timeout_s: float = setting(
        30.0,
        "a job that has not started so long after it was placed gives its place back",
        least=5.0,
        most=DAY_S,
    )
    slack_s: int = setting(
        60,
        "how long the managed nodes stay held without a daemon; Slurm then schedules them by "
        "itself",
        least=20,
        most=DAY_S,
    )
    hold_denies: str = setting(
        "daemon",
        "a user that exists wherever Slurm runs and submits nothing: the reservation that holds "
        "the nodes is open to all but this one. Where Slurm enforces associations it needs one",
    )
    spool: Path | None = setting(
        None,
        "the spool directory, in which jobs tell how fast and how far they are, and are told why "
        "they were moved; without one speeds are assumed and nothing is measured",
    )
    spool_s: float = setting(
        10.0, "time from one look at the spool to the next", least=0.1, most=DAY_S
    )
    spool_most_s: float = setting(
        0.2, "how long a cycle may read in the spool, roughly", least=0.01, most=60.0
    )
    keep_decisions: int = setting(
        10_000, "how many decisions are kept, the latest ones", least=0, most=10**9
    )
    keep_decisions_mib: int = setting(
        256, "how many MiB the records of decisions may take", least=1, most=10**6
    )
    seed: int = setting(0, "for policies that draw random numbers", least=0, most=2**32 - 1)

    def __post_init__(self) -> None:
        """Refuse what no daemon can work with."""
        if not all(self.partitions):
            raise InputError("a partition's name is empty; name those to manage")
        try:
            named = self.node_names
        except (NodeSetException, AssertionError) as error:
            raise InputError(
                f"nodes = {self.nodes!r} is no list of nodes, such as n[0-3],n7: {error}"
            ) from None
        if not (self.partitions or named):
            raise InputError('nothing to manage; name partitions, or nodes: partitions = ["gpu"]')
        check_bounds(self)
        if self.spool == Path():
            raise InputError('spool = "" is no directory; write "none" to do without one')
        if account_of(self.hold_denies) is None:
            raise InputError(
                f"hold_denies = {self.hold_denies!r} is no user of this machine (Slurm was not "
                "asked); name one that exists on all of Slurm's machines and submits nothing, "
                "for example daemon"
            )
        name = self.checkpoint_signal
        if name and (f"SIG{name}" not in Signals.__members__ or name in {"KILL", "STOP"}):
            raise InputError(
                f"checkpoint_signal = {name!r} is no signal on which a job could save its state; "
                "write for example USR1"
            )

    @property
    def node_names(self) -> frozenset[str]:
        """The nodes that `nodes` names."""
        return frozenset(node_names(self.nodes))


def round_of(now: float, settings: DaemonSettings) -> Round:
    """Return the round of the grid in which a time (seconds UTC) lies."""
    index = math.floor(now / settings.round_s)
    return Round(index, index * settings.round_s, (index + 1) * settings.round_s)
