"""Spool lines: what a job may say is accepted, anything else is rejected and never raises."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hetsched_core.records.spool import (
    LINE_TYPES,
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    MAX_SERIES,
    SCHEMA,
    AllReduce,
    Checkpoint,
    End,
    Loss,
    Profile,
    Progress,
    Reject,
    Rejection,
    SpoolLine,
    SpoolName,
    SpoolStart,
    SpoolValidator,
    checks,
)

PAGE = Path(__file__).parents[3] / "docs/formats/spool.md"
NAME = SpoolName("123_4", 2, 0)
NONCE = "Qm9vIQ3xk2"


def examples() -> list[dict[str, Any]]:
    """The lines of the documented example, one of each type."""
    block = re.search(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    return [json.loads(line) for line in block[1].splitlines()]


LINES = {line["type"]: line for line in examples()}


def encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def started() -> SpoolValidator:
    """A validator that has seen the start line."""
    validator = SpoolValidator(NAME, NONCE)
    assert isinstance(validator.take(encoded(LINES["start"])), SpoolStart)
    return validator


def reason(answer: SpoolLine | Rejection) -> Reject | None:
    return answer.reason if isinstance(answer, Rejection) else None


def test_the_documented_example_is_accepted_with_its_values() -> None:
    validator = SpoolValidator(NAME, NONCE)
    start, profile, all_reduce, progress, loss, checkpoint, end = (
        validator.take(encoded(line)) for line in examples()
    )
    assert start == SpoolStart(SCHEMA, "123_4", 2, 0, 4, NONCE, "gpu07", 4711, 1760000000.25)
    assert isinstance(profile, Profile)
    assert (profile.forward_s, profile.backward_s, profile.update_s) == (0.031, 0.058, 0.004)
    assert (profile.data_s, profile.wait_s) == ((0.011, 0.012, 0.093), (0.001, 0.001, 0.02))
    assert all_reduce == AllReduce(12.0, "nccl", 2, 2, 25_000_000, 10, 0.02)
    assert progress == Progress(30.0, 1204480.0, 2510.4, (0.012,), (0.001,))
    assert loss == Loss(30.0, 4705, 2.317)
    assert checkpoint == Checkpoint(61.2, 1280000.0, 0.4)
    assert end == End(61.9, 1280256.0, "stopped")


def test_the_page_lists_just_the_keys_of_every_type_and_the_bounds() -> None:
    page = PAGE.read_text()
    sections = re.findall(r"### `(\w+)`\n(.*?)(?=\n##)", page, re.DOTALL)
    documented = {
        name: re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) for name, text in sections
    }
    assert documented == {name: list(checks(LINE_TYPES[name])) for name in LINE_TYPES}
    assert all(list(line) == ["type", *documented[name]] for name, line in LINES.items())
    assert f"At most {MAX_LINE_BYTES:,} bytes a line and {MAX_FILE_BYTES >> 20} MiB" in page
    assert f"Lists hold at most {MAX_SERIES} numbers" in page
    assert f"`{SCHEMA}`" in page


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"schema": "hetsched-spool/2"}, Reject.OUT_OF_RANGE),
        ({"job": "124"}, Reject.WRONG_IDENTITY),
        ({"run": 1}, Reject.WRONG_IDENTITY),
        ({"nonce": "Qm9vIQ3xk3"}, Reject.WRONG_NONCE),
        ({"nonce": "short"}, Reject.OUT_OF_RANGE),
        ({"world_size": 0}, Reject.OUT_OF_RANGE),
        ({"job": "../../etc/passwd"}, Reject.OUT_OF_RANGE),
        ({"job": 123}, Reject.WRONG_KIND),
        ({"host": "\ud800"}, Reject.OUT_OF_RANGE),
        ({"pid": -1}, Reject.OUT_OF_RANGE),
        ({"at_s": -1.0}, Reject.OUT_OF_RANGE),
    ],
)
def test_a_file_with_a_wrong_start_line_is_rejected_as_a_whole(
    changes: dict[str, Any], expected: Reject
) -> None:
    validator = SpoolValidator(NAME, NONCE)
    assert reason(validator.take(encoded(LINES["start"] | changes))) is expected
    # A second try in the same file is too late.
    for name in ("start", "progress"):
        assert reason(validator.take(encoded(LINES[name]))) is Reject.WRONG_ORDER


def test_a_file_begins_with_its_start_and_of_a_rank_that_there_is() -> None:
    validator = SpoolValidator(NAME, NONCE)
    for name in ("progress", "start"):
        assert reason(validator.take(encoded(LINES[name]))) is Reject.WRONG_ORDER
    beyond = SpoolValidator(SpoolName("123_4", 2, 4), NONCE)
    assert reason(beyond.take(encoded(LINES["start"] | {"rank": 4}))) is Reject.OUT_OF_RANGE


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("progress", {"type": "progres"}, Reject.UNKNOWN_TYPE),
        ("progress", {"type": ["progress"]}, Reject.UNKNOWN_TYPE),
        ("progress", {"gpus": 4}, Reject.UNKNOWN_KEY),
        ("progress", {"samples": -1}, Reject.OUT_OF_RANGE),
        ("progress", {"samples": 1e19}, Reject.OUT_OF_RANGE),
        ("progress", {"samples": "many"}, Reject.WRONG_KIND),
        ("progress", {"samples": True}, Reject.WRONG_KIND),
        ("progress", {"data_s": [0.1, 0.2]}, Reject.OUT_OF_RANGE),
        ("progress", {"data_s": [-0.1]}, Reject.OUT_OF_RANGE),
        ("progress", {"data_s": [[0.1]]}, Reject.WRONG_KIND),
        ("progress", {"data_s": 0.1}, Reject.WRONG_KIND),
        ("progress", {"data_s": [0] * 65, "wait_s": [0] * 65}, Reject.OUT_OF_RANGE),
        ("profile", {"forward_s": 86_401}, Reject.OUT_OF_RANGE),
        ("profile", {"pattern": 3}, Reject.OUT_OF_RANGE),
        ("profile", {"pattern": 1.0}, Reject.WRONG_KIND),
        ("profile", {"nodes": 5}, Reject.OUT_OF_RANGE),
        ("profile", {"iterations": 2}, Reject.OUT_OF_RANGE),
        ("profile", {"data_s": [], "wait_s": []}, Reject.OUT_OF_RANGE),
        ("profile", {"gpu_type": ""}, Reject.OUT_OF_RANGE),
        ("all_reduce", {"gpus": 1, "nodes": 1}, Reject.OUT_OF_RANGE),
        ("all_reduce", {"nodes": 3}, Reject.OUT_OF_RANGE),
        ("all_reduce", {"seconds": 0}, Reject.OUT_OF_RANGE),
        ("all_reduce", {"backend": "mpi"}, Reject.OUT_OF_RANGE),
        ("loss", {"loss": 1e31}, Reject.OUT_OF_RANGE),
        ("loss", {"training_round": -1}, Reject.OUT_OF_RANGE),
        ("checkpoint", {"stopped_s": -0.5}, Reject.OUT_OF_RANGE),
        ("end", {"how": "exploded"}, Reject.OUT_OF_RANGE),
    ],
)
def test_a_value_that_cannot_be_is_rejected_and_the_next_line_is_not(
    name: str, changes: dict[str, Any], expected: Reject
) -> None:
    validator = started()
    assert reason(validator.take(encoded(LINES[name] | changes))) is expected
    assert reason(validator.take(encoded(LINES[name]))) is None


@pytest.mark.parametrize("name", LINES)
def test_every_key_is_required(name: str) -> None:
    for key in list(LINES[name])[1:]:
        validator = SpoolValidator(NAME, NONCE) if name == "start" else started()
        line = {k: value for k, value in LINES[name].items() if k != key}
        assert reason(validator.take(encoded(line))) is Reject.MISSING_KEY


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", Reject.NOT_JSON),
        (b"[]", Reject.NOT_JSON),
        (b"{}", Reject.UNKNOWN_TYPE),
        (b"\xff\xfe{}", Reject.NOT_JSON),
        ('{"type": "loss"}'.encode("utf-16"), Reject.NOT_JSON),
        (b'{"type": "loss", "t_s": 1, "training_round": 1, "loss": NaN}', Reject.NOT_JSON),
        (b'{"type": "loss", "t_s": 1, "training_round": 1, "loss": 1e999}', Reject.OUT_OF_RANGE),
        (
            b'{"type": "loss", "t_s": 1, "training_round": 1, "loss": 1' + b"0" * 4000 + b"}",
            Reject.OUT_OF_RANGE,
        ),
        (b'{"type": "loss", "t_s": 1, "t_s": 2, "training_round": 1, "loss": 1}', Reject.NOT_JSON),
        (b'{"type": "loss"} {"type": "loss"}', Reject.NOT_JSON),
        (b"[" * MAX_LINE_BYTES, Reject.NOT_JSON),
        (b" " * (MAX_LINE_BYTES + 1), Reject.LINE_TOO_LONG),
    ],
)
def test_what_is_no_line_is_rejected(text: bytes, expected: Reject) -> None:
    assert reason(started().take(text)) is expected


def test_a_line_and_a_file_may_be_just_as_long_as_allowed() -> None:
    line, validator = encoded(LINES["loss"]), started()
    line = line[:-1] + b" " * (MAX_LINE_BYTES - len(line)) + b"\n"
    assert reason(started().take(b" " + line)) is Reject.LINE_TOO_LONG
    answers = [reason(validator.take(line)) for _ in range(MAX_FILE_BYTES // MAX_LINE_BYTES)]
    assert answers == [None] * (len(answers) - 1) + [Reject.FILE_TOO_LONG]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([LINES["start"]], Reject.WRONG_ORDER),
        ([LINES["end"], LINES["progress"] | {"t_s": 62, "samples": 1280257}], Reject.WRONG_ORDER),
        ([LINES["end"], LINES["end"]], Reject.WRONG_ORDER),
        ([LINES["progress"], LINES["loss"] | {"t_s": 29.9}], Reject.WRONG_ORDER),
        ([LINES["progress"], LINES["progress"] | {"samples": 1204479}], Reject.WRONG_ORDER),
        ([LINES["progress"], LINES["end"] | {"samples": 1204479}], Reject.WRONG_ORDER),
        ([LINES["progress"], LINES["checkpoint"] | {"samples": 1204000}], None),
        ([LINES["checkpoint"], LINES["checkpoint"] | {"samples": 1}], Reject.WRONG_ORDER),
        ([LINES["loss"], LINES["loss"] | {"training_round": 4704}], Reject.WRONG_ORDER),
        ([LINES["progress"], LINES["progress"]], None),
    ],
)
def test_lines_must_come_in_an_order_that_can_be(
    lines: list[dict[str, Any]], expected: Reject | None
) -> None:
    validator = started()
    *_, last = (validator.take(encoded(line)) for line in lines)
    assert reason(last) is expected


def test_a_rejected_line_moves_nothing_forward() -> None:
    validator = started()
    validator.take(encoded(LINES["progress"] | {"t_s": 1000.0, "samples": -1}))
    validator.take(encoded(LINES["end"] | {"how": "?"}))
    assert reason(validator.take(encoded(LINES["progress"]))) is None


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([math.inf, -math.inf, 10**400, 1e308, 2**63])
    | st.text(max_size=80)
    | st.sampled_from([value for line in LINES.values() for value in line.values()]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
mutated = st.builds(
    lambda line, key, value: encoded(line | {key: value}),
    st.sampled_from(list(LINES.values())),
    st.sampled_from(sorted({key for line in LINES.values() for key in line})),
    values,
)


@pytest.mark.parametrize("key", ["type", "loss", "unheard_of"])
def test_no_depth_of_nesting_raises(key: str) -> None:
    # Somewhere the parser gives up, and just before that whatever looks at the value might.
    validator = started()
    for depth in range(1, MAX_LINE_BYTES // 2):
        text = f'{{"{key}": {"[" * depth}{"]" * depth}}}'.encode()
        assert isinstance(validator.take(text), Rejection)


@example([b'{"type": "' + b"x" * 4000 + b'"}'])
@example([b'{"type": "\xc3\xa9\\u202e"}'])
@given(st.lists(st.binary(max_size=200) | mutated, max_size=8))
def test_nothing_in_a_file_raises_and_all_that_is_accepted_is_finite(texts: list[bytes]) -> None:
    validator = started()
    for text in texts:
        answer = validator.take(text)
        if isinstance(answer, Rejection):
            assert answer.detail.isascii()
            assert answer.detail.isprintable()
            assert len(answer.detail) < 200
        else:
            for key in checks(type(answer)):
                value = getattr(answer, key)
                for number in value if isinstance(value, tuple) else [value]:
                    assert isinstance(number, str) or math.isfinite(number)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("123_4.2.0.jsonl", SpoolName("123_4", 2, 0)),
        ("123.2.jsonl", None),
        ("123.02.0.jsonl", None),
        ("123.2.0.jsonl\n", None),
        ("123.٢.0.jsonl", None),
        ("../1.2.0.jsonl", None),
        ("1.2.99999999.jsonl", None),
    ],
)
def test_only_the_names_of_spool_files_are_read(text: str, name: SpoolName | None) -> None:
    assert SpoolName.parse(text) == name
    assert name is None or str(name) == text
