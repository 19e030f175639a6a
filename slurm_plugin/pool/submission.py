"""What `hetsched pool submit` leaves in a pool: a training, or a search group of them."""

from __future__ import annotations

import itertools
import json
import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hetsched_core.errors import InputError
from job_wrappers.pool.asked import Asked, add_all, place_of
from slurm_plugin.pool.folder import Pool
from slurm_plugin.pool.user_function import check_function

MOST_CHOICES = 1000


def submit(
    pool: Pool,
    make: str,
    *,
    name: str = "",
    key: str = "",
    arguments: Sequence[tuple[str, Any]] = (),
    each: Sequence[tuple[str, tuple[Any, ...]]] = (),
    **how: Any,
) -> tuple[list[str], list[str]]:
    """Leave trainings in the pool, as `add_all` does.

    Args:
        pool: the pool.
        make: where the user's function is.
        name: of the training or the search; one is made up if it is "".
        key: the function's name if it is "".
        arguments: of every training.
        each: arguments with several values: every choice of them is a training.
        how: what else an `Asked` has.

    Returns:
        The names of the trainings, and of those that were there already just as they are asked for.

    Raises:
        InputError: something is no good, a name is taken by another training, or one cannot be
            written.
    """
    given = [one for one, _ in (*arguments, *each)]
    _check_named_once(given)
    try:
        make = place_of(make)
        check_function(make, given)
        function = make.rpartition(":")[2]
        name = name or f"{function}-{secrets.token_hex(4)}"
        asked = [
            Asked(
                *(f"{name}-{at:03}" if each else name, make),
                arguments={**dict(arguments), **choice},
                group=name if each else "",
                key=key or function,
                **how,
            )
            for at, choice in enumerate(_choices(each))
        ]
        return [one.name for one in asked], add_all(pool.path, asked)
    except (ValueError, OSError) as error:
        # An OSError that says which file puts its number before that.
        raise InputError(getattr(error, "strerror", None) or str(error)) from None


def _check_named_once(names: Sequence[str]) -> None:
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise InputError(
            f"argument {twice!r} is given several times by --set and --each; give it once"
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


def _choices(each: Sequence[tuple[str, tuple[Any, ...]]]) -> list[dict[str, Any]]:
    names = [name for name, _ in each]
    found = list(itertools.islice(itertools.product(*(v for _, v in each)), MOST_CHOICES + 1))
    if len(found) > MOST_CHOICES:
        raise InputError(f"a search of more than {MOST_CHOICES} trainings; submit parts of it")
    return [dict(zip(names, values, strict=True)) for values in found]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
