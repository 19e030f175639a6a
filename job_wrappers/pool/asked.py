"""Trainings as they are asked for, and how they are left in a pool: `trainings/NAME.json`.

Both sides have this form from here: `submit` and members, who run in the user's Python, and
`slurm_plugin.pool`, the scheduler and commands. So neither it nor its package imports torch.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from job_wrappers import files

SCHEMA = "hetsched-pool/1"

NAME_FORM = "letters, digits and . _ -, the first of them a letter or digit, at most 200"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

MOST_ROUNDS = 10**6 - 1
"""A name of a state has six digits for its round."""

MOST_TASKS = 1000
"""Of a round."""

MOST_SEED = 2**63 - 1

MOST_WEIGHT = 1e9

WEIGHT_FORM = "a number above 0 and below 1e9"

MOST_BYTES = 1 << 20
"""Of a file that holds one record."""

MOST_TRAININGS = 10_000


def is_name(value: object) -> bool:
    """Whether a training or a member may be called so."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def is_weight(value: object) -> bool:
    """Whether a training may count so much."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return 0 < value < MOST_WEIGHT


@dataclass(frozen=True)
class Asked:
    """A training as it is to be left in the pool; raises ValueError for what could not run.

    Attributes:
        name: of the training.
        make: where the user's function is.
        rounds: until it is done.
        scale: tasks of a round.
        seed: of all that is random in it.
        arguments: of the function, JSON values by keyword.
        group: the search that it belongs to.
        weight: how much its completion counts.
        key: trainings of one key have tasks that take equally long.
    """

    name: str
    make: str
    rounds: int
    scale: int = 1
    seed: int = 0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""
    weight: float = 1.0
    key: str = ""

    def __post_init__(self) -> None:
        # Whatever a user gave, for it is checked nowhere before.
        given: dict[str, Any] = vars(self)
        for what in ("name", "make", "group", "key"):
            if not isinstance(given[what], str):
                raise self._wrong(what, "text")
        if not is_name(self.name):
            raise self._wrong("name", NAME_FORM)
        for what, least, most in (
            ("rounds", 1, MOST_ROUNDS),
            ("scale", 1, MOST_TASKS),
            ("seed", -MOST_SEED - 1, MOST_SEED),
        ):
            value = given[what]
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not least <= value <= most:
                raise self._wrong(what, f"a whole number from {least} to {most}")
        if not is_weight(given["weight"]):
            raise self._wrong("weight", WEIGHT_FORM)
        arguments = given["arguments"]
        if not isinstance(arguments, Mapping) or not all(isinstance(k, str) for k in arguments):
            raise self._wrong("arguments", "JSON values by keyword, which is text")
        try:
            json.dumps(dict(arguments), allow_nan=False)
        except (TypeError, ValueError) as error:
            form = f"JSON values by keyword, without NaN and infinity ({error})"
            raise self._wrong("arguments", form) from None

    def text(self, submit_s: float) -> str:
        """Return what stands in its file, submitted then (UTC).

        Raises:
            ValueError: that is too much.
        """
        text = json.dumps({"schema": SCHEMA, **self._values(), "submit_s": submit_s})
        if len(text) > MOST_BYTES:
            raise ValueError(
                f"training {self.name!r} is {len(text)} bytes; {MOST_BYTES} are the most: "
                "leave what is large in a file, and give its name as an argument"
            )
        return text

    def same(self, found: Mapping[str, Any]) -> bool:
        """Whether what stands in a training's file is this one, whenever it was submitted."""
        names = {each.name for each in fields(self)}
        if found.get("schema", SCHEMA) != SCHEMA:
            return False
        try:
            there = Asked(**{name: value for name, value in found.items() if name in names})
        except (TypeError, ValueError):
            return False
        own: dict[str, Any] = json.loads(json.dumps(self._values()))
        return there._values() == own

    def _values(self) -> dict[str, Any]:
        # JSON takes no other mapping than a dict.
        return {**vars(self), "arguments": dict(self.arguments), "weight": float(self.weight)}

    def _wrong(self, what: str, expected: str) -> ValueError:
        value = f"{getattr(self, what)!r:.200}"
        return ValueError(f"training {self.name!r}: {what} is {value}; expected {expected}")


def add_all(folder: Path, asked: Sequence[Asked]) -> list[str]:
    """Leave trainings in a pool, but for those that are there already just as they are asked for.

    All are looked at before the first is added. So what was interrupted may be asked for again.

    Args:
        folder: of the pool.
        asked: the trainings.

    Returns:
        The names of those that were there.

    Raises:
        ValueError: one is too large, its name is taken by another, or there would be too many.
        OSError: one cannot be written; says how many were added before.
    """
    now_s = time.time()
    texts: dict[str, str] = {}
    others: list[str] = []
    for one in asked:
        found = submitted(folder, one.name)
        if found is None:
            texts[one.name] = one.text(now_s)
        elif not one.same(found):
            others.append(one.name)
    if others:
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        raise ValueError(
            f"{folder} has a training {others[0]!r} already, and another one than is asked for"
            f"{more}; nothing was added: name another"
        )
    with os.scandir(folder / "trainings") as entries:
        count = sum(not entry.name.startswith(".") for entry in entries)
    if texts and count + len(texts) > MOST_TRAININGS:
        raise ValueError(
            f"{folder} has {count} trainings, and {MOST_TRAININGS} are the most; nothing was added"
        )
    added: list[str] = []
    for name, text in texts.items():
        path = folder / "trainings" / f"{name}.json"
        try:
            wrote = files.write_once(path, [text.encode()])
        except OSError as error:
            said = f"{path}: {error.strerror}; {_halfway(added)}"
            raise OSError(error.errno, said) from None
        if not wrote:
            raise ValueError(
                f"{folder} has a training {name!r} already; name another; {_halfway(added)}"
            )
        added.append(name)
    return [one.name for one in asked if one.name not in texts]


def _halfway(added: Sequence[str]) -> str:
    if not added:
        return "nothing was added"
    return (
        f"{len(added)} were added before, {added[0]} to {added[-1]}: the same command adds the "
        "others"
    )


def submitted(folder: Path, name: str) -> dict[str, Any] | None:
    """Return what stands in a training's file; None where there is none, {} where it is damaged.

    Raises:
        OSError: it cannot be read.
    """
    try:
        found = json.loads((folder / "trainings" / f"{name}.json").read_text())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def place_of(make: str) -> str:
    """Return where a function is, for other hosts and working directories.

    Raises:
        ValueError: it is of another form, or there is no such file.
    """
    place, colon, function = make.rpartition(":")
    if not colon or not function.isidentifier():
        raise ValueError(
            f"{make!r}: expected path/file.py:function or package.module:function, which returns "
            "a Work"
        )
    if not place.endswith(".py"):
        return make
    if not Path(place).is_file():
        raise ValueError(f"{make!r}: there is no file {Path(place).resolve()}")
    return f"{Path(place).resolve()}:{function}"
