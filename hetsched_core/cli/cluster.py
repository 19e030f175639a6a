"""`hetsched cluster`: describe a cluster from what Slurm prints, make one up, show one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hetsched_core.cli.inputs import LOG, log_options, sacct_options, site_option, text_of
from hetsched_core.cli.options import pairs, usage_errors

if TYPE_CHECKING:
    from hetsched_core.traces.node_types import NodeTypes

_FILE = click.Path(path_type=Path)


@click.group()
def cluster() -> None:
    """Describe a cluster, or show a description."""


@cluster.command()
@click.option(
    "--log",
    "logs",
    type=LOG,
    multiple=True,
    help="Accounting as sacct writes it, text or JSON; may be given several times.",
)
@click.option("--scontrol", type=LOG, help="Output of: scontrol show nodes.")
@click.option("--sinfo", type=LOG, help="Output of: sinfo -N -o '%N %G %c %m'.")
@site_option
@log_options
@click.option(
    "--node-type",
    "node_types",
    metavar="NODES=TYPE",
    multiple=True,
    help="Type of GPUs that no source names, as in 'gpu-[1-4]=a100' or 'a100gpu*=a100'; may be "
    "given several times, the first match counts.",
)
@click.option("--name", default="cluster", show_default=True, help="Name of the cluster.")
def infer(
    logs: tuple[Path, ...],
    scontrol: Path | None,
    sinfo: Path | None,
    site: tuple[Path, ...],
    node_types: tuple[str, ...],
    name: str,
    **of_logs: str | None,
) -> None:
    """Print a cluster.toml made of one source or several.

    What scontrol says of a node goes before sinfo, and sinfo before the logs. What was assumed is
    said in comments: check them. A path of - reads the standard input. Shares, QOS,
    limits, partitions and maintenance come from --site.
    """
    if not (logs or scontrol or sinfo):
        raise click.UsageError("give at least one of --log, --scontrol and --sinfo")

    from hetsched_core.traces.cluster_file import ClusterFile, format_cluster
    from hetsched_core.traces.infer_cluster import infer_cluster
    from hetsched_core.traces.sacct import read_sacct
    from hetsched_core.traces.slurm_nodes import read_scontrol, read_sinfo
    from hetsched_core.traces.slurm_site import read_site

    with usage_errors():
        rules = _rules(node_types)
    options = sacct_options(**of_logs)
    said = read_site(((str(path), text_of(path)) for path in site), options.zone)
    read = [read_sacct(log, options) for log in logs]
    inferred = infer_cluster(
        (allocation for log in read for allocation in log),
        read_scontrol(text_of(scontrol), str(scontrol)) if scontrol else (),
        read_sinfo(text_of(sinfo), str(sinfo)) if sinfo else (),
        rules,
        name,
    )
    sources = [str(log.report) for log in read]
    found = said.added_to(ClusterFile(inferred.cluster))
    text = format_cluster(found, [*sources, *inferred.assumptions, *said.notes])
    click.echo(text, nl=False)


@cluster.command()
@click.option("--gpus", type=click.IntRange(min=1), required=True, help="GPUs in all nodes.")
@click.option(
    "--types",
    metavar="NAMES",
    required=True,
    help="GPU types, separated by commas; each gets as many nodes as any other.",
)
@click.option(
    "--gpus-per-node", type=click.IntRange(min=1), default=8, show_default=True, help="GPUs a node."
)
@click.option("--name", default="synthetic", show_default=True, help="Name of the cluster.")
def generate(gpus: int, types: str, gpus_per_node: int, name: str) -> None:
    """Print a cluster.toml of so many GPUs, for generated workloads.

    CPUs and memory are not counted on its nodes.
    """
    from hetsched_core.traces.cluster_file import ClusterFile, format_cluster
    from hetsched_core.traces.synthetic.cluster import synthetic_cluster

    names = [part.strip() for part in types.split(",") if part.strip()]
    made = synthetic_cluster(gpus, names, gpus_per_node, name)
    click.echo(format_cluster(ClusterFile(made)), nl=False)


@cluster.command()
@click.argument("file", type=_FILE)
def show(file: Path) -> None:
    """Print the nodes that a cluster.toml describes, and its GPUs by type."""
    from hetsched_core.traces.cluster_file import fold, format_memory, read_cluster

    described = read_cluster(file)
    nodes = described.cluster
    rows = [("NODELIST", "HOSTS", "NODES", "GPU_TYPE", "GPUS", "CPUS", "MEMORY", "GROUP")]
    rows += [
        (
            part.nodes,
            part.hosts or "-",
            str(part.count),
            part.gpu_type,
            str(part.gpus),
            str(part.cpus or "-"),
            format_memory(part.memory_mb) if part.memory_mb else "-",
            part.group or "-",
        )
        for part in fold(nodes)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
    types = ", ".join(f"{count} {gpu_type}" for gpu_type, count in nodes.gpus_by_type().items())
    hosts = len({node.host for node in nodes})
    click.echo(f"\n{nodes.name}: {nodes.gpus} GPUs on {hosts} hosts: {types}")
    for pattern, gpu_type in described.node_types.rules:
        click.echo(f"untyped GPUs on {pattern}: {gpu_type}")


def _rules(texts: tuple[str, ...]) -> NodeTypes:
    """Read the values of --node-type."""
    from hetsched_core.traces.node_types import NodeTypes

    given = pairs("--node-type", texts, "NODES=TYPE")
    return NodeTypes.of({nodes.strip(): gpu_type.strip() for nodes, gpu_type in given.items()})
