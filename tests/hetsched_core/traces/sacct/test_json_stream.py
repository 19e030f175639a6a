"""Elements of a list, read in pieces of any size."""

import json
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.traces.sacct import json_stream
from hetsched_core.traces.sacct.json_stream import BrokenJsonError, iterate_list

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def read_in_pieces(text: str, size: int) -> list[object]:
    stream = BytesIO(text.encode())
    return list(iterate_list(lambda _: stream.read(size), "jobs"))


@given(
    st.lists(VALUES, max_size=4),
    st.dictionaries(st.text(), VALUES, max_size=2),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_the_elements_are_those_that_the_whole_document_has(
    jobs: list[Any], other: dict[str, Any], size: int, ascii_only: bool, indent: int | None
) -> None:
    other.pop("jobs", None)
    text = json.dumps(other | {"jobs": jobs} | {"end": 1}, ensure_ascii=ascii_only, indent=indent)
    assert read_in_pieces(text, size) == jobs


@pytest.mark.parametrize(
    "text", ["{}", '{"a": 1}', ' { "a" : [ 1 ] } ', '{"jobs": 12}', '{"jobs":[]}']
)
@pytest.mark.parametrize("size", [1, 99])
def test_without_such_a_list_there_is_nothing(text: str, size: int) -> None:
    assert read_in_pieces(text, size) == []


CUT_OFF = (
    *("", "{", '{"jobs"', '{"jobs": [1', '{"jobs": ["a', '{"jobs": [tr', '{"jobs": [-'),
    *('{"jobs": ["\\u00', '{"jobs": [[1.', '{"jobs": [[1e-'),
)
NO_JSON = (
    *("[]", "{jobs: 1}", '{"jobs": [1 2]}', '{"jobs": [trye]}', '{"jobs": ["\\x"]}'),
    *('{"jobs": ["\\u00x0"]}', '{"jobs": [1.x]}'),
)


@pytest.mark.parametrize("text", [*CUT_OFF, *NO_JSON])
@pytest.mark.parametrize("size", [1, 99])
def test_an_end_that_comes_too_early_is_told_from_what_is_no_json(text: str, size: int) -> None:
    with pytest.raises(BrokenJsonError) as caught:
        read_in_pieces(text, size)
    assert caught.value.cut_off is (text in CUT_OFF)


def test_an_element_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_ELEMENT", 1_000)
    monkeypatch.setattr(json_stream, "_CHUNK", 100)
    served = 0

    def endless(size: int) -> bytes:
        nonlocal served
        served += size
        return (b'{"jobs": ["' if served == size else b"").ljust(size, b"x")

    with pytest.raises(BrokenJsonError, match="one element has more than 1000 characters"):
        list(iterate_list(endless, "jobs"))
    assert served < 10_000
