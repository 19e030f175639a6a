"""Run logs on disk are what their page says."""

import dataclasses
import json
import math
import re
from dataclasses import replace
from enum import Enum
from pathlib import Path

import pytest

from hetsched_core.records.runlog import (
    JobRecord,
    NodeRecord,
    PlanRecord,
    RunEnd,
    RunLog,
    RunLogHeader,
    RunRecord,
)
from hetsched_core.records.runlog_file import write_run_log
from hetsched_core.types import (
    Cluster,
    Configuration,
    EndState,
    Job,
    Node,
    NodeCondition,
    Purpose,
    RequirementSet,
    Trigger,
)

PAGE = (Path(__file__).parents[3] / "docs/formats/run-log.md").read_text()


def documented() -> RunLog:
    """The log that the page shows."""
    begin_s = 1_760_000_000.0
    cluster = Cluster((Node("n0", "a100", 4), Node("n1", "v100", 8)), "campus")
    header = RunLogHeader("las", {"queues": 2}, cluster, begin_s, 360.0, 10.0, 0.0, 1800.0, 0.0, 0)
    log = RunLog(header, closed_s=begin_s + 900.0, rounds=3, wall_s=0.02)
    log.plans.add(begin_s, frozenset({Trigger.ROUND, Trigger.ARRIVAL}), 0.0004, 1, 0)
    log.nodes.append(NodeRecord(begin_s + 100.0, "n1", NodeCondition.DOWN))
    where = Configuration.of({"n0": 4})
    end_s = begin_s + 900.0
    log.runs.append(
        RunRecord(
            *("17", 0, 0, Purpose.RUN, where, begin_s, end_s, 900.0, 90_000.0, RunEnd.COMPLETED)
        )
    )
    job = Job("17", begin_s, RequirementSet((2, 4)), "resnet50")
    log.jobs.append(JobRecord(job, end_s, EndState.COMPLETED, 90_000.0, 0.0, begin_s, 0, 0, 1350.0))
    return log


def test_a_run_log_is_written_as_the_page_shows(tmp_path: Path) -> None:
    log, path = documented(), tmp_path / "log.jsonl"
    shown = PAGE.partition("```json\n")[2].partition("```")[0].splitlines()
    write_run_log(log, path)
    # Kinds may alternate.
    assert sorted(path.read_text().splitlines()) == sorted(shown)
    log.header = replace(log.header, parameters={"lam": math.inf}, checkpoint_s=math.inf)
    write_run_log(log, path)
    header = json.loads(path.read_text().splitlines()[0])
    assert (header["parameters"], header["checkpoint_s"]) == ({"lam": "inf"}, None)


@pytest.mark.parametrize(
    ("heading", "keys"),
    [
        ("Header", ["schema", *(f.name for f in dataclasses.fields(RunLogHeader))]),
        ("`job`", [f.name for f in dataclasses.fields(JobRecord)]),
        ("`run`", [f.name for f in dataclasses.fields(RunRecord)]),
        ("`plan`", [f.name for f in dataclasses.fields(PlanRecord)]),
        ("`node`", [f.name for f in dataclasses.fields(NodeRecord)]),
        ("`closed`", ["closed_s", "rounds", "wall_s"]),
    ],
)
def test_the_page_lists_the_keys_of_every_record(heading: str, keys: list[str]) -> None:
    section = PAGE.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == keys
    if heading == "`job`":
        assert set(re.findall(r"`(\w+)`", section)) >= {f.name for f in dataclasses.fields(Job)}


@pytest.mark.parametrize("words", [RunEnd, EndState, Trigger, Purpose, NodeCondition])
def test_the_page_lists_every_word(words: type[Enum]) -> None:
    assert all(f"`{word.value}`" in PAGE for word in words)
