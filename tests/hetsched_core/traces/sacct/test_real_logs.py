"""Logs of real clusters: every line is used, or counted with its reason."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct import (
    Doubt,
    LoggedAllocation,
    LoggedState,
    SacctOptions,
    link_runs,
    parse_zone,
    read_sacct,
    warnings_of,
)
from tests.hetsched_core.traces.worlds import FOX, columns, read_log

PEREGRINE = (
    "JobID,JobName,User,Partition,NodeList,NNodes,NCPUs,NTasks,State,Submit,Start,End,Timelimit,"
    "Elapsed,TotalCPU,UserCPU,SystemCPU,ReqMem,..."
)


UTC = SacctOptions(zone=parse_zone("UTC"))


@pytest.fixture
def logs(data_dir: Path) -> Path:
    return data_dir / "sacct"


def test_fox_has_65_gpu_allocations_of_which_22_are_typed(logs: Path) -> None:
    data = (logs / "fox_sacct_P_noheader.txt").read_bytes()
    outcome = read_log(data, columns(FOX, "Europe/Oslo"))
    report = outcome.report
    assert (report.lines, report.used, report.steps) == (301, 65, 179)
    assert (report.no_gpu, report.never_started, report.unusable) == (22, 35, 0)
    assert not warnings_of([report])
    typed = [one for one in outcome.allocations if one.gpus[0][0] is not None]
    assert len(typed) == 22
    types = {kind for one in outcome.allocations for kind, _ in one.gpus}
    assert types == {"a100", "a100_80", "a40", "l40s", "rtx30", None}
    states = Counter(str(one.state) for one in outcome.allocations)
    assert states == {"COMPLETED": 43, "RUNNING": 18, "TIMEOUT": 3, "FAILED": 1}
    assert {doubt: seen.count for doubt, seen in report.doubts.items()} == {Doubt.STILL_RUNNING: 18}
    assert all(one.end_s is None for one in outcome.allocations if one.state is LoggedState.RUNNING)
    assert len(link_runs(outcome.allocations)) == 65


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("fox_sacct_P_noheader.txt", None, r"noheader.txt: line 1 is '1879824\|.*fields"),
        (
            "peregrine_sacct_snowman.txt",
            columns(PEREGRINE, "Europe/Amsterdam"),
            "no column AllocTRES or AllocGRES among 28 columns",
        ),
        ("slurm_26.05/runaway.txt", None, r"line 1 is .*, not a header such as JobID\|User"),
        ("fox_node_output.txt", None, r"line 1 is .*, not a header such as JobID\|User"),
        ("habrok_scontrol_nodes.txt", None, r"line 1 is .*, not a header such as JobID\|User"),
    ],
)
def test_a_log_whose_columns_are_not_known_and_other_output_are_refused(
    logs: Path, name: str, options: SacctOptions | None, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        list(read_sacct(logs / name, options))


def test_all_columns_of_slurm_26_are_read(logs: Path) -> None:
    data = (logs / "slurm_26.05/sacct_D_a_P_ALL_by_id.txt").read_bytes()
    outcome = read_log(data, UTC)
    report = outcome.report
    assert (report.lines, report.headers, report.steps, report.unusable) == (255, 1, 94, 0)
    assert (report.used, report.no_gpu, report.never_started) == (88, 2, 70)
    states = {one.state for one in outcome.allocations}
    assert {
        LoggedState.REQUEUED,
        LoggedState.RESIZING,
        LoggedState.NODE_FAIL,
        LoggedState.TIMEOUT,
    } <= states
    assert LoggedState.UNKNOWN not in states
    suspended = next(one for one in outcome.allocations if one.job_id == "96")
    assert (suspended.elapsed_s, suspended.suspended_s, suspended.doubts) == (1.0, 6.0, ())
    both = next(one for one in outcome.allocations if one.job_id == "53")
    assert both.gpus == (("a100", 2), ("v100", 2))
    assert both.nodes == ("n3", "n4")


def test_runs_of_slurm_26_are_linked_and_ids_handed_out_again_are_not(logs: Path) -> None:
    path = logs / "slurm_26.05/sacct_D_a_P_ALL_by_id.txt"
    jobs = {(job.job_id, job.reuse): job for job in link_runs(read_sacct(path))}
    assert [run.restarts for run in jobs["3", 0].runs] == [0, 1, 2]
    assert [run.state for run in jobs["94", 0].runs] == ["REQUEUED", "REQUEUED", "CANCELLED"]
    assert [run.state for run in jobs["103", 0].runs] == ["RESIZING", "REQUEUED", "CANCELLED"]
    # The controller crashed while 66 ran, and started to count from an older id.
    (crashed,), (other,) = jobs["66", 0].runs, jobs["66", 1].runs
    assert (crashed.name, other.name) == ("jobh.sh", "ck.sh")
    assert Doubt.RUNAWAY in crashed.doubts
    assert ("58", 1) not in jobs
    assert not any(job.repeated for job in jobs.values())


def test_text_and_json_of_the_same_accounting_agree(logs: Path) -> None:
    def key(one: LoggedAllocation) -> tuple[str, float, int | None]:
        return one.job_id, one.start_s, one.restarts

    folder = logs / "slurm_26.05"
    long = {key(one): one for one in read_sacct(folder / "sacct_D_a_P_ALL_by_id.txt", UTC)}
    short = {key(one): one for one in read_sacct(folder / "sacct_X_short.txt", UTC)}
    records = {key(one): one for one in read_sacct(folder / "sacct.json.gz")}
    assert len(records) == 71
    assert records.keys() == short.keys()
    # The longer export is a later one.
    assert records.keys() < long.keys()
    for at in records:
        # JSON has who cancelled a job elsewhere; a job that ran went on running.
        if long[at].end_s is None or records[at].end_s is None:
            continue
        assert replace(records[at], line=0) == replace(long[at], line=0)
        assert records[at].gpus == short[at].gpus
        assert records[at].elapsed_s == short[at].elapsed_s
