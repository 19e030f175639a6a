"""One reservation keeps the managed nodes, windows of others close them, and a stop lets go."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from hetsched_core.explain.why import why
from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.types import Plan, Snapshot
from slurm_plugin.backend import (
    AwayError,
    Drop,
    Enter,
    Hold,
    Leave,
    RefusedError,
    Requeue,
    SlurmReservation,
    SlurmState,
)
from slurm_plugin.daemon import DaemonMode
from slurm_plugin.daemon.nodes.hold import (
    hold_changes,
    letting_go,
    renewing,
    whole_hold,
    windows_of,
)
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    MOVABLE,
    RIGID,
    SETTINGS,
    WAITING,
    Site,
    held,
    left,
    node,
    placed,
    places,
    running,
)

SECOND, THIRD = "hetsched-2", "hetsched-3"
NOW = 1000.0
FIRST = Hold(HOLD, ("n0",), 60)
TWO = (node("n0"), node("n1"))
WHOLE = Enter("5", HOLD, ("n0",), Leave("5"))
"""How a job of one GPU enters."""


def reservation(name: str, until_s: float, *nodes: str) -> SlurmReservation:
    return SlurmReservation(name, nodes or ("n0",), 0.0, until_s)


def kept(there: tuple[SlurmReservation, ...], *nodes: str) -> list[Hold | Drop]:
    """Return what keeps these nodes held."""
    return list(hold_changes(there, whole_hold(there, nodes, SETTINGS, NOW), NOW))


@pytest.mark.parametrize(
    ("there", "done"),
    [
        ((), [FIRST]),
        ((reservation(HOLD, NOW + 31),), []),
        ((reservation(HOLD, NOW + 29),), [FIRST]),
        # Whoever has set it so, without a daemon nothing would start for days.
        ((reservation(HOLD, NOW + 86_400),), [FIRST]),
        ((reservation(HOLD, NOW + 60, "n0", "n1"),), [FIRST]),
        # Somebody has made it one for maintenance, in which nothing would start.
        ((replace(reservation(HOLD, NOW + 60), flags=frozenset({"MAINT"})),), [FIRST]),
        # One that has ended is listed, and keeps its name, while jobs run in it.
        ((reservation(HOLD, NOW),), [Hold(SECOND, ("n0",), 60)]),
        ((reservation(HOLD, NOW), reservation(SECOND, NOW + 60)), []),
        ((reservation(HOLD, NOW + 60), reservation(SECOND, NOW + 60)), [Drop(HOLD)]),
        ((reservation(HOLD, NOW), reservation(SECOND, NOW)), [Hold(THIRD, ("n0",), 60)]),
        ((reservation(HOLD, NOW), reservation(THIRD, NOW)), [Hold(SECOND, ("n0",), 60)]),
        ((reservation("hetsched-x", NOW + 60, "n1"),), [FIRST]),
        ((reservation("maintenance", NOW + 60, "n1"),), [FIRST]),
        # One that begins in an hour holds nothing; Slurm's clock may be a little ahead.
        (
            (replace(reservation(HOLD, NOW + 3660), start_s=NOW + 3600),),
            [Hold(SECOND, ("n0",), 60), Drop(HOLD)],
        ),
        ((replace(reservation(HOLD, NOW + 60), start_s=NOW + 20),), []),
    ],
)
def test_the_nodes_are_held_by_one_reservation_for_as_long_as_the_slack(
    there: tuple[SlurmReservation, ...], done: list[Hold | Drop]
) -> None:
    assert kept(there, "n0") == done


COURSE = reservation("course", NOW + 60, "n1")


@pytest.mark.parametrize(
    ("course", "left"),
    [
        (COURSE, ("n0",)),
        (replace(COURSE, start_s=NOW + 1), ("n0", "n1")),
        (replace(COURSE, end_s=NOW), ("n0", "n1")),
        # Slurm starts its jobs beside those of the hold.
        (replace(COURSE, flags=frozenset({"OVERLAP"})), ("n0", "n1")),
        (replace(COURSE, flags=frozenset({"MAINT"})), ("n0", "n1")),
        (replace(COURSE, flags=frozenset({"IGNORE_JOBS"})), ("n0",)),
    ],
)
def test_nodes_that_are_reserved_for_others_are_theirs_for_that_time(
    course: SlurmReservation, left: tuple[str, ...]
) -> None:
    there = (reservation(HOLD, NOW + 60, *left), course)
    assert kept(there, "n0", "n1") == []
    afresh = [Hold(HOLD, left, 60)]
    assert kept((course,), "n0", "n1") == afresh


def test_where_all_nodes_are_reserved_for_others_nothing_is_held() -> None:
    there = (reservation(HOLD, NOW + 60, "n1"), COURSE)
    assert kept(there, "n1") == [Drop(HOLD)]


def test_jobs_enter_the_reservation_that_is_made_in_the_same_cycle() -> None:
    for there, name in (((), HOLD), ((held("n0", until_s=900.0),), SECOND)):
        site = Site(RIGID, reservations=there)
        assert site.cycle() == [Hold(name, ("n0",), 60), replace(WHOLE, reservation=name)]


def test_in_shadow_nothing_is_held_and_nothing_let_go_of() -> None:
    site = Site(WAITING, RIGID, reservations=(), mode=DaemonMode.SHADOW)
    site.cycle()
    site.daemon.let_go()
    assert places(site.report.changes).keys() == {"1", "5"}
    assert site.backend.calls == []


# -- windows ---------------------------------------------------------------------------------------

WINDOW = SlurmReservation("upgrade", ("n0",), 1500.0, 2000.0)
LONG = replace(MOVABLE, time_limit_s=6000.0)


def test_reservations_of_others_are_windows_and_what_is_over_is_none() -> None:
    licences, over = replace(WINDOW, nodes=()), replace(WINDOW, end_s=NOW)
    (window,) = windows_of([WINDOW, licences, over, held()], NOW)
    assert (window.from_s, window.until_s, window.nodes) == (1500.0, 2000.0, frozenset({"n0"}))


def test_a_job_that_may_be_moved_uses_a_node_until_its_window_and_leaves_it_in_time() -> None:
    site = Site(LONG, reservations=(held("n0"), WINDOW))
    assert places(site.cycle()) == {"1": ("n0",)}
    site.show(running(LONG, "n0"), nodes=(node("n0", used=1),))
    assert site.until_called(500)[1] == [Requeue("1")]
    lead_s = SETTINGS.grace_s + SETTINGS.checkpoint_wait_s
    assert WINDOW.start_s - site.clock.now == pytest.approx(lead_s, abs=2)


def test_before_maintenance_a_job_that_may_be_moved_goes_where_slurm_starts_it() -> None:
    works = replace(WINDOW, flags=frozenset({"MAINT"}))
    site = Site(LONG, reservations=(held("n0"), works))
    assert site.cycle() == []
    calls = site.see(LONG, nodes=TWO, reservations=(held("n0", "n1"), works))
    assert places(calls) == {"1": ("n1",)}


def test_a_job_that_a_window_shuts_out_keeps_no_other_job_off_the_rest_of_its_nodes() -> None:
    shape = replace(RIGID.resources, nodes=(2, 2))
    wide = replace(RIGID, gpus=8, resources=shape, time_limit_s=6000.0, submit_s=800.0)
    behind = replace(RIGID, id="6", time_limit_s=6000.0)
    site = Site(wide, behind, nodes=TWO, reservations=(held("n0", "n1"), WINDOW))
    assert places(site.cycle()) == {"6": ("n1",)}
    assert site.blocked("5").detail == "upgrade"


def test_a_job_that_may_not_be_moved_stays_and_none_is_placed_that_would_reach_in() -> None:
    long, short = replace(RIGID, id="6", time_limit_s=6000.0), replace(RIGID, time_limit_s=400.0)
    runs = running(replace(RIGID, id="8", time_limit_s=6000.0), "n0")
    site = Site(long, short, runs, nodes=(node("n0", used=1),), reservations=(held("n0"), WINDOW))
    assert site.cycle() == [WHOLE]
    snapshot = site.daemon.snapshot()
    assert snapshot is not None
    assert "upgrade" in str(why(make_policy("fifo"), snapshot, site.daemon.plan, "6").reasons)
    site.show(long, runs)
    assert not places(site.cycle(WINDOW.end_s - site.clock.now - 20, every_s=20))
    assert "6" in places(site.cycle(20))


# -- letting go ------------------------------------------------------------------------------------


def test_what_is_let_go_of_is_ours_and_has_not_ended() -> None:
    there = [reservation(name, NOW + 9) for name in (HOLD, "theirs")]
    assert list(letting_go([*there, reservation(SECOND, NOW)], NOW)) == [Drop(HOLD)]


def test_what_the_last_cycle_placed_leaves_in_its_own_shape_before_the_nodes_are_let_go() -> None:
    chosen = replace(RIGID, id="6", pinned=("n0",))
    plain = replace(RIGID, id="7", gpus=0, pinned=("n0",))
    runs = replace(running(RIGID, "n0"), id="8")
    site = Site(WAITING, chosen, plain, runs, reservations=())
    site.cycle()
    site.backend.calls.clear()
    entered = (placed(job, "n0") for job in (WAITING, chosen, plain))
    site.show(*entered, runs, reservations=(held("n0"),))
    report = site.daemon.let_go()
    back = [left(WAITING), Leave("6", ("n0",)), Leave("7", ("n0",)), Drop(HOLD)]
    assert site.backend.calls == back
    # The log tells of it.
    assert report.outcome is not None
    assert list(report.outcome.made) == back


def test_a_daemon_that_goes_over_to_shadow_lets_go_too_and_once() -> None:
    site = Site(placed(RIGID, "n0"))
    report = site.daemon.adopt(make_policy("fifo"), SETTINGS, DaemonMode.SHADOW)
    site.daemon.let_go()
    assert site.backend.calls == [Leave("5"), Drop(HOLD)]
    assert report.outcome is not None
    assert list(report.outcome.made) == site.backend.calls


def test_a_slurm_that_is_away_keeps_no_daemon_from_stopping() -> None:
    class Away(FakeBackend):
        def read(self) -> SlurmState:
            raise AwayError("nobody answers")

    site = Site(WAITING, backend=Away())
    site.daemon.let_go()
    assert site.backend.calls == []


# -- while a policy thinks -------------------------------------------------------------------------


def await_calls(backend: FakeBackend, count: int) -> None:
    """Wait until so many calls were made."""
    deadline = time.monotonic() + 30.0
    while len(backend.calls) < count:
        assert time.monotonic() < deadline, backend.calls
        time.sleep(0.01)


def test_the_hold_is_renewed_again_and_again_whatever_slurm_answers_and_no_more_afterwards() -> (
    None
):
    backend = FakeBackend(errors=(RefusedError("no"), AwayError("away")))
    with renewing(backend, FIRST, every_s=0.01):
        await_calls(backend, 4)
    made = len(backend.calls)
    # A quick policy costs no call.
    with renewing(backend, FIRST, every_s=15):
        time.sleep(0.05)
    assert backend.calls == [FIRST] * made


@dataclass
class Slow(Policy):
    """Thinks until something has come about, and then as fifo does."""

    info: ClassVar[PolicyInfo] = make_policy("fifo").info

    until: Callable[[], None] = field(default=lambda: None)

    def plan(self, snapshot: Snapshot) -> Plan:
        self.until()
        return make_policy("fifo").plan(snapshot)


@pytest.mark.parametrize("mode", DaemonMode)
def test_the_daemon_keeps_the_nodes_held_while_its_policy_thinks_and_in_shadow_does_not(
    mode: DaemonMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.daemon.daemon._RENEW", 0.001)
    backend = FakeBackend()
    shadow = mode is DaemonMode.SHADOW
    slow = Slow(until=lambda: time.sleep(0.05) if shadow else await_calls(backend, 2))
    site = Site(WAITING, backend=backend, policy=slow, mode=mode)
    calls = site.cycle()
    assert set(calls[:-1]) == (set() if shadow else {FIRST})
    assert places(calls[-1:]).keys() == (set() if shadow else {"1"})


def test_the_daemon_renews_before_it_makes_more_changes_than_there_is_time_for() -> None:
    jobs = [replace(WAITING, id=str(number), gpus=1) for number in range(1, 4)]
    backend = FakeBackend()
    site = Site(
        *jobs,
        reservations=(held("n0", until_s=1005.0),),
        backend=backend,
        settings=replace(SETTINGS, slack_s=20),
        # Each call takes 4 s.
        stopwatch=lambda: 4.0 * len(backend.calls),
    )
    for _ in range(2):
        assert [type(change) for change in site.cycle()] == [Hold, Enter]
        outcome = site.report.outcome
        assert outcome is not None
        assert [type(change) for change in outcome.put_off] == [Enter, Enter]
