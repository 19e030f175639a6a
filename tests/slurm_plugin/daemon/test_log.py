"""The daemon's log: one line for each decision and change, in either form."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from immutables import Map

from hetsched_core.runlog import PlanRecord
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
    Cancel,
    Change,
    Depend,
    Drop,
    Enter,
    Hold,
    Leave,
    Outcome,
    Recipients,
    Release,
    Requeue,
    RequeueEnded,
    Resources,
    Signal,
    Together,
)
from slurm_plugin.daemon import CycleReport
from slurm_plugin.daemon.configuration import LogForm
from slurm_plugin.daemon.log import open_log, tell

PLACE = Enter("4", "hetsched", ("n1", "n2"), Leave("4"), Resources(per_node="gres/gpu:2"))
LEAVE = Leave("5")
CHANGES = (Requeue("3"), PLACE, LEAVE)
DECISION = Decision(
    "hops",
    PlanRecord(100.0, frozenset({Trigger.END, Trigger.ARRIVAL}), 0.0123, 1, 3),
    Diagnostics(method="classes", gap=0.001),
)
PLAN = Plan(
    Map(
        {
            "7": Waiting(Reason(ReasonCode.NO_ROOM)),
            "8": Waiting(Reason(ReasonCode.HELD)),
            "9": Waiting(Reason(ReasonCode.NO_ROOM)),
        }
    )
)


def lines(report: CycleReport) -> list[dict[str, object]]:
    stream = io.StringIO()
    tell(open_log(LogForm.JSON, stream), report, PLAN, 12)
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
    (line,) = lines(CycleReport(outcome=Outcome((), ((Requeue("3"), words),), ())))
    assert (line["event"], line["level"], line["words"]) == ("refused", level, words)


def test_a_decision_is_a_line_with_its_reasons() -> None:
    (line,) = lines(CycleReport(DECISION, outcome=Outcome((), (), ())))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", str(line.pop("time")))
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


def test_every_change_to_a_job_is_on_record() -> None:
    made: tuple[Change, ...] = (
        Signal("1", "USR1", Recipients.SCRIPT),
        Requeue("2"),
        RequeueEnded("11_1"),
        LEAVE,
        Depend("7", ""),
        Release("8"),
        PLACE,
        Cancel("10"),
        Hold("hetsched", ("n0",), 60),
        Drop("hetsched-2"),
    )
    # A kind of change that is added later needs a line, too.
    assert {type(change) for change in made} == {*get_args(Change)} - {Together}
    found = lines(CycleReport(None, (), made, Outcome(made, (), ())))
    named = {(line["event"], line.get("job", line.get("reservation"))) for line in found}
    assert named == {
        ("signal", "1"),
        ("requeue", "2"),
        ("requeue", "11_1"),
        ("leave", "5"),
        ("depend", "7"),
        ("release", "8"),
        ("place", "4"),
        ("cancel", "10"),
        ("hold", "hetsched"),
        ("drop", "hetsched-2"),
    }


def test_changes_that_were_made_or_refused_are_lines() -> None:
    outcome = Outcome(CHANGES, ((PLACE, "Requested node\n is busy"),), ())
    found = lines(CycleReport(None, (), CHANGES, outcome))
    assert [line["event"] for line in found] == ["requeue", "place", "leave", "refused"]
    said = (found[1]["nodes"], found[1]["gpus_per_node"], found[1]["decision"])
    assert said == ("n1,n2", "gres/gpu:2", 12)
    assert (found[3]["change"], found[3]["words"]) == ("enter", "Requested node is busy")


def test_what_is_wrong_and_signals_are_lines() -> None:
    signal = Signal("3", "USR1", Recipients.SCRIPT)
    outcome = Outcome((signal,), (), ())
    beware, sent = lines(CycleReport(None, (), (signal,), outcome, warnings=("job=4: no mark",)))
    assert (beware["event"], beware["level"], beware["words"]) == (
        *("beware", "warning"),
        "job=4: no mark",
    )
    assert (sent["event"], sent["signal"], sent["to"]) == ("signal", "USR1", "script")


def test_shadow_says_once_what_it_would_do() -> None:
    assert [line["event"] for line in lines(CycleReport(DECISION, (), CHANGES))] == [
        "decision",
        "would_requeue",
        "would_place",
        "would_leave",
    ]
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


def test_a_job_that_is_measured_does_not_wait() -> None:
    stream = io.StringIO()
    profiles = (ProfilePlacement("8", Placement(Configuration.of({"n1": 1}))),)
    plan = replace(PLAN, profiles=profiles)
    report = CycleReport(DECISION, outcome=Outcome((), (), ()))
    tell(open_log(LogForm.JSON, stream), report, plan, 12)
    line = json.loads(stream.getvalue())
    assert (line["measured"], line["waiting"], line["because"]) == (1, 2, "2 no_room")


def test_the_page_has_every_event_of_the_log() -> None:
    root = Path(__file__).parents[3]
    _, _, table = (root / "docs/live/configuration.md").read_text().partition("| event | when |")
    rows = re.findall(r"^\| (`.*?`) \| ", table, re.MULTILINE)
    told = {event for row in rows for event in re.findall(r"`(\w+)`", row)}
    written = {
        event
        for name in ("log.py", "process.py")
        for event in re.findall(
            r'\blog\.[a-z]+\(\s*f?"(?:{prefix})?(\w+)"',
            (root / "slurm_plugin/daemon" / name).read_text(),
        )
    }
    assert {"up", "place", "leave"} <= written
    assert told == written
