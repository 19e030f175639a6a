"""Who runs when and where in the bundled log: a plain first-in-first-out scheduler."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count

from hetsched_core.traces.bundled.jobs import (
    CPU,
    CPU_NODE_CPUS,
    CPU_NODES,
    DAY,
    HOUR,
    SPEED,
    Job,
    Request,
    Run,
)
from hetsched_core.types import Cluster

WRITTEN = 5 * DAY + 6 * HOUR
"""When the log was written: what still runs then has no end."""
PATIENCE = 5 * HOUR
"""After this wait nobody overtakes a job on the type that it is given first."""
FAILING_NODE, FAILS, REPAIRED = "gpu-7", DAY + 11 * HOUR + 1_234, DAY + 13 * HOUR + 777
REQUEUE_DELAY, KILL_WAIT = 121, 30

Act = Callable[[int], None]


class Scheduler:
    """First in, first out; a job that does not fit is overtaken until it loses patience."""

    def __init__(self, cluster: Cluster) -> None:
        nodes = [(node.name, node.gpu_type, node.gpus) for node in cluster]
        nodes += [(name, CPU, CPU_NODE_CPUS) for name in CPU_NODES]
        self._types = {name: gpu_type for name, gpu_type, _ in nodes}
        self._free = {name: size for name, _, size in nodes}
        self._down: set[str] = set()
        self._queue: list[Job] = []
        self._running: list[Job] = []
        self._events: list[tuple[int, int, Act]] = []
        self._serial = count()

    def run(self, jobs: list[Job]) -> None:
        """Give every job its runs, up to the time at which the log was written."""
        for job in jobs:
            job.runs.append(Run(job.submit, None if job.held else job.submit))
            if job.held:
                continue
            self._at(job.submit, partial(self._submit, job))
            if job.gives_up is not None:
                self._at(job.gives_up, partial(self._give_up, job))
        self._at(FAILS, self._fail)
        self._at(REPAIRED, lambda _: self._down.clear())
        while self._events and self._events[0][0] < WRITTEN:
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:
                heappop(self._events)[2](now)
            self._start_what_fits(now)

    def _at(self, time: int, act: Act) -> None:
        heappush(self._events, (time, next(self._serial), act))

    def _submit(self, job: Job, now: int) -> None:
        self._queue.append(job)
        self._queue.sort(key=lambda waiting: (waiting.submit, waiting.raw_id))

    def _give_up(self, job: Job, now: int) -> None:
        if job in self._queue:
            self._queue.remove(job)
            job.runs[-1].state, job.runs[-1].end = job.request.cancelled, now

    def _fail(self, now: int) -> None:
        self._down.add(FAILING_NODE)
        for job in [job for job in self._running if FAILING_NODE in job.runs[-1].hosts]:
            self._end(job, job.runs[-1], "NODE_FAIL", now)

    def _start_what_fits(self, now: int) -> None:
        reserved: set[str] = set()
        for job in list(self._queue):
            hosts = self._hosts_for(job.request, reserved)
            if hosts:
                self._queue.remove(job)
                self._start(job, hosts, now)
            elif now - job.submit > PATIENCE:
                reserved.add(job.request.types[0])

    def _hosts_for(self, request: Request, reserved: set[str]) -> tuple[str, ...]:
        """Return hosts of one type, the fullest that have room; none where there are too few."""
        for gpu_type in request.types:
            fits = [
                name
                for name, free in self._free.items()
                if free >= request.per_node
                and self._types[name] == gpu_type
                and gpu_type not in reserved
                and name not in self._down
            ]
            if len(fits) >= request.nodes:
                return tuple(sorted(fits, key=self._free.__getitem__)[: request.nodes])
        return ()

    def _start(self, job: Job, hosts: tuple[str, ...], now: int) -> None:
        run = job.runs[-1]
        run.state, run.start, run.hosts = "RUNNING", now, hosts
        run.gpu_type = self._types[hosts[0]]
        self._running.append(job)
        for host in hosts:
            self._free[host] -= job.request.per_node
        state, seconds = job.state, max(1, round(job.work / SPEED[run.gpu_type]))
        if seconds > job.request.limit_min * 60:
            # Slurm looks at time limits twice a minute.
            state, seconds = "TIMEOUT", job.request.limit_min * 60 + job.raw_id % 30
        if len(job.runs) == 1 and job.requeue_after is not None and job.requeue_after < seconds:
            state, seconds = "REQUEUED", job.requeue_after
        self._at(now + seconds, partial(self._end, job, run, state))

    def _end(self, job: Job, run: Run, state: str, now: int) -> None:
        if run.end is not None:
            return
        run.state, run.end = state, now
        self._running.remove(job)
        again = state in ("REQUEUED", "NODE_FAIL")
        if again:
            job.runs.append(Run(now, now + REQUEUE_DELAY))
            self._at(now + REQUEUE_DELAY, partial(self._submit, job))
        # What is requeued has time to save its work: its GPUs are free after its End.
        self._at(now + (KILL_WAIT if again else 0), partial(self._release, job.request, run.hosts))

    def _release(self, request: Request, hosts: tuple[str, ...], now: int) -> None:
        for host in hosts:
            self._free[host] += request.per_node
