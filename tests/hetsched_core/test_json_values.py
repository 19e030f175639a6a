"""Values as JSON can hold them."""

import math

from hetsched_core.json_values import plain
from hetsched_core.types import Purpose, RequirementSet


def test_values_become_what_json_can_hold() -> None:
    values = {1: math.inf, "kind": Purpose.RUN, "set": frozenset({"b", "a"}), "tuple": (1, None)}
    assert plain(values) == {"1": "inf", "kind": "run", "set": ["a", "b"], "tuple": [1, None]}
    assert plain(RequirementSet((1, 2))) == "1,2"
