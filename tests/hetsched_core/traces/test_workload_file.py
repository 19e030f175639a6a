"""The native workload format: what is written is read back, and what is wrong is named."""

import gzip
import io
import json
import re
import string
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.traces.lines import read_lines
from hetsched_core.traces.workload import RejectedJob, Workload, arrival_order
from hetsched_core.traces.workload_file import SCHEMA, read_workload, workload_lines
from hetsched_core.types import (
    EndState,
    Job,
    Layer,
    LearningRate,
    LearningRateScaling,
    LoggedRun,
    RequirementSet,
    SpeedPhase,
    SpeedTable,
    Submission,
    TaskShape,
    TaskTimes,
)

HEADER = {"schema": SCHEMA}
JOB: dict[str, Any] = {
    "job": "1",
    "submit_s": 5.0,
    "requirements": [1, 2],
    "profile": "lm",
    "samples": 100.0,
}
RUN = {"start_s": 8, "end_s": 9, "gpus": 1}
SPEEDS: dict[str, Any] = {
    "profile": "mine",
    "gpu_types": ["a100", "v100"],
    "counts": [1, 4],
    "one_node": [[10.0, 9.0], [5.0, 4.5]],
    "several_nodes": [[10.0, 8.0], [5.0, 4.0]],
}

texts = st.text(max_size=12)
positive = st.floats(1e-3, 1e12)
gpu_names = st.sampled_from(["a100", "v100", "k80"])


@st.composite
def jobs(draw: st.DrawFn, job_id: str) -> Submission:
    submit_s = draw(st.floats(0, 4e9))
    counts = draw(st.sets(st.integers(1, 64), min_size=1, max_size=6))
    later = st.none() | st.floats(0, 1e6).map(lambda seconds: submit_s + seconds)
    job = Job(
        job_id,
        submit_s,
        RequirementSet(tuple(sorted(counts))),
        "lm",
        total_samples=draw(st.none() | positive),
        time_limit_s=draw(st.none() | positive),
        eligible_s=draw(later),
        gpu_types=draw(st.none() | st.frozensets(gpu_names)),
        cpus_per_gpu=draw(st.floats(0, 256)),
        memory_mb_per_gpu=draw(st.floats(0, 1e7)),
        name=draw(texts),
        user=draw(texts),
        account=draw(texts),
        partition=draw(texts),
        weight=draw(positive),
        preemptible=draw(st.booleans()),
        asked_count=draw(st.none() | st.integers(1, 64)),
        copies=draw(st.none() | st.integers(1, 16)),
        tier=draw(st.integers(-9, 9)),
        qos=draw(texts),
        deadline_s=draw(later),
        learning_rate=draw(
            st.none()
            | st.just(LearningRate(((1, 0.1), (4, 0.3))))
            | st.just(LearningRate(((2, 0.5),), LearningRateScaling.SQRT))
        ),
        tasks=draw(st.none() | st.builds(TaskShape, st.integers(1, 8), st.none(), texts)),
        assumed=draw(st.frozensets(st.sampled_from(["profile", "gpu_types"]))),
    )
    ends_as = draw(st.sampled_from([EndState.COMPLETED, EndState.FAILED]))
    runs = st.builds(LoggedRun, st.floats(0, 1e9), st.floats(1e9, 2e9), st.integers(1, 64))
    logged = tuple(draw(st.lists(runs, max_size=2)))
    untils = sorted(draw(st.sets(st.floats(0.01, 0.99), max_size=3)))
    phases = (SpeedPhase(until, draw(st.floats(1e-3, 1e3))) for until in (*untils, 1.0))
    return Submission(
        job,
        draw(positive),
        ends_as,
        draw(later),
        logged,
        start_cost_s=draw(st.floats(0, 86_400)),
        restart_cost_s=draw(st.none() | st.floats(0, 86_400)),
        phases=tuple(phases) if job.tasks is None and draw(st.booleans()) else (),
    )


@st.composite
def tables(draw: st.DrawFn) -> SpeedTable:
    types = draw(st.lists(gpu_names, min_size=1, unique=True))
    counts = sorted(draw(st.sets(st.integers(1, 512), min_size=1, max_size=5)))
    row = st.lists(st.floats(0, 1e6), min_size=len(counts), max_size=len(counts))
    rows = st.lists(row, min_size=len(types), max_size=len(types))
    shape = (len(types), len(counts))
    return SpeedTable(
        tuple(types),
        np.array(counts, dtype=np.int64),
        np.array(draw(rows)),
        np.array(draw(rows)),
        np.full(shape, Layer.TRUTH, dtype=np.int8),
        node_factor=draw(st.dictionaries(texts, st.floats(0.1, 2), max_size=2)),
        tasks=draw(st.dictionaries(gpu_names, st.builds(TaskTimes, positive, positive))),
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    ids = draw(st.lists(st.text(string.printable, min_size=1, max_size=8), unique=True, max_size=6))
    found = [draw(jobs(job_id)) for job_id in ids]
    names = draw(st.lists(st.sampled_from(["lm", "mine", "other"]), unique=True))
    return Workload(
        tuple(sorted(found, key=arrival_order)),
        {name: draw(tables()) for name in names},
        tuple(draw(st.lists(texts, max_size=3))),
        tuple(draw(st.lists(st.builds(RejectedJob, texts, texts, st.integers(0, 9)), max_size=3))),
    )


def parts(table: SpeedTable) -> tuple[object, ...]:
    """What makes two tables equal, which are otherwise equal only to themselves."""
    arrays = (table.counts, table.one_node, table.several_nodes, table.layers)
    return (table.gpu_types, *(a.tolist() for a in arrays), table.node_factor, table.tasks)


@given(workloads())
def test_what_is_written_is_read_back(workload: Workload) -> None:
    lines = list(workload_lines(workload))
    assert all("\n" not in line for line in lines)
    found = read_workload(lines, "w", {"lm"})
    assert replace(found, tables={}) == replace(workload, tables={})
    assert {k: parts(t) for k, t in found.tables.items()} == {
        k: parts(t) for k, t in workload.tables.items()
    }
    assert list(workload_lines(found)) == lines


def read(*lines: object) -> Workload:
    """Read lines given as JSON or as what JSON is made of."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return read_workload(texts, "w.jsonl", ("lm",))


def test_a_line_may_leave_out_all_that_has_a_default() -> None:
    found = read(HEADER, "", JOB)
    assert found == Workload((Submission(Job("1", 5.0, RequirementSet((1, 2)), "lm"), 100.0),))


def test_jobs_are_in_order_of_arrival_and_speeds_in_the_file_go_with_those_after_them() -> None:
    own = JOB | {"profile": "mine"}
    found = read(HEADER, SPEEDS, own | {"job": "b"}, JOB | {"job": "c", "submit_s": 1}, own)
    assert [s.job.id for s in found.submissions] == ["c", "1", "b"]
    assert found.tables["mine"].per_gpu("v100", 4, 2) == 4.0


def without(line: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in line.items() if k != key}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not valid JSON"),
        ('{"job": "1", "submit_s": NaN}', "NaN is no number"),
        ("[" * 9999, "nested too deep"),
        ("[1]", "no JSON object"),
        ({"user": "x"}, "none of its keys (user)"),
        (JOB | {"job": 5}, "job: 5 is not text"),
        (JOB | {"job": ""}, "job is empty"),
        (without(JOB, "submit_s"), "submit_s: missing"),
        (JOB | {"submit_s": "5"}, "submit_s: '5' is not a number"),
        (JOB | {"submit_s": 1e18}, "submit_s is 1e+18; expected seconds, up to 1e+11"),
        (JOB | {"submit_s": -1}, "submit_s is -1; expected 0"),
        (JOB | {"phases": [{"until": 0.5, "factor": 2}]}, "phases end at 0.5; expected shares"),
        (JOB | {"phases": [{"until": 1, "factor": 0}]}, "factor is 0; expected 1e-6"),
        (
            JOB | {"phases": [{"until": 1, "factor": 2}], "tasks": {"scale": 1, "rounds": 2}},
            "a job of tasks has none",
        ),
        (JOB | {"start_cost_s": -1}, "start_cost_s is -1; expected 0"),
        (JOB | {"restart_cost_s": 1e6}, "restart_cost_s is 1e+06; expected seconds, up to 86400"),
        (JOB | {"eligible_s": 4}, "eligible_s is 4; expected 5"),
        (JOB | {"logged": [RUN | {"end_s": 7}]}, "a logged run of 1 GPUs from 8 s to 7 s"),
        (JOB | {"samples": 0}, "samples is 0; expected more"),
        (json.dumps(JOB)[:-1] + ', "weight": 1e999}', "beyond"),
        (JOB | {"requirements": 2}, "requirements: 2 is not a list"),
        (JOB | {"requirements": []}, "requirement set is empty"),
        (JOB | {"requirements": [2, 1]}, "not ascending"),
        (JOB | {"requirements": [1.5]}, "1.5 is not a whole"),
        (JOB | {"gpu_types": "a100"}, "gpu_types: 'a100' is not a list"),
        (JOB | {"ends_as": "never"}, "expected completed or failed"),
        (JOB | {"ends_as": "lost"}, "'lost' is none of completed"),
        (JOB | {"colour": 1}, "unknown key 'colour'"),
        (JOB | {"tasks": {"scal": 1}}, "tasks"),
        (JOB | {"learning_rate": {"given": [[1]]}}, "2 parts"),
        (JOB | {"profile": "lmm"}, "did you mean 'lm'"),
        (JOB | {"job": "0"}, "stands here a second time"),
        (without(SPEEDS, "counts"), "counts: missing"),
        (SPEEDS | {"counts": [1, 10**30]}, "not a whole number"),
        (SPEEDS | {"counts": [4, 1]}, "not ascending"),
        (SPEEDS | {"one_node": [[1], [2, 3]]}, "all of one length"),
        (SPEEDS | {"one_node": [[1], [2]]}, "shape"),
        (SPEEDS | {"one_node": [[-1, 1], [1, 1]]}, ">= 0"),
        (SPEEDS | {"speed": 3}, "unknown key 'speed'"),
        (SPEEDS | {"profile": "twice"}, "stands here a second time"),
        ({"rejected": "x", "why": "y"}, "unknown key 'why'"),
        ({"rejected": 3}, "rejected: 3 is not text"),
    ],
    ids=lambda of: of[:40] if isinstance(of, str) else "",
)
def test_what_is_wrong_with_a_line_is_said_with_its_number(line: object, says: str) -> None:
    with pytest.raises(InputError) as raised:
        read(HEADER, JOB | {"job": "0"}, SPEEDS | {"profile": "twice"}, line, SPEEDS)
    assert str(raised.value).startswith("w.jsonl: line 4: ")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "is empty"),
        ([{"schema": "hetsched-workload/9"}], "hetsched-workload/9"),
        ([HEADER | {"assumption": []}], "did you mean 'assumptions'"),
        ([HEADER | {"assumptions": "x"}], "assumptions: 'x' is not a list"),
    ],
)
def test_a_file_begins_with_its_schema(lines: list[object], says: str) -> None:
    with pytest.raises(InputError) as raised:
        read(*lines)
    assert says in str(raised.value)


def test_lines_are_the_same_compressed_or_not() -> None:
    data = "\ufeffone\r\nzwölf\n".encode()
    for packed in (data, gzip.compress(data)):
        assert list(read_lines(io.BytesIO(packed), "w")) == ["one", "zwölf"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (gzip.compress(b"x\n" * 9999, mtime=0)[:-20], "cut off"),
        (b"\x1f\x8bno gzip", "damaged"),
        (b"a\nb\xff\n", "not text in UTF-8"),
        (b"a\nb\0\n", "line 2: a binary file"),
    ],
)
def test_a_file_that_is_no_text_is_an_error_that_names_it(data: bytes, says: str) -> None:
    with pytest.raises(InputError) as raised:
        list(read_lines(io.BytesIO(data), "w.jsonl"))
    assert str(raised.value).startswith("w.jsonl: ")
    assert says in str(raised.value)


PAGE = (Path(__file__).parents[3] / "docs/formats/workload.md").read_text()


def test_the_example_of_the_documentation_is_a_workload() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    found = read_workload(example.splitlines(), "page", {"resnet50-imagenet"})
    first, second = found.submissions
    assert second.ends_as is EndState.FAILED
    assert [r.job for r in found.rejected] == ["19"]
    run_s = first.samples / (4 * found.tables["my-lm"].per_gpu("a100", 4, 1))
    assert f"runs {run_s:,.0f} s" in PAGE


def test_the_documentation_lists_every_key() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    of_job = {f.name for f in (*fields(Job), *fields(Submission))} - {
        "id",
        "job",
        "closed",
        "limits",
    }
    assert of_job | {"job", *SPEEDS, "node_factor", "tasks", "rejected", "reason", "line"} <= named
