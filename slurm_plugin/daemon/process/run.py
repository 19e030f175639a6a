"""The daemon as a process: cycles, signals, the configuration read again, answers, systemd."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial

from structlog.typing import FilteringBoundLogger

from hetsched_core.errors import HetschedError, InputError
from hetsched_core.policy import make_policy
from slurm_plugin.api.meters import serve_meters
from slurm_plugin.api.server import AnswerServer, NetworkServer
from slurm_plugin.api.telemetry import Telemetry
from slurm_plugin.backend import AwayError, BackendError, open_backend, settled
from slurm_plugin.backend.with_commands import owner_of
from slurm_plugin.daemon.daemon import Daemon
from slurm_plugin.daemon.process.claims import ClusterClaim
from slurm_plugin.daemon.process.configuration import DaemonConfiguration
from slurm_plugin.daemon.process.database import DaemonDatabase
from slurm_plugin.daemon.process.lease import RENEW, Lease
from slurm_plugin.daemon.process.lock import DaemonLock
from slurm_plugin.daemon.process.log import open_log, tell
from slurm_plugin.daemon.process.notify import notify
from slurm_plugin.daemon.settings import DaemonMode
from slurm_plugin.daemon.site_warnings import check_partitions

_FIXED = ("database", "backend", "log", "socket", "listen", "metrics", "standby")
"""Settings that a running daemon keeps."""

_IN_TURNS = ("mode", "slack_s")
"""Those that it keeps, too, where another one stands by: it has made its reservation by them."""


def collect_seldom() -> None:
    """Let the garbage collector wait for more new objects: most of a cycle's are gone by then.

    By Python's default an eighth of a cycle with 10,000 jobs goes into looking at them again.
    """
    _, middle, old = gc.get_threshold()
    gc.set_threshold(20_000, middle, old)


def serve(read: Callable[[], DaemonConfiguration]) -> None:
    """Schedule until told to stop by SIGTERM or SIGINT; SIGHUP reads the configuration again.

    Args:
        read: returns the configuration as it is now, or raises InputError or OSError.

    Raises:
        HetschedError: the daemon cannot begin: the configuration or Slurm is wrong, the database is
            one that it must not touch; or another daemon runs.
    """
    collect_seldom()
    configuration = read()
    # What is made from here on tells of all users; what they are to reach is opened to them.
    os.umask(0o077)
    policy = make_policy(configuration.policy, configuration.parameters)
    log = open_log(configuration.log, sys.stderr)
    asked = _SignalFlags()
    turns = configuration.standby and configuration.mode is DaemonMode.ENFORCE
    with ExitStack() as stack:
        # Those that take turns may share a database: all try it now, the one that acts opens it.
        lock = None
        if not turns:
            lock = stack.enter_context(DaemonLock(configuration.database, time.time()))
        claim = stack.enter_context(ClusterClaim(yields=turns))
        if configuration.mode is DaemonMode.ENFORCE:
            claim.hold()
        name, no_pyslurm = settled(configuration.backend.value)
        slurm = claim.watched(open_backend(name))
        lease = Lease(slurm, configuration, socket.gethostname(), owner_of=owner_of)
        backend = lease if turns else slurm
        # One that is refused here leaves no database behind.
        check_partitions(backend, configuration)
        database = stack.enter_context(DaemonDatabase(configuration.database))
        with DaemonDatabase(configuration.database) if turns else nullcontext(database) as tried:
            for words in tried.open(time.time()):
                log.warning("database", words=words)
        daemon = Daemon(
            backend,
            policy,
            configuration,
            mode=configuration.mode,
            clock=time.time,
            sleep=asked.sleep,
            store=database.store,
            stopwatch=time.perf_counter,
        )
        telemetry = Telemetry(configuration, time.time(), lambda: database.store, time.perf_counter)
        answers = telemetry.publisher.answer
        servers: list[Callable[[], AnswerServer | NetworkServer]] = [
            partial(AnswerServer, configuration.socket, answers)
        ]
        if configuration.listen:
            servers.append(partial(NetworkServer, configuration.listen, answers))
        for server in servers:
            try:
                stack.callback(server().close)
            except InputError as error:
                log.warning("no_answers", words=str(error))
        # Before the server: who asks for a range is answered sooner if none is drawn any more.
        stack.callback(telemetry.close)
        if configuration.metrics:
            try:
                stack.callback(serve_meters(configuration.metrics, telemetry.meters).shutdown)
            except InputError as error:
                log.warning("no_metrics", words=str(error))
        if turns and not _waited(lease, claim, configuration, asked, telemetry, log):
            log.info("down")
            return
        log.info(
            "up",
            pid=os.getpid(),
            policy=configuration.policy,
            mode=configuration.mode.value,
            partitions=",".join(sorted(configuration.partitions)),
            backend=name,
            **({"no_pyslurm": no_pyslurm} if no_pyslurm else {}),
        )

        def read_again() -> DaemonConfiguration:
            found = read()
            if found.mode is DaemonMode.ENFORCE:
                claim.hold()
            return found

        _run(daemon, _Held(lock, claim, database), configuration, read_again, asked, telemetry, log)
        if not turns:
            tell(log, daemon.let_go(), daemon.plan, daemon.decisions)
    notify("STOPPING=1")
    log.info("down")


def _waited(
    lease: Lease,
    claim: ClusterClaim,
    configuration: DaemonConfiguration,
    asked: _SignalFlags,
    telemetry: Telemetry,
    log: FilteringBoundLogger,
) -> bool:
    """Wait until it is this daemon's turn; return False where it was told to stop before."""
    told = ""
    while not asked.stop:
        try:
            if lease.watch():
                return True
            away, words = False, f"this daemon stands by: {lease.watched}"
        except BackendError as error:
            away = isinstance(error, AwayError)
            words = f"this daemon stands by, and Slurm says: {error}"
        telemetry.meters.note_waiting(away=away)
        _check_claim(claim, log)
        telemetry.publisher.nothing_yet = words
        if words != told:
            told = words
            log.info("standby", words=words)
        notify("WATCHDOG=1", "READY=1")
        asked.sleep(min(RENEW / 2 * configuration.slack_s, 10.0))
    return False


@dataclass(frozen=True, slots=True)
class _Held:
    """What the daemon has for itself, and what can be taken from it while it runs."""

    lock: DaemonLock | None
    claim: ClusterClaim
    database: DaemonDatabase

    def check(self, daemon: Daemon, log: FilteringBoundLogger) -> None:
        """Let the daemon go on with what there is.

        Raises:
            InputError: another daemon runs.
        """
        if self.lock is not None:
            self.lock.check()
        _check_claim(self.claim, log)
        for words in self.database.check(time.time(), daemon.store_failure):
            log.warning("database", words=words)
        if self.database.store is not daemon.store:
            daemon.keep_in(self.database.store)


def _check_claim(claim: ClusterClaim, log: FilteringBoundLogger) -> None:
    lacking, had = claim.check()
    if lacking:
        log.warning("beware", words=lacking)
    if had:
        log.info("claimed")


class _SignalFlags:
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
    held: _Held,
    configuration: DaemonConfiguration,
    read: Callable[[], DaemonConfiguration],
    asked: _SignalFlags,
    telemetry: Telemetry,
    log: FilteringBoundLogger,
) -> None:
    away = trouble = ""
    slowest_s = 0.0
    ready = False
    while not asked.stop:
        begun = time.monotonic()
        if asked.reload_once():
            configuration = _reloaded(daemon, configuration, read, log)
            telemetry.adopt(configuration)
        with telemetry.standing_still():
            held.check(daemon, log)
            report = daemon.cycle()
            if report.away and not away:
                log.warning("away", words=report.away)
            elif away and not report.away:
                log.info("back")
            away = report.away
            tell(log, report, daemon.plan, daemon.decisions)
            telemetry.note(daemon, report)
        if telemetry.trouble != trouble:
            trouble = telemetry.trouble
            log.warning("history", words=trouble or "what becomes of jobs is told again")
        took_s = time.monotonic() - begun
        if took_s > max(configuration.cycle_s, slowest_s):
            slowest_s = took_s
            log.warning("slow", cycle_ms=round(took_s * 1000))
        notify("WATCHDOG=1", *(() if ready else ("READY=1",)))
        ready = True
        asked.sleep(max(0.0, configuration.cycle_s - took_s))


def _reloaded(
    daemon: Daemon,
    before: DaemonConfiguration,
    read: Callable[[], DaemonConfiguration],
    log: FilteringBoundLogger,
) -> DaemonConfiguration:
    """Put the configuration file into force as it is now, or go on as before if it is wrong."""
    try:
        after = read()
        fixed = (*_FIXED, *_IN_TURNS) if before.standby else _FIXED
        kept = [name for name in fixed if getattr(after, name) != getattr(before, name)]
        if kept:
            raise InputError(f"{', '.join(kept)} cannot change in a running daemon; restart it")
        daemon.check_partitions(after)
        report = daemon.adopt(make_policy(after.policy, after.parameters), after, after.mode)
        tell(log, report, daemon.plan, daemon.decisions)
    except (HetschedError, OSError) as error:
        words = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            words = f"{error.filename}: {error.strerror}"
        log.error("reload_refused", words=words)
        return before
    log.info("reloaded", policy=after.policy, mode=after.mode.value)
    return after
