"""`hetsched testbed`: a private Slurm with fake GPUs, up and down."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from slurm_plugin.testbed import Testbed

_directory = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the cluster's files are; by default /var/lib/hetsched/testbed.",
)


@click.group()
def testbed() -> None:
    """Run a private Slurm with fake GPUs on this machine.

    It takes its programs from a prefix of its own, filled from Debian's packages on first use, and
    touches no other Slurm. It needs Debian and root.
    """


@testbed.command()
@click.option(
    "--nodes", type=click.IntRange(1, 512), default=6, show_default=True, help="How many nodes."
)
@click.option(
    "--gpus",
    default="a100:4,v100:8,t4:4",
    show_default=True,
    metavar="TYPE:COUNT[+...],...",
    help="GPU types and counts, which the nodes get in turn; + joins those of one node.",
)
@click.option(
    "--partitions",
    metavar="NAME=NODES,...",
    help="Partitions, which may share nodes; the first is the default.  "
    "[default: gpu of all nodes, short of the first half]",
)
@click.option(
    "--slurm",
    type=click.Choice(["newest", "24.11"]),
    default="newest",
    show_default=True,
    help="The release of Slurm.",
)
@_directory
def up(nodes: int, gpus: str, partitions: str | None, slurm: str, directory: Path | None) -> None:
    """Start a cluster, and print what makes Slurm's commands find it.

    Use it as: eval "$(hetsched testbed up)"
    """
    from hetsched_core.cli.options import usage_errors
    from hetsched_core.errors import HetschedError
    from slurm_plugin.testbed import (
        Testbed,
        default_cache,
        default_directory,
        fake_nodes,
        install,
        parse_partitions,
        usual_site,
    )

    with usage_errors():
        wanted = fake_nodes(nodes, gpus)
        named = parse_partitions(partitions, wanted) if partitions else ()
    site = usual_site(wanted, named)
    installed = install(default_cache(), lambda line: click.echo(line, err=True), slurm)
    if installed.why_no_pyslurm:
        click.echo(f"without pyslurm: {installed.why_no_pyslurm}", err=True)
    cluster = Testbed.create(installed, directory or default_directory(), site)
    if cluster.why_no_options:
        click.echo(
            f"only #HETSCHED lines, no options of sbatch: {cluster.why_no_options}", err=True
        )
    try:
        cluster.up()
    except HetschedError as error:
        raise type(error)(
            f"{error}; its files are kept, remove them with: hetsched testbed down"
        ) from None
    version = ".".join(map(str, installed.version))
    click.echo(f"Slurm {version} with {nodes} nodes runs in {cluster.layout.base}", err=True)
    for name, value in cluster.environment().items():
        click.echo(f"export {name}={shlex.quote(value)}")


@testbed.command()
@_directory
def down(directory: Path | None) -> None:
    """Stop the cluster and remove its files."""
    cluster = _find(directory)
    cluster.down()
    click.echo(f"the testbed in {cluster.layout.base} is down and its files are gone", err=True)


@testbed.command()
@_directory
def status(directory: Path | None) -> None:
    """Print what runs: the daemons, and each node with its GPUs."""
    from slurm_plugin.testbed import TestbedError

    cluster = _find(directory)
    found = cluster.status()
    for name, runs in found.daemons:
        if not name.startswith("slurmd "):
            click.echo(f"{name:<10} {'up' if runs else 'down'}")
    for (node, state), (_, runs) in zip(
        found.nodes, found.daemons[-len(found.nodes) :], strict=True
    ):
        shown = state or ("up" if runs else "down")
        gpus = "+".join(f"{kind}:{count}" for kind, count in node.kinds)
        click.echo(f"{node.name:<10} {gpus}  {shown}")
    if not found.up:
        raise TestbedError(
            f"not all of the testbed runs; see {cluster.layout.logs}, or begin anew with: "
            "hetsched testbed down && hetsched testbed up"
        )


@testbed.command()
def demo() -> None:
    """Show six jobs being placed and moved, on a cluster of three nodes, in a minute."""
    from slurm_plugin.testbed import default_cache, install
    from slurm_plugin.testbed.demo import show

    show(install(default_cache(), click.echo), click.echo)


def _find(directory: Path | None) -> Testbed:
    from slurm_plugin.testbed import Testbed, default_directory

    return Testbed.find(directory or default_directory())
