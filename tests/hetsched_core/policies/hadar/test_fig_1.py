"""Fig. 1 of Hadar, corrected (H5): what any schedule can reach, and what Hadar and Gavel do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import pytest

from hetsched_core.policies.gavel import Gavel
from hetsched_core.policies.hadar.hadar import Hadar, Replanning
from hetsched_core.policy import Policy
from hetsched_core.records.runlog import RunLog
from hetsched_core.simulate import SimulationSettings, simulate
from tests.hetsched_core.policies.worlds import ends
from tests.hetsched_core.worlds import cluster_of, linear_speeds, on, submission

FIG1 = cluster_of(v=("v100", 2), p=("p100", 3), k=("k80", 1))
GPUS = (2, 3, 1)
NEED = (3, 2, 2)
EPOCHS = (80, 30, 50)
PER_ROUND = ((40, 20, 30), (5, 15, 5), (10, 2, 20))
"""Epochs a round of each job on V100, P100 and K80 (all of its GPUs)."""


def useful_rounds(*, mixed: bool) -> set[tuple[int, ...]]:
    """Epochs of the three jobs in each round that no other round beats."""

    def ways(job: int) -> Iterator[tuple[tuple[int, ...], int]]:
        yield (0, 0, 0), 0
        for split in product(*(range(gpus + 1) for gpus in GPUS)):
            used = [t for t in range(3) if split[t]]
            if sum(split) == NEED[job] and (mixed or len(used) == 1):
                yield split, min(PER_ROUND[job][t] for t in used)

    rounds: set[tuple[int, ...]] = set()
    for chosen in product(*(list(ways(job)) for job in range(3))):
        if all(sum(split[t] for split, _ in chosen) <= GPUS[t] for t in range(3)):
            rounds.add(tuple(epochs for _, epochs in chosen))
    return {
        r
        for r in rounds
        if not any(r != o and all(a <= b for a, b in zip(r, o, strict=True)) for o in rounds)
    }


def optima(*, mixed: bool) -> dict[int, int]:
    """The least sum of completion rounds for each number of rounds in all."""
    useful = sorted(useful_rounds(mixed=mixed))

    @cache
    def least(left: tuple[int, ...], rounds: int, now: int) -> int:
        if not any(left):
            return 0 if now == rounds else 1_000
        if now == rounds:
            return 1_000
        best = 1_000
        for done in useful:
            after = tuple(max(0, x - d) for x, d in zip(left, done, strict=True))
            ended = sum(x > 0 and a == 0 for x, a in zip(left, after, strict=True))
            best = min(best, ended * (now + 1) + least(after, rounds, now + 1))
        return best

    return {rounds: best for rounds in range(1, 9) if (best := least(EPOCHS, rounds, 0)) < 1_000}


def test_six_rounds_are_the_fewest_and_mixing_gains_one_in_the_sum_of_completion_rounds() -> None:
    assert useful_rounds(mixed=True) == {(30, 15, 0), (20, 0, 10), (0, 15, 10), (30, 0, 2)}
    assert useful_rounds(mixed=False) == {(20, 5, 0), (20, 0, 10), (0, 15, 10)}
    mixed, single = optima(mixed=True), optima(mixed=False)
    assert min(mixed) == min(single) == 6
    assert mixed[6] == single[6] == min(single.values()) == 13
    assert mixed[7] == min(mixed.values()) == 12


def run(policy: Policy) -> tuple[RunLog, dict[str, int]]:
    """The run, in which samples are epochs, and the round of 360 s in which each job ends."""
    rates = {
        f"m{n}": dict(zip(FIG1.gpu_types, (e / NEED[n] / 360 for e in epochs), strict=True))
        for n, epochs in enumerate(PER_ROUND)
    }
    jobs = [submission(f"J{n + 1}", EPOCHS[n], (NEED[n],), profile=f"m{n}") for n in range(3)]
    log = simulate(
        jobs, FIG1, policy, linear_speeds(FIG1, rates), SimulationSettings(restart_cost_s=0.0)
    )
    return log, {job: -(-round(end_s or 0.0) // 360) for job, end_s in ends(log).items()}


@pytest.mark.parametrize(
    ("replan", "expected"),
    [
        # J3 starts on what is left in round 3, two P100, and keeps them: 2 epochs a round.
        (Replanning.INCREMENTAL, {"J1": 3, "J2": 2, "J3": 27}),
        # One round from the least sum, 12 with J3 in round 7: J1 would have to leave its V100s.
        (Replanning.FULL, {"J1": 3, "J2": 2, "J3": 8}),
    ],
)
def test_hadars_own_schedule(replan: Replanning, expected: dict[str, int]) -> None:
    log, rounds = run(Hadar(replan=replan))
    assert rounds == expected
    assert next(run for run in log.runs if run.job == "J1").configuration == on(k=1, v=2)


def test_gavels_own_schedule_is_no_better_than_one_type_allows() -> None:
    _, rounds = run(Gavel())
    assert max(rounds.values()) >= 6
    assert sum(rounds.values()) >= 13
