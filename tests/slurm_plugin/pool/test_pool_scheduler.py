"""The scheduler of a pool, step by step, with members that a test moves by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from job_wrappers.pool.asked import MOST_ROUNDS, SCHEMA
from slurm_plugin.pool import folder
from slurm_plugin.pool.folder import OutcomeReader
from slurm_plugin.pool.records import Line, Result
from slurm_plugin.pool.scheduler import IDLE_S, POLL_S, pool_policies
from slurm_plugin.pool.state import cancel
from tests.slurm_plugin.pool.members import (
    Hand,
    add,
    pool,
    scheduler,
    stopped,
    training,
    worked_off,
)

POLICIES = ("allox", "hare", "hlas", "hlas-l", "hlas-p", "sched-homo")


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
