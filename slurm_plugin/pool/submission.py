"""What `hetsched pool submit` leaves in a pool: a training, or a search group of them."""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetsched_core.errors import InputError
from hetsched_core.values.records import structure
from slurm_plugin.pool.folder import Pool
from slurm_plugin.pool.records import SCHEMA, Training

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


def submit(pool: Pool, asked: Asked, now_s: float | None = None) -> list[str]:
    """Leave the trainings in the pool and return their names.

    Raises:
        InputError: something is no good, or a name is taken.
    """
    make = place_of(asked.make)
    function = make.rpartition(":")[2]
    name = asked.name or f"{function}-{secrets.token_hex(4)}"
    choices = [dict(zip(dict(asked.each), values, strict=True)) for values in _choices(asked.each)]
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
            "submit_s": now_s or time.time(),
        }
        trainings.append(structure(values, Training))
    for training in trainings:
        pool.add(training)
    return names


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
        InputError: it is of another form.
    """
    name, equals, values = text.partition("=")
    if not equals or not name.isidentifier() or not values:
        raise InputError(f"{text!r}: expected NAME=VALUE,VALUE,..., such as rate=0.1,0.2")
    return name, tuple(_value(value) for value in values.split(","))


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
