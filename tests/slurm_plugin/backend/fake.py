"""A backend for fast tests: it does what it is told, and fails when it is told to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_plugin.backend import BackendError, Change, SlurmState


@dataclass(slots=True)
class FakeBackend:
    """Shows one state, and keeps every call; each call takes the next of `errors`, if any."""

    state: SlurmState = field(default_factory=lambda: SlurmState((), {}))
    errors: Sequence[BackendError | None] = ()
    calls: list[Change] = field(default_factory=list)

    def read(self) -> SlurmState:
        """Return the state."""
        return self.state

    def apply(self, change: Change) -> None:
        """Keep the change, or raise the error that is due."""
        at = len(self.calls)
        self.calls.append(change)
        error = self.errors[at] if at < len(self.errors) else None
        if error is not None:
            raise error
