"""The scheduler of a pool, step by step, with members that a test moves by hand."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.policy import make_policy
from job_wrappers.pool.asked import MOST_ROUNDS, SCHEMA
from slurm_plugin.pool import Scheduler, folder, state
from slurm_plugin.pool.folder import OutcomeReader, Pool
from slurm_plugin.pool.lock import only_one, scheduled
from slurm_plugin.pool.records import Line, Result
from slurm_plugin.pool.scheduler import IDLE_S, POLL_S, pool_policies
from slurm_plugin.pool.state import cancel
from slurm_plugin.pool.status import REJECTED, status
from tests.slurm_plugin.pool.members import Hand, add, pool, room_for, training

POLICIES = ("allox", "hare", "hlas", "hlas-l", "hlas-p", "sched-homo")


def scheduler(of: Pool, policy: str = "hlas", **parameters: str) -> Scheduler:
    def say(text: str) -> None:
        raise AssertionError(text)

    return Scheduler(of, make_policy(policy, parameters), say)


def worked_off(made: Scheduler, hands: list[Hand], scale: int = 1, steps: int = 400) -> list[str]:
    """Let members run whatever they are ordered, one task at a time, until all has ended."""
    ran: list[str] = []
    for _ in range(steps):
        made.step()
        if not made.state.active:
            return ran
        for hand in hands:
            if hand.order() and made.state.open(hand.order()[0]):
                name, round_, number = hand.run(scale)
                ran.append(f"{name} {round_} {number}")
    raise AssertionError(f"{sorted(made.state.active)} did not end; ran {ran}")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_of_tasks_runs_each_task_of_all_trainings_once(
    policy: str, tmp_path: Path
) -> None:
    made = pool(tmp_path)
    hands = [Hand(made, "a0"), Hand(made, "a1", "t4"), Hand(made, "b0")]
    for name, rounds in (("x", 3), ("y", 2), ("z", 2)):
        add(made, training(name, rounds, 2, group="search"))
    groups = {"groups": "3"} if policy.startswith("hlas") else {}
    ran = worked_off(scheduler(made, policy, **groups), hands, scale=2)
    wanted = {f"{n} {r} {k}" for n, rounds in (("x", 3), ("y", 2), ("z", 2))
              for r in range(rounds) for k in range(2)}  # fmt: skip
    assert sorted(ran) == sorted(wanted)
    for name, rounds in (("x", 3), ("y", 2), ("z", 2)):
        result = made.result(name)
        assert result is not None
        assert (result.failed, result.rounds, len(result.losses)) == ("", rounds, rounds)
        assert result.state == f"rounds/{name}/round-{rounds:06}.state"


def test_only_policies_of_tasks_are_taken_and_the_message_names_them(tmp_path: Path) -> None:
    assert tuple(pool_policies()) == POLICIES
    with pytest.raises(InputError, match=f"'las' places whole jobs.*valid: {', '.join(POLICIES)}"):
        scheduler(pool(tmp_path), "las")


def test_the_tail_of_an_order_is_replaced_when_a_training_comes_and_what_runs_goes_on(
    tmp_path: Path,
) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made, "hare")
    add(made, training("long", 50))
    made_by.step()
    assert hand.order()[:2] == [("long", 0, 0), ("long", 1, 0)]
    hand.begin()
    made_by.step()
    # By weight it goes before all that has not begun.
    add(made, training("urgent", 2, weight=1000.0))
    made_by.step()
    assert hand.order()[:3] == [("urgent", 0, 0), ("urgent", 1, 0), ("long", 1, 0)]


def test_a_task_of_an_older_order_that_begins_meanwhile_is_not_given_to_another_member(
    tmp_path: Path,
) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made, "hare")
    add(made, training("long", 50))
    made_by.step()
    hand.run()
    made_by.step()
    older = hand.order()
    add(made, training("urgent", 1, weight=1000.0))
    made_by.step()
    assert hand.order()[1] == ("urgent", 0, 0)
    # It was given this one before the other came, and so begins it; and then the next of the order
    # that it knew, before it has seen the new one.
    hand.train(hand.begin(older[0]))
    hand.store(older[0])
    hand.begin(older[1])
    made_by.step()
    station = made_by.state.stations["a0"]
    assert station.running == older[1]
    assert hand.order()[0] == ("urgent", 0, 0)
    assert older[1] not in hand.order()


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


def test_a_training_ends_with_the_loss_of_its_last_task_however_late_that_is_told(
    tmp_path: Path,
) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made)
    add(made, training("x", 1))
    made_by.step()
    task = hand.begin()
    # The process that trains is quicker to write what it has learned than the member is to tell.
    hand.store(task)
    made_by.step()
    assert made.result("x") is None
    hand.train(task, loss=0.5)
    made_by.step()
    result = made.result("x")
    assert result is not None
    assert (result.rounds, result.losses) == (1, (0.5,))


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


def test_a_task_that_runs_a_second_time_stands_for_no_other_one(tmp_path: Path) -> None:
    made = pool(tmp_path)
    lost, other = Hand(made, "a0"), Hand(made, "b0")
    add(made, training("x", 9))
    made_by = scheduler(made, "hare")
    made_by.step()
    first, then = (lost, other) if lost.order() else (other, lost)
    done = first.run()
    made_by.step()
    # The other one begins the same, of an older order; and the one that has the next is gone.
    then.begin(done)
    first.file.unlink()
    made_by.step()
    assert then.order()[0] == ("x", 1, 0)


def test_a_round_of_which_only_the_step_is_missing_is_closed_by_one_of_its_tasks(
    tmp_path: Path,
) -> None:
    made = pool(tmp_path)
    lost, other = Hand(made, "a0"), Hand(made, "b0")
    add(made, training("x", 1))
    made_by = scheduler(made, "hare")
    made_by.step()
    first, then = (lost, other) if lost.order() else (other, lost)
    task = first.begin()
    first.train(task)
    first.store(task, step=False)
    made_by.step()
    assert (lost.order(), other.order()) == ([], [])
    first.file.unlink()
    made_by.step()
    assert then.order() == [task]


def test_a_step_that_was_lost_is_made_up_for_though_another_that_trained_is_there(
    tmp_path: Path,
) -> None:
    made = pool(tmp_path)
    lost, other = Hand(made, "a0"), Hand(made, "b0")
    add(made, training("x", 1, 2))
    made_by = scheduler(made, "hlas", groups="2")
    made_by.step()
    for hand in (other, lost):
        task = hand.begin()
        hand.train(task)
        hand.store(task, 2, step=False)
    made_by.step()
    lost.file.unlink()
    made_by.step()
    assert other.order() == []
    made_by.state._clock = lambda: time.time() + 60.0
    made_by.step()
    assert other.order() == [("x", 0, 1)]


def test_the_next_scheduler_goes_on_where_the_last_was_killed(tmp_path: Path) -> None:
    made = pool(tmp_path)
    hands = [Hand(made, "a0"), Hand(made, "b0", "t4")]
    for name in "xyz":
        add(made, training(name, 4))
    first = scheduler(made, "hlas-p", groups="2")
    first.step()
    done = [hand.run() for hand in hands]
    first.step()
    begun = hands[0].begin()
    again = scheduler(made, "hlas-p", groups="2")
    again.step()
    assert again.state.stations["a0"].running == begun
    assert again.state.times.measured("make", "t4")
    hands[0].train(begun)
    hands[0].store(begun)
    ran = worked_off(again, hands)
    tasks = [*ran, *(f"{n} {r} {k}" for n, r, k in [*done, begun])]
    assert sorted(tasks) == sorted(f"{name} {r} 0" for name in "xyz" for r in range(4))
    x = made.result("x")
    assert x is not None
    assert len(x.losses) == 4


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


def test_a_training_whose_states_are_gone_fails_with_that_and_one_that_is_lost_costs_a_round(
    tmp_path: Path,
) -> None:
    made, now = pool(tmp_path), [1000.0]

    def clock() -> float:
        now[0] += 0.1
        return now[0]

    hands = [Hand(made, id_, clock=clock) for id_ in ("a0", "b0")]
    for name in ("x", "y"):
        add(made, training(name, 9))
    made_by = Scheduler(made, make_policy("hlas", {"groups": "2"}), clock=clock)
    made_by.step()
    for _ in range(3):
        for hand in hands:
            hand.run()
            made_by.step()
    done = {name: standing.rounds for name, standing in made_by.state.active.items()}
    assert done == {"x": 3, "y": 3}
    made.state("y", 3).unlink()
    made.state("y", 2).touch()
    for path in (made.path / "rounds" / "x").iterdir():
        path.unlink()
    # Nothing is ordered anew of what may only be listed late.
    made_by.step()
    assert not [t for hand in hands for t in hand.order() if t[:2] < ("x", 3)]
    now[0] += state.GONE_S
    made_by.step()
    result = made.result("x")
    assert result is not None
    assert result.failed == "its state files are gone: rounds/x/round-000003.state"
    assert (result.state, result.rounds) == ("", 3)
    worked_off(made_by, hands)
    other = made.result("y")
    assert other is not None
    assert (other.failed, other.rounds) == ("", 9)


def test_a_file_that_is_damaged_when_its_training_is_under_way_does_not_end_it(
    tmp_path: Path,
) -> None:
    made, said = pool(tmp_path), list[str]()
    hand = Hand(made, "a0")
    add(made, training("x", 3))
    scheduler(made).step()
    hand.run()
    path = made.path / "trainings" / "x.json"
    whole = path.read_text()
    path.write_text(whole[:-9])
    after = Scheduler(made, make_policy("hlas", {}), said.append)
    after.step()
    assert made.result("x") is None
    assert len(said) == 1
    assert "trainings/x.json" in said[0]
    assert "it is under way: mend the file" in said[0]
    path.write_text(whole)
    assert worked_off(after, [hand]) == ["x 1 0", "x 2 0"]
    assert status(made).problems == ()


def test_a_training_whose_file_is_damaged_is_cancelled_with_what_it_has_reached(
    tmp_path: Path,
) -> None:
    made = pool(tmp_path)
    hand = Hand(made, "a0")
    add(made, training("x", 3))
    scheduler(made).step()
    hand.run()
    (made.path / "trainings" / "x.json").write_text("{")
    cancel(made, "x")
    result = made.result("x")
    assert result is not None
    assert (result.failed, result.rounds) == ("cancelled", 1)
    assert (made.path / result.state).is_file()
    with pytest.raises(InputError, match="there is nothing to cancel"):
        cancel(made, "x")
    # It holds up nothing.
    after = Scheduler(made, make_policy("hlas", {}), list[str]().append)
    add(made, training("y", 1))
    assert worked_off(after, [hand]) == ["y 0 0"]


def test_a_folder_or_a_member_that_cannot_be_read_is_told_of_and_holds_up_no_other(
    tmp_path: Path,
) -> None:
    made, said = pool(tmp_path), list[str]()
    hand, made_by = Hand(made, "a0"), Scheduler(made, make_policy("hlas", {}), said.append)
    rounds, member = made.path / "rounds" / "x", made.path / "members" / "b0.json"
    for path in (rounds, member):
        path.symlink_to(path)
    for name in ("x", "y"):
        add(made, training(name, 2))
    made_by.step()
    assert hand.run() == ("y", 0, 0)
    for problems in (said, status(made).problems):
        assert [str(path) in " ".join(problems) for path in (rounds, member)] == [True, True]
    rounds.unlink()
    made_by.step()
    # One that was seen before stays where it was.
    away = rounds.with_name("away")
    hand.begin(("x", 0, 0))
    hand.train(("x", 0, 0))
    hand.store(("x", 0, 0))
    made_by.step()
    rounds.rename(away)
    rounds.symlink_to(rounds)
    made_by.step()
    assert made_by.state.active["x"].rounds == 1
    rounds.unlink()
    away.rename(rounds)
    member.unlink()
    worked_off(made_by, [hand])
    assert status(made).problems == ()
    assert [made.end_of(name).rounds for name in ("x", "y")] == [2, 2]
    assert len(said) == 2


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


def test_what_ended_a_training_first_stays(tmp_path: Path) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made)
    add(made, training("x", 3))
    made_by.step()
    hand.tell(what="failed", job="x", why="it was ended")
    made_by.state.observe()
    # Its user is quicker than the scheduler, which has looked already.
    cancel(made, "x")
    for name, result in made_by.state.close():
        assert not made.end(name, result)
    ended = made.result("x")
    assert ended is not None
    assert ended.failed == "cancelled"


def test_a_training_that_never_began_has_no_state(tmp_path: Path) -> None:
    made = pool(tmp_path)
    for name in ("waits", "begins"):
        add(made, training(name, 3))
    made.state("begins", 0).parent.mkdir()
    made.state("begins", 0).touch()
    states = []
    for name in ("waits", "begins"):
        cancel(made, name)
        states.append(made.end_of(name).state)
    assert states == ["", "rounds/begins/round-000000.state"]


def test_a_training_that_fails_ends_with_the_reason_and_takes_no_other_with_it(
    tmp_path: Path,
) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made)
    add(made, training("bad", 3, submit_s=1.0))
    add(made, training("good", 3, submit_s=2.0))
    made_by.step()
    hand.begin()
    hand.tell(what="failed", job="bad", why="its data is gone")
    worked_off(made_by, [hand])
    bad, good = made.result("bad"), made.result("good")
    assert bad is not None
    assert good is not None
    assert (bad.failed, bad.rounds) == ("its data is gone", 0)
    assert (good.failed, good.rounds) == ("", 3)


def test_times_are_estimated_by_the_published_rates_and_then_learned(tmp_path: Path) -> None:
    made = pool(tmp_path)
    fast, slow = Hand(made, "a0", "v100"), Hand(made, "b0", "k80")
    add(made, training("x", 30))
    made_by = scheduler(made, "hare")
    made_by.step()
    times = made_by.state.times
    assert times.of("make", "k80").train_s > 2.0 * times.of("make", "v100").train_s
    # The one that is published as the faster one is not, here.
    for _ in range(4):
        made_by.step()
        fast.run(train_s=9.0)
    assert times.of("make", "v100").train_s == 9.0
    assert times.of("make", "k80").train_s > 18.0
    slow_task = ("x", 4, 0)
    slow.begin(slow_task)
    slow.train(slow_task, train_s=0.25)
    slow.store(slow_task)
    made_by.step()
    assert times.of("make", "k80").train_s == 0.25
    # So hare has moved what is left.
    made_by.step()
    assert len(slow.order()) > len(fast.order())


def test_a_result_has_all_losses_however_much_was_told_before_the_scheduler_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "MOST_READ", 1 << 12)
    made = pool(tmp_path)
    hand = Hand(made, "a0")
    add(made, training("x", 200))
    for round_ in range(200):
        task = hand.begin(("x", round_, 0))
        hand.train(task)
        hand.store(task)
    scheduler(made).step()
    result = made.result("x")
    assert result is not None
    assert len(result.losses) == 200


def test_a_result_of_as_many_rounds_as_there_may_be_is_read_again(tmp_path: Path) -> None:
    made = pool(tmp_path)
    longest = -2.2250738585072014e-308
    result = Result(SCHEMA, "", "", (longest,) * MOST_ROUNDS, 1.0, 2.0, MOST_ROUNDS)
    made.end("x", result)
    assert made.end_of("x") == result


def test_times_are_known_at_once_when_the_job_is_started_again_with_other_members(
    tmp_path: Path,
) -> None:
    made = pool(tmp_path)
    before = Hand(made, "a0", "t4")
    add(made, training("x", 3))
    made_by = scheduler(made)
    made_by.step()
    before.run(train_s=7.0)
    before.file.unlink()
    Hand(made, "b0", "v100")
    again = scheduler(made)
    again.step()
    assert again.state.times.of("make", "t4").train_s == 7.0
    assert again.state.times.of("make", "v100").train_s < 7.0


def test_a_look_costs_no_more_after_many_rounds_and_many_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pool(tmp_path)
    Hand(made, "a0")
    add(made, training("x", 10_000))
    made_by = scheduler(made)
    for at in range(50):
        Hand(made, f"gone{at}").train(("x", at, 0))
        (made.path / "members" / f"gone{at}.json").unlink()
    (made.path / "rounds" / "x").mkdir()
    made.state("x", 50).touch()
    made_by.state._clock = lambda: 1000.0
    made_by.step()
    loss = made_by.state.active["x"].loss()
    assert len(loss) == 50
    read: list[str] = []
    new = OutcomeReader.new

    def counted(self: OutcomeReader, id_: str) -> Iterator[Line]:
        read.append(id_)
        return new(self, id_)

    monkeypatch.setattr(OutcomeReader, "new", counted)
    made_by.step()
    assert read == ["a0", "a0"]
    assert made_by.state.active["x"].loss() is loss


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


def test_a_training_that_cannot_be_read_ends_with_its_reason_and_holds_up_no_other(
    tmp_path: Path,
) -> None:
    made = pool(tmp_path)
    (made.path / "trainings" / "bad.json").write_text(
        '{"schema": "hetsched-pool/1", "name": "bad", "make": "m:f", "rounds": 1000.0}'
    )
    assert [t.state for t in status(made).trainings] == ["failed"]
    made_by = scheduler(made)
    add(made, training("good", 2))
    made.stop(when_done=True)
    worked_off(made_by, [Hand(made, "a0")])
    made_by.step()
    assert stopped(made)
    result = made.result("bad")
    assert result is not None
    assert "rounds is 1000.0; expected a whole number from 1 to 999999" in result.failed
    why = {t.name: t.why for t in status(made).trainings}
    assert why == {"bad": result.failed, "good": ""}


def test_a_training_that_cannot_be_read_just_now_is_not_done_and_is_not_cancelled(
    tmp_path: Path,
) -> None:
    made, said = pool(tmp_path), list[str]()
    hand, made_by = Hand(made, "a0"), Scheduler(made, make_policy("hlas", {}), said.append)
    away = made.path / "trainings" / "away.json"
    away.symlink_to(away)
    add(made, training("x", 1))
    made.stop(when_done=True)
    made_by.step()
    hand.run()
    made_by.step()
    made_by.step()
    assert made.result("x") is not None
    assert not stopped(made)
    assert ["away.json" in each for each in said] == [True]
    with pytest.raises(InputError, match=r"'away' was not cancelled: .*symbolic links"):
        cancel(made, "away")
    away.unlink()
    add(made, training("away", 1))
    made_by.step()
    hand.run()
    made_by.step()
    made_by.step()
    assert made.result("away") is not None
    assert stopped(made)


def test_a_file_whose_name_no_training_can_have_is_told_of_and_holds_up_nothing(
    tmp_path: Path,
) -> None:
    made, said = pool(tmp_path), list[str]()
    hand, made_by = Hand(made, "a0"), Scheduler(made, make_policy("hlas", {}), said.append)
    for name in ("y" * 245, "a b"):
        (made.path / "trainings" / f"{name}.json").write_text("{}")
    add(made, training("x", 1))
    made.stop(when_done=True)
    made_by.step()
    hand.run()
    made_by.step()
    made_by.step()
    assert stopped(made)
    assert sorted(each[-30:] for each in said) == [
        "s: 'a b' is no training's name",
        "yyyyyyyy is no training's name",
    ]
    assert [t.name for t in status(made).trainings] == ["x"]
    assert not list((made.path / "rounds").glob("y*"))


def test_a_pool_has_one_scheduler_at_a_time_and_the_next_waits_for_its_lock(tmp_path: Path) -> None:
    made, said, looks = pool(tmp_path), list[str](), list[int]()
    assert not scheduled(made.path)

    def other_ends() -> bool:
        looks.append(1)
        if len(looks) == 2:
            first.close()
        return False

    first = ExitStack()
    assert first.enter_context(only_one(made.path, lambda: True))
    assert scheduled(made.path)
    with only_one(made.path, lambda: True) as held:
        assert not held
    with only_one(made.path, other_ends, said.append) as held:
        assert held
    assert len(said) == 1
    assert "another scheduler runs the pool" in said[0]
    assert not scheduled(made.path)


def test_a_scheduler_has_its_lock_where_the_disk_is_full(tmp_path: Path) -> None:
    made = pool(tmp_path)
    with room_for(0), only_one(made.path, lambda: True) as held:
        assert held
        assert scheduled(made.path)
    with only_one(made.path, lambda: True):
        assert (made.path / "scheduler.lock").read_text() == f"{os.getpid()}\n"


def test_a_scheduler_whose_lock_file_is_removed_ends_and_says_so(tmp_path: Path) -> None:
    made, looks = pool(tmp_path), [0]

    def removed() -> bool:
        looks[0] += 1
        if looks[0] == 1:
            (made.path / "scheduler.lock").unlink()
        return looks[0] > 1000

    with (
        only_one(made.path, lambda: True),
        pytest.raises(InputError, match="is not the file that this scheduler has locked"),
    ):
        scheduler(made).run(removed)


def test_who_waited_for_a_lock_whose_file_was_removed_takes_that_of_the_file_that_is_there(
    tmp_path: Path,
) -> None:
    made, first = pool(tmp_path), ExitStack()
    first.enter_context(only_one(made.path, lambda: True))

    def removed() -> bool:
        (made.path / "scheduler.lock").unlink()
        first.close()
        return False

    with only_one(made.path, removed) as held:
        assert held
        with only_one(made.path, lambda: True) as other:
            assert not other


def test_a_file_system_that_is_away_for_a_while_costs_nothing_but_the_while(tmp_path: Path) -> None:
    made, said, fails = pool(tmp_path), list[str](), [0]
    made_by = Scheduler(made, make_policy("hlas", {}), said.append)
    hand = Hand(made, "a0")
    add(made, training("x", 2))
    for _ in range(2):
        made_by.step()
        hand.run()
    # It has all of its rounds; the pool ends once that is written.
    made.stop(when_done=True)
    results = made.path / "results"
    results.rename(made.path / "results-kept")

    def told() -> bool:
        fails[0] += 1
        if fails[0] == 3:
            (made.path / "results-kept").rename(results)
        return fails[0] > 100

    made_by.run(told)
    result = made.result("x")
    assert result is not None
    assert (result.failed, result.rounds) == ("", 2)
    assert stopped(made)
    assert len(said) == 1
    assert "they are tried again" in said[0]


def test_a_scheduler_looks_less_often_while_no_gpu_runs_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, pauses = pool(tmp_path), list[float]()
    Hand(made, "a0")
    made_by = scheduler(made)
    monkeypatch.setattr(time, "sleep", pauses.append)
    made_by.run(lambda: len(pauses) == 50)
    assert pauses == sorted(pauses)
    assert pauses[-2:] == [IDLE_S, IDLE_S]
    add(made, training("x", 3))
    pauses.clear()
    made_by.run(lambda: len(pauses) == 3)
    assert pauses == [POLL_S] * 3


def test_a_training_whose_result_cannot_be_written_ends_once_it_can(tmp_path: Path) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made)
    add(made, training("x", 1))
    made_by.step()
    hand.run()
    results = made.path / "results"
    results.rename(made.path / "away")
    made_by.state._find_trainings = lambda: None  # type: ignore[method-assign]
    with pytest.raises(InputError, match="cannot write"):
        made_by.step()
    (made.path / "away").rename(results)
    made_by.step()
    assert made.result("x") is not None


def test_a_member_s_file_of_another_name_is_none(tmp_path: Path) -> None:
    made, said = pool(tmp_path), list[str]()
    Hand(made, "a0").file.rename(made.path / "members" / "b0.json")
    made_by = Scheduler(made, make_policy("hlas", {}), said.append)
    made_by.step()
    assert not made_by.state.stations
    assert "b0.json: it is of 'a0'" in said[0]


def stopped(pool: Pool) -> bool:
    return pool.stopped


def test_a_training_that_is_done_with_the_pool_s_last_tasks_has_a_result(tmp_path: Path) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made)
    add(made, training("x", 1))
    add(made, training("y", 1, submit_s=2.0))
    made_by.step()
    task = hand.begin()
    made.stop()
    acts = iter(
        [
            lambda: None,
            lambda: hand.store(task),
            lambda: None,
            lambda: hand.train(task),
            hand.file.unlink,
        ]
    )
    made_by.run(lambda: next(acts, lambda: True)() is True)
    result = made.result("x")
    assert result is not None
    assert (result.failed, result.rounds, result.losses) == ("", 1, (1.0,))
    assert made.result("y") is None
    assert next(acts, None) is None


def test_a_pool_that_is_to_stop_when_it_is_done_stops_then_and_not_before(tmp_path: Path) -> None:
    made = pool(tmp_path)
    hand, made_by = Hand(made, "a0"), scheduler(made)
    made.stop(when_done=True)
    made_by.step()
    assert not stopped(made)
    add(made, training("x", 1))
    made_by.step()
    assert not stopped(made)
    hand.run()
    made_by.step()
    made_by.step()
    assert stopped(made)
    hand.file.unlink()
    # And goes on when it is made again.
    assert not stopped(pool(tmp_path))
