"""Copies of a job that meet in a folder: what is averaged, and what a lost copy costs."""

from __future__ import annotations

import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from job_wrappers import tensor_file
from job_wrappers.averaging import Mean
from job_wrappers.consolidation import Averaging, Copy, Tracker, Turn
from tests.job_wrappers.worlds import NONCE, begun, same


class Training:
    """A small model with normalisation and Adam; batch `at` is the same for everybody."""

    def __init__(self) -> None:
        torch.manual_seed(5)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def load(self, state: Any) -> None:
        self.model.load_state_dict(state["model"])
        # torch goes on with the very tensors that it is given.
        self.optimizer.load_state_dict(deepcopy(state["optimizer"]))

    def step(self, at: int) -> None:
        torch.manual_seed(at)
        inputs = torch.randn(16, 4)
        self.optimizer.zero_grad()
        (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def made_of(self, turn: Turn) -> dict[str, Any]:
        self.load(turn.state)
        for step in range(turn.steps):
            self.step(turn.first + step)
        return self.state()


def reported(copy: Copy) -> Turn:
    """Let a copy do its turn."""
    turn = copy.await_turn(0.0)
    assert turn is not None
    copy.report(turn, turn.steps, Training().made_of(turn))
    return turn


def changed(path: Path, weight: Any = None, **header: object) -> None:
    """Write a report anew, with another weight of the first layer or another header."""
    said, state = tensor_file.read(path)
    if weight is not None:
        state["model"]["0.weight"] = weight(state["model"]["0.weight"])
    tensor_file.write(path, {**said, **header}, state)


def ruin(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] + b"x" + whole[-99:])


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (Path.unlink, "no report"),
        (ruin, "damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:200]), "cut short"),
        (lambda path: changed(path, lambda w: w * math.nan), "model.0.weight is not finite"),
        (lambda path: changed(path, lambda w: w[:2]), "float32 of 2×4, not float32 of 8×4"),
        (lambda path: changed(path, steps=1000), "1000 steps of 3 given to it"),
        (lambda path: changed(path, nonce="another"), "of another job"),
    ],
)
def test_a_report_that_is_lost_or_spoiled_costs_its_own_steps_only(
    tmp_path: Path, harm: Any, why: str
) -> None:
    tracker, copies = begun(tmp_path, Training().state(), a=2, b=3, c=4)
    turns = {name: reported(copy) for name, copy in copies.items()}
    harm(tracker.report_path(0, "b"))
    ended = tracker.consolidate()
    assert (ended.steps, list(ended.left_out), ended.done) == ({"a": 2, "c": 4}, ["b"], 6)
    assert why in ended.left_out["b"]
    twin = Mean(turns["a"].state)
    for name, weight in (("c", 4.0), ("a", 2.0)):
        twin.add(Training().made_of(turns[name]), weight)
    assert same(tracker.newest_model()[1], twin.result())
    # It is back in the next round, from where the others are.
    tracker.begin({"a": 2, "b": 3, "c": 4})
    back = reported(Copy(tmp_path, NONCE, "b"))
    assert (back.number, back.done) == (1, 6)


@pytest.mark.parametrize("averaging", list(Averaging))
def test_over_rounds_with_a_copy_that_dies_and_comes_back_the_model_is_as_in_one_process(
    tmp_path: Path, averaging: Averaging
) -> None:
    shares = {"a": 12, "b": 6, "c": 3}
    tracker = Tracker(tmp_path, NONCE)
    copies = {name: Copy(tmp_path, NONCE, name) for name in shares}
    twin, done = Training().state(), 0
    copies["a"].offer(twin)
    # The first start that is offered is everybody's.
    copies["b"].offer({"w": torch.tensor([1.0])})
    for number in range(3):
        tracker.begin(shares)
        expected = {"a": 12, "c": 3} if number == 1 else shares
        for name in expected:
            reported(copies[name])
        if number == 1:
            assert copies["b"].await_turn(0.0) is not None
            copies["b"] = Copy(tmp_path, NONCE, "b")  # its next process
            assert tracker.arrived() == expected
        # A copy that is started anew does its turn once.
        with pytest.raises(TimeoutError):
            Copy(tmp_path, NONCE, "a").await_turn(0.0)
        ended = tracker.consolidate(averaging)
        # The same without any files.
        mean = Mean(twin)
        for name, first in (("a", 0), ("b", 12), ("c", 18)):
            if name in expected:
                turn = Turn(number, shares[name], 21 * number + first, done, None, twin)
                weight = shares[name] if averaging is Averaging.STEPS else 1.0
                mean.add(Training().made_of(turn), weight)
        twin, done = mean.result(), done + sum(expected.values())
        assert (ended.steps, ended.done) == (expected, done)
        assert tracker.newest_model()[0] == twin["model"]["1.num_batches_tracked"].item() == done
        assert same(tracker.newest_model()[1], twin)
