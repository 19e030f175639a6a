"""HadarE on a real Slurm: jobs of copies and a plain one, on six nodes of three unlike types.

Copies sleep through their steps and need no torch. What is held against them comes from three
sides: the trackers' rounds, what each copy says that it has done, and Slurm's own records.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.store import IN_MEMORY, Mode, Store
from slurm_plugin.backend import JobState, SlurmBackend
from slurm_plugin.daemon import Daemon, DaemonSettings
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.copies import Copies, states
from tests.slurm_plugin.daemon.process.test_hetschedd import hetschedd
from tests.slurm_plugin.jobs import Submitter, await_hold, is_back
from tests.slurm_plugin.live import daemon_of, drive

pytestmark = pytest.mark.slurm

SETTINGS = DaemonSettings(
    partitions=frozenset({"gpu"}), round_s=4.0, restart_cost_s=1.0, grace_s=5.0, spool_s=0.5
)

OPTIONS = "#HETSCHED --gpu-set=4,8 --can-checkpoint --copies={copies} --total-samples={samples}"

NONCE = "$HETSCHED_NONCE"
"""The one that the job is given, and the daemon knows it by."""

BATCH = 1000
"""Samples of a step: about as many a second as the daemon takes an unknown model to make."""

KINDS = {"n0": "a100", "n1": "v100", "n2": "t4", "n3": "a100", "n4": "v100", "n5": "t4"}

TIMES = (
    *("--mode=enforce", "--policy=hadare", "--round-s=3", "--cycle-s=0.2"),
    *("--grace-s=5", "--restart-cost-s=1", "--start-timeout-s=20"),
)


def submitted(copies: Copies, most: int, spool: Path | None = None) -> str:
    """Submit a job of so many copies at most."""
    options = OPTIONS.format(copies=most, samples=copies.steps * copies.batch)
    if spool is not None:
        options += f"\nexport HETSCHED_SPOOL={spool}"
    return copies.submit("copies", options)


def named(copies: Copies) -> Copies:
    """Return the copies under the nonce that their job was given."""
    said = json.loads(max((copies.folder / "rounds").glob("round-*.json")).read_text())
    return replace(copies, nonce=said["nonce"])


def on_unlike_nodes(copies: Copies, kinds: int = 3) -> bool:
    """Whether a round has ended with what copies on nodes of so many types have done."""
    rounds = copies.rounds().values()
    return any(len({KINDS[node] for node in said["steps"]}) == kinds for said in rounds)


def holds(daemon: Daemon, job: str) -> dict[str, str]:
    """Element -> the node on which it runs."""
    copies = daemon.world.managed[job].copies if job in daemon.world.managed else {}
    return {
        unit.slurm.id: unit.slurm.nodes[0]
        for unit in copies.values()
        if unit.slurm.state is JobState.RUNNING
    }


def losable(daemon: Daemon, copies: Copies, job: str) -> list[str]:
    """Nodes on which copies run that have taken part in the last round, and not started since."""
    reported = max(copies.rounds().values(), key=lambda said: said["number"])["steps"]
    there = set(holds(daemon, job).values()) & set(reported)
    return sorted(
        node for node in there if all(Path(f"/proc/{pid}").exists() for pid in copies.pids(node))
    )


def stopped(testbed: Testbed, job: str) -> int:
    """How often elements of a job were queued again, as Slurm has accounted it."""
    words = ("sacct", "-D", "-X", "-n", "-P", f"--jobs={job}", "--format=State")
    return testbed.command(*words).split().count("REQUEUED")


def ended(testbed: Testbed, job: str) -> set[str]:
    """In which ways the elements of a job have ended, none of which is there any more."""
    assert not testbed.command("squeue", "-h", f"--jobs={job}", "--states=PD,R,CG")
    return set(states(testbed, job))


def well(ends: set[str]) -> bool:
    """Whether some elements have come to the end, and the others had nothing to do any more."""
    return "COMPLETED" in ends and ends <= {"COMPLETED", "CANCELLED"}


def test_jobs_of_copies_and_a_plain_one_share_unlike_nodes_of_which_one_is_lost(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    spool.mkdir(mode=0o755)
    first = Copies(testbed, tmp_path / "first", NONCE, 700, BATCH)
    # Enough for its second copy to be there before the first is done, however slowly it starts.
    second = Copies(testbed, tmp_path / "second", NONCE, 600, BATCH)
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        settings = replace(SETTINGS, spool=spool)
        daemon = daemon_of(backend, "hadare", store=store, settings=settings)
        jobs = [submitted(first, 6, spool)]
        lost, told = "", [0.0]

        def over() -> bool:
            known = daemon.world.managed.get(jobs[0])
            told.append(known.progress.samples if known and known.progress else 0.0)
            return not daemon.world.managed

        try:
            # Alone it is on every node.
            drive(daemon, lambda: len(holds(daemon, jobs[0])) == 6, timeout_s=120)
            drive(daemon, lambda: on_unlike_nodes(first), timeout_s=120)
            jobs += [submitted(second, 3), submitter.submit("--gpu-set=4", seconds=4)]
            # The others get some of its nodes, whose copies are stopped; of the rest one is lost.
            drive(daemon, lambda: bool(holds(daemon, jobs[1])), timeout_s=120)
            drive(daemon, lambda: bool(losable(daemon, first, jobs[0])), timeout_s=120)
            assert len(holds(daemon, jobs[0])) < 6
            lost = first.lose(losable(daemon, first, jobs[0])[0])
            drive(daemon, over, timeout_s=300)
            drive(daemon, lambda: not testbed.command("squeue", "-h"), timeout_s=60)
        finally:
            testbed.command("scancel", *jobs)
            daemon.let_go()
            if lost:
                wait_until(lambda: is_back(testbed, lost), f"{lost} to be back", 120)
            testbed.await_idle()
    for copies in (first, second):
        named(copies).check_steps()
    # Nobody's steps were lost but of those that were killed, or stopped before their first.
    rounds = first.rounds().values()
    why = {words for said in rounds for words in said["left_out"].values()}
    assert all(words == "no report" or words.startswith("0 steps") for words in why), why
    # The tracker beside element 0 has told how far the job was.
    assert 0 < max(told) <= first.steps * BATCH
    assert stopped(testbed, jobs[0]) >= 2
    assert on_unlike_nodes(second, 2)
    assert all(well(ended(testbed, job)) for job in jobs)


def test_killed_at_any_moment_and_then_gone_for_good_the_daemon_leaves_nothing_behind(
    submitter: Submitter, testbed: Testbed, tmp_path: Path
) -> None:
    rng = random.Random(5)
    both = [Copies(testbed, tmp_path / name, NONCE, 200) for name in ("one", "two")]
    jobs: list[str] = []

    def life(of_s: float, copies: int) -> None:
        daemon = hetschedd(testbed, tmp_path, *TIMES)
        try:
            if not jobs:
                await_hold(testbed)
                jobs.extend(submitted(copies, 4) for copies in both)
            time.sleep(of_s)
            # Element 0 of each runs: nobody has to wait for the end of the hold.
            running = (*("squeue", "-h", "-r", "--states=R", "--format=%K", "--jobs"),)
            wait_until(
                lambda: all(
                    "0" in (elements := testbed.command(*running, job).split())
                    and len(elements) >= copies
                    for job in jobs
                ),
                "both to run",
                120,
            )
            assert daemon.poll() is None, (tmp_path / "daemon.log").read_text()[-3000:]
        finally:
            daemon.kill()
            daemon.wait()

    for copies_at_once in (2, 1):
        life(rng.uniform(0.8, 2.0), copies_at_once)
    wait_until(lambda: not testbed.command("squeue", "-h"), "all to end", 240)
    testbed.await_idle()
    for copies, job in zip(both, jobs, strict=True):
        named(copies).check_steps()
        assert well(ended(testbed, job))
        assert any(len(said["steps"]) > 1 for said in copies.rounds().values())
