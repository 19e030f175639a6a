"""What the daemon tells after each cycle, beside its log: answers, metrics, history, forecasts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from hetsched_core.errors import described
from hetsched_core.policy import make_policy
from hetsched_core.simulate import SimulationSettings
from hetsched_core.store import Store, StoreError
from hetsched_core.types import Plan, Snapshot
from slurm_plugin.api.forecasts import Forecasts, Known
from slurm_plugin.api.meters import Meters
from slurm_plugin.api.past import StoreAnswers
from slurm_plugin.api.publisher import Publisher
from slurm_plugin.daemon.daemon import CycleReport, Daemon
from slurm_plugin.daemon.journal import Journal
from slurm_plugin.daemon.process.configuration import DaemonConfiguration

_LAST_S = 20.0
"""How long a plan of a possible future is waited for at the end."""


class Telemetry:
    """Takes in each cycle, in the thread of the loop."""

    def __init__(
        self,
        configuration: DaemonConfiguration,
        now: float,
        store: Callable[[], Store | None],
        stopwatch: Callable[[], float],
    ) -> None:
        """Begin.

        Args:
            configuration: of the daemon.
            now: seconds UTC.
            store: returns the daemon's store, None while it has none.
            stopwatch: seconds.
        """
        self.meters, self.journal = Meters(), Journal()
        self._store, self._forecasts = store, Forecasts(stopwatch)
        self._recalled = False
        self._failed: dict[str, str] = {}
        self._past = StoreAnswers(store, self._forecasts)
        self.publisher = Publisher(configuration, now, self._past)
        self.adopt(configuration)
        self._thread = threading.Thread(target=self._forecasts.serve, name="forecasts", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Draw no more futures, and freeze no database.

        A future is drawn to the end of a plan: Python cannot end with a thread in a solver.
        """
        self._forecasts.close()
        self._past.close()
        self._thread.join(_LAST_S)

    def adopt(self, configuration: DaemonConfiguration) -> None:
        """Go on with another configuration."""
        self.publisher.adopt(configuration)
        # Its own: the loop's policy is in use, and may remember what it was asked last.
        self._policy = make_policy(configuration.policy, configuration.parameters)
        self._settings = SimulationSettings(
            restart_cost_s=configuration.restart_cost_s, grace_s=configuration.grace_s
        )

    def note(self, daemon: Daemon, report: CycleReport) -> None:
        """Take in a cycle."""
        snapshot, plan = daemon.snapshot(), daemon.plan
        took_s = None if report.decision is None else report.decision.plan.plan_s
        with self._unharmed("answers"):
            self.publisher.publish(
                snapshot,
                plan,
                daemon.decisions,
                report.away,
                took_s,
                private_jobs=daemon.world.standing.private_jobs,
                later=daemon.world.intake.later,
                aside=daemon.world.intake.aside,
                records=daemon.world.records,
                suspended=daemon.world.suspended,
            )
        if snapshot is None or report.away:
            with self._unharmed("metrics"):
                self.meters.note(report, None, plan)
            return
        with self._unharmed("history and forecasts"):
            self._follow(daemon, snapshot, plan)
        with self._unharmed("metrics"):
            ratio = self.journal.raqlr(snapshot.now)
            self.meters.note(
                report,
                snapshot,
                plan,
                ratio,
                daemon.world.suspended,
                private=self.publisher.private_jobs(daemon.world.standing.private_jobs),
            )

    @property
    def trouble(self) -> str:
        """What is wrong with any of it, in words; "" for nothing."""
        failed = [f"{who}: {words}" for who, words in self._failed.items()]
        return "; ".join([*failed, *filter(None, [self.journal.trouble])])

    def standing_still(self) -> AbstractContextManager[None]:
        """Leave the interpreter to the loop meanwhile."""
        return self._forecasts.standing_still()

    @contextmanager
    def _unharmed(self, part: str) -> Iterator[None]:
        """Let the loop go on, which holds the nodes, whatever happens to what it tells."""
        try:
            yield
        except Exception as error:
            self._failed[part] = described(error)
        else:
            self._failed.pop(part, None)

    def _follow(self, daemon: Daemon, snapshot: Snapshot, plan: Plan) -> None:
        self._recall()
        started = self.journal.note(
            self._store(),
            daemon.world.managed.values(),
            snapshot,
            plan,
            daemon.decisions,
            self._forecasts.take(),
            daemon.world.ended,
            daemon.world.unseen,
            daemon.world.intake.later,
        )
        daemon.learn(self.journal.take_ended())
        for nonce, start_s in started:
            self._forecasts.started(nonce, start_s)
        self._forecasts.look(
            Known(
                self._policy,
                snapshot,
                plan,
                self.journal.jobs(),
                self.journal.past,
                self._settings,
            )
        )

    def _recall(self) -> None:
        store = self._store()
        if store is None or self._recalled:
            return
        self._recalled = True
        try:
            self._forecasts.recall(store.ranges())
        except StoreError:
            # The journal says what is wrong with it, when it writes.
            return
