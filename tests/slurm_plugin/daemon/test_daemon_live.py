"""The daemon on a real Slurm: jobs with requirement sets are placed, and run to their end."""

import itertools
import json
import os
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ClusterShell.NodeSet import NodeSet

from hetsched_core.store import IN_MEMORY, Mode, Store
from hetsched_core.types import RequirementSet
from slurm_plugin.backend import JobState, SlurmBackend, open_backend
from slurm_plugin.daemon import DaemonMode
from slurm_plugin.daemon.settings import JobSelection
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.accounts import Accounted, accounted, accounted_runs, most_at_once
from tests.slurm_plugin.jobs import Submitter, Told, await_job, running
from tests.slurm_plugin.live import SETTINGS, daemon_of, drive, ended, started

pytestmark = pytest.mark.slurm


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
    shares: dict[str, list[Accounted]] = {fake.name: [] for fake in testbed.layout.nodes}
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
    for fake in testbed.layout.nodes:
        assert most_at_once(shares[fake.name]) <= fake.gpus
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


SETS = ("1", "1,2", "2,4", "1-4", "4,8", "8", "1,2,4,8", "3")


def test_thirty_jobs_get_counts_from_their_sets_and_fifo_moves_none(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = daemon_of(backend, store=store)
        asked = {
            submitter.submit(f"--gpu-set={text} --can-checkpoint", seconds=1): text
            for text in random.Random(7).choices(SETS, k=30)
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


def test_a_policy_that_moves_jobs_resumes_them_with_the_right_restart_count(
    backend: SlurmBackend,
    submitter: Submitter,
    testbed: Testbed,
) -> None:
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
        daemon = daemon_of(backend, "las", store=store, settings=settings)
        asked = submit(10, ("4,8", "2-8"), 12)
        drive(daemon, started(submitter, list(asked)[:4]), timeout_s=30)
        asked |= submit(8, SETS, 0.3)
        drive(daemon, ended(backend, list(asked)), timeout_s=150)
        decisions = [decision.document for _, decision in store.decisions()]
    assert check_runs(testbed, submitter, asked, decisions) >= 5


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
