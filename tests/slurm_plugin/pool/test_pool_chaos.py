"""Pools in which things happen in any order: members and schedulers come, go and lag behind."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched_core.policy import make_policy
from slurm_plugin.pool import Scheduler, state
from slurm_plugin.pool.folder import Pool
from tests.slurm_plugin.pool.members import Hand, add, pool, training
from tests.slurm_plugin.pool.test_pool_scheduler import POLICIES

Task = tuple[str, int, int]


class Lagging(Hand):
    """A member that goes on with the order that it has seen last, and stores gradients late."""

    def __init__(self, pool: Pool, id_: str, gpu_type: str, clock: Callable[[], float]) -> None:
        super().__init__(pool, id_, gpu_type, clock)
        self.seen: list[Task] = []
        self.running: Task | None = None
        self.unstored: list[Task] = []

    def move(self, draw: random.Random, scales: dict[str, int], ran: Counter[Task]) -> None:
        """Do one of the things that a member does, if there is any."""
        act = draw.choice(("look", "begin", "begin", "train", "train", "store", "store"))
        if act == "look":
            self.seen = self.order()
        elif act == "begin" and self.running is None and self.seen:
            self._begin()
        elif act == "train" and self.running is not None:
            self.train(self.running, train_s=draw.uniform(0.1, 2.0))
            self.unstored.append(self.running)
            self.running = None
        elif act == "store" and self.unstored:
            task = self.unstored.pop(0)
            if self.pool.progress(task[0], scales[task[0]])[0] <= task[1]:
                self.store(task, scales[task[0]])
            ran[task] += 1

    def _begin(self) -> None:
        name, round_, _ = self.seen[0]
        if self.pool.result(name) is not None:
            self.seen.pop(0)
        elif self.pool.progress(name, 1000)[0] >= round_:
            self.running = self.begin(self.seen.pop(0))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(2))
def test_whatever_happens_in_whatever_order_each_training_ends_with_all_of_its_rounds(
    policy: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing hangs on how fast the machine is: time passes by turns, and files have no age.
    monkeypatch.setattr(state, "DEAD_S", math.inf)
    turn = 0

    def clock() -> float:
        return 0.05 * turn

    draw, ran = random.Random(seed), Counter[Task]()
    made, said = pool(tmp_path), list[str]()
    chosen = make_policy(policy, {"groups": "2"} if policy.startswith("hlas") else {})
    hands = [Lagging(made, f"m{at}", ("v100", "k80")[at % 2], clock) for at in range(3)]
    by = Scheduler(made, chosen, said.append, clock)
    scales: dict[str, int] = {}
    for turn in range(30_000):
        if turn < 2000 and turn % 300 == 0:
            name = f"t{len(scales)}"
            scales[name] = draw.randint(1, 3)
            add(made, training(name, draw.randint(2, 6), scales[name], group="g"))
        odd = draw.random()
        if odd < 0.3:
            by.step()
        elif odd < 0.301 and turn < 3000:
            by = Scheduler(made, chosen, said.append, clock)
        elif odd < 0.302 and turn < 3000:
            gone = hands.pop(draw.randrange(len(hands)))
            gone.file.unlink()
            hands.append(Lagging(made, f"n{turn}", "v100", clock))
        else:
            draw.choice(hands).move(draw, scales, ran)
        if turn > 2000 and made.names("results") == set(scales):
            break
    assert made.names("results") == set(scales), by.state.active
    for name, scale in scales.items():
        result = made.result(name)
        assert result is not None
        rounds = made.training(name).rounds
        assert (result.failed, result.rounds) == ("", rounds)
        assert {task for task in ran if task[0] == name} >= {
            (name, round_, number) for round_ in range(rounds) for number in range(scale)
        }
    assert said == []
