"""Obviously right, slow twins of the solver: node by node, option by option."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose import ChooseProblem, JobPieces, NodeClasses, OptionColumns, assign_nodes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Pieces = Sequence[tuple[int, int]]


def problem_of(
    classes: Sequence[tuple[int, int]], jobs: Sequence[Sequence[tuple[float, Pieces]]]
) -> ChooseProblem:
    """A problem from (capacity, count) of each class and (value, pieces) of each job's options."""
    options = [(j, value, pieces) for j, mine in enumerate(jobs) for value, pieces in mine]
    flat = [piece for _, _, pieces in options for piece in pieces]
    return ChooseProblem(
        NodeClasses(
            np.array([capacity for capacity, _ in classes], np.int64),
            np.array([count for _, count in classes], np.int64),
            tuple(f"class {c}" for c in range(len(classes))),
        ),
        OptionColumns.apart(
            np.array([j for j, _, _ in options], np.int64),
            np.array([value for _, value, _ in options], np.float64),
            np.cumsum([0, *(len(pieces) for _, _, pieces in options)]),
            np.array([c for c, _ in flat], np.int64),
            np.array([gpus for _, gpus in flat], np.int64),
        ),
        len(jobs),
    )


def small_problem(draw: np.random.Generator) -> ChooseProblem:
    """Up to 5 jobs on up to 4 nodes, with options of any shape that could fit alone."""
    counts = draw.multinomial(draw.integers(1, 5), [0.5, 0.3, 0.2])
    counts = counts[counts > 0]
    capacities = draw.integers(1, 9, len(counts))
    node_class = np.repeat(np.arange(len(counts)), counts)
    jobs: list[list[tuple[float, Pieces]]] = []
    for _ in range(draw.integers(1, 6)):
        mine: list[tuple[float, Pieces]] = []
        for _ in range(draw.integers(0, 5)):
            some = draw.permutation(node_class)[: draw.integers(1, 4)].tolist()
            pieces = [(c, int(draw.integers(1, capacities[c] + 1))) for c in some]
            whole = bool(draw.random() < 0.5)
            value = float(draw.integers(1, 12)) if whole else float(draw.exponential(3.0)) + 0.01
            mine.append((value, pieces))
        jobs.append(mine)
    return problem_of(list(zip(capacities.tolist(), counts.tolist(), strict=True)), jobs)


def pooled_problem(draw: np.random.Generator) -> ChooseProblem:
    """Up to 5 jobs on up to 5 nodes of up to 2 kinds in up to 3 pools.

    An option on one node is there for each pool, at the same value but where the job is said to be
    already; one on two nodes stays in a pool.
    """
    capacities = draw.integers(1, 9, draw.integers(1, 3))
    places = [(k, p) for k in range(len(capacities)) for p in range(3)]
    counts = draw.multinomial(draw.integers(1, 6), np.full(len(places), 1 / len(places)))
    classes = [(k, p, int(n)) for (k, p), n in zip(places, counts, strict=True) if n > 0]
    jobs: list[list[tuple[float, Pieces]]] = []
    for _ in range(draw.integers(1, 6)):
        mine: list[tuple[float, Pieces]] = []
        for _ in range(draw.integers(0, 4)):
            k, home = draw.integers(len(capacities)), draw.integers(4)
            gpus = [int(g) for g in draw.integers(1, capacities[k] + 1, draw.integers(1, 3))]
            value = float(draw.integers(1, 12))
            mine += [
                (value * (1.25 if pool == home else 1.0), [(c, g) for g in gpus])
                for c, (kind, pool, n) in enumerate(classes)
                if kind == k and n >= len(gpus)
            ]
        jobs.append(mine)
    found = problem_of([(int(capacities[k]), n) for k, _, n in classes], jobs)
    kind, pool = (np.array([each[at] for each in classes], np.int64) for at in (0, 1))
    return replace(found, classes=replace(found.classes, kind=kind, pool=pool))


def pieces_of(problem: ChooseProblem, q: int) -> list[tuple[int, int]]:
    """(class, GPUs) of each piece of an option."""
    _, of_class, gpus = problem.options.by_node(np.array([q]))
    return list(zip(of_class.tolist(), gpus.tolist(), strict=True))


def best_value(problem: ChooseProblem) -> float:
    """The optimum of the per-node programme: every way to put every option on nodes is tried."""
    classes = problem.classes
    of_class = classes.of_node.tolist()
    options: list[list[int]] = [[] for _ in range(problem.jobs)]
    for q, j in enumerate(problem.options.job.tolist()):
        options[j].append(q)

    def ways(q: int, free: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        pieces = pieces_of(problem, q)
        places = [
            [n for n, c in enumerate(of_class) if c == of and free[n] >= gpus]
            for of, gpus in pieces
        ]
        for nodes in itertools.product(*places):
            if len(set(nodes)) == len(nodes):
                left = list(free)
                for n, (_, gpus) in zip(nodes, pieces, strict=True):
                    left[n] -= gpus
                yield tuple(left)

    known: dict[tuple[int, tuple[int, ...]], float] = {}

    def best(j: int, free: tuple[int, ...]) -> float:
        if j == problem.jobs:
            return 0.0
        if (j, free) not in known:
            known[j, free] = max(
                [best(j + 1, free)]
                + [
                    float(problem.options.value[q]) + best(j + 1, left)
                    for q in options[j]
                    for left in ways(q, free)
                ]
            )
        return known[j, free]

    return best(0, tuple(int(classes.capacity[c]) for c in of_class))


def faults(
    problem: ChooseProblem, option: Ints, node_class: Ints, placed: JobPieces
) -> Iterator[str]:
    """What is wrong with nodes for a choice, in words."""
    free = problem.classes.capacity[node_class].tolist()
    for j in range(problem.jobs):
        mine = slice(placed.starts[j], placed.starts[j + 1])
        nodes, gpus = placed.node[mine].tolist(), placed.gpus[mine].tolist()
        wanted = [] if option[j] < 0 else pieces_of(problem, int(option[j]))
        got = [(int(node_class[n]), g) for n, g in zip(nodes, gpus, strict=True)]
        if sorted(got) != sorted(wanted):
            yield f"job {j} has {got}, not {wanted}"
        if len(set(nodes)) != len(nodes):
            yield f"job {j} has two pieces on one node"
        for n, g in zip(nodes, gpus, strict=True):
            free[n] -= g
    yield from (f"node {n} is {-left} GPUs short" for n, left in enumerate(free) if left < 0)


def assigned(problem: ChooseProblem, option: Ints, node_class: Ints, now: JobPieces) -> JobPieces:
    """The nodes of a choice that fits."""
    placed = assign_nodes(problem, option, node_class, now)
    assert placed is not None
    return placed


def placement_faults(problem: ChooseProblem, option: Ints) -> list[str]:
    """What is wrong with the nodes that a choice is given on an idle cluster."""
    of_node = problem.classes.of_node
    placed = assigned(problem, option, of_node, JobPieces.none(problem.jobs))
    return list(faults(problem, option, of_node, placed))


def soft_surplus(offers: Sequence[tuple[float, float]], softness: float) -> float:
    """What a chooser among (value, cost) gains, softened."""
    return softness * math.log(
        1.0 + sum(math.exp((value - cost) / softness) for value, cost in offers)
    )


def bound_at(problem: ChooseProblem, price: dict[tuple[int, int], float]) -> float:
    """What prices of pieces by (class, GPUs) prove: no choice is worth more."""
    gains = [0.0] * problem.jobs
    for q, j in enumerate(problem.options.job.tolist()):
        cost = sum(price[piece] for piece in pieces_of(problem, q))
        gains[j] = max(gains[j], float(problem.options.value[q]) - cost)

    def worth(of: int, gpus: int) -> float:
        sizes = [(s, p) for (c, s), p in price.items() if c == of and s <= gpus]
        return max([0.0, *(p + worth(of, gpus - s) for s, p in sizes)])

    total = sum(gains)
    for c in range(len(problem.classes)):
        total += int(problem.classes.count[c]) * worth(c, int(problem.classes.capacity[c]))
    return total


def fill_in_turn(
    problem: ChooseProblem,
    order: Sequence[int],
    choice: Sequence[int],
    cost: Sequence[float],
    sweeps: int,
) -> list[int]:
    """The option of each job after each got its choice where it fits, and then what is left.

    A piece goes to the node that it fills best, of those the one that changed last.
    """
    classes, value = problem.classes, problem.options.value.tolist()
    of_class = classes.of_node.tolist()
    free = [int(classes.capacity[c]) for c in of_class]
    touched = [-n for n in range(len(free))]
    result, held = list(choice), [[] for _ in choice]  # type: list[int], list[list[int]]
    offers: list[list[int]] = [[] for _ in choice]
    for q, j in enumerate(problem.options.job.tolist()):
        offers[j].append(q)

    def widest_first(q: int) -> list[tuple[int, int]]:
        return sorted(pieces_of(problem, q), key=lambda piece: -piece[1])

    def change(n: int, by: int) -> None:
        free[n] += by
        touched[n] = max(touched) + 1

    def put(j: int, q: int) -> bool:
        nodes: list[int] = []
        for c, gpus in widest_first(q):
            able = [
                n for n, of in enumerate(of_class) if of == c and free[n] >= gpus and n not in nodes
            ]
            if not able:
                for n, (_, given) in zip(nodes, widest_first(q), strict=False):
                    change(n, given)
                return False
            nodes.append(min(able, key=lambda n: (free[n], -touched[n])))
            change(nodes[-1], -gpus)
        result[j], held[j] = q, nodes
        return True

    def move(j: int, q: int, sign: int) -> None:
        for n, (_, gpus) in zip(held[j], widest_first(q), strict=True):
            change(n, sign * gpus)

    for j in order:
        if result[j] >= 0 and not put(j, result[j]):
            result[j] = -1
    for sweep in range(sweeps):
        changed = False
        for j in order:
            had = result[j]
            if sum(free) == 0:
                break
            if had >= 0 and sweep == 0:
                continue
            if had >= 0:
                move(j, had, 1)
            better = [
                q
                for q in offers[j]
                if sum(gpus for _, gpus in pieces_of(problem, q)) <= sum(free)
                and (had < 0 or value[q] > value[had])
            ]
            better.sort(key=lambda q: -(value[q] - cost[q] if sweep == 0 else value[q]))
            if any(put(j, q) for q in better):
                changed = True
            elif had >= 0:
                move(j, had, -1)
        if not changed and sweep > 0:
            break
    return result
