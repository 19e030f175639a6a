"""Runs of one job put together."""

import pytest

from hetsched_core.traces.sacct import Doubt, JobRuns, LoggedState, link_runs
from tests.hetsched_core.traces.worlds import read_rows

OPEN = {"State": "RUNNING", "End": "Unknown"}


def run(hour: int, **changes: str) -> dict[str, str]:
    """Return a row of a run of one hour."""
    start, end = (f"2025-09-12T{at:02}:00:00" for at in (hour, hour + 1))
    return {"Submit": start, "Start": start, "End": end, "Eligible": "Unknown"} | changes


def linked(*rows: dict[str, str]) -> tuple[JobRuns, ...]:
    return tuple(link_runs(read_rows(*rows).allocations))


def test_runs_are_put_in_order_whatever_the_order_of_the_log() -> None:
    (job,) = linked(
        run(3, Restarts="2", State="COMPLETED"),
        run(1, Restarts="0", State="REQUEUED"),
        run(2, Restarts="1", State="NODE_FAIL"),
    )
    assert job.job_id == "100"
    assert [one.restarts for one in job.runs] == [0, 1, 2]
    assert (job.reuse, job.repeated) == (0, ())


def test_jobs_and_tasks_of_an_array_come_in_order_of_their_first_submission() -> None:
    jobs = linked(
        run(5, JobID="2", JobIDRaw="2"),
        run(4, JobID="1_7", JobIDRaw="1"),
        run(4, JobID="1_3", JobIDRaw="5"),
        run(6, JobID="3+1", JobIDRaw="4"),
    )
    assert [job.job_id for job in jobs] == ["1_7", "1_3", "2", "3+1"]


@pytest.mark.parametrize(
    "second", [{"JobName": "other"}, {"User": "bob"}, {"Restarts": "0"}], ids=str
)
def test_an_id_that_was_handed_out_again_is_another_job(second: dict[str, str]) -> None:
    first, other = linked(run(1), run(2, Restarts="1") | second)
    assert (first.reuse, other.reuse) == (0, 1)
    assert (len(first.runs), len(other.runs)) == (1, 1)


@pytest.mark.parametrize("end", ["2025-09-12T02:00:00", "2025-09-12T01:00:00"])
def test_a_resized_job_goes_on_without_a_restart_and_keeps_both_of_its_rows(end: str) -> None:
    (job,) = linked(run(1, State="RESIZING", End=end), run(int(end[12:13])))
    assert [one.state for one in job.runs] == [LoggedState.RESIZING, LoggedState.COMPLETED]
    assert not job.repeated


def test_without_restarts_user_and_name_decide() -> None:
    rows = [run(1, Restarts=""), run(2, Restarts=""), run(3, Restarts="", JobName="other")]
    assert [len(job.runs) for job in linked(*rows)] == [2, 1]


def test_a_run_seen_in_two_exports_is_one_run() -> None:
    running = run(1, **OPEN)
    for rows in ([run(1), run(1)], [running, run(1)], [run(1), running]):
        (job,) = linked(*rows)
        (kept,) = job.runs
        assert kept.state is LoggedState.COMPLETED
        assert len(job.repeated) == 1
        assert Doubt.RUNAWAY not in kept.doubts


def test_a_run_without_end_before_another_of_its_id_is_a_runaway_and_the_last_may_run() -> None:
    (job,) = linked(run(1, **OPEN), run(2, Restarts="1", **OPEN))
    assert [one.doubts for one in job.runs] == [
        (Doubt.STILL_RUNNING, Doubt.RUNAWAY),
        (Doubt.STILL_RUNNING,),
    ]
