"""The folders in which the daemon writes: whether they are there, its own, and closed to others."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from hetsched_core.errors import InputError
from slurm_plugin.daemon.finding import Finding, beware, good, wrong
from slurm_plugin.daemon.process.configuration import DaemonConfiguration
from slurm_plugin.daemon.spool.moves import user_name
from slurm_plugin.daemon.spool.spool import checked

_MADE = {"database": Path("/var/lib/hetsched"), "socket": Path("/run/hetsched")}
"""The folders of the defaults, which the service makes as it starts."""


def missing_folders(configuration: DaemonConfiguration) -> Iterator[Finding]:
    """Yield the folders that nobody will make, though files of the daemon's are to be there."""
    for name, made in _MADE.items():
        folder = folder_of(configuration, name)
        if folder != made and not folder.is_dir():
            yield wrong(
                name,
                f"{name} = {str(getattr(configuration, name))!r}: there is no folder {folder}",
                "make it, for the daemon's user",
            )


def folder_findings(configuration: DaemonConfiguration, uid: int) -> Iterator[Finding]:
    """Yield how each folder stands for a daemon of the user `uid`."""
    missing = {found.about: found for found in missing_folders(configuration)}
    for name in _MADE:
        folder = folder_of(configuration, name)
        if name in missing:
            yield missing[name]
        elif not folder.is_dir():
            yield good(name, f"{folder} is made by the service as it starts")
        elif found := _not_writable(name, folder, uid):
            yield found
        else:
            yield _open_to(name, folder)
    yield _spool(configuration.spool, uid)


def folder_of(configuration: DaemonConfiguration, name: str) -> Path:
    """Return the folder of the file that a setting names."""
    path: Path = getattr(configuration, name)
    return path.absolute().parent


def _not_writable(name: str, folder: Path, uid: int) -> Finding | None:
    """Return that the user may not write there, by owner and mode; root may anywhere."""
    found = folder.stat()
    if uid == 0 or (found.st_uid == uid and found.st_mode & 0o300 == 0o300):
        return None
    user = user_name(uid)
    return wrong(
        name,
        f"{folder} is of {user_name(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o}: the "
        f"daemon's user {user} cannot write there",
        f"chown {user} {folder}, chmod u+wx {folder}",
    )


def _open_to(name: str, folder: Path) -> Finding:
    """Return who else gets in: everybody to the socket, nobody where the database lies."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    about = f"{folder}, mode {mode:04o}"
    if name == "socket" and not mode & 0o001:
        return beware(name, f"{about}: users cannot ask the daemon", f"chmod 755 {folder}")
    if name == "database" and mode & 0o022:
        return wrong(
            name, f"{about}: others can put files in the place of ours", f"chmod 700 {folder}"
        )
    if name == "database" and mode & 0o055:
        return beware(name, f"{about}: others can look in", f"chmod 700 {folder}")
    return good(name, about)


def _spool(spool: Path | None, uid: int) -> Finding:
    about = "spool"
    if spool is None:
        return good(about, "none, so nothing is measured")
    try:
        owner = checked(spool, [uid]).stat().st_uid
    except InputError as error:
        return wrong(about, str(error))
    except OSError as error:
        return wrong(
            about,
            f"{spool} cannot be read: {error.strerror}",
            "let the daemon's user, and who runs this, read it",
        )
    if uid not in (0, owner):
        return wrong(
            about,
            f"{spool} is of {user_name(owner)}: the daemon's user {user_name(uid)} cannot write "
            "there, so that no job is told why it is moved",
            f"chown {user_name(uid)} {spool}",
        )
    return good(about, f"{spool} of {user_name(owner)}")
