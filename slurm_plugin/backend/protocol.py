"""The one seam to Slurm."""

from __future__ import annotations

from typing import Protocol

from slurm_plugin.backend.change import Change
from slurm_plugin.backend.site import SlurmSite
from slurm_plugin.backend.state import SlurmState


class SlurmBackend(Protocol):
    """Reads Slurm in bulk and makes one change at a time.

    It remembers nothing but what a bulk read cannot tell of a job (see `asked_once`), and what it
    has read last, so that what is shown as before is not made anew each time.
    """

    def read(self) -> SlurmState:
        """Return all nodes and jobs.

        Raises:
            AwayError: Slurm does not answer.
        """
        ...

    def site(self) -> SlurmSite:
        """Return what the site has set, which changes seldom.

        Raises:
            AwayError: Slurm does not answer.
        """
        ...

    def script(self, job: str) -> str:
        """Return the script of a job, which may be an element of an array.

        Raises:
            AwayError: Slurm does not answer.
            RefusedError: there is none, or it may not be read.
        """
        ...

    def apply(self, change: Change) -> None:
        """Make one change, no `Together`; making it again changes nothing more.

        Raises:
            AwayError: Slurm does not answer; whether it acted is not known.
            RefusedError: Slurm said no.
        """
        ...
