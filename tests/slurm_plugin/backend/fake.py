"""A backend for fast tests: it does what it is told, and fails when it is told to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_plugin.backend import (
    BackendError,
    Change,
    HostRequest,
    JobState,
    Resources,
    SlurmJob,
    SlurmSite,
    SlurmState,
)

PENDING = SlurmJob(
    id="1",
    name="job",
    user="ann",
    account="lab",
    partition="gpu",
    state=JobState.PENDING,
    reason="ReqNodeNotAvail, Reserved for maintenance",
    mark="",
    nodes=(),
    pinned=(),
    gpus=1,
    gpu_types=(),
    submit_s=0.0,
    begin_s=0.0,
    start_s=None,
    end_s=None,
    time_limit_s=None,
    restarts=0,
    held=False,
    asked=HostRequest(1),
    cpus=1,
    partitions=("gpu",),
    resources=Resources((1, 0), 1, "gres/gpu:1", "", "", ""),
)
"""A job that waits, and of which nothing is said."""

LASTING = math.inf
"""The end of a reservation that always ends in a minute, as if it were renewed all the time."""


@dataclass(slots=True)
class FakeBackend:
    """Shows one state, and keeps every call; each call takes the next of `errors`, if any."""

    state: SlurmState = field(default_factory=lambda: SlurmState((), {}))
    errors: Sequence[BackendError | None] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)
    where: SlurmSite = field(default_factory=lambda: SlurmSite(30.0, {"gpu": None}))
    calls: list[Change] = field(default_factory=list)
    clock: Callable[[], float] = lambda: 1000.0

    def read(self) -> SlurmState:
        kept = (
            replace(each, end_s=self.clock() + 60) if each.end_s == LASTING else each
            for each in self.state.reservations
        )
        return replace(self.state, reservations=tuple(kept))

    def site(self) -> SlurmSite:
        return self.where

    def script(self, job: str) -> str:
        """Return the script of a job, one without options where the test gives none."""
        return self.scripts.get(job, "#!/bin/bash\n")

    def apply(self, change: Change) -> None:
        """Keep the change, or raise the error that is due."""
        at = len(self.calls)
        self.calls.append(change)
        error = self.errors[at] if at < len(self.errors) else None
        if error is not None:
            raise error
