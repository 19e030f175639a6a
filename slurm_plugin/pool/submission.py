"""What `hetsched pool submit` leaves in a pool: a training, or a search group of them."""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hetsched_core.errors import InputError
from hetsched_core.values.records import structure
from slurm_plugin.pool.folder import Pool
from slurm_plugin.pool.records import SCHEMA, Training
from slurm_plugin.pool.user_function import check_function

MOST_CHOICES = 1000


@dataclass(frozen=True)
class Asked:
    """What is wanted, as given on the command line.

    Attributes:
        make: where the user's function is.
        rounds, scale, seed, name, weight, key: as of a `Training`; "" for what is made up.
        arguments: of every training.
        each: arguments with several values: every choice of them is a training.
    """

    make: str
    rounds: int
    scale: int = 1
    seed: int = 0
    name: str = ""
    weight: float = 1.0
    key: str = ""
    arguments: tuple[tuple[str, Any], ...] = ()
    each: tuple[tuple[str, tuple[Any, ...]], ...] = ()


@dataclass(frozen=True)
class Submitted:
    """What has come of a submission.

    Attributes:
        names: of all trainings that were asked for.
        there: those of them that the pool had already, just as they were asked for.
    """

    names: list[str]
    there: list[str]


def submit(pool: Pool, asked: Asked, now_s: float | None = None) -> Submitted:
    """Leave the trainings in the pool.

    All are looked at before the first is added. One that is there already just as it is asked for
    stays as it is, so that a submission that was interrupted may be made again.

    Raises:
        InputError: something is no good, or a name is taken by another training.
    """
    trainings = _trainings(asked, now_s or time.time())
    there = _already_there(pool, trainings)
    added: list[str] = []
    for training in trainings:
        if training.name in there:
            continue
        try:
            pool.add(training)
        except (InputError, OSError) as error:
            raise InputError(_halfway(str(error), added)) from None
        added.append(training.name)
    return Submitted([each.name for each in trainings], there)


def _trainings(asked: Asked, now_s: float) -> list[Training]:
    make = place_of(asked.make)
    function = make.rpartition(":")[2]
    _check_named_once(asked)
    each = [name for name, _ in asked.each]
    check_function(make, [*(name for name, _ in asked.arguments), *each])
    name = asked.name or f"{function}-{secrets.token_hex(4)}"
    choices = [dict(zip(each, values, strict=True)) for values in _choices(asked.each)]
    names = [f"{name}-{at:03}" for at in range(len(choices))] if asked.each else [name]
    trainings = []
    for one, choice in zip(names, choices, strict=True):
        values: Mapping[str, Any] = {
            "schema": SCHEMA,
            "name": one,
            "make": make,
            "rounds": asked.rounds,
            "scale": asked.scale,
            "seed": asked.seed,
            "weight": asked.weight,
            "arguments": {**dict(asked.arguments), **choice},
            "key": asked.key or function,
            "group": name if asked.each else "",
            "submit_s": now_s,
        }
        trainings.append(structure(values, Training))
    return trainings


def _check_named_once(asked: Asked) -> None:
    named = Counter(name for name, _ in (*asked.arguments, *asked.each))
    twice = next((name for name, times in named.items() if times > 1), None)
    if twice is not None:
        raise InputError(
            f"argument {twice!r} is given several times by --set and --each; give it once"
        )


def _already_there(pool: Pool, trainings: Sequence[Training]) -> list[str]:
    """Return which of them the pool has; raises InputError where it has others of these names."""
    taken = pool.names("trainings")
    there = [each for each in trainings if each.name in taken]
    others = [each.name for each in there if not _same(pool, each)]
    if others:
        raise InputError(
            f"{pool.path} has a training {others[0]!r} already, and another one than is asked for"
            f"{_and_more(others)}; nothing was added: name another"
        )
    return [each.name for each in there]


def _same(pool: Pool, asked: Training) -> bool:
    try:
        return replace(pool.training(asked.name), submit_s=asked.submit_s) == asked
    except InputError:
        return False


def _and_more(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _halfway(why: str, added: Sequence[str]) -> str:
    if not added:
        return f"{why}; nothing was added"
    return (
        f"{why}; {len(added)} were added before, {added[0]} to {added[-1]}: the same command adds "
        "the others"
    )


def argument(text: str) -> tuple[str, Any]:
    """Return NAME=VALUE as a name and a value, which is JSON or else text.

    Raises:
        InputError: it is of another form.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InputError(f"{text!r}: expected NAME=VALUE, such as width=64")
    return name, _value(value)


def choices_of(text: str) -> tuple[str, tuple[Any, ...]]:
    """Return NAME=VALUE,VALUE,... as a name and its values.

    Raises:
        InputError: it is of another form, or a value is empty or stands there twice.
    """
    name, equals, values = text.partition("=")
    if not equals or not name.isidentifier() or not values:
        raise InputError(f"{text!r}: expected NAME=VALUE,VALUE,..., such as rate=0.1,0.2")
    parts = values.split(",")
    if not all(parts):
        raise InputError(
            f"{text!r}: a value is empty; leave out the comma, or write an empty text as "
            f"{name}='\"\"'"
        )
    found = tuple(_value(part) for part in parts)
    alike = Counter(json.dumps(value) for value in found)
    twice = next((value for value, times in alike.items() if times > 1), None)
    if twice is not None:
        raise InputError(f"{text!r}: {twice} stands there several times; give each value once")
    return name, found


def place_of(make: str) -> str:
    """Return where a function is, for other hosts and working directories.

    Raises:
        InputError: it is of another form, or there is no such file.
    """
    place, colon, function = make.rpartition(":")
    if not colon or not function.isidentifier():
        raise InputError(
            f"{make!r}: expected path/file.py:function or package.module:function, which returns "
            "a Work"
        )
    if not place.endswith(".py"):
        return make
    if not Path(place).is_file():
        raise InputError(f"{make!r}: there is no file {Path(place).resolve()}")
    return f"{Path(place).resolve()}:{function}"


def _choices(each: Sequence[tuple[str, tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    found = list(itertools.islice(itertools.product(*(v for _, v in each)), MOST_CHOICES + 1))
    if len(found) > MOST_CHOICES:
        raise InputError(f"a search of more than {MOST_CHOICES} trainings; submit parts of it")
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
