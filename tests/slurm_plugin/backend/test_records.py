"""One record of Slurm's that cannot be read costs no other: what a testbed's Slurm printed, bent.

`recorded.json` holds what Slurm 26.05 printed of three nodes, one of them drained, and of a job of
ours that waits, a running job, an array with an element that runs, and a job that has ended; of
each record the fields that are read.
"""

from __future__ import annotations

import json
import math
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import BackendError, Enter, JobState, SlurmNode
from slurm_plugin.backend.records import state_of
from slurm_plugin.backend.with_commands import read_state
from tests.slurm_plugin.backend.fake import PENDING, FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import Clock, daemon_of

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())
OURS, ROOM = "1", "n1"


def read(document: dict[str, Any]) -> Any:
    return read_state(document["nodes"]["nodes"], document["jobs"]["jobs"], {})


def test_all_records_of_a_real_slurm_are_read() -> None:
    state = read(RECORDED)
    assert state.unread == {}
    assert [node.condition for node in state.nodes][2] is NodeCondition.DRAINED
    states = {job.id: job.state for job in state.jobs.values()}
    assert states == {
        "1": JobState.PENDING,
        "2": JobState.RUNNING,
        "3_0": JobState.RUNNING,
        "3": JobState.PENDING,
        "4": JobState.ENDED,
    }


def test_an_element_that_waits_is_not_taken_for_what_is_left_of_its_array() -> None:
    bent = deepcopy(RECORDED)
    jobs = bent["jobs"]["jobs"]
    (rest,) = (job for job in jobs if job["job_id"] == 3)
    nothing = {"set": False, "infinite": False, "number": 0}
    waits = rest | {"job_id": 9, "array_task_id": nothing | {"set": True}, "array_task_string": ""}
    gone = rest | {"job_state": ["CANCELLED"], "array_task_id": nothing, "array_task_string": ""}
    for order in ([waits, gone], [gone, waits]):
        bent["jobs"]["jobs"] = order
        assert read(bent).jobs["3_0"].state is JobState.PENDING


def test_a_record_that_cannot_be_read_is_left_out_and_named() -> None:
    bent = deepcopy(RECORDED)
    del bent["jobs"]["jobs"][1]["job_state"]
    bent["nodes"]["nodes"][0] = None
    state = read(bent)
    assert {node.name for node in state.nodes} == {"n1", "n2"}
    assert "2" not in state.jobs
    assert "1" in state.jobs
    assert sorted(state.unread) == ["job 2", "node None"]
    assert "job_state" in state.unread["job 2"]


def test_a_slurm_of_which_nothing_can_be_read_is_said_to_be_another_one() -> None:
    bent = deepcopy(RECORDED)
    for job in bent["jobs"]["jobs"]:
        del job["job_state"]
    with pytest.raises(BackendError, match="no job of Slurm's can be read, such as job"):
        read(bent)


def test_records_of_pyslurm_that_raise_are_left_out_in_the_same_way() -> None:
    fine = SlurmNode("n0", NodeCondition.UP, (), (), 1, 0, 1, 0)
    rows: dict[int, Any] = {1: SimpleNamespace(job=PENDING), 2: SimpleNamespace()}
    state = state_of([("n0", fine)], lambda node: node, rows.items(), lambda row: row.job)
    assert (state.nodes, list(state.jobs)) == ((fine,), ["1"])
    assert "AttributeError" in state.unread["job 2"]


@pytest.mark.parametrize(
    ("words", "over"),
    [
        (["CANCELLED", "COMPLETING"], True),
        (["COMPLETED", "COMPLETING"], True),
        (["PENDING", "COMPLETING"], False),
        (["FAILED", "COMPLETING", "REQUEUED"], False),
        (["COMPLETING"], False),
    ],
)
def test_what_is_completing_is_over_if_it_has_ended_and_is_not_queued_again(
    words: list[str], over: bool
) -> None:
    bent = deepcopy(RECORDED)
    bent["jobs"]["jobs"][1]["job_state"] = words
    job = read(bent).jobs["2"]
    assert (job.state, job.over) == (JobState.COMPLETING, over)
    assert job.end_s == bent["jobs"]["jobs"][1]["end_time"]["number"]


NUMBERS = [0, -1, 10**15, math.nan, math.inf, 0.5]
ODD: list[Any] = [
    *(*NUMBERS, None, "", "x", [], {}, ["RUNNING", "COMPLETING"], ["NO SUCH WORD"], "gpu:v100:x"),
    *({"set": True, "infinite": False, "number": number} for number in NUMBERS),
    *({"set": True, "infinite": True}, "n[0-99999", "n[0-2]", "gone", "hetsched/1 {", "1-3%1"),
]
RECORDS = [
    (kind, at)
    for kind, name, spared in (("jobs", "job_id", OURS), ("nodes", "name", ROOM))
    for at, row in enumerate(RECORDED[kind][kind])
    if str(row[name]) != spared
]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_however_a_record_is_bent_the_job_that_waits_is_placed(data: st.DataObject) -> None:
    bent = deepcopy(RECORDED)
    for kind, at in data.draw(st.lists(st.sampled_from(RECORDS), min_size=1, max_size=4)):
        row = bent[kind][kind][at]
        for key in data.draw(st.lists(st.sampled_from(sorted(row) or ["name"]), max_size=4)):
            row[key] = data.draw(st.sampled_from(ODD))
    clock = Clock(RECORDED["jobs"]["jobs"][0]["submit_time"]["number"] + 5.0)
    report = daemon_of(FakeBackend(read(bent)), clock).cycle()
    assert (report.away, report.violations) == ("", ())
    assert OURS in {change.job for change in report.changes if isinstance(change, Enter)}


def test_gpus_that_other_jobs_use_in_shares_are_in_use() -> None:
    bent = deepcopy(RECORDED)
    row = bent["nodes"]["nodes"][0]
    row["gres_used"] = "gpu:v100:1(IDX:2),shard:v100:6(4/4,2/4,-/4,0/4)"
    assert read(bent).nodes[0].gpus_used == (("v100", 3),)
