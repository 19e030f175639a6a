"""Members of a pool that come, go, hang and are silent, as its scheduler takes them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hetsched_core.policy import make_policy
from slurm_plugin.pool import Scheduler, state
from slurm_plugin.pool.state import cancel
from slurm_plugin.pool.status import REJECTED, status
from tests.slurm_plugin.pool.members import Hand, add, pool, scheduler, training, worked_off


def test_what_a_member_ran_when_it_was_killed_is_run_by_another_and_no_more_is_lost(
    tmp_path: Path,
) -> None:
    made = pool(tmp_path)
    lost, other = Hand(made, "a0"), Hand(made, "b0")
    made_by = scheduler(made, "hlas", groups="2")
    add(made, training("x", 2, 2))
    made_by.step()
    assert {lost.begin()[2], other.begin()[2]} == {0, 1}
    # One has trained, and was killed before its gradient was there; the other's is.
    lost.train(lost.begun[0])
    other.train(other.begun[0])
    other.store(other.begun[0], 2)
    made_by.step()
    assert (lost.order(), other.order()) == ([], [])
    lost.file.unlink()
    made_by.step()
    assert other.order() == [lost.begun[0]]
    assert worked_off(made_by, [other], 2)[0] == f"x 0 {lost.begun[0][2]}"


def test_a_plan_made_anew_gives_no_member_what_another_one_runs(tmp_path: Path) -> None:
    made = pool(tmp_path)
    hands, made_by = [Hand(made, "a0"), Hand(made, "b0")], scheduler(made, "hare")
    add(made, training("x", 1, 5))
    made_by.step()
    begun = [hand.begin() for hand in hands]
    add(made, training("y", 1))
    made_by.step()
    tasks = [*begun, *(task for hand in hands for task in hand.order() if task[0] == "x")]
    assert sorted(tasks) == [("x", 0, number) for number in range(5)]


def test_members_come_and_go_and_all_is_planned_anew(tmp_path: Path) -> None:
    made = pool(tmp_path)
    one = Hand(made, "a0")
    for name in "xyz":
        add(made, training(name, 3))
    made_by = scheduler(made, "allox")
    made_by.step()
    one.begin()
    made_by.step()
    assert set(made_by.state.stations) == {"a0"}
    more = [Hand(made, "b0"), Hand(made, "b1")]
    made_by.step()
    assert all(hand.order() for hand in more)
    more[1].file.unlink()
    one.train(one.begun[0])
    one.store(one.begun[0])
    ran = worked_off(made_by, [one, more[0]])
    assert len(ran) == len(set(ran)) == 8
    assert set(made_by.state.stations) == {"a0", "b0"}


def test_a_member_that_shows_itself_no_more_is_gone_and_comes_back_when_it_does(
    tmp_path: Path,
) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made)
    made_by.step()
    long_ago = hand.file.stat().st_mtime - 100.0
    os.utime(hand.file, (long_ago, long_ago))
    made_by.step()
    assert not made_by.state.stations
    os.utime(hand.file)
    made_by.step()
    assert set(made_by.state.stations) == {"a0"}


def silent(made_by: Scheduler, hand: Hand) -> None:
    """Let a member be gone for a while, and come back."""
    long_ago = hand.file.stat().st_mtime - 100.0
    os.utime(hand.file, (long_ago, long_ago))
    made_by.step()
    assert not made_by.state.stations
    os.utime(hand.file)
    made_by.step()


def test_a_member_that_was_silent_runs_again_what_it_began_before_and_lost(tmp_path: Path) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made)
    add(made, training("x", 2))
    made_by.step()
    # It has trained, and its gradient was lost with the file system.
    hand.train(hand.begin())
    silent(made_by, hand)
    assert hand.order() == [("x", 0, 0)]


def test_a_member_that_was_silent_while_it_trained_is_in_its_task_still(tmp_path: Path) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made)
    add(made, training("x", 2))
    made_by.step()
    task = hand.begin()
    made_by.step()
    silent(made_by, hand)
    station = made_by.state.stations["a0"]
    assert (station.running, station.given) == (task, False)


def test_a_task_that_was_told_before_its_training_was_seen_counts_once(tmp_path: Path) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made)
    hand.train(hand.begin(("x", 0, 0)))
    made_by.step()
    add(made, training("x", 2))
    made_by.step()
    assert made_by.state.begun["a0"] == 1
    assert made_by.state.stations["a0"].busy_s == 0.5
    assert made_by.state.active["x"].trained == {(0, 0): "a0"}


def test_a_task_that_a_member_has_dropped_is_planned_anew(tmp_path: Path) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made, "hare")
    add(made, training("x", 2))
    made_by.step()
    plans = made_by.plans
    assert hand.order()[0] == ("x", 0, 0)
    # The member passes this task over for a reason of its own.
    made_by.step()
    assert made_by.plans == plans
    made_by.state._clock = lambda: time.time() + 11.0
    add(made, training("urgent", 1, weight=1000.0))
    made_by.step()
    assert hand.order()[0] == ("urgent", 0, 0)


def test_a_task_whose_end_was_told_in_a_torn_line_has_ended_once_its_round_has(
    tmp_path: Path,
) -> None:
    made, now = pool(tmp_path), [1000.0]
    hand = Hand(made, "a0", clock=lambda: now[0])
    add(made, training("x", 1))
    made_by = Scheduler(made, make_policy("hlas", {}), clock=lambda: now[0])
    made_by.step()
    hand.store(hand.begin())
    made_by.step()
    add(made, training("y", 1))
    made_by.step()
    assert made.result("x") is None
    now[0] += state.TOLD_S + 1.0
    for _ in range(2):
        made_by.step()
    result = made.result("x")
    assert result is not None
    assert (result.failed, result.rounds, result.losses) == ("", 1, ())
    assert hand.order() == [("y", 0, 0)]


def test_nothing_is_planned_for_a_member_that_hangs_in_a_training_that_was_cancelled(
    tmp_path: Path,
) -> None:
    made = pool(tmp_path)
    hangs, other = Hand(made, "a0"), Hand(made, "b0")
    add(made, training("x", 9))
    made_by = scheduler(made, "hare")
    made_by.step()
    hangs, other = (hangs, other) if hangs.order() else (other, hangs)
    hangs.begin()
    made_by.step()
    cancel(made, "x")
    for name in "yz":
        add(made, training(name, 3))
    made_by.step()
    assert hangs.order() == []
    assert {task[0] for task in other.order()} == {"y", "z"}
    # Its process was killed, of which the member tells.
    hangs.tell(what="failed", job="x", why="it was ended")
    made_by.step()
    assert hangs.order()


def test_lines_of_members_that_are_none_are_passed_over_and_told_by_status(tmp_path: Path) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made)
    add(made, training("x", 2))
    made_by.step()
    hand.tell(what="began", job="../x", round=0, number=0, at_s=1.0)
    hand.tell(what="began", job="x", round=-1, number=0, at_s=1.0)
    hand.tell(what="gone")
    with (made.path / "outcomes" / "a0.jsonl").open("a") as file:
        file.write("not JSON\n[]\n")
    worked_off(made_by, [hand])
    assert status(made).problems == (f"5 {REJECTED}",)


def test_a_member_s_file_of_another_name_is_none(tmp_path: Path) -> None:
    made, said = pool(tmp_path), list[str]()
    Hand(made, "a0").file.rename(made.path / "members" / "b0.json")
    made_by = Scheduler(made, make_policy("hlas", {}), said.append)
    made_by.step()
    assert not made_by.state.stations
    assert "b0.json: it is of 'a0'" in said[0]
