"""The clusters and workloads of Hops's evaluation (SoCC '24, sections 4.2 and 4.3), drawn by seed.

What the paper gives: hosts and GPUs, table 2, numbers of jobs, arrival rates, requirement sets of
up to 8 counts between 1 and 16. What it does not give is assumed here, and listed on the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hetsched_core.errors import InputError
from hetsched_core.measures.fairness import RunTimes
from hetsched_core.throughput import ProfileSet, SizeClass, profile_set
from hetsched_core.throughput.builtin import gpu_counts, speed_table
from hetsched_core.types import Cluster, Job, Node, RequirementSet, Speeds, Submission

MODELS = tuple(replace(model, half=False) for model in profile_set(ProfileSet.HOPS))
"""Table 2 in single precision: the paper names no mixed one, with which an RTX 3090 would be worth
seven GTX 1080 Ti."""

LARGEST = 16
MOST_REQUIREMENTS = 8

GPU_HOURS = {
    SizeClass.SMALL: (0.1, 1.0),
    SizeClass.MEDIUM: (1.0, 10.0),
    SizeClass.LARGE: (10.0, 50.0),
    SizeClass.EXTRA_LARGE: (50.0, 100.0),
}
"""Between these the GPU hours of a class are log-uniform; the outermost two bounds are assumed."""

PATIENCE_S = 8 * 3600.0
"""Nobody asks for so few GPUs that the expected run time is longer: sets are drawn again."""

OVERESTIMATE = 2.0
"""Time limits, over the time that the median requirement takes on the slowest type."""

DECODED = ("ImageNet", "Food-101")
"""Data sets of photographs: their decoding is what a slow host is slow at."""


@dataclass(frozen=True, slots=True)
class HostKind:
    """Hosts of one make: GPU type, GPUs a host, hosts, and relative speed (photographs, others)."""

    name: str
    gpu_type: str
    gpus: int
    hosts: int
    speed: tuple[float, float] = (1.0, 1.0)


OLD, NEWER, NEWEST = (0.7, 0.9), (0.9, 0.97), (1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """One of the paper's two settings, or that with other jobs.

    Attributes:
        name: of the setting.
        hosts: of the cluster.
        jobs: how many.
        per_hour: how many of them arrive, on average.
        longer: by what the GPU hours of a class are multiplied.
        most_gpu_hours: what more GPU hours are cut to.
        patience_s: the longest run that a user expects.
        few: the larger, the more small counts; k is drawn k ** -few times as often as 1.
    """

    name: str
    hosts: tuple[HostKind, ...]
    jobs: int
    per_hour: float
    longer: float = 1.0
    most_gpu_hours: float = math.inf
    patience_s: float = PATIENCE_S
    few: float = 0.0


SMALL = Scale(
    "64 GPUs",
    (
        HostKind("w780-1080ti", "gtx1080ti", 8, 2),
        HostKind("w780-titanxp", "titanxp", 8, 4),
        HostKind("w780-3090", "rtx3090", 4, 2, OLD),
        HostKind("yk8100-3090", "rtx3090", 4, 2, NEWER),
    ),
    25,
    10.0,
)
LARGE = Scale(
    "512 GPUs",
    (
        HostKind("w780-1080ti", "gtx1080ti", 8, 16),
        HostKind("w780-titanxp", "titanxp", 8, 16),
        HostKind("w780-3090", "rtx3090", 8, 16, OLD),
        HostKind("yk8100-8g-3090", "rtx3090", 8, 8, NEWER),
        HostKind("yk8100-10g-3090", "rtx3090", 8, 8, NEWEST),
    ),
    500,
    100.0,
)

CALIBRATED_SMALL = replace(
    SMALL, name=f"{SMALL.name}, calibrated", longer=2.25, most_gpu_hours=60.0
)
CALIBRATED_LARGE = replace(
    LARGE,
    name=f"{LARGE.name}, calibrated",
    longer=3.0,
    most_gpu_hours=18.0,
    patience_s=5 * 3600.0,
    few=0.5,
)
"""Chosen so that the makespan and the mean JCT of Hops, no other's, are near those printed."""

SCALES = {scale.name: scale for scale in (SMALL, LARGE, CALIBRATED_SMALL, CALIBRATED_LARGE)}


@dataclass(frozen=True, slots=True)
class HopsWorld:
    """A cluster, jobs, and the true speeds; `by_type` are their means over the nodes of a type."""

    cluster: Cluster
    submissions: tuple[Submission, ...]
    speeds: Speeds
    by_type: Speeds


def cluster_of(scale: Scale) -> Cluster:
    """Return the nodes of a setting."""
    return Cluster(
        tuple(
            Node(f"{kind.name}-{number:02d}", kind.gpu_type, kind.gpus)
            for kind in scale.hosts
            for number in range(kind.hosts)
        ),
        scale.name,
    )


def speeds_of(cluster: Cluster, hosts: Sequence[HostKind]) -> tuple[Speeds, Speeds]:
    """Return true speeds, in which the hosts of a type differ, and those of the types.

    The factors of the nodes of a type have mean 1, so that the type's speed is the mean node's.
    """
    counts = gpu_counts(cluster.gpus)
    tables = {m.name: speed_table(m, cluster.gpu_types, counts) for m in MODELS}
    by_type = Speeds(cluster, tables)
    uneven = {}
    for model in MODELS:
        decodes = model.dataset.startswith(DECODED)
        relative = {kind.name: kind.speed[0 if decodes else 1] for kind in hosts}
        factor = {node.name: relative[node.name.rsplit("-", 1)[0]] for node in cluster}
        for gpu_type in cluster.gpu_types:
            here = [node.name for node in cluster if node.gpu_type == gpu_type]
            mean = float(np.mean([factor[name] for name in here]))
            factor |= {name: factor[name] / mean for name in here}
        uneven[model.name] = replace(by_type.table(model.name), node_factor=factor)
    return by_type.revised(uneven), by_type


def world_of(scale: Scale, seed: int) -> HopsWorld:
    """Return a setting with jobs drawn by this seed: Poisson arrivals, models by row of table 2."""
    cluster = cluster_of(scale)
    speeds, by_type = speeds_of(cluster, scale.hosts)
    times = RunTimes(by_type, cluster)
    draw = np.random.default_rng(seed)
    at_s, submissions = 0.0, []
    for number in range(1, scale.jobs + 1):
        model = MODELS[draw.integers(len(MODELS))]
        low, high = np.log(GPU_HOURS[model.size])
        hours = scale.longer * float(np.exp(draw.uniform(low, high)))
        gpu_s = 3600.0 * min(hours, scale.most_gpu_hours)
        requirements = _requirements(draw, gpu_s, scale)
        job = Job(str(number), at_s, requirements, model.name)
        # GPU hours are means over the GPUs of the cluster, as in formula (9).
        one = times.expected_run_s(replace(job, requirements=RequirementSet((1,))), 1.0)
        assert one is not None
        samples = gpu_s / one
        job = replace(job, total_samples=samples, time_limit_s=_limit(job, samples, by_type))
        submissions.append(Submission(job, samples))
        at_s += 3600.0 / scale.per_hour * float(draw.exponential())
    return HopsWorld(cluster, tuple(submissions), speeds, by_type)


def _requirements(draw: np.random.Generator, gpu_s: float, scale: Scale) -> RequirementSet:
    """Return 1 to 8 counts up to 16 with a mean that the user has the patience for.

    Raises:
        InputError: not even 16 GPUs end the job in that time, so that no draw would do.
    """
    if gpu_s / LARGEST > scale.patience_s:
        raise InputError(
            f"a job of {gpu_s / 3600.0:g} GPU hours takes more than patience_s = "
            f"{scale.patience_s:g} s on LARGEST = {LARGEST} GPUs, so that no requirement set will "
            f"do; raise one of the two, or keep GPU_HOURS to "
            f"{LARGEST * scale.patience_s / 3600.0:g}"
        )
    shares = None
    # Equal shares are drawn in another way than none, and would change the jobs of the paper.
    if scale.few:
        shares = np.arange(1.0, LARGEST + 1) ** -scale.few
        shares /= shares.sum()
    while True:
        size = int(draw.integers(1, MOST_REQUIREMENTS + 1))
        counts = sorted((1 + draw.choice(LARGEST, size, replace=False, p=shares)).tolist())
        requirements = RequirementSet(tuple(counts))
        if gpu_s / requirements.mean <= scale.patience_s:
            return requirements


def _limit(job: Job, samples: float, speeds: Speeds) -> float:
    count = job.requirements.lower_median
    table = speeds.table(job.profile)
    slowest = min(
        speeds.per_gpu(job.profile, t, count, 2) for t in table.gpu_types if table.runs_on(t)
    )
    return OVERESTIMATE * samples / (slowest * count)
