"""Jobs of uneven and mixed shapes for the testbed, what they saw, and what has to hold of them.

What is held against the jobs comes from two sides: what each element saw itself (when it began and
ended, and which GPUs it had on each node) and Slurm's records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.faults.site import START, Seen, runs_in

SCRIPT = """\
#!/bin/bash
#HETSCHED --gpu-set={counts} --gpu-shapes=any --can-checkpoint {options}
#SBATCH --open-mode=append --output=/dev/null
cd {folder}
me={token}.${{SLURM_ARRAY_TASK_ID:-0}}
{start} >>$me.seen
done=$(cat $me.saved 2>/dev/null || echo 0)
trap 'echo $done >$me.saved; echo "end $EPOCHREALTIME" >>$me.seen; exit 0' TERM
if [ "${{SLURM_ARRAY_TASK_ID:-0}}" = 0 ]; then
    while [ $done -lt {steps} ]; do sleep 0.1; done=$((done + 1)); done
    # Slurm queues it again if it is told to just as it ends: what is done is not done twice.
    echo $done >$me.saved
    touch {token}.done
else
    while [ ! -e {token}.done ]; do sleep 0.1; done
fi
echo "end $EPOCHREALTIME" >>$me.seen
"""
"""The first element does steps of 0.1 s and saves how many; the others stay until it is done."""


WISHES = (
    ("5", "--gpu-types=a100,t4"),
    ("5,7", "--gpu-types=a100,t4"),
    ("10", "--gpu-types=a100,t4"),
    ("9,11", ""),
    ("9,13", "--gpu-types=v100,a100"),
)
"""Of two nodes of each type, with 4 GPUs, those of v100 with 8, none of these is an even share."""

AT_ONCE_S = 2.5
"""All elements of a run have written their first line in less."""


@dataclass(slots=True)
class Gangs:
    """Submits gangs to a cluster, each of which notes down in `folder` what it sees."""

    cluster: Testbed
    folder: Path
    tokens: dict[str, str] = field(default_factory=dict)
    counts: dict[str, frozenset[int]] = field(default_factory=dict)

    def submit(self, counts: str, options: str = "", seconds: float = 3.0) -> str:
        token = f"g{len(self.tokens)}"
        script = self.folder / "gang.sh"
        words = {"counts": counts, "options": options, "folder": self.folder, "token": token}
        script.write_text(SCRIPT.format(**words, start=START, steps=int(seconds * 10)))
        job = self.cluster.command("sbatch", "--parsable", script).strip()
        self.tokens[job] = token
        self.counts[job] = frozenset(map(int, counts.split(",")))
        return job

    def submit_some(self, number: int, seconds: float) -> str:
        """Submit one of five kinds of jobs, by its number, and return its id."""
        return self.submit(*WISHES[number % len(WISHES)], seconds=seconds)

    def seen(self, job: str) -> dict[int, list[Seen]]:
        return {
            int(path.name.split(".")[1]): list(runs_in(path.read_text()))
            for path in self.folder.glob(f"{self.tokens[job]}.*.seen")
        }

    def shapes(self, job: str) -> dict[int, dict[str, int]]:
        """Return what each run of a job had on each node, by the number of its leader's run.

        One that was stopped at once is left out: not all of its elements may have written a line.
        """
        seen = self.seen(job)
        return {
            lead.number: {
                node: gpus
                for runs in seen.values()
                for run in runs
                if run is lead or run.overlaps(lead)
                for node, gpus in run.pieces
            }
            for lead in seen.get(0, ())
            if lead.end is not None and lead.end - lead.begin > AT_ONCE_S
        }

    def leaderless(self, job: str, most_s: float) -> list[Seen]:
        """Return runs of members that lasted for longer than this without their leader."""
        seen = self.seen(job)
        return [
            run
            for element, runs in seen.items()
            for run in runs
            if element and not any(run.overlaps(lead) for lead in seen.get(0, ()))
            if run.end is None or run.end - run.begin > most_s
        ]

    def done(self, job: str) -> bool:
        return (self.folder / f"{self.tokens[job]}.done").exists()

    def queue(self) -> str:
        return self.cluster.command("squeue", "--noheader", "--array", "--format=%i %T %r %N")


def wrong_in(gangs: Gangs, cancelled: Mapping[str, object]) -> Iterator[str]:
    """Yield what ought not to be, of jobs that have all ended, in words."""
    for job, counts in gangs.counts.items():
        if not gangs.done(job) and job not in cancelled:
            yield f"{job} has not finished"
        for number, pieces in gangs.shapes(job).items():
            if sum(pieces.values()) not in counts and job not in cancelled:
                wanted = sorted(counts)
                yield f"run {number} of {job} had {pieces} of {wanted}: {gangs.seen(job)}"
        for run in gangs.leaderless(job, 2.0):
            yield f"{job} had {run} without its leader"
