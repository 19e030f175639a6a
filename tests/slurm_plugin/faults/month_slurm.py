"""A Slurm for a month that passes in minutes, inside the process of the daemon that schedules it.

    python -m tests.slurm_plugin.faults.month_slurm --jobs 30000 --days 30 --folder F -- OPTIONS

runs `hetschedd` with these options. All of the daemon is there, with its own loop, database, spool,
log and sockets; only what it asks of Slurm is answered here, and where it would sleep the clock is
set on instead (`clock.c` has the clock of the whole process off by so much). What is seen of the
process is written down once in each hour of the month.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import mmap
import os
import pwd
import random
import select
import signal
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import (
    AwayError,
    Cancel,
    Change,
    Drop,
    Enter,
    Hold,
    HostRequest,
    JobState,
    Leave,
    RefusedError,
    Requeue,
    Resources,
    SlurmJob,
    SlurmNode,
    SlurmReservation,
    SlurmSite,
    SlurmState,
    Terms,
)
from slurm_plugin.backend.gres import gpus_in
from slurm_plugin.cli.hetschedd import main as hetschedd
from slurm_plugin.daemon.process import run
from slurm_plugin.testbed import NODE_CPUS, NODE_MEMORY_MB, FakeNode
from tests.slurm_plugin.backend.fake import PENDING

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S

SPEEDS = {"a100": 4.0, "v100": 2.0, "t4": 1.0}
"""Samples/s of one GPU: jobs are trainings that differ in length alone."""

COUNTS = ("1", "1,2", "2,4", "1-4", "4,8")

MODELS = 12
"""Profile keys that each user has in use; one job in `FRESH` has one of its own."""

FRESH = 50
RUBBISH = 50
"""One job in so many writes nothing into its spool file that can be read."""

STEP_S = 600
"""How much time passes between two cycles, however short the daemon would sleep."""

MIN_JOB_AGE_S = 2.0 * STEP_S
"""How long Slurm shows a job that has ended."""

ENDS_S = 20.0
"""How long a stopped run keeps its GPUs."""

TELLS_S = 1800.0
"""How often a job tells how far it is."""

AWAY_S = 3.0 * STEP_S
"""How long slurmctld takes to start anew."""

STEPPED_S = 3.0 * STEP_S
"""How long a clock that was set stays so."""

STEPS_S = (-60, 300, -300, 3600, -3600)
"""By how much the clock of the daemon's machine is set, one after the other over the month."""

SPOOL_KEPT_S = 7 * DAY_S
"""For how long the site lets files of users lie in the spool: a line of tmpfiles.d."""


class SteppedClock:
    """The clock of this process, which `clock.c` has off by the seconds in a file."""

    def __init__(self, path: Path) -> None:
        """Set the clock by the file that `CLOCK_OFFSET` names."""
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), struct.calcsize("l"))
        self._skew_s = 0

    def true_s(self) -> float:
        """Return what the time is everywhere else, seconds UTC."""
        return time.time() - self._skew_s

    def pass_(self, seconds: int) -> None:
        """Let so much time pass."""
        self._add(seconds)

    def set_off(self, seconds: int) -> None:
        """Have this machine's clock wrong by so much from now on."""
        self._add(seconds - self._skew_s)
        self._skew_s = seconds

    def _add(self, seconds: int) -> None:
        (now,) = struct.unpack("l", self._page[:])
        self._page[:] = struct.pack("l", now + seconds)


@dataclass(slots=True)
class _Work:
    """What a job has to do, and its spool file: `speed` is that of its run, 0 while it waits."""

    left: float
    uid: int
    gid: int
    saves: bool
    rubbish: bool
    done: float = 0.0
    speed: float = 0.0
    since_s: float = 0.0
    told_s: float = 0.0
    begun_s: float = 0.0
    spool: Path | None = None


@dataclass(frozen=True, slots=True)
class Hour:
    """What was seen at the end of an hour of the month.

    Attributes:
        day: how many days had passed.
        submitted, ended, waiting, running: jobs.
        cycles: how many of the daemon's there were in this hour.
        cycle_ms: their median, by the clock on the wall.
        cpu_ms: what one took of a CPU, on average, with all threads of the process; load on the
            machine changes it little.
        rss_kib: resident memory of the process.
        descriptors, threads: how many it has.
        database_kib, log_kib: the sizes of the files.
        load: that of the machine, over a minute.
        spool_files, moves_files: how many files there are of users, and of the daemon; -1 where it
            was not looked (once a day it is).
    """

    day: float
    submitted: int
    ended: int
    waiting: int
    running: int
    cycles: int
    cycle_ms: float
    cpu_ms: float
    rss_kib: int
    descriptors: int
    threads: int
    database_kib: int
    log_kib: int
    load: float
    spool_files: int = -1
    moves_files: int = -1


@dataclass(slots=True)
class MonthSlurm:
    """A backend whose cluster has jobs, users, maintenance, failures and restarts of its own."""

    nodes: Sequence[FakeNode]
    clock: SteppedClock
    folder: Path
    jobs_in_all: int
    days: float
    rng: random.Random
    began_s: float = 0.0
    submitted: int = 0
    ended: int = 0
    _jobs: dict[str, SlurmJob] = field(default_factory=dict)
    _work: dict[str, _Work] = field(default_factory=dict)
    _ended: deque[tuple[float, str]] = field(default_factory=deque)
    _reservations: dict[str, SlurmReservation] = field(default_factory=dict)
    _down: dict[str, float] = field(default_factory=dict)
    _happens: list[tuple[float, int, str, Any]] = field(default_factory=list)
    _away_until_s: float = -math.inf
    _next_job_s: float = 0.0
    _types: dict[str, str] = field(default_factory=dict)
    _users: list[pwd.struct_passwd] = field(default_factory=list)
    _cycles_s: list[float] = field(default_factory=list)
    _read_s: float | None = None
    _cpu_s: float = 0.0
    _hour: int = 0

    def __post_init__(self) -> None:
        """Lay out what happens in the month."""
        self.began_s = self._next_job_s = self.clock.true_s()
        self._types = {node.name: node.gpu_type for node in self.nodes}
        # Users that every Debian has; `daemon` is the one that the reservation keeps out.
        self._users = [each for each in pwd.getpwall() if 2 <= each.pw_uid < 100][:8]
        names = [node.name for node in self.nodes]
        share = self.days / 30 * DAY_S
        plan: list[tuple[float, str, Any]] = []
        for week in range(4):
            at_s = (5.4 + 7 * week) * share
            part = names[week::4]
            plan.append((at_s - 0.2 * share, "announced", (f"upkeep{week}", at_s, share / 6, part)))
            plan.append(((4.2 + 7 * week) * share, "restarted", None))
        for number, seconds in enumerate(STEPS_S):
            at_s = (4.7 + 5 * number) * share
            plan.append((at_s, "clock", seconds))
            plan.append((at_s + STEPPED_S, "clock", 0))
        plan.extend(
            (self.rng.uniform(0, self.days * DAY_S), "fails", self.rng.choice(names))
            for _ in range(round(self.days * 0.7))
        )
        plan.extend((day * DAY_S + 5 * HOUR_S, "tidied", None) for day in range(round(self.days)))
        self._happens = [
            (self.began_s + at_s, number, what, about)
            for number, (at_s, what, about) in enumerate(plan)
        ]
        heapq.heapify(self._happens)

    # -- what the daemon asks ----------------------------------------------------------------------

    def read(self) -> SlurmState:
        """Return what there is now."""
        self._read_s = time.perf_counter()
        now = self.clock.true_s()
        self._go_on(now)
        self._answer(now)
        gpus, cpus = Counter[str](), Counter[str]()
        for job in self._jobs.values():
            if job.state in (JobState.RUNNING, JobState.COMPLETING):
                for name in job.nodes:
                    gpus[name] += job.gpus // len(job.nodes)
                    cpus[name] += job.cpus // len(job.nodes)
        return SlurmState(
            tuple(self._node(each, gpus[each.name], cpus[each.name], now) for each in self.nodes),
            dict(self._jobs),
            tuple(self._reservations.values()),
        )

    def site(self) -> SlurmSite:
        """Return what the site has set."""
        self._answer(self.clock.true_s())
        return SlurmSite(30.0, {"gpu": None}, cluster=f"month-{os.getpid()}")

    def script(self, job: str) -> str:
        """Return a script without options: marks have them."""
        return "#!/bin/bash\n"

    def apply(self, change: Change) -> None:
        """Make a change as Slurm would."""
        now = self.clock.true_s()
        self._answer(now)
        match change:
            case Hold(name, nodes, seconds):
                self._hold(SlurmReservation(name, nodes, now, now + seconds), now)
            case Drop(name):
                self._reservations.pop(name, None)
            case Enter(job, reservation, nodes, resources=resources, terms=terms):
                seen = self._waiting(job)
                if reservation not in self._reservations:
                    raise RefusedError("Requested reservation is invalid")
                where = nodes or tuple(sorted(self._roomy(seen)))
                seen = replace(_shaped(seen, resources, terms), pinned=where)
                self._jobs[job] = replace(seen, reservation=reservation)
            case Leave(job, nodes, resources, terms):
                seen = _shaped(self._waiting(job), resources, terms)
                self._jobs[job] = replace(seen, pinned=nodes, reservation="")
            case Requeue(job):
                runs = self._jobs.get(job)
                if runs is not None and runs.state is JobState.RUNNING:
                    self._stop(runs, now)
            case Cancel(job):
                self._end(self._jobs[job], now, "CANCELLED")
            case _:
                pass

    # -- what happens meanwhile --------------------------------------------------------------------

    def slept(self, seconds: float) -> None:
        """Let time pass after a cycle, and note how long that took."""
        if 0.0 < seconds < 1.0:
            # A call to Slurm is tried again.
            self.clock.pass_(1)
            return
        if self._read_s is not None:
            self._cycles_s.append(time.perf_counter() - self._read_s)
            self._read_s = None
        self.clock.pass_(STEP_S)
        now = self.clock.true_s()
        if now - self.began_s >= (self._hour + 1) * HOUR_S:
            self._hour = math.floor((now - self.began_s) / HOUR_S)
            self._write_down(now)
        if now - self.began_s > 16 / 15 * self.days * DAY_S or self._done():
            os.kill(os.getpid(), signal.SIGTERM)

    def _done(self) -> bool:
        return self.submitted >= self.jobs_in_all and self.ended >= self.submitted

    def _go_on(self, now: float) -> None:
        while self._happens and self._happens[0][0] <= now:
            at_s, _, what, about = heapq.heappop(self._happens)
            getattr(self, f"_{what}")(at_s, about)
        for name in [name for name, until_s in self._down.items() if until_s <= now]:
            del self._down[name]
        for each in [each for each in self._reservations.values() if each.end_s <= now]:
            if not any(job.reservation == each.name for job in self._jobs.values()):
                del self._reservations[each.name]
        while self.submitted < self.jobs_in_all and self._next_job_s <= now:
            self._submit(self._next_job_s)
            # By day three times as many as by night, and the whole month in time.
            by_day = 1.5 if 8 <= self._next_job_s % DAY_S / HOUR_S < 20 else 0.5
            per_s = by_day * self.jobs_in_all / (self.days * DAY_S)
            self._next_job_s += self.rng.expovariate(per_s)
        for job in list(self._jobs.values()):
            self._live(job, now)
        while self._ended and self._ended[0][0] + MIN_JOB_AGE_S <= now:
            del self._jobs[self._ended.popleft()[1]]

    def _live(self, job: SlurmJob, now: float) -> None:
        work = self._work.get(job.id)
        if work is None:
            return
        match job.state:
            case JobState.PENDING if job.reservation and job.pinned:
                self._start(job, work, now)
            case JobState.RUNNING:
                end_s = work.since_s + work.left / work.speed
                if now >= end_s:
                    self._tell(job, work, end_s, "end")
                    self._end(job, end_s, "COMPLETED")
                elif now >= work.told_s + TELLS_S:
                    self._tell(job, work, now, "progress")
            case JobState.COMPLETING if job.end_s is not None and now >= job.end_s:
                again = replace(job, state=JobState.PENDING, nodes=(), start_s=None, end_s=None)
                again = replace(again, gpus=job.gpus, gpu_types=(), restarts=job.restarts + 1)
                self._jobs[job.id] = replace(again, submit_s=now, begin_s=now)

    def _submit(self, at_s: float) -> None:
        rng = self.rng
        self.submitted += 1
        account = rng.choice(self._users)
        nonce = f"{rng.getrandbits(64):016x}"
        mark: dict[str, Any] = {"nonce": nonce, "submitted": int(at_s)}
        job_id, kind = str(self.submitted), rng.random()
        gpus = 1
        if kind < 0.65:
            key = f"net{rng.randrange(MODELS)}"
            if rng.randrange(FRESH) == 0:
                key = f"once{self.submitted}"
            counts = rng.choice(COUNTS)
            gpus = int(counts[0])
            mark |= {"gpu-set": counts, "profile-key": key}
            if rng.random() < 0.7:
                mark["can-checkpoint"] = True
        elif kind < 0.85:
            gpus = rng.choice((1, 1, 2, 4))
        else:
            gpus = 0
        cpus = max(1, gpus)
        job = replace(
            PENDING,
            id=job_id,
            name=f"job{job_id}",
            user=account.pw_name,
            reason="ReqNodeNotAvail, Reserved for maintenance",
            mark=f"hetsched/2 {json.dumps(mark, separators=(',', ':'))}",
            gpus=gpus,
            submit_s=at_s,
            begin_s=at_s,
            time_limit_s=2 * DAY_S,
            asked=HostRequest(1),
            cpus=cpus,
            resources=Resources((1, 1), cpus, f"gres/gpu:{gpus}" if gpus else "", "", "", ""),
            priority=1_000_000 - self.submitted,
        )
        self._jobs[job_id] = job
        # Many short ones: the median is a quarter of an hour on its GPUs, the mean over an hour.
        hours = min(24.0, rng.lognormvariate(math.log(0.25), 1.8))
        self._work[job_id] = _Work(
            left=hours * HOUR_S * max(1, gpus) * SPEEDS["v100"],
            uid=account.pw_uid,
            gid=account.pw_gid,
            saves="can-checkpoint" in mark,
            rubbish=rng.randrange(RUBBISH) == 0,
        )

    def _start(self, job: SlurmJob, work: _Work, now: float) -> None:
        if any(name in self._down for name in job.pinned):
            return
        each = gpus_in(job.resources.per_node or "")[0]
        gpus = each * len(job.pinned) or gpus_in(job.resources.per_job or "")[0]
        types = tuple(sorted({self._types[name] for name in job.pinned})) if gpus else ()
        self._jobs[job.id] = replace(
            job,
            state=JobState.RUNNING,
            reason="None",
            nodes=job.pinned,
            start_s=now,
            gpus=gpus,
            gpu_types=types,
        )
        work.speed = max(1, gpus) * (SPEEDS[types[0]] if types else SPEEDS["v100"])
        work.since_s = work.begun_s = work.told_s = now
        work.spool = self.folder / f"spool/{work.uid}/{job.id}.{job.restarts}.0.jsonl"
        if gpus:
            self._tell(self._jobs[job.id], work, now, "start")

    def _stop(self, job: SlurmJob, now: float) -> None:
        work = self._work[job.id]
        self._tell(job, work, now, "end" if work.saves else "")
        if not work.saves:
            work.left, work.done = work.left + work.done, 0.0
        self._jobs[job.id] = replace(job, state=JobState.COMPLETING, end_s=now + ENDS_S)

    def _end(self, job: SlurmJob, end_s: float, how: str) -> None:
        ended = replace(job, state=JobState.ENDED, end_s=end_s, outcome=how, over=True)
        self._jobs[job.id] = ended
        self._ended.append((end_s, job.id))
        del self._work[job.id]
        self.ended += 1

    def _tell(self, job: SlurmJob, work: _Work, now: float, what: str) -> None:
        """Bring the work up to now, and write a line about it into the job's spool file."""
        if work.speed:
            done = min(work.left, work.speed * (now - work.since_s))
            work.left, work.done, work.since_s = work.left - done, work.done + done, now
        if not job.gpus or work.spool is None or not what or not work.spool.parent.is_dir():
            return
        work.told_s, t_s = now, now - work.begun_s
        ran: list[dict[str, Any]] = []
        if what == "start":
            mark = json.loads(job.mark.partition(" ")[2])
            line = {"schema": "hetsched-spool/1", "job": job.id, "run": job.restarts, "rank": 0}
            line |= {"world_size": job.gpus, "nonce": mark["nonce"], "host": job.nodes[0]}
            ran = [{"type": "start", **line, "pid": 1, "at_s": now}]
        else:
            speed = work.speed * self.rng.uniform(0.95, 1.05)
            times: dict[str, Any] = {"data_s": [0.01], "wait_s": [0.001]}
            ran = [
                {"type": "progress", "t_s": t_s, "samples": work.done, "samples_per_s": speed}
                | times
            ]
            if work.saves:
                saved = {"type": "checkpoint", "t_s": t_s, "samples": work.done, "stopped_s": 0.1}
                ran.append(saved)
        if what == "end":
            how = "completed" if work.left <= 0 else "stopped"
            ran.append({"type": "end", "t_s": t_s, "samples": work.done, "how": how})
        text = "".join(f"{json.dumps(each)}\n" for each in ran)
        new = not work.spool.exists()
        with work.spool.open("a") as file:
            file.write("rubbish\n" if work.rubbish else text)
        if new:
            os.chown(work.spool, work.uid, work.gid)
        # Its age is that of the month.
        os.utime(work.spool, (now, now))

    # -- what is planned ---------------------------------------------------------------------------

    def _announced(self, _: float, about: tuple[str, float, float, list[str]]) -> None:
        name, at_s, seconds, nodes = about
        begins = self.began_s + at_s
        flags = frozenset({"MAINT", "IGNORE_JOBS"})
        self._reservations[name] = SlurmReservation(
            name, tuple(sorted(nodes)), begins, begins + seconds, flags, "root"
        )

    def _restarted(self, at_s: float, _: None) -> None:
        self._away_until_s = at_s + AWAY_S

    def _clock(self, _: float, seconds: int) -> None:
        self.clock.set_off(seconds)

    def _fails(self, at_s: float, name: str) -> None:
        self._down[name] = at_s + self.rng.uniform(0.5, 3.0) * HOUR_S
        for job in list(self._jobs.values()):
            if job.state is JobState.RUNNING and name in job.nodes:
                self._stop(job, at_s)

    def _tidied(self, at_s: float, _: None) -> None:
        """Do what the site's line of tmpfiles.d does to the files of users."""
        for folder in (self.folder / "spool").iterdir():
            for path in folder.iterdir() if folder.name.isdecimal() else ():
                if path.stat().st_mtime < at_s - SPOOL_KEPT_S:
                    path.unlink()

    # -- parts -------------------------------------------------------------------------------------

    def _answer(self, now: float) -> None:
        if now < self._away_until_s:
            raise AwayError("Unable to contact slurm controller (connect failure)")

    def _waiting(self, job: str) -> SlurmJob:
        seen = self._jobs.get(job)
        if seen is None or seen.state not in (JobState.PENDING, JobState.COMPLETING):
            raise RefusedError("Job/step already completing or completed")
        return seen

    def _hold(self, new: SlurmReservation, now: float) -> None:
        for each in self._reservations.values():
            others = each.name != new.name and each.start_s <= now < each.end_s
            if others and "MAINT" not in each.flags and set(each.nodes) & set(new.nodes):
                raise RefusedError("Requested nodes are busy")
        before = self._reservations.get(new.name)
        start_s = new.start_s if before is None else before.start_s
        self._reservations[new.name] = replace(new, start_s=start_s)

    def _roomy(self, job: SlurmJob) -> list[str]:
        """Return a node on which there are CPUs for a job without GPUs."""
        used = Counter[str]()
        for each in self._jobs.values():
            if each.state is JobState.RUNNING:
                used.update(dict.fromkeys(each.nodes, each.cpus // len(each.nodes)))
        up = [node.name for node in self.nodes if node.name not in self._down]
        return [min(up, key=lambda name: used[name])]

    def _node(self, node: FakeNode, gpus: int, cpus: int, now: float) -> SlurmNode:
        upkeep = any(
            "MAINT" in each.flags and node.name in each.nodes and each.start_s <= now < each.end_s
            for each in self._reservations.values()
        )
        condition = NodeCondition.DRAINED if upkeep else NodeCondition.UP
        if node.name in self._down:
            condition = NodeCondition.DOWN
        return SlurmNode(
            name=node.name,
            condition=condition,
            gpus=node.kinds,
            gpus_used=((node.gpu_type, gpus),) if gpus else (),
            cpus=NODE_CPUS,
            cpus_used=cpus,
            memory_mb=NODE_MEMORY_MB,
            memory_used_mb=0,
            partitions=frozenset({"gpu"}),
        )

    def _write_down(self, now: float) -> None:
        states = Counter(job.state for job in self._jobs.values())
        took = sorted(self._cycles_s)
        self._cycles_s.clear()
        before_s, self._cpu_s = self._cpu_s, time.process_time()
        cpu_s = self._cpu_s - before_s
        spool = moves = -1
        if self._hour % 24 == 0:
            spool, moves = files_in(self.folder / "spool")
        hour = Hour(
            day=(now - self.began_s) / DAY_S,
            submitted=self.submitted,
            ended=self.ended,
            waiting=states[JobState.PENDING],
            running=states[JobState.RUNNING],
            cycles=len(took),
            cycle_ms=1000 * median(took) if took else 0.0,
            cpu_ms=1000 * cpu_s / max(1, len(took)),
            rss_kib=rss_kib("self"),
            descriptors=entries(Path("/proc/self/fd")),
            threads=entries(Path("/proc/self/task")),
            database_kib=sum(map(_kib, self.folder.glob("daemon.duckdb*"))),
            log_kib=sum(map(_kib, self.folder.glob("daemon.log*"))),
            load=os.getloadavg()[0],
            spool_files=spool,
            moves_files=moves,
        )
        with (self.folder / "hours.jsonl").open("a") as file:
            file.write(json.dumps(asdict(hour)) + "\n")


def hours_in(folder: Path) -> Iterator[Hour]:
    """Yield what has been written down so far."""
    path = folder / "hours.jsonl"
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if line.endswith("\n"):
            yield Hour(**json.loads(line))


def rss_kib(process: int | str) -> int:
    """Return the resident memory of a process."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS:")).split()[1])


def files_in(spool: Path) -> tuple[int, int]:
    """Return how many files there are of users in a spool, and of the daemon."""
    users = sum(map(entries, (each for each in spool.iterdir() if each.name.isdecimal())))
    moves = spool / "moves"
    return users, sum(map(entries, moves.iterdir())) if moves.is_dir() else 0


def entries(folder: Path) -> int:
    """Return how many entries a folder has."""
    return sum(1 for _ in folder.iterdir())


def _kib(path: Path) -> int:
    try:
        return path.stat().st_size >> 10
    except FileNotFoundError:
        return 0


def _shaped(job: SlurmJob, resources: Resources | None, terms: Terms) -> SlurmJob:
    """Return a waiting job as a change leaves it."""
    if resources is not None:
        new = {name: value for name, value in asdict(resources).items() if value is not None}
        job = replace(job, resources=replace(job.resources, **new))
    if terms.cpus_in_all is not None:
        job = replace(job, cpus=terms.cpus_in_all)
    if terms.cpus is not None:
        job = replace(job, asked=replace(job.asked, cpus_per_task=terms.cpus))
    if terms.time_limit_min is not None:
        job = replace(job, time_limit_s=60.0 * terms.time_limit_min)
    gpus = gpus_in(job.resources.per_job or job.resources.per_node or "")[0]
    return replace(job, gpus=gpus)


def main(words: Sequence[str]) -> int:
    """Run the daemon on such a Slurm."""
    parser = argparse.ArgumentParser(prog="month_slurm")
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--days", type=float, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("options", nargs="*")
    given = parser.parse_args(words)
    from slurm_plugin.testbed import fake_nodes

    clock = SteppedClock(Path(os.environ["CLOCK_OFFSET"]))
    rng = random.Random(1)
    slurm = MonthSlurm(fake_nodes(given.nodes), clock, given.folder, given.jobs, given.days, rng)

    def sleep(asked: Any, seconds: float) -> None:
        # Between cycles; what waits for an answer of Slurm waits here, too.
        slurm.slept(0.0 if asked.stop else seconds)
        if select.select([asked._woken], [], [], 0.001)[0]:
            asked._woken.recv(4096)

    made_up = patch.object(run, "open_backend", lambda _: slurm)
    with made_up, patch.object(run._SignalFlags, "sleep", sleep):
        return hetschedd(given.options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
