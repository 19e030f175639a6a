"""What a simulated run costs beside its work: restarts, switches, rounds, decisions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from hetsched_core.values.settings import check_bounds, setting

if TYPE_CHECKING:
    # For the command line's help alone numpy is not imported.
    from hetsched_core.types import Configuration

DAY_S = 86_400.0


class ExecutorKind(StrEnum):
    """What runs training tasks on a GPU, one after another.

    What a GPU loses when its next training task is of another job than its last: Hare, HPDC '22,
    table 3 (the same in TCC 2024, table III), mean switching times of eight models under Hare's
    executor, under PipeSwitch and with a new process for each task. The papers do not say on which
    GPU, so the times hold for all.
    """

    HARE = "hare"
    PIPESWITCH = "pipeswitch"
    NEW_PROCESS = "new-process"

    def switch_s(self, profile: str) -> float:
        """Return the seconds until a task of this profile begins to train.

        Of a model that the table does not have, the longest there is.
        """
        column = list(ExecutorKind).index(self)
        name = re.sub(r"[^a-z0-9]", "", profile.lower())
        own = [row[column] for model, row in _TABLE_MS.items() if name.startswith(model)]
        return (own or [max(row[column] for row in _TABLE_MS.values())])[0] / 1000.0


_TABLE_MS: Mapping[str, tuple[float, float, float]] = {
    "vgg19": (2.77, 4.01, 3288.94),
    "resnet50": (2.04, 4.75, 5961.16),
    "inceptionv3": (2.46, 5.03, 7807.43),
    "bertbase": (5.03, 12.57, 9016.99),
    "transformer": (5.79, 10.34, 5257.17),
    "deepspeech": (4.27, 8.91, 5125.64),
    "fastgcn": (1.83, 2.86, 5327.24),
    "graphsage": (0.96, 2.42, 5213.54),
}
"""Milliseconds with Hare's executor, PipeSwitch, a new process, by letters and digits of names."""


class RestartCost:
    """What a restart costs, for all settings that say `restart_cost_s`: simulated and live ones."""

    __slots__ = ()
    restart_cost_s: float

    def restart_s(self, own_s: float | None) -> float:
        """Return the seconds without progress that policies expect of a restart, wherever it is.

        `own_s` is what the job itself says of its restarts, if anything.
        """
        return self.restart_cost_s if own_s is None else own_s

    def restart_on_s(self, own_s: float | None, target: Configuration) -> float:
        """Return the seconds for which a restart on `target` makes no progress.

        Every target costs the same so far.
        """
        return self.restart_s(own_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs(RestartCost):
    """The costs and the grid of a simulation, declared once. Names that end in _s are seconds."""

    round_s: float = setting(
        360.0, "length of a scheduling round, of policies that work in rounds", least=1e-3, most=1e7
    )
    restart_cost_s: float = setting(
        10.0, "without progress at each start of a job but its first", least=0.0, most=DAY_S
    )
    switch: ExecutorKind | float = setting(
        ExecutorKind.HARE,
        "without progress where a GPU's next training task is of another job than its last; or the "
        "executor that runs them, with the times of the paper: hare, pipeswitch, new-process",
        least=0.0,
        most=DAY_S,
    )
    grace_s: float = setting(
        0.0, "for which a stopped job keeps its GPUs to save its state", least=0.0, most=DAY_S
    )
    checkpoint_s: float = setting(
        1800.0,
        "between periodic checkpoints, of which a failure loses the last part",
        least=1.0,
        most=math.inf,
    )
    decision_s: float = setting(
        0.0, "from asking a policy until what it decides takes effect", least=0.0, most=DAY_S
    )

    def __post_init__(self) -> None:
        """Refuse times that no simulation can use."""
        check_bounds(self)
