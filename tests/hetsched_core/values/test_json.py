"""Values as JSON can hold them."""

import math

import pytest

from hetsched_core.types import Purpose, RequirementSet
from hetsched_core.values.json import plain, strict_json


def test_values_become_what_json_can_hold() -> None:
    values = {1: math.inf, "kind": Purpose.RUN, "set": frozenset({"b", "a"}), "tuple": (1, None)}
    assert plain(values) == {"1": "inf", "kind": "run", "set": ["a", "b"], "tuple": [1, None]}
    assert plain(RequirementSet((1, 2))) == "1,2"


def test_what_python_reads_and_json_does_not_have_is_refused() -> None:
    for text in ("NaN", "[1, -Infinity]", '{"a": Infinity}'):
        with pytest.raises(ValueError, match=r"(NaN|Infinity) is no number"):
            strict_json(text)
    assert strict_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
