"""The daemon's unit, as systemd has it: its user, and where it may write."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Mapping
from pathlib import Path

from slurm_plugin.backend import BackendError
from slurm_plugin.backend.running import run_command
from slurm_plugin.daemon.finding import Finding, beware, good, wrong
from slurm_plugin.daemon.process.configuration import DaemonConfiguration
from slurm_plugin.daemon.process.folders import folder_of

UNIT = "hetschedd.service"

_ASKED = ("LoadState", "User", "ProtectSystem", "ReadWritePaths", "StateDirectory")
_MADE = {"StateDirectory": Path("/var/lib"), "RuntimeDirectory": Path("/run")}


def read_unit() -> Mapping[str, str]:
    """Return what systemd says of the unit, by property; nothing where no systemd runs."""
    if shutil.which("systemctl") is None:
        return {}
    asked = ",".join((*_ASKED, "RuntimeDirectory"))
    try:
        told = run_command(["systemctl", "show", UNIT, f"--property={asked}"])
    except BackendError:
        return {}
    return dict(line.partition("=")[::2] for line in told.splitlines())


def daemon_uid(unit: Mapping[str, str], configuration: DaemonConfiguration) -> int | None:
    """Return the user of the daemon, by number; None where this machine does not know it.

    It is the unit's; without one that of the database's folder, and else who asks.
    """
    if user := unit.get("User", ""):
        try:
            return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
        except KeyError:
            return None
    folder = folder_of(configuration, "database")
    return folder.stat().st_uid if folder.is_dir() else os.geteuid()


def unit_finding(unit: Mapping[str, str], configuration: DaemonConfiguration) -> Finding:
    """Return whether the unit lets the daemon write where its configuration has it write."""
    about = "unit"
    if not unit:
        return good(about, "no systemd runs here", "see to it that the daemon is started again")
    if unit.get("LoadState") != "loaded":
        return beware(
            about,
            f"systemd has no {UNIT} ({unit.get('LoadState')})",
            "install it, and systemctl daemon-reload",
        )
    if closed := _closed(unit, configuration):
        paths = " ".join(closed)
        return wrong(
            about,
            f"ReadWritePaths = {unit.get('ReadWritePaths') or 'nothing'} leaves out {paths}",
            f"systemctl edit hetschedd, and there: [Service] ReadWritePaths={paths}",
        )
    return good(about, f"{UNIT} of user {unit.get('User') or 'root'}")


def _closed(unit: Mapping[str, str], configuration: DaemonConfiguration) -> list[str]:
    """Return the folders of the configuration in which the unit lets nobody write."""
    if unit.get("ProtectSystem") != "strict":
        return []
    # A path with a minus need not be there.
    open_ = [Path(path.lstrip("-+")) for path in unit.get("ReadWritePaths", "").split()]
    open_ += [base / name for key, base in _MADE.items() for name in unit.get(key, "").split()]
    needed = [folder_of(configuration, name) for name in ("database", "socket")]
    needed += [configuration.spool.absolute()] if configuration.spool else []
    return [
        str(each)
        for each in dict.fromkeys(needed)
        if not any(each.is_relative_to(path) for path in open_)
    ]
