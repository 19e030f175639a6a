"""Trainings for a pool, from Python."""

from __future__ import annotations

import inspect
import json
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Callable, Union

from job_wrappers.executor.job import TaskJob, Work
from job_wrappers.pool.folder import PoolFolder

MOST_ROUNDS = 10**6

MOST_TASKS = 1000

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
        ValueError: the folder is no pool, or a value is no good.
        OSError: it cannot be written.
    """
    folder = PoolFolder(Path(pool)).check()
    where = place_of(make)
    function = where.rpartition(":")[2]
    name = name or f"{function}-{secrets.token_hex(4)}"
    job = TaskJob(name, where, rounds, scale, seed, dict(arguments or {}))
    if job.rounds >= MOST_ROUNDS or job.scale > MOST_TASKS:
        raise ValueError(
            f"job {name}: {rounds} rounds of {scale} tasks; expected fewer than {MOST_ROUNDS} of "
            f"{MOST_TASKS} at most"
        )
    if not 0 < weight < 1e9:
        raise ValueError(f"job {name}: weight {weight}; expected more than 0")
    values = {
        "name": name,
        "make": where,
        "rounds": rounds,
        "scale": scale,
        "seed": seed,
        "arguments": job.arguments,
        "group": group,
        "weight": float(weight),
        "key": key or function,
        "submit_s": time.time(),
    }
    try:
        folder.add(values)
    except TypeError as error:
        raise ValueError(f"job {name}: arguments {dict(job.arguments)}: {error}") from None
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
    """
    group = name or f"{place_of(make).rpartition(':')[2]}-{secrets.token_hex(4)}"
    return [
        submit(
            *(pool, make),
            rounds=rounds,
            name=f"{group}-{at:03}",
            group=group,
            arguments=arguments,
            **others,
        )
        for at, arguments in enumerate(each)
    ]


def result(pool: str | Path, name: str) -> dict[str, Any] | None:
    """Return how a training ended; None while it has not.

    Returns:
        `failed` says why, "" where it did not; `state` is the file of its last round
        (`job_wrappers.tensor_file.read`), `losses` of its rounds.
    """
    try:
        text = (Path(pool) / "results" / f"{name}.json").read_text()
    except FileNotFoundError:
        return None
    found: dict[str, Any] = json.loads(text)
    return found


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
