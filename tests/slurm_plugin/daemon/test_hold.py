"""One reservation keeps the managed nodes, and windows of others close them, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.explain import why
from hetsched_core.policy import make_policy
from slurm_plugin.backend import Drop, Enter, Hold, Leave, Requeue, SlurmReservation
from slurm_plugin.daemon import Mode
from slurm_plugin.daemon.hold import holding, letting_go, windows_of
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    MOVABLE,
    RIGID,
    SETTINGS,
    WAITING,
    Clock,
    daemon_of,
    held,
    node,
    running,
    state,
)

SECOND = "hetsched-2"
NOW = 1000.0


def reservation(name: str, until_s: float, *nodes: str) -> SlurmReservation:
    return SlurmReservation(name, nodes or ("n0",), 0.0, until_s)


@pytest.mark.parametrize(
    ("there", "done"),
    [
        ((), [Hold(HOLD, ("n0",), 60)]),
        ((reservation(HOLD, NOW + 31),), []),
        ((reservation(HOLD, NOW + 29),), [Hold(HOLD, ("n0",), 60)]),
        # Whoever has set it so, without a daemon nothing would start for days.
        ((reservation(HOLD, NOW + 86_400),), [Hold(HOLD, ("n0",), 60)]),
        ((reservation(HOLD, NOW + 60, "n0", "n1"),), [Hold(HOLD, ("n0",), 60)]),
        # One that has ended is listed, and keeps its name, while jobs run in it.
        ((reservation(HOLD, NOW),), [Hold(SECOND, ("n0",), 60)]),
        ((reservation(HOLD, NOW), reservation(SECOND, NOW + 60)), []),
        ((reservation(HOLD, NOW + 60), reservation(SECOND, NOW + 60)), [Drop(SECOND)]),
        ((reservation(HOLD, NOW), reservation(SECOND, NOW)), [Hold(HOLD, ("n0",), 60)]),
        ((reservation("maintenance", NOW + 60),), [Hold(HOLD, ("n0",), 60)]),
    ],
    ids=[
        *(
            "none",
            "long enough",
            "half the slack",
            "days",
            "other nodes",
            "ended",
            "second",
            "both",
        ),
        *("both ended", "another's"),
    ],
)
def test_the_nodes_are_held_by_one_reservation_for_as_long_as_the_slack(
    there: tuple[SlurmReservation, ...], done: list[Hold | Drop]
) -> None:
    assert list(holding(there, ("n0",), SETTINGS, NOW)) == done


def test_what_is_let_go_of_is_ours_and_has_not_ended() -> None:
    there = [reservation(name, NOW + 9) for name in (HOLD, "theirs")]
    assert list(letting_go([*there, reservation(SECOND, NOW)], NOW)) == [Drop(HOLD)]


def test_jobs_enter_the_reservation_that_is_made_in_the_same_cycle() -> None:
    for there, name in (((), HOLD), ((held("n0", until_s=900.0),), SECOND)):
        backend = FakeBackend(state(RIGID, reservations=there))
        daemon_of(backend, Clock()).cycle()
        assert backend.calls == [
            Hold(name, ("n0",), 60),
            Enter("5", name, ("n0",), Leave("5")),
        ]


def test_in_shadow_nothing_is_held_and_nothing_let_go_of() -> None:
    backend = FakeBackend(state(WAITING, RIGID, reservations=()))
    daemon = daemon_of(backend, Clock(), mode=Mode.SHADOW)
    report = daemon.cycle()
    daemon.let_go()
    assert {change.job for change in report.changes if isinstance(change, Enter)} == {"1", "5"}
    assert backend.calls == []


# -- windows ---------------------------------------------------------------------------------------

WINDOW = SlurmReservation("upgrade", ("n0",), 1500.0, 2000.0)


def test_reservations_of_others_are_windows_and_what_is_over_is_none() -> None:
    licences = replace(WINDOW, nodes=())
    over = replace(WINDOW, end_s=NOW)
    (window,) = windows_of([WINDOW, licences, over, held()], NOW)
    assert (window.from_s, window.until_s, window.nodes) == (1500.0, 2000.0, frozenset({"n0"}))


def test_a_job_that_may_be_moved_uses_a_node_until_its_window_and_leaves_it_in_time() -> None:
    job = replace(MOVABLE, time_limit_s=6000.0)
    kept = held("n0")
    backend, clock = FakeBackend(state(job, reservations=(kept, WINDOW))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert [type(change) for change in backend.calls] == [Enter]
    backend.calls.clear()
    runs = running(job, "n0")
    backend.state = state(runs, nodes=(node("n0", used=1),), reservations=(kept, WINDOW))
    while not backend.calls:
        clock.now += 1
        assert daemon.cycle().violations == ()
        assert clock.now < WINDOW.start_s
    assert backend.calls == [Requeue("1")]
    lead_s = SETTINGS.grace_s + SETTINGS.checkpoint_wait_s
    assert WINDOW.start_s - clock.now == pytest.approx(lead_s, abs=2)


def test_before_maintenance_a_job_that_may_be_moved_goes_where_slurm_starts_it() -> None:
    job = replace(MOVABLE, time_limit_s=6000.0)
    works = replace(WINDOW, flags=frozenset({"MAINT"}))
    backend = FakeBackend(state(job, reservations=(held("n0"), works)))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert backend.calls == []
    other = (node("n0"), node("n1"))
    backend.state = state(job, nodes=other, reservations=(held("n0", "n1"), works))
    daemon.cycle()
    (placed,) = (change for change in backend.calls if isinstance(change, Enter))
    assert placed.nodes == ("n1",)


def test_a_job_that_a_window_shuts_out_keeps_no_other_job_off_the_rest_of_its_nodes() -> None:
    shape = replace(RIGID.resources, nodes=(2, 2))
    wide = replace(RIGID, gpus=8, resources=shape, time_limit_s=6000.0, submit_s=800.0)
    behind = replace(RIGID, id="6", time_limit_s=6000.0)
    nodes, both = (node("n0"), node("n1")), held("n0", "n1")
    backend = FakeBackend(state(wide, behind, nodes=nodes, reservations=(both, WINDOW)))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert [(c.job, c.nodes) for c in backend.calls if isinstance(c, Enter)] == [("6", ("n1",))]
    blocked = daemon.world.jobs["5"].blocked
    assert blocked is not None
    assert blocked.detail == "upgrade"


def test_a_job_that_may_not_be_moved_stays_and_none_is_placed_that_would_reach_in() -> None:
    long, short = replace(RIGID, id="6", time_limit_s=6000.0), replace(RIGID, time_limit_s=400.0)
    runs = running(replace(RIGID, id="8", time_limit_s=6000.0), "n0")
    used = (node("n0", used=1),)
    backend, clock = FakeBackend(), Clock()
    backend.state = state(long, short, runs, nodes=used, reservations=(held("n0"), WINDOW))
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert backend.calls == [Enter("5", HOLD, ("n0",), Leave("5"))]
    snapshot = daemon.snapshot()
    assert snapshot is not None
    assert "upgrade" in str(why(make_policy("fifo"), snapshot, daemon.plan, "6").reasons)
    backend.state = state(long, runs, nodes=used, reservations=(held("n0"), WINDOW))
    backend.calls.clear()
    while clock.now < WINDOW.end_s:
        clock.now += 20
        assert daemon.cycle().violations == ()
        assert backend.calls == [] or clock.now == WINDOW.end_s
    assert [change.job for change in backend.calls] == ["6"]
