"""Logs of real clusters: every line is used, or counted with its reason."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct import (
    Allocation,
    Doubt,
    JobState,
    SacctOptions,
    link_runs,
    parse_fields,
    parse_zone,
    read_sacct,
)
from tests.hetsched_core.traces.worlds import FOX, HABROK, columns, read_log

PEREGRINE = (
    "JobID,JobName,User,Partition,NodeList,NNodes,NCPUs,NTasks,State,Submit,Start,End,Timelimit,"
    "Elapsed,TotalCPU,UserCPU,SystemCPU,ReqMem,..."
)


@pytest.fixture
def logs(data_dir: Path) -> Path:
    return data_dir / "sacct"


def test_fox_has_65_gpu_allocations_of_which_22_are_typed(logs: Path) -> None:
    data = (logs / "fox_sacct_P_noheader.txt").read_bytes()
    outcome = read_log(data, columns(FOX, "Europe/Oslo"))
    report = outcome.report
    assert (report.lines, report.used, report.steps) == (301, 65, 179)
    assert (report.no_gpu, report.never_started, report.unusable) == (22, 35, 0)
    assert not report.warnings
    typed = [one for one in outcome.allocations if one.gpus[0][0] is not None]
    assert len(typed) == 22
    types = {kind for one in outcome.allocations for kind, _ in one.gpus}
    assert types == {"a100", "a100_80", "a40", "l40s", "rtx30", None}
    states = Counter(one.state for one in outcome.allocations)
    assert states == {
        JobState.COMPLETED: 43,
        JobState.RUNNING: 18,
        JobState.TIMEOUT: 3,
        JobState.FAILED: 1,
    }
    assert {doubt.doubt: doubt.count for doubt in report.doubts} == {Doubt.STILL_RUNNING: 18}
    assert all(one.end_s is None for one in outcome.allocations if one.state is JobState.RUNNING)
    assert len(link_runs(outcome.allocations)) == 65


def test_fox_read_as_utc_warns(logs: Path) -> None:
    log = read_sacct(logs / "fox_sacct_P_noheader.txt", SacctOptions(fields=parse_fields(FOX)))
    assert len(list(log)) == 65
    assert "--tz" in log.report.warnings[0]


def test_fox_without_the_names_of_its_columns_asks_for_them(logs: Path) -> None:
    path = logs / "fox_sacct_P_noheader.txt"
    with pytest.raises(InputError, match=r"fox_sacct_P_noheader.txt: line 1 is '1879824\|.*fields"):
        list(read_sacct(path))


def test_the_older_log_of_fox_is_read_to_its_last_line(logs: Path) -> None:
    data = (logs / "fox2024_sacct_P_noheader.txt").read_bytes()
    report = read_log(data, columns(FOX, "Europe/Oslo")).report
    assert (report.lines, report.steps, report.no_gpu, report.used) == (96, 67, 13, 16)
    assert (report.unusable, report.doubts) == (0, ())


def test_habrok_is_read_with_its_delimiter_of_three_bytes(logs: Path) -> None:
    data = (logs / "habrok_sacct_snowman.txt").read_bytes()
    outcome = read_log(data, columns(HABROK, "Europe/Amsterdam"))
    report = outcome.report
    assert (report.lines, report.steps, report.unusable) == (242, 142, 0)
    assert (report.used, report.no_gpu, report.never_started) == (9, 81, 10)
    gpus = Counter(one.gpus for one in outcome.allocations)
    assert gpus == {
        (("v100", 1),): 4,
        (("a100", 1),): 2,
        (("a100", 2),): 2,
        (("a100", 4),): 1,
    }
    two_nodes = next(one for one in outcome.allocations if one.job_id == "7971484")
    assert two_nodes.nodes == ("a100gpu2", "a100gpu4")
    assert all(one.requested_gpus for one in outcome.allocations)


def test_a_log_without_any_column_of_gpus_says_which_is_missing(logs: Path) -> None:
    path = logs / "peregrine_sacct_snowman.txt"
    with pytest.raises(InputError, match="no column AllocTRES or AllocGRES among 28 columns"):
        list(read_sacct(path, columns(PEREGRINE, "Europe/Amsterdam")))


@pytest.mark.parametrize(
    "name", ["slurm_26.05/runaway.txt", "fox_node_output.txt", "habrok_scontrol_nodes.txt"]
)
def test_output_of_other_commands_is_refused(logs: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"line 1 is .*, not a header such as JobID\|User"):
        list(read_sacct(logs / name))


def test_all_columns_of_slurm_26_are_read(logs: Path) -> None:
    data = (logs / "slurm_26.05/sacct_D_a_P_ALL_by_id.txt").read_bytes()
    outcome = read_log(data, SacctOptions(zone=parse_zone("UTC")))
    report = outcome.report
    assert (report.lines, report.headers, report.steps, report.unusable) == (255, 1, 94, 0)
    assert (report.used, report.no_gpu, report.never_started) == (88, 2, 70)
    states = {one.state for one in outcome.allocations}
    assert {JobState.REQUEUED, JobState.RESIZING, JobState.NODE_FAIL, JobState.TIMEOUT} <= states
    assert JobState.UNKNOWN not in states
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
    def key(one: Allocation) -> tuple[str, float, int | None]:
        return one.job_id, one.start_s, one.restarts

    utc = SacctOptions(zone=parse_zone("UTC"))
    folder = logs / "slurm_26.05"
    long = {key(one): one for one in read_sacct(folder / "sacct_D_a_P_ALL_by_id.txt", utc)}
    short = {key(one): one for one in read_sacct(folder / "sacct_X_short.txt", utc)}
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
