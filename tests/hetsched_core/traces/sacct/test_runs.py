"""Runs of one job put together."""

import pytest

from hetsched_core.traces.sacct import Doubt, JobState, link_runs
from tests.hetsched_core.traces.worlds import read_rows


def run(hour: int, **changes: str) -> dict[str, str]:
    """Return a row of a run of one hour."""
    day = "2025-09-12T"
    return {
        "Submit": f"{day}{hour:02}:00:00",
        "Start": f"{day}{hour:02}:00:00",
        "End": f"{day}{hour + 1:02}:00:00",
        "Eligible": "Unknown",
    } | changes


def test_runs_are_put_in_order_whatever_the_order_of_the_log() -> None:
    rows = [
        run(3, Restarts="2", State="COMPLETED"),
        run(1, Restarts="0", State="REQUEUED"),
        run(2, Restarts="1", State="NODE_FAIL"),
    ]
    (job,) = link_runs(read_rows(*rows).allocations)
    assert job.job_id == "100"
    assert [one.restarts for one in job.runs] == [0, 1, 2]
    assert (job.reuse, job.repeated) == (0, ())


def test_jobs_come_in_order_of_their_first_submission() -> None:
    rows = [
        run(5, JobID="2", JobIDRaw="2"),
        run(4, JobID="1_7", JobIDRaw="1"),
        run(6, JobID="3+1", JobIDRaw="4"),
    ]
    jobs = link_runs(read_rows(*rows).allocations)
    assert [job.job_id for job in jobs] == ["1_7", "2", "3+1"]


def test_tasks_of_an_array_are_jobs_of_their_own() -> None:
    rows = [run(1, JobID="83_3", JobIDRaw="83"), run(1, JobID="83_0", JobIDRaw="90")]
    assert len(link_runs(read_rows(*rows).allocations)) == 2


@pytest.mark.parametrize(
    "second", [{"JobName": "other"}, {"User": "bob"}, {"Restarts": "0"}], ids=str
)
def test_an_id_that_was_handed_out_again_is_another_job(second: dict[str, str]) -> None:
    later = run(2, Restarts="1") | second
    first, other = link_runs(read_rows(run(1), later).allocations)
    assert (first.reuse, other.reuse) == (0, 1)
    assert (len(first.runs), len(other.runs)) == (1, 1)


def test_a_resized_job_goes_on_without_a_restart() -> None:
    (job,) = link_runs(read_rows(run(1, State="RESIZING"), run(2)).allocations)
    assert [one.state for one in job.runs] == [JobState.RESIZING, JobState.COMPLETED]


def test_a_job_resized_within_a_second_keeps_both_of_its_rows() -> None:
    resized = run(1, State="RESIZING", End="2025-09-12T01:00:00")
    (job,) = link_runs(read_rows(resized, run(1)).allocations)
    assert [one.state for one in job.runs] == [JobState.RESIZING, JobState.COMPLETED]
    assert not job.repeated


def test_without_restarts_user_and_name_decide() -> None:
    rows = [run(1, Restarts=""), run(2, Restarts=""), run(3, Restarts="", JobName="other")]
    assert [len(job.runs) for job in link_runs(read_rows(*rows).allocations)] == [2, 1]


def test_a_run_seen_in_two_exports_is_one_run() -> None:
    running = run(1, State="RUNNING", End="Unknown")
    for rows in ([run(1), run(1)], [running, run(1)], [run(1), running]):
        (job,) = link_runs(read_rows(*rows).allocations)
        (kept,) = job.runs
        assert kept.state is JobState.COMPLETED
        assert len(job.repeated) == 1
        assert Doubt.RUNAWAY not in kept.doubts


def test_a_run_without_end_before_another_of_its_id_is_a_runaway() -> None:
    rows = [run(1, State="RUNNING", End="Unknown"), run(2, Restarts="1")]
    (job,) = link_runs(read_rows(*rows).allocations)
    assert job.runs[0].doubts == (Doubt.STILL_RUNNING, Doubt.RUNAWAY)
    assert job.runs[1].doubts == ()


def test_the_last_run_may_still_be_running() -> None:
    rows = [run(1, State="REQUEUED"), run(2, Restarts="1", State="RUNNING", End="Unknown")]
    (job,) = link_runs(read_rows(*rows).allocations)
    assert job.runs[1].doubts == (Doubt.STILL_RUNNING,)
