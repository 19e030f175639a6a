"""What Prometheus scrapes: figures of the daemon, the cluster and its accounts, none per user."""

from __future__ import annotations

from collections import Counter
from functools import partial
from socket import SOCK_STREAM, getaddrinfo
from threading import Thread
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Gauge, Histogram, make_wsgi_app
from prometheus_client import Counter as Total

from hetsched_core.errors import InputError
from hetsched_core.measures.accounts import accounts_now
from hetsched_core.records.spool import Reject
from hetsched_core.store import FileReject
from hetsched_core.types import Configuration, Phase, Plan, ReasonCode, Snapshot
from slurm_plugin.api.address import host_and_port
from slurm_plugin.api.answers import NEW, PLANNED, word_of
from slurm_plugin.api.bounded_threads import PATIENCE_S, BoundedThreads
from slurm_plugin.daemon.daemon import CycleReport
from slurm_plugin.daemon.nodes.gpu_use import GpuUse, gpu_uses

_WORDS = (*(code.word for code in ReasonCode), PLANNED, NEW)
_PLAN_BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_ERROR_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Meters:
    """The figures of one daemon; names begin with hetsched_ and units are base units."""

    def __init__(self) -> None:
        """Begin with nothing counted."""
        self.registry = CollectorRegistry()
        gauge = partial(Gauge, registry=self.registry)
        total = partial(Total, registry=self.registry)
        self._plan_s = Histogram(
            "hetsched_plan_seconds",
            "Time that the policy took for a plan.",
            ["policy"],
            buckets=_PLAN_BUCKETS_S,
            registry=self.registry,
        )
        self._plan_age = gauge(
            "hetsched_plan_age_seconds", "Age of the plan in force at the last cycle."
        )
        self._gap = gauge("hetsched_proven_gap_ratio", "Proven relative gap of the plan in force.")
        self._invalid = total("hetsched_invalid_plans", "Plans that broke a rule, or failed.")
        self._changes = total("hetsched_changes", "Changes that Slurm has accepted.", ["change"])
        self._refused = total(
            "hetsched_refused_changes", "Changes that Slurm has refused.", ["change"]
        )
        self._spool_rejects = total(
            "hetsched_spool_rejects", "Spool files and lines rejected.", ["reason"]
        )
        for reason in (*Reject, *FileReject):
            self._spool_rejects.labels(reason.value)
        self._away = gauge("hetsched_slurm_away", "1 while Slurm does not answer.")
        self._stands_by = gauge("hetsched_standby", "1 while this daemon waits for its turn.")
        self._cycles = total("hetsched_cycles", "Looks at Slurm.")
        self._gpus = gauge("hetsched_gpus", "GPUs by type and use.", ["gpu_type", "state"])
        self._jobs = gauge("hetsched_jobs", "Managed jobs.", ["partition", "state"])
        self._waiting = gauge("hetsched_waiting_jobs", "Waiting jobs.", ["reason"])
        self._fragments = gauge("hetsched_fragment_gpus", "Idle GPUs while a job waits, else 0.")
        self._accounts = gauge(
            "hetsched_account_gpus",
            "GPUs of an account's jobs: held, and due by shares of all that are held.",
            ["account", "kind"],
        )
        self._restarts = total("hetsched_restarts", "Starts of jobs that had run before.")
        self._raqlr = gauge(
            "hetsched_recent_latency_ratio",
            "Mean wait by expected run time of the jobs that left in the last day (RAQLR).",
        )
        self._error = Histogram(
            "hetsched_estimate_error_ratio",
            "Distance of estimated from told speed by the told one, once for each run.",
            buckets=_ERROR_BUCKETS,
            registry=self.registry,
        )
        self._rpc_errors = total("hetsched_slurm_errors", "Calls of Slurm that failed.", ["error"])
        for kind in ("away", "refused"):
            self._rpc_errors.labels(kind)
        self._restarted: dict[str, int] = {}
        self._expected: dict[str, tuple[int, Configuration, float]] = {}
        self._made_s: float | None = None

    def note_waiting(self, *, away: bool) -> None:
        """Take in a look at Slurm of a daemon that waits for its turn."""
        self._cycles.inc()
        self._stands_by.set(1)
        self._away.set(1 if away else 0)

    def note(
        self,
        report: CycleReport,
        snapshot: Snapshot | None,
        plan: Plan,
        latency_ratio: float | None = None,
        suspended: frozenset[str] = frozenset(),
        private: bool = False,
    ) -> None:
        """Take in a cycle.

        Args:
            report: the cycle.
            snapshot: what is known now; None while Slurm was never read, or is away.
            plan: the plan in force.
            latency_ratio: the mean of the jobs that left lately; None if there is none.
            suspended: the jobs that are suspended in Slurm.
            private: whether whose jobs there are is nobody else's business.
        """
        self._cycles.inc()
        self._stands_by.set(0)
        self._away.set(1 if report.away else 0)
        self._invalid.inc(1 if report.violations else 0)
        if report.decision is not None:
            record, diagnostics = report.decision.plan, report.decision.diagnostics
            self._plan_s.labels(report.decision.policy).observe(record.plan_s)
            self._made_s = record.at_s
            self._gap.set(float("nan") if diagnostics.gap is None else diagnostics.gap)
        for rejected in report.heard.rejected:
            self._spool_rejects.labels(rejected.reason.value).inc(rejected.lines)
        if report.outcome is not None:
            for change in report.outcome.made:
                self._changes.labels(type(change).__name__.lower()).inc()
            for change, _ in report.outcome.refused:
                self._refused.labels(type(change).__name__.lower()).inc()
                self._rpc_errors.labels("refused").inc()
        self._rpc_errors.labels("away").inc(1 if report.away else 0)
        self._raqlr.set(float("nan") if latency_ratio is None else latency_ratio)
        if snapshot is not None and not report.away:
            self._note_cluster(snapshot, plan, suspended)
            self._note_accounts(snapshot, private)

    def _note_cluster(self, snapshot: Snapshot, plan: Plan, suspended: frozenset[str]) -> None:
        if self._made_s is not None:
            self._plan_age.set(snapshot.now - self._made_s)
        by_type: dict[str, GpuUse] = {}
        for view, _, use in gpu_uses(snapshot):
            gpu_type = view.node.gpu_type
            by_type[gpu_type] = by_type.get(gpu_type, GpuUse()) + use
        self._gpus.clear()
        for gpu_type, use in by_type.items():
            for state in ("held", "foreign", "closed", "idle"):
                self._gpus.labels(gpu_type, state).set(getattr(use, state))
        phases = Counter(
            (
                view.job.partition,
                "suspended" if view.id in suspended else view.phase(snapshot.now).value,
            )
            for view in snapshot.jobs.values()
        )
        self._jobs.clear()
        for (partition, phase), count in phases.items():
            self._jobs.labels(partition, phase).set(count)
        idle = sum(use.idle for use in by_type.values())
        waits = any(phase == Phase.WAITING.value for _, phase in phases)
        self._fragments.set(idle if waits else 0)
        # One that is measured, or has not yet freed its GPUs, is counted where it stands.
        reasons = Counter(
            word_of(snapshot, plan, view) or NEW
            for view in snapshot.jobs.values()
            if not view.begun
        )
        for word in _WORDS:
            self._waiting.labels(word).set(reasons[word])
        self._note_runs(snapshot)

    def _note_accounts(self, snapshot: Snapshot, private: bool) -> None:
        self._accounts.clear()
        for each in accounts_now(snapshot) if not private else ():
            if not each.user:
                self._accounts.labels(each.account, "held").set(each.held_gpus)
                self._accounts.labels(each.account, "due").set(each.due_gpus)

    def _note_runs(self, snapshot: Snapshot) -> None:
        """Count restarts, and compare each run's speed once with what was expected of it."""
        restarted, expected = {}, {}
        for job_id, view in snapshot.jobs.items():
            restarted[job_id] = view.restarts
            if (more := view.restarts - self._restarted.get(job_id, view.restarts)) > 0:
                self._restarts.inc(more)
            for run in view.runs:
                # A run that has told nothing shows what is expected; what it tells is learned from.
                *which, speed = self._expected.get(job_id, (None, None, 0.0))
                if which != [run.number, run.configuration]:
                    speed = run.speed
                elif speed > 0 and view.samples_done > 0 and run.speed not in (0.0, speed):
                    self._error.observe(abs(speed - run.speed) / run.speed)
                    speed = 0.0
                expected[job_id] = run.number, run.configuration, speed
        self._restarted, self._expected = restarted, expected


class _Server(BoundedThreads, WSGIServer):
    """Answers with the figures."""


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_S

    def log_message(self, *args: object) -> None:
        """Say nothing of requests."""


def serve_meters(address: str, meters: Meters) -> WSGIServer:
    """Serve figures at HOST:PORT, in a thread; call `shutdown()` of what is returned to end it.

    Raises:
        InputError: this is no address, or it cannot be listened on.
    """
    found = host_and_port(address)
    if found is None:
        raise InputError(f"metrics = {address!r}: expected HOST:PORT, such as 127.0.0.1:9754")
    host, port = found
    try:
        family = getaddrinfo(host, port, type=SOCK_STREAM)[0][0]
        kind: type[_Server] = type("Server", (_Server,), {"address_family": family})
        server: WSGIServer = make_server(host, port, make_wsgi_app(meters.registry), kind, _Handler)
    except OSError as error:
        raise InputError(f"nothing can be served at {address}: {error.strerror}") from None
    Thread(target=server.serve_forever, daemon=True).start()
    return server
