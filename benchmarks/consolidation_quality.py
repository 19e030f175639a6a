"""Is a model that copies of unequal speed have trained together as good as one copy's?

One copy does all steps; or three do as many in shares of 4 : 2 : 1, averaged after every round
through the files of `job_wrappers.consolidation`. Seeds are paired: same beginning, same batches in
the same order, learning rate along the same cosine. What is judged was never trained on. Usage,
with torch, about a minute and a half of CPU:

    python -m benchmarks.consolidation_quality

writes the tables of docs/live/consolidation.md.

digits: handwritten digits of 8 x 8 pixels (`digits.npz`: E. Alpaydin and C. Kaynak, "Optical
    Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998, CC BY 4.0, its test
    part); 1,000 to train on, 797 to judge by; a network of one hidden layer with batch
    normalisation, trained until it no longer gets better.
letters: the next letter of English text (Python's own help topics), a like network that would still
    get better for a long time.
"""

from __future__ import annotations

import math
import pydoc_data.topics
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from benchmarks.papers.page import markdown, rewrite
from job_wrappers.consolidation import Averaging, Copy, Tracker

PAGE = Path(__file__).parents[1] / "docs" / "live" / "consolidation.md"
SEEDS = range(5)
T_95 = {2: 6.314, 3: 2.920, 4: 2.353, 5: 2.132}
"""One-sided 95 % of Student's distribution, by the number of paired differences."""

MARGIN = 1.0
"""Per cent by which the copies may be worse."""

BATCH = 32
CONTEXT = 8
Batch = tuple[torch.Tensor, torch.Tensor]


class Data(Protocol):
    """What is learned."""

    def __hash__(self) -> int: ...

    def network(self) -> nn.Module: ...

    def batch(self, seed: int, at: int) -> Batch:
        """Return batch `at` of the order that a seed makes."""

    def held_out(self) -> Batch: ...


class Digits:
    def __init__(self) -> None:
        with np.load(Path(__file__).with_name("digits.npz")) as file:
            images = torch.tensor(file["images"] / 16 - 0.3, dtype=torch.float32)
            labels = torch.tensor(file["labels"].astype(np.int64))
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        self._train = images[order[:1000]], labels[order[:1000]]
        self._held_out = images[order[1000:]], labels[order[1000:]]

    def network(self) -> nn.Module:
        return network(nn.Identity(), 64, 64, 10)

    def batch(self, seed: int, at: int) -> Batch:
        epoch, place = divmod(at, 1000 // BATCH)
        chosen = _shuffled(seed, epoch)[place * BATCH : (place + 1) * BATCH]
        return self._train[0][chosen], self._train[1][chosen]

    def held_out(self) -> Batch:
        return self._held_out


class Letters:
    def __init__(self) -> None:
        topics = pydoc_data.topics.topics
        parts = [topics[name] for name in sorted(topics)]
        cut = len(parts) * 9 // 10
        number = {letter: at for at, letter in enumerate(sorted(set("".join(parts))))}
        self._letters = len(number)
        self._train, self._rest = (
            torch.tensor([number[letter] for letter in "".join(some)])
            for some in (parts[:cut], parts[cut:])
        )

    def network(self) -> nn.Module:
        embedding = nn.Sequential(nn.Embedding(self._letters, 8), nn.Flatten())
        return network(embedding, 8 * CONTEXT, 32, self._letters)

    def batch(self, seed: int, at: int) -> Batch:
        rng = torch.Generator().manual_seed(1_000_003 * seed + at)
        starts = torch.randint(len(self._train) - CONTEXT, (BATCH,), generator=rng)
        return self._at(self._train, starts)

    def held_out(self) -> Batch:
        return self._at(self._rest, torch.arange(0, len(self._rest) - CONTEXT, 5))

    def _at(self, letters: torch.Tensor, starts: torch.Tensor) -> Batch:
        return letters[starts[:, None] + torch.arange(CONTEXT)], letters[starts + CONTEXT]


def network(first: nn.Module, inputs: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        first,
        nn.Linear(inputs, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


@cache
def _shuffled(seed: int, epoch: int) -> torch.Tensor:
    return torch.randperm(1000, generator=torch.Generator().manual_seed(1000 * seed + epoch))


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2, weight_decay=1e-2)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3)


@dataclass(frozen=True)
class TrainingSetting:
    """How a model is trained.

    Attributes:
        data: what on.
        steps: of all copies together.
        shares: steps of each copy in a round.
        optimizer: makes the optimiser of parameters.
        averaging: how copies' parameters count.
        parts: what is averaged of a copy: "model", and perhaps "optimizer".
        dies: a copy that does not report in every third round.
    """

    data: Data
    steps: int
    shares: Mapping[str, int] = field(default_factory=lambda: {"a": 120, "b": 60, "c": 30})
    optimizer: Callable[[Any], torch.optim.Optimizer] = adam
    averaging: Averaging = Averaging.STEPS
    parts: tuple[str, ...] = ("model", "optimizer")
    dies: str = ""


class Learner:
    """A model in training."""

    def __init__(self, setting: TrainingSetting, seed: int) -> None:
        torch.manual_seed(seed)
        self._setting, self._seed = setting, seed
        self.model = setting.data.network()
        self._begin()

    def step(self, at: int, done: float) -> None:
        """Train on batch `at` when so many steps of all are done."""
        part = min(1.0, done / self._setting.steps)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * (1 + math.cos(math.pi * part)) / 2
        inputs, right = self._setting.data.batch(self._seed, at)
        self._optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(inputs), right).backward()
        self._optimizer.step()

    def state(self) -> dict[str, Any]:
        own = {"model": self.model.state_dict(), "optimizer": self._optimizer.state_dict()}
        return {part: own[part] for part in self._setting.parts}

    def load(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self._begin()
        if "optimizer" in state:
            self._optimizer.load_state_dict(state["optimizer"])

    def _begin(self) -> None:
        self._optimizer = self._setting.optimizer(self.model.parameters())
        self._rates = [float(group["lr"]) for group in self._optimizer.param_groups]


@dataclass(frozen=True)
class HeldOutScore:
    """Of what was held out: mean cross-entropy in nats, share told right."""

    loss: float
    accuracy: float

    @classmethod
    def of(cls, model: nn.Module, data: Data) -> HeldOutScore:
        inputs, right = data.held_out()
        model.eval()
        with torch.no_grad():
            told = model(inputs)
        share = (told.argmax(1) == right).double().mean().item()
        return cls(nn.functional.cross_entropy(told, right).item(), share)


def alone(setting: TrainingSetting, seed: int) -> HeldOutScore:
    """Train by one copy."""
    learner = Learner(setting, seed)
    for at in range(setting.steps):
        learner.step(at, at)
    return HeldOutScore.of(learner.model, setting.data)


def together(setting: TrainingSetting, seed: int) -> HeldOutScore:
    """Train by copies, one after another in this process, that meet in files alone."""
    with tempfile.TemporaryDirectory() as name:
        tracker = Tracker(Path(name), "study")
        learner = Learner(setting, seed)
        copies = {name: Copy(tracker.path, "study", name) for name in setting.shares}
        copies["a"].offer(learner.state())
        of_a_round = sum(setting.shares.values())
        done = 0
        while done < setting.steps:
            now = tracker.begin(within(setting.shares, setting.steps - done))
            for name in now.shares:
                if name == setting.dies and now.number % 3 == 0:
                    continue
                turn = copies[name].await_turn(0.0)
                assert turn is not None
                learner.load(turn.state)
                for step in range(turn.steps):
                    learner.step(turn.first + step, turn.done + of_a_round * step / turn.steps)
                copies[name].report(turn, turn.steps, learner.state())
            done = tracker.consolidate(setting.averaging).done
        learner.load(tracker.newest_model()[1])
    return HeldOutScore.of(learner.model, setting.data)


def within(shares: Mapping[str, int], left: int) -> dict[str, int]:
    """Return the shares of a round, the last ones cut if fewer steps are left."""
    found = {}
    for name, share in shares.items():
        if own := min(share, left):
            found[name] = own
            left -= own
    return found


@dataclass(frozen=True)
class Compared:
    """Paired runs: copies against one copy."""

    ones: Sequence[HeldOutScore]
    copies: Sequence[HeldOutScore]

    @classmethod
    def of(cls, setting: TrainingSetting, seeds: Sequence[int]) -> Compared:
        return cls(
            [_alone(setting.data, setting.steps, setting.optimizer, seed) for seed in seeds],
            [together(setting, seed) for seed in seeds],
        )

    def worse_by(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return mean and upper 95 % bound of what copies are worse by, in % of one copy's.

        Of the share told right, and of the loss.
        """
        pairs = list(zip(self.ones, self.copies, strict=True))
        return (
            _bound([100 * (1 - many.accuracy / one.accuracy) for one, many in pairs]),
            _bound([100 * (many.loss / one.loss - 1) for one, many in pairs]),
        )


def _bound(worse: Sequence[float]) -> tuple[float, float]:
    mean = statistics.fmean(worse)
    return mean, mean + T_95[len(worse)] * statistics.stdev(worse) / math.sqrt(len(worse))


@cache
def _alone(data: Data, steps: int, optimizer: Callable[..., Any], seed: int) -> HeldOutScore:
    return alone(TrainingSetting(data, steps, optimizer=optimizer), seed)


def settings() -> dict[str, TrainingSetting]:
    digits = TrainingSetting(Digits(), 2100)
    letters = TrainingSetting(Letters(), 4200)
    return {
        "digits, Adam": digits,
        "digits, momentum": replace(digits, optimizer=momentum),
        "plain mean of the copies": replace(digits, averaging=Averaging.PLAIN),
        "Adam's state begun anew in every round": replace(digits, parts=("model",)),
        "rounds three times as long": replace(digits, shares={"a": 360, "b": 180, "c": 90}),
        "copy b dies in every third round": replace(digits, dies="b"),
        "a fifth of the steps": replace(digits, steps=420),
        "letters, Adam": letters,
        "letters, momentum": replace(letters, optimizer=momentum),
    }


def row(name: str, found: Compared) -> list[str]:
    cells = [name]
    for measure, (mean, bound) in zip(("accuracy", "loss"), found.worse_by(), strict=True):
        one, many = (
            statistics.fmean(getattr(judged, measure) for judged in some)
            for some in (found.ones, found.copies)
        )
        shown = f"{one:.4f}", f"{many:.4f}"
        least = 2 * mean - bound
        verdict = "no worse" if bound < MARGIN else "worse" if least > MARGIN else "open"
        cells += [*shown, f"{mean:+.2f} ({bound:+.2f})", verdict]
    return cells


def quality() -> str:
    """Return the table of the page; each row is told as soon as it is there."""
    torch.set_num_threads(1)
    heads = [""]
    for measure in ("accuracy", "loss"):
        heads += [f"{measure}: one", "copies", "worse by % (bound)", "verdict"]
    rows = []
    for name, setting in settings().items():
        rows.append(row(name, Compared.of(setting, SEEDS)))
        sys.stdout.write(" | ".join(rows[-1]) + "\n")
        sys.stdout.flush()
    return markdown(heads, rows)


if __name__ == "__main__":
    rewrite(PAGE, {"quality": quality})
