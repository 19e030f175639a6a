"""How far a training is, held against a slow twin."""

from __future__ import annotations

import random

from slurm_plugin.pool.standing import Standing
from tests.slurm_plugin.pool.members import training


def test_losses_are_the_means_of_rounds_in_whatever_order_they_are_told() -> None:
    draw = random.Random(1)
    tasks = [(round_, number, draw.random()) for round_ in range(30) for number in range(3)]
    told = [task for task in tasks if task[0] % 7]
    draw.shuffle(told)
    standing = Standing(training("x", 30, 3))
    losses: dict[int, dict[int, float]] = {}
    for round_, number, loss in [*told, *told[:20]]:
        standing.rounds = draw.randrange(30)
        standing.tell(round_, number, loss)
        losses.setdefault(round_, {})[number] = loss
        naive = [
            sum(of.values()) / len(of) for r, of in sorted(losses.items()) if r < standing.rounds
        ]
        assert standing.loss() == tuple(naive)
