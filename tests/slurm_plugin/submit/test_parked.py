"""In which shape a job waits in an enforced partition, and what Slurm does if nobody comes."""

import re

import pytest

from slurm_plugin.backend import JobState, Park, Place, SlurmBackend
from slurm_plugin.submit import ENFORCE_LIST
from slurm_plugin.testbed import Testbed, TestbedError
from tests.slurm_plugin.jobs import Submitter, await_job, running
from tests.slurm_plugin.submit.asking import as_user, mark_of, sbatch, script_instead, shown

pytestmark = pytest.mark.slurm


@pytest.fixture(autouse=True)
def cleaned(submitter: Submitter) -> None:
    """Whatever a test submits is gone after it."""


@pytest.mark.parametrize(
    ("words", "default", "nodes", "tres"),
    [
        (("--gpu-set=2,4",), 2, 1, "gres/gpu:2"),
        (("--gpu-set=2,4", "--gpus=4"), 4, 1, "gres/gpu:4"),
        (("--gpu-set=2,4", "--gpus=3"), 2, 1, "gres/gpu:2"),
        (("--gpu-set=2,4", "--gres=gpu:4"), 4, 1, "gres/gpu:4"),
        (("--gpu-set=2,4", "--gpus-per-node=2", "--nodes=2"), 4, 2, "gres/gpu:2"),
        (("--gpu-set=2,4", "--gpu-types=v100"), 2, 1, "gres/gpu:v100:2"),
        (("--gpu-set=2,4", "--gpu-types=v100,t4"), 2, 1, "gres/gpu:2"),
        (("--gpu-set=2,4", "--gres=gpu:t4:2"), 2, 1, "gres/gpu:t4:2"),
        # More than the eight GPUs of the greatest node: even, on as few nodes as take it.
        (("--gpu-set=16",), 16, 2, "gres/gpu:8"),
        (("--gpu-set=12",), 12, 2, "gres/gpu:6"),
        (("--gpu-set=20", "--nodes=5"), 20, 5, "gres/gpu:4"),
    ],
)
def test_a_job_waits_in_the_shape_of_its_default_count(
    backend: SlurmBackend,
    testbed: Testbed,
    words: tuple[str, ...],
    default: int,
    nodes: int,
    tres: str,
) -> None:
    job = sbatch(testbed, *words, "--wrap=sleep 600")
    mark, seen = mark_of(backend, job), shown(testbed, job)
    assert (mark.default_count, mark.default_nodes) == (default, nodes)
    assert seen["NumNodes"] == f"{nodes}-64"
    assert (seen["NumTasks"], seen["TresPerNode"]) == (str(nodes), tres)
    assert (seen["Requeue"], seen["Reason"]) == ("1", "BeginTime")
    assert "TresPerJob" not in seen
    assert "gpu" not in seen.get("TresPerTask", "")


def test_the_type_of_the_gpus_that_are_asked_for_is_the_type_that_the_job_accepts(
    backend: SlurmBackend, testbed: Testbed
) -> None:
    job = sbatch(testbed, "--gpu-set=2,4", "--gres=gpu:t4:2", "--wrap=sleep 600")
    assert mark_of(backend, job).gpu_types == frozenset({"t4"})


def test_a_wide_job_that_nobody_places_starts_evenly_on_several_nodes(
    backend: SlurmBackend, testbed: Testbed
) -> None:
    job = sbatch(testbed, "--gpu-set=16", "--wrap=sleep 600")
    testbed.command("scontrol", "update", f"JobId={job}", "StartTime=now")
    seen = await_job(backend, job, running)
    assert (seen.nodes, seen.gpus_per_node) == (("n1", "n4"), 8)


@pytest.mark.parametrize(
    "words",
    [
        ("--gpus=4",),
        ("--gpus-per-node=2", "--nodes=2"),
        ("--gres=gpu:4",),
        ("--ntasks-per-node=3",),
    ],
)
def test_srun_within_a_job_takes_all_that_the_run_was_given(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, words: tuple[str, ...]
) -> None:
    told = submitter.folder / "told"
    inner = f"srun bash -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES' >{told}"
    job = sbatch(testbed, "--gpu-set=2,4,6", *words, f"--wrap={inner}")
    backend.apply(Place(job, ("n1", "n4"), 3, Park(job, 4, 60)))
    await_job(backend, job, lambda seen: seen.state is JobState.ENDED)
    assert sorted(told.read_text().splitlines()) == ["n1 0,1,2", "n4 0,1,2"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--nodes=1",), "--nodes=1 is not kept: the job may be placed on several nodes"),
        (("--ntasks=4",), "--ntasks gives way to one task on each node; start one worker per GPU"),
        (
            ("--gpus=16",),
            "it asks Slurm for 2 nodes of 8 GPUs, and is refused where there are not so many",
        ),
        ((), ""),
    ],
)
def test_what_is_not_done_as_asked_is_said(
    testbed: Testbed, words: tuple[str, ...], says: str
) -> None:
    asked = ("--hold", "--output=/dev/null", "--gpu-set=2,16", *words, "--wrap=true")
    said = as_user(testbed, "root", "sbatch", *asked)
    assert said.returncode == 0
    assert says in said.stderr
    assert bool(said.stderr) == bool(says)


def test_who_wants_no_requeue_is_not_moved(backend: SlurmBackend, testbed: Testbed) -> None:
    job = sbatch(testbed, "--gpu-set=2,4", "--no-requeue", "--wrap=sleep 600")
    assert not mark_of(backend, job).movable
    assert shown(testbed, job)["Requeue"] == "0"


def test_the_cpus_of_tasks_that_are_not_started_are_not_asked_for(testbed: Testbed) -> None:
    job = sbatch(testbed, "--gpu-set=2", "--ntasks=8", "--cpus-per-task=3", "--wrap=sleep 600")
    assert shown(testbed, job)["NumCPUs"] == "3"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gpu-set=11",), "Requested node configuration is not available"),
        (
            ("--gpu-set=67",),
            "the default count 67 cannot be spread evenly over nodes, at most 8 on",
        ),
        (("--gpu-set=16", "--nodes=3"), "count 16 cannot be spread evenly over 3 nodes, at most 8"),
        (("--gpu-set=16", "--nodes=1"), "choose another with --gpus=COUNT, of the set, and --nod"),
        (("--gpu-set=2", "--array=0-3"), "arrays of jobs with a requirement set are not supported"),
        (("--gpu-set=2", "--nodelist=n1"), "--nodelist does not go with --gpu-set, for which the"),
        (("--gpu-set=2", "--exclude=n1"), "--exclude does not go with --gpu-set"),
        (("--gpu-set=2", "--constraint=x"), "--constraint does not go with --gpu-set"),
        (("--gpu-set=2", "--reservation=x"), "--reservation does not go with --gpu-set"),
        (("--gpu-set=2", "--exclusive"), "put the GPUs of a whole node into the set"),
        (("--gpu-set=2", "--gpus-per-socket=1", "--sockets-per-node=1"), "one task a node"),
        (("--gpu-set=2", "--gpus-per-task=1", "--ntasks=2"), "ask with --gpus=COUNT"),
        (("--gpu-set=2", "--gpus=2", "--ntasks-per-gpu=2"), "and --ntasks-per-gpu do not go with"),
        (("--gpu-set=2", "--gres=gpu:2,x:1"), "Invalid generic resource"),
        (
            ("--gpu-set=2", "--gpu-types=v100", "--gres=gpu:t4:2"),
            "type t4 are asked for, and --gpu",
        ),
        (("--gpu-set=2", "--gpus=t4:1,v100:1"), "name the types with --gpu-types"),
        (("--gpu-set=2", "--gres=gpu:t4:1,gpu:v100:1"), "GPUs of several types at once do not"),
        (("--gpu-set=2", "--partition=gpu,other"), "a job with --gpu-set goes to one partition"),
        (("--gpu-set=2", "--lr-scaling=sqrt"), "--lr-scaling without --learning-rate=RATE"),
    ],
)
def test_what_cannot_be_managed_is_refused_with_a_reason(
    testbed: Testbed, words: tuple[str, ...], says: str
) -> None:
    testbed.command("scontrol", "create", "PartitionName=other", "Nodes=n0")
    try:
        with pytest.raises(TestbedError, match=re.escape(says)):
            sbatch(testbed, *words, "--wrap=true")
    finally:
        testbed.command("scontrol", "delete", "PartitionName=other")


@pytest.mark.parametrize("where", ["first", "second"])
def test_a_heterogeneous_job_with_a_requirement_set_is_refused(
    testbed: Testbed, submitter: Submitter, where: str
) -> None:
    asked = ["#SBATCH --gpus=1", "#SBATCH hetjob", "#SBATCH --gpus=2"]
    asked.insert(1 if where == "first" else 3, "#SBATCH --gpu-set=1,2")
    script = submitter.folder / "het.sh"
    script.write_text("\n".join(["#!/bin/bash", *asked, "true", ""]))
    with pytest.raises(TestbedError, match="heterogeneous jobs with a requirement set are not"):
        sbatch(testbed, script)
    script.write_text(script.read_text().replace("#SBATCH --gpu-set=1,2\n", ""))
    assert sbatch(testbed, script)


def test_in_shadow_what_cannot_be_managed_runs_unmarked(
    backend: SlurmBackend, testbed: Testbed
) -> None:
    listed = testbed.layout.configuration / ENFORCE_LIST
    text = listed.read_text()
    listed.write_text("# none yet\n")
    try:
        job = sbatch(testbed, "--gpu-set=2", "--nodelist=n1", "--wrap=sleep 600")
        with pytest.raises(TestbedError, match="expected GPU counts"):
            sbatch(testbed, "--gpu-set=two", "--wrap=true")
    finally:
        listed.write_text(text)
    seen = await_job(backend, job, running)
    assert (seen.mark, seen.nodes) == ("", ("n1",))


@pytest.mark.parametrize(
    "words",
    [
        ("--gpus=2",),
        ("--nodes=2", "--gpus-per-node=2", "--ntasks-per-node=2"),
        ("--gpus-per-task=1", "--ntasks=4", "--cpus-per-task=2"),
        ("--nodelist=n1", "--exclusive"),
        ("--gres=gpu:v100:3", "--time=5", "--no-requeue"),
        ("--array=0-1", "--begin=now+60"),
        ("--ntasks=3",),
    ],
)
def test_ordinary_jobs_are_what_they_would_be_without_the_script(
    testbed: Testbed, words: tuple[str, ...]
) -> None:
    apart = {"JobId", "ArrayJobId", "SLUID", "SubmitLine", "SubmitTime", "EligibleTime"}
    apart |= {"AccrueTime", "StartTime", "EndTime", "LastSchedEval", "Priority"}

    def submitted() -> dict[str, str]:
        job = sbatch(testbed, "--hold", *words, "--wrap=sleep 600")
        return {name: said for name, said in shown(testbed, job).items() if name not in apart}

    nothing = (
        "function slurm_job_submit() return slurm.SUCCESS end\n"
        "function slurm_job_modify() return slurm.SUCCESS end\n"
        "return slurm.SUCCESS\n"
    )
    ours = submitted()
    with script_instead(testbed, nothing):
        theirs = submitted()
    assert ours == theirs
