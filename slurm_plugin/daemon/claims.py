"""One daemon for each partition of a cluster, whichever databases they have.

Two would undo each other's placements. A claim is a listening socket in Linux's abstract name
space, which the kernel takes from the dead and which tells whose it is. It is seen on one machine
alone.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from hetsched_core.errors import InputError

_WAITING = 128
"""How many can look whose a claim is until its holder answers."""

_PATIENCE_S = 10.0
"""How long to wait for a holder's answer, which comes once a cycle, if so many have looked."""


class Claims:
    """Partitions that this daemon schedules, until it ends."""

    def __init__(self, slurm_conf: Path) -> None:
        """Claim nothing yet; the configuration file that Slurm has here tells clusters apart."""
        try:
            found = slurm_conf.stat()
        except OSError:
            # Who has none is told so by whatever asks Slurm.
            self._cluster = f"{slurm_conf}"
        else:
            self._cluster = f"{found.st_dev}:{found.st_ino}"
        self._held: dict[str, socket.socket] = {}

    def hold(self, partitions: Iterable[str]) -> None:
        """Claim these partitions, beside those that are held already.

        Raises:
            InputError: another daemon holds one; it is named.
        """
        for partition in sorted(set(partitions) - self._held.keys()):
            words = hashlib.sha256(f"{self._cluster}/{partition}".encode()).hexdigest()[:32]
            address = f"\0hetschedd/{words}"
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(address)
                claim.listen(_WAITING)
            except OSError:
                claim.close()
                if holder := _holder(address):
                    raise InputError(
                        f"another daemon schedules partition {partition}: {holder}; stop it "
                        "first, or give this one other partitions or mode shadow"
                    ) from None
                continue
            claim.setblocking(False)
            self._held[partition] = claim

    def answer(self) -> None:
        """Let those go who have looked whose the claims are, so that more can look."""
        for claim in self._held.values():
            with suppress(BlockingIOError):
                while True:
                    claim.accept()[0].close()

    def __enter__(self) -> Self:
        """Return the claims."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of all."""
        for claim in self._held.values():
            claim.close()
        self._held.clear()


def _holder(address: str) -> str:
    """Return in words who holds a claim; "" if nobody does any more, or nobody to believe.

    Any user of the machine could make such a socket to keep a daemon away: only root's and those of
    its own user count, except for root, who can look, and end it.
    """
    form = "3i"
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PATIENCE_S)
        try:
            probe.connect(address)
        except OSError:
            return ""
        told = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form))
    process, uid, _ = struct.unpack(form, told)
    if uid not in (0, os.geteuid()) and os.geteuid() != 0:
        return ""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return f"process {process} of {name}"


def slurm_conf() -> Path:
    """Return the configuration file by which Slurm is found here."""
    return Path(os.environ.get("SLURM_CONF") or "/etc/slurm/slurm.conf")
