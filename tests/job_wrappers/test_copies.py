"""The tracker of copies: who does how many steps, and what lost copies and trackers cost."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policies.hadar.copies import split_steps, within_slot
from job_wrappers import tensor_file
from job_wrappers.consolidation import Consolidated, Copy, Tracker, Turn
from job_wrappers.consolidation.__main__ import main
from job_wrappers.consolidation.folder import ConsolidationRound, Share
from job_wrappers.consolidation.rounds import (
    Begin,
    Consolidate,
    Finish,
    Over,
    RoundRules,
    Standing,
    Wait,
    divided,
    next_act,
)
from job_wrappers.consolidation.tracker import Done, place, track
from tests.job_wrappers.worlds import NONCE, begun, environment


@given(
    steps=st.integers(1, 100_000),
    rates=st.lists(st.floats(0.01, 1000.0), min_size=1, max_size=8),
    round_s=st.floats(1.0, 1000.0),
)
def test_steps_are_divided_as_the_policy_does_it(
    steps: int, rates: list[float], round_s: float
) -> None:
    names = [f"n{at}" for at in range(len(rates))]
    expected = within_slot(split_steps(steps, rates), rates, round_s)
    found = divided(steps, names, dict(zip(names, rates, strict=True)), round_s)
    assert [found.get(name, 0) for name in names] == expected


@given(
    steps=st.integers(1, 10_000),
    known=st.dictionaries(st.sampled_from("abcd"), st.floats(0.1, 100.0)),
)
def test_a_copy_that_nobody_knows_counts_like_the_mean(steps: int, known: dict[str, float]) -> None:
    names = ["a", "b", "c", "d", "e"]
    mean = sum(known.values()) / len(known) if known else 1.0
    filled = {name: known.get(name, mean) for name in names}
    assert divided(steps, names, known, 1e9) == divided(steps, names, filled, 1e9)
    assert sum(divided(steps, names, known, 1e9).values()) == steps


RULES = RoundRules(steps=100, round_s=60.0, late_s=10.0, gather_s=5.0)
RUNNING = ConsolidationRound(3, 40, {"a": Share(6, 40), "b": Share(4, 46)}, ends_s=1000.0)
BOTH = {"a": 1.0, "b": 2.0}


@pytest.mark.parametrize(
    ("seen", "act"),
    [
        (Standing(900.0), Wait("a copy's start")),
        (Standing(4.0, done=0, present={"a": 0.0}), Wait("more copies")),
        (Standing(5.0, done=0, present={"a": 0.0}), Begin({"a": 100}, 65.0)),
        (Standing(999.0, RUNNING, done=40, present=BOTH), Wait("reports of a, b")),
        (Standing(1009.0, RUNNING, done=40, present=BOTH, arrived={"a": 6}), Wait("reports of b")),
        # It died, or hangs.
        (Standing(1010.0, RUNNING, done=40, present=BOTH, arrived={"a": 6}), Consolidate()),
        # It has left.
        (Standing(950.0, RUNNING, done=40, present={"a": 1.0}, arrived={"a": 6}), Consolidate()),
        # All have reported, long before the end.
        (
            Standing(950.0, RUNNING, done=40, present=BOTH, arrived={"a": 6, "b": 4}),
            Consolidate(),
        ),
        (
            Standing(951.0, RUNNING, averaged=True, done=50, present=BOTH, rates={"a": 3, "b": 2}),
            Begin({"a": 30, "b": 20}, 1011.0),
        ),
        (Standing(951.0, RUNNING, averaged=True, done=50), Wait("copies")),
        (Standing(951.0, RUNNING, averaged=True, done=100, present=BOTH), Finish()),
        (Standing(951.0, ConsolidationRound(4, 100, {}), done=100), Over()),
    ],
)
def test_what_is_next(seen: Standing, act: object) -> None:
    assert next_act(seen, RULES) == act


START = {"steps": 0}
"""A state without tensors, which needs no torch."""


def worked(copy: Copy, steps: int | None = None) -> Turn:
    """Let a copy do its turn, without torch."""
    turn = copy.await_turn(0.0)
    assert turn is not None
    own = turn.steps if steps is None else steps
    copy.report(turn, own, {"steps": turn.done + own})
    return turn


def test_a_turn_is_over_with_its_steps_or_its_time() -> None:
    turn = Turn(number=0, steps=10, first=0, done=0, ends_s=100.0, state=None)
    assert [turn.over(*at) for at in ((9, 99.0), (10, 0.0), (3, 100.0))] == [False, True, True]
    assert not replace(turn, ends_s=None).over(3, 1e12)


def test_states_without_tensors_are_kept_without_torch(tmp_path: Path) -> None:
    path = tmp_path / "x.tensors"
    state: dict[str, Any] = {"a": [1, 2.5, None, True, "text"], "b": {"c": -0.0}}
    tensor_file.write(path, {"number": 3}, state)
    header, found = tensor_file.read(path)
    assert (header["number"], header["plain"], found) == (3, True, state)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"text", b"test"))
    with pytest.raises(ValueError, match="damaged"):
        tensor_file.read(path)


def test_who_waits_for_a_turn_takes_part_until_it_leaves_or_falls_silent(tmp_path: Path) -> None:
    tracker, copies = begun(tmp_path, START, a=4, b=2)
    Copy(tmp_path, "another job's", "c")._join()
    assert set(tracker.standing(0.0).present) == {"a", "b"}
    worked(copies["a"])
    tracker.consolidate()
    seen = tracker.standing(0.0)
    assert (seen.done, set(seen.present), set(seen.rates)) == (4, {"a"}, {"a"})
    # It had only been slow.
    with pytest.raises(TimeoutError):
        copies["b"].await_turn(0.0)
    assert set(tracker.present()) == {"a", "b"}
    copies["b"].leave()
    assert set(tracker.present()) == {"a"}


def test_what_was_decided_of_a_round_that_is_over_does_nothing_to_the_next(tmp_path: Path) -> None:
    tracker, copies = begun(tmp_path, START, a=4)
    first, copy = tracker.round(), copies["a"]
    worked(copy)
    tracker.consolidate()
    second = tracker.begin({"a": 4})
    # Another tracker that was slow to act on the first round.
    assert tracker.consolidate(of=first).steps == {"a": 4}
    assert tracker.begin({"a": 1}, number=1) == second
    assert not tracker.standing(0.0).averaged
    worked(copy)
    assert tracker.consolidate().done == 8


def test_a_late_report_changes_nothing(tmp_path: Path) -> None:
    tracker, copies = begun(tmp_path, START, a=2, b=3)
    worked(copies["a"])
    late = copies["b"].await_turn(0.0)
    assert late is not None
    ended = tracker.consolidate()
    copies["b"].report(late, 3, {"steps": 99})
    assert tracker.consolidate() == ended
    before = tracker.newest_model()
    tracker.begin({"a": 2, "b": 3})
    assert (tracker.arrived(), tracker.newest_model()) == ({}, before)
    assert worked(copies["b"]).number == 1


def test_a_round_of_which_nothing_came_is_begun_again_from_the_same_model(tmp_path: Path) -> None:
    tracker, copies = begun(tmp_path, START, a=2, b=3)
    worked(copies["b"], steps=0)
    ended = tracker.consolidate()
    assert (ended.steps, ended.done) == ({}, 0)
    assert ended.left_out == {"a": "no report", "b": "0 steps of 3 given to it"}
    tracker.begin({"a": 5})
    turn = worked(copies["a"])
    assert (turn.state, turn.first) == (START, 5)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path, NONCE)
    with pytest.raises(ValueError, match="begin one"):
        tracker.consolidate()
    with pytest.raises(ValueError, match="0 steps for copy a"):
        tracker.begin({"a": 0})
    with pytest.raises(ValueError, match=r"copy '\.\./x'"):
        tracker.begin({"../x": 1})
    tracker.begin({"a": 1})
    with pytest.raises(ValueError, match="no copy has offered"):
        tracker.consolidate()
    with pytest.raises(ValueError, match="round 0 goes on"):
        tracker.begin({"a": 1})
    with pytest.raises(ValueError, match="of another job"):
        Tracker(tmp_path, "another").round()


def test_two_copies_on_one_node_are_two(tmp_path: Path) -> None:
    tracker, rules = Tracker(tmp_path, NONCE), RoundRules(60, 30.0, 30.0, 0.0)
    words = [sys.executable, "-m", "job_wrappers.consolidation.stub", str(tmp_path), "--speed=200"]
    jobs = [
        subprocess.Popen(
            words,
            env=environment(more={"SLURM_JOB_ID": job, "HETSCHED_NONCE": NONCE}),
            stdout=subprocess.PIPE,
            text=True,
        )
        for job in ("7", "8")
    ]
    deadline = time.monotonic() + 60
    while set(tracker.present()) != {"n0-7", "n0-8"} and time.monotonic() < deadline:
        time.sleep(0.05)
    acts: list[Done] = []
    assert track(tracker, rules, tell=acts.append, poll_s=0.05) == 60
    begun = next(act.result for act in acts if isinstance(act.result, ConsolidationRound))
    assert begun.shares == {"n0-7": Share(30, 0), "n0-8": Share(30, 30)}
    ended = [act.result.steps for act in acts if isinstance(act.result, Consolidated)]
    assert ended == [{"n0-7": 30, "n0-8": 30}]
    assert ["done at 60 steps" in job.communicate(timeout=60)[0] for job in jobs] == [True, True]


class Crowd:
    """Copies and their trackers in one process, by turns; a clock that only they move.

    Copies die in the middle of a turn, leave with a part of it, and join; one is always there.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        # Copies note down by the wall clock when they joined.
        self.folder, self.now_s, self.random = folder, time.time(), random.Random(seed)
        self.copies: dict[str, Copy] = {}
        self.acts: list[Done] = []
        for name in "abcd":
            self.join(name)

    def join(self, name: str) -> None:
        self.copies[name] = Copy(self.folder, NONCE, name)
        self.copies[name].offer(START)

    def work(self, seconds: float) -> None:
        """Let time pass, in which each living copy may do its turn."""
        self.now_s += seconds
        for name, copy in sorted(self.copies.items()):
            try:
                turn = copy.await_turn(0.0)
            except TimeoutError:
                continue
            if turn is None:
                continue
            fate = self.random.random() if len(self.copies) > 1 else 1.0
            if fate < 0.15:
                del self.copies[name]
                return
            own = self.random.randint(1, turn.steps)
            copy.report(turn, own, {"steps": turn.done + own})
            if fate < 0.25:
                copy.leave()
                del self.copies[name]
            elif self.random.random() < 0.2:
                self.join(f"e{len(self.acts)}")

    def look(self, seconds: float) -> None:
        """Let time pass between two looks of a tracker, which may be killed there."""
        self.work(seconds)
        if self.random.random() < 0.5:
            raise InterruptedError


@pytest.mark.parametrize("seed", range(8))
def test_trackers_beside_copies_that_die_leave_and_join_come_to_one_sequence_of_rounds(
    tmp_path: Path, seed: int
) -> None:
    crowd = Crowd(tmp_path, seed)
    tracker, rules = Tracker(tmp_path, NONCE), RoundRules(200, 60.0, 5.0, 5.0)
    done = None
    while done is None:
        beside = crowd.random.choice([*crowd.copies, None])
        try:
            done = track(
                *(tracker, rules, beside),
                tell=crowd.acts.append,
                clock=lambda: crowd.now_s,
                sleep=crowd.look,
            )
        except InterruptedError:
            continue
    assert done == 200
    begun = [act.result for act in crowd.acts if isinstance(act.act, Begin)]
    numbers = [each.number for each in begun]
    assert numbers == sorted(set(numbers))
    averaged = [act.result.number for act in crowd.acts if isinstance(act.act, Consolidate)]
    assert averaged == numbers
    # No round gives out more than is left.
    rounds = [each for each in begun if isinstance(each, ConsolidationRound)]
    assert all(sum(s.steps for s in each.shares.values()) <= 200 - each.done for each in rounds)
    assert {copy.await_turn(0.0) for copy in crowd.copies.values()} == {None}
    assert tracker.present() == {}
    # Files of rounds long over are deleted.
    last = numbers[-1] + 1
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {
        *(f"{kind}-{number:06}" for kind in ("model", "round") for number in (last - 1, last)),
    }


@pytest.mark.parametrize(
    ("averaged", "at", "count"),
    [
        (False, "watch", 1),  # it was stopped between a look and what it does then
        (True, "read_header", 1),  # it looks
        (True, "read_header", 3),  # it begins a round
        (False, "read", 1),  # it averages
        (False, "read", 2),
    ],
)
def test_a_tracker_that_is_overtaken_leaves_no_trace_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, averaged: bool, at: str, count: int
) -> None:
    tracker, copies = begun(tmp_path, START, a=4)
    copy = copies["a"]
    worked(copy)
    if averaged:
        tracker.consolidate()
    original, left = getattr(tensor_file, at, None), [count]

    def overtaken(given: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            for _ in range(3):
                tracker.consolidate()
                tracker.begin({"a": 2})
                worked(copy)
            tracker.consolidate()
            assert not original or not given.exists()
        return original and original(given)

    if original:
        monkeypatch.setattr(tensor_file, at, overtaken)
    watch = (lambda _: None) if original else overtaken
    acts: list[Done] = []
    rules = RoundRules(10, 60.0, 5.0, 0.0)
    told: dict[str, Any] = {"tell": acts.append, "watch": watch}
    assert track(tracker, rules, **told, clock=lambda: 0.0, sleep=lambda _: None) == 10
    # What it is told of the round that it was to begin is what others have begun.
    assert [act.result.number for act in acts] == [3, 4][count < 3 :]
    assert (acts[-1].act, left[0] <= 0) == (Finish(), True)
    assert set(tracker.present()) == {"a"}
    models = sorted(path.name for path in tmp_path.glob("model-*"))
    assert models == [f"model-{number:06}.tensors" for number in (3, 4)]


def test_the_tracker_of_the_copy_that_comes_first_goes_first() -> None:
    seen = Standing(0.0, present={"n1": 5.0, "n2": 1.0, "n10": 0.0})
    assert [place(name, seen) for name in (None, "n1", "n10", "n2", "n3")] == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"round_s": 0.0}, {"late_s": -1.0}, {"gather_s": float("nan")}]
)
def test_rules_that_no_job_can_have_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"s: (both above|from) 0"):
        RoundRules(**{"steps": 1, **wrong})


def test_a_scheduler_without_torch_drives_rounds_by_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    folder = tmp_path / "shared" / "job7"

    def command(*words: str) -> Any:
        code = main([str(folder), f"--nonce={NONCE}", *words])
        said = capsys.readouterr()
        return said.err if code else json.loads(said.out)

    for act in ("finish", "show", "consolidate"):
        assert f"{folder} is no folder: name the one" in command(act)
    assert command("begin", "n0=4")["shares"] == {"n0": {"steps": 4, "first": 0}}
    copy = Copy(folder, NONCE, "n0")
    copy.offer(START)
    assert command("show")["arrived"] == {}
    worked(copy)
    assert command("show")["arrived"] == {"n0": 4}
    assert "goes on" in command("finish")
    assert command("consolidate")["done"] == 4
    assert command("finish")["shares"] == {}
    assert copy.await_turn(0.0) is None
    assert command("begin", "n0") == "consolidation: n0: expected COPY=STEPS\n"
