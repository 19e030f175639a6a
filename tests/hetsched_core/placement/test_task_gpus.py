"""Shares of a host's CPUs and memory for GPUs on which jobs take turns."""

from __future__ import annotations

from random import Random

import numpy as np

from hetsched_core.placement.task_gpus import open_task_gpus, runs_beside, task_plan
from hetsched_core.types import Cluster, Job, Node, TaskShape, TaskTimes
from tests.hetsched_core.policies.worlds import reasons, task_speeds
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    snapshot_of,
    submission,
    view,
)

HOST = Cluster((Node("a", "v100", 4, cpus=8, memory_mb=400),))


def job(cpus: float, memory_mb: float = 0.0, gpu_type: str | None = None) -> Job:
    types = frozenset({gpu_type}) if gpu_type else None
    return submission(
        "j",
        1.0,
        cpus_per_gpu=cpus,
        memory_mb_per_gpu=memory_mb,
        gpu_types=types,
        tasks=TaskShape(1, 1),
    ).job


def able(cluster: Cluster, *jobs: Job) -> list[list[bool]]:
    one = dict.fromkeys(cluster.gpu_types, 1.0)
    times = {"m": dict.fromkeys(cluster.gpu_types, TaskTimes(1.0, 0.0))}
    snapshot = snapshot_of(cluster, [], speeds=linear_speeds(cluster, {"m": one}, tasks=times))
    kinds = runs_beside(snapshot, open_task_gpus(snapshot), jobs)
    found: list[list[bool]] = np.isfinite(kinds.train_s)[:, kinds.kind].tolist()
    return found


def test_a_job_too_hungry_for_an_equal_share_has_one_gpu_and_the_others_less() -> None:
    """5 of 8 CPUs are reserved: 1 is left for each of the other three."""
    assert able(HOST, job(5.0), job(2.0), job(1.0)) == [
        [True, False, False, False],
        [True, False, False, False],
        [True] * 4,
    ]


def test_a_second_hungry_job_takes_turns_with_the_first_or_waits_for_it() -> None:
    both = Cluster((Node("a", "v100", 1, 8, host="h"), Node("b", "k80", 1, 8, host="h")))
    assert able(both, job(6.0, gpu_type="v100"), job(8.0, gpu_type="v100")) == [
        [True, False],
        [True, False],
    ]
    assert able(both, job(6.0, gpu_type="v100"), job(6.0, gpu_type="k80")) == [
        [True, False],
        [False, False],
    ]


def test_whoever_runs_on_the_gpus_of_a_host_its_cpus_and_memory_are_enough() -> None:
    rng = Random(0)
    for _ in range(100):
        cluster = Cluster(
            (
                Node("a", "v100", rng.randint(1, 4), rng.choice((0, 8)), rng.choice((0, 400))),
                Node("b", "k80", 2, 6, 300, host="b"),
            )
        )
        jobs = [
            job(rng.choice((0.0, 1.0, 3.5, 6.0)), rng.choice((0.0, 100.0, 260.0))) for _ in range(5)
        ]
        found = np.array(able(cluster, *jobs))
        needs = np.array([(j.cpus_per_gpu, j.memory_mb_per_gpu) for j in jobs])
        hungriest = np.where(found[:, :, None], needs[:, None, :], 0.0).max(axis=0)
        first = cluster["a"].gpus
        for node, mine in (("a", hungriest[:first]), ("b", hungriest[first:])):
            has = (cluster[node].cpus or np.inf, cluster[node].memory_mb or np.inf)
            assert np.all(mine.sum(axis=0) <= np.array(has) + 1e-6)


def test_a_job_of_which_all_tasks_have_begun_waits_for_them_and_not_for_others() -> None:
    cluster, once = cluster_of(a=("v100", 1)), TaskShape(1, 1)
    jobs = [view("ends", held(on(a=1)), tasks=once), view("waits", tasks=once)]
    speeds = task_speeds(cluster, {"m": {"v100": TaskTimes(1.0, 0.0)}})
    plan = task_plan(snapshot_of(cluster, jobs, speeds=speeds), ())
    assert reasons(plan) == {"ends": "no_room", "waits": "ahead"}
