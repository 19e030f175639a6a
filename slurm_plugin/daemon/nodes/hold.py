"""The managed nodes, held by one reservation.

What waits for them waits, whatever it is, until it is placed: moved into the reservation. Nothing
is done to single jobs to keep them back. The reservation ends by itself where it is not renewed.
Slurm then schedules as if it had never been there.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count

from hetsched_core.types import Window
from slurm_plugin.backend import (
    BackendError,
    Drop,
    Hold,
    SlurmBackend,
    SlurmNode,
    SlurmReservation,
    hold_named,
    hold_number,
)
from slurm_plugin.daemon.settings import DaemonSettings

_OFF = 0.5
"""The hold is set anew where it ends this share of the slack too early, or too late."""


_CLOCKS_S = 300.0
"""How far Slurm's clock may be ahead of the daemon's: munge takes no more."""


def is_managed(node: SlurmNode, settings: DaemonSettings) -> bool:
    """Whether a node is one of those that are managed."""
    if node.name in settings.node_names:
        return True
    return node.partitions is not None and not node.partitions.isdisjoint(settings.partitions)


def hold_of(reservations: Iterable[SlurmReservation], now: float) -> SlurmReservation | None:
    """Return the reservation that holds the managed nodes now, if any does: the latest one.

    One that is to begin later holds nothing until then.
    """
    found = (each for each in reservations if each.start_s - _CLOCKS_S <= now < each.end_s)
    return latest_hold(found)


def latest_hold(reservations: Iterable[SlurmReservation]) -> SlurmReservation | None:
    """Return the latest of the reservations that are ours, whether it has ended or not."""
    ours = [each for each in reservations if hold_number(each.name)]
    return max(ours, key=lambda each: hold_number(each.name), default=None)


def hold_name(reservations: Iterable[SlurmReservation], now: float) -> str:
    """Return the name of the reservation that holds the managed nodes, or is to.

    One that has ended keeps its name until Slurm forgets it.
    """
    reservations = tuple(reservations)
    current = hold_of(reservations, now)
    if current is not None:
        return current.name
    taken = {hold_number(each.name) for each in reservations}
    return hold_named(next(number for number in count(1) if number not in taken))


def windows_of(reservations: Iterable[SlurmReservation], now: float) -> tuple[Window, ...]:
    """Return when nodes are closed to what is managed: while they are reserved for others."""
    return tuple(
        # Slurm starts nothing in another reservation that reaches into one for maintenance.
        Window(frozenset(each.nodes), each.start_s, each.end_s, each.name, "MAINT" in each.flags)
        for each in reservations
        if not hold_number(each.name) and each.nodes and max(now, each.start_s) < each.end_s
    )


def whole_hold(
    reservations: Iterable[SlurmReservation],
    nodes: Iterable[str],
    settings: DaemonSettings,
    now: float,
) -> Hold | None:
    """Return what holds the managed nodes from now on, None if all are reserved for others.

    A node is left to others for as long as it is reserved for them. Slurm starts nothing in their
    reservation where it meets another, unless theirs is one that may (`OVERLAP`, `MAINT`).

    Args:
        reservations: all that Slurm has.
        nodes: the managed nodes.
        settings: how long the hold lasts without a daemon.
        now: seconds UTC.
    """
    reservations = tuple(reservations)
    theirs = {
        name
        for each in reservations
        if not hold_number(each.name) and each.start_s <= now < each.end_s
        if each.flags.isdisjoint({"OVERLAP", "MAINT"})
        for name in each.nodes
    }
    ours = tuple(sorted(set(nodes) - theirs))
    name = hold_name(reservations, now)
    return Hold(name, ours, settings.slack_s, settings.hold_denies) if ours else None


def hold_changes(
    reservations: Iterable[SlurmReservation], wanted: Hold | None, now: float
) -> Iterator[Hold | Drop]:
    """Yield what keeps nodes held as wanted: nothing while that is so for long enough."""
    reservations = tuple(reservations)
    current = hold_of(reservations, now)
    if wanted is not None:
        off_s = math.inf if current is None else abs(current.end_s - now - wanted.seconds)
        # Under maintenance nothing would be placed on its nodes.
        changed = current is None or current.nodes != wanted.nodes or "MAINT" in current.flags
        if changed or off_s > wanted.seconds * _OFF:
            yield wanted
    stays = current if wanted is not None else None
    yield from letting_go((each for each in reservations if each is not stays), now)


def letting_go(reservations: Iterable[SlurmReservation], now: float) -> Iterator[Drop]:
    """Yield what hands the nodes back to Slurm."""
    for each in reservations:
        if hold_number(each.name) and each.end_s > now:
            yield Drop(each.name)


@contextmanager
def renewing(backend: SlurmBackend, hold: Hold | None, every_s: float) -> Iterator[None]:
    """Renew a hold while a policy thinks in the block, each time that `every_s` is over.

    The first plan after an installation compiles kernels, and a great problem takes a solver long:
    a cycle may then last for longer than the hold. Nothing else may use `backend` meanwhile. None
    is no hold to renew.
    """
    over = threading.Event()

    def keep(hold: Hold) -> None:
        while not over.wait(every_s):
            try:
                backend.apply(hold)
            except BackendError:
                continue  # the controller is away: again later

    if hold is None:
        yield
        return
    thread = threading.Thread(target=keep, args=(hold,), name="renewing the hold", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
