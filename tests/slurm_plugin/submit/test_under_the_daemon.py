"""What users do with their jobs while the daemon manages them."""

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO

import pytest

from hetsched_core.policy import make_policy
from slurm_plugin.backend import JobState, Leave, SlurmBackend, Terms, apply_changes
from slurm_plugin.daemon import Daemon, DaemonMode
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.accounts import Accounted, accounted_runs, most_at_once
from tests.slurm_plugin.jobs import Submitter, await_job, is_in, pending, running
from tests.slurm_plugin.live import SETTINGS, daemon_of, drive
from tests.slurm_plugin.submit.asking import NOTHING, sbatch, script_instead

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("submitter")]


@pytest.fixture
def daemon(backend: SlurmBackend) -> Daemon:
    return daemon_of(backend)


def rows_of(testbed: Testbed, array: str) -> dict[int, list[Accounted]]:
    """Element -> its runs, as Slurm has accounted them, but for those that were cancelled.

    Slurm 24.11 has no record of what was cancelled before it began.
    """
    text = testbed.command(
        *("squeue", "--noheader", "--array", "--states=all", f"--jobs={array}"),
        "--format=%A %K %T",
    )
    rows = map(str.split, text.splitlines())
    elements = {job: int(element) for job, element, state in rows if state != "CANCELLED"}
    runs = accounted_runs(testbed, list(elements))
    return dict(sorted((elements[job], rows) for job, rows in runs.items()))


def test_elements_of_an_array_with_a_requirement_set_are_jobs_of_their_own(
    backend: SlurmBackend, testbed: Testbed, daemon: Daemon
) -> None:
    # Element 1 runs until it is queued again.
    first = "[ $SLURM_ARRAY_TASK_ID$SLURM_RESTART_COUNT != 1 ] || sleep 600; sleep 3"
    array = sbatch(testbed, "--array=0-9%5", "--gpu-set=1,2", f"--wrap={first}")
    third = sbatch(testbed, f"--dependency=afterok:{array}_3", "--gpu-set=1", "--wrap=sleep 1")
    each = sbatch(
        *(testbed, "--array=0-9", f"--dependency=aftercorr:{array}"),
        *("--gpu-set=1", "--wrap=sleep 1"),
    )
    drive(daemon, is_in(backend, JobState.RUNNING, f"{array}_1"), 60)
    testbed.command("scontrol", "requeue", f"{array}_1")
    testbed.command("scancel", f"{array}_7")

    def left() -> set[str]:
        text = testbed.command("squeue", "--noheader", "--array", "--format=%i")
        return set(text.split())

    drive(daemon, lambda: left() == {f"{each}_7"}, 150)
    testbed.command("scancel", each)
    runs, after, (alone,) = rows_of(testbed, array), rows_of(testbed, each), [third]
    assert list(runs) == list(after) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert {at: len(rows) for at, rows in runs.items()} == {at: 1 + (at == 1) for at in runs}
    assert all(rows[-1].state == "COMPLETED" for rows in (*runs.values(), *after.values()))
    assert {row.gpus for rows in runs.values() for row in rows} <= {1, 2}
    # In seconds, so that one may end in that in which another begins.
    at_once = [replace(row, gpus=1) for rows in runs.values() for row in rows]
    assert most_at_once(at_once) <= 5
    assert all(after[at][0].start >= runs[at][-1].end for at in runs)
    (waited,) = accounted_runs(testbed, [alone])[alone]
    assert waited.start >= runs[3][-1].end


@contextmanager
def interactive(testbed: Testbed, *words: str) -> Iterator[IO[str]]:
    """Run salloc or srun for a while, and give what it prints."""
    process = subprocess.Popen(
        [testbed.installed.program(words[0]), *words[1:]],
        env=testbed.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.terminate()
        process.communicate()


def test_salloc_and_srun_are_placed_once_and_a_job_of_one_node_never_leaves_one(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    daemon = daemon_of(backend, "las", settings=replace(SETTINGS, round_s=2.0))
    show = "echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES; sleep 600"
    with (
        interactive(testbed, "salloc", "--gpus=2", "srun", "bash", "-c", show) as salloc,
        interactive(testbed, "srun", "--gpus=1", "bash", "-c", show) as srun,
    ):

        def asked() -> list[str]:
            jobs = backend.read().jobs.values()
            return [job.id for job in jobs if running(job) and not job.batch]

        drive(daemon, lambda: len(asked()) == 2, 60)
        both = asked()
        one = [
            submitter.submit(
                "--gpu-set=2-16 --can-checkpoint", "--nodes=1", "--gpus=4", "--time=30", seconds=3
            )
            for _ in range(8)
        ]
        drive(daemon, is_in(backend, JobState.ENDED, *one), 150)
        jobs = backend.read().jobs
        assert [(jobs[job].state, jobs[job].restarts) for job in both] == (
            [(JobState.RUNNING, 0)] * 2
        )
        said = [salloc.readline().split(), srun.readline().split()]
    assert [job for job, _ in said] == both or [job for job, _ in said] == both[::-1]
    assert [len(gpus.split(",")) for _, gpus in said] == [2, 1]
    rows = accounted_runs(testbed, one)
    assert {len(row.nodes) for runs in rows.values() for row in runs} == {1}
    assert sum(len(runs) - 1 for runs in rows.values()) > 0


def test_without_lua_options_are_read_from_the_script_and_shadow_becomes_enforcing_and_ends(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    daemon = daemon_of(backend, mode=DaemonMode.SHADOW)
    with script_instead(testbed, NOTHING):
        blocker = sbatch(testbed, "--exclusive", "--nodes=6", "--wrap=sleep 600")
        await_job(backend, blocker, running)
        per_gpu = ("--cpus-per-gpu=2", "--mem-per-gpu=1G")
        job = submitter.submit("--gpu-set=2,4 --gpu-types=v100", "--gpus=4", *per_gpu)
        rigid = sbatch(testbed, "--gpus=3", "--wrap=sleep 600")
        # In the first cycle there may be too many to ask about.
        drive(daemon, lambda: {job, rigid} <= set(daemon.world.jobs))
    assert backend.read().jobs[job].mark == ""
    wanted = daemon.world.jobs[job].job
    assert (set(wanted.requirements.counts), wanted.gpu_types) == ({2, 4}, frozenset({"v100"}))
    assert backend.read().reservations == ()
    daemon.adopt(make_policy("fifo"), SETTINGS, DaemonMode.ENFORCE)
    daemon.cycle()
    late = sbatch(testbed, "--gpus=1", "--wrap=sleep 600")
    testbed.command("scancel", blocker)
    drive(daemon, is_in(backend, JobState.RUNNING, job, rigid, late), 60)
    jobs = backend.read().jobs
    assert set(jobs[job].nodes) <= {"n1", "n4"}
    # Looking on again, it hands the nodes back: Slurm starts what is submitted.
    daemon.adopt(make_policy("fifo"), SETTINGS, DaemonMode.SHADOW)
    last = sbatch(testbed, "--gpus=1", "--wrap=sleep 600")
    await_job(backend, last, running, 60)
    assert [backend.read().jobs[each].restarts for each in (job, rigid)] == [0, 0]


@pytest.mark.parametrize("change", [Terms(cpus=70_000), Terms(memory_mb=1 << 70)])
def test_a_number_that_slurm_has_no_room_for_is_refused_and_ends_nothing(
    backend: SlurmBackend, testbed: Testbed, change: Terms
) -> None:
    job = sbatch(testbed, "--hold", "--gpu-set=1", "--wrap=sleep 600")
    outcome = apply_changes(backend, [Leave(job, terms=change)], time.sleep)
    assert [refused.job for refused, _ in outcome.refused] == [job]
    assert pending(backend.read().jobs[job])


EIGHT = "--gpus-per-node=8 --ntasks-per-node=8"
FOUR = "--gpus-per-node=4 --ntasks-per-node=4"
SIXTEEN = "-N2 --gpus=16 --ntasks-per-node=8 --cpus-per-gpu=3"
A100, V100 = "--gpu-types=a100", "--gpu-types=v100"

RECIPES = (
    # How it was submitted; what srun is told; the set; the GPUs of each node; tasks for each GPU.
    (f"-N1 {EIGHT}", "--ntasks-per-node=8", "--gpu-set=8", (8,), 1),
    (f"-N1 {EIGHT}", "--ntasks-per-node=8", "--gpu-set=4,8", (4,), 1),
    (f"-N1 {EIGHT}", "--ntasks-per-node=8", "--gpu-set=4", (4,), 1),
    (f"-N2 {EIGHT}", "--ntasks-per-node=8", "--gpu-set=16", (8, 8), 1),
    (f"-N2 {EIGHT}", "--ntasks-per-node=8", f"--gpu-set=8 {A100}", (4, 4), 1),
    (f"-N2 {EIGHT} --cpus-per-task=2", "", f"--gpu-set=8,16 {A100}", (4, 4), 1),
    (f"-N2 {FOUR}", "", f"--gpu-set=8,16 {V100}", (8,), 1),
    (f"-N2 {FOUR}", "--ntasks-per-node=4", "--gpu-set=16", (8, 8), 1),
    (f"-N2 {FOUR}", "--ntasks-per-node=$SLURM_GPUS_ON_NODE", f"--gpu-set=8 {V100}", (8,), 1),
    (SIXTEEN, "", f"--gpu-set=8 {A100}", (4, 4), 1),
    (SIXTEEN, "", f"--gpu-set=8,16 {A100}", (4, 4), 1),
    ("--gpus=4 --ntasks=4 --cpus-per-task=2", "", "--gpu-set=2,4", (2,), 1),
    ("--gpus=4 --ntasks=4 --cpus-per-gpu=3", "", f"--gpu-set=8 {A100}", (4, 4), 1),
    ("--ntasks=4 --gpus-per-task=1", "", "--gpu-set=2,4", (2,), 1),
    ("--ntasks=4 --gpus-per-task=1", "", "--gpu-set=16", (8, 8), 1),
    ("--gpus=4 --ntasks-per-gpu=1", "", "--gpu-set=2,4", (2,), 1),
    ("--gpus=4 --ntasks-per-gpu=1", "", "--gpu-set=16", (8, 8), 1),
    ("--gpus=4 --cpus-per-gpu=2", "--ntasks-per-gpu=1", "--gpu-set=16", (8, 8), 1),
    ("--gpus=4 --cpus-per-gpu=2 --ntasks=8", "", "--gpu-set=2,4", (2,), 2),
    ("--gpus=4 --ntasks-per-node=2", "", f"--gpu-set=8 {V100}", (8,), 0.5),
    # A task for each node is none for each GPU.
    ("-N2 --gpus-per-node=1 --ntasks-per-node=1", "", "--gpu-set=16", (8, 8), 0.125),
)


def test_a_job_has_as_many_tasks_for_each_gpu_as_its_user_asked_for(
    backend: SlurmBackend, testbed: Testbed, daemon: Daemon, submitter: Submitter
) -> None:
    jobs = {}
    told = f"{submitter.folder}/$SLURM_JOB_ID.$SLURM_PROCID"
    show = "$SLURMD_NODENAME $SLURM_GPUS_ON_NODE $SLURM_PROCID $SLURM_LOCALID $SLURM_NTASKS"
    for recipe in RECIPES:
        words, srun, options, *_ = recipe
        script = submitter.folder / "job.sh"
        step = f"srun {srun} bash -c 'echo {show} >{told}'"
        script.write_text(f"#!/bin/bash\n#HETSCHED {options} --no-move\n{step}\n")
        jobs[sbatch(testbed, *words.split(), script)] = recipe
    drive(daemon, is_in(backend, JobState.ENDED, *jobs))
    for job, (*how, gpus, each) in jobs.items():
        rows = [path.read_text().split() for path in submitter.folder.glob(f"{job}.*")]
        tasks = [int(count * each) for count in gpus]
        places = Counter(node for node, *_ in rows)
        assert sorted(places.values()) == sorted(tasks), (how, rows)
        assert sorted(int(row[2]) for row in rows) == list(range(sum(tasks))), how
        assert {int(row[4]) for row in rows} == {sum(tasks)}, how
        assert max(int(row[3]) for row in rows) == max(tasks) - 1, how
