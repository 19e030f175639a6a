"""The daemon's log: one line for each decision and change, in either form."""

import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, get_args

import pytest
from immutables import Map

from hetsched_core.records.runlog import PlanRecord
from hetsched_core.store import Decision
from hetsched_core.types import (
    Configuration,
    Diagnostics,
    Placement,
    Plan,
    ProfilePlacement,
    Reason,
    ReasonCode,
    Trigger,
    Waiting,
)
from slurm_plugin.backend import (
    ApplyResult,
    Cancel,
    Change,
    Depend,
    Drop,
    Enter,
    Hold,
    Leave,
    Recipients,
    Release,
    Requeue,
    RequeueEnded,
    Resources,
    Signal,
    Together,
)
from slurm_plugin.daemon import CycleReport
from slurm_plugin.daemon.process.configuration import LogForm
from slurm_plugin.daemon.process.log import open_log, tell

PLACE = Enter("4", "hetsched", ("n1", "n2"), Leave("4"), Resources(per_node="gres/gpu:2"))
CHANGES = (Requeue("3"), PLACE, Leave("5"))
DECISION = Decision(
    "hops",
    PlanRecord(100.0, frozenset({Trigger.END, Trigger.ARRIVAL}), 0.0123, 1, 3),
    Diagnostics(method="classes", gap=0.001),
)
NO_ROOM = Waiting(Reason(ReasonCode.NO_ROOM))
PLAN = Plan(Map({"7": NO_ROOM, "8": Waiting(Reason(ReasonCode.HELD)), "9": NO_ROOM}))


def lines(report: CycleReport, plan: Plan = PLAN) -> list[dict[str, Any]]:
    stream = io.StringIO()
    tell(open_log(LogForm.JSON, stream), report, plan, 12)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("scontrol requeue 3: Job/step already completing or completed", "debug"),
        ("scontrol update JobId=3: Invalid job id specified", "debug"),
        ("Requeue(job='3'): Job has already finished (2084)", "debug"),
        ("scontrol update JobId=3: Invalid node name specified", "warning"),
    ],
)
def test_that_slurm_changes_no_job_that_has_just_ended_is_no_fault(words: str, level: str) -> None:
    (line,) = lines(CycleReport(outcome=ApplyResult((), ((Requeue("3"), words),), ())))
    assert (line["event"], line["level"], line["words"]) == ("refused", level, words)


def test_a_decision_is_a_line_with_its_reasons_and_a_job_that_is_measured_does_not_wait() -> None:
    report = CycleReport(DECISION, outcome=ApplyResult((), (), ()))
    (line,) = lines(report)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", line.pop("time"))
    assert line == {
        "level": "info",
        "event": "decision",
        "number": 12,
        "policy": "hops",
        "triggers": "arrival,end",
        "placed": 1,
        "waiting": 3,
        "because": "2 no_room, 1 held",
        "took_ms": 12.3,
        "method": "classes",
        "gap": 0.001,
    }
    profiles = (ProfilePlacement("8", Placement(Configuration.of({"n1": 1}))),)
    (line,) = lines(report, replace(PLAN, profiles=profiles))
    assert (line["measured"], line["waiting"], line["because"]) == (1, 2, "2 no_room")


def test_every_change_to_a_job_is_on_record() -> None:
    named: dict[Change, tuple[str, str]] = {
        Signal("1", "USR1", Recipients.SCRIPT): ("signal", "1"),
        Requeue("2"): ("requeue", "2"),
        RequeueEnded("11_1"): ("requeue", "11_1"),
        Leave("5"): ("leave", "5"),
        Depend("7", ""): ("depend", "7"),
        Release("8"): ("release", "8"),
        PLACE: ("place", "4"),
        Cancel("10"): ("cancel", "10"),
        Hold("hetsched", ("n0",), 60): ("hold", "hetsched"),
        Drop("hetsched-2"): ("drop", "hetsched-2"),
    }
    # A kind of change that is added later needs a line, too.
    assert {type(change) for change in named} == {*get_args(Change)} - {Together}
    made = tuple(named)
    found = lines(CycleReport(None, (), made, ApplyResult(made, (), ())))
    assert [(line["event"], line.get("job", line.get("reservation"))) for line in found] == [
        *named.values()
    ]
    assert (found[0]["signal"], found[0]["to"]) == ("USR1", "script")


def test_changes_that_were_made_or_refused_and_what_is_wrong_are_lines() -> None:
    outcome = ApplyResult(CHANGES, ((PLACE, "Requested node\n is busy"),), ())
    found = lines(CycleReport(None, (), CHANGES, outcome, warnings=("job=4: no mark",)))
    assert [line["event"] for line in found] == ["beware", "requeue", "place", "leave", "refused"]
    assert (found[0]["level"], found[0]["words"]) == ("warning", "job=4: no mark")
    said = (found[2]["nodes"], found[2]["gpus_per_node"], found[2]["decision"])
    assert said == ("n1,n2", "gres/gpu:2", 12)
    assert (found[4]["change"], found[4]["words"]) == ("enter", "Requested node is busy")


def test_shadow_says_once_what_it_would_do() -> None:
    would = ["decision", "would_requeue", "would_place", "would_leave"]
    assert [line["event"] for line in lines(CycleReport(DECISION, (), CHANGES))] == would
    assert lines(CycleReport(None, (), CHANGES)) == []


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("two words", 'words="two words"'),
        ("a\nb=c", 'words="a b=c"'),
        ('say "x"', r'words="say \"x\""'),
        ("red\x1b[31m\udcff", "words=red?[31m?"),
    ],
)
def test_logfmt_is_one_line_that_opens_with_time_level_and_event(words: str, written: str) -> None:
    stream = io.StringIO()
    open_log(LogForm.LOGFMT, stream).warning("away", words=words, job="3")
    line = stream.getvalue()
    assert re.fullmatch(rf"time=\S+Z level=warning event=away job=3 {re.escape(written)}\n", line)


def test_the_page_has_every_event_of_the_log() -> None:
    root = Path(__file__).parents[4]
    _, _, table = (root / "docs/live/configuration.md").read_text().partition("| event | when |")
    rows = re.findall(r"^\| (`.*?`) \| ", table, re.MULTILINE)
    told = {event for row in rows for event in re.findall(r"`(\w+)`", row)}
    written = {
        event
        for name in ("log.py", "run.py")
        for event in re.findall(
            r'\blog\.[a-z]+\(\s*f?"(?:{prefix})?(\w+)"',
            (root / "slurm_plugin/daemon/process" / name).read_text(),
        )
    }
    assert {"up", "place", "leave"} <= written
    assert told == written


@pytest.mark.parametrize("buffering", [1, -1])
def test_what_its_disk_has_no_room_for_is_lost_and_ends_no_daemon(
    tmp_path: Path, buffering: int
) -> None:
    with (tmp_path / "log").open("w", buffering) as stream:
        log = open_log(LogForm.JSON, stream)
        log.info("before")
        # From here on the same stream has no room.
        mine = os.dup(stream.fileno())
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, stream.fileno())
        for _ in range(1000):
            log.info("lost", words="x" * 100)
        os.dup2(mine, stream.fileno())
        log.info("after")
        os.close(mine)
        os.close(full)
    told = (tmp_path / "log").read_text().splitlines()
    assert len(told) < 200
    assert [json.loads(line)["event"] for line in (told[0], told[-1])] == ["before", "after"]


def test_a_reader_that_stands_stops_no_daemon() -> None:
    ours, its = os.pipe()
    with os.fdopen(ours) as reader, os.fdopen(its, "w") as stream:
        log = open_log(LogForm.JSON, stream)

        def fill() -> None:
            for number in range(2000):
                log.info("filling", number=number, words="x" * 200)

        filling = Thread(target=fill, daemon=True)
        filling.start()
        filling.join(60)
        stands = filling.is_alive()
        os.set_blocking(ours, False)
        told = reader.read()
        assert not stands
        log.info("after")
        told += reader.read()
    *lines, last = (json.loads(line) for line in told.splitlines() if line.endswith("}"))
    # What there was room for is there, from the first line on.
    assert len(lines) > 5
    assert [line["number"] for line in lines] == list(range(len(lines)))
    assert last["event"] == "after"
