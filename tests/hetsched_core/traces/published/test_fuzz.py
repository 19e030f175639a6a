"""Nothing in a published trace can do more than give runs, refusals and InputError."""

import json
from io import BytesIO

from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.traces.published import PublishedLog, read_published
from hetsched_core.traces.published.csv_logs import FORMS
from hetsched_core.traces.published.pai import JOB_COLUMNS, TASK_COLUMNS
from hetsched_core.traces.sacct import link_runs
from tests.hetsched_core.traces.published import test_csv_logs, test_pai, test_philly
from tests.hetsched_core.traces.published.worlds import UTC

WORDS = "0,1,8,1000,450,-1,nan,1e400,Failed,Running,COMPLETED,Pass,T4|P100,j1,,2020-06-09 10:00:00"
CELLS = st.sampled_from([*WORDS.split(","), "0001-01-01 00:00:00"]) | st.text(max_size=6)
PHILLY = json.dumps(
    [
        test_philly.job(test_philly.attempt("09:10", None, m1=8)),
        test_philly.job(test_philly.attempt("09:10", "10:00", m1=8, m2=2)),
    ]
)
SOUND = [
    PHILLY,
    test_csv_logs.HELIOS + test_csv_logs.HELIOS_ROW,
    test_csv_logs.SEREN + test_csv_logs.SEREN_ROW,
    test_csv_logs.OPENB + test_csv_logs.OPENB_ROW,
    test_pai.TASKS,
    test_pai.JOBS,
]


TASKS = test_pai.TASKS.encode()


def check(text: str) -> None:
    """Read a text; what is refused as a whole names the file."""
    lines: list[str] = []
    try:
        files = [("file", BytesIO(data)) for data in (text.encode("utf-8", "surrogatepass"), TASKS)]
        log, _ = read_published(files, UTC, lines.append)
    except InputError as error:
        refused = str(error)
    else:
        refused = "file"
        check_log(log)
    assert refused.startswith("file")
    assert all("\n" not in line for line in lines)


def check_log(log: PublishedLog) -> None:
    """Fail where a line is in no class, or a run makes no sense."""
    report = log.report
    held = (report.headers, report.blank, report.steps, report.never_started, report.no_gpu)
    assert sum(held) + report.used + report.unusable == report.lines
    for run in log.runs:
        assert run.job_id
        assert 0 <= run.submit_s <= run.start_s <= (run.start_s if run.end_s is None else run.end_s)
        assert all(count > 0 for _, count in run.gpus)
        assert run.elapsed_s is None or run.elapsed_s >= 0
    jobs = link_runs(log.runs)
    assert sum(len(job.runs) + len(job.repeated) for job in jobs) == len(log.runs)


@given(st.sampled_from(SOUND), st.integers(0, 900), st.integers(0, 60), st.text(max_size=12))
def test_a_damaged_trace_gives_runs_refusals_or_an_input_error(
    text: str, at: int, lost: int, put: str
) -> None:
    at %= len(text)
    check(text[:at] + put + text[at + lost :])


@given(
    st.sampled_from([*(sorted(form.columns) for form in FORMS), TASK_COLUMNS, JOB_COLUMNS]),
    st.lists(st.lists(CELLS, min_size=12, max_size=12), max_size=4),
)
def test_any_values_in_a_row_give_a_run_that_makes_sense_or_a_refusal(
    columns: list[str], rows: list[list[str]]
) -> None:
    check("\n".join([",".join(columns), *(",".join(row[: len(columns)]) for row in rows)]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**65) | CELLS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["ip", "gpus", "detail", "start_time"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@given(st.sampled_from(["status", "jobid", "attempts", "submitted_time", "vc", "user"]), JSON)
def test_any_value_in_a_record_gives_a_run_or_a_refusal(key: str, value: object) -> None:
    whole = test_philly.job(test_philly.attempt("09:10", None, m1=8))
    check(json.dumps([whole, {**whole, key: value}, whole]))
