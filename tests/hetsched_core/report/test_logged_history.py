"""What a log says the site did, as columns."""

from dataclasses import replace

import numpy as np
import pytest

from hetsched_core.report.history import LoggedHistory
from hetsched_core.types import LoggedRun, Submission
from tests.hetsched_core.worlds import submission


def logged(job: str, submit_s: float, *runs: tuple[float, float, int]) -> Submission:
    one = submission(job, samples=100.0, submit_s=submit_s)
    return replace(one, logged=tuple(LoggedRun(*run) for run in runs))


def test_gpus_and_waits_of_every_run_are_there() -> None:
    found = LoggedHistory.of(
        [
            logged("a", 0.0, (10.0, 20.0, 4), (30.0, 40.0, 2)),
            logged("b", 5.0, (5.0, 40.0, 1)),
            submission("not in the log", samples=1.0),
        ]
    )
    assert found is not None
    assert found.first_wait_s.tolist() == [10.0, 0.0]
    edges = np.array([0.0, 5.0, 10.0, 20.0, 30.0, 40.0])
    assert found.held.mean_over(edges).tolist() == [0.0, 1.0, 5.0, 1.0, 3.0]
    assert found.waiting.mean_over(edges).tolist() == [1.0, 1.0, 0.0, 1.0, 0.0]
    assert found.span_s == (0.0, 40.0)
    # 5 s with no GPU held, 5 s and 10 s with one.
    assert found.held_while_waiting() == pytest.approx(15.0 / 20.0)


def test_without_waits_there_is_no_time_of_waiting() -> None:
    found = LoggedHistory.of([logged("a", 0.0, (0.0, 9.0, 1))])
    assert found is not None
    assert found.held_while_waiting() is None
    assert LoggedHistory.of([submission("a", samples=1.0)]) is None
