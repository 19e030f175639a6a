"""Training as copies on three nodes of different speed, with trackers beside them, on a real Slurm.

Once as one array that Slurm places, once as three jobs that the daemon places; both at a time, and
both lose a node. No torch: the copies sleep through their steps.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from job_wrappers.consolidation import Tracker
from slurm_plugin.backend import SlurmBackend
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.daemon.test_daemon_live import daemon_of, drive
from tests.slurm_plugin.jobs import Submitter, is_back

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).resolve().parents[2]
STEPS = 300

SCRIPT = """\
#!/bin/bash
#SBATCH --requeue --open-mode=append --output={folder}/%x.%a.out
{options}
export PYTHONPATH={root} HETSCHED_NONCE={nonce}
cd {folder}
{python} -m job_wrappers.consolidation rounds track --steps {steps} --name $SLURMD_NODENAME \\
    --batch {batch} --round 3 --late 4 --gather 3 --poll 0.2 >>$SLURMD_NODENAME.track &
{python} -m job_wrappers.consolidation.stub rounds --name $SLURMD_NODENAME \\
    --speed a100=16 --speed v100=10 --speed t4=6 &
copy=$!
echo "$PPID $$ $(jobs -p | tr '\\n' ' ')" >$SLURMD_NODENAME.pids
{ending}"""

PAGE = (ROOT / "docs" / "live" / "consolidation.md").read_text()
ENDING = PAGE[PAGE.index("trap 'stopped") : PAGE.index("```\n\nWithout hetsched the same")]
"""How the page has such a script end."""

ALONE = "".join(line for line in ENDING.splitlines(keepends=True) if "scancel" not in line)
"""For a copy that is a job of its own."""


@dataclass(frozen=True)
class Copies:
    """Three copies of one training, in a folder of their own."""

    testbed: Testbed
    folder: Path
    nonce: str
    steps: int = STEPS
    batch: int = 1

    def submit(self, name: str, options: str, ending: str = ENDING) -> str:
        """Submit a job of which each run, or element, is a copy."""
        (self.folder / "rounds").mkdir(parents=True, exist_ok=True)
        script = self.folder / f"{name}.sh"
        words = {"folder": self.folder, "root": ROOT, "python": sys.executable, "steps": self.steps}
        words |= {"batch": self.batch, "options": options, "nonce": self.nonce, "ending": ending}
        script.write_text(SCRIPT.format(**words))
        return self.testbed.command("sbatch", "--parsable", f"--job-name={name}", script).strip()

    def rounds(self) -> dict[int, dict[str, Any]]:
        """How each round ended, as the tracker that ended it has said."""
        texts = [path.read_text() for path in self.folder.glob("*.track")]
        # The last line may be half written.
        lines = [line for text in texts for line in text.split("\n")[:-1]]
        ended = [said for said in map(json.loads, lines) if said.get("act") == "consolidate"]
        found = {said["number"]: said for said in ended}
        assert len(found) == len(ended)
        return dict(sorted(found.items()))

    def reported(self) -> dict[tuple[int, str], int]:
        """(round, copy) -> the steps that a copy says it has done."""
        texts = [path.read_text() for path in self.folder.glob("*.out")]
        lines = [line for text in texts for line in text.splitlines() if line.startswith("{")]
        return {(said["round"], said["copy"]): said["steps"] for said in map(json.loads, lines)}

    def ran_with(self, copies: int) -> bool:
        """Whether a round has ended with what so many copies have done."""
        return any(len(said["steps"]) == copies for said in self.rounds().values())

    def pids(self, node: str) -> list[int]:
        """The processes of the copy that began last on a node, Slurm's own first."""
        return [int(pid) for pid in (self.folder / f"{node}.pids").read_text().split()]

    def lose(self, node: str) -> str:
        """Kill all of a copy, Slurm's own first so that it tells nobody, and close its node."""
        for pid in self.pids(node):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.testbed.command("scontrol", "update", f"node={node}", "state=down", "reason=test")
        return node

    def check_steps(self) -> None:
        """Hold the rounds to the job's steps and the copies' own words."""
        ended = self.rounds()
        assert list(ended) == list(range(len(ended)))
        assert sum(sum(said["steps"].values()) for said in ended.values()) == self.steps
        assert Tracker(self.folder / "rounds", self.nonce).newest_model()[0] == self.steps
        own = self.reported()
        for number, said in ended.items():
            assert said["steps"] == {copy: own[number, copy] for copy in said["steps"]}

    def check(self, lost: str) -> None:
        """Hold the rounds to the job's steps, the copies' own words and the node that was lost."""
        self.check_steps()
        ended = self.rounds()
        # Faster ones have done more: a100, v100, t4, in the order of their nodes.
        first = next(said["steps"] for said in ended.values() if len(said["steps"]) == 3)
        assert [first[node] for node in sorted(first)] == sorted(first.values(), reverse=True)
        # It has cost its part in one round. Once the node is back a copy there takes part again.
        without = [said["left_out"][lost] for said in ended.values() if lost in said["left_out"]]
        # Either it said nothing, or its training, which was killed first, had done nothing.
        assert len(without) == 1
        assert without[0] == "no report" or without[0].startswith("0 steps of ")


def states(testbed: Testbed, job: str) -> list[str]:
    """Slurm's words for how a job is, or each of its elements, sorted."""
    words = ("squeue", "-h", "-r", "--states=all", "--format=%T", f"--jobs={job}")
    return sorted(testbed.command(*words).split())


def ended_well(testbed: Testbed, job: str) -> bool:
    """Whether the elements of an array have, but for one whose node is not back."""
    first, *others = states(testbed, job)
    return others == ["COMPLETED"] * 2 and first in ("CANCELLED", "COMPLETED")


def test_copies_on_three_unlike_nodes_lose_one_and_come_to_their_steps(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed, tmp_path: Path
) -> None:
    array = Copies(testbed, tmp_path / "array", "array")
    options = "--array=0-2 --nodes=1 --exclusive --gpus-per-node=4 --exclude=n3,n4,n5"
    job = array.submit("array", f"#SBATCH {options}")
    wait_until(lambda: states(testbed, job) == ["RUNNING"] * 3, "the array to run", 60)
    daemon = daemon_of(backend)
    managed = Copies(testbed, tmp_path / "managed", "managed")
    # On n3, n4 and n5: the array leaves no others with so many GPUs.
    wanted = {"a100": 4, "v100": 8, "t4": 4}
    jobs = [
        managed.submit(
            kind, f"#HETSCHED --gpu-set={gpus} --gpu-types={kind} --can-checkpoint", ALONE
        )
        for kind, gpus in wanted.items()
    ]
    lost: dict[str, str] = {}
    both = (array, managed)

    def three() -> bool:
        """Whether both have lost a node, each once all its copies have been in one round."""
        for each in both:
            if each.nonce not in lost and each.ran_with(3):
                # That of the copy whose tracker goes first.
                node = min(path.stem for path in each.folder.glob("*.pids"))
                lost[each.nonce] = each.lose(node)
        return len(lost) == 2

    try:
        drive(daemon, three, timeout_s=120)
        drive(daemon, lambda: all(each.ran_with(2) for each in both), timeout_s=120)
        drive(daemon, lambda: ended_well(testbed, job), timeout_s=180)
        # The daemon has placed the copy anew whose node was lost.
        over = [["COMPLETED"]] * 3
        drive(daemon, lambda: [states(testbed, each) for each in jobs] == over, timeout_s=180)
    finally:
        testbed.command("scancel", job, *jobs)
        daemon.let_go()
        for node in lost.values():
            wait_until(partial(is_back, testbed, node), f"{node} to be back", 60)
        testbed.await_idle()
    for each in both:
        each.check(lost[each.nonce])
    assert {node for _, node in managed.reported()} >= {"n3", "n4", "n5"}
