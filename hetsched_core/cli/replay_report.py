"""The report of `hetsched replay`: what only the command line knows of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC
from pathlib import Path

import click
from click.core import ParameterSource

from hetsched_core.errors import InputError
from hetsched_core.policy import PolicyInfo
from hetsched_core.report.history import History, LoggedHistory
from hetsched_core.report.result import Result
from hetsched_core.traces.sacct import parse_zone

_EXTRA = ("jinja2", "markupsafe", "matplotlib")
_NOT_REPORTED = ("json_file", "run_logs", "rejects", "tell_accounts")


def require_report(what: str = "--report") -> None:
    """Refuse, before the work and not after it, to make `what` without what draws it.

    Raises:
        InputError: the extra `report` is not installed.
    """
    try:
        import hetsched_core.report.page  # noqa: F401
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in _EXTRA:
            raise
        raise InputError(
            f"{what} needs {missing}, which is not installed: pip install 'hetsched[report]'"
        ) from None


def write_report(
    result: Result,
    policies: Mapping[str, PolicyInfo],
    histories: Sequence[History],
    logged: LoggedHistory | None,
    folder: Path,
) -> None:
    """Write the report of the running command into a folder, and say on standard error where.

    Raises:
        InputError: the file cannot be written.
    """
    from hetsched_core.report import page

    context = click.get_current_context()
    given = context.params
    sources = [*given["logs"], *filter(None, (given["cluster"], given["rules"]))]
    path = page.write_report(
        page.Report(
            result=result,
            policies=policies,
            histories=tuple(histories),
            files=tuple(map(page.SourceFile.of, sources)),
            command=command_line(context),
            zone=parse_zone(given["tz"]) if given["tz"] else UTC,
            logged=logged,
        ),
        folder,
    )
    click.echo(f"report: {path} ({path.stat().st_size / 1024:.0f} KiB)", err=True)


def command_line(context: click.Context) -> str:
    """Return the command that makes the same report in a folder `DIR`, without other outputs."""
    words = ["hetsched", "replay", *map(str, context.params["logs"])]
    for option in context.command.params:
        name = str(option.name)
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not given or name in _NOT_REPORTED or isinstance(option, click.Argument):
            continue
        value = "DIR" if name == "report_folder" else context.params[name]
        if value is True:
            words.append(option.opts[0])
        else:
            for each in value if isinstance(value, tuple) else (value,):
                words += [option.opts[0], str(each)]
    return shlex.join(words)
