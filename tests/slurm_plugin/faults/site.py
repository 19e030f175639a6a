"""A cluster of its own on which things go wrong, its jobs, and what has to hold of them after.

What is held against the jobs comes from two sides: from what each run saw itself (when it began and
ended, and which GPUs it was given on each node) and from Slurm's own records.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import attrgetter
from pathlib import Path

from ClusterShell.NodeSet import NodeSet

from slurm_plugin.testbed import (
    NODE_CPUS,
    NODE_MEMORY_MB,
    FakeNode,
    Testbed,
    TestbedError,
    fake_nodes,
)
from tests.slurm_plugin.accounts import UNTOLD, Accounted, most_at_once, recorded
from tests.slurm_plugin.clusters import has_saved
from tests.slurm_plugin.daemon.process.test_hetschedd import hetschedd
from tests.slurm_plugin.jobs import await_hold, deadline

ROOT = Path(__file__).resolve().parents[3]

SPEEDS = {"a100": 100.0, "v100": 50.0, "t4": 25.0}

START = """\
held="$SLURM_JOB_NODELIST=${SLURM_JOB_GPUS:-$CUDA_VISIBLE_DEVICES}"
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    held=$(srun bash -c 'echo $SLURMD_NODENAME=$CUDA_VISIBLE_DEVICES' | paste -sd " ")
fi
echo "start $EPOCHREALTIME $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} ${HETSCHED_NONCE:--} $held"\
"""
"""What a run notes down when it begins, for `runs_in` to read; it ends with `end` and the time."""

SCRIPT = """\
#!/bin/bash
{asks}
#SBATCH --open-mode=append --output=/dev/null
cd {folder}
stub=
trap '[ -n "$stub" ] && kill -TERM $stub 2>/dev/null' TERM
seen=seen/{token}${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}
{start} >>$seen
{work} >>$seen.out 2>&1 &
stub=$!
while kill -0 $stub 2>/dev/null; do wait $stub; done
echo "end $EPOCHREALTIME" >>$seen
"""
"""A job that notes down when each of its runs begins and ends, and what it holds then."""

STUB = (
    "{python} -I -S {root}/job_wrappers/stub.py --spool {folder}/spool --batch 8 "
    "--samples {samples} --report-every 0.5 --checkpoint $seen.json {speeds}"
)
"""What a job with GPUs does."""

SLEEP = "(sleep {seconds}; echo 'done at {seconds} s')"
"""What a job without GPUs does."""

ELEMENTS = 3
"""An array has so many."""

_TELLS_S = 8.0
"""How often nodes tell a controller that was killed what runs on them."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of jobs: what it asks for, its GPUs as it is submitted, its elements, 0 for no array.

    `{key}` in `asks` stands for the profile. `work` is what it does, "" for what it asks for.
    """

    asks: str
    gpus: int
    elements: int = 0
    work: str = ""


def _set(counts: str, more: str = "", elements: int = 0) -> Kind:
    line = f"#HETSCHED --gpu-set={counts} --profile-key={{key}} --can-checkpoint"
    return Kind(f"{line}\n#SBATCH {more}" if more else line, int(counts[0]), elements)


SETS = tuple(_set(counts) for counts in ("1", "1,2", "2,4", "1-4", "4,8", "2"))

PLAIN = (
    Kind("#SBATCH --gpus=4 --nodes=1", 4),
    Kind("#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=2", 4),
    Kind("#SBATCH --gpus=1 --array=0-2%2", 1, ELEMENTS),
    _set("1,2", "--array=0-2", ELEMENTS),
    Kind("#SBATCH --cpus-per-task=2", 0),
)
"""Jobs without a set, arrays, and one without GPUs."""


def nodes() -> tuple[FakeNode, ...]:
    """Return the nodes on which things go wrong: many GPUs on few, of two types."""
    return fake_nodes(8, "a100:8,v100:8")


@dataclass(frozen=True, slots=True)
class Seen:
    """A run of a job as the job saw it; `gpus` are (node, number) pairs, `end` None if killed."""

    job: str
    number: int
    nonce: str
    gpus: frozenset[tuple[str, int]]
    begin: float
    end: float | None

    @property
    def pieces(self) -> tuple[tuple[str, int], ...]:
        """How many GPUs it had on each node."""
        return tuple(sorted(Counter(node for node, _ in self.gpus).items()))

    def overlaps(self, other: Seen) -> bool:
        return self.begin < (other.end or math.inf) and other.begin < (self.end or math.inf)


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job that Slurm has accepted: its id, and when that was, seconds UTC."""

    job: str
    at: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a site's jobs.

    `wrong` is what ought not to be, in words: nothing, if all is well.
    """

    jobs: int
    runs: int
    killed_runs: int
    finished: int
    wrong: tuple[str, ...]


@dataclass(slots=True)
class Site:
    """A cluster, the folder in which its jobs and its daemon write, and what was submitted.

    Jobs have a name of ours, and so has each element of an array: one that Slurm has lost may leave
    its id to the next. `gpus` are those that they ask for as they are submitted, `preload` is a
    library for the daemon.
    """

    cluster: Testbed
    folder: Path
    options: tuple[str, ...]
    rng: random.Random
    samples: tuple[float, float] = (100.0, 350.0)
    since: float = field(default_factory=time.time)
    submitted: dict[str, Submitted] = field(default_factory=dict)
    gpus: dict[str, int] = field(default_factory=dict)
    daemon: subprocess.Popen[str] | None = None
    preload: str = ""

    def __post_init__(self) -> None:
        for name in ("seen", "spool"):
            (self.folder / name).mkdir(exist_ok=True)

    @property
    def log(self) -> str:
        path = self.folder / "daemon.log"
        return path.read_text() if path.exists() else ""

    # -- the daemon --------------------------------------------------------------------------------

    def start_daemon(self, *options: str) -> subprocess.Popen[str]:
        spool = f"--spool={self.folder}/spool"
        socket = f"--socket={self.folder}/hetschedd.sock"
        words = (spool, socket, *self.options, *options)
        self.daemon = hetschedd(self.cluster, self.folder, *words, LD_PRELOAD=self.preload)
        return self.daemon

    def kill_daemon(self) -> None:
        """End it as nobody can prepare for."""
        assert self.daemon is not None
        assert self.daemon.poll() is None, f"the daemon has ended by itself: {self.log[-3000:]}"
        self.daemon.kill()
        self.daemon.wait()

    def close(self) -> None:
        """Leave no daemon behind, and no job, whatever a test has come to."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()
        self.cancel_all()

    def cancel_all(self) -> None:
        with suppress(TestbedError):
            self.cluster.command("scancel", "--user=root", "--full", "--signal=KILL")
            self.cluster.command("scancel", "--user=root")

    def stop_daemon(self) -> None:
        assert self.daemon is not None
        self.daemon.terminate()
        assert self.daemon.wait(120) == 0, self.log[-3000:]

    def await_log(self, text: str, timeout_s: float = 60.0, after: int = 0) -> None:
        """Wait until the daemons' log says something, beyond its first `after` characters."""
        self.await_that(lambda: text in self.log[after:], timeout_s, f"the log says {text!r}")

    def await_that(self, true: Callable[[], bool], timeout_s: float, what: str) -> None:
        latest = deadline(timeout_s)
        while not true():
            assert time.monotonic() < latest, f"not so: {what}; the log: {self.log[-3000:]}"
            time.sleep(0.2)

    def await_saved(self, at_s: float) -> None:
        """Wait until slurmctld has saved all that it knew at a time, seconds UTC.

        What it is told while it begins to save is saved the next time.
        """
        self.await_that(
            lambda: has_saved(self.cluster, "job", at_s + 1.0), 60, "slurmctld has saved that"
        )

    def save(self, job: str) -> None:
        """Have slurmctld save how things stand: by a change of a job, else it sees no need to."""
        now_s = time.time()
        time.sleep(1.5)
        self.cluster.command("scontrol", "update", f"jobid={job}", "comment=saved")
        self.await_saved(now_s)

    # -- jobs --------------------------------------------------------------------------------------

    def submit(self, kinds: Sequence[Kind] = (*SETS, *SETS, *PLAIN)) -> str:
        return self.submit_one(self.rng.choice(kinds))

    def submit_one(self, kind: Kind, *options: str) -> str:
        name, script = self.write(kind)
        job = self.cluster.command("sbatch", "--parsable", *options, script).strip()
        self.note(name, kind, job)
        return name

    def write(self, kind: Kind) -> tuple[str, Path]:
        """Write the script of a job of a random size; return the job's name, and the script."""
        low, high = self.samples
        name = f"j{len(self.submitted)}"
        samples = self.rng.uniform(low, high)
        work = kind.work or (STUB if kind.gpus else SLEEP)
        script = self.folder / f"{name}.sh"
        script.write_text(
            SCRIPT.format(
                start=START,
                token=name,
                asks=kind.asks.format(key=f"net{self.rng.randrange(3)}"),
                folder=self.folder,
                work=work.format(
                    python=sys.executable,
                    root=ROOT,
                    folder=self.folder,
                    samples=samples * kind.gpus,
                    seconds=samples / max(SPEEDS.values()),
                    speeds=" ".join(f"--speed {name}={speed}" for name, speed in SPEEDS.items()),
                ),
            )
        )
        return name, script

    def note(self, name: str, kind: Kind, job: str) -> None:
        """Note down by which id Slurm knows a job."""
        for end in [f"_{each}" for each in range(kind.elements)] or [""]:
            self.submitted[name + end] = Submitted(job + end, time.time())
            self.gpus[name + end] = kind.gpus

    def plain_job(self, gpus: int = 1) -> str:
        """Submit a job that runs until it is cancelled, and has no mark; return its id."""
        asks = ("--output=/dev/null", f"--gpus={gpus}", "--wrap=sleep 600")
        return self.cluster.command("sbatch", "--parsable", *asks).strip()

    def await_run(self, job: str, run: int = 0, least_s: float = 0.0) -> None:
        """Wait until a run of a job, or a later one, has lasted for so long."""

        def runs() -> bool:
            told = self.cluster.command(
                *("squeue", "-h", f"--jobs={job}", "--states=R"),
                "--Format=RestartCnt:20,TimeUsed:20",
            )
            match told.split():
                case [restarts, used]:
                    minutes, seconds = used.split(":")
                    return int(restarts) >= run and 60 * int(minutes) + int(seconds) >= least_s
            return False

        self.await_that(runs, 60, f"run {run} of job {job} lasts for {least_s} s")

    def queue(self) -> set[str]:
        return set(self.cluster.command("squeue", "--noheader", "--array", "--format=%i").split())

    def held_nodes(self) -> set[str]:
        told = self.cluster.command("squeue", "-h", "--states=R,CG", "--format=%N").split()
        return set(NodeSet(",".join(told)))

    def begin(self, jobs: int) -> None:
        """Start a daemon, submit jobs, and wait until some have begun."""
        self.start_daemon()
        await_hold(self.cluster)
        for _ in range(jobs):
            self.submit()
        self.await_that(lambda: len(self.seen()) > jobs / 5, 60, "jobs have begun")

    def finish(self, patience_s: float = 180.0) -> None:
        self.await_all(patience_s)
        self.stop_daemon()

    def await_ends(self, timeout_s: float) -> None:
        """Wait until all jobs that are left in the queue have noted down that they are done.

        A controller that has forgotten the end of a job asks the node at some time; it is told now.
        """
        ids = {job.job: name for name, job in self.submitted.items()}
        told = time.monotonic()

        def ended() -> bool:
            nonlocal told
            if time.monotonic() > told + _TELLS_S:
                self.cluster.register_nodes()
                told = time.monotonic()
            return all(self.is_done(ids[job]) for job in self.queue())

        self.await_that(ended, timeout_s, "all jobs are done")
        if left := self.queue():
            self.cluster.command("scancel", *left)
        self.await_all(timeout_s)
        self.stop_daemon()

    def is_done(self, name: str) -> bool:
        """Whether a job has done all that it was to do, and a run of it has ended.

        One that is requeued in the moment of its end comes back with nothing left to do.
        """
        out, runs = (self.folder / "seen" / f"{name}{end}" for end in (".out", ""))
        if not out.exists() or not re.search(r"^end ", runs.read_text(), re.MULTILINE):
            return False
        return re.search(r"^done at", out.read_text(), re.MULTILINE) is not None

    def await_all(self, timeout_s: float) -> None:
        """Wait until the queue is empty; the daemon may not end meanwhile."""
        latest = deadline(timeout_s)
        while self.queue():
            assert self.daemon is None or self.daemon.poll() is None, self.log[-3000:]
            if time.monotonic() > latest:
                left = self.cluster.command("squeue", "--array", "--format=%i %T %r %S %N")
                raise AssertionError(f"stranded: {left}; {self.log[-3000:]}")
            time.sleep(0.5)

    def lost(self) -> dict[str, str]:
        """Return the jobs of which Slurm knows nothing any more: name -> the id that they had."""
        listing = ("squeue", "-h", "--array", "--states=all", "--format=%i")
        known = set(self.cluster.command(*listing).split())
        return {name: job.job for name, job in self.submitted.items() if job.job not in known}

    def seen(self) -> dict[str, list[Seen]]:
        """Return what all runs saw, by the name of the job, in the order in which they began."""
        found = {}
        for path in sorted((self.folder / "seen").iterdir()):
            if not path.suffix:
                found[path.name] = sorted(runs_in(path.read_text()), key=lambda run: run.begin)
        return found

    # -- what has to hold --------------------------------------------------------------------------

    def unlaunched(self) -> set[str]:
        """Return the jobs that slurmctld has ended since it could tell no node to launch them.

        So it does where there is no munge at that moment.
        """
        killed = "Killing non-startable batch "
        return {
            name
            for name, job in self.submitted.items()
            if any(killed in line for line in self._controller_of(job.job))
        }

    def _controller_of(self, job: str) -> list[str]:
        """What slurmctld's log says of a job, since the site began."""
        log = (self.cluster.layout.logs / "slurmctld.log").read_text(errors="replace")
        lines = re.findall(rf"^\[.* JobId={job}\b.*$", log, re.MULTILINE)
        return [line for line in lines if line[1:20] >= stamp(self.since)]

    def verdict(
        self, lost: Collection[str] | None = None, cancelled: Collection[str] = ()
    ) -> Verdict:
        """Hold all runs to what has to be true of them, whatever went wrong.

        Args:
            lost: the jobs that slurmctld lost when it was killed; None if it never was. It then
                has forgotten its last seconds: which jobs there are, how often each was started,
                and what its accounting had not yet been told. What the runs saw is held against
                them all the same.
            cancelled: the jobs that may have ended, or never begun, with work left.
        """
        gone = {*(lost or ()), *cancelled}
        seen = self.seen()
        wrong: list[str] = []
        done: set[str] = set()
        for name, runs in seen.items():
            wrong += of_one_job(runs)
            out = self.folder / "seen" / f"{name}.out"
            said = out.read_text().splitlines() if out.exists() else []
            if self.is_done(name):
                done.add(name)
            elif name not in gone:
                wrong.append(f"job {runs[0].job} has not finished: {said[-3:]}")
            samples = [float(n) for n in re.findall(r" (\d+) of \d+ samples done", "\n".join(said))]
            if samples != sorted(samples):
                wrong.append(f"job {runs[0].job} has lost progress: {samples}")
        wrong += shared_gpus(run for runs in seen.values() for run in runs)
        if lost is None:
            rows = self.accounted(seen)
            wrong += miscounted(seen)
            wrong += untold(rows)
            wrong += over_full(self.cluster.layout.nodes, rows, seen)
            wrong += against_records(seen, rows)
        wrong += [
            f"job {job.job} has never run: {self._controller_of(job.job)[-3:]}"
            for name, job in self.submitted.items()
            if name not in seen and name not in gone
        ]
        runs_in_all = sum(map(len, seen.values()))
        killed = sum(run.end is None for runs in seen.values() for run in runs)
        return Verdict(len(self.submitted), runs_in_all, killed, len(done), tuple(wrong))

    def check(self) -> Verdict:
        """Hold that all jobs have finished, none was killed, and nothing else was wrong."""
        verdict = self.verdict()
        assert verdict.wrong == ()
        finished = (verdict.finished, verdict.killed_runs)
        assert finished == (len(self.submitted), 0), f"{finished}: jobs finished, runs killed"
        return verdict

    def accounted(self, seen: Mapping[str, Sequence[Seen]]) -> dict[str, list[Accounted]]:
        """Return what Slurm's records say of all runs, by the ids that the runs saw.

        The records lag behind: they are asked until they know all runs and how they have ended.
        """
        began = stamp(self.since)
        latest = deadline(60)
        while True:
            every = recorded(self.cluster, "--starttime=now-1days")
            ours = (
                (job, [row for row in rows if row.start[:1].isdigit() and row.start >= began])
                for job, rows in every.items()
            )
            found = {job: rows for job, rows in ours if rows}
            lacking = itertools.chain(untold(found), against_records(seen, found))
            if not any(lacking) or time.monotonic() > latest:
                return found
            time.sleep(0.5)


def runs_in(text: str) -> Iterator[Seen]:
    begun: Seen | None = None
    for line in text.splitlines():
        word, at, *rest = line.split()
        if word == "start":
            if begun is not None:
                yield begun
            job, number, nonce, *held = rest
            gpus = frozenset((node, gpu) for each in held for node, gpu in _gpus(each))
            begun = Seen(job, int(number), nonce, gpus, float(at), None)
        elif begun is not None:
            yield replace(begun, end=float(at))
            begun = None
    if begun is not None:
        yield begun


def _gpus(held: str) -> Iterator[tuple[str, int]]:
    node, _, numbers = held.partition("=")
    for number in filter(None, numbers.split(",")):
        yield node, int(number)


def of_one_job(runs: Sequence[Seen]) -> Iterator[str]:
    """Say what is wrong with the runs of a job: they come one after the other."""
    for before, after in itertools.pairwise(runs):
        if before.end is not None and before.end > after.begin:
            yield f"job {before.job} ran twice at once: {before}, {after}"
        if before.nonce != after.nonce:
            yield f"job {before.job} has changed its nonce: {before}, {after}"


def miscounted(seen: Mapping[str, Sequence[Seen]]) -> Iterator[str]:
    """Name the runs that do not have a higher number than those before them."""
    for runs in seen.values():
        for before, after in itertools.pairwise(runs):
            if before.number >= after.number:
                yield f"job {before.job}: run {after.number} after run {before.number}"


FREED_S = 1.5
"""For so long a run may go on telling on its first node what has ended on its others."""


def shared_gpus(runs: Iterator[Seen]) -> Iterator[str]:
    """Name the GPUs that two runs had at the same time, as the runs themselves saw it."""
    by_gpu = defaultdict(list)
    for run in runs:
        for gpu in run.gpus:
            by_gpu[gpu].append(run)
    for gpu, each in by_gpu.items():
        each.sort(key=lambda run: run.begin)
        for before, after in itertools.pairwise(each):
            # A run tells its end on its first node alone; Slurm frees the others one by one.
            late = 0.0 if gpu[0] == min(before.gpus)[0] else FREED_S
            if before.end is not None and before.end - late > after.begin:
                yield f"{gpu} was used twice: {before}, {after}"


def stamp(at_s: float) -> str:
    """Return a time, seconds UTC, as Slurm's records write it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_s))


def untold(rows: Mapping[str, Sequence[Accounted]]) -> Iterator[str]:
    for job, each in rows.items():
        if any(row.end == UNTOLD for row in each):
            yield f"Slurm's records lack the end of job {job}: {each}"


def over_full(
    nodes: Sequence[FakeNode],
    rows: Mapping[str, Sequence[Accounted]],
    seen: Mapping[str, Sequence[Seen]],
) -> Iterator[str]:
    """Name the nodes of which Slurm's records have more in use at once than there is.

    They tell how much a run had in all; which GPUs it had on each node it has seen itself, and its
    CPUs and memory are taken to be spread as its GPUs are.
    """
    held = {
        (run.job, run.number): Counter(node for node, _ in run.gpus)
        for runs in seen.values()
        for run in runs
    }

    def share(job: str, row: Accounted, node: str) -> Accounted:
        own = held.get((job, row.restarts), Counter())
        parts = Fraction(own[node], own.total()) if own else Fraction(1, len(row.nodes))
        return replace(
            row,
            gpus=int(row.gpus * parts),
            cpus=int(row.cpus * parts),
            memory_mb=int(row.memory_mb * parts),
        )

    for node in nodes:
        shares = [
            share(job, row, node.name)
            for job, each in rows.items()
            for row in each
            if node.name in row.nodes and row.end != UNTOLD
        ]
        gpus = sum(count for _, count in node.kinds)
        rooms = {"GPUs": gpus, "CPUs": NODE_CPUS, "MiB": NODE_MEMORY_MB}
        fields = {"GPUs": "gpus", "CPUs": "cpus", "MiB": "memory_mb"}
        for what, room in rooms.items():
            most = most_at_once(shares, attrgetter(fields[what]))
            if most > room:
                yield f"Slurm's records have {most} {what} of {node.name} in use at once"


def against_records(
    seen: Mapping[str, Sequence[Seen]], rows: Mapping[str, Sequence[Accounted]]
) -> Iterator[str]:
    """Say where what a run saw is not what Slurm has recorded of it."""
    for runs in seen.values():
        for run in runs:
            nodes = {node for node, _ in run.gpus}
            # A run that was stopped before its srun had told what it holds has seen nothing.
            recorded = [
                row
                for row in rows.get(run.job, ())
                if row.restarts == run.number and (row.nodes == nodes or not nodes)
            ]
            if not recorded:
                yield f"Slurm has no record of {run}; it has {rows.get(run.job)}"
            elif nodes and all(row.gpus != len(run.gpus) for row in recorded):
                yield f"Slurm has recorded other GPUs than {run} had: {recorded}"
