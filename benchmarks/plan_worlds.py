"""Random worlds in which plans are hard to make: wide jobs, many counts, mixed types, groups.

A world is a function of its seed. What may be hard is drawn apart: nodes of 1 to 16 GPUs, of one
size or mixed; 1 to 5 GPU types in 1 to 16 groups; nodes that differ in speed; jobs that accept one
count, a few or sixteen, up to the whole cluster, that run on some nodes only, or take CPUs along.
More jobs come at once than the cluster holds, and others after them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.types import (
    Cluster,
    ExecutionModel,
    Job,
    Layer,
    Node,
    RequirementSet,
    Speeds,
    SpeedTable,
    Submission,
    TaskShape,
    TaskTimes,
)

ROUND_S = 360.0
CPUS_PER_GPU = 8
EVENTS_A_ROUND = 12
"""About so many jobs end in a round."""


@dataclass(frozen=True)
class PlanWorld:
    """What `simulate` is told, and the kind of world in words."""

    about: str
    cluster: Cluster
    speeds: Speeds
    submissions: tuple[Submission, ...]


def drawn_world(seed: int, most_gpus: int, model: ExecutionModel) -> PlanWorld:
    """Return the world of a seed, of up to so many GPUs, for policies of an execution model."""
    draw = np.random.default_rng(seed)
    cluster = _cluster(draw, most_gpus)
    widest = int(2 ** draw.uniform(2, np.log2(max(5, cluster.gpus))))
    speeds = _speeds(draw, cluster)
    submissions = _submissions(draw, cluster, speeds, widest, model)
    groups = {node.group for node in cluster}
    sizes = sorted({node.gpus for node in cluster})
    return PlanWorld(
        f"{cluster.gpus} GPUs, nodes of {'/'.join(map(str, sizes))}, "
        f"{len(cluster.gpu_types)} types, {len(groups)} groups, {len(submissions)} jobs of up to "
        f"{max(len(each.job.requirements.counts) for each in submissions)} counts up to {widest}",
        cluster,
        speeds,
        submissions,
    )


def _cluster(draw: np.random.Generator, most_gpus: int) -> Cluster:
    gpus = int(2 ** draw.uniform(5, np.log2(most_gpus)))
    types, groups = int(draw.integers(1, 6)), int(2 ** draw.integers(0, 5))
    sizes = [[1], [2], [4], [8], [8], [16], [4, 8], [1, 2, 4, 8], [3, 5, 16]]
    able = sizes[draw.integers(len(sizes))]
    nodes: list[Node] = []
    left = gpus
    while left > 0:
        at, many = len(nodes), min(left, int(draw.choice(able)))
        cpus = many * CPUS_PER_GPU
        group = f"g{draw.integers(groups)}"
        nodes.append(Node(f"n{at:05d}", f"t{draw.integers(types)}", many, cpus, group=group))
        left -= many
    return Cluster(tuple(nodes))


def _speeds(draw: np.random.Generator, cluster: Cluster) -> Speeds:
    """Draw profiles that are measured everywhere, in a third of the worlds node by node."""
    counts = 2 ** np.arange(int(np.log2(cluster.gpus)) + 1)
    types, by_node = cluster.gpu_types, draw.random() < 1 / 3
    tables = {}
    for at in range(int(2 ** draw.integers(0, 8))):
        one = draw.uniform(1.0, 8.0, len(types))[:, None] * draw.uniform(0.8, 1.0) ** np.log2(
            counts
        )
        factor = draw.uniform(0.9, 1.1, len(cluster.nodes)) if by_node else ()
        tables[f"m{at}"] = SpeedTable(
            types,
            counts,
            one,
            one * draw.uniform(0.5, 1.0),
            np.full(one.shape, Layer.ENTITY, np.int8),
            node_factor=dict(zip(cluster.names, factor, strict=False)),
            tasks={t: TaskTimes(draw.uniform(1.0, 5.0), draw.uniform(0.0, 2.0)) for t in types},
        )
    return Speeds(cluster, tables)


def _submissions(
    draw: np.random.Generator, cluster: Cluster, speeds: Speeds, widest: int, model: ExecutionModel
) -> tuple[Submission, ...]:
    names, profiles = np.array(cluster.names), sorted(speeds.profiles)
    kinds = [_counts(draw, widest) for _ in range(int(2 ** draw.integers(0, 8)))]
    limited, needs = draw.random() < 1 / 3, draw.random() < 1 / 3
    parts = [frozenset(part.tolist()) for part in np.array_split(names, 4) if len(part)]
    wide = [max(each[0], min(each[-1], 8)) for each in kinds]
    jobs_held = cluster.gpus / float(np.mean(wide))
    at_once = int(draw.uniform(1.0, 4.0) * jobs_held) + 10
    run_s = max(600.0, ROUND_S * jobs_held / EVENTS_A_ROUND)
    submit_s = np.zeros(2 * at_once)
    submit_s[at_once:] = np.sort(draw.uniform(0.0, run_s, at_once))
    made = []
    for at, submitted_s in enumerate(submit_s.tolist()):
        kind = int(draw.integers(len(kinds)))
        profile = profiles[draw.integers(len(profiles))]
        least = int(draw.choice([1, 1, 1, 1, 2]))
        tasks = None
        samples = run_s * draw.lognormal(-0.5, 1.0) * 3.0 * wide[kind]
        if model is ExecutionModel.TASKS:
            tasks = TaskShape(int(draw.integers(1, 4)), int(draw.integers(1, 50)))
            samples = 32.0 * tasks.scale * (tasks.rounds or 1)
        job = Job(
            id=f"j{at:05d}",
            submit_s=submitted_s,
            requirements=RequirementSet(kinds[kind]),
            profile=profile,
            total_samples=samples,
            time_limit_s=run_s * 4,
            cpus_per_gpu=float(draw.choice([0.0, 4.0, 8.0, 12.0])) if needs else 0.0,
            nodes=parts[draw.integers(len(parts))] if limited and draw.random() < 0.5 else None,
            min_nodes=least if limited and kinds[kind][0] > 1 else 1,
            preemptible=bool(draw.random() < 0.95),
            tasks=tasks,
        )
        made.append(Submission(job, samples))
    return tuple(made)


def _counts(draw: np.random.Generator, widest: int) -> tuple[int, ...]:
    """Return one count, powers of two, or up to sixteen counts between them."""
    powers = 2 ** np.arange(int(np.log2(widest)) + 1)
    match int(draw.integers(4)):
        case 0:
            chosen = draw.choice(powers, 1)
        case 1:
            chosen = draw.choice(powers, min(len(powers), 4), replace=False)
        case 2:
            chosen = np.linspace(draw.integers(1, 9), widest, 16).astype(np.int64)
        case _:
            chosen = draw.integers(1, widest + 1, draw.integers(1, 17))
    counts: NDArray[np.int64] = np.unique(chosen)
    return tuple(counts.tolist())
