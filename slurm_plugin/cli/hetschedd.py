"""`hetschedd`: the daemon as a process."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hetsched_core.errors import HetschedError, InputError
from slurm_plugin.daemon.configuration import Configuration, Setting, read_configuration, settings
from slurm_plugin.daemon.notify import notify

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from slurm_plugin.daemon import Daemon

UNREAD = "nothing of it could be taken in: a killed writer left it, or it is damaged"

_FIXED = ("database", "backend", "log")
"""Settings that a running daemon keeps."""


def _overriding(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for every setting of the configuration."""
    for known in reversed(settings()):
        command = _option(known)(command)
    return command


def _option(known: Setting) -> Callable[[Callable[..., None]], Callable[..., None]]:
    usual = "" if known.default is None else f"default {known.default}"
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
    """Schedule the marked jobs of a Slurm cluster until told to stop (SIGTERM or SIGINT).

    Which Slurm: the one that SLURM_CONF names, or this machine's.
    """
    from hetsched_core.policy import make_policy
    from hetsched_core.store import Mode as StoreMode
    from hetsched_core.store import Store
    from slurm_plugin.backend import open_backend
    from slurm_plugin.daemon import Daemon
    from slurm_plugin.daemon.log import open_log

    overrides = {name: text for name, text in given.items() if text is not None}
    own = dict(_pairs(parameters))

    def read() -> Configuration:
        return read_configuration(path, overrides, own)

    configuration = read()
    policy = make_policy(configuration.policy, configuration.parameters)
    log = open_log(configuration.log, sys.stderr)
    asked = _Asked()
    with Store.open(configuration.database, StoreMode.WRITE) as store:
        if store.unread_log:
            log.warning("unread_log", file=str(store.unread_log), words=UNREAD)
        daemon = Daemon(
            open_backend(configuration.backend.value),
            policy,
            configuration,
            mode=configuration.mode,
            clock=time.time,
            sleep=asked.sleep,
            store=store,
            stopwatch=time.perf_counter,
        )
        log.info(
            "up",
            pid=os.getpid(),
            policy=configuration.policy,
            mode=configuration.mode.value,
            partitions=",".join(sorted(configuration.partitions)),
        )
        _run(daemon, configuration, read, asked, log)
    notify("STOPPING=1")
    log.info("down")


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


class _Asked:
    """What signals have asked for: to stop, or to read the configuration again.

    Handlers only set flags; what wakes a sleeper is a byte that Python itself writes to a socket,
    since a handler that takes a lock can meet the sleeper holding it.
    """

    def __init__(self) -> None:
        self.stop = False
        self.reload = False
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)

    def sleep(self, seconds: float) -> None:
        """Wait, but not through a signal; once asked to stop, do not wait at all."""
        if not self.stop and select.select([self._woken], [], [], seconds)[0]:
            self._woken.recv(4096)

    def reload_once(self) -> bool:
        """Whether to read the configuration again; it is asked for no more then."""
        asked, self.reload = self.reload, False
        return asked

    def _on_stop(self, *_: object) -> None:
        self.stop = True

    def _on_reload(self, *_: object) -> None:
        self.reload = True


def _run(
    daemon: Daemon,
    configuration: Configuration,
    read: Callable[[], Configuration],
    asked: _Asked,
    log: FilteringBoundLogger,
) -> None:
    from slurm_plugin.daemon.log import tell

    away = ""
    slowest_s = 0.0
    ready = False
    while not asked.stop:
        begun = time.monotonic()
        if asked.reload_once():
            configuration = _reloaded(daemon, configuration, read, log)
        report = daemon.cycle()
        if report.away and not away:
            log.warning("away", words=report.away)
        elif away and not report.away:
            log.info("back")
        away = report.away
        tell(log, report, daemon.plan, daemon.decisions)
        took_s = time.monotonic() - begun
        if took_s > max(configuration.cycle_s, slowest_s):
            slowest_s = took_s
            log.warning("slow", cycle_ms=round(took_s * 1000))
        notify("WATCHDOG=1", *(() if ready else ("READY=1",)))
        ready = True
        asked.sleep(max(0.0, configuration.cycle_s - took_s))


def _reloaded(
    daemon: Daemon,
    before: Configuration,
    read: Callable[[], Configuration],
    log: FilteringBoundLogger,
) -> Configuration:
    """Put the configuration file into force as it is now, or go on as before if it is wrong."""
    from hetsched_core.policy import make_policy

    try:
        after = read()
        kept = [name for name in _FIXED if getattr(after, name) != getattr(before, name)]
        if kept:
            raise InputError(f"{', '.join(kept)} cannot change in a running daemon; restart it")
        daemon.adopt(make_policy(after.policy, after.parameters), after, after.mode)
    except (HetschedError, OSError) as error:
        log.error("reload_refused", words=str(error))
        return before
    log.info("reloaded", policy=after.policy, mode=after.mode.value)
    return after


def _pairs(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--set {text}: expected NAME=VALUE")
        yield name, value


if __name__ == "__main__":
    sys.exit(main())
