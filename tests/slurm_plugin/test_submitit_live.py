"""Job arrays of submitit's on a real Slurm, each element placed by the daemon."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from slurm_plugin.backend import SlurmBackend
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.live import daemon_of, drive

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize(
    "how",
    [
        {"slurm_additional_parameters": {"gpu-set": "2,4", "gpu-types": "v100", "no-move": True}},
        {"slurm_setup": ["#HETSCHED --gpu-set=2,4 --gpu-types=v100 --no-move"]},
    ],
    ids=["options", "lines"],
)
def test_submitit_s_own_arrays_run_with_a_requirement_set(
    testbed: Testbed,
    backend: SlurmBackend,
    submitter: Submitter,
    tmp_path: Path,
    how: dict[str, object],
) -> None:
    submitit = pytest.importorskip("submitit", reason="submitit is not installed")
    if "slurm_setup" not in how and testbed.why_no_options:
        pytest.skip(testbed.why_no_options)

    def square(x: int) -> tuple[int, str, str]:
        return x * x, os.environ["SLURM_JOB_NODELIST"], os.environ["SLURM_GPUS_ON_NODE"]

    daemon = daemon_of(backend)
    executor = submitit.AutoExecutor(folder=tmp_path / "%j")
    executor.update_parameters(timeout_min=20, slurm_array_parallelism=3, **how)
    jobs = executor.map_array(square, range(5))
    most = 0

    def done() -> bool:
        nonlocal most
        text = testbed.command("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i")
        most = max(most, len(text.split()))
        return all(job.done() for job in jobs)

    drive(daemon, done, 60)
    found: Sequence[tuple[int, str, str]] = [job.result() for job in jobs]
    v100 = {node.name for node in testbed.layout.nodes if node.gpu_type == "v100"}
    assert [square for square, _, _ in found] == [0, 1, 4, 9, 16]
    assert {node for _, node, _ in found} <= v100
    assert {gpus for _, _, gpus in found} <= {"2", "4"}
    assert 1 <= most <= 3
