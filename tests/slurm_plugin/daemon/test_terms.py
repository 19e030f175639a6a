"""What a placement gives a job beside GPUs: CPUs, memory and time."""

from dataclasses import replace

import numpy as np
import pytest

from hetsched_core.policy import make_policy
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
from slurm_plugin.backend import Asked, SlurmJob, Terms
from slurm_plugin.daemon.terms import limit_min, terms_for
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    WAITING,
    Clock,
    daemon_of,
    node,
    placed,
    requested,
    state,
)

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


def limit(
    where: dict[str, int], known: Speeds, *, most_s: float | None = None, **job: object
) -> int:
    """The limit, in minutes, of a run of a job whose hour is meant for 2 GPUs."""
    described = replace(Job("1", 0.0, RequirementSet.parse("1-8"), "p"), **job)  # type: ignore[arg-type]
    return limit_min(HOUR_S, described, 2, Configuration.of(where), CLUSTER, known, most_s)


MEASURED, FORMULA = speeds(Layer.GPU_TYPE), speeds(Layer.THEORY)


@pytest.mark.parametrize(
    ("where", "minutes"),
    [
        ({"a0": 2}, 60),
        ({"a0": 4}, 30),
        ({"a0": 1}, 120),
        ({"v0": 2}, 120),
        ({"t0": 1}, 480),
        ({"v0": 8}, 30),
        ({"v0": 2, "v1": 2}, 120),
    ],
)
def test_the_limit_grows_as_the_run_is_slower(where: dict[str, int], minutes: int) -> None:
    assert limit(where, MEASURED) == minutes


def test_the_limit_of_the_default_count_is_that_of_the_fastest_type_the_job_accepts() -> None:
    assert limit({"v0": 2}, MEASURED, gpu_types=frozenset({"v100", "t4"})) == 60
    assert limit({"t0": 2}, MEASURED, gpu_types=frozenset({"v100", "t4"})) == 120


def test_what_was_not_measured_never_takes_time_away() -> None:
    assert limit({"a0": 4}, FORMULA) == 60
    assert limit({"t0": 1}, FORMULA) == 480


def test_without_any_speed_the_numbers_of_gpus_stand_in() -> None:
    nowhere = speeds(Layer.GPU_TYPE, t4=0.0)
    assert limit({"t0": 1}, nowhere) == 120
    # The speed of 0 was measured, so that the count may take time away as well.
    assert limit({"t0": 4}, nowhere) == 30


def test_the_partition_s_greatest_limit_is_not_passed() -> None:
    assert limit({"t0": 1}, MEASURED, most_s=5 * HOUR_S) == 300
    assert limit({"a0": 2}, MEASURED, most_s=1800.0) == 30


def test_a_limit_is_rounded_up_to_a_minute() -> None:
    assert limit({"a0": 3}, MEASURED) == 40
    assert (
        limit_min(
            61.0,
            Job("1", 0.0, RequirementSet.parse("2"), "p"),
            2,
            Configuration.of({"a0": 2}),
            CLUSTER,
            MEASURED,
            None,
        )
        == 2
    )


@pytest.mark.parametrize(
    ("asked", "cpus", "memory_mb", "for_four"),
    [
        (Asked(8, memory_mb_per_node=4000), 4, 2000, Terms(None, 16, 8000)),
        (Asked(3, memory_mb_per_node=1001), 2, 501, Terms(None, 8, 2004)),
        (Asked(1, memory_mb_per_cpu=100), 1, 100, Terms(None, 4, None)),
        (Asked(6, memory_mb_per_cpu=100), 3, 300, Terms(None, 12, None)),
        (Asked(memory_mb_per_gpu=500, cpus_per_gpu=3), 3, 500, Terms()),
    ],
)
def test_cpus_and_memory_follow_the_gpus(
    asked: Asked, cpus: int, memory_mb: int, for_four: Terms
) -> None:
    request = requested(replace(WAITING, asked=asked, gpus=2, cpus=asked.cpus_per_task))
    assert (request.cpus_per_gpu, request.memory_mb_per_gpu) == (cpus, memory_mb)
    assert terms_for(request, 4, 1, None) == for_four


def test_a_limit_that_the_user_changes_while_the_job_waits_is_the_new_one() -> None:
    full = (node("n0", used=4),)
    backend = FakeBackend(state(WAITING, nodes=full))
    daemon = daemon_of(backend, Clock(), make_policy("sjf"))

    def limit_s(shown: SlurmJob) -> float | None:
        backend.state = state(shown, nodes=full)
        daemon.cycle()
        return daemon.world.managed["1"].request.own.time_limit_s

    assert limit_s(WAITING) == 600.0
    assert limit_s(replace(WAITING, time_limit_s=300.0)) == 300.0
    # What a placed job shows is the limit of its run.
    assert limit_s(replace(placed(WAITING, "n0"), time_limit_s=9000.0)) == 300.0
