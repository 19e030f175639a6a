"""One daemon for each partition of a cluster, whichever databases they have.

Two would undo each other's placements. A claim is a listening socket in Linux's abstract name
space, which the kernel takes from the dead and which tells whose it is. It is seen on one machine
alone.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from hetsched_core.errors import InputError
from slurm_plugin.backend import SlurmBackend, SlurmSite, SlurmState
from slurm_plugin.backend.change import Change
from slurm_plugin.daemon.moves import user_name

_WAITING = 128
"""How many can look whose a claim is until its holder answers."""

_PATIENCE_S = 10.0
"""How long to wait for a holder's answer, which comes once a cycle, if so many have looked."""


class Claims:
    """Partitions that this daemon schedules, until it ends.

    What tells one cluster from another is what Slurm says of itself (`SlurmSite.cluster`): files
    are replaced, linked to and copied, and a site may have none here. Until Slurm answers, nothing
    is held, and nothing can be changed either.

    A name that somebody holds who is not to be believed keeps no daemon away: it goes on without
    that claim, and `check` tries again.
    """

    def __init__(self) -> None:
        """Claim nothing yet."""
        self._cluster: str | None = None
        self._wanted: frozenset[str] = frozenset()
        self._held: dict[str, socket.socket] = {}
        self._lacking: dict[str, str] = {}
        self._told: set[str] = set()

    def watched(self, backend: SlurmBackend) -> SlurmBackend:
        """Return a backend that claims what is wanted once Slurm says which cluster it is.

        Its `site`, which the daemon calls before it first reads jobs, raises InputError where
        another daemon holds a partition.
        """
        return _Watched(backend, self)

    def be_of(self, cluster: str) -> None:
        """Claim what is wanted of a cluster, and nothing of the one before.

        Raises:
            InputError: another daemon holds a partition; it is named.
        """
        if cluster == self._cluster:
            return
        before, self._cluster, self._held = self._held, cluster, {}
        self._lacking, self._told = {}, set()
        for claim in before.values():
            claim.close()
        try:
            self._take(self._wanted)
        except InputError:
            # It is told again by the next call.
            self._cluster = None
            raise

    def hold(self, partitions: Iterable[str]) -> None:
        """Claim these partitions, beside those that are held already.

        Raises:
            InputError: another daemon holds one; it is named.
        """
        wanted = self._wanted.union(partitions)
        if self._cluster is not None:
            self._take(wanted)
        self._wanted = wanted

    def check(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Answer those who look whose the claims are, and try again for what is lacking.

        Returns:
            In words which claims are lacking, each once; and the partitions of such that are
            claimed at last.

        Raises:
            InputError: another daemon holds one by now; it is named.
        """
        self._answer()
        if self._cluster is not None:
            self._take(self._wanted, again=True)
        had = tuple(sorted(self._told & self._held.keys()))
        lacking = self._wanted & self._lacking.keys() - self._held.keys()
        words = tuple(self._lacking[partition] for partition in sorted(lacking - self._told))
        self._told = set(lacking)
        return words, had

    def _take(self, partitions: frozenset[str], *, again: bool = False) -> None:
        for partition in sorted(partitions - self._held.keys()):
            words = hashlib.sha256(f"{self._cluster}/{partition}".encode()).hexdigest()[:32]
            address = f"\0hetschedd/{words}"
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(address)
                claim.listen(_WAITING)
            except OSError:
                claim.close()
                holder = _holder(address, 0.0 if again else _PATIENCE_S)
                if holder is not None and _is_believed(holder, again=again):
                    raise InputError(
                        f"another daemon schedules partition {partition}: {holder}; stop it "
                        "first, or give this one other partitions or mode shadow"
                    ) from None
                self._lacking.setdefault(
                    partition,
                    f"partition {partition} is not claimed: {holder or 'one that does not answer'} "
                    f"holds @{address[1:]}; a second daemon would not be refused, and both would "
                    "place the same jobs; the claim is tried again in each cycle",
                )
                continue
            claim.setblocking(False)
            self._held[partition] = claim

    def _answer(self) -> None:
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


@dataclass(frozen=True, slots=True)
class _Watched:
    """A backend of whose cluster claims are made."""

    _backend: SlurmBackend
    _claims: Claims

    def read(self) -> SlurmState:
        """Return all nodes and jobs."""
        return self._backend.read()

    def site(self) -> SlurmSite:
        """Return what the site has set, if no other daemon schedules here."""
        found = self._backend.site()
        self._claims.be_of(found.cluster)
        return found

    def apply(self, change: Change) -> None:
        """Make one change."""
        self._backend.apply(change)


@dataclass(frozen=True, slots=True)
class _Holder:
    """A process that holds the name of a claim, and its user."""

    process: int
    uid: int

    def __str__(self) -> str:
        return f"process {self.process} of {user_name(self.uid)}"


def _is_believed(holder: _Holder, *, again: bool) -> bool:
    """Whether a holder is taken for a daemon.

    Any user of the machine could make such a socket to keep a daemon away: only root's and those of
    its own user count, except for root, who can look, and end it, before its daemon goes on. One
    that runs already is ended by nobody else's.
    """
    return holder.uid in (0, os.geteuid()) or (os.geteuid() == 0 and not again)


def _holder(address: str, patience_s: float) -> _Holder | None:
    """Return who holds a claim; None if nobody does any more, or somebody who does not answer."""
    form = "3i"
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(patience_s)
        try:
            probe.connect(address)
        except OSError:
            return None
        told = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form))
    process, uid, _ = struct.unpack(form, told)
    return _Holder(process, uid)
