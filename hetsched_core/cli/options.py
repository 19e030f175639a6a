"""What several commands check about their options before they begin."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from hetsched_core.costs import Costs, ExecutorKind
from hetsched_core.errors import InputError
from hetsched_core.values.settings import settings_declared

_Command = TypeVar("_Command", bound=Callable[..., object])


class Seconds(click.ParamType[float]):
    """A number of seconds between two bounds; what is none is wrong usage."""

    name = "seconds"

    def __init__(self, least: float, most: float) -> None:
        """Accept `least` to `most`, both included."""
        self._least = least
        self._most = most

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or fail with the bounds."""
        try:
            seconds = float(str(value))
        except ValueError:
            seconds = math.nan
        if not self._least <= seconds <= self._most:
            self.fail(
                f"{value!s:.40} is not a number of seconds from {self._least:g} to {self._most:g}",
                param,
                ctx,
            )
        return seconds


class SwitchCost(click.ParamType[ExecutorKind | float]):
    """An executor of tasks whose switching times are known, or seconds."""

    name = "executor or seconds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> ExecutorKind | float:
        """Return the executor or the number, or fail with what may be given."""
        if value in list(ExecutorKind):
            return ExecutorKind(str(value))
        if not re.fullmatch(r"[-+.\d].*", str(value)):
            self.fail(
                f"{value!s:.40} is neither {', '.join(ExecutorKind)} nor a number of seconds",
                param,
                ctx,
            )
        return Seconds(0, 86_400).convert(value, param, ctx)


COSTS = {
    "round_s": "--round",
    "restart_cost_s": "--restart-cost",
    "switch": "--switch-cost",
    "grace_s": "--grace",
    "checkpoint_s": "--checkpoint",
    "decision_s": "--decision-time",
}
"""Settings of a simulation, and the options that set them."""


def costs(command: _Command) -> _Command:
    """Add the options that set costs and the grid of a simulation, as they are declared."""
    for known in reversed(settings_declared(Costs)):
        kind = SwitchCost() if known.name == "switch" else Seconds(known.least, known.most)
        words = f"Seconds: {known.doc}."
        option = click.option(
            *(COSTS[known.name], known.name),
            type=kind,
            default=known.default,
            show_default=True,
            help=words,
        )
        command = option(command)
    return command


def require_file(option: str, path: Path | None, form: str) -> None:
    """Refuse an input that is not there or is a folder; `form` is the page of its format.

    Raises:
        InputError: the message names the option.
    """
    if path is None:
        return
    if not path.exists():
        raise InputError(f"{option} {path} does not exist; give a file of docs/formats/{form}")
    if path.is_dir():
        raise InputError(f"{option} {path} is a folder; give a file of docs/formats/{form}")


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn bad input into wrong usage: it came from the command line, not from a file."""
    try:
        yield
    except InputError as error:
        raise click.UsageError(str(error)) from None


def pairs(option: str, texts: Iterable[str], form: str = "NAME=VALUE") -> dict[str, str]:
    """Return what an option that may be repeated says: name -> value.

    Raises:
        InputError: a text is not of the form; `usage_errors` makes wrong usage of that.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{option} {text}: expected {form}")
        found[name] = value
    return found


def claim_outputs(
    inputs: Iterable[Path], files: dict[str, Path | None], folders: dict[str, Path | None]
) -> None:
    """Refuse outputs that cannot be written, or would replace an input or another output.

    A folder that is made here goes again if the command leaves it empty.

    Args:
        inputs: the files that are read.
        files: option -> file to be written, None where the option is not given.
        folders: option -> folder to be written into.

    Raises:
        InputError: the message names the option, and what to give instead.
    """
    taken = {path.resolve(): f"the input {path}" for path in inputs}
    for option, path in files.items():
        if path is None:
            continue
        if str(path) == "-":
            raise InputError(f"{option} -: standard output has the comparison; give a file")
        if other := taken.get(path.resolve()):
            raise InputError(f"{option} {path} would replace {other}; give another file")
        folder = path.absolute().parent
        if path.is_dir():
            raise InputError(f"{option} {path} is a folder; give the name of a file in it")
        if not folder.is_dir():
            raise InputError(f"{option} {path} cannot be written: there is no folder {folder}")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise InputError(
                f"{option} {path} cannot be written: permission denied; give another file"
            )
        taken[path.resolve()] = f"the output of {option}"
    for option, path in folders.items():
        if path is None:
            continue
        if path.exists() and not path.is_dir():
            raise InputError(f"{option} {path} is a file; give a folder, which need not exist yet")
        if not path.absolute().parent.is_dir():
            raise InputError(
                f"{option} {path} cannot be made: there is no folder {path.absolute().parent}"
            )
        try:
            if not path.exists():
                path.mkdir()
                click.get_current_context().call_on_close(partial(_remove_empty, path))
        except OSError as error:
            raise InputError(
                f"{option} {path} cannot be made: {error.strerror}; give another folder"
            ) from None
        if not os.access(path, os.W_OK):
            raise InputError(
                f"{option} {path} cannot be written into: permission denied; give another folder"
            )


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
