"""Five hundred jobs of all kinds, and what users do to them, on 64 nodes in two partitions.

    python -m tests.slurm_plugin.faults.mixed --policy steady

prints what came of it; `--jobs` and `--nodes` make it smaller.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from slurm_plugin.backend import hold_number
from slurm_plugin.testbed import (
    FakeNode,
    Installation,
    Partition,
    TestbedError,
    default_cache,
    fake_nodes,
    install,
    usual_site,
)
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.accounts import Accounted
from tests.slurm_plugin.clusters import up
from tests.slurm_plugin.faults.site import ELEMENTS, Kind, Site, stamp
from tests.slurm_plugin.jobs import await_hold, deadline


@dataclass(frozen=True, slots=True)
class Wish:
    """A kind of jobs, and what has to hold of each of their runs, for the judge.

    Attributes:
        kind: what it asks for.
        by: what submits it; all but sbatch is interactive.
        counts: the GPUs of a run.
        nodes: how many nodes a run may have; empty for any number.
        partitions: in which it may run.
        where: whether it may run on a node.
    """

    kind: Kind
    by: str
    counts: frozenset[int]
    nodes: frozenset[int]
    partitions: frozenset[str]
    where: Callable[[FakeNode], bool]


def _anywhere(_: FakeNode) -> bool:
    return True


def _wish(
    asks: str,
    counts: Sequence[int] = (0,),
    nodes: Sequence[int] = (),
    partitions: Sequence[str] = ("gpu",),
    where: Callable[[FakeNode], bool] = _anywhere,
    by: str = "sbatch",
    elements: int = 0,
) -> Wish:
    """Return a wish; words of `asks` that belong to a set stand on a line of hetsched's own."""
    ours = [word for word in asks.split() if word.startswith("--gpu-")]
    others = [word for word in asks.split() if word not in ours]
    if ours:
        ours += ["--profile-key={key}", "--can-checkpoint"]
    lines = (("#HETSCHED", ours), ("#SBATCH", others))
    text = "\n".join(" ".join((head, *words)) for head, words in lines if words)
    kind = Kind(text, counts[0], elements)
    return Wish(kind, by, frozenset(counts), frozenset(nodes), frozenset(partitions), where)


SHORT = ("short",)
BOTH = ("gpu", "short")

WISHES = (
    _wish("--gpu-set=1,2", (1, 2)),
    _wish("--gpu-set=2,4", (2, 4)),
    _wish("--gpu-set=1-4", (1, 2, 3, 4)),
    _wish("--gpu-set=4,8", (4, 8)),
    _wish("--gpu-set=2 --partition=short", (2,), partitions=SHORT),
    _wish("--gpu-set=2,4 --partition=gpu,short", (2, 4), partitions=BOTH),
    _wish("--gpu-set=1,2 --constraint=ib", (1, 2), where=lambda n: "ib" in n.features),
    _wish(
        *("--gpu-set=1,2 --gpu-types=v100,t4 --partition=short", (1, 2)),
        partitions=SHORT,
        where=lambda n: n.gpu_type != "a100",
    ),
    _wish("--gpu-set=2,4,8 --gpus=4 --nodes=1", (4, 2, 8), (1,)),
    _wish("--gpu-set=1,2 --exclude=n[0-3]", (1, 2), where=lambda n: int(n.name[1:]) > 3),
    # Arrays.
    _wish("--gpus=1 --array=0-2%2", (1,), elements=ELEMENTS),
    _wish("--gpu-set=1,2 --array=0-2", (1, 2), elements=ELEMENTS),
    _wish(
        *("--gpu-set=1,2 --array=0-2%1 --constraint=ib|nvme --partition=gpu,short", (1, 2)),
        partitions=BOTH,
        where=lambda n: bool({"ib", "nvme"} & set(n.features)),
        elements=ELEMENTS,
    ),
    _wish("--cpus-per-task=2 --array=0-2", elements=ELEMENTS),
    # Rigid ones.
    _wish("--gpus=4 --nodes=1", (4,), (1,)),
    _wish("--gpus=3", (3,)),
    _wish("--nodes=2 --ntasks-per-node=1 --gpus-per-node=2", (4,), (2,)),
    _wish("--gres=gpu:v100:2 --nodes=1", (2,), (1,), where=lambda n: n.gpu_type == "v100"),
    _wish("--gpus=1 --cpus-per-task=8 --mem=12G", (1,), (1,)),
    _wish("--gpus=1 --nodelist=n5", (1,), (1,), where=lambda n: n.name == "n5"),
    _wish(
        *("--gpus=2 --nodes=1 --constraint=ib&nvme --partition=short", (2,), (1,), SHORT),
        where=lambda n: {"ib", "nvme"} <= set(n.features),
    ),
    # Without GPUs.
    _wish("--cpus-per-task=2"),
    _wish("--nodes=2 --ntasks-per-node=4", nodes=(2,)),
    _wish("--ntasks=1 --mem=8G --constraint=nvme", where=lambda n: "nvme" in n.features),
    # Interactive ones.
    _wish("--gpus=1", (1,), (1,), by="srun"),
    _wish("--gpus=2 --nodes=1", (2,), (1,), by="salloc"),
    _wish("--gpus=1 --partition=short", (1,), (1,), SHORT, by="salloc"),
    _wish(
        "--ntasks=1 --constraint=nvme", (0,), (1,), where=lambda n: "nvme" in n.features, by="srun"
    ),
)

NEVER = "never began"
"""Stands for a job of which Slurm's records have not heard."""

GIVEN_UP = ("CANCELLED", NEVER, "REQUEUED")
"""How a cancelled job may end: the last is of one that was being queued again."""

STATES = ("waiting", "placed", "running", "completing")
"""In each of these jobs are cancelled."""

ACTS = {state: f"cancelled {state}" for state in STATES} | {"requeue": "requeued", "hold": "held"}

POLICIES = ("steady", "hops", "fifo")


@dataclass(frozen=True, slots=True)
class Dependent:
    """A job that waits for another: `afterok`, `afterany` or `aftercorr`, and for which."""

    how: str
    first: str


@dataclass(slots=True)
class Users:
    """Submit jobs to a site and act on them; all that they did is noted down.

    `quota` is how often each act is still to be done, `cancelled` has the state in which a job was
    and from when until when it was being cancelled, `held` each job with from when until when, in
    seconds UTC.
    """

    site: Site
    quota: Counter[str]
    wishes: dict[str, Wish] = field(default_factory=dict)
    depends: dict[str, Dependent] = field(default_factory=dict)
    open: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    cancelled: dict[str, tuple[str, float, float]] = field(default_factory=dict)
    requeued: dict[str, float] = field(default_factory=dict)
    held: list[tuple[str, float, float]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    stranded: frozenset[str] = frozenset()
    _holds: dict[str, tuple[str, float]] = field(default_factory=dict)

    # -- submitting --------------------------------------------------------------------------------

    def submit(self) -> None:
        """Submit a job of any kind; some are held, and some wait for one that is there."""
        site, rng = self.site, self.site.rng
        wish = rng.choice(WISHES)
        options = []
        drawn = rng.random()
        depends = None
        if wish.by == "sbatch" and self.wishes and drawn < 0.15:
            depends = Dependent(rng.choice(("afterok", "afterany")), rng.choice([*self.wishes]))
            if wish.kind.elements and rng.random() < 0.7:
                arrays = [name for name in self.wishes if name.endswith("_0")]
                if arrays:
                    depends = Dependent("aftercorr", rng.choice(arrays))
            job = site.submitted[depends.first].job
            if depends.how == "aftercorr":
                job = job.removesuffix("_0")
            options = [f"--dependency={depends.how}:{job}", "--kill-on-invalid-dep=yes"]
        elif wish.by == "sbatch" and drawn < 0.2:
            options = ["--hold"]
        before = time.time()
        if wish.by == "sbatch":
            try:
                name = site.submit_one(wish.kind, *options)
            except TestbedError as error:
                # What was to come first may have been cancelled and forgotten.
                if depends is None or "dependency" not in str(error):
                    raise
                return
        else:
            name = self._interactive(wish)
        for each in [each for each in site.submitted if each not in self.wishes]:
            self.wishes[each] = wish
            if depends is not None:
                end = each.removeprefix(name) if depends.how == "aftercorr" else ""
                first = depends.first.removesuffix("_0") + end if end else depends.first
                self.depends[each] = Dependent(depends.how, first)
            if "--hold" in options:
                self._holds[site.submitted[each].job] = (each, before)

    def _interactive(self, wish: Wish) -> str:
        site = self.site
        name, script = site.write(wish.kind)
        tool = site.cluster.installed.program(wish.by)
        words = wish.kind.asks.removeprefix("#SBATCH ").split()
        inner = ["srun"] if wish.by == "salloc" else []
        with (site.folder / f"{name}.err").open("wb") as err:
            self.open[name] = subprocess.Popen(
                [tool, f"--job-name={name}", *words, *inner, "bash", script],
                env=os.environ | site.cluster.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
            )
        latest = deadline(30)
        listing = ("squeue", "-h", "--states=all", f"--name={name}", "--format=%i")
        while not (job := site.cluster.command(*listing).strip()):
            assert time.monotonic() < latest, (site.folder / f"{name}.err").read_text()
            time.sleep(0.05)
        site.note(name, wish.kind, job)
        return name

    # -- acts --------------------------------------------------------------------------------------

    def act(self) -> None:
        """Do one thing to a job that there is, if any is left to be done."""
        names = {job.job: name for name, job in self.site.submitted.items()}
        listing = ("squeue", "-h", "--array", "--format=%i|%T|%v|%r")
        found: dict[str, list[str]] = {}
        for line in self.site.cluster.command(*listing).splitlines():
            job, state, reservation, reason = line.split("|", 3)
            name = names.get(job)
            if name is None or name in self.cancelled or job in self._holds:
                continue
            if state == "PENDING":
                state = "placed" if hold_number(reservation) else "waiting"
            found.setdefault(state.lower(), []).append(job)
            if state in ("waiting", "placed") and not reason.startswith("Dep"):
                found.setdefault("hold", []).append(job)
            if state == "RUNNING" and self.wishes[name].by == "sbatch":
                found.setdefault("requeue", []).append(job)
        acts = [act for act in found if self.quota[act] > 0]
        if acts:
            # What is seldom to be had goes first.
            act = min(acts, key=lambda each: len(found[each]))
            job = self.site.rng.choice(found[act])
            with suppress(TestbedError):
                self._do(act, job, names[job])
                self.quota[act] -= 1
                self.done[act] += 1
        self.release(5.0)

    def _do(self, act: str, job: str, name: str) -> None:
        tell, now = self.site.cluster.command, time.time()
        if act in STATES:
            tell("scancel", job)
            self.cancelled[name] = (act, now, time.time())
        elif act == "requeue":
            tell("scontrol", "requeue", job)
            self.requeued[name] = now
        else:
            tell("scontrol", "hold", job)
            # One that has begun meanwhile is held only when it is queued again.
            waits = tell("squeue", "-h", f"--jobs={job}", "--format=%T %r")
            since = time.time() if waits.startswith("PENDING JobHeld") else float("inf")
            self._holds[job] = (name, since)

    def release(self, after_s: float) -> None:
        """Release what has been held for so long."""
        now = time.time()
        for job, (name, since) in list(self._holds.items()):
            begun = self.site.submitted[name].at if since == float("inf") else since
            if now - begun < after_s:
                continue
            del self._holds[job]
            if name not in self.cancelled:
                self.held.append((name, since, time.time()))
                with suppress(TestbedError):
                    self.site.cluster.command("scontrol", "release", job)

    # -- what has to hold --------------------------------------------------------------------------

    def wrong(self) -> Iterator[str]:
        """Say what is wrong, once all jobs have ended and the daemon has been stopped."""
        site = self.site
        left = self._may_be_left()
        verdict = site.verdict(cancelled=left)
        yield from verdict.wrong
        by_job: dict[str, list[Accounted]] = {}
        for rows in site.accounted(site.seen()).values():
            for row in rows:
                by_job.setdefault(row.job, []).append(row)
        rows_of = {
            name: sorted(by_job.get(job.job, ()), key=lambda row: row.restarts)
            for name, job in site.submitted.items()
        }
        ends = self._ends(left)
        for name, wish in self.wishes.items():
            job = site.submitted[name].job
            for row in rows_of[name]:
                for why in misplaced(wish, row, site.cluster.layout.site.partitions, self._nodes()):
                    yield f"job {job} ({wish.kind.asks!r}) ran {why}: {row}"
            for why in self._of_one(name, ends, rows_of):
                yield f"job {job} {why}; its end: {ends.get(name)}; its runs: {rows_of[name]}"
        for name, tool in self.open.items():
            if (code := tool.wait(timeout=60)) and name not in self.cancelled:
                said = (site.folder / f"{name}.err").read_text()
                yield f"{self.wishes[name].by} of job {site.submitted[name].job}: {code}, {said}"
        if self.stranded:
            yield f"left in the queue: {sorted(self.stranded)}"
        if "ReservationName=hetsched" in site.cluster.command("scontrol", "show", "reservation"):
            yield "the reservation is left"

    def _nodes(self) -> Mapping[str, FakeNode]:
        return {node.name: node for node in self.site.cluster.layout.nodes}

    def _was_over(self, name: str) -> bool:
        """Whether a job was cancelled when all of it had ended."""
        return self.cancelled.get(name, ("", 0.0, 0.0))[0] == "completing"

    def _may_be_left(self) -> set[str]:
        """Return the jobs that were cancelled, or that wait for what never came to a good end."""
        left = set(self.cancelled)
        while True:
            more = {
                name
                for name, on in self.depends.items()
                if name not in left and on.how != "afterany" and left & {on.first}
            }
            if not more:
                return left
            left |= more

    def _ends(self, left: Collection[str]) -> dict[str, str]:
        """Return how Slurm's records say that each job has ended, once they know it.

        They never hear of a job that is cancelled before it could begin.
        """
        latest = deadline(30)
        ids = {job.job: name for name, job in self.site.submitted.items()}
        while True:
            text = self.site.cluster.command(
                *("sacct", "-X", "-n", "-P", "--starttime=now-1days"),
                "--format=JobID,State,Submit",
            )
            found = dict.fromkeys(left, NEVER)
            for line in text.splitlines():
                jobs, state, submitted = line.split("|")
                if submitted >= stamp(self.site.since):
                    for job in NodeSet(re.sub(r"%\d+", "", jobs)):
                        if job in ids:
                            found[ids[job]] = state.split()[0]
            known = len(found) == len(ids) and not {"PENDING", "RUNNING"} & {*found.values()}
            if known or time.monotonic() > latest:
                return found
            time.sleep(0.5)

    def _of_one(
        self, name: str, ends: Mapping[str, str], rows_of: Mapping[str, Sequence[Accounted]]
    ) -> Iterator[str]:
        """Say what was not as the users of a job had wanted it."""
        rows, end = rows_of[name], ends.get(name, "nothing")
        stopped = self.cancelled.get(name)
        on = self.depends.get(name)
        if on and on.how != "afterany" and self._was_over(on.first):
            # Whether its end counts as good is Slurm's to say.
            if end not in ("COMPLETED", NEVER, "CANCELLED"):
                yield "has not ended as it ought to"
        elif on and on.how != "afterany" and ends.get(on.first) != "COMPLETED":
            if rows or end not in (NEVER, "CANCELLED"):
                yield f"depends on job {self.site.submitted[on.first].job}, which was cancelled"
        elif end != "COMPLETED" and not (stopped and end in GIVEN_UP):
            yield "has not ended as it ought to"
        if end == "COMPLETED" and not self.site.is_done(name):
            yield "ended with work left"
        if stopped and any(row.start > stamp(stopped[2]) for row in rows):
            yield f"ran after it was cancelled {stopped[0]} at {stamp(stopped[2])}"
        for _, since, until in (each for each in self.held if each[0] == name):
            if any(stamp(since) < row.start < stamp(until) for row in rows):
                yield f"began while it was held, {stamp(since)} to {stamp(until)}"
        again = self.requeued.get(name)
        if again and not stopped and not any(row.start >= stamp(again) for row in rows):
            yield f"did not run again after its user had queued it again at {stamp(again)}"
        if on is not None and rows:
            over = [row.end for row in rows_of[on.first] if row.state.split()[0] != "REQUEUED"]
            if on.first in self.cancelled:
                over.append(stamp(self.cancelled[on.first][1]))
            # What has not begun may have ended with what it waits for itself.
            if over and rows[0].start < min(over):
                yield f"ran before what it waits for had ended: {on.how} {rows_of[on.first]}"


def misplaced(
    wish: Wish, row: Accounted, partitions: Sequence[Partition], nodes: Mapping[str, FakeNode]
) -> Iterator[str]:
    """Say where a run was that its job may not be, or in what shape it may not have."""
    if row.partition not in wish.partitions:
        yield f"in partition {row.partition}"
    inside = {each.name: each.nodes for each in partitions}.get(row.partition, "")
    if inside != "ALL" and (out := row.nodes - set(NodeSet(inside))):
        yield f"on {sorted(out)}, outside its partition"
    if unwanted := sorted(name for name in row.nodes if not wish.where(nodes[name])):
        yield f"on {unwanted}, which it does not want"
    # A policy may have a job measured on one GPU, and requeue it then.
    measured = "--gpu-set" in wish.kind.asks and row.gpus == 1 and row.state == "REQUEUED"
    if row.gpus not in wish.counts and not measured:
        yield f"on {row.gpus} GPUs"
    if wish.nodes and len(row.nodes) not in wish.nodes:
        yield f"on {len(row.nodes)} nodes"


def run_mixed(site: Site, jobs: int, patience_s: float = 120.0) -> Users:
    """Submit jobs of all kinds to a site, act on them, and wait for the end of all, or for long."""
    most = dict.fromkeys(STATES, jobs // 50 + 1) | {"requeue": jobs // 20, "hold": jobs // 25}
    users = Users(site, Counter(most))
    site.start_daemon()
    await_hold(site.cluster)
    while len(site.submitted) < jobs:
        users.submit()
        if site.rng.random() < 0.25:
            users.act()
    latest = deadline(patience_s)
    while (left := site.queue()) and time.monotonic() < latest:
        users.act()
        time.sleep(0.2)
    users.stranded = frozenset(left)
    site.stop_daemon()
    if left:
        site.cancel_all()
        wait_until(lambda: not site.queue(), "an empty queue", 120)
    return users


def _partitions(nodes: int) -> tuple[Partition, ...]:
    """Return two partitions that share a quarter of the nodes, neither of which has all."""

    def names(first: int, beyond: int) -> str:
        listed = [f"n{at}" for at in range(first, beyond)]
        return str(NodeSet.fromlist(listed, resolver=RESOLVER_NOGROUP))

    return (
        Partition("gpu", names(0, nodes * 3 // 4), default=True),
        Partition("short", names(nodes // 2, nodes), max_time="01:00:00"),
    )


@dataclass(frozen=True, slots=True)
class Run:
    """What came of it under one policy; `wrong` is what ought not to be, in words."""

    jobs: int
    runs: int
    seconds: float
    acts: Mapping[str, int]
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        acts = ", ".join(f"{self.acts[act]} {word}" for act, word in ACTS.items())
        return (
            f"{self.jobs} jobs, {self.runs} runs, {self.seconds:.0f} s, "
            f"load {os.getloadavg()[0]:.1f}; {acts}; wrong: {'; '.join(self.wrong) or 'nothing'}"
        )


def run_policy(
    installed: Installation,
    policy: str,
    jobs: int,
    nodes: int,
    seed: int,
    samples: tuple[float, float] = (300.0, 1500.0),
) -> Run:
    """Bring a cluster up, run jobs on it under a policy, and judge what came of them."""
    options = (
        *("--mode=enforce", f"--policy={policy}", "--partitions=gpu,short", "--round-s=5"),
        *("--cycle-s=0.3", "--grace-s=10", "--restart-cost-s=1", "--spool-s=0.5"),
    )
    with up(installed, usual_site(fake_nodes(nodes), _partitions(nodes))) as cluster:
        site = Site(cluster, cluster.layout.base.parent, options, random.Random(seed), samples)
        try:
            begun = time.monotonic()
            users = run_mixed(site, jobs)
            wrong = tuple(users.wrong())
            runs = sum(map(len, site.seen().values()))
            return Run(len(site.submitted), runs, time.monotonic() - begun, users.done, wrong)
        finally:
            site.close()


def main() -> int:
    """Run under each policy; 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="mixed", description=(__doc__ or "").strip())
    parser.add_argument("--policy", action="append", help="may be repeated (default all three)")
    parser.add_argument("--jobs", type=int, default=500, help="how many (default 500)")
    parser.add_argument("--nodes", type=int, default=64, help="how many, from 8 (default 64)")
    parser.add_argument("--seed", type=int, default=1, help="of the jobs and acts (default 1)")
    given = parser.parse_args()
    bad = False
    for policy in given.policy or POLICIES:
        installed = install(default_cache())
        run = run_policy(installed, policy, given.jobs, given.nodes, given.seed)
        bad = bad or bool(run.wrong)
        sys.stdout.write(f"{policy}: {run}\n")
        sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
