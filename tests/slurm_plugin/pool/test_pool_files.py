"""Files of a pool that are damaged, gone, or cannot be read or written for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.policy import make_policy
from slurm_plugin.pool import Scheduler, state
from slurm_plugin.pool.state import cancel
from slurm_plugin.pool.status import status
from tests.slurm_plugin.pool.members import (
    Hand,
    add,
    pool,
    scheduler,
    stopped,
    training,
    worked_off,
)


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
