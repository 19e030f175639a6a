"""One daemon that holds nodes of a cluster, whichever databases there are.

Two would undo each other's hold and placements. A claim is a listening socket in Linux's abstract
name space, which the kernel takes from the dead and which tells whose it is. It is seen on one
machine alone.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from hetsched_core.errors import InputError
from slurm_plugin.backend import SlurmBackend, SlurmSite, SlurmState
from slurm_plugin.backend.change import Change
from slurm_plugin.daemon.spool.moves import user_name

_WAITING = 128
"""How many can look whose a claim is until its holder answers."""

_PATIENCE_S = 10.0
"""How long to wait for a holder's answer, which comes once a cycle, if so many have looked."""


class ClusterClaim:
    """That this daemon holds the nodes of a cluster, until it ends.

    What tells one cluster from another is what Slurm says of itself (`SlurmSite.cluster`): files
    are replaced, linked to and copied, and a site may have none here. Until Slurm answers, nothing
    is held, and nothing can be changed either.

    A name that somebody holds who is not to be believed keeps no daemon away: it goes on without
    its claim, and `check` tries again.
    """

    def __init__(self, *, yields: bool = False) -> None:
        """Claim nothing yet.

        Args:
            yields: whether others may have it, since it is settled elsewhere which one acts.
        """
        self._yields = yields
        self._cluster: str | None = None
        self._wanted = False
        self._held: socket.socket | None = None
        self._lacking = ""
        self._told = False

    def watched(self, backend: SlurmBackend) -> SlurmBackend:
        """Return a backend that claims what is wanted once Slurm says which cluster it is.

        Its `site`, which the daemon calls before it first reads jobs, raises InputError where
        another daemon holds the nodes.
        """
        return _Watched(backend, self)

    def be_of(self, cluster: str) -> None:
        """Claim a cluster if that is wanted, and not the one before.

        Raises:
            InputError: another daemon holds its nodes; it is named.
        """
        if cluster == self._cluster:
            return
        self._let_go()
        self._cluster = cluster
        try:
            self._take()
        except InputError:
            # It is told again by the next call.
            self._cluster = None
            raise

    def hold(self) -> None:
        """Claim the cluster, if not now then once it is known.

        Raises:
            InputError: another daemon holds its nodes; it is named.
        """
        before, self._wanted = self._wanted, True
        try:
            self._take()
        except InputError:
            self._wanted = before
            raise

    def check(self) -> tuple[str, bool]:
        """Answer those who look whose the claim is, and try again for one that is lacking.

        Returns:
            In words that the claim is lacking, once, else ""; and whether it is had at last.

        Raises:
            InputError: another daemon has it by now; it is named.
        """
        self._answer()
        self._take(again=True)
        lacking, had = bool(self._lacking), self._told and self._held is not None
        words = "" if self._told else self._lacking
        self._told = lacking
        return words, had

    def _take(self, *, again: bool = False) -> None:
        if not self._wanted or self._cluster is None or self._held is not None:
            return
        words = hashlib.sha256(self._cluster.encode()).hexdigest()[:32]
        address = f"\0hetschedd/{words}"
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(address)
            claim.listen(_WAITING)
        except OSError:
            claim.close()
            holder = _holder(address, 0.0 if again else _PATIENCE_S)
            believed = holder is not None and _is_believed(holder, again=again)
            if believed and self._yields:
                return
            if believed:
                raise InputError(
                    f"another daemon holds nodes of this cluster: {holder}; stop it first, or give "
                    "this one mode shadow"
                ) from None
            self._lacking = (
                f"the cluster is not claimed: {holder or 'one that does not answer'} holds "
                f"@{address[1:]}; a second daemon would not be refused, and both would place the "
                "same jobs; the claim is tried again in each cycle"
            )
            return
        claim.setblocking(False)
        self._held, self._lacking = claim, ""

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
        self._held, self._lacking, self._told = None, "", False

    def _answer(self) -> None:
        """Let those go who have looked whose the claim is, so that more can look."""
        if self._held is not None:
            with suppress(BlockingIOError):
                while True:
                    self._held.accept()[0].close()

    def __enter__(self) -> Self:
        """Return the claim."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of it."""
        self._let_go()


@dataclass(frozen=True, slots=True)
class _Watched:
    """A backend whose cluster is claimed."""

    _backend: SlurmBackend
    _claim: ClusterClaim

    def read(self) -> SlurmState:
        """Return all nodes and jobs."""
        return self._backend.read()

    def site(self) -> SlurmSite:
        """Return what the site has set, if no other daemon schedules here."""
        found = self._backend.site()
        self._claim.be_of(found.cluster)
        return found

    def script(self, job: str) -> str:
        """Return the script of a job."""
        return self._backend.script(job)

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
