"""The numbers of a workload, worked out by hand."""

import numpy as np
import pytest

from hetsched_core.traces.summary import Share, summarise
from hetsched_core.traces.workload import Workload
from hetsched_core.types import (
    Cluster,
    Job,
    Layer,
    Node,
    RequirementSet,
    Speeds,
    SpeedTable,
    Submission,
)

CLUSTER = Cluster((Node("a", "fast", 2), Node("b", "slow", 2), Node("c", "slow", 2)))
TABLE = SpeedTable(
    ("fast", "slow"),
    np.array([1, 2, 4]),
    np.array([[10.0, 10.0, 10.0], [5.0, 5.0, 5.0]]),
    np.array([[4.0, 4.0, 4.0], [2.0, 2.0, 2.0]]),
    np.full((2, 3), Layer.TRUTH, dtype=np.int8),
)


def submission(job: str, at_h: float, gpus: int, samples: float, *types: str) -> Submission:
    accepted = frozenset(types) or None
    requirements = RequirementSet.rigid(gpus)
    return Submission(Job(job, at_h * 3600, requirements, "lm", gpu_types=accepted), samples)


def test_a_job_counts_as_if_it_ran_alone_on_its_fastest_type() -> None:
    workload = Workload(
        (
            submission("one", 0, 1, 36_000),  # 1 h on the fast type
            submission("two", 1, 2, 36_000, "slow"),  # 1 h on two slow ones
            submission("spread", 2, 4, 28_800),  # 1 h over two slow nodes: only these have four
            submission("huge", 4, 8, 1.0),
            submission("strange", 4, 1, 1.0, "other"),
        )
    )
    found = summarise(workload, Speeds(CLUSTER, {"lm": TABLE}), CLUSTER)
    assert found.jobs == 5
    assert found.misfits == ("huge", "strange")
    assert found.gpu_hours == pytest.approx(1 + 2 + 4)
    assert found.by_gpus == (Share("1", 1, 1.0), Share("2", 1, 2.0), Share("4", 1, 4.0))
    assert found.by_profile == (Share("lm", 3, 7.0),)
    assert found.run_s == pytest.approx((3600.0,) * 5)
    assert found.mean_run_s == pytest.approx(3600)
    assert found.arrival_cv == pytest.approx(np.std([1, 1, 2, 0]))
    assert found.load == pytest.approx(7 / (6 * 4))


def test_jobs_that_arrive_at_once_are_no_load_over_time() -> None:
    workload = Workload((submission("one", 3, 1, 10.0),))
    found = summarise(workload, Speeds(CLUSTER, {"lm": TABLE}), CLUSTER)
    assert found.load is None
    assert found.arrival_cv is None
