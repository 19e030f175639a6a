"""What Slurm's accounting says of limits and shares, asked for beside the loop.

slurmdbd may take long to answer, or not answer at all, and the loop must not wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Thread

from slurm_plugin.backend.limits import GpuLimits, read_limits
from slurm_plugin.backend.shares import SlurmShares, read_shares


@dataclass(frozen=True, slots=True)
class Accounting:
    """Limits and shares; None for what could not be read."""

    limits: GpuLimits | None
    shares: SlurmShares | None


def read_accounting(configuration: str) -> Accounting:
    """Ask Slurm's commands; `configuration` is what `scontrol show config` prints."""
    return Accounting(read_limits(), read_shares(configuration))


class AccountingReader:
    """Asks in a thread, anew whenever it is asked and the last answer has come."""

    def __init__(self) -> None:
        """Ask nothing yet."""
        self._asking: Thread | None = None
        self._told: Accounting | None = None

    def latest(self, configuration: str) -> Accounting:
        """Return what was told last; only the first answer is waited for."""
        told = self._told
        if told is None:
            told = self._told = read_accounting(configuration)
        if self._asking is None or not self._asking.is_alive():
            # One that hangs must not keep the process from its end.
            self._asking = Thread(target=self._ask, args=(configuration,), daemon=True)
            self._asking.start()
        return told

    def _ask(self, configuration: str) -> None:
        self._told = read_accounting(configuration)
