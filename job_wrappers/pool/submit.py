"""Trainings for a pool, from Python."""

from __future__ import annotations

import inspect
import json
import secrets
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Union

from job_wrappers.executor.job import Work
from job_wrappers.pool.asked import Asked, add_all, place_of, submitted
from job_wrappers.pool.folder import PoolFolder

Make = Union[str, Callable[..., Work]]
"""A user's function, or where it is: `path/file.py:function` or `package.module:function`."""


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
        ValueError: the folder is no pool or full, a value is no good, the function takes other
            arguments, or another training has the name.
        OSError: it cannot be written.
    """
    folder = PoolFolder(Path(pool)).check()
    where = _where(make)
    _check_arguments(make, arguments or {})
    function = where.rpartition(":")[2]
    name = name or f"{function}-{secrets.token_hex(4)}"
    asked = Asked(name, where, rounds, scale, seed, arguments or {}, group, weight, key or function)
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
    where = _where(make)
    function = where.rpartition(":")[2]
    group = name or f"{function}-{secrets.token_hex(4)}"
    others["key"] = others.get("key", "") or function
    # All of them are looked at before the first is added.
    asked = [
        Asked(f"{group}-{at:03}", where, rounds, group=group, arguments=arguments, **others)
        for at, arguments in enumerate(each)
    ]
    for one in asked:
        _check_arguments(make, one.arguments)
    _add(folder, asked)
    return [one.name for one in asked]


def _add(folder: PoolFolder, asked: Sequence[Asked]) -> None:
    add_all(folder.path, asked)
    if folder.stopped:
        warnings.warn(
            f"{folder.path} has been stopped, and what is submitted waits; once it has ended, "
            f"`hetsched pool create {folder.path}` and the start of its job have it go on",
            stacklevel=3,
        )


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
        if submitted(folder.path, name) is None:
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
    arguments = (submitted(folder.path, name) or {}).get("arguments", {})
    return {**found, "state": state, "arguments": arguments}


def _where(make: Make) -> str:
    """Return where a function is, for other hosts and working directories."""
    if isinstance(make, str):
        return place_of(make)
    file = inspect.getsourcefile(make)
    if file is None or make.__qualname__ != make.__name__ or make.__name__ == "<lambda>":
        raise ValueError(f"{make!r}: expected a function at the top of a Python file")
    return f"{Path(file).resolve()}:{make.__name__}"
