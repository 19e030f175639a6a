"""A backend for fast tests: it does what it is told, and fails when it is told to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_plugin.backend import (
    BackendError,
    Change,
    JobState,
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
    reason="BeginTime",
    mark="",
    nodes=(),
    pinned=(),
    gpus_per_node=1,
    gpu_type="",
    submit_s=0.0,
    begin_s=60.0,
    start_s=None,
    end_s=None,
    time_limit_s=None,
    restarts=0,
    held=False,
)
"""A job that waits, and is nobody's."""


@dataclass(slots=True)
class FakeBackend:
    """Shows one state, and keeps every call; each call takes the next of `errors`, if any."""

    state: SlurmState = field(default_factory=lambda: SlurmState((), {}))
    errors: Sequence[BackendError | None] = ()
    where: SlurmSite = field(default_factory=lambda: SlurmSite(30.0, {"gpu": None}))
    calls: list[Change] = field(default_factory=list)

    def read(self) -> SlurmState:
        """Return the state."""
        return self.state

    def site(self) -> SlurmSite:
        """Return what the site has set."""
        return self.where

    def apply(self, change: Change) -> None:
        """Keep the change, or raise the error that is due."""
        at = len(self.calls)
        self.calls.append(change)
        error = self.errors[at] if at < len(self.errors) else None
        if error is not None:
            raise error
