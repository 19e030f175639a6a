"""Random problems of any size, the same for the same seed: for tests and benchmarks.

A cluster of nodes of 8 GPUs of 5 types, all idle, and a queue of jobs that accept up to 8 of the
GPU counts 1 to 16: one GPU with probability 0.9, else none below 2. Jobs from the head of the queue
enter until their smallest counts add up to the cluster (the service window of Hops, section 3.6).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.problem import ChooseProblem, NodeClasses, OptionColumns, starts_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TYPES = 5
NODE_GPUS = 8
MOST_GPUS = 16
MOST_COUNTS = 8

_TYPE_SPEED = np.array([1.0, 1.6, 2.2, 3.0, 4.0])
_SENSITIVE = 1.4
"""Jobs that lose more than this by leaving their node get no configuration over several nodes."""


def random_problem(seed: int, gpus: int, offered: int, power: float = 1.0) -> ChooseProblem:
    """Draw a problem with `gpus` GPUs and the jobs of the window among those `offered`.

    A value is `priority ** power` times the speed of the configuration relative to the slowest of
    the job (section 3.6); priorities are exponential, as latency ratios of a busy cluster are.
    """
    draw = np.random.default_rng(seed)
    nodes = np.full(TYPES, gpus // NODE_GPUS // TYPES, np.int64)
    nodes[: gpus // NODE_GPUS % TYPES] += 1
    accepted = requirement_sets(draw, offered)
    smallest = 1 + accepted.argmax(axis=1)
    jobs = min(offered, 1 + int(np.searchsorted(np.cumsum(smallest), gpus)))
    accepted, smallest = accepted[:jobs], smallest[:jobs]
    priority = draw.exponential(size=offered)[:jobs]
    near, far = speeds(draw, offered)
    near, far = near[:jobs], far[:jobs]
    sensitive = near[:, 0, 0] / (far[:, 0, 1] / 2) > _SENSITIVE
    spreads = ~sensitive | (smallest > NODE_GPUS)
    allowed = np.repeat(accepted[:, None, :], TYPES, axis=1)
    allowed[:, :, NODE_GPUS:] &= spreads[:, None, None]
    needed = 1 + np.arange(MOST_GPUS) // NODE_GPUS
    allowed &= nodes[:, None] >= needed
    speed = np.where(np.arange(MOST_GPUS) < NODE_GPUS, near, far)
    job, gpu_type, count = np.nonzero(allowed)
    rate = speed[job, gpu_type, count]
    slowest = np.full(jobs, np.inf)
    np.minimum.at(slowest, job, rate)
    gain = rate / slowest[job]
    count += 1
    two = count > NODE_GPUS
    starts = np.zeros(len(job) + 1, np.int64)
    np.cumsum(1 + two, out=starts[1:])
    piece_gpus = np.empty(starts[-1], np.int64)
    piece_gpus[starts[:-1]] = np.minimum(count, NODE_GPUS)
    piece_gpus[starts[1:][two] - 1] = count[two] - NODE_GPUS
    return ChooseProblem(
        NodeClasses(
            np.full(TYPES, NODE_GPUS, np.int64), nodes, tuple(f"type-{t}" for t in range(TYPES))
        ),
        OptionColumns.apart(
            job=job,
            value=priority[job] ** power * gain,
            starts=starts,
            piece_class=np.repeat(gpu_type, 1 + two),
            piece_gpus=piece_gpus,
        ),
        jobs,
    )


def in_id_order(problem: ChooseProblem) -> ChooseProblem:
    """Return the same with options that name nodes, those on two nodes a node and the next one.

    The neighbours of the paper, where all nodes are idle: node by node, a class of its own each.
    """
    classes, options = problem.classes, problem.options
    first = np.concatenate([[0], np.cumsum(classes.count)])
    pieces = options.nodes
    of_class, gpus = _widest_first(options)
    first_piece = starts_of(pieces)
    of_class = of_class[first_piece[:-1]]
    ways = np.maximum(0, classes.count[of_class] - pieces + 1)
    origin = np.repeat(np.arange(len(options)), ways)
    way = np.arange(len(origin)) - np.repeat(np.cumsum(ways) - ways, ways)
    sizes = pieces[origin]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    option = np.repeat(np.arange(len(origin)), sizes)
    place = np.arange(starts[-1]) - starts[option]
    nodes = int(first[-1])
    return ChooseProblem(
        NodeClasses(
            np.repeat(classes.capacity, classes.count),
            np.ones(nodes, np.int64),
            tuple(f"node-{n}" for n in range(nodes)),
        ),
        OptionColumns.apart(
            job=options.job[origin],
            value=options.value[origin],
            starts=starts,
            piece_class=first[of_class[origin]][option] + way[option] + place,
            piece_gpus=gpus[first_piece[origin][option] + place],
        ),
        problem.jobs,
    )


def in_groups(problem: ChooseProblem, groups: int) -> ChooseProblem:
    """Return the same with the nodes of each class cut into topology groups.

    An option is there once for each group, in which its pieces stay.
    """
    classes, options = problem.classes, problem.options
    count = np.stack([(classes.count + g) // groups for g in range(groups)], axis=1)
    sizes = options.nodes
    of_class, gpus = _widest_first(options)
    origin = np.repeat(np.arange(len(sizes)), groups)
    piece = np.repeat(np.arange(len(origin)), sizes[origin])
    starts = np.concatenate([[0], np.cumsum(sizes[origin])])
    at = starts_of(sizes)[origin][piece] + np.arange(len(piece)) - starts[piece]
    return ChooseProblem(
        NodeClasses(
            np.repeat(classes.capacity, groups),
            count.ravel(),
            tuple(f"{name} in group {g}" for name in classes.label for g in range(groups)),
            kind=np.repeat(np.arange(len(classes)), groups),
            pool=np.tile(np.arange(groups), len(classes)),
        ),
        OptionColumns.apart(
            options.job[origin],
            options.value[origin],
            starts,
            of_class[at] * groups + piece % groups,
            gpus[at],
        ),
        problem.jobs,
    )


def _widest_first(options: OptionColumns) -> tuple[Ints, Ints]:
    """Return the class and GPUs of all pieces, option by option and node by node."""
    owner, of_class, gpus = options.by_node(np.arange(len(options)))
    order = np.lexsort((-gpus, owner))
    return of_class[order], gpus[order]


def requirement_sets(draw: np.random.Generator, jobs: int) -> Bools:
    """Return (J, 16): whether the job accepts each of the counts 1 to 16."""
    counts = draw.integers(1, MOST_COUNTS + 1, size=jobs)
    one = draw.random(jobs) < 0.9
    # A random order of 2 to 16; the first so many of it are accepted.
    rank = draw.random((jobs, MOST_GPUS - 1)).argsort(axis=1).argsort(axis=1)
    accepted = np.zeros((jobs, MOST_GPUS), np.bool_)
    accepted[:, 0] = one
    accepted[:, 1:] = rank < (counts - one)[:, None]
    return accepted


def speeds(draw: np.random.Generator, jobs: int) -> tuple[Floats, Floats]:
    """Return (J, T, 16) samples/s on one node and on several: formulas (1) to (5) in outline."""
    compute = 1.0 / (_TYPE_SPEED * draw.uniform(0.6, 1.4, (jobs, TYPES)))
    parameters = draw.lognormal(-3.0, 1.0, jobs)[:, None, None]
    count = np.arange(1.0, MOST_GPUS + 1)
    link = 0.3 * parameters * (count - 1) / count
    network = np.where(count > 1, parameters, 0.0)
    return count / (compute[:, :, None] + link), count / (compute[:, :, None] + network)
