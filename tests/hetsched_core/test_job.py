"""What a job says of itself."""

from __future__ import annotations

import pytest

from tests.hetsched_core.worlds import submission


@pytest.mark.parametrize(
    ("submit_s", "eligible_s", "expected"),
    [(5.0, None, 5.0), (5.0, 8.0, 8.0), (5.0, 3.0, 5.0), (-5.0, 0.0, 0.0), (5.0, 0.0, 5.0)],
)
def test_a_job_may_start_once_it_is_submitted_and_eligible(
    submit_s: float, eligible_s: float | None, expected: float
) -> None:
    job = submission("j", 1.0, submit_s=submit_s, eligible_s=eligible_s).job
    assert job.eligible_from_s == expected
