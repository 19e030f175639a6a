"""What a GPU loses when its next training task is of another job than its last.

Source: Hare, HPDC '22, table 3 (the same in TCC 2024, table III): mean switching times of eight
models under Hare's executor, under PipeSwitch and with a new process for each task. The papers do
not say on which GPU, so the times hold for all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum


class Executor(StrEnum):
    """Who runs training tasks on a GPU, one after another."""

    HARE = "hare"
    PIPESWITCH = "pipeswitch"
    NEW_PROCESS = "new-process"

    def switch_s(self, profile: str) -> float:
        """Return the seconds until a task of this profile begins to train.

        Of a model that the table does not have, the longest there is.
        """
        column = list(Executor).index(self)
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
