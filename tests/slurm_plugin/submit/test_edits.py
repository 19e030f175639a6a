"""What the owner of a managed job may change, and what is the daemon's."""

import importlib
from collections.abc import Iterator

import pytest

from slurm_plugin.backend import Drop, Enter, Hold, Leave, SlurmBackend
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.submit.asking import (
    as_nobody,
    as_user,
    known_to_slurm,
    sbatch_as,
    shown,
)

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("submitter")]


@pytest.fixture
def job(testbed: Testbed) -> str:
    """A waiting job of an ordinary user's."""
    return sbatch_as(testbed, "nobody", "--hold", "--gpu-set=1,2", "--wrap=sleep 600")


@pytest.fixture
def held(backend: SlurmBackend, testbed: Testbed) -> Iterator[None]:
    """The nodes are held for what is placed."""
    backend.apply(Hold("hetsched", tuple(node.name for node in testbed.layout.nodes), 600))
    yield
    backend.apply(Drop("hetsched"))


def edited(testbed: Testbed, job: str, *edits: str) -> str:
    """Have the job's user change it, and return what Slurm says against it."""
    said = as_nobody(testbed, "scontrol", "update", f"JobId={job}", *edits)
    assert bool(said.returncode) == bool(said.stderr)
    return said.stderr


EDITS = (
    ("NumTasks=2", "NumTasks"),
    ("NumNodes=2", "NumNodes"),
    ("TasksPerNode=2", "TasksPerNode"),
    ("ReqNodeList=n2", "ReqNodeList"),
    ("TresPerNode=gres/gpu:8", "TresPerNode"),
    ("Gres=gpu:4", "TresPerNode"),
    ("TresPerJob=gres/gpu:4", "TresPerJob"),
    ("TresPerTask=gres/gpu:1", "TresPerTask"),
    ("TresPerSocket=gres/gpu:1", "TresPerSocket"),
    ("ReservationName=", "ReservationName"),
    ("Partition=short", "Partition"),
)


def test_what_is_placed_is_not_its_user_s_to_change_and_what_waits_is(
    backend: SlurmBackend, testbed: Testbed, job: str, held: None
) -> None:
    # One's own job waits in the shape that one likes, and may not be moved into the reservation.
    assert edited(testbed, job, "NumTasks=2", "ReqNodeList=n2", "TimeLimit=9") == ""
    # In a list Slurm skips names that are empty.
    for names in ("hetsched", ",hetsched", "hetsched,,"):
        said = edited(testbed, job, f"ReservationName={names}")
        assert f"ReservationName={names} is the scheduler's own" in said
    assert backend.read().jobs[job].reservation == ""
    own = Leave(job, ("n2",))
    backend.apply(Enter(job, "hetsched", ("n1",), own))
    before = shown(testbed, job)
    for edit, name in EDITS:
        said = edited(testbed, job, edit)
        assert f"hetsched has placed this job: {name} is not yours to change now" in said, edit
    assert shown(testbed, job) == before
    for edit in ("TimeLimit=5", "Name=other", "Comment=words", "Nice=100"):
        assert edited(testbed, job, edit) == ""
    backend.apply(own)
    assert edited(testbed, job, "NumTasks=1") == ""
    # An operator, as the daemon is, may do all of that.
    with known_to_slurm(testbed, "daemon", operator=True):
        update = ("scontrol", "update", f"JobId={job}", "ReservationName=hetsched", "NumTasks=2")
        assert "Invalid user id" in as_user(testbed, "bin", *update).stderr
        assert as_user(testbed, "daemon", *update).stderr == ""
    assert backend.read().jobs[job].entered


def test_nobody_writes_a_mark_but_the_script(
    backend: SlurmBackend, testbed: Testbed, job: str, submitter: Submitter
) -> None:
    forged = 'hetsched/2 {"nonce":"a","gpu-set":"1"}'
    mine = backend.read().jobs[job].mark
    assert edited(testbed, job, f"AdminComment={forged}")
    assert backend.read().jobs[job].mark == mine
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
        submitted = str(described.submit())
        return backend.read().jobs[submitted].mark

    assert marked(forged) == ""
    assert '"gpu-set":"2"' in marked(forged, "#HETSCHED --gpu-set=2")
    assert marked("project 7") == "project 7"
