"""Nothing that is read can do more than give allocations, refusals and InputError.

HETSCHED_FUZZ_FILES sets how often each of the real logs is mutated (100 times by default).
"""

import gzip
import json
import os
import random
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct import (
    LoggedAllocation,
    SacctOptions,
    link_runs,
    parse_fields,
    parse_job_id,
    parse_zone,
    read_sacct,
)
from hetsched_core.traces.sacct.fields import MAX_NODES
from tests.hetsched_core.traces.worlds import FOX, HABROK

FUZZ_FILES = int(os.environ.get("HETSCHED_FUZZ_FILES", "100"))
ZONES = [None, parse_zone("Europe/Oslo"), parse_zone("Pacific/Apia")]


def check(data: bytes, options: SacctOptions | None = None) -> int:
    """Read data as a log; return how many lines were read.

    Fails where anything but an allocation that makes sense, a refusal or InputError comes of it.
    """
    refused: list[str] = []
    log = read_sacct(BytesIO(data), options, lambda unusable: refused.append(str(unusable)))
    allocations: list[LoggedAllocation] = []
    message = ""
    try:
        for allocation in log:
            check_allocation(allocation)
            allocations.append(allocation)
    except InputError as error:
        message = str(error)
    report = log.report
    assert report.complete is (not message)
    held = (report.headers, report.blank, report.steps, report.never_started, report.no_gpu)
    counted = sum(held) + report.used + report.unusable
    # A record in which reading ended in an error is in no class.
    assert counted <= report.lines <= counted + (not report.complete)
    assert (report.used, report.unusable) == (len(allocations), len(refused))
    assert all("\n" not in line for line in (message, *refused))
    assert all(len(line) < 1_000 for line in refused)
    jobs = link_runs(allocations)
    assert sum(len(job.runs) + len(job.repeated) for job in jobs) == len(allocations)
    return report.lines


def check_allocation(one: LoggedAllocation) -> None:
    assert not parse_job_id(one.job_id).step
    assert one.gpus
    assert all(count > 0 for _, count in one.gpus)
    assert 0 < one.submit_s <= one.start_s
    assert one.end_s is None or one.end_s >= one.start_s
    for seconds in (one.elapsed_s, one.suspended_s, one.time_limit_s):
        assert seconds is None or seconds >= 0
    assert len(one.nodes) <= MAX_NODES
    assert one.memory_mb is None or one.memory_mb > 0
    one.name.encode()


@given(st.binary(max_size=400))
@example(b"\x1f\x8b")
@example(b"{")
@example(b"JobID|State|Submit|Start|End|AllocTRES")
def test_any_bytes_are_a_log_or_an_input_error(data: bytes) -> None:
    check(data)
    check(data, SacctOptions(fields=parse_fields("JobID,State,Submit,Start,End,AllocTRES,...")))


def values(*likely: str) -> st.SearchStrategy[str]:
    """Return likely values of a column, and now and then anything else."""
    return st.one_of(st.sampled_from(likely), st.sampled_from(likely), st.text(max_size=12))


WHEN = (
    *("Unknown", "None", "0", "1757685600", "4294967294", "2025-03-30T02:30:00"),
    *("2025-10-26T01:00:00", "2025-10-26T02:30:00", "2025-10-26T02:59:59"),
    *("2025-10-26T03:30:00+0100", "2011-12-30T12:00:00"),
    *("9999-12-31T23:59:59", "0001-01-01T00:00:00"),
)
TRES = (
    "gres/gpu=1",
    "cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1",
    "gres/gpu:a100=4,gres/gpu=2",
    "gres/gpu=99999999999",
    "gres/shard=3",
    "cpu=1",
    "",
)
CELLS = {
    "JobID": values("1", "1_2", "1+0", "1.batch", "1_[1-3]", "1_[2].0", "16261988.ba+"),
    "JobIDRaw": values("1", "2"),
    "User": values("ada", "a|b"),
    "State": values("COMPLETED", "RUNNING", "CANCELLED by 1", "CANCELLED+", "REQUEUED"),
    "Submit": values(*WHEN),
    "Eligible": values(*WHEN),
    "Start": values(*WHEN),
    "End": values(*WHEN),
    "Elapsed": values("00:10:00", "1-00:00:00", "-1:00", "10:00.5"),
    "ElapsedRaw": values("", "600", "-600", "1e9"),
    "Suspended": values("00:00:00", "00:05:00", ""),
    "Timelimit": values("UNLIMITED", "1-00:00:00"),
    "TimelimitRaw": values("", "60", "Partition_Limit", "4294967295"),
    "Restarts": values("0", "1", "", "4294967294"),
    "NodeList": values("n1", "n[1-3,7],m0[01-12]", "None assigned", "n[1-99999999]", "n[3-1]"),
    "NNodes": values("1", ""),
    "NCPUS": values("8", ""),
    "ReqMem": values("1000Mc", "2147486648Mn", "62.50G", "0"),
    "ReqTRES": values(*TRES),
    "AllocTRES": values(*TRES),
    "AllocGRES": values("", "gpu:2", "gpu:0", "gpu:k80:x"),
    "Comment": values("", "a|b"),
    "JobName": values("train", "a|b", "☃", "x\ry"),
}
COLUMNS = list(CELLS)
ROWS = st.fixed_dictionaries(CELLS)


@given(st.lists(ROWS, max_size=4), st.sampled_from(ZONES), st.sampled_from(["|", "\t", "☃"]))
def test_any_values_in_a_row_give_an_allocation_that_makes_sense_or_a_refusal(
    rows: list[dict[str, str]], zone: Any, delimiter: str
) -> None:
    lines = [delimiter.join(COLUMNS), *(delimiter.join(row.values()) for row in rows)]
    check("\n".join(lines).encode("utf-8", "surrogatepass"), SacctOptions(zone=zone))


KEYS = ["set", "number", "infinite", "type", "name", "count", "current", "start", "end", "job_id"]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**65)
    | st.floats(allow_nan=True)
    | st.sampled_from(["gpu", "gres", "RUNNING", "n[1-2]", "gpu:a100", "None assigned"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=8,
)
GOOD_TIME = {"submission": 1, "start": 2, "end": 3, "elapsed": 1, "suspended": 0, "limit": 60}
GOOD_TRES = {"allocated": [{"type": "gres", "name": "gpu", "count": 2}], "requested": []}
GOOD = {"job_id": 1, "state": "FAILED", "time": GOOD_TIME, "tres": GOOD_TRES}
FIELDS = [
    *("job_id", "array", "het", "name", "user", "nodes", "restart_cnt", "state", "time", "tres"),
    "comment",
]
RECORDS = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4).map(lambda new: GOOD | new)
TIMES = st.dictionaries(st.sampled_from(sorted(GOOD_TIME)), JSON).map(
    lambda new: GOOD | {"time": GOOD_TIME | new}
)


@given(st.lists(RECORDS | TIMES, max_size=3), st.integers(0, 40))
def test_any_records_give_allocations_that_make_sense_or_refusals(
    records: list[dict[str, Any]], cut: int
) -> None:
    data = json.dumps({"jobs": records}).encode()
    check(data)
    check(data[: len(data) - cut])


# Real logs with a few things wrong in them --------------------------------------------------------


def spoil(data: bytes, rng: random.Random) -> bytes:
    """Return part of a log with a few random mistakes of the kinds that files suffer."""
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    lines = (lines[:1] if rng.random() < 0.9 else []) + lines[at : at + rng.randint(1, 40)]
    for _ in range(rng.randint(1, 6)):
        line = rng.randrange(len(lines))
        lines[line] = mistake(lines[line], rng)
    return b"".join(lines)


def mistake(line: bytes, rng: random.Random) -> bytes:
    """Return a line with one mistake in it."""
    start, end = sorted(rng.randrange(len(line) + 1) for _ in range(2))
    match rng.randrange(6):
        case 0:
            return line[:start] + bytes([rng.randrange(256)]) + line[start + 1 :]
        case 1:
            bits = [b"\n", b'"', b"\xe2\x98", *(bytes([sign]) for sign in b"|+-.,=[]{}")]
            return line[:start] + rng.choice(bits) * rng.randint(1, 3) + line[start:]
        case 2:
            return line[:start] + line[end:]
        case 3:
            delimiter = "☃".encode() if "☃".encode() in line else b"," if b"{" in line else b"|"
            cells = line.split(delimiter)
            a, b = rng.randrange(len(cells)), rng.randrange(len(cells))
            cells[a], cells[b] = cells[b], cells[a]
            return delimiter.join(cells)
        case 4:
            digits = b"0123456789"
            return bytes(
                rng.choice(digits) if c in digits and rng.random() < 0.05 else c for c in line
            )
        case _:
            return line * 2


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("fox_sacct_P_noheader.txt", FOX),
        ("habrok_sacct_snowman.txt", HABROK),
        ("slurm_26.05/sacct_D_a_P_ALL_by_id.txt", ""),
        ("slurm_26.05/sacct_X_short.txt", ""),
        ("slurm_26.05/sacct.json.gz", ""),
    ],
)
def test_a_real_log_with_mistakes_in_it_gives_allocations_that_make_sense_or_refusals(
    data_dir: Path, name: str, fields: str
) -> None:
    data = (data_dir / "sacct" / name).read_bytes()
    if name.endswith(".gz"):
        # A record a line, so that a part of the file is a list of records.
        jobs = json.loads(gzip.decompress(data))["jobs"]
        data = b'{"jobs": [\n' + b",\n".join(json.dumps(job).encode() for job in jobs) + b"\n]}"
    rng = random.Random(name)
    names = parse_fields(fields) if fields else None
    lines = 0
    for _ in range(FUZZ_FILES):
        spoilt = spoil(data, rng)
        if rng.random() < 0.02:
            spoilt = mistake(gzip.compress(spoilt), rng)
        lines += check(spoilt, SacctOptions(fields=names, zone=rng.choice(ZONES)))
    assert lines > FUZZ_FILES
