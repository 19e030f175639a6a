"""Philly's job log: attempts are runs, virtual clusters accounts, what is not told stays open."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.load import FileKind, load_workload, recognise
from hetsched_core.traces.sacct import Doubt, LoggedState, link_runs
from hetsched_core.types import EndState
from tests.hetsched_core.traces.published.worlds import read, why
from tests.hetsched_core.traces.worlds import UTC

HOUR = 3600.0
NINE = 1_507_366_800.0
"""2017-10-07 09:00:00 UTC."""


def attempt(start: str | None, end: str | None, **hosts: int) -> dict[str, Any]:
    """An attempt between two clock times of one day, with {node: GPUs}."""
    detail = [{"ip": ip, "gpus": [f"gpu{n}" for n in range(count)]} for ip, count in hosts.items()]
    times = ("None" if time is None else f"2017-10-07 {time}:00" for time in (start, end))
    return {**dict(zip(("start_time", "end_time"), times, strict=True)), "detail": detail}


def job(*attempts: object, **changes: Any) -> dict[str, Any]:
    """A job submitted at nine."""
    values = {"status": "Pass", "vc": "vc1", "jobid": "application_15_7", "attempts": attempts}
    return {**values, "submitted_time": "2017-10-07 09:00:00", "user": "ann"} | changes


def test_each_attempt_is_a_run_on_the_gpus_of_its_detail() -> None:
    log = read(
        json.dumps([job(attempt("09:10", "10:00", m1=8, m2=2), attempt("10:30", "12:30", m3=8))])
    )
    first, second = log.runs
    assert (first.job_id, first.user) == ("application_15_7", "ann")
    assert (first.account, first.partition) == ("vc1", "vc1")
    assert (first.gpus, first.nodes) == (((None, 10),), ("m1", "m2"))
    assert (first.submit_s, first.start_s) == (NINE, NINE + 600)
    assert (first.state, second.state) == (LoggedState.FAILED, LoggedState.COMPLETED)
    assert second.elapsed_s == 2 * HOUR
    (linked,) = link_runs(log.runs)
    assert linked.runs == (first, second)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("Pass", LoggedState.COMPLETED),
        ("Killed", LoggedState.CANCELLED),
        ("Failed", LoggedState.FAILED),
    ],
)
def test_a_status_is_that_of_the_last_attempt(status: str, state: LoggedState) -> None:
    (run,) = read(json.dumps([job(attempt("09:10", "10:00", m1=1), status=status)])).runs
    assert run.state is state


def test_jobs_without_attempts_never_started_and_attempts_without_gpus_have_none() -> None:
    idle = attempt("09:10", "10:00"), attempt("09:10", "10:00", m1=0)
    report = read(json.dumps([job(), job(*idle)])).report
    assert (report.never_started, report.no_gpu, report.used) == (1, 2, 0)


def test_what_still_ran_ran_until_the_last_time_in_the_log() -> None:
    open_end = attempt("09:10", None, m1=1)
    log = read(json.dumps([job(open_end), job(attempt("10:00", "12:10", m2=1), jobid="b")]))
    assert (log.runs[0].state, log.runs[0].elapsed_s) == (LoggedState.RUNNING, 3 * HOUR)
    assert log.runs[0].doubts == (Doubt.STILL_RUNNING,)
    # The end of an attempt that was followed by another was lost: nobody knows how long it ran.
    lost = read(json.dumps([job(open_end, attempt("11:00", "12:00", m1=1))])).runs[0]
    assert (lost.state, lost.elapsed_s, lost.doubts) == (LoggedState.FAILED, None, (Doubt.STATE,))


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (7, "is no job of Philly"),
        (job(attempts=3), "attempts"),
        (job(jobid=""), "jobid is empty"),
        (job(attempt(None, "10:00", m1=1)), "attempt 1 of job 'application_15_7': has GPUs, and"),
        (
            job(attempt("09:10", "10:00", m1=1), status="Lost"),
            "'Lost' is none of Pass, Killed, Failed",
        ),
        (job(attempt("08:10", "10:00", m1=1)), "starts 3000 s before its Submit"),
        (job(attempt("09:10", "09:00", m1=1)), "ends 600 s before its Start"),
        (job(attempt("09:10", "10:00", m1=1), submitted_time=None), "no time of submission"),
        (job(attempt("09:10", "10:00", **{"m 1": 1})), "ip is 'm 1'"),
        (job({**attempt("09:10", "10:00"), "detail": [{"ip": "m1", "gpus": 3}]}), "gpus"),
    ],
)
def test_what_cannot_be_used_is_refused_and_the_rest_is_read(record: object, says: str) -> None:
    sound = job(attempt("09:10", "10:00", m1=1), jobid="sound")
    log = read(json.dumps([sound, record, sound]))
    assert says in why(log)
    assert [run.job_id for run in log.runs] == ["sound", "sound"]


def test_a_log_that_is_cut_off_is_read_up_to_there_and_no_json_is_an_error() -> None:
    text = json.dumps([job(attempt("09:10", "10:00", m1=1)), job(jobid="b")])
    log = read(text[:-30])
    assert why(log).startswith("record 2: cut off at the end of the file: the file ends within")
    assert len(log.runs) == 1
    with pytest.raises(InputError, match=r"no JSON after record 1: .*unpack it again"):
        read(text.replace("}, {", "} {"))


@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode())])
def test_it_is_recognised_and_brings_its_cluster(
    tmp_path: Path, pack: Callable[[str], bytes]
) -> None:
    jobs = [
        job(attempt("09:10", "10:00", m1=8), attempt("10:30", "12:30", m2=8)),
        job(attempt("09:20", "10:20", m2=2), jobid="b", vc="vc2", status="Failed"),
    ]
    path = tmp_path / "cluster_job_log"
    path.write_bytes(pack(json.dumps(jobs, indent=1)))
    with path.open("rb") as file:
        assert recognise(file, "log") is FileKind.PUBLISHED
    found = load_workload([path], None, UTC)
    assert found.cluster.gpus == 16
    both = {s.job.id: s for s in found.workload.submissions}
    assert [run.gpus for run in both["application_15_7"].logged] == [8, 8]
    assert (both["b"].ends_as, both["b"].job.account) == (EndState.FAILED, "vc2")
    assert not [text for text in found.workload.assumptions if "no time zone" in text]
    unzoned = load_workload([path], None).workload.assumptions
    assert [text for text in unzoned if "no time zone" in text]


def test_the_example_of_the_documentation_is_one_job() -> None:
    page = (Path(__file__).parents[4] / "docs/formats/published.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (run,) = read(example).runs
    assert (run.account, run.gpus, run.nodes) == ("vc-a", ((None, 2),), ("m1",))
