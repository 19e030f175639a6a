"""`hetschedd`: the daemon as a process."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from slurm_plugin.backend import Change
    from slurm_plugin.daemon import CycleReport, Daemon


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--policy", default="fifo", show_default=True, help="Which policy schedules.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter of the policy. Repeatable.",
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    required=True,
    help="A partition whose marked jobs are managed. Repeatable.",
)
@click.option(
    "--mode",
    type=click.Choice(["shadow", "enforce"]),
    default="shadow",
    show_default=True,
    help="shadow plans and records and changes nothing in Slurm.",
)
@click.option(
    "--backend",
    type=click.Choice(["pyslurm", "commands"]),
    default="pyslurm",
    show_default=True,
    help="How to speak to Slurm.",
)
@click.option(
    "--database",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="Where decisions are recorded; one daemon at a time holds it.",
)
@click.option(
    "--cycle",
    "cycle_s",
    type=click.FloatRange(0.05, 60.0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time from one look at Slurm to the next.",
)
@click.option(
    "--round",
    "round_s",
    type=click.FloatRange(1.0, 86_400.0),
    default=360.0,
    show_default=True,
    metavar="SECONDS",
    help="Length of a scheduling round.",
)
def hetschedd(
    policy: str,
    overrides: tuple[str, ...],
    partitions: tuple[str, ...],
    mode: str,
    backend: str,
    database: Path,
    cycle_s: float,
    round_s: float,
) -> None:
    """Schedule the marked jobs of a Slurm cluster until told to stop (SIGTERM or SIGINT).

    Which Slurm: the one that SLURM_CONF names, or this machine's.
    """
    from hetsched_core.policy import make_policy
    from hetsched_core.store import Mode as StoreMode
    from hetsched_core.store import Store
    from slurm_plugin.backend import open_backend
    from slurm_plugin.daemon import Daemon, DaemonSettings, Mode

    settings = DaemonSettings(partitions=frozenset(partitions), round_s=round_s)
    chosen = make_policy(policy, dict(_settings(overrides)))
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())

    def sleep(seconds: float) -> None:
        stopped.wait(seconds)

    with Store.open(database, StoreMode.WRITE) as store:
        daemon = Daemon(
            open_backend(backend),
            chosen,
            settings,
            mode=Mode(mode),
            clock=time.time,
            sleep=sleep,
            store=store,
            stopwatch=time.perf_counter,
        )
        _log(f"up pid={os.getpid()} policy={policy} mode={mode} partitions={','.join(partitions)}")
        _run(daemon, cycle_s, stopped)
    _log("down")


def main(args: Sequence[str] | None = None) -> int:
    """Run the daemon with the exit codes of `hetsched`."""
    from hetsched_core.errors import HetschedError

    try:
        hetschedd.main(args, prog_name="hetschedd", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except HetschedError as error:
        click.echo(f"hetschedd: error: {' '.join(str(error).split())}", err=True)
        return 1
    return 0


def _run(daemon: Daemon, cycle_s: float, stopped: threading.Event) -> None:
    away = ""
    slowest_s = 0.0
    while not stopped.is_set():
        begun = time.monotonic()
        report = daemon.cycle()
        if report.away and not away:
            _log(f"away: {report.away}")
        elif away and not report.away:
            _log("back")
        away = report.away
        for line in _lines(report):
            _log(line)
        took_s = time.monotonic() - begun
        if took_s > max(cycle_s, slowest_s):
            slowest_s = took_s
            _log(f"slow cycle_ms={took_s * 1000:.0f}")
        stopped.wait(max(0.0, cycle_s - took_s))


def _lines(report: CycleReport) -> Iterator[str]:
    for violation in report.violations:
        yield f"dropped an invalid plan: {violation}"
    if report.outcome is None:
        return
    for change in report.outcome.made:
        if line := _line(change):
            yield line
    for change, words in report.outcome.refused:
        yield f"refused job={change.job}: {words}"


def _line(change: Change) -> str:
    from slurm_plugin.backend import Park, Place, Requeue

    match change:
        case Place(job, nodes, gpus):
            return f"place job={job} nodes={','.join(nodes)} gpus_per_node={gpus}"
        case Requeue(job):
            return f"requeue job={job}"
        case Park(job, count, _):
            return f"park job={job} count={count}"
    return ""


def _settings(overrides: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--set {text}: expected NAME=VALUE")
        yield name, value


def _log(line: str) -> None:
    sys.stderr.write(f"hetschedd: {' '.join(line.split())}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
