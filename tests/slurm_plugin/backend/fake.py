"""A backend for fast tests: it does what it is told, and fails when it is told to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_plugin.backend import BackendError, Change, SlurmSite, SlurmState


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
