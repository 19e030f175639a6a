"""A copy of the daemon's database, for `hetsched db` while the daemon holds it.

The daemon says how long the file and its log are between two of its transactions, and for a while
changes nothing but the end of the log.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from hetsched_core.errors import HetschedError
from slurm_plugin.api.client import DEFAULT_SOCKET, ask

_AT_ONCE = 1 << 20


def copy_of(file: Path, folder: Path) -> Path | None:
    """Return a copy of a database that the daemon holds, in a folder; None if it holds another.

    The daemon is the one at `HETSCHED_SOCKET`, or this machine's.

    Raises:
        HetschedError: the daemon gives none.
    """
    socket = Path(os.environ.get("HETSCHED_SOCKET") or DEFAULT_SOCKET)
    if not socket.is_socket():
        return None
    begun = time.monotonic()
    said = ask(socket, "db")
    source = Path(said["path"])
    if not source.is_file() or not source.samefile(file):
        return None
    copy = folder / file.name
    _copy(source, copy, said["bytes"])
    if said["log_bytes"]:
        _copy(
            source.with_name(f"{source.name}.wal"),
            copy.with_name(f"{copy.name}.wal"),
            said["log_bytes"],
        )
    if time.monotonic() - begun > said["within_s"]:
        raise HetschedError(
            f"copying {source} took longer than the {said['within_s']:g} s for which the daemon "
            "leaves it alone; stop the daemon first, or set TMPDIR to a faster disk"
        )
    return copy


def _copy(source: Path, target: Path, size: int) -> None:
    """Copy the first bytes of a file, and who may read it."""
    with source.open("rb") as there, target.open("wb") as here:
        shutil.copymode(source, target)
        while size > 0 and (piece := there.read(min(size, _AT_ONCE))):
            here.write(piece)
            size -= len(piece)
