"""What was chosen finds nodes, and who keeps its pieces keeps its nodes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from hetsched_core.choose import ChooseProblem, JobPieces, assign_nodes, choose
from hetsched_core.choose.nodes import node_by_node
from tests.hetsched_core.choose.instances import random_problem
from tests.hetsched_core.choose.naive import Ints, Pieces, assigned, faults, problem_of


def now_of(jobs: list[Pieces]) -> JobPieces:
    """What jobs have: (node, GPUs) of each piece."""
    flat = [piece for pieces in jobs for piece in pieces]
    return JobPieces(
        np.cumsum([0, *map(len, jobs)]),
        np.array([node for node, _ in flat], np.int64),
        np.array([gpus for _, gpus in flat], np.int64),
    )


def has(placed: JobPieces, job: int) -> list[tuple[int, int]]:
    mine = slice(placed.starts[job], placed.starts[job + 1])
    return sorted(zip(placed.node[mine].tolist(), placed.gpus[mine].tolist(), strict=True))


def all_first(pieces: list[Pieces], classes: list[tuple[int, int]]) -> tuple[ChooseProblem, Ints]:
    """A problem of one option for each job, and the choice of all of them."""
    problem = problem_of(classes, [[(1.0, mine)] for mine in pieces])
    return problem, np.arange(problem.jobs)


def test_a_job_keeps_its_node_and_others_fill_the_nodes_they_fit_best() -> None:
    problem, option = all_first([[(0, 4)], [(0, 3)], [(0, 1)]], [(8, 3)])
    placed = assigned(problem, option, np.zeros(3, np.int64), now_of([[(2, 4)], [], []]))
    assert [has(placed, j) for j in range(3)] == [[(2, 4)], [(2, 3)], [(2, 1)]]
    # Who changes its GPUs or its class does not stay.
    problem, option = all_first([[(0, 4)], [(1, 8)]], [(8, 1), (8, 1)])
    placed = assigned(problem, option, np.array([1, 0]), now_of([[(1, 3)], [(1, 5), (0, 3)]]))
    assert [has(placed, j) for j in range(2)] == [[(1, 4)], [(0, 8)]]


@pytest.mark.parametrize("crowded", [0, 1, 2])
def test_only_as_many_move_as_must_where_keepers_are_in_the_way(crowded: int) -> None:
    # All nodes are half full; the new jobs need two whole ones.
    one, other = (n for n in range(3) if n != crowded)
    small: list[Pieces] = [[(crowded, 1)]] * 4
    now: list[Pieces] = [*small, [(one, 2)], [(other, 2)], [], []]
    wanted: list[Pieces] = [*([[(0, 1)]] * 4), [(0, 2)], [(0, 2)], [(0, 8)], [(0, 8)]]
    problem, option = all_first(wanted, [(8, 3)])
    node_class = np.zeros(3, np.int64)
    placed = assigned(problem, option, node_class, now_of(now))
    assert list(faults(problem, option, node_class, placed)) == []
    assert [has(placed, j) for j in range(4)] == small
    assert [has(placed, j) for j in (4, 5)] == [[(crowded, 2)], [(crowded, 2)]]


def test_slots_are_dealt_out_to_jobs_with_the_most_pieces_where_others_find_no_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hetsched_core.choose.nodes._piece_by_piece", lambda *_: None)
    pieces: list[Pieces] = [[(0, 1)] * 2, [(0, 1)] * 4, [(0, 2)] * 2, [(0, 1)] * 2]
    problem, option = all_first(pieces, [(3, 4)])
    node_class, nothing = np.zeros(4, np.int64), JobPieces.none(4)
    placed = assigned(problem, option, node_class, nothing)
    assert list(faults(problem, option, node_class, placed)) == []
    monkeypatch.setattr("hetsched_core.choose.nodes._deal_slots", lambda *_: False)
    assert assign_nodes(problem, option, node_class, nothing) is None


@pytest.mark.parametrize(
    ("pieces", "nodes"),
    [
        # The widest first on the node it fills best: 4 + 3, 3 + 2 + 2, and 2 is left over.
        ([[(0, size)] for size in (4, 3, 3, 2, 2, 2)], 2),
        # Widest first: 5, then 4 and 4 of one job on the others, or 4 of it beside nothing.
        ([[(0, size), (0, size)] for size in (4, 4, 3, 5)], 4),
    ],
    ids=["one way only", "two pieces of each job"],
)
def test_pieces_that_fill_nodes_in_few_ways_are_packed_in_one_of_them(
    pieces: list[Pieces], nodes: int
) -> None:
    problem, option = all_first(pieces, [(8, nodes)])
    node_class = np.zeros(nodes, np.int64)
    placed = assigned(problem, option, node_class, JobPieces.none(len(pieces)))
    assert list(faults(problem, option, node_class, placed)) == []


@pytest.mark.parametrize("seed", range(5))
def test_whoever_keeps_all_keeps_its_nodes_when_everybody_does(seed: int) -> None:
    problem = random_problem(seed, 512, 500)
    option = choose(problem, gap=1e-2).option
    draw = np.random.default_rng(seed)
    node_class = draw.permutation(problem.classes.of_node)
    first = assigned(problem, option, node_class, JobPieces.none(problem.jobs))
    assert list(faults(problem, option, node_class, first)) == []
    again = assigned(problem, option, node_class, first)
    assert again.node.tolist() == first.node.tolist()


def test_random_changes_of_a_full_cluster_move_few_of_those_who_stay() -> None:
    """Ends and starts on nodes that are nearly full: feasible always, and most stay."""
    draw = np.random.default_rng(11)
    stayed = could = 0
    for _ in range(200):
        nodes = int(draw.integers(2, 7))
        jobs: list[Pieces] = []
        now: list[Pieces] = []
        for n in range(nodes):
            left = 8
            while left:
                gpus = int(draw.integers(1, left + 1))
                left -= gpus
                keeps = bool(draw.random() < 0.6)
                jobs.append([(0, gpus)])
                now.append([(n, gpus)] if keeps else [])
        order = draw.permutation(len(jobs)).tolist()
        problem, option = all_first([jobs[j] for j in order], [(8, nodes)])
        held = now_of([now[j] for j in order])
        node_class = np.zeros(nodes, np.int64)
        placed = assigned(problem, option, node_class, held)
        assert list(faults(problem, option, node_class, placed)) == []
        could += len(held.node)
        stayed += sum(has(held, j) == has(placed, j) != [] for j in range(len(jobs)))
    assert stayed >= 0.95 * could


def test_a_job_that_could_be_on_nodes_in_a_million_ways_is_not_looked_at_node_by_node() -> None:
    few, many = (problem_of([(4, nodes)], [[(1.0, [(0, 2)] * 3)]]) for nodes in (5, 200))
    by_node = node_by_node(few)
    assert by_node is not None
    assert len(by_node[0].options) == 10
    tracemalloc.start()
    try:
        assert node_by_node(many) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
