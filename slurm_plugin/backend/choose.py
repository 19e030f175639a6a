"""Choosing a backend."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from hetsched_core.errors import unknown
from slurm_plugin.backend.releases import known, release_of
from slurm_plugin.backend.running import require_commands, run_command

if TYPE_CHECKING:
    from slurm_plugin.backend.protocol import SlurmBackend

BACKENDS = ("auto", "pyslurm", "commands")


def open_backend(name: str) -> SlurmBackend:
    """Return the backend of this name, for the Slurm that SLURM_CONF names.

    `auto` is pyslurm where the one that is installed fits that Slurm, else commands.

    Raises:
        UnknownNameError: there is none of this name.
        BackendError: what the backend needs is not here, or there is no Slurm configuration.
    """
    match name:
        case "auto":
            return open_backend(settled(name)[0])
        case "pyslurm":
            from slurm_plugin.backend.with_pyslurm import PyslurmBackend

            return PyslurmBackend()
        case "commands":
            from slurm_plugin.backend.with_commands import CommandsBackend

            return CommandsBackend()
    raise unknown("backend", name, BACKENDS)


def settled(name: str) -> tuple[str, str]:
    """Return the backend that a name stands for, and why it is not pyslurm, "" where told or so.

    Raises:
        BackendError: Slurm does not say which version it is.
    """
    if name != "auto":
        return name, ""
    why = _why_not_pyslurm()
    return "commands" if why else "pyslurm", why


def _why_not_pyslurm() -> str:
    """Return what keeps pyslurm from reading the Slurm that is here, "" for nothing."""
    require_commands("scontrol")
    slurm = run_command(["scontrol", "--version"]).split()[-1]
    try:
        pyslurm = metadata.version("pyslurm")
    except metadata.PackageNotFoundError:
        return f"no pyslurm is installed; `pip install 'pyslurm=={slurm.rpartition('.')[0]}.*'`"
    release = release_of(slurm)
    fits = release_of(pyslurm)
    if fits and fits in (release, release_of(known(release).pyslurm)):
        return ""
    return f"pyslurm {pyslurm} belongs to another release of Slurm than {slurm}, which is here"
