"""Trainings for a pool, from Python."""

from __future__ import annotations

import inspect
import json
import re
import secrets
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Union

from job_wrappers.executor.job import TaskJob, Work
from job_wrappers.pool.folder import PoolFolder

MOST_ROUNDS = 10**6

MOST_TASKS = 1000

MOST_SEED = 2**63 - 1

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

Make = Union[str, Callable[..., Work]]
"""A user's function, or where it is: `path/file.py:function` or `package.module:function`."""


@dataclass(frozen=True)
class _Asked:
    """A training as it is to be left in the pool; raises ValueError for what could not run."""

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
        for what in ("name", "group", "key"):
            if not isinstance(given[what], str):
                raise self._wrong(what, "text")
        if not _NAME.fullmatch(self.name):
            form = "letters, digits and . _ -, the first of them a letter or digit, at most 200"
            raise self._wrong("name", form)
        for what, least, most in (
            ("rounds", 1, MOST_ROUNDS - 1),
            ("scale", 1, MOST_TASKS),
            ("seed", -MOST_SEED - 1, MOST_SEED),
        ):
            value = given[what]
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not least <= value <= most:
                raise self._wrong(what, f"a whole number from {least} to {most}")
        weight = given["weight"]
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not number or not 0 < weight < 1e9:
            raise self._wrong("weight", "a number above 0 and below 1e9")
        arguments = given["arguments"]
        if not isinstance(arguments, Mapping) or not all(isinstance(k, str) for k in arguments):
            raise self._wrong("arguments", "JSON values by keyword, which is text")
        try:
            json.dumps(dict(arguments), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise self._wrong("arguments", f"JSON values by keyword ({error})") from None
        TaskJob(self.name, self.make, self.rounds, self.scale, self.seed)

    def values(self) -> dict[str, Any]:
        """Return what stands in its file."""
        # JSON takes no other mapping than a dict.
        arguments, weight = dict(self.arguments), float(self.weight)
        return {**vars(self), "arguments": arguments, "weight": weight, "submit_s": time.time()}

    def same(self, found: Mapping[str, Any]) -> bool:
        """Whether a training that is there is this one, whenever it was submitted."""
        own: dict[str, Any] = json.loads(json.dumps(self.values()))
        return all(found.get(key) == value for key, value in own.items() if key != "submit_s")

    def _wrong(self, what: str, expected: str) -> ValueError:
        value = f"{getattr(self, what)!r:.200}"
        return ValueError(f"training {self.name!r}: {what} is {value}; expected {expected}")


def submit(
    pool: str | Path,
    make: Make,
    *,
    rounds: int,
    name: str = "",
    scale: int = 1,
    seed: int = 0,
    arguments: Mapping[str, Any] | None = None,
    group: str = "",
    weight: float = 1.0,
    key: str = "",
) -> str:
    """Add a training to a pool and return its name.

    One that is there already, just as it is asked for, stays as it is: a script that was
    interrupted may be run again. One that has ended does not begin anew.

    Args:
        pool: the folder of the pool.
        make: returns the training's `Work`, given `arguments`.
        rounds: until it is done.
        name: of letters, digits and `.`, `_`, `-`; one is made of the function's name if it is "".
        scale: tasks of a round.
        seed: of all that is random in it.
        arguments: JSON values by keyword.
        group: the search that it belongs to.
        weight: how much its completion counts.
        key: trainings of one key have tasks that take equally long; the function's name if it is
            "".

    Raises:
        ValueError: the folder is no pool, a value is no good, the function takes other arguments,
            or another training has the name.
        OSError: it cannot be written.
    """
    folder = PoolFolder(Path(pool)).check()
    where = place_of(make)
    _check_arguments(make, arguments or {})
    function = where.rpartition(":")[2]
    name = name or f"{function}-{secrets.token_hex(4)}"
    asked = _Asked(
        *(name, where, rounds, scale, seed, arguments or {}, group, weight),
        key=key or function,
    )
    _add(folder, [asked])
    return name


def search(
    pool: str | Path,
    make: Make,
    each: Iterable[Mapping[str, Any]],
    *,
    rounds: int,
    name: str = "",
    **others: Any,
) -> list[str]:
    """Add a search group: one training for each choice of arguments; return their names.

    Args:
        pool: the folder of the pool.
        make: as of `submit`.
        each: the arguments of each training.
        rounds: of each.
        name: of the group; trainings are called `NAME-000` and so on.
        others: as of `submit`, for all of them.

    Raises:
        ValueError: as of `submit`; none was added then.
        OSError: one cannot be written; those before it were added, and the same call adds the rest.
    """
    folder = PoolFolder(Path(pool)).check()
    where = place_of(make)
    function = where.rpartition(":")[2]
    group = name or f"{function}-{secrets.token_hex(4)}"
    others["key"] = others.get("key", "") or function
    # All of them are looked at before the first is added.
    asked = [
        _Asked(f"{group}-{at:03}", where, rounds, group=group, arguments=arguments, **others)
        for at, arguments in enumerate(each)
    ]
    for one in asked:
        _check_arguments(make, one.arguments)
    _add(folder, asked)
    return [one.name for one in asked]


def _add(folder: PoolFolder, asked: Sequence[_Asked]) -> None:
    """Leave trainings, but for those that are there already as they are asked for."""
    missing, others = [], []
    for one in asked:
        found = _submitted(folder, one.name)
        if found is None:
            missing.append(one)
        elif not one.same(found):
            others.append(one.name)
    if others:
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        raise ValueError(
            f"{folder.path} has a training {others[0]!r} already, and another one than is asked "
            f"for{more}; nothing was added: name another"
        )
    for one in missing:
        folder.add(one.values())
    if folder.stopped:
        warnings.warn(
            f"{folder.path} has been stopped, and what is submitted waits; once it has ended, "
            f"`hetsched pool create {folder.path}` and the start of its job have it go on",
            stacklevel=3,
        )


def _submitted(folder: PoolFolder, name: str) -> dict[str, Any] | None:
    """Return what stands in a training's file, None where there is none."""
    try:
        found = json.loads((folder.path / "trainings" / f"{name}.json").read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _check_arguments(make: Make, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that a function does not take; what is given as text is not looked at."""
    if isinstance(make, str):
        return
    try:
        # What a decorator has wrapped may take others than the decorator.
        signature = inspect.signature(make, follow_wrapped=False)
    except ValueError:
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        given = ", ".join(arguments) or "none"
        raise ValueError(
            f"{make.__name__}{signature}: {error}; it was given these arguments: {given:.200}"
        ) from None


def result(pool: str | Path, name: str) -> dict[str, Any] | None:
    """Return how a training ended; None while it has not.

    Returns:
        `failed` says why, "" where it did not; `state` is the path of its last round's file, for
        `job_wrappers.tensor_file.read`; `losses` are those of its rounds, and `arguments` what the
        function was given.

    Raises:
        ValueError: the folder is no pool or has no such training, or the result is damaged.
    """
    folder = PoolFolder(Path(pool)).check()
    path = folder.path / "results" / f"{name}.json"
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        if _submitted(folder, name) is None:
            raise ValueError(
                f"{folder.path} has no training {name!r}; `hetsched pool status {folder.path}` "
                "lists those that it has"
            ) from None
        return None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("state"), str):
        raise ValueError(f"{path} is damaged: it is no result")
    state = str((folder.path / found["state"]).resolve()) if found["state"] else ""
    arguments = (_submitted(folder, name) or {}).get("arguments", {})
    return {**found, "state": state, "arguments": arguments}


def place_of(make: Make) -> str:
    """Return where a function is, for other hosts and working directories.

    Raises:
        ValueError: it is not at the top of a file or module, or there is no such file.
    """
    if not isinstance(make, str):
        file = inspect.getsourcefile(make)
        if file is None or make.__qualname__ != make.__name__ or make.__name__ == "<lambda>":
            raise ValueError(f"{make!r}: expected a function at the top of a Python file")
        return f"{Path(file).resolve()}:{make.__name__}"
    place, colon, function = make.rpartition(":")
    if not colon or not function.isidentifier():
        raise ValueError(f"{make!r}: expected path/file.py:function or package.module:function")
    if not place.endswith(".py"):
        return make
    if not Path(place).is_file():
        raise ValueError(f"{make!r}: there is no file {Path(place).resolve()}")
    return f"{Path(place).resolve()}:{function}"
