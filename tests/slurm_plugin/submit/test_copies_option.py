"""`--copies`: what sbatch makes of it, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_plugin.backend import SlurmBackend
from slurm_plugin.testbed import Testbed, TestbedError
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.submit.asking import mark_of, sbatch

pytestmark = pytest.mark.slurm

WORDS = ("--gpu-set=4,8", "--can-checkpoint")


@pytest.mark.parametrize(("option", "copies"), [("--copies=3", 3), ("--copies", 16)])
def test_a_job_of_copies_is_an_array_that_is_marked_and_told_so(
    backend: SlurmBackend,
    testbed: Testbed,
    submitter: Submitter,
    tmp_path: Path,
    option: str,
    copies: int,
) -> None:
    jobs = [submitter.submit(" ".join((*WORDS, option)), "--hold")]
    if not testbed.installed.why_no_pyslurm and "--copies" in testbed.command("sbatch", "--help"):
        jobs.append(sbatch(testbed, "--hold", *WORDS, option, "--wrap=sleep 600"))
    for job in jobs:
        mark = mark_of(backend, job)
        assert (mark.copies, mark.elements, mark.options.any_shape) == (True, copies, False)
        seen = backend.read().jobs[job]
        assert (seen.array, seen.unsplit) == (job, tuple(range(copies)))
        told = testbed.command("squeue", "-h", "-r", "--format=%K", f"--jobs={job}").split()
        assert len(told) == copies
    script = testbed.command("scontrol", "write", "batch_script", jobs[0], "-")
    # Started by Slurm itself, it is an array as any other: its script has no line of ours.
    assert script.splitlines()[1].startswith("#HETSCHED")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--gpu-set=4 --copies=3", "--copies without --can-checkpoint"),
        ("--gpu-set=4 --can-checkpoint --copies=1", "--copies=1: expected how many copies"),
        ("--gpu-set=4 --can-checkpoint --copies=17", "2 to 16, or nothing for 16"),
        ("--gpu-set=4 --can-checkpoint --copies=x", "--copies=x: expected how many copies"),
        ("--gpu-set=4 --can-checkpoint --copies --no-move", "does not go with --no-move"),
        (
            "--gpu-set=4 --can-checkpoint --copies --gpu-shapes=any",
            "does not go with --gpu-shapes=any",
        ),
    ],
)
def test_what_cannot_be_copies_is_refused_with_the_reason(
    submitter: Submitter, options: str, says: str
) -> None:
    with pytest.raises(TestbedError, match=says):
        submitter.submit(options)


def test_copies_of_a_count_for_several_nodes_are_refused(submitter: Submitter) -> None:
    words = ("--nodes=2", "--gpus-per-node=2")
    with pytest.raises(TestbedError, match="the default count is for one node, and asks for 2"):
        submitter.submit("--gpu-set=4 --can-checkpoint --copies", *words)
