"""Rows of text: which are used, which are not, and the exact reason."""

from io import BytesIO

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct import (
    Doubt,
    LoggedState,
    SacctOptions,
    parse_fields,
    parse_zone,
    read_sacct,
    warnings_of,
)
from tests.hetsched_core.traces.worlds import (
    NOON,
    Outcome,
    allocation,
    read_log,
    read_rows,
)

HEADER = b"JobID|State|Submit|Start|End|AllocTRES"
ROW = b"1|COMPLETED|2025-09-12T14:00:00|2025-09-12T14:10:00|Unknown|gres/gpu=1"
OSLO = SacctOptions(zone=parse_zone("Europe/Oslo"))


def with_columns(more: bytes, *values: bytes) -> Outcome:
    """Read rows that are sound but for what stands in the columns that are added."""
    return read_log(b"\n".join([HEADER + more, *(ROW + value for value in values), b""]))


def test_a_sound_row_becomes_an_allocation() -> None:
    outcome = read_rows({})
    assert outcome.only == allocation()
    (warning,) = warnings_of([outcome.report])
    assert "read as UTC" in warning
    assert "--tz" in warning


def test_the_zone_of_the_cluster_moves_all_times() -> None:
    oslo = read_rows({}, options=OSLO)
    assert oslo.only.submit_s == NOON
    assert oslo.only.end_s == NOON + 4_200
    assert not warnings_of([oslo.report])


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        ({"JobID": "100.batch"}, "steps"),
        ({"JobID": "100_[1-3].0"}, "steps"),
        ({"JobID": "100.0", "JobName": "a|b", "Comment": ""}, "steps"),
        ({"Start": "Unknown", "End": "Unknown", "State": "PENDING"}, "never_started"),
        ({"JobID": "100_[3-5,8%2]", "Start": "Unknown"}, "never_started"),
        ({"NodeList": "None assigned"}, "never_started"),
        ({"AllocTRES": "billing=8,cpu=8,mem=64G,node=1"}, "no_gpu"),
        ({"AllocTRES": "cpu=8,gres/gpu=0"}, "no_gpu"),
    ],
    ids=str,
)
def test_what_holds_no_gpu_is_counted_by_what_it_is(change: dict[str, str], counted: str) -> None:
    outcome = read_rows(change)
    assert not outcome.allocations
    assert not outcome.unusable
    assert getattr(outcome.report, counted) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"JobID": "hundred"}, "unreadable job id: JobID: 'hundred' is no job id"),
        ({"State": "CANCELLED+"}, "unreadable state: State: 'CANCELLED+' is cut"),
        ({"Start": "12 Sep"}, "unreadable time: Start: '12 Sep' is no time"),
        ({"Submit": "Unknown"}, "unreadable time: Submit: 'Unknown' is no time of a job"),
        ({"End": "2025-09-12T14:09:59"}, "times out of order: ends 1 s before its Start"),
        ({"Submit": "2025-09-12T15:10:00"}, "times out of order: starts 3600 s before"),
        ({"ElapsedRaw": "-5"}, "unreadable number: ElapsedRaw: '-5' is no number"),
        ({"ElapsedRaw": "9" * 30}, f"unreadable number: ElapsedRaw: '{'9' * 30}' has more than 18"),
        ({"Suspended": "-00:01:00"}, "unreadable duration: Suspended: '-00:01:00' is"),
        ({"TimelimitRaw": "soon"}, "unreadable number: TimelimitRaw: 'soon' is no"),
        ({"Timelimit": "soon", "TimelimitRaw": ""}, "unreadable duration: Timelimit: 's"),
        ({"Restarts": "once"}, "unreadable number: Restarts: 'once' is no number"),
        ({"NodeList": "n[1-"}, "unreadable node list: NodeList: 'n[1-' is no node list"),
        ({"AllocTRES": "gres/gpu=x"}, "unreadable TRES: AllocTRES: gres/gpu in"),
        ({"ReqTRES": "gres/gpu"}, "unreadable TRES: ReqTRES: 'gres/gpu' in"),
        ({"AllocTRES": "gres/shard=2"}, "part of a GPU: AllocTRES: 'gres/shard=2' holds"),
        (
            {"ReqMem": "much", "AllocTRES": "gres/gpu=1", "ReqTRES": ""},
            "unreadable memory: ReqMem: 'much' is no amount of memory",
        ),
        (
            {"JobName": "|" * 40, "Comment": "", "WorkDir": "", "SubmitLine": ""},
            "wrong number of fields: 62 fields for 22 columns",
        ),
    ],
    ids=str,
)
def test_a_row_that_cannot_be_used_names_its_line_column_value_and_reason(
    change: dict[str, str], why: str
) -> None:
    outcome = read_rows(change)
    assert not outcome.allocations
    assert outcome.why.startswith(f"line 2: {why}")


@pytest.mark.parametrize(
    ("change", "doubts"),
    [
        ({}, ()),
        ({"State": "CANCELLED by 7"}, ()),
        ({"State": "TIMEOUT"}, ()),
        ({"State": "RUNNING", "End": "Unknown"}, (Doubt.STILL_RUNNING,)),
        (
            {"State": "RUNNING", "End": "Unknown", "ElapsedRaw": "86400"},
            (Doubt.STILL_RUNNING, Doubt.PAST_TIME_LIMIT),
        ),
        (
            {"State": "RUNNING", "End": "Unknown", "TimelimitRaw": "UNLIMITED"},
            (Doubt.STILL_RUNNING,),
        ),
        ({"State": "RUNNING"}, (Doubt.STATE,)),
        ({"State": "PENDING", "End": "Unknown"}, (Doubt.STATE, Doubt.STILL_RUNNING)),
        ({"State": "HIBERNATED"}, (Doubt.UNKNOWN_STATE,)),
        ({"State": "REQUEUED"}, (Doubt.REQUEUE,)),
        ({"ElapsedRaw": "3500"}, (Doubt.ELAPSED,)),
        ({"ElapsedRaw": "3500", "Suspended": "00:01:40"}, ()),
    ],
    ids=str,
)
def test_what_is_not_certain_is_used_and_counted_apart(
    change: dict[str, str], doubts: tuple[Doubt, ...]
) -> None:
    outcome = read_rows(change)
    assert outcome.only.doubts == doubts
    found = [(doubt, seen.first) for doubt, seen in outcome.report.doubts.items()]
    assert found == [(doubt, [2]) for doubt in doubts]


def test_a_suspension_is_left_out_of_the_elapsed_time() -> None:
    only = read_rows({"ElapsedRaw": "3000", "Suspended": "00:10:00"}).only
    assert (only.elapsed_s, only.suspended_s, only.doubts) == (3_000.0, 600.0, ())
    # A log that does not tell suspensions does not doubt a short elapsed time.
    header, row = HEADER + b"|Elapsed\n", ROW.replace(b"Unknown", b"2025-09-12T15:10:00")
    only = read_log(header + row + b"|00:50:00\n").only
    assert (only.elapsed_s, only.suspended_s, only.doubts) == (3_000.0, None, ())


def test_the_least_a_log_must_have_is_enough() -> None:
    row = (
        b"1_2|COMPLETED|2025-09-12T14:00:00|2025-09-12T14:10:00|2025-09-12T15:10:00|"
        b"cpu=4,gres/gpu=2,mem=8G,node=1\n"
    )
    only = read_log(HEADER + b"\n" + row).only
    assert (only.job_id, only.job_id_raw) == ("1_2", "1_2")
    assert only.elapsed_s == 3_600.0
    assert (only.gpus, only.gpu_count, only.nodes, only.n_nodes) == (((None, 2),), 2, (), 1)
    assert (only.cpus, only.memory_mb, only.restarts, only.time_limit_s) == (4, 8_192.0, None, None)


def test_old_columns_do_where_there_are_no_new_ones() -> None:
    row = (
        "1|COMPLETED|2016-09-12T14:00:00|2016-09-12T14:10:00|2016-09-12T15:10:00|02:00:00|2|16|"
        "1000Mc|k[1-2]|gpu:4|\n"
    )
    header = "JobID|State|Submit|Start|End|Timelimit|NNodes|NCPUS|ReqMem|NodeList|AllocGRES|\n"
    outcome = read_log((header + row + row.replace("gpu:4", "gpu:0")).encode())
    assert outcome.report.no_gpu == 1
    only = outcome.only
    assert (only.gpus, only.nodes, only.cpus) == (((None, 4),), ("k1", "k2"), 16)
    assert (only.memory_mb, only.time_limit_s) == (16_000.0, 7_200.0)


@pytest.mark.parametrize("word", ["UNLIMITED", "Partition_Limit", "", "4294967295"])
def test_a_job_without_time_limit_has_none(word: str) -> None:
    assert read_rows({"TimelimitRaw": word}).only.time_limit_s is None


def test_arrays_and_heterogeneous_jobs_keep_both_ids() -> None:
    outcome = read_rows({"JobID": "83_3", "JobIDRaw": "83"}, {"JobID": "86+1", "JobIDRaw": "87"})
    ids = [(one.job_id, one.job_id_raw) for one in outcome.allocations]
    assert ids == [("83_3", "83"), ("86+1", "87")]


def test_a_clock_change_is_settled_by_the_elapsed_time() -> None:
    row = {
        "Submit": "2025-10-25T12:00:00",
        "Eligible": "2025-10-25T12:00:00",
        "Start": "2025-10-26T01:30:00",
        "End": "2025-10-26T02:30:00",
    }
    for elapsed in ("3600", "7200"):
        only = read_rows(row | {"ElapsedRaw": elapsed}, options=OSLO).only
        assert only.end_s is not None
        assert only.end_s - only.start_s == float(elapsed)
        assert not only.doubts
    neither = read_rows(row | {"ElapsedRaw": "60"}, options=OSLO).only
    assert neither.doubts == (Doubt.CLOCK_CHANGE, Doubt.ELAPSED)


@pytest.mark.parametrize(
    ("suspended", "paused_s"), [("", 0.0), ("00:01:40", 100.0)], ids=["unknown", "paused"]
)
def test_an_end_far_later_than_elapsed_tells_is_in_doubt_and_elapsed_is_used(
    suspended: str, paused_s: float
) -> None:
    change = {"End": "9998-12-31T00:00:00", "ElapsedRaw": "33", "Suspended": suspended}
    only = read_rows(change).only
    assert only.doubts == (Doubt.ELAPSED,)
    assert only.end_s == only.start_s + 33.0 + paused_s


# Names --------------------------------------------------------------------------------------------


def test_a_delimiter_is_put_back_where_only_one_column_can_hold_it() -> None:
    header = b"JobID|JobName|State|Submit|Start|End|AllocTRES|Comment\n"
    row = b"1|%s|COMPLETED|2025-09-12T14:00:00|2025-09-12T14:10:00|Unknown|gres/gpu=1|%s\n"
    outcome = read_log(header + row % (b"a|b", b"c") + row % (b"a", b"b|c") + row % (b"|", b"|"))
    assert [one.name for one in outcome.allocations] == ["a|b", "a", "|"]


def test_a_delimiter_that_two_columns_can_hold_is_not_guessed() -> None:
    why = with_columns(b"|JobName|Comment", b"|a|b|c").why
    assert why.startswith("line 2: wrong number of fields: 9 fields for 8 columns")
    assert "--delimiter" in why
    assert "7 fields for 6 columns" in with_columns(b"", b"|x").why
    # In columns that are not read it does not matter.
    assert with_columns(b"|SubmitLine|WorkDir", b"|a|b|c").only.job_id == "1"


def test_the_pieces_of_a_row_with_a_line_break_in_it_are_refused() -> None:
    outcome = read_rows({"User": "a\nb"}, {})
    assert [one.line for one in outcome.allocations] == [4]
    assert [unusable.line for unusable in outcome.unusable] == [2, 3]
    assert "line break" in str(outcome.unusable[0])


def test_names_are_utf_8_and_other_bytes_stay_visible() -> None:
    names = [b"|" + "Bodø".encode(encoding) for encoding in ("utf-8", "latin-1")]
    outcome = with_columns(b"|JobName", *names)
    assert [one.name for one in outcome.allocations] == ["Bodø", r"Bod\xf8"]


# Files --------------------------------------------------------------------------------------------


def test_windows_line_ends_blank_lines_and_a_byte_order_mark_do_not_matter() -> None:
    header = b"\xef\xbb\xbfJobID|JobName|Submit|Start|End|AllocTRES|State\r\n"
    row = b"1|a|2025-09-12T14:00:00|2025-09-12T14:10:00|2025-09-12T15:10:00|gres/gpu=1|FAILED\r\n"
    outcome = read_log(header + b"\r\n  \r\n" + row + b"\n" + row)
    assert [one.state for one in outcome.allocations] == [LoggedState.FAILED] * 2
    assert [one.line for one in outcome.allocations] == [4, 6]
    assert outcome.report.blank == 3


def test_a_last_line_without_line_break_may_be_cut_off() -> None:
    header, row = HEADER + b"\n", ROW + b"6"
    assert read_log(header + row + b"\n").only.doubts == (Doubt.STATE, Doubt.STILL_RUNNING)
    assert read_log(header + row[:-1]).only.doubts[0] is Doubt.LAST_LINE
    cut = read_log(header + row + b"\n" + row[:40])
    assert cut.why == "line 3: cut off at the end of the file: 4 fields for 6 columns"
    # One that its delimiter ends is complete.
    trailing = read_log(HEADER + b"|\n" + row + b"|")
    assert trailing.only.doubts == (Doubt.STATE, Doubt.STILL_RUNNING)


def test_a_line_without_end_is_refused_and_takes_no_memory() -> None:
    header, row = HEADER + b"\n", ROW + b"\n"
    outcome = read_log(header + row + b"x" * 5_000_000 + b"\n" + row + b"y" * 3_000_000)
    assert [str(unusable)[:26] for unusable in outcome.unusable] == [
        "line 3: line too long: it ",
        "line 5: line too long: it ",
    ]
    assert [one.line for one in outcome.allocations] == [2, 4]


def test_a_log_of_jobs_without_gpus_says_so() -> None:
    row = {"AllocTRES": "cpu=1", "ReqTRES": "cpu=1", "Partition": "long"}
    outcome = read_rows(row, options=SacctOptions(zone=parse_zone("UTC")))
    (warning,) = warnings_of([outcome.report])
    assert warning.startswith("only CPU jobs in the log: 1 job without GPU")
    assert "AccountingStorageTRES" in warning
    # A header alone is a log without jobs.
    report = read_rows().report
    assert (report.lines, report.headers, report.used) == (1, 1, 0)


@pytest.mark.parametrize("data", [b"", b"\n", b"\r\n\n  \n", b"\xef\xbb\xbf"])
def test_an_empty_log_is_an_error_that_says_how_to_export_one(data: bytes) -> None:
    with pytest.raises(InputError, match="the log is empty; export one with: sacct "):
        list(read_sacct(BytesIO(data)))


@pytest.mark.parametrize("delimiter", ["|", "$", "☃", "@@"])
def test_the_delimiter_may_be_any_character(delimiter: str) -> None:
    fields = parse_fields("JobID,State,Submit,Start,End,AllocTRES,JobName")
    row = [*ROW.decode().split("|"), "é"]
    options = SacctOptions(fields=fields, delimiter="@@" if delimiter == "@@" else None)
    for end in ("", delimiter):
        header, line = (f"{delimiter.join(cells)}{end}\n".encode() for cells in (fields, row))
        assert read_log(line, options).only.name == "é"
        assert read_log(header + line).only.name == "é"


def test_the_job_id_need_not_come_first_and_a_name_before_it_cannot_pass_for_it() -> None:
    log = (
        b"AllocTRES|JobName|JobID|State|Submit|Start|End\n"
        b"gres/gpu=1|a.b|1|FAILED|2025-09-12T14:00:00|2025-09-12T14:10:00|Unknown\n"
        b"gres/gpu=1|batch|1.batch|FAILED|2025-09-12T14:00:00|2025-09-12T14:10:00|Unknown\n"
        b"gres/gpu=1|a|b|1.0|FAILED|2025-09-12T14:00:00|2025-09-12T14:10:00|Unknown\n"
        b"gres/gpu=1|a|2.0|7|FAILED|2025-09-12T14:00:00|2025-09-12T14:10:00|Unknown\n"
    )
    outcome = read_log(log)
    assert [(one.job_id, one.name) for one in outcome.allocations] == [("1", "a.b"), ("7", "a|2.0")]
    assert outcome.report.steps == 2
