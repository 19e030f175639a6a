"""How the GPUs of a job lie over its nodes, where Slurm has split them by itself.

No bulk read tells it. A job that asks for GPUs on each node has as many on each; one that asks for
them in all, or by task, has them as Slurm found them free.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from slurm_plugin.backend.errors import RefusedError
from slurm_plugin.backend.gres import gpus_in_use, node_names
from slurm_plugin.backend.state import JobState, SlurmJob, SlurmState

_RUNS = (JobState.RUNNING, JobState.SUSPENDED)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run on several nodes, and its GPUs on each."""

    start_s: float | None
    gpus_on: Mapping[str, int]
    even: bool


@dataclass(slots=True)
class Splits:
    """Asks by `run`, which runs a command, once for each run of such a job.

    While a job is COMPLETING Slurm takes the nodes that are done with it out of its list, and shows
    all its GPUs still: what it had on those that are left is remembered.
    """

    run: Callable[[list[str]], str]
    _runs: dict[str, _Run] = field(default_factory=dict)

    def told(self, state: SlurmState) -> SlurmState:
        """Return what was read, with `SlurmJob.gpus_on` of jobs of which it is needed.

        Raises:
            AwayError: Slurm does not answer.
        """
        before, self._runs = self._runs, {}
        found = {}
        for job in state.jobs.values():
            runs = job.state in _RUNS and len(job.nodes) > 1 and job.gpus > 0
            if not runs and job.state is not JobState.COMPLETING:
                continue
            known = before.get(job.id)
            if known is not None and known.start_s == job.start_s:
                now = known
            elif runs:
                now = self._of(job)
            else:
                continue
            self._runs[job.id] = now
            left = tuple(now.gpus_on.get(name, 0) for name in job.nodes)
            if not now.even or len(left) < len(now.gpus_on):
                found[job.id] = replace(job, gpus_on=left)
        return replace(state, jobs={**state.jobs, **found}) if found else state

    def _of(self, job: SlurmJob) -> _Run:
        even = dict.fromkeys(job.nodes, job.gpus // len(job.nodes))
        by_node = job.resources.per_node and not job.resources.per_job
        split = None if by_node else self._ask(job)
        if split is None or split == even:
            return _Run(job.start_s, even, even=True)
        return _Run(job.start_s, split, even=False)

    def _ask(self, job: SlurmJob) -> Mapping[str, int] | None:
        """Return the GPUs on each of a job's nodes; None where they are not told."""
        try:
            told = self.run(["scontrol", "show", "job", "--details", "--oneliner", job.id])
        except RefusedError:
            return None
        split = parse_split(told)
        counts = {name: split.get(name, 0) for name in job.nodes}
        return counts if sum(counts.values()) == job.gpus else None


def parse_split(told: str) -> Mapping[str, int]:
    """Return node -> GPUs, of what `scontrol show job --details --oneliner` prints."""
    parts = re.findall(r"\bNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)", told)
    return {
        name: sum(count for _, count in gpus_in_use(gres))
        for nodes, gres in parts
        for name in node_names(nodes)
    }
