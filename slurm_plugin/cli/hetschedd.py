"""`hetschedd`: the daemon as a process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from hetsched_core.cli.options import pairs, usage_errors
from hetsched_core.errors import HetschedError
from hetsched_core.values.settings import Setting
from slurm_plugin.daemon.process.configuration import read_configuration, settings


def _overriding(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for every setting of the configuration."""
    for known in reversed(settings()):
        command = _option(known)(command)
    return command


def _option(known: Setting) -> Callable[[Callable[..., None]], Callable[..., None]]:
    usual = f"default {known.default}" if known.default else ""
    details = "; ".join(filter(None, (known.bounds, usual)))
    return click.option(
        f"--{known.name.replace('_', '-')}",
        type=click.Choice(known.choices) if known.choices else str,
        metavar=None if known.choices else "SECONDS" if known.name.endswith("_s") else "VALUE",
        help=f"{known.doc}{details and f' ({details})'}.",
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A configuration file; the options below override it. SIGHUP reads it again.",
)
@_overriding
@click.option(
    "--set",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter of the policy. Repeatable.",
)
def hetschedd(path: Path | None, parameters: tuple[str, ...], **given: str | None) -> None:
    """Schedule the GPU nodes of a Slurm cluster until told to stop (SIGTERM or SIGINT).

    Which Slurm: the one that SLURM_CONF names, or this machine's.
    """
    from slurm_plugin.daemon.process.run import serve

    overrides = {name: text for name, text in given.items() if text is not None}
    with usage_errors():
        own = pairs("--set", parameters)
    serve(lambda: read_configuration(path, overrides, own))


def main(args: Sequence[str] | None = None) -> int:
    """Run the daemon with the exit codes of `hetsched`."""
    try:
        hetschedd.main(args, prog_name="hetschedd", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except (HetschedError, OSError) as error:
        click.echo(f"hetschedd: error: {' '.join(str(error).split())}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
