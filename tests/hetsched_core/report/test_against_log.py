"""The sentences that say how close a replay comes to the log."""

from dataclasses import replace

import pytest

from hetsched_core.measures.logged import Closeness
from hetsched_core.report.findings import against_log
from hetsched_core.report.history import LoggedHistory
from hetsched_core.report.units import SPACE
from hetsched_core.types import LoggedRun
from tests.hetsched_core.worlds import submission

FOUND = Closeness(
    jobs=100,
    close_share=0.4,
    waited=70,
    waited_close=10,
    p50_error_s=600.0,
    p90_error_s=7200.0,
    avg_logged_wait_s=5400.0,
    avg_wait_s=3600.0,
    wait_rank_correlation=0.5,
)


def log(gpus: int) -> LoggedHistory:
    """One job waits while another holds GPUs."""
    runs = {"runs": LoggedRun(0.0, 100.0, gpus), "waits": LoggedRun(100.0, 200.0, 1)}
    jobs = [replace(submission(job, samples=1.0), logged=(run,)) for job, run in runs.items()]
    found = LoggedHistory.of(jobs)
    assert found is not None
    return found


def test_the_replay_of_slurm_is_the_one_that_is_told_of() -> None:
    first, *_ = against_log({"las": replace(FOUND, jobs=1), "slurm": FOUND}, log(1), 8)
    assert first.replace(SPACE, " ") == (
        "How close the replay comes to the log: jobs wait 90.0 min on average before they start"
        " in the log, and 60.0 min under slurm. Within 5 minutes of their logged start 40 of "
        "100 jobs start, 30 of them because they hardly wait in either; of the 70 others 10. "
        "Half of all starts are off by at most 10.0 min, nine of ten by at most 2.00 h. The "
        "rank correlation of the waits is 0.50: 1 if jobs that wait longer in the log wait "
        "longer in the replay, 0 if that is left to chance."
    )
    assert "under las" in against_log({"las": FOUND}, log(1), 8)[0]


def test_where_hardly_a_job_waits_there_is_little_to_say() -> None:
    quiet = replace(FOUND, waited=0, waited_close=0, close_share=1.0, avg_logged_wait_s=1.0)
    (only,) = against_log({"slurm": quiet}, log(1), 8)
    assert only.endswith("none waits for longer than that in either.")


@pytest.mark.parametrize(
    ("held", "says"), [(1, "1.0 of 8 GPUs on average. The others"), (8, "for want of GPUs")]
)
def test_gpus_that_the_log_leaves_free_while_jobs_wait_are_told(held: int, says: str) -> None:
    _, why = against_log({"slurm": FOUND}, log(held), 8)
    assert says in why
