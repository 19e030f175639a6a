"""Training rounds of generated jobs, by hand, and that they are the work of the same jobs."""

from dataclasses import replace

import numpy as np
import pytest

from hetsched_core.throughput import ProfileSet, builtin_tables, profile_set
from hetsched_core.traces.synthetic.cluster import synthetic_cluster
from hetsched_core.traces.synthetic.jobs import SyntheticWorkload
from hetsched_core.traces.synthetic.options import SyntheticOptions
from hetsched_core.traces.synthetic.tasks import TaskMaker
from hetsched_core.types import Layer, SpeedTable, TaskShape, TaskTimes

CLUSTER = synthetic_cluster(64, ["a100", "t4"])
SPEEDS = [[64.0, 48.0], [32.0, 32.0], [0.0, 0.0]]
APART = [[64.0, 32.0], [32.0, 32.0], [0.0, 0.0]]
HAND = SpeedTable(
    ("fast", "slow", "small"),
    np.array([1, 2]),
    np.array(SPEEDS),
    np.array(APART),
    np.full((3, 2), Layer.TRUTH, np.int8),
    batch_size=8.0,
)
# 40 samples/s on average over the four GPUs that the model fits on.
MAKER = TaskMaker(8.0, {"fast": 1, "slow": 3, "small": 9})


def test_times_of_tasks_by_hand() -> None:
    """In 8 s a GPU of mean speed does 40 batches of 8; on two nodes one takes 1/4 s, not 1/8."""
    assert MAKER.iterations(HAND) == 40
    tasks = MAKER.with_tasks(HAND).tasks
    assert dict(tasks) == {"fast": TaskTimes(5.0, 0.125), "slow": TaskTimes(10.0, 0.0)}
    assert TaskMaker(1e-3, MAKER.gpus).iterations(HAND) == 1


@pytest.mark.parametrize(("samples", "rounds"), [(6_500.0, 5), (7_100.0, 6), (3.0, 1)])
def test_a_round_is_a_task_for_each_gpu_and_work_counts_in_whole_rounds(
    samples: float, rounds: int
) -> None:
    assert MAKER.shape(HAND, samples, 4) == TaskShape(4, rounds)


@pytest.mark.parametrize("elastic_share", [0.0, 1.0])
def test_jobs_of_tasks_are_the_same_jobs(elastic_share: float) -> None:
    models, tables = profile_set(ProfileSet.HARE), builtin_tables(CLUSTER.gpu_types, 64)
    plain = SyntheticOptions(jobs=500, elastic_share=elastic_share)
    asked = replace(plain, task_s=30.0)
    whole, made = (SyntheticWorkload.of(o, CLUSTER, models, tables) for o in (plain, asked))
    jobs = list(made.submissions())
    assert [replace(s, job=replace(s.job, tasks=None)) for s in jobs] == list(whole.submissions())
    assert all(s.job.tasks is None for s in whole.submissions())
    assert set(made.assumptions) > set(whole.assumptions)
    for submission in jobs:
        shape, table = submission.job.tasks, made.tables[submission.job.profile]
        assert shape is not None
        assert shape.scale == submission.job.asked_count
        # The rounds do its work, as fast as single GPUs do it.
        rounds = shape.rounds or 0
        for gpu_type, on in table.tasks.items():
            done = rounds * shape.scale * on.train_s * table.per_gpu(gpu_type, 1, 1)
            one = done / rounds
            assert abs(done - submission.samples) <= one / 2 * (1 + 1e-9) or rounds == 1
