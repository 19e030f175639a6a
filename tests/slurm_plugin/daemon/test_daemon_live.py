"""The daemon on a real Slurm: jobs with requirement sets are placed, and run to their end."""

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from hetsched_core.cli.group import hetsched
from hetsched_core.policy import make_policy
from hetsched_core.store import IN_MEMORY, Store
from hetsched_core.store import Mode as StoreMode
from hetsched_core.types import RequirementSet
from slurm_plugin.backend import JobState, SlurmBackend
from slurm_plugin.daemon import CycleReport, Daemon, DaemonSettings, Mode
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.jobs import Submitter

pytestmark = pytest.mark.slurm

SACCT_COLUMNS = (
    "JobID,JobIDRaw,User,Account,Partition,QOS,State,Submit,Eligible,Start,End,ElapsedRaw,"
    "Suspended,TimelimitRaw,Restarts,NodeList,ReqTRES,AllocTRES,AdminComment,JobName"
)

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}), restart_cost_s=0.0, grace_s=5.0)


def daemon_of(
    backend: SlurmBackend,
    policy: str = "fifo",
    mode: Mode = Mode.ENFORCE,
    store: Store | None = None,
    settings: DaemonSettings = SETTINGS,
) -> Daemon:
    """A daemon on the wall clock."""
    return Daemon(
        backend,
        make_policy(policy),
        settings,
        mode=mode,
        clock=time.time,
        sleep=time.sleep,
        store=store,
        stopwatch=time.perf_counter,
    )


def drive(
    daemon: Daemon, until: Callable[[], bool], timeout_s: float, every_s: float = 0.2
) -> list[CycleReport]:
    """Run cycles until something holds; no cycle may find anything wrong."""
    reports = []
    deadline = time.monotonic() + timeout_s
    while not until():
        assert time.monotonic() < deadline, "it has not come about in time"
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
    """A job in Slurm's own records."""

    state: str
    nodes: frozenset[str]
    gpus: int
    start: str
    end: str
    restarts: int


def accounted(testbed: Testbed, jobs: list[str]) -> dict[str, Accounted]:
    """What sacct says of jobs, once it knows of the end of all of them."""
    deadline = time.monotonic() + 20
    while True:
        text = testbed.command(
            *("sacct", "-X", "-D", "-n", "-P", f"--jobs={','.join(jobs)}"),
            "--format=JobIDRaw,State,NodeList,AllocTRES,Start,End,Restarts",
        )
        found: dict[str, Accounted] = {}
        for line in text.splitlines():
            job, state, nodes, tres, start, end, restarts = line.split("|")
            names = frozenset(testbed.command("scontrol", "show", "hostnames", nodes).split())
            counts = dict(part.split("=") for part in tres.split(",") if part)
            gpus = int(counts.get("gres/gpu", 0))
            found[job] = Accounted(state, names, gpus, start, end, int(restarts or 0))
        if len(found) == len(jobs) and all(row.end != "Unknown" for row in found.values()):
            return found
        assert time.monotonic() < deadline, f"sacct lacks jobs: {text}"
        time.sleep(0.3)


def most_at_once(rows: list[Accounted]) -> int:
    """The greatest number of GPUs that rows hold at the same time."""
    events = sorted(
        event for row in rows for event in ((row.start, 1, row.gpus), (row.end, 0, -row.gpus))
    )
    held = most = 0
    for _, _, gpus in events:
        held += gpus
        most = max(most, held)
    return most


def test_sixty_jobs_get_counts_from_their_sets_and_fifo_moves_none(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    rng = random.Random(7)
    sets = ["1", "1,2", "2,4", "1-4", "4,8", "8", "1,2,4,8", "3"]
    asked = {
        submitter.submit(f"--gpu-set={text}", seconds=1): text for text in rng.choices(sets, k=60)
    }
    jobs = list(asked)
    with Store.open(IN_MEMORY, StoreMode.WRITE) as store:
        drive(daemon_of(backend, store=store), ended(backend, jobs), timeout_s=120)
        decisions = store.decisions()
    rows = accounted(testbed, jobs)
    nodes = {node.name: node.gpus for node in testbed.layout.nodes}
    for job, text in asked.items():
        row = rows[job]
        (told,) = submitter.told(job)
        assert row.state == "COMPLETED"
        assert row.gpus in RequirementSet.parse(text)
        assert told.gpus_per_node * len(row.nodes) == row.gpus
        assert all(told.gpus_per_node <= nodes[name] for name in row.nodes)
        assert (row.restarts, told.restarts) == (0, 0)
        # The decision that placed it names the same nodes.
        assert any(
            f'"{job}":' in decision.document
            and all(f'["{name}",{told.gpus_per_node}]' in decision.document for name in row.nodes)
            for _, decision in decisions
        )
    for name, gpus in nodes.items():
        here = [row for row in rows.values() if name in row.nodes]
        shares = [
            Accounted(row.state, row.nodes, row.gpus // len(row.nodes), row.start, row.end, 0)
            for row in here
        ]
        assert most_at_once(shares) <= gpus
    # The order of submission was kept among jobs of the same set; Slurm gives it in seconds.
    submitted = {job: backend.read().jobs[job].submit_s for job in jobs}
    for text in set(asked.values()):
        alike = [job for job in jobs if asked[job] == text]
        starts = [rows[job].start for job in sorted(alike, key=lambda job: (submitted[job], job))]
        assert starts == sorted(starts)


def test_a_policy_that_moves_jobs_resumes_them_with_the_right_restart_count(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    settings = replace(SETTINGS, round_s=2.0)
    long = [
        submitter.submit("--gpu-set=4,8 --can-checkpoint", seconds=10, checkpoint_s=0.2)
        for _ in range(10)
    ]
    with Store.open(IN_MEMORY, StoreMode.WRITE) as store:
        daemon = daemon_of(backend, "las", store=store, settings=settings)
        drive(daemon, started(submitter, long[:4]), timeout_s=30)
        short = [submitter.submit("--gpu-set=2,4 --can-checkpoint", seconds=1) for _ in range(12)]
        drive(daemon, ended(backend, [*long, *short]), timeout_s=150)
        decisions = [json.loads(decision.document) for _, decision in store.decisions()]
    rows = accounted(testbed, [*long, *short])
    moves = 0
    for job in (*long, *short):
        told = submitter.told(job)
        assert rows[job].state == "COMPLETED"
        assert [run.restarts for run in told] == list(range(len(told)))
        assert rows[job].restarts == len(told) - 1
        done = [run.steps_done for run in told]
        assert done == sorted(done)
        assert all(later > 0 for later in done[1:])
        moves += len(told) - 1
        # Each run is where some decision placed it.
        placed = [decision["placed"].get(job) for decision in decisions]
        for run in told:
            names = testbed.command("scontrol", "show", "hostnames", run.nodes).split()
            pieces = [[name, run.gpus_per_node] for name in names]
            assert pieces in placed
    assert moves >= 10


def test_what_sacct_says_of_a_run_replays_offline(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed, tmp_path: Path
) -> None:
    jobs = [submitter.submit("--gpu-set=2,4", "--time=5", seconds=1) for _ in range(12)]
    drive(daemon_of(backend), ended(backend, jobs), timeout_s=60)
    accounted(testbed, jobs)
    log, result = tmp_path / "sacct.txt", tmp_path / "result.json"
    log.write_text(
        testbed.command(
            *("sacct", "--duplicates", "--allocations", "--parsable2", f"--jobs={','.join(jobs)}"),
            *("--format", SACCT_COLUMNS),
        )
    )
    inferred = CliRunner().invoke(hetsched, ["cluster", "infer", "--log", str(log)])
    assert inferred.exit_code == 0, inferred.output
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(inferred.stdout)
    arguments = ["replay", str(log), "--cluster", str(cluster), "--policy", "fifo", "--tz", "UTC"]
    replayed = CliRunner().invoke(hetsched, [*arguments, "--json", str(result)])
    assert replayed.exit_code == 0, replayed.output
    measures = json.loads(result.read_text())["policies"]["fifo"]
    assert (measures["jobs"], measures["completed"]) == (12, 12)


def test_shadow_mode_plans_and_changes_nothing(backend: SlurmBackend, submitter: Submitter) -> None:
    jobs = [submitter.submit("--gpu-set=1,2") for _ in range(5)]
    before = backend.read()
    daemon = daemon_of(backend, mode=Mode.SHADOW)
    reports = [daemon.cycle() for _ in range(5)]
    after = backend.read()
    assert reports[0].decision
    assert len(reports[0].changes) == 5
    assert all(report.outcome is None for report in reports)
    assert after == before
    assert set(daemon.plan.entries) == set(jobs)


def test_jobs_that_are_not_ours_are_left_alone_and_their_gpus_are_taken(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    foreign = testbed.command(
        *("sbatch", "--parsable", "--nodelist=n1", "--gpus-per-node=7"),
        *("--output=/dev/null", "--wrap=sleep 30"),
    ).strip()
    daemon = daemon_of(backend)
    drive(daemon, lambda: backend.read().jobs[foreign].state is JobState.RUNNING, timeout_s=20)
    eight = [submitter.submit("--gpu-set=8", "--gpus-per-node=8", seconds=1) for _ in range(2)]
    drive(daemon, ended(backend, eight), timeout_s=60)
    rows = accounted(testbed, eight)
    assert all("n1" not in row.nodes for row in rows.values())
    assert daemon.world.nodes["n1"].foreign_gpus == 7
    assert backend.read().jobs[foreign].state is JobState.RUNNING


def test_a_daemon_that_was_killed_goes_on_from_what_slurm_shows(
    backend: SlurmBackend, submitter: Submitter
) -> None:
    jobs = [submitter.submit("--gpu-set=2,4", seconds=2) for _ in range(30)]
    daemon_of(backend).cycle()
    time.sleep(0.3)
    # Another one, which knows nothing of the first.
    daemon = daemon_of(backend)
    drive(daemon, ended(backend, jobs), timeout_s=90)
    assert all(backend.read().jobs[job].restarts == 0 for job in jobs)


def test_a_job_held_by_its_user_waits_and_runs_when_it_is_released(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    job = submitter.submit("--gpu-set=1", seconds=1)
    testbed.command("scontrol", "hold", job)
    daemon = daemon_of(backend)
    for _ in range(3):
        assert all(change.job != job for change in daemon.cycle().changes)
    assert backend.read().jobs[job].held
    testbed.command("scontrol", "release", job)
    drive(daemon, ended(backend, [job]), timeout_s=30)


def test_a_job_behind_a_dependency_waits_for_it(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    first = submitter.submit("--gpu-set=8", seconds=2)
    second = submitter.submit("--gpu-set=1", f"--dependency=afterok:{first}", seconds=1)
    drive(daemon_of(backend), ended(backend, [first, second]), timeout_s=60)
    rows = accounted(testbed, [first, second])
    assert rows[first].end <= rows[second].start


def test_a_waiting_job_is_kept_back_by_pushing_its_begin_time(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    testbed.command("scontrol", "update", "node=n1,n4", "state=drain", "reason=test")
    try:
        job = submitter.submit("--gpu-set=1,2 --gpu-types=v100", "--gpus-per-node=2")
        testbed.command("scontrol", "update", f"job={job}", "starttime=now+25")
        daemon = daemon_of(backend)
        daemon.cycle()
        seen = backend.read().jobs[job]
    finally:
        testbed.command("scontrol", "update", "node=n1,n4", "state=resume")
        testbed.await_idle()
    assert seen.begin_s is not None
    assert seen.begin_s > time.time() + 40
    assert (seen.pinned, seen.gpus_per_node) == ((), 2)
