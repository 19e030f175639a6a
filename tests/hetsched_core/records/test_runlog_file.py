"""Run logs on disk: what is written is read back, and what is broken is named."""

import contextlib
import dataclasses
import io
import json
import math
import random
import re
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.records.runlog import (
    JobRecord,
    NodeRecord,
    PlanRecord,
    PlanRecords,
    RunEnd,
    RunLog,
    RunLogHeader,
    RunRecord,
)
from hetsched_core.records.runlog_file import (
    Closing,
    ReadRunLog,
    RunLogWriter,
    read_run_log,
    write_run_log,
)
from hetsched_core.types import (
    Cluster,
    Configuration,
    EndState,
    Job,
    LearningRate,
    LearningRateScaling,
    Node,
    NodeCondition,
    Purpose,
    RequirementSet,
    TaskShape,
    Trigger,
)

NUMBERS = st.floats(-1e300, 1e300)
AMOUNTS = st.floats(0, 1e300)
COUNTS = st.integers(0, 2**40)
ROUNDS = st.integers(1, 2**40)
TEXTS = st.text(max_size=6)
RATES = st.floats(1e-9, 1e9)

nodes = st.builds(Node, TEXTS, TEXTS, st.integers(1, 16), COUNTS, COUNTS, TEXTS, TEXTS)
clusters = st.builds(
    Cluster,
    st.lists(nodes, min_size=1, max_size=4, unique_by=lambda node: node.name).map(tuple),
    TEXTS,
)
requirements = st.lists(st.integers(1, 99), min_size=1, max_size=5, unique=True).map(
    lambda counts: RequirementSet(tuple(sorted(counts)))
)
learning_rates = st.one_of(
    st.builds(
        LearningRate,
        st.tuples(st.tuples(st.integers(1, 8), RATES)),
        st.sampled_from(LearningRateScaling),
    ),
    st.builds(LearningRate, st.lists(st.tuples(st.integers(1, 8), RATES), min_size=2).map(tuple)),
)
jobs = st.builds(
    Job,
    id=TEXTS,
    submit_s=NUMBERS,
    requirements=requirements,
    profile=TEXTS,
    total_samples=st.none() | AMOUNTS,
    time_limit_s=st.none() | AMOUNTS,
    eligible_s=st.none() | NUMBERS,
    gpu_types=st.none() | st.frozensets(TEXTS),
    cpus_per_gpu=AMOUNTS,
    memory_mb_per_gpu=AMOUNTS,
    name=TEXTS,
    user=TEXTS,
    account=TEXTS,
    partition=TEXTS,
    weight=AMOUNTS,
    preemptible=st.booleans(),
    asked_count=st.none() | COUNTS,
    learning_rate=st.none() | learning_rates,
    tasks=st.none() | st.builds(TaskShape, ROUNDS, st.none() | ROUNDS, TEXTS),
    assumed=st.frozensets(TEXTS),
)
job_records = st.builds(
    JobRecord,
    *(jobs, st.none() | NUMBERS, st.sampled_from(EndState), AMOUNTS, AMOUNTS),
    *(st.none() | NUMBERS, COUNTS, COUNTS, st.none() | AMOUNTS),
)
plan_records = st.builds(
    PlanRecord, NUMBERS, st.frozensets(st.sampled_from(Trigger)), AMOUNTS, COUNTS, COUNTS
)
parameters = st.dictionaries(
    TEXTS, st.none() | st.booleans() | NUMBERS | COUNTS | TEXTS | st.lists(NUMBERS), max_size=3
)


@st.composite
def run_logs(draw: st.DrawFn) -> RunLog:
    cluster = draw(clusters)
    names = st.sampled_from([node.name for node in cluster])
    configurations = st.dictionaries(names, st.integers(1, 16), min_size=1).map(Configuration.of)
    spans = st.tuples(NUMBERS, NUMBERS).map(sorted)
    header = draw(
        st.builds(
            RunLogHeader,
            *(TEXTS, parameters, st.just(cluster), NUMBERS, st.floats(1e-3, 1e6), AMOUNTS, AMOUNTS),
            *(AMOUNTS | st.just(math.inf), AMOUNTS, COUNTS, st.lists(TEXTS).map(tuple)),
        )
    )
    runs = spans.flatmap(
        lambda span: st.builds(
            RunRecord,
            *(TEXTS, COUNTS, COUNTS, st.sampled_from(Purpose), configurations),
            *(st.just(span[0]), st.just(span[1]), AMOUNTS, AMOUNTS, st.sampled_from(RunEnd)),
        )
    )
    ends = st.builds(NodeRecord, NUMBERS, names, st.sampled_from(NodeCondition))
    return RunLog(
        header,
        jobs=draw(st.lists(job_records, max_size=3)),
        runs=draw(st.lists(runs, max_size=3)),
        plans=PlanRecords(draw(st.lists(plan_records, max_size=3))),
        nodes=draw(st.lists(ends, max_size=3)),
        closed_s=draw(NUMBERS),
        rounds=draw(COUNTS),
        wall_s=draw(AMOUNTS),
    )


def parts(log: RunLog) -> tuple[Any, ...]:
    """All that a log holds; clusters are compared by what they hold."""
    header = {name: getattr(log.header, name) for name in log.header.__slots__}
    cluster = header.pop("cluster")
    rest = (log.closed_s, log.rounds, log.wall_s)
    return (header, cluster.name, cluster.nodes, log.jobs, log.runs, log.plans, log.nodes, rest)


@pytest.fixture(scope="module")
def a_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs") / "run.jsonl"


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(log=run_logs())
def test_a_run_log_reads_back_exactly_as_it_was_written(a_path: Path, log: RunLog) -> None:
    write_run_log(log, a_path)
    read = read_run_log(a_path)
    assert read.notes == ()
    assert parts(read.log) == parts(log)


def small_log() -> RunLog:
    cluster = Cluster((Node("n0", "A", 4), Node("n1", "B", 4)))
    header = RunLogHeader("las", {"queues": 2}, cluster, 100.0, 360.0, 10.0, 0.0, 1800.0, 0.0, 1)
    log = RunLog(header)
    log.nodes.append(NodeRecord(130.0, "n1", NodeCondition.DOWN))
    log.plans.append(PlanRecord(100.0, frozenset({Trigger.ROUND, Trigger.ARRIVAL}), 0.1, 1, 0))
    where, ended_by = Configuration.of({"n0": 2, "n1": 1}), RunEnd.COMPLETED
    log.runs.append(RunRecord("7", 0, 0, Purpose.RUN, where, 100.0, 900.0, 790.0, 5e3, ended_by))
    job = Job("7", 95.0, RequirementSet((1, 3)), "net", gpu_types=frozenset({"B", "A"}))
    log.jobs.append(JobRecord(job, 900.0, EndState.COMPLETED, 5e3, 5.0, 100.0, 0, 0, 700.0))
    log.closed_s, log.rounds, log.wall_s = 900.0, 3, 0.5
    return log


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    """The lines of a small run log: header, node, plan, run, job, closed."""
    path = tmp_path / "small.jsonl"
    write_run_log(small_log(), path)
    return path.read_text().splitlines(keepends=True)


def read_text(tmp_path: Path, text: str | bytes) -> ReadRunLog:
    path = tmp_path / "run.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_run_log(path)


def test_the_same_log_is_always_the_same_bytes(lines: list[str]) -> None:
    assert '"triggers":["arrival","round"]' in lines[2]
    assert '"configuration":{"n0":2,"n1":1}' in lines[3]
    assert '"gpu_types":["A","B"]' in lines[4]


def test_records_may_be_written_as_they_happen(tmp_path: Path) -> None:
    log = small_log()
    stream = io.StringIO()
    writer = RunLogWriter(stream, log.header)
    writer.add(log.plans[0])
    before = stream.getvalue()
    writer.add(log.jobs[0])
    assert before.count("\n") == 2
    assert read_text(tmp_path, before).log.plans == log.plans
    assert read_text(tmp_path, stream.getvalue()).log.jobs == log.jobs


@pytest.mark.parametrize(
    ("number", "old"),
    [(2, '"at_s":130.0'), (3, '"at_s":100.0'), (4, '"freed_s":900.0'), (5, '"end_s":900.0')],
)
def test_a_log_whose_writer_was_stopped_closes_at_its_latest_time_with_a_note(
    tmp_path: Path, lines: list[str], number: int, old: str
) -> None:
    key = old.partition(":")[0]
    lines[number - 1] = lines[number - 1].replace(old, f"{key}:1200.0")
    read = read_text(tmp_path, "".join(lines[:-1]))
    assert read.notes == ("the log was never closed: jobs that had not ended are missing",)
    assert (read.log.closed_s, read.log.rounds) == (1200.0, 4)


def test_a_cut_off_last_line_is_left_out_with_a_note(tmp_path: Path, lines: list[str]) -> None:
    whole = "".join(lines[:4])
    for kept in range(1, len(lines[4]) - 1):
        read = read_text(tmp_path, whole + lines[4][:kept])
        assert read.notes[0] == "the last line was cut off and is left out"
        assert (len(read.log.runs), len(read.log.jobs)) == (1, 0)
    # Only the line break is missing: nothing was lost.
    read = read_text(tmp_path, whole + lines[4][:-1])
    assert len(read.log.jobs) == 1
    assert len(read.notes) == 1


@pytest.mark.parametrize(
    ("number", "old", "new", "why"),
    [
        (1, '"hetsched-runlog/1"', '"hetsched-runlog/2"', "schema is 'hetsched-runlog/2'"),
        (1, '"schema":"hetsched-runlog/1",', "", "schema is None"),
        (1, '"round_s":360.0', '"round_s":0', "expected more than 0"),
        (1, '"round_s":360.0', '"round_s":"six"', "round_s: 'six' is not a number"),
        (1, '"seed":1', '"sead":1', "did you mean 'seed'"),
        (1, ',"seed":1', "", "seed: missing"),
        (1, '{"queues":2}', "2", "parameters: 2 is no JSON object"),
        (1, '"gpus":4', '"gpus":-4', "has a negative size"),
        (2, '"down"', '"melted"', "condition"),
        (2, '"n1"', '"n9"', "unknown node 'n9'"),
        (3, '"plan_s":0.1', '"plan_s":NaN', "NaN is no number"),
        (3, '"placed":1', '"placed":1.5', "placed: 1.5 is not a whole number"),
        (3, '"kind":"plan"', '"kind":"plam"', "did you mean 'plan'"),
        (3, '"kind":"plan"', '"kind":["plan"]', r"kind is \['plan'\]"),
        (3, '{"kind":"plan",', "{", "kind is None"),
        (3, '"placed":1,', "", "placed: missing"),
        (3, '"placed":1,', '"placed":1,"moved":1,', "unknown key 'moved'"),
        (4, '"n1":1', '"n1":0', "at least one GPU on each node"),
        (4, '"n1":1', '"n9":1', "unknown node 'n9'"),
        (4, '"freed_s":900.0', '"freed_s":99.0', "before since_s"),
        (4, '"freed_s":900.0', '"freed_s":1e999', "beyond"),
        (5, '"requirements":[1,3]', '"requirements":[3,1]', "not ascending"),
        (5, '"requirements":[1,3]', '"requirements":"13"', "is not a list"),
        (5, '"completed"', '"finished"', "is none of completed, failed"),
        (5, '"id":"7"', '"id":7', "job.id: 7 is not text"),
    ],
)
def test_a_line_that_is_wrong_is_named_with_what_is_wrong(
    tmp_path: Path, lines: list[str], number: int, old: str, new: str, why: str
) -> None:
    assert lines[number - 1].count(old) >= 1
    lines[number - 1] = lines[number - 1].replace(old, new, 1)
    with pytest.raises(InputError, match=rf"run\.jsonl: line {number}: .*{why}"):
        read_text(tmp_path, "".join(lines))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "is empty; the first line of a run log has schema 'hetsched-runlog/1'"),
        (b"\n", "line 1: .*not valid JSON"),
        (b"[1]\n", "line 1: .*is no JSON object"),
        (b'{"schema":"hetsched-run', "line 1: .*not valid JSON"),
        (b"\x7fELF\x02\x01\xff\xfe\n", "line 1: not text in UTF-8"),
        (b"[" * 100_000 + b"\n", "line 1: .*not valid JSON"),
    ],
    ids=["empty", "blank", "no object", "cut-off header", "binary", "nested"],
)
def test_a_file_that_is_no_run_log_is_refused(tmp_path: Path, text: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_text(tmp_path, text)
    with pytest.raises(InputError, match=r"cannot read .*absent\.jsonl: No such file"):
        read_run_log(tmp_path / "absent.jsonl")


def test_a_bad_line_in_the_middle_and_one_after_the_last_are_named(
    tmp_path: Path, lines: list[str]
) -> None:
    with pytest.raises(InputError, match="line 7: nothing may follow"):
        read_text(tmp_path, "".join([*lines, lines[3]]))
    lines[3] = lines[3][:40] + "\n"
    with pytest.raises(InputError, match=r"line 4: .*not valid JSON"):
        read_text(tmp_path, "".join(lines))


def test_no_value_in_any_place_raises_anything_but_an_input_error(
    tmp_path: Path, lines: list[str]
) -> None:
    draw = random.Random(1)
    for number, text in enumerate(lines):
        line = json.loads(text)
        for key in line:
            values: tuple[object, ...] = (None, [], {}, "x", -1, 1e400, True, [[[]]], draw.random())
            for value in values:
                broken = json.dumps(line | {key: value}) + "\n"
                with contextlib.suppress(InputError):
                    read_text(tmp_path, "".join([*lines[:number], broken, *lines[number + 1 :]]))


PAGE = Path(__file__).parents[3] / "docs/formats/run-log.md"


def test_the_documented_example_is_a_whole_run_log(tmp_path: Path) -> None:
    example = PAGE.read_text().partition("```json\n")[2].partition("```")[0]
    read = read_text(tmp_path, example)
    assert read.notes == ()
    assert [len(part) for part in (read.log.jobs, read.log.runs, read.log.plans)] == [1, 1, 1]
    again = tmp_path / "again.jsonl"
    write_run_log(read.log, again)
    assert parts(read_run_log(again).log) == parts(read.log)


@pytest.mark.parametrize(
    ("heading", "record"),
    [
        ("Header", RunLogHeader),
        ("`job`", JobRecord),
        ("`run`", RunRecord),
        ("`plan`", PlanRecord),
        ("`node`", NodeRecord),
        ("`closed`", Closing),
    ],
)
def test_the_page_lists_the_keys_of_every_record(heading: str, record: type) -> None:
    section = PAGE.read_text().partition(f"\n## {heading}")[2].partition("\n## ")[0]
    keys = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    first = ["schema"] if record is RunLogHeader else []
    assert keys == first + [field.name for field in dataclasses.fields(record)]
    if record is JobRecord:
        assert set(re.findall(r"`(\w+)`", section)) >= {f.name for f in dataclasses.fields(Job)}


@pytest.mark.parametrize("words", [RunEnd, EndState, Trigger, Purpose, NodeCondition])
def test_the_page_lists_every_word(words: type[Enum]) -> None:
    page = PAGE.read_text()
    assert all(f"`{word.value}`" in page for word in words)
