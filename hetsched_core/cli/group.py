"""The group ``hetsched``, whose commands are found through entry points.

A command is a ``click.Command`` that some installed package names in the entry-point group
``hetsched.commands``. Its module is imported when the command is run, and by ``hetsched --help``
for its one line of help: so it imports only click and the standard library at the top, and numpy,
rich and the rest of hetsched inside the function. A test holds the project's own commands to that.
"""

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from hetsched_core.errors import HetschedError

GROUP = "hetsched.commands"


class _ReaderGoneError(Exception):
    """Nobody reads the output any more: click would make an exit of its own of a broken pipe."""


@contextmanager
def _told_of_readers() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise _ReaderGoneError from None


class EntryPointGroup(click.Group):
    """A click group whose commands are the entry points of ``GROUP``, each imported on demand."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Read the command line, which may print help."""
        with _told_of_readers():
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _told_of_readers():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted(entry_points(group=GROUP).names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, None where there is none, a stand-in where it cannot be imported."""
        for entry_point in entry_points(group=GROUP, name=cmd_name):
            return _load(entry_point)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments begin with, or suggest one of a like name."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None


def _load(entry_point: EntryPoint) -> click.Command:
    """Import a command; one that is broken must not take the others with it."""
    try:
        command = entry_point.load()
        if isinstance(command, click.Command):
            return command
        broken = f"{entry_point.value} is a {type(command).__name__}, not a click command"
    except Exception as error:  # whatever a module of somebody else's raises on import
        broken = f"{type(error).__name__}: {error}"
    broken = " ".join(broken.split())
    package = entry_point.dist.name if entry_point.dist else "an unnamed package"

    def refuse() -> None:
        raise HetschedError(
            f"command {entry_point.name!r} of package {package} cannot be loaded ({broken}); "
            f"reinstall or remove the package, or see the whole traceback with: "
            f"{sys.executable} -c 'import {entry_point.module}'"
        )

    return click.Command(
        entry_point.name,
        callback=refuse,
        short_help=f"(unavailable: {broken})",
        help=f"Unavailable: {broken}",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


@click.group(cls=EntryPointGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hetsched", message="%(prog)s %(version)s")
def hetsched() -> None:
    """Schedule deep-learning jobs on GPUs of several types, simulated or under Slurm."""


def run(args: Sequence[str] | None) -> int:
    """Run the command line and return its exit code; see `hetsched_core.cli.main`.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    if sys.stdout is None:
        return _fail("standard output is closed; give it a file or /dev/null")
    try:
        result = hetsched.main(args, prog_name="hetsched", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:  # click's word for an interrupt, and for any EOFError
        if isinstance(error.__cause__, EOFError):
            return _fail(f"input ended too early: {error.__cause__}")
        raise KeyboardInterrupt from None
    except (BrokenPipeError, _ReaderGoneError):
        # Without this, Python would try once more to flush, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except HetschedError as error:
        return _fail(str(error))
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        return _fail(f"{error.filename or 'standard output'}: {error.strerror}")
    # click hands back the code of ctx.exit(), or else what the command returned.
    return result if isinstance(result, int) else 0


def say_error(message: str) -> None:
    """Print one line for an error."""
    click.echo(f"hetsched: error: {' '.join(message.split())}", err=True)


def _fail(message: str) -> int:
    """Print one line for an error and return the exit code for it."""
    say_error(message)
    return 1
