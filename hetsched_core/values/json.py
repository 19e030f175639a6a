"""Values as JSON can hold them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any


def plain(value: object) -> Any:
    """Return a value in JSON's own types; what JSON cannot hold becomes text."""
    match value:
        case Enum():
            return plain(value.value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case set() | frozenset():
            return sorted((plain(item) for item in value), key=str)
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which are no JSON though Python reads them: a `parse_constant`."""
    raise ValueError(f"{name} is no number")


_STRICT = json.JSONDecoder(parse_constant=refuse_constant)


def strict_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: It is no JSON; NaN and Infinity are none.
        RecursionError: It is nested too deep.
    """
    return _STRICT.decode(text)
