"""The numbers of a workload, worked out by hand."""

import numpy as np
import pytest

from hetsched_core.traces.summary import WorkloadShare, summarise
from hetsched_core.traces.workload import Workload
from tests.hetsched_core.worlds import cluster_of, linear_speeds, submission

CLUSTER = cluster_of(a=("fast", 2), b=("slow", 2), c=("slow", 2))
SPEEDS = linear_speeds(CLUSTER, {"m": {"fast": 10.0, "slow": 5.0}}, several_nodes=0.4)
SLOW = frozenset({"slow"})


def test_a_job_counts_as_if_it_ran_alone_on_its_fastest_type() -> None:
    workload = Workload(
        (
            submission("one", 36_000),  # 1 h on the fast type
            submission("two", 36_000, (2,), submit_s=3600, gpu_types=SLOW),  # 1 h on two slow ones
            submission("spread", 28_800, (4,), submit_s=7200),  # 1 h: only two slow nodes have four
            submission("huge", 1.0, (8,), submit_s=14_400),
            submission("strange", 1.0, submit_s=14_400, gpu_types=frozenset({"other"})),
        )
    )
    found = summarise(workload, SPEEDS, CLUSTER)
    assert found.jobs == 5
    assert found.misfits == ("huge", "strange")
    assert found.gpu_hours == pytest.approx(1 + 2 + 4)
    assert found.by_gpus == (
        WorkloadShare("1", 1, 1.0),
        WorkloadShare("2", 1, 2.0),
        WorkloadShare("4", 1, 4.0),
    )
    assert found.by_profile == (WorkloadShare("m", 3, 7.0),)
    assert found.run_s == pytest.approx((3600.0,) * 5)
    assert found.mean_run_s == pytest.approx(3600)
    assert found.arrival_cv == pytest.approx(np.std([1, 1, 2, 0]))
    assert found.load == pytest.approx(7 / (6 * 4))


def test_jobs_that_arrive_at_once_are_no_load_over_time() -> None:
    found = summarise(Workload((submission("one", 10.0),)), SPEEDS, CLUSTER)
    assert (found.load, found.arrival_cv) == (None, None)
