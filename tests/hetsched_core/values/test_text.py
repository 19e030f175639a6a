"""Values of declared types, to and from text."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.values.text import choices_of, from_text, is_settable, to_text


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


NAMES = st.text("abcdefgh-_09", min_size=1, max_size=6)
VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (bool, st.booleans()),
    (int, st.integers()),
    (float, st.floats(allow_nan=False)),
    (str, st.text()),
    (Path, NAMES.map(Path)),
    (Size, st.sampled_from(Size)),
    (frozenset[str], st.frozensets(NAMES)),
    (float | None, st.none() | st.floats(allow_nan=False)),
    (Path | None, st.none() | NAMES.map(Path)),
    (Size | None, st.none() | st.sampled_from(Size)),
]


@pytest.mark.parametrize(("hint", "values"), VALUES, ids=lambda of: str(of)[:24])
def test_what_is_written_is_read_again(hint: Any, values: st.SearchStrategy[Any]) -> None:
    assert is_settable(hint)

    @given(values)
    def check(value: Any) -> None:
        assert from_text("key", to_text(value), hint) == value

    check()


def test_other_types_cannot_be_set() -> None:
    assert not any(map(is_settable, (list[str], dict[str, str], int | str, object)))


def test_choices_are_all_that_a_type_has() -> None:
    assert choices_of(bool) == ("true", "false")
    assert choices_of(Size | None) == ("small", "large", "none")
    assert choices_of(float | None) == ()


@pytest.mark.parametrize(
    ("text", "hint", "words"),
    [
        ("none", float, "key='none' is not a number, such as 0.5"),
        ("few", float | None, "key='few' is not a number, such as 0.5, or 'none'"),
        ("nan", float, "key='nan' is not a number, such as 0.5"),
        ("1.5", int, "key='1.5' is not a whole number, such as 5"),
        ("yes", bool, "unknown value of key 'yes': valid: false, true"),
        ("smal", Size, "unknown value of key 'smal': did you mean 'small'? valid: large, small"),
    ],
)
def test_wrong_text_is_refused_with_what_is_right(text: str, hint: Any, words: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(words)}$"):
        from_text("key", text, hint)
