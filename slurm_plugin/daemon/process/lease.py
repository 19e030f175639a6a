"""Which of several daemons acts: the one whose reservation holds the nodes.

The hold is the lease. Slurm keeps it, which a daemon must reach to change anything. That its end
moves shows that its daemon lives. A daemon takes over by making the hold of the next number, which
Slurm lets one alone do. Times are of each daemon's own clock, and none is compared with another's
(docs/live/standby.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from hetsched_core.errors import InputError
from slurm_plugin.backend import (
    AwayError,
    Drop,
    Hold,
    RefusedError,
    SlurmBackend,
    SlurmReservation,
    SlurmSite,
    SlurmState,
    TakenError,
    hold_named,
    hold_number,
)
from slurm_plugin.backend.change import Change
from slurm_plugin.daemon.nodes.hold import is_managed, latest_hold, whole_hold
from slurm_plugin.daemon.settings import DaemonSettings

RENEW, ACT, TAKE = 0.125, 0.5, 0.75
"""Shares of the slack: from which age on a lease is renewed, from which on nothing may be done by
it, and from which on it may be another's."""

Identity = tuple[str, float]
"""A reservation's name and start: one that is made anew under its name is another."""


def since_boot() -> float:
    """Return seconds that go on while the process is stopped and its host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """A backend that acts for the daemon while it has the lease, which it watches before.

    Attributes:
        watched: what is waited for, in words.
    """

    def __init__(
        self,
        backend: SlurmBackend,
        settings: DaemonSettings,
        me: str,
        *,
        owner_of: Callable[[str], str],
        clock: Callable[[], float] = since_boot,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Begin without it.

        Args:
            backend: Slurm.
            settings: what is to be held, and for how long.
            me: this daemon's host, as Slurm is to name it.
            owner_of: returns what Slurm has noted of whose a reservation is.
            clock: seconds since any moment, which go on whatever stops this process.
            now: seconds UTC, by which reservations are made.
        """
        self._backend, self._settings = backend, settings
        self._me = f"{me}:{settings.slack_s}"
        self._owner_of, self._clock, self._now = owner_of, clock, now
        self.own: Identity | None = None
        self._hold: Hold | None = None
        self._sent_s = -math.inf
        self._lost = ""
        self._seen: tuple[Identity, float] | None = None
        self._since_s = math.nan
        # The slack of whoever was seen to have it last.
        self._theirs_s: int | None = None
        self.watched = ""

    def watch(self) -> bool:
        """Look once whether the lease is free, and take it then; return whether this has it now.

        It is free where no reservation is ours at the first look, and where what is seen of it has
        not changed for `TAKE`, in which Slurm has answered all the time.

        Raises:
            BackendError: Slurm does not answer, or refuses the reservation.
        """
        begun, self._since_s = self._since_s, math.nan
        state = self._backend.read()
        found = latest_hold(state.reservations)
        seen = None if found is None else (_identity(found), found.end_s)
        if found is not None and (self._seen is None or self._seen[0] != _identity(found)):
            host, _, slack = self._owner_of(found.name).rpartition(":")
            self._theirs_s = int(slack) if slack.isdecimal() else 0
            self.watched = f"{host or 'another daemon'} ({found.name}) schedules; ask there"
        elif found is None:
            self.watched = "no daemon holds nodes at present"
        changed, self._seen = seen != self._seen, seen
        now = self._clock()
        self._since_s = now if changed or math.isnan(begun) else begun
        # Another's slack may be longer than ours.
        wait_s = TAKE * max(self._settings.slack_s, self._theirs_s or 0)
        always_free = found is None and self._theirs_s is None
        if not always_free and now - self._since_s < wait_s:
            return False
        nodes = [node.name for node in state.nodes if is_managed(node, self._settings)]
        hold = whole_hold(state.reservations, nodes, self._settings, self._now())
        if hold is None:
            return False
        # Another may be quicker.
        with suppress(TakenError):
            self._make(hold, state)
        return self.own is not None

    def read(self) -> SlurmState:
        """Return all nodes and jobs, and renew the lease where it is time.

        Raises:
            InputError: another daemon has it.
        """
        if self.own is None or self._hold is None or self._age_s < self._part(RENEW):
            state = self._backend.read()
            self._is_ours(state)
        else:
            try:
                state = self._secured(self._hold)
            except RefusedError:
                # The nodes are others by now, perhaps: whoever is told of all of it asks anew.
                state = self._backend.read()
                self._is_ours(state)
        if self._lost:
            raise InputError(self._lost)
        return state

    def site(self) -> SlurmSite:
        """Return what the site has set."""
        return self._backend.site()

    def script(self, job: str) -> str:
        """Return the script of a job."""
        return self._backend.script(job)

    def apply(self, change: Change) -> None:
        """Make one change, if the lease is young enough for it.

        Raises:
            AwayError: it is not; Slurm is to be read first.
        """
        if isinstance(change, Hold) and not self._lost:
            self._secured(change)
        elif self._age_s >= self._part(ACT):
            raise AwayError("the lease is too old: nothing is changed before Slurm is read again")
        elif not self._lost:
            self._backend.apply(change)
            if isinstance(change, Drop) and self.own and change.name == self.own[0]:
                self._hold, self._sent_s = None, -math.inf
        if self._lost:
            raise AwayError(self._lost)

    @property
    def _age_s(self) -> float:
        return self._clock() - self._sent_s

    def _part(self, share: float) -> float:
        return share * self._settings.slack_s

    def _secured(self, hold: Hold) -> SlurmState:
        """Renew the lease, or have it anew where it may be another's; return what is read then."""
        if self.own is None or self._age_s >= self._part(TAKE):
            state = self._backend.read()
            return self._make(hold, state) if self._is_ours(state) else state
        sent_s = self._clock()
        self._backend.apply(replace(hold, name=self.own[0]))
        # Only a look after it tells that no other had taken it before.
        state = self._backend.read()
        if self._is_ours(state):
            self._hold, self._sent_s = hold, sent_s
        return state

    def _make(self, hold: Hold, before: SlurmState) -> SlurmState:
        """Make the next reservation; it is the lease if no other has moved since `before`.

        Raises:
            TakenError: another daemon was quicker.
        """
        latest = latest_hold(before.reservations)
        name = hold_named(hold_number(latest.name) + 1 if latest is not None else 1)
        sent_s = self._clock()
        self._backend.apply(replace(hold, name=name, owner=self._me))
        state = self._backend.read()
        latest = latest_hold(state.reservations)
        known, there = (set(_ends(each.reservations)) for each in (before, state))
        if any(each[0][0] != name for each in there - known):
            # Its daemon stood still for long, and is back.
            self.own = None
            if self._clock() - sent_s < self._part(ACT):
                self._backend.apply(Drop(name))
        elif latest is not None and latest.name == name:
            self.own, self._hold, self._sent_s = _identity(latest), hold, sent_s
        return state

    def _is_ours(self, state: SlurmState) -> bool:
        """Whether the latest reservation is ours, or there is none, which we may make."""
        latest = latest_hold(state.reservations)
        if latest is None:
            self.own, self._sent_s = None, -math.inf
        elif _identity(latest) != self.own:
            self._lost = (
                f"another daemon has taken over ({latest.name}): this one ends, and changes "
                "nothing any more"
            )
        return not self._lost


def _ends(reservations: Iterable[SlurmReservation]) -> Iterator[tuple[Identity, float]]:
    """Return when each of the reservations that are ours ends: one that moves has a daemon."""
    return ((_identity(each), each.end_s) for each in reservations if hold_number(each.name))


def _identity(reservation: SlurmReservation) -> Identity:
    return reservation.name, reservation.start_s
