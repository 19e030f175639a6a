"""Choosing a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched_core.errors import unknown

if TYPE_CHECKING:
    from slurm_plugin.backend.protocol import SlurmBackend

BACKENDS = ("pyslurm", "commands")


def open_backend(name: str) -> SlurmBackend:
    """Return the backend of this name, for the Slurm that SLURM_CONF names.

    Raises:
        UnknownNameError: there is none of this name.
        BackendError: pyslurm is not here, or there is no Slurm configuration.
    """
    match name:
        case "pyslurm":
            from slurm_plugin.backend.with_pyslurm import PyslurmBackend

            return PyslurmBackend()
        case "commands":
            from slurm_plugin.backend.with_commands import CommandsBackend

            return CommandsBackend()
    raise unknown("backend", name, BACKENDS)
