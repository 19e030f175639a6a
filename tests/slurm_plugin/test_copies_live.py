"""One job as copies on three nodes of different speed, under trackers beside them, on a real Slurm.

No torch: the copies sleep through their steps.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from job_wrappers.consolidation import Tracker
from slurm_plugin.testbed import Testbed, TestbedError
from slurm_plugin.testbed.processes import wait_until

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).resolve().parents[2]
STEPS = 300

SCRIPT = """\
#!/bin/bash
#SBATCH --array=0-2 --nodes=1 --exclusive --gpus-per-node=4 --exclude=n3,n4,n5
#SBATCH --requeue --open-mode=append --output={folder}/%a.out
export PYTHONPATH={root} HETSCHED_NONCE=$SLURM_ARRAY_JOB_ID
cd {folder}
{python} -m job_wrappers.consolidation rounds track --steps {steps} --name $SLURMD_NODENAME \\
    --round 3 --late 2 --gather 3 --poll 0.2 >>$SLURMD_NODENAME.track &
{python} -m job_wrappers.consolidation.stub rounds --speed a100=16 --speed v100=10 --speed t4=6 &
copy=$!
echo "$PPID $$ $(jobs -p | tr '\\n' ' ')" >$SLURMD_NODENAME.pids
trap 'kill -TERM $copy' TERM
while kill -0 $copy 2>/dev/null; do wait $copy; status=$?; done
wait
# What is left of the job has nothing to do any more.
[ $status = 0 ] && scancel --state=PENDING $SLURM_ARRAY_JOB_ID
exit $status
"""


def told(folder: Path, name: str) -> list[dict[str, Any]]:
    """What the tracker beside a copy has said."""
    path = folder / f"{name}.track"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def rounds(folder: Path) -> dict[int, dict[str, Any]]:
    """How each round ended, whoever averaged it."""
    every = [said for name in ("n0", "n1", "n2") for said in told(folder, name)]
    ended = [said for said in every if said.get("act") == "consolidate"]
    found = {said["number"]: said for said in ended}
    assert len(found) == len(ended)
    return dict(sorted(found.items()))


def ran_with(folder: Path, copies: set[str]) -> Callable[[], bool]:
    """Whether a round has ended with what these have done."""
    return lambda: any(set(said["steps"]) == copies for said in rounds(folder).values())


def reported(folder: Path) -> dict[tuple[int, str], int]:
    """(round, copy) -> the steps that a copy says it has done."""
    texts = [path.read_text() for path in folder.glob("?.out")]
    lines = [line for text in texts for line in text.splitlines() if line.startswith("{")]
    return {(said["round"], said["copy"]): said["steps"] for said in map(json.loads, lines)}


def states(testbed: Testbed, job: str) -> dict[str, str]:
    """Element -> Slurm's word for how it is."""
    text = testbed.command("squeue", "-h", "-r", "--states=all", "--format=%K %T", f"--jobs={job}")
    return {line.split()[0]: line.split()[1] for line in text.splitlines()}


def over(testbed: Testbed, job: str) -> bool:
    """Whether a job has ended well: all elements, or but for the one whose node is not back."""
    seen = states(testbed, job)
    lost = seen.pop("0", "")
    return seen == {"1": "COMPLETED", "2": "COMPLETED"} and lost in ("COMPLETED", "CANCELLED")


def back(testbed: Testbed, node: str) -> bool:
    """Whether a node is up, once it has been told to be."""
    with contextlib.suppress(TestbedError):
        # It is already, or not yet done with being down.
        testbed.command("scontrol", "update", f"node={node}", "state=resume")
    return testbed.command("sinfo", "-h", f"--nodes={node}", "--format=%T").strip() == "idle"


def test_a_job_of_three_copies_loses_a_node_and_comes_to_its_steps(
    testbed: Testbed, tmp_path: Path
) -> None:
    (tmp_path / "rounds").mkdir()
    script = tmp_path / "copies.sh"
    text = SCRIPT.format(folder=tmp_path, root=ROOT, python=sys.executable, steps=STEPS)
    script.write_text(text)
    job = testbed.command("sbatch", "--parsable", script).strip()
    try:
        wait_until(ran_with(tmp_path, {"n0", "n1", "n2"}), "a round of three", 90)
        # All that runs on the node of the copy whose tracker goes first, from Slurm's own step on.
        for pid in (tmp_path / "n0.pids").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        testbed.command("scontrol", "update", "node=n0", "state=down", "reason=test")
        wait_until(ran_with(tmp_path, {"n1", "n2"}), "a round of two", 90)
        wait_until(lambda: over(testbed, job), "the end of the job", 180)
    finally:
        testbed.command("scancel", job)
        wait_until(lambda: back(testbed, "n0"), "n0 to be back", 60)
        testbed.await_idle()
    ended = rounds(tmp_path)
    assert list(ended) == list(range(len(ended)))
    assert [said["done"] for said in ended.values()][-1] == STEPS
    assert sum(sum(said["steps"].values()) for said in ended.values()) == STEPS
    done, _ = Tracker(tmp_path / "rounds", job).newest_model()
    assert done == STEPS
    # What counts is what the copies have done, and faster ones have done more.
    own = reported(tmp_path)
    for number, said in ended.items():
        assert said["steps"] == {copy: own[number, copy] for copy in said["steps"]}
    first = next(said["steps"] for said in ended.values() if len(said["steps"]) == 3)
    assert first["n0"] > first["n1"] > first["n2"]
    # The node that was lost has cost its part in one round. Once it is back it may take part again.
    lost = [said["left_out"]["n0"] for said in ended.values() if "n0" in said["left_out"]]
    assert lost == ["no report"]
