"""A job of copies of one training, which sleep through their steps, with trackers beside them."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from job_wrappers.consolidation import Tracker
from slurm_plugin.testbed import Testbed

ROOT = Path(__file__).resolve().parents[2]

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


@dataclass(frozen=True)
class Copies:
    """Copies of one training, in a folder of their own."""

    testbed: Testbed
    folder: Path
    nonce: str
    steps: int
    batch: int = 1

    def submit(self, name: str, options: str) -> str:
        """Submit a job of which each run, or element, is a copy."""
        (self.folder / "rounds").mkdir(parents=True, exist_ok=True)
        script = self.folder / f"{name}.sh"
        words = {"folder": self.folder, "root": ROOT, "python": sys.executable, "steps": self.steps}
        words |= {"batch": self.batch, "options": options, "nonce": self.nonce, "ending": ENDING}
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


def states(testbed: Testbed, job: str) -> list[str]:
    """Slurm's words for how a job is, or each of its elements, sorted."""
    words = ("squeue", "-h", "-r", "--states=all", "--format=%T", f"--jobs={job}")
    return sorted(testbed.command(*words).split())
