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

_HOLDS = (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING)


@dataclass(slots=True)
class Splits:
    """Asks by `run`, which runs a command, once for each run of such a job."""

    run: Callable[[list[str]], str]
    _known: dict[str, tuple[tuple[object, ...], tuple[int, ...]]] = field(default_factory=dict)

    def told(self, state: SlurmState) -> SlurmState:
        """Return what was read, with `SlurmJob.gpus_on` of jobs of which it is needed.

        Raises:
            AwayError: Slurm does not answer.
        """
        before, self._known = self._known, {}
        found = {}
        for job in state.jobs.values():
            if job.state not in _HOLDS or len(job.nodes) < 2 or not job.gpus:
                continue
            if job.resources.per_node and not job.resources.per_job:
                continue
            run = job.start_s, job.nodes, job.gpus
            known = before.get(job.id)
            split = self._ask(job) if known is None or known[0] != run else known[1]
            self._known[job.id] = run, split
            if split:
                found[job.id] = replace(job, gpus_on=split)
        return replace(state, jobs={**state.jobs, **found}) if found else state

    def _ask(self, job: SlurmJob) -> tuple[int, ...]:
        """Return the GPUs on each of a job's nodes; () where they are not told."""
        try:
            told = self.run(["scontrol", "show", "job", "--details", "--oneliner", job.id])
        except RefusedError:
            return ()
        split = parse_split(told)
        counts = tuple(split.get(name, 0) for name in job.nodes)
        return counts if sum(counts) == job.gpus else ()


def parse_split(told: str) -> Mapping[str, int]:
    """Return node -> GPUs, of what `scontrol show job --details --oneliner` prints."""
    parts = re.findall(r"\bNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)", told)
    return {
        name: sum(count for _, count in gpus_in_use(gres))
        for nodes, gres in parts
        for name in node_names(nodes)
    }
