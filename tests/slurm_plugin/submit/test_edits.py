"""What the owner of a managed job may change, and what is the daemon's."""

import importlib
from collections.abc import Iterator

import pytest

from slurm_plugin.backend import JobState, SlurmBackend
from slurm_plugin.testbed import Testbed, TestbedError
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.submit.asking import (
    as_nobody,
    as_operator,
    as_user,
    sbatch,
    script_instead,
    shown,
)

pytestmark = pytest.mark.slurm

MANAGED = ("NumNodes", "NumTasks", "NumCPUs", "TresPerNode", "StartTime", "Requeue", "ReqNodeList")


@pytest.fixture
def job(testbed: Testbed, submitter: Submitter) -> Iterator[str]:
    """A waiting job of an ordinary user's."""
    words = ("--parsable", "--output=/dev/null", "--gpu-set=1,2", "--wrap=sleep 600")
    said = as_nobody(testbed, "sbatch", *words)
    assert said.returncode == 0, said.stderr
    yield said.stdout.strip()
    testbed.command("scancel", said.stdout.strip())


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        ("NumTasks=2", "NumTasks"),
        ("NumNodes=2", "NumNodes"),
        ("NumCPUs=4", "NumCPUs"),
        ("TasksPerNode=2", "TasksPerNode"),
        ("MinCPUsNode=40", "MinCPUsNode"),
        ("ReqNodeList=n1", "ReqNodeList"),
        ("ExcNodeList=n1", "ExcNodeList"),
        ("StartTime=now", "StartTime"),
        ("StartTime=now+900", "StartTime"),
        ("EligibleTime=now", "StartTime"),
        ("TresPerNode=gres/gpu:8", "TresPerNode"),
        ("Gres=gpu:4", "TresPerNode"),
        ("TresPerJob=gres/gpu:4", "TresPerJob"),
        ("TresPerTask=gres/gpu:1", "TresPerTask"),
        ("TresPerSocket=gres/gpu:1", "TresPerSocket"),
        ("Features=x", "Features"),
        ("ReservationName=x", "ReservationName"),
        ("Requeue=0", "Requeue"),
    ],
)
def test_what_the_daemon_manages_is_not_the_user_s_to_change(
    testbed: Testbed, job: str, edit: str, named: str
) -> None:
    before = shown(testbed, job)
    said = as_nobody(testbed, "scontrol", "update", f"JobId={job}", edit)
    assert said.returncode == 1
    assert f"hetsched manages this job: {named} is not yours to change" in said.stderr
    after = shown(testbed, job)
    for name in MANAGED:
        assert after[name] == before[name], name


@pytest.mark.parametrize(
    ("edit", "name", "now"),
    [
        ("TimeLimit=5", "TimeLimit", "00:05:00"),
        ("Name=other", "JobName", "other"),
        ("Comment=words", "Comment", "words"),
        ("Nice=100", "Nice", "100"),
    ],
)
def test_the_rest_is(testbed: Testbed, job: str, edit: str, name: str, now: str) -> None:
    said = as_nobody(testbed, "scontrol", "update", f"JobId={job}", edit)
    assert said.returncode == 0, said.stderr
    assert shown(testbed, job)[name] == now


def test_what_a_member_of_a_gang_waits_for_is_not_its_user_s(
    testbed: Testbed, submitter: Submitter
) -> None:
    words = ("--parsable", "--output=/dev/null", "--gpu-set=4,5", "--gpu-shapes=any")
    said = as_nobody(testbed, "sbatch", *words, "--wrap=sleep 600")
    assert "names that, as in --dependency=afterok:ID_0" in said.stderr
    job = said.stdout.strip()

    def update(element: int, dependency: str) -> str:
        edit = (f"JobId={job}_{element}", f"Dependency={dependency}")
        return as_nobody(testbed, "scontrol", "update", *edit).stderr

    try:
        for dependency in ("", f"after:{job}_0", f"afterany:{job}_0"):
            assert "the first wait for is not yours to change" in update(1, dependency)
        # As the line in the leader's script does.
        assert update(1, f"afterok:{job}_0,afternotok:{job}_0") == ""
        assert "afternotok" in testbed.command("squeue", "--noheader", "--format=%E", f"-j{job}_1")
        assert update(0, "") == ""
        said = as_nobody(testbed, "scontrol", "update", f"JobId={job}", "ArrayTaskThrottle=1")
        assert "ArrayTaskThrottle is not yours to change" in said.stderr
    finally:
        testbed.command("scancel", job)


def test_a_job_does_not_change_between_managed_and_other_partitions(
    testbed: Testbed, job: str
) -> None:
    testbed.command("scontrol", "create", "PartitionName=other", "Nodes=ALL")
    words = ("--partition=other", "--hold", "--gpu-set=1", "--wrap=sleep 600")
    elsewhere = as_nobody(testbed, "sbatch", "--parsable", "--output=/dev/null", *words)
    try:
        out = as_nobody(testbed, "scontrol", "update", f"JobId={job}", "Partition=other")
        into = as_nobody(
            testbed, "scontrol", "update", f"JobId={elsewhere.stdout.strip()}", "Partition=gpu"
        )
    finally:
        testbed.command("scancel", elsewhere.stdout.strip())
        testbed.command("scontrol", "delete", "PartitionName=other")
    for said in (out, into):
        assert said.returncode == 1
        assert "cancel the job and submit it anew" in said.stderr


def test_a_user_may_hold_release_and_cancel(
    backend: SlurmBackend, testbed: Testbed, job: str
) -> None:
    assert as_nobody(testbed, "scontrol", "hold", job).returncode == 0
    assert backend.read().jobs[job].held
    assert as_nobody(testbed, "scontrol", "release", job).returncode == 0
    seen = backend.read().jobs[job]
    assert not seen.held
    assert seen.begin_s is not None
    assert seen.begin_s > seen.submit_s + 30
    assert as_nobody(testbed, "scancel", job).returncode == 0
    assert backend.read().jobs[job].state is JobState.ENDED


def test_a_user_s_ordinary_job_is_the_user_s(testbed: Testbed, submitter: Submitter) -> None:
    words = ("--parsable", "--hold", "--output=/dev/null", "--gpus=1", "--wrap=sleep 600")
    ordinary = as_nobody(testbed, "sbatch", *words).stdout.strip()
    try:
        edits = ("NumTasks=2", "ReqNodeList=n1", "StartTime=now+900")
        done = as_nobody(testbed, "scontrol", "update", f"JobId={ordinary}", *edits)
        assert done.returncode == 0, done.stderr
        seen = shown(testbed, ordinary)
        assert (seen["NumTasks"], seen["ReqNodeList"]) == ("2", "n1")
    finally:
        testbed.command("scancel", ordinary)


def test_nobody_writes_a_mark_but_the_script(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, job: str
) -> None:
    forged = 'hetsched/1 {"nonce":"a","default":1,"gpu-set":"1"}'
    mine = backend.read().jobs[job].mark
    edit = as_nobody(testbed, "scontrol", "update", f"JobId={job}", f"AdminComment={forged}")
    assert edit.returncode == 1
    assert backend.read().jobs[job].mark == mine


def test_a_mark_that_comes_with_a_submission_is_dropped(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    if testbed.installed.why_no_pyslurm:
        pytest.skip(testbed.installed.why_no_pyslurm)
    pyslurm = importlib.import_module("pyslurm")

    # sbatch has no such option, but Slurm's library takes it.
    def marked(comment: str, *lines: str) -> str:
        script = submitter.folder / "job.sh"
        script.write_text("\n".join(["#!/bin/bash", *lines, "sleep 600", ""]))
        described = pyslurm.JobSubmitDescription(
            name="forged",
            script=str(script),
            admin_comment=comment,
            standard_output="/dev/null",
            working_directory="/tmp",
            environment={"PATH": "/usr/bin:/bin"},
        )
        job = described.submit()
        return backend.read().jobs[str(job)].mark

    forged = 'hetsched/1 {"nonce":"a","default":1,"gpu-set":"1"}'
    assert marked(forged) == ""
    assert '"gpu-set":"2"' in marked(forged, "#HETSCHED --gpu-set=2")
    assert marked("project 7") == "project 7"


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        ("local function nonce()", "local function nonce() nothing()"),
        ("slurm.USE_MIN_NODES", "nothing()"),
    ],
)
def test_a_script_that_breaks_lets_jobs_through_unmarked(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, found: str, instead: str
) -> None:
    ours = (testbed.layout.configuration / "job_submit.lua").read_text()
    broken = ours.replace(found, instead)
    assert broken != ours
    with script_instead(testbed, broken):
        job = sbatch(testbed, "--gpu-set=2", "--wrap=sleep 600")
        with pytest.raises(TestbedError, match="expected GPU counts"):
            sbatch(testbed, "--gpu-set=x", "--wrap=true")
    assert backend.read().jobs[job].mark == ""
    log = (testbed.layout.logs / "slurmctld.log").read_text()
    assert "attempt to call global 'nothing'" in log


@pytest.fixture
def operator(testbed: Testbed) -> Iterator[str]:
    """A user whom Slurm knows as an operator, as a site's daemon is."""
    with as_operator(testbed, "daemon"):
        yield "daemon"


def test_an_operator_may_place_and_park_another_s_job(
    backend: SlurmBackend, testbed: Testbed, job: str, operator: str
) -> None:
    edits = {"ReqNodeList": "n1", "NumTasks": "1", "TresPerNode": "gres/gpu:2"}
    words = [f"{name}={value}" for name, value in edits.items()]
    update = ("scontrol", "update", f"JobId={job}", "StartTime=now+100", *words)
    refused = as_user(testbed, "bin", *update)
    assert "Invalid user id" in refused.stderr
    placed = as_user(testbed, operator, *update)
    assert placed.returncode == 0, placed.stderr
    seen = backend.read().jobs[job]
    assert (seen.pinned, seen.gpus_per_node) == (("n1",), 2)
