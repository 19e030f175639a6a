"""`hetsched config`: look at the daemon's configuration, and check it before it is used."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def config() -> None:
    """Look at the daemon's configuration, and check it before it is used."""


@config.command()
@click.argument("file", type=_FILE, required=False)
def show(file: Path | None) -> None:
    """Print FILE with every setting, its meaning and bounds; without FILE, an example.

    What has its default is commented out.
    """
    from slurm_plugin.daemon.process.configuration import read_configuration, to_toml

    click.echo(to_toml(None if file is None else read_configuration(file)), nl=False)


@config.command()
@click.argument("file", type=_FILE)
def check(file: Path) -> None:
    """Say whether the daemon would take FILE.

    Slurm is asked for its partitions; where it does not answer, they are not looked at. The kernels
    of the policy and of its estimates are compiled, so that the daemon need not.
    """
    from hetsched_core.errors import InputError
    from hetsched_core.kernels import compile_imported
    from hetsched_core.policy import make_policy
    from slurm_plugin.backend import BackendError, open_backend
    from slurm_plugin.daemon import check_fit
    from slurm_plugin.daemon.process.configuration import read_configuration
    from slurm_plugin.daemon.process.folders import folder_of, missing_folders
    from slurm_plugin.daemon.site_warnings import check_partitions
    from slurm_plugin.daemon.spool.spool import checked

    configuration = read_configuration(file)
    for found in missing_folders(configuration):
        raise InputError(f"{file}: {found}")
    if configuration.spool is not None:
        # Root asks for the daemon's user, which owns the database's folder.
        folder = folder_of(configuration, "database")
        checked(configuration.spool, [folder.stat().st_uid] if folder.is_dir() else [])
    check_fit(make_policy(configuration.policy, configuration.parameters))
    compile_imported()
    # Slurm need not be here to check a file.
    with suppress(BackendError):
        check_partitions(open_backend(configuration.backend.value), configuration)
    kinds = (("partitions", sorted(configuration.partitions)), ("nodes", [configuration.nodes]))
    managed = ", ".join(f"{kind} {', '.join(names)}" for kind, names in kinds if any(names))
    click.echo(f"{file}: policy {configuration.policy}, {configuration.mode.value} mode, {managed}")
