"""The one seam to Slurm."""

from __future__ import annotations

from typing import Protocol

from slurm_plugin.backend.change import Change
from slurm_plugin.backend.state import Asked, SlurmSite, SlurmState


class SlurmBackend(Protocol):
    """Reads Slurm in bulk and changes one job at a time. It remembers nothing."""

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

    def asked(self, job: str) -> Asked:
        """Return what a waiting job asks for, each thing in the way in which its user asked.

        Raises:
            AwayError: Slurm does not answer.
            RefusedError: there is no such job.
        """
        ...

    def apply(self, change: Change) -> None:
        """Make one change, no `Together`; making it again changes nothing more.

        Raises:
            AwayError: Slurm does not answer; whether it acted is not known.
            RefusedError: Slurm said no.
        """
        ...
