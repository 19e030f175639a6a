"""CPUs, memory and time limits on a real Slurm: what is planned can start, and for long enough."""

from dataclasses import replace

import pytest

from slurm_plugin.backend import Enter, JobState, Leave, SlurmBackend, hold_named
from slurm_plugin.daemon.jobs.request import NO_MARK, own_of, read_mark, request_of
from slurm_plugin.daemon.jobs.terms import terms_for
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.accounts import accounted, most_at_once
from tests.slurm_plugin.jobs import Submitter, await_job, is_in, running
from tests.slurm_plugin.live import (
    daemon_of,
    drive,
    ended,
)
from tests.slurm_plugin.submit.asking import sbatch

pytestmark = pytest.mark.slurm


def test_where_cpus_are_short_nothing_is_planned_that_slurm_could_not_start(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    # 32 CPUs a node: on n0 to n4 somebody else has left 4, on n5, with 4 GPUs, 20 of them.
    shares = {"n0": 28, "n1": 28, "n2": 28, "n3": 28, "n4": 28, "n5": 12}
    others = [
        sbatch(testbed, f"--nodelist={name}", f"--cpus-per-task={cpus}", "--wrap=sleep 600")
        for name, cpus in shares.items()
    ]
    for other in others:
        await_job(backend, other, running)
    daemon = daemon_of(backend)
    jobs = [submitter.submit("--gpu-set=1", "--cpus-per-task=8", seconds=1) for _ in range(4)]
    jobs += [
        submitter.submit("--gpu-set=1,2", "--gpus=1", "--cpus-per-gpu=8", seconds=1)
        for _ in range(2)
    ]
    # Two GPUs of 2 CPUs each fit where 4 CPUs are left.
    small = submitter.submit("--gpu-set=2", "--gpus=2", "--cpus-per-task=4", seconds=1)
    reports = drive(daemon, ended(backend, [*jobs, small]), timeout_s=60)
    changes = [change for report in reports for change in report.changes]
    # Every placement started: none was refused, taken back, or made twice.
    assert all(report.outcome and not report.outcome.refused for report in reports)
    left = [change for change in changes if isinstance(change, Leave)]
    assert left == []
    placed = [change.job for change in changes if isinstance(change, Enter)]
    assert sorted(placed, key=int) == [*jobs, small]
    rows = accounted(testbed, jobs)
    assert all(row.nodes == {"n5"} for row in rows.values())
    assert most_at_once(list(rows.values())) <= 2
    assert submitter.told(small)[0].gpus_per_node == 2


def test_jobs_without_gpus_start_beside_a_node_whose_memory_is_in_use_and_on_nearly_a_whole_one(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    daemon = daemon_of(backend)
    script = "--wrap=sleep 600"
    whole = sbatch(testbed, "--gpus=1", "--mem=0", script)
    drive(daemon, is_in(backend, JobState.RUNNING, whole), timeout_s=20)
    (node,) = backend.read().jobs[whole].nodes
    # Each idle GPU of a node of 32 CPUs needs one.
    jobs = [sbatch(testbed, "--cpus-per-task=31", "--mem=200", script)]
    jobs += (sbatch(testbed, "--cpus-per-task=2", "--mem=200", script) for _ in range(6))
    drive(daemon, is_in(backend, JobState.RUNNING, *jobs), timeout_s=20)
    assert all(backend.read().jobs[job].nodes != (node,) for job in jobs)


def test_limit_cpus_and_memory_are_those_of_the_placement_and_its_user_s_when_the_job_waits(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    daemon = daemon_of(backend)
    # fifo gives the lower median of the set, a quarter of the GPUs that the limit is meant for.
    job = submitter.submit(
        "--gpu-set=1,4 --gpu-types=t4 --can-checkpoint",
        *("--gpus=4", "--time=10", "--cpus-per-task=8", "--mem=4000"),
    )
    # No limit is scaled beyond the partition's, and whose user gave none has that.
    short = [
        submitter.submit("--gpu-set=1,4 --gpu-types=t4", "--partition=short", "--gpus=4", *limit)
        for limit in (("--time=40",), ())
    ]
    waits = backend.read().jobs[job]
    drive(daemon, lambda: all(running(backend.read().jobs[each]) for each in (job, *short)))
    seen = backend.read().jobs[job]
    assert (seen.gpus, seen.cpus, seen.asked.memory_mb_per_node) == (1, 2, 1000)
    assert seen.time_limit_s is not None
    assert 1200 < seen.time_limit_s <= 2400
    assert [backend.read().jobs[each].time_limit_s for each in short] == [3600, 3600]
    testbed.command("scontrol", "update", "node=n2,n5", "state=drain", "reason=test")
    try:
        testbed.command("scontrol", "requeue", job)

        def waits_again() -> bool:
            seen = backend.read().jobs[job]
            return seen.state is JobState.PENDING and not seen.reservation

        drive(daemon, waits_again, timeout_s=30)
        again = backend.read().jobs[job]
    finally:
        testbed.command("scontrol", "update", "node=n2,n5", "state=resume")
    assert (again.resources.per_job, again.resources.per_node) == ("gres/gpu:4", "")
    assert (again.asked, again.pinned) == (waits.asked, ())
    assert (again.gpus, again.cpus, again.memory_mb) == (4, waits.cpus, waits.memory_mb)
    assert again.time_limit_s == waits.time_limit_s == 600


ASKS = (
    ("--gpus=4",),
    ("--gpus=4", "--ntasks=4", "--cpus-per-task=2"),
    ("--gpus-per-node=2", "--nodes=2", "--mem=900"),
    ("--gres=gpu:4", "--ntasks-per-node=3"),
    ("--gpus-per-task=2", "--ntasks=2"),
    ("--gpus=4", "--cpus-per-gpu=2", "--mem-per-gpu=300"),
)


def test_however_a_job_asks_it_can_be_placed_in_another_shape_and_taken_back_and_srun_sees_it(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    daemon_of(backend)
    told = submitter.folder / "told"
    inner = f"srun bash -c 'echo $SLURM_JOB_ID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES' >>{told}"
    jobs = [sbatch(testbed, "--hold", "--gpu-set=2,4", *asks, f"--wrap={inner}") for asks in ASKS]

    def shown(job: str) -> tuple[object, ...]:
        seen = backend.read().jobs[job]
        # Once it was changed, the number of nodes is a range.
        asks = replace(seen.resources, nodes=None)
        # Slurm shows fewer CPUs than its tasks need where each of those has GPUs.
        cpus = max(seen.cpus, (seen.resources.tasks or 0) * seen.asked.cpus_per_task)
        parts = (cpus, seen.cpus_least, seen.tasks_per_node, seen.time_limit_s)
        return (asks, seen.asked, *parts, seen.gpus, seen.memory_mb, seen.pinned, seen.reservation)

    before = {job: shown(job) for job in jobs}
    entries = []
    for job, seen in backend.read().jobs.items():
        if job in before:
            request = request_of(job, read_mark(seen.mark), seen, own_of(seen, NO_MARK))
            own = Leave(job, (), request.own.resources, request.own.terms)
            placed = seen.resources.placed(2, "gres/gpu:v100:1", 2)
            terms = terms_for(request, 1, 2, 30)
            entries.append(Enter(job, hold_named(1), ("n1", "n4"), own, placed, terms))
    for entry in entries:
        backend.apply(entry)
        assert shown(entry.job) != before[entry.job]
        backend.apply(entry.otherwise)
    assert {job: shown(job) for job in jobs} == before
    for entry in entries:
        backend.apply(entry)
        testbed.command("scontrol", "release", entry.job)
    for job in jobs:
        await_job(backend, job, lambda seen: seen.state is JobState.ENDED)
    # One task on each node, with the GPU that was given.
    lines = [line.split() for line in told.read_text().splitlines()]
    assert sorted((job, node) for job, node, _ in lines) == sorted(
        (job, node) for job in jobs for node in ("n1", "n4")
    )
    assert all("," not in gpus for _, _, gpus in lines)


def test_of_how_many_nodes_a_job_needs_slurm_s_guess_is_taken_for_no_more_than_that(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    del submitter  # it leaves no job behind
    daemon = daemon_of(backend, "steady")
    wants = {
        # For their CPUs they need two nodes, and Slurm gives a GPU on each.
        ("--gpus-per-node=1", "-n40"): (2, 2),
        ("--gpus=1", "-n40"): (2, 2),
        ("--gpus-per-node=1", "--mem-per-cpu=8G", "-n10"): (2, 2),
        # Slurm guesses two nodes for tasks that share CPUs.
        ("--gpus=1", "--overcommit", "-n64"): (1, 1),
    }
    jobs = {sbatch(testbed, *asks, "--wrap=sleep 600"): each for asks, each in wants.items()}
    never = sbatch(testbed, "--gpus-per-node=1", "-N2", "-C[ib*1&nvme*1]", "--wrap=sleep 600")
    drive(daemon, is_in(backend, JobState.RUNNING, *jobs))
    seen = backend.read().jobs
    assert {job: (len(seen[job].nodes), seen[job].gpus) for job in jobs} == jobs
    assert "counts nodes" in str(daemon.world.jobs[never].blocked)


def test_a_job_without_a_set_runs_on_the_nodes_of_its_place_alone_in_the_parts_that_slurm_makes(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    del submitter  # it leaves no job behind
    daemon = daemon_of(backend, "steady")
    # Nodes have 4 or 8 GPUs, and there are two of each type.
    wants = {
        # Slurm takes as many nodes of a range as it can get.
        "--gpus-per-node=1 -N2-4": (2, 2),
        # It names no nodes, and Slurm would forget its GPUs were it told how many they are.
        "--ntasks=4 --ntasks-per-gpu=2": (1, 2),
        "--gpus=4 -N2-4": (2, 4),
        # In unlike parts, or on several types, it runs if it fits in no other way.
        "--gpus=9": (2, 9),
        "--ntasks=7 --gpus-per-task=a100:1 -N2-3": (2, 7),
        "--gpus-per-node=1 -N5": (5, 5),
        "--gpus=17": (3, 17),
        "--exclusive -N3": (3, 12),
    }
    for asks, (nodes, gpus) in wants.items():
        job = sbatch(testbed, *asks.split(), "--wrap=sleep 600")
        reports = drive(daemon, is_in(backend, JobState.RUNNING, job))
        seen = backend.read().jobs[job]
        assert (len(seen.nodes), seen.gpus) == (nodes, gpus), asks
        (entry,) = [each for report in reports for each in report.changes if type(each) is Enter]
        assert set(seen.nodes) == set(entry.nodes), asks
        testbed.command("scancel", job)
        drive(daemon, is_in(backend, JobState.ENDED, job))
