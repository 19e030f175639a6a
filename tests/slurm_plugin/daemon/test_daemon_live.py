"""The daemon on a real Slurm: jobs with requirement sets are placed, and run to their end."""

import itertools
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from ClusterShell.NodeSet import NodeSet

from hetsched_core.policy import Policy, make_policy
from hetsched_core.store import IN_MEMORY, Mode, Store
from hetsched_core.types import RequirementSet
from slurm_plugin.backend import JobState, SlurmBackend, SlurmState, open_backend
from slurm_plugin.daemon import CycleReport, Daemon, DaemonMode, DaemonSettings
from slurm_plugin.daemon.settings import JobSelection
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import WAITING
from tests.slurm_plugin.jobs import Submitter, Told, await_job, deadline, running

pytestmark = pytest.mark.slurm

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}), restart_cost_s=0.0, grace_s=5.0)


def daemon_of(
    backend: SlurmBackend,
    policy: str | Policy = "fifo",
    mode: DaemonMode = DaemonMode.ENFORCE,
    store: Store | None = None,
    settings: DaemonSettings = SETTINGS,
) -> Daemon:
    """A daemon on the wall clock, which holds the nodes from now on unless it only looks on."""
    daemon = Daemon(
        backend,
        make_policy(policy) if isinstance(policy, str) else policy,
        settings,
        mode=mode,
        clock=time.time,
        sleep=time.sleep,
        store=store,
        stopwatch=time.perf_counter,
    )
    daemon.cycle()
    return daemon


def drive(
    daemon: Daemon, until: Callable[[], bool], timeout_s: float, every_s: float = 0.2
) -> list[CycleReport]:
    """Run cycles until something holds; no cycle may find anything wrong."""
    reports = []
    latest = deadline(timeout_s)
    while not until():
        assert time.monotonic() < latest, "it has not come about in time"
        report = daemon.cycle()
        assert report.violations == ()
        assert report.away == ""
        reports.append(report)
        time.sleep(every_s)
    return reports


def ended(backend: SlurmBackend, jobs: list[str]) -> Callable[[], bool]:
    """Whether all of these jobs have ended."""
    return lambda: all(backend.read().jobs[job].state is JobState.ENDED for job in jobs)


def started(submitter: Submitter, jobs: list[str]) -> Callable[[], bool]:
    """Whether all of these jobs have begun to work."""
    return lambda: all(submitter.told(job) for job in jobs)


@dataclass(frozen=True, slots=True)
class Accounted:
    """A run of a job in Slurm's own records; `job` is its id as squeue writes it."""

    state: str
    nodes: frozenset[str]
    gpus: int
    start: str
    end: str
    restarts: int
    job: str = ""
    partition: str = ""
    cpus: int = 0
    memory_mb: int = 0

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return (
            datetime.fromisoformat(self.end) - datetime.fromisoformat(self.start)
        ).total_seconds()


def accounted(testbed: Testbed, jobs: list[str]) -> dict[str, Accounted]:
    """What sacct says of the last run of jobs, once it knows of the end of all of them."""
    return {job: rows[-1] for job, rows in accounted_runs(testbed, jobs).items()}


def accounted_runs(testbed: Testbed, jobs: list[str]) -> dict[str, list[Accounted]]:
    """What sacct says of all runs of jobs, once it knows of the end of all of them."""
    latest = deadline(20)
    while True:
        text = testbed.command(
            *("sacct", "-X", "-D", "-n", "-P", f"--jobs={','.join(jobs)}"),
            "--format=JobIDRaw,State,NodeList,AllocTRES,Start,End,Restarts",
        )
        found: dict[str, list[Accounted]] = {}
        for line in text.splitlines():
            job, state, nodes, tres, start, end, restarts = line.split("|")
            names = frozenset(NodeSet(nodes) if "None" not in nodes else ())
            counts = dict(part.split("=") for part in tres.split(",") if part)
            gpus = int(counts.get("gres/gpu", 0))
            row = Accounted(state, names, gpus, start, end, int(restarts or 0))
            found.setdefault(job, []).append(row)
        known = len(found) == len(jobs)
        if known and all(row.end != "Unknown" for rows in found.values() for row in rows):
            return {job: sorted(rows, key=lambda row: row.restarts) for job, rows in found.items()}
        assert time.monotonic() < latest, f"sacct lacks jobs: {text}"
        time.sleep(0.3)


def most_at_once(
    rows: list[Accounted], held_by: Callable[[Accounted], int] = attrgetter("gpus")
) -> int:
    """The greatest number of GPUs, or of something else, that rows hold at the same time."""
    events = sorted(
        event
        for row in rows
        for event in ((row.start, 1, held_by(row)), (row.end, 0, -held_by(row)))
    )
    held = most = 0
    for _, _, change in events:
        held += change
        most = max(most, held)
    return most


def check_decisions(
    documents: Sequence[dict[str, Any]], job: str, runs: Sequence[list[list[object]]]
) -> None:
    """Hold the runs of a job to the decisions, in order: each was placed by one.

    From where it ran, a decision took it, and that or a later one names the next place.
    """
    rest = iter(documents)
    assert any(known["placed"].get(job) == runs[0] for known in rest), (job, runs[0])
    for before, after in itertools.pairwise(runs):
        stop = next(
            known
            for known in rest
            if known["held"].get(job) == before and known["placed"].get(job) != before
        )
        again = itertools.chain([stop], rest)
        assert any(known["placed"].get(job) == after for known in again), (job, before, after)


def check_runs(
    testbed: Testbed, submitter: Submitter, asked: dict[str, str], decisions: Sequence[str]
) -> int:
    """Hold every run to Slurm's records, to what it saw itself, and to the decision behind it.

    Returns:
        how often a job went on with other GPUs than before.
    """
    rows = accounted_runs(testbed, list(asked))
    documents = [json.loads(text) for text in decisions]
    shares: dict[str, list[Accounted]] = {node.name: [] for node in testbed.layout.nodes}
    moves = unheard = 0
    for job, text in asked.items():
        told = submitter.told(job)
        assert rows[job][-1].state == "COMPLETED"
        assert [row.restarts for row in rows[job]] == list(range(len(rows[job])))
        check_steps(told, rows[job])
        seen = {run.restarts: run for run in told}
        unheard += len(rows[job]) - len(seen)
        pieces = []
        for row in rows[job]:
            each = row.gpus // len(row.nodes)
            if run := seen.get(row.restarts):
                assert frozenset(NodeSet(run.nodes)) == row.nodes
                assert (row.gpus, each) == (run.gpus_per_node * len(row.nodes), run.gpus_per_node)
            assert row.gpus in RequirementSet.parse(text)
            pieces.append([[name, each] for name in sorted(row.nodes)])
            for name in row.nodes:
                shares[name].append(replace(row, gpus=each))
        check_decisions(documents, job, pieces)
        moves += sum(before != after for before, after in itertools.pairwise(pieces))
    for node in testbed.layout.nodes:
        assert most_at_once(shares[node.name]) <= node.gpus
    assert 3 * unheard < sum(map(len, rows.values()))
    return moves


def check_steps(told: Sequence[Told], rows: Sequence[Accounted]) -> None:
    """Hold what the runs of a job have done to each other: nothing that one has saved is lost.

    One that is stopped before its script has begun tells nothing; the last one is not stopped.
    """
    numbers = [run.restarts for run in told]
    assert numbers == sorted(set(numbers)), numbers
    assert {len(rows) - 1} <= set(numbers) <= set(range(len(rows))), numbers
    done = [run.steps_done for run in told]
    assert (done[0], done) == (0, sorted(done))
    for before, after in itertools.pairwise(told):
        # A run may be stopped before its first step; one that went on for long has done some.
        went_on = rows[before.restarts].seconds >= 5
        assert after.steps_done > before.steps_done or not went_on, done


def compile_kernels(backend: SlurmBackend, policy: str) -> None:
    """Plan once for made-up jobs: kernels are compiled when they are used first, and jobs wait."""
    marks = [WAITING.mark.replace("1,2", counts).replace("a1", counts) for counts in ("1-4", "1-8")]
    jobs = {str(at): replace(WAITING, id=str(at), mark=mark) for at, mark in enumerate(marks)}
    daemon_of(FakeBackend(SlurmState(backend.read().nodes, jobs)), policy)


SETS = ("1", "1,2", "2,4", "1-4", "4,8", "8", "1,2,4,8", "3")


def test_sixty_jobs_get_counts_from_their_sets_and_fifo_moves_none(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = daemon_of(backend, store=store)
        asked = {
            submitter.submit(f"--gpu-set={text} --can-checkpoint", seconds=1): text
            for text in random.Random(7).choices(SETS, k=60)
        }
        drive(daemon, ended(backend, list(asked)), timeout_s=120)
        decisions = [decision.document for _, decision in store.decisions()]
    assert check_runs(testbed, submitter, asked, decisions) == 0
    # The order of submission was kept among jobs of the same set. Slurm may start one a moment
    # after the next, whose nodes were free sooner.
    placed = first_placed([json.loads(text) for text in decisions])
    for text in set(asked.values()):
        order = [placed[job] for job in sorted(asked, key=int) if asked[job] == text]
        assert order == sorted(order)


def first_placed(documents: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of the decision that was the first to place each job."""
    found: dict[str, int] = {}
    for number, known in enumerate(documents):
        for job in known["placed"]:
            found.setdefault(job, number)
    return found


@pytest.mark.parametrize(("policy", "long", "short"), [("las", 10, 8), ("hops", 10, 16)])
def test_a_policy_that_moves_jobs_resumes_them_with_the_right_restart_count(
    backend: SlurmBackend,
    submitter: Submitter,
    testbed: Testbed,
    policy: str,
    long: int,
    short: int,
) -> None:
    compile_kernels(backend, policy)
    settings = replace(SETTINGS, round_s=3.0)
    rng = random.Random(3)

    def submit(count: int, sets: Sequence[str], seconds: float) -> dict[str, str]:
        return {
            submitter.submit(
                f"--gpu-set={text} --can-checkpoint", seconds=seconds, saving="sleep 0.2"
            ): text
            for text in rng.choices(sets, k=count)
        }

    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = daemon_of(backend, policy, store=store, settings=settings)
        asked = submit(long, ("4,8", "2-8"), 12)
        drive(daemon, started(submitter, list(asked)[:4]), timeout_s=30)
        asked |= submit(short, SETS, 0.3)
        drive(daemon, ended(backend, list(asked)), timeout_s=150)
        decisions = [decision.document for _, decision in store.decisions()]
    assert check_runs(testbed, submitter, asked, decisions) >= 5


def test_under_hlas_short_jobs_of_unknown_length_overtake_long_ones_in_slots_of_their_own(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    """Eight run at a time; twelve that are long come first."""
    compile_kernels(backend, "hlas-slots")
    policy = make_policy("hlas-slots", {"first_threshold_s": "1", "threshold_factor": "2"})

    def submit(count: int, seconds: float) -> list[str]:
        four = "--gpu-set=4 --can-checkpoint"
        return [submitter.submit(four, seconds=seconds) for _ in range(count)]

    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = daemon_of(backend, policy, store=store, settings=replace(SETTINGS, round_s=3.0))
        long = submit(12, 6.0)
        drive(daemon, started(submitter, long[:8]), timeout_s=60)
        short = submit(8, 0.3)
        drive(daemon, ended(backend, [*long, *short]), timeout_s=240)
        decisions = [decision.document for _, decision in store.decisions()]
    check_runs(testbed, submitter, dict.fromkeys((*long, *short), "4"), decisions)
    rows = accounted_runs(testbed, [*long, *short])
    assert sum(len(runs) - 1 for runs in rows.values()) >= 8
    before = [rows[a][-1].end < rows[b][-1].end for a in short for b in long]
    # In the order of submission a short job would be before no more than the last four.
    assert sum(before) > 0.7 * len(before)


def test_jobs_that_run_already_or_are_elsewhere_are_left_alone_and_their_gpus_are_taken(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    # A pilot: of two nodes of the partition, and of jobs that opt in.
    settings = replace(SETTINGS, partitions=frozenset(), nodes="n1,n4", jobs=JobSelection.MARKED)
    there = submitter.submit("", "--nodelist=n1", "--gpus-per-node=7")
    await_job(backend, there, running)
    daemon = daemon_of(backend, settings=settings)
    elsewhere = submitter.submit("", "--gpus-per-node=4", "--exclude=n1,n4")
    stays_out = submitter.submit("", "--nodelist=n4", "--gpus-per-node=1")
    eight = [submitter.submit("--gpu-set=8", "--gpus-per-node=8", seconds=1) for _ in range(2)]
    drive(daemon, ended(backend, eight), timeout_s=60)
    rows = accounted(testbed, eight)
    assert all(row.nodes == {"n4"} for row in rows.values())
    jobs = backend.read().jobs
    states = [jobs[job].state for job in (there, elsewhere, stays_out)]
    assert states == [JobState.RUNNING, JobState.RUNNING, JobState.PENDING]
    assert daemon.world.managed.keys().isdisjoint({elsewhere, stays_out})
    view = daemon.world.nodes["n1"]
    assert (jobs[there].restarts, view.held_gpus + view.foreign_gpus) == (0, 7)


SCONTROL = """\
#!/bin/bash
if [ "$1 $2" = "show nodes" ]; then
    {scontrol} release {job}
    until [ -n "$(squeue --noheader --jobs={job} --states=R)" ]; do sleep 0.1; done
fi
exec {scontrol} "$@"
"""
"""Lets a job begin before it shows the nodes."""


def test_a_job_that_begins_while_slurm_is_read_is_not_taken_for_somebody_else_s(
    testbed: Testbed,
    submitter: Submitter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = open_backend("commands")
    job = submitter.submit("--gpu-set=4", "--hold", "--nodelist=n0")
    daemon = daemon_of(reader, mode=DaemonMode.SHADOW)
    program = shutil.which("scontrol")
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin" / "scontrol"
    slow.write_text(SCONTROL.format(scontrol=program, job=job))
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(slow.parent), prepend=os.pathsep)
    assert daemon.cycle().violations == ()
    view = daemon.world.nodes["n0"]
    assert (view.held_gpus, view.foreign_gpus) == (4, 0)
