"""One plan: worked example W7 at every lambda, and whole plans against enumeration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hetsched_core.choose import ChooseProblem, choose, choose_in_order
from hetsched_core.measures.fairness import priority_weights
from hetsched_core.policies.hops.configurations import Neighbours
from hetsched_core.policies.hops.queue import weights_of
from hetsched_core.policies.hops.solve import (
    SMALLEST_GAP,
    SolverInput,
    SolverOutput,
    jobs_that_count,
    plan_once,
    take,
)
from hetsched_core.types import Cluster, Node
from tests.hetsched_core.choose.naive import problem_of
from tests.hetsched_core.policies.hops import naive
from tests.hetsched_core.policies.hops.worlds import World, table_of, worlds
from tests.hetsched_core.worlds import view

Floats = NDArray[np.float64]

# -- W7: Table 1 of the paper ----------------------------------------------------------------------

GAINS = ((1, 1.8, 2.6, None), (2, 1, 3, 4.1), (1.2, 1.6, 1, None), (1, 1.8, 3.2, None))
CONFIGS: tuple[naive.Config, ...] = (((0, 1),), ((0, 2),), ((1, 4),), ((0, 2), (1, 4)))


def table_1(order: Sequence[int], weights: Iterable[float]) -> list[dict[naive.Config, float]]:
    """The weighted gains of the jobs in this order, by configuration."""
    return [
        {c: weight * g for c, g in zip(CONFIGS, GAINS[job], strict=True) if g is not None}
        for job, weight in zip(order, weights, strict=True)
    ]


def problem(jobs: Sequence[dict[naive.Config, float]], idle: Sequence[int]) -> ChooseProblem:
    """Every job with its options, on nodes that are classes of their own."""
    options = [[(value, config) for config, value in each.items()] for each in jobs]
    return problem_of([(gpus, 1) for gpus in idle], options)


def in_words(order: Sequence[int], options: Sequence[int]) -> str:
    """The options of jobs in this order as the configurations of jobs 1 to 4."""
    flat = [str(CONFIGS.index(config) + 1) for each in table_1(order, [1] * 4) for config in each]
    answer = {j: "-" if q < 0 else flat[q] for j, q in zip(order, options, strict=True)}
    return " ".join(answer[job] for job in range(4))


FIRST, SECOND, THIRD = (0.5, 0.2, 1, 0.1), (0.5, 0.4, 0.3, 0.2), (0, 0.4, 0.3, 0.2)


@pytest.mark.parametrize(
    ("priorities", "lam", "idle", "answer", "objective", "second"),
    [
        (FIRST, 0, (4, 4), "2 1 1 3", 8.2, 7.8),
        (FIRST, 1, (4, 4), "3 1 2 1", 3.4, 3.3),
        (FIRST, 2, (4, 4), "3 1 2 1", 2.34, 2.33),
        (SECOND, 1, (4, 4), "3 1 1 2", 2.82, 2.78),
        (SECOND, 2, (4, 4), "3 1 2 1", 1.154, 1.15),
        (THIRD, 1, (4, 4), "- 4 1 1", 2.263, 2.177),
        (SECOND, 1, (2, 4), "3 1 1 -", 2.46, 2.3),
    ],
)
def test_w7_the_programme_on_table_1(
    priorities: tuple[float, ...],
    lam: float,
    idle: tuple[int, int],
    answer: str,
    objective: float,
    second: float,
) -> None:
    jobs = table_1(range(4), priority_weights(np.array(priorities, float), lam))
    found = choose(problem(jobs, idle), gap=0.0)
    assert in_words(range(4), found.option.tolist()) == answer
    assert found.objective == pytest.approx(objective, abs=1e-9)
    assert found.bound == pytest.approx(found.objective, rel=1e-9)
    best = sorted({round(v, 9) for v, _ in naive.choices(jobs, idle)}, reverse=True)
    assert best[:2] == pytest.approx([objective, second], abs=1e-9)


@pytest.mark.parametrize(
    ("priorities", "answer"), [(FIRST, "3 1 2 1"), (SECOND, "3 1 2 1"), (THIRD, "- 4 2 -")]
)
def test_w7_lambda_at_infinity_is_the_greedy_in_order_of_priority(
    priorities: tuple[float, ...], answer: str
) -> None:
    order = np.argsort(-np.array(priorities), kind="stable").tolist()
    found = choose_in_order(problem(table_1(order, [1.0] * 4), (4, 4)))
    assert in_words(order, found.tolist()) == answer


def test_w7_at_lambda_20_the_first_job_alone_is_beyond_the_gap() -> None:
    """Optimum and runner-up differ by 1e-8: at the gap of 5e-4 the others are served in turn."""
    priorities = np.array(sorted(FIRST, reverse=True))
    weights = weights_of(priorities, 20.0)
    assert weights.tolist() == pytest.approx([1.0, 0.5**20, 0.2**20, 0.1**20])
    best = np.array([max(each.values()) for each in table_1((2, 0, 1, 3), weights)])
    assert jobs_that_count(best, 5e-4) == 1
    assert jobs_that_count(best, 1e-6) == 2
    assert jobs_that_count(best, 0.0) == 2  # 4.1 x 0.2^20 is less than the smallest gap


@given(
    st.lists(st.floats(0.0, 1.0), max_size=8).map(lambda v: sorted(v, reverse=True)),
    st.floats(0.0, 1.0),
)
def test_those_left_to_their_turn_are_worth_no_more_than_the_gap(
    best: list[float], gap: float
) -> None:
    count = jobs_that_count(np.array(best), gap)
    least = max(gap, SMALLEST_GAP) * max(best, default=0.0)
    assert sum(best[count:]) <= least * (1 + 1e-9)
    assert count == 0 or sum(best[count - 1 :]) > least * (1 - 1e-9)


# -- whole plans against enumeration ---------------------------------------------------------------


def planned(
    world: World, neighbours: Neighbours, priorities: Iterable[float], lam: float, gap: float = 0.0
) -> tuple[SolverOutput, list[naive.Config | None], list[float]]:
    """The plan, the configuration of each job, and the weights; jobs come in queue order."""
    nothing = np.zeros(len(world.views))
    setting = SolverInput(
        generator=world.generator(neighbours),
        gap=gap,
        held={},
        held_speed=nothing,
        credit=nothing,
        offer_held=False,
        gain=lambda _, options: options.gain(),
    )
    weights = weights_of(np.array(sorted(priorities, reverse=True)), lam)
    jobs, strict = np.arange(len(world.views)), lam == math.inf
    outcome = plan_once(setting, jobs, weights, world.room(), {}, strict=strict)
    got: list[naive.Config | None] = [None] * len(world.views)
    for job, (nodes, gpus) in outcome.placed.items():
        got[job] = tuple(sorted(zip(nodes.tolist(), gpus.tolist(), strict=True)))
    return outcome, got, weights.tolist()


def halving(world: World) -> list[float]:
    """Priorities of which each is half of the one before."""
    return [2.0**-at for at in range(len(world.views))]


PRIORITIES = st.lists(st.sampled_from([0.1, 0.5, 1.0, 2.0]), min_size=4, max_size=4)


@given(
    worlds(),
    PRIORITIES,
    st.sampled_from([0.0, 1.0, 2.0]),
    st.sampled_from(list(Neighbours)),
    # With so wide a gap the programme chooses for the first jobs alone.
    st.sampled_from([0.0, 0.0, 0.6]),
)
def test_a_plan_is_worth_as_much_as_the_best_of_all_and_never_more_than_its_bound(
    world: World, priorities: list[float], lam: float, neighbours: Neighbours, gap: float
) -> None:
    priorities = priorities[: len(world.views)]
    outcome, got, weights = planned(world, neighbours, priorities, lam, gap)
    values = [
        {c: w * gain for c, gain in each.items()}
        for w, each in zip(weights, world.gains(neighbours), strict=True)
    ]
    best = max(value for value, _ in naive.choices(values, world.idle))
    given = [(each, c) for each, c in zip(values, got, strict=True) if c is not None]
    # What is left to those in turn may lie around nodes that are full: no way on the idle cluster.
    around = [max(each.values()) for each, c in given if gap and c not in each]
    worth = sum(around) + sum(each[c] for each, c in given if not gap or c in each)
    assert gap or worth == pytest.approx(best, rel=1e-6)
    # What comes in turn gains over the slowest of what was left to it, which may be less slow.
    assert outcome.objective <= worth * (1 + 1e-6)
    assert gap or outcome.objective == pytest.approx(worth)
    assert outcome.bound is not None
    assert outcome.bound >= best * (1 - 1e-9)
    # A label for each class of node, with its price.
    assert all(price >= 0 for price in outcome.prices.values())


@given(worlds())
def test_in_turn_everybody_has_the_best_that_those_before_leave(world: World) -> None:
    outcome, got, _ = planned(world, Neighbours.ID, halving(world), math.inf)
    assert outcome.bound is None
    left = world.idle
    for options, chosen in zip(world.gains(Neighbours.ID), got, strict=True):
        able = [g for c, g in options.items() if all(left[node] >= gpus for node, gpus in c)]
        assert (chosen is None) == (not able)
        if chosen is not None:
            assert options[chosen] == pytest.approx(max(able))
            for node, gpus in chosen:
                left[node] -= gpus


@given(worlds(), st.integers(1, 20))
def test_of_more_options_than_a_programme_may_have_those_behind_are_served_in_turn(
    world: World, most: int
) -> None:
    in_turn = planned(world, Neighbours.ID, halving(world), math.inf)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hetsched_core.policies.hops.solve.MOST_OPTIONS", most)
        outcome, got, weights = planned(world, Neighbours.ID, halving(world), 1.0)
        assert planned(world, Neighbours.ID, halving(world), math.inf)[1] == in_turn
    left = world.idle
    for config in got:
        for node, gpus in config or ():
            left[node] -= gpus
    assert min(left) >= 0
    gains = world.gains(Neighbours.ID)
    values = [
        {c: w * gain for c, gain in each.items()} for w, each in zip(weights, gains, strict=True)
    ]
    best = max(value for value, _ in naive.choices(values, world.idle))
    worth = sum(each[c] for each, c in zip(values, got, strict=True) if c is not None)
    assert outcome.bound is not None
    assert worth * (1 - 1e-9) <= best <= outcome.bound * (1 + 1e-9)
    able = [len(each) for each in gains if each]
    # One alone is never served in turn, unless behind others that have no options.
    assert len(able) < 2 or ("options" in outcome.limits) == (sum(able) > most)


@given(worlds())
def test_at_large_lambda_whoever_weighs_nothing_takes_what_is_left(world: World) -> None:
    outcome, got, _ = planned(world, Neighbours.ID, halving(world), 60.0, gap=5e-4)
    gains = world.gains(Neighbours.ID)
    # 2^-60 is beyond the gap: the first job has its best, and the programme knew no other.
    if gains[0]:
        assert got[0] is not None
        assert gains[0][got[0]] == pytest.approx(max(gains[0].values()))
    # On what was left alone, nobody could run.
    left = world.idle
    for config in got:
        for node, gpus in config or ():
            left[node] -= gpus
    assert min(left) >= 0
    for options, config in zip(gains, got, strict=True):
        if config is None:
            single = [c for c in options if len(c) == 1]
            assert not any(left[node] >= gpus for c in single for node, gpus in c)
    if outcome.bound is not None and outcome.objective:
        assert outcome.objective <= outcome.bound <= outcome.objective * (1 + 6e-4)


@given(
    nodes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 8)), min_size=1, max_size=3),
    jobs=st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from([0.0, 1.0, 2.5])), min_size=1, max_size=5
    ),
)
def test_jobs_for_which_cpus_are_too_few_are_left_out(
    nodes: list[tuple[int, int]], jobs: list[tuple[int, float]]
) -> None:
    cluster = Cluster(tuple(Node(f"n{k}", "t", g, cpus=c) for k, (g, c) in enumerate(nodes)))
    views = [
        view(f"j{at}", counts=(count,), cpus_per_gpu=cpus) for at, (count, cpus) in enumerate(jobs)
    ]
    world = World.of(cluster, table_of(["t"]), *views)
    for neighbours in Neighbours:
        outcome, got, _ = planned(world, neighbours, [1.0] * len(jobs), 1.0)
        room = world.room()
        take(room, world.generator(neighbours).demand, outcome.placed)
        assert not room.overdrawn
        # Whatever one job alone could have is not refused to all.
        if any(
            count <= gpus and (not cpus or not have or count * cpus <= have)
            for count, cpus in jobs
            for gpus, have in nodes
        ):
            assert any(got)
