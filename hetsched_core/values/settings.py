"""Settings, each declared once: its type, default, bounds and meaning.

Settings are fields of a dataclass. Options of commands, checks, files, manual pages and what
policies list as their parameters are made from the declarations.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, get_type_hints

from hetsched_core.errors import InputError
from hetsched_core.values.text import choices_of, to_text


def setting(default: Any, doc: str, *, least: float = -math.inf, most: float = math.inf) -> Any:
    """Declare a setting as a dataclass field: its default, its meaning, and its bounds if any.

    One that is set from text is of a type that `hetsched_core.values.text` reads: a bool, int,
    float, str, Path or Enum, or one of these or None, which is written `none`.
    `dataclasses.MISSING` as the default makes it one that has to be given.
    """
    return dataclasses.field(default=default, metadata={"doc": doc, "least": least, "most": most})


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as declared; `default` is its text, `choices` are those of an Enum."""

    name: str
    hint: Any
    default: str
    doc: str
    choices: tuple[str, ...] = ()
    least: float = -math.inf
    most: float = math.inf

    @property
    def bounds(self) -> str:
        """What values it may have, such as `0 to 86400`; "" without bounds."""
        return "" if self.least == -math.inf else f"{self.least:.12g} to {self.most:.12g}"


def settings_declared(cls: type) -> tuple[Setting, ...]:
    """Return the settings of a dataclass, in the order in which they are declared."""
    hints = get_type_hints(cls)
    return tuple(
        Setting(
            field.name,
            hints[field.name],
            to_text(field.default),
            field.metadata["doc"],
            choices_of(hints[field.name]),
            field.metadata["least"],
            field.metadata["most"],
        )
        for field in dataclasses.fields(cls)
        if "doc" in field.metadata
    )


def check_bounds(settings: object) -> None:
    """Refuse a dataclass instance whose settings are out of their bounds.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, field.name)
        if "doc" not in field.metadata or not isinstance(value, int | float):
            continue
        least, most = field.metadata["least"], field.metadata["most"]
        if not least <= value <= most:
            raise InputError(f"{field.name} = {value} is not within {least:g} and {most:g}")
