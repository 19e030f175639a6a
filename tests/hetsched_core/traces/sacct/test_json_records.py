"""Records of `sacct --json`, newer and older."""

import json
from io import BytesIO
from itertools import repeat
from typing import Any

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct import Doubt, LoggedState, SacctFormat, read_sacct, warnings_of
from tests.hetsched_core.traces.worlds import Endless, allocation, read_log


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


UNSET = {"set": False, "infinite": False, "number": 0}
INFINITE = {"set": False, "infinite": True, "number": 0}


def record(**changes: object) -> dict[str, Any]:
    """Return a record as Slurm 26.05 writes it, where it matters here."""
    return {
        "job_id": 100,
        "array": {"job_id": 0, "task_id": UNSET, "task": ""},
        "het": {"job_id": 0, "job_offset": UNSET},
        "name": "train",
        "user": "ada",
        "account": "lab",
        "partition": "gpu",
        "qos": "normal",
        "association": {"account": "", "user": ""},
        "nodes": "n[1-2]",
        "restart_cnt": 1,
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "steps": [{"step": {"id": "100.batch"}}],
        "time": {
            "elapsed": 3_600,
            "eligible": 1_757_685_600,
            "end": 1_757_689_800,
            "start": 1_757_686_200,
            "submission": 1_757_685_600,
            "suspended": 0,
            "limit": number(120),
        },
        "tres": {
            "allocated": [
                {"type": "cpu", "name": "", "id": 1, "count": 8},
                {"type": "energy", "name": "", "id": 3, "count": -2},
                {"type": "mem", "name": "", "id": 2, "count": 65_536},
                {"type": "gres", "name": "gpu", "id": 1001, "count": 4},
                {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 4},
            ],
            "requested": [{"type": "gres", "name": "gpu", "id": 1001, "count": 4}],
        },
    } | changes


def time(**changes: object) -> dict[str, Any]:
    return {"time": record()["time"] | changes}


def gres(*pairs: tuple[str, object]) -> dict[str, Any]:
    allocated = [{"type": "gres", "name": name, "count": count} for name, count in pairs]
    return {"tres": {"allocated": allocated, "requested": []}}


def dump(*records: object) -> bytes:
    return json.dumps({"meta": {"plugin": {}}, "jobs": records, "errors": []}).encode()


def test_a_record_becomes_an_allocation() -> None:
    outcome = read_log(dump(record()))
    assert outcome.only == allocation(
        nodes=("n1", "n2"),
        n_nodes=2,
        gpus=(("a100", 4),),
        requested_gpus=((None, 4),),
        restarts=1,
        line=1,
    )
    assert outcome.report.form is SacctFormat.JSON
    assert not warnings_of([outcome.report])


def test_an_end_far_later_than_elapsed_tells_is_in_doubt_and_elapsed_is_used() -> None:
    only = read_log(dump(record(**time(end=253_339_228_800, elapsed=33)))).only
    assert only.doubts == (Doubt.ELAPSED,)
    assert only.end_s == only.start_s + 33.0


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        # Ids are those that text shows.
        ({"array": {"job_id": 83, "task_id": number(3)}, "job_id": 83}, "job_id", "83_3"),
        ({"array": {"job_id": 83, "task_id": number(0)}, "job_id": 90}, "job_id", "83_0"),
        ({"het": {"job_id": 86, "job_offset": number(1)}, "job_id": 87}, "job_id", "86+1"),
        ({"array": None, "het": None}, "job_id", "100"),
        # States are words, or lists of a state and flags.
        ({"state": {"current": ["NODE_FAIL"]}}, "state", LoggedState.NODE_FAIL),
        ({"state": {"current": ["PENDING", "REQUEUED"]}}, "state", LoggedState.REQUEUED),
        ({"state": "FAILED"}, "state", LoggedState.FAILED),
        ({"state": {"current": ["DREAMING"]}}, "state", LoggedState.UNKNOWN),
        # Time limits are minutes, of newer and older versions.
        (time(limit=number(10)), "time_limit_s", 600.0),
        (time(limit=10), "time_limit_s", 600.0),
        *((time(limit=limit), "time_limit_s", None) for limit in (INFINITE, UNSET, 4_294_967_295)),
        # A running job has no end.
        *(
            ({"state": "RUNNING"} | time(end=end), "end_s", None)
            for end in (0, 4_294_967_294, UNSET, number(0), None)
        ),
    ],
)
def test_values_of_newer_and_older_versions_are_read(
    change: dict[str, object], field: str, expected: object
) -> None:
    only = read_log(dump(record(**change))).only
    assert getattr(only, field) == expected
    assert (only.doubts == (Doubt.STILL_RUNNING,)) is (only.end_s is None)


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        (time(start=4_294_967_294), "never_started"),
        ({"nodes": "None assigned"}, "never_started"),
        (gres(), "no_gpu"),
    ],
)
def test_records_without_gpus_are_counted_by_what_they_are(
    change: dict[str, Any], counted: str
) -> None:
    report = read_log(dump(record(), record(**change))).report
    assert getattr(report, counted) == 1
    assert report.lines == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"job_id": None}, "not a job record: has no number as job_id"),
        ({"job_id": "x"}, "unreadable number: job_id: 'x' is no number"),
        ({"job_id": 10**10}, "unreadable job id: job_id: 10000000000 is out of range"),
        ({"job_id": 1.5}, "unreadable number: job_id: 1.5 is not whole"),
        ({"time": None}, "not a job record: has no object 'time'"),
        ({"tres": {"allocated": {}}}, "not a job record: has no list of TRES"),
        ({"tres": {"allocated": [3]}}, "unreadable TRES: '3' is no object"),
        ({"state": {}}, "not a job record: has no state"),
        (gres(("gpu", "four")), "unreadable number: count: 'four' is no number"),
        (gres(("gpu:a100", 4), ("gpu", 2)), "unreadable TRES: 4 GPUs by type but 2"),
        (gres(("shard", 4)), "part of a GPU: holds shards"),
        (time(start=-5), "unreadable time: start: -5 is negative"),
        (time(start="noon"), "unreadable time: start: 'noon' is no number"),
        (time(start=10**30), "unreadable time: start: 1"),
        (time(submission=0), "unreadable time: has no time of submission"),
        (time(end=1_757_686_199), "times out of order: ends 1 s before its Start"),
        ({}, "not a job record: is '7' and no object"),
        ({"nodes": "n[1-"}, "unreadable node list: 'n[1-' is no node list"),
    ],
    ids=str,
)
def test_a_record_that_cannot_be_used_says_which_and_why(change: dict[str, Any], why: str) -> None:
    outcome = read_log(dump(record(), record(**change) if change else 7))
    assert len(outcome.allocations) == 1
    assert outcome.why.startswith(f"record 2: {why}")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "no job in it"),
        (b"[1, 2]", "no JSON after record 0: expected '{', found '\\['"),
        (b'{"jobs": [{"job_id": 1, "job_state": ["RUNNING"]}]}', "record 1 has no object 'time'"),
        (b'{"jobs": [7]}', "record 1 is '7' and no object"),
        (
            b'{"jobs": [{"job_id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
            "no JSON after record 0: nested too deep for a record",
        ),
    ],
)
def test_what_is_not_the_json_of_sacct_is_an_error(data: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        list(read_sacct(BytesIO(data)))


def test_broken_json_after_good_records_is_an_error_that_says_where() -> None:
    log = read_sacct(BytesIO(dump(record()).replace(b'], "errors"', b', oops ], "errors"')))
    assert next(log).job_id == "100"
    with pytest.raises(InputError, match="no JSON after record 1"):
        list(log)
    assert not log.report.complete


def test_every_place_to_cut_a_file_off_is_noticed_until_the_list_of_jobs_has_ended() -> None:
    whole = dump(record(), record(job_id=101, name="caf\u00e9", restart_cnt=-0.5e-3))
    first_end = whole.index(b', {"job_id": 101')
    end = whole.index(b'], "errors"')
    for cut in range(first_end, end):
        outcome = read_log(whole[:cut])
        assert outcome.allocations[0].job_id == "100"
        assert outcome.why == (
            f"record {len(outcome.allocations) + 1}: cut off at the end of the file: "
            "the file ends within the list of jobs"
        )
    assert read_log(whole[: end + 1]).report.lines == 2


def test_records_are_read_one_at_a_time() -> None:
    one = json.dumps(record()).encode() + b","
    stream = Endless(b'{"jobs": [', repeat(one))
    log = read_sacct(stream)
    for _ in range(1_000):
        assert next(log).job_id == "100"
    assert stream.served < 1_000 * len(one) + 1_000_000
