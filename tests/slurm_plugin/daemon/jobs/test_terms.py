"""What a placement gives a job beside GPUs: CPUs, memory and time."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetsched_core.types import (
    Cluster,
    Configuration,
    Job,
    Layer,
    Node,
    RequirementSet,
    Speeds,
    SpeedTable,
)
from slurm_plugin.backend import HostRequest, Resources, Terms
from slurm_plugin.daemon.jobs.terms import limit_min, terms_for
from tests.slurm_plugin.daemon.fake_slurm import WAITING, Site, node, placed, requested

CLUSTER = Cluster(
    (Node("a0", "a100", 4), Node("v0", "v100", 8), Node("v1", "v100", 8), Node("t0", "t4", 4))
)
HOUR_S = 3600.0


def speeds(layer: Layer, t4: float = 1.0) -> Speeds:
    """An A100 is four times as fast as a T4 and twice as fast as a V100; counts scale perfectly."""
    one = np.array([[4.0, 4.0, 4.0], [2.0, 2.0, 2.0], [t4, t4, t4]])
    layers = np.full((3, 3), layer, np.int8)
    counts = np.array([1, 4, 8])
    table = SpeedTable(("a100", "v100", "t4"), counts, one, one / 2, layers)
    return Speeds(CLUSTER, {"p": table})


MEASURED, FORMULA = speeds(Layer.GPU_TYPE), speeds(Layer.THEORY)
NOWHERE = speeds(Layer.GPU_TYPE, t4=0.0)
SLOWER = frozenset({"v100", "t4"})


@pytest.mark.parametrize(
    ("where", "more", "minutes"),
    [
        # It grows as the run is slower.
        ({"a0": 2}, {}, 60),
        ({"a0": 4}, {}, 30),
        ({"a0": 1}, {}, 120),
        ({"v0": 2}, {}, 120),
        ({"t0": 1}, {}, 480),
        ({"v0": 8}, {}, 30),
        ({"v0": 2, "v1": 2}, {}, 120),
        # The default count has its hour on the fastest type that the job accepts.
        ({"v0": 2}, {"gpu_types": SLOWER}, 60),
        ({"t0": 2}, {"gpu_types": SLOWER}, 120),
        # What was not measured never takes time away.
        ({"a0": 4}, {"known": FORMULA}, 60),
        ({"t0": 1}, {"known": FORMULA}, 480),
        # Without any speed the numbers of GPUs stand in; the speed of 0 was measured.
        ({"t0": 1}, {"known": NOWHERE}, 120),
        ({"t0": 4}, {"known": NOWHERE}, 30),
        # The partition's greatest limit is not passed.
        ({"t0": 1}, {"most_s": 5 * HOUR_S}, 300),
        ({"a0": 2}, {"most_s": 1800.0}, 30),
        # It is rounded up to a minute.
        ({"a0": 3}, {}, 40),
        ({"a0": 2}, {"limit_s": 61.0}, 2),
    ],
)
def test_the_limit_of_a_run_is_that_of_the_default_count_for_its_speed(
    where: dict[str, int], more: dict[str, Any], minutes: int
) -> None:
    given = {"limit_s": HOUR_S, "known": MEASURED, "most_s": None, "gpu_types": None, **more}
    job = Job("1", 0.0, RequirementSet.parse("1-8"), "p", gpu_types=given["gpu_types"])
    there, known, most_s = Configuration.of(where), given["known"], given["most_s"]
    assert limit_min(given["limit_s"], job, 2, there, CLUSTER, known, most_s) == minutes


@pytest.mark.parametrize(
    ("asked", "cpus", "memory_mb", "for_four"),
    [
        (HostRequest(8, memory_mb_per_node=4000), 4, 2000, Terms(None, 16, 8000, 32)),
        (HostRequest(3, memory_mb_per_node=1001), 2, 501, Terms(None, 8, 2004, 16)),
        (HostRequest(1, memory_mb_per_cpu=100), 1, 100, Terms(None, 4, None, 8)),
        (HostRequest(6, memory_mb_per_cpu=100), 3, 300, Terms(None, 12, None, 24)),
        (HostRequest(memory_mb_per_gpu=500, cpus_per_gpu=3), 3, 500, Terms()),
    ],
)
def test_cpus_and_memory_follow_the_gpus(
    asked: HostRequest, cpus: int, memory_mb: int, for_four: Terms
) -> None:
    request = requested(replace(WAITING, asked=asked, gpus=2, cpus=asked.cpus_per_task))
    assert (request.cpus_per_gpu, request.memory_mb_per_gpu) == (cpus, memory_mb)
    assert terms_for(request, 4, 2, None) == for_four


@pytest.mark.parametrize(
    ("tasks", "nodes", "per_node", "cpus_per_task", "for_four"),
    [
        # One for each GPU, two for each, one for two; of fewer GPUs than a task has, it has all.
        (8, (1, 1), 8, 2, Terms(None, 2, None, 16, 4)),
        (16, (2, 2), 8, 1, Terms(None, 1, None, 16, 8)),
        (4, (1, 0), 0, 4, Terms(None, 4, None, 16, 2)),
        # They have no more CPUs than are planned for.
        (6, (1, 1), 6, 1, Terms(None, 1, None, 6, 3)),
        # One on each node stays so, however many there were.
        (1, (1, 0), 0, 16, Terms(None, 8, None, 16)),
        (2, (2, 2), 1, 8, Terms(None, 8, None, 16)),
    ],
)
def test_tasks_follow_the_gpus_where_more_than_one_a_node_were_asked_for(
    tasks: int, nodes: tuple[int, int], per_node: int, cpus_per_task: int, for_four: Terms
) -> None:
    job = replace(
        WAITING,
        gpus=8,
        cpus=tasks * cpus_per_task,
        asked=HostRequest(cpus_per_task, memory_mb_per_cpu=100),
        resources=Resources(nodes, tasks, "gres/gpu:8", "", "", ""),
        tasks_per_node=per_node,
    )
    request = requested(job)
    assert terms_for(request, 4, 2, None) == for_four
    assert request.tasks_on(1) == max(1, tasks // 8 if tasks > nodes[0] else 1)


def test_a_limit_that_the_user_changes_while_the_job_waits_is_the_new_one() -> None:
    site = Site(nodes=(node("n0", used=4),))
    changed = replace(WAITING, time_limit_s=300.0)
    # What a placed job shows is the limit of its run.
    run = replace(placed(WAITING, "n0"), time_limit_s=9000.0)
    for shown, limit_s in ((WAITING, 600.0), (changed, 300.0), (run, 300.0)):
        site.see(shown)
        assert site.world.managed["1"].request.own.time_limit_s == limit_s
