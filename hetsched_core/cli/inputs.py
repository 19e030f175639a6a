"""Options that say what to replay and where, the same for every command that takes a workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hetsched_core.cli.options import require_file, usage_errors

if TYPE_CHECKING:
    from hetsched_core.traces.cluster_file import ClusterFile
    from hetsched_core.traces.load import LoadOptions
    from hetsched_core.traces.sacct import SacctOptions

FILE = click.Path(path_type=Path, readable=False)


class _Log(click.Path):
    """A file to read, where - is the standard input, as elsewhere."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        return super().convert("/dev/stdin" if value == "-" else value, param, ctx)


LOG = _Log(path_type=Path, readable=False)

_Command = TypeVar("_Command", bound=Callable[..., object])

_LOG_OPTIONS = (
    click.option(
        "--tz",
        metavar="ZONE",
        help="Time zone of times in logs and reservations, such as Europe/Oslo.",
    ),
    click.option("--sacct-fields", metavar="NAMES", help="Columns of a log without header."),
    click.option("--sacct-delimiter", metavar="TEXT", help="What separates the columns of a log."),
)

_OPTIONS = (
    click.option(
        "--cluster",
        type=FILE,
        help="cluster.toml of the nodes; inferred from an accounting log where it is not given.",
    ),
    click.option(
        "--rules", type=FILE, help="TOML file of what a log does not tell: which jobs run what."
    ),
    click.option(
        "--throughputs",
        type=FILE,
        help="Gavel's JSON of measured speeds: a log's jobs run its models, not the built-in ones.",
    ),
    click.option(
        "--elastic",
        is_flag=True,
        help="Let jobs of a log run on half, all and twice their GPUs, not just as logged.",
    ),
    click.option(
        "--types",
        type=click.Choice(["asked", "logged"]),
        default="asked",
        show_default=True,
        help="GPU types of a log's jobs: those asked for, or the one that each ran on, so that "
        "waiting alone differs.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Seed of everything that is drawn.",
    ),
    *_LOG_OPTIONS,
)


def site_option(command: _Command) -> _Command:
    """Add the option of files in which Slurm tells of shares, QOS, limits and the like."""
    return click.option(
        "--site",
        type=FILE,
        multiple=True,
        help="Output of: sacctmgr -P show assoc, sacctmgr -P show qos, sshare -a -P, scontrol show "
        "partition, or scontrol show reservation; may be given several times.",
    )(command)


def text_of(path: Path) -> str:
    """Return what stands in a file that Slurm printed.

    Raises:
        InputError: It cannot be read.
    """
    from hetsched_core.errors import InputError

    try:
        # What is not UTF-8 can only be in a comment or reason, which nobody reads.
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; give another file") from None


def workload_options(command: _Command) -> _Command:
    """Add the options; their values are for `read_options`."""
    return _with(_OPTIONS, command)


def log_options(command: _Command) -> _Command:
    """Add those of accounting logs alone; their values are for `sacct_options`."""
    return _with(_LOG_OPTIONS, command)


def _with(options: Sequence[Callable[[_Command], _Command]], command: _Command) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


def sacct_options(
    tz: str | None, sacct_fields: str | None, sacct_delimiter: str | None
) -> SacctOptions:
    """Return what the values of the options of logs mean.

    Raises:
        click.UsageError: The value of an option cannot be used.
    """
    from hetsched_core.traces.sacct import SacctOptions, parse_fields, parse_zone

    with usage_errors():
        return SacctOptions(
            fields=parse_fields(sacct_fields) if sacct_fields else None,
            delimiter=sacct_delimiter,
            zone=parse_zone(tz) if tz is not None else None,
        )


def read_options(
    *,
    cluster: Path | None,
    rules: Path | None,
    throughputs: Path | None,
    elastic: bool,
    types: str,
    seed: int,
    **of_logs: str | None,
) -> tuple[ClusterFile | None, LoadOptions]:
    """Return what the values of the options mean: arguments of `load_workload`.

    Raises:
        InputError: A file or the value of an option cannot be used.
    """
    from hetsched_core.traces.cluster_file import read_cluster
    from hetsched_core.traces.load import LoadOptions

    require_file("--cluster", cluster, "cluster.md")
    require_file("--rules", rules, "rules.md")
    require_file("--throughputs", throughputs, "gavel.md")
    sacct = sacct_options(**of_logs)
    return (
        read_cluster(cluster) if cluster else None,
        LoadOptions(
            rules=rules,
            throughputs=throughputs,
            seed=seed,
            elastic=elastic,
            logged_types=types == "logged",
            sacct=sacct,
        ),
    )
