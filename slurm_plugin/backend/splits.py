"""How the GPUs of a job lie over its nodes, where Slurm has split them by itself.

No bulk read tells it. A job that asks for GPUs on each node has as many on each; one that asks for
them in all, or by task, has them as Slurm found them free. On a node with several GPU types it is
told by type, which Slurm's totals name where the site accounts for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hetsched_core.types.cluster import part_name
from slurm_plugin.backend.errors import RefusedError
from slurm_plugin.backend.gres import gpus_in_use, node_names
from slurm_plugin.backend.state import JobState, SlurmJob, SlurmState

_RUNS = (JobState.RUNNING, JobState.SUSPENDED)

ByType = tuple[tuple[str, int], ...]
"""GPUs on a node: (type, count) pairs."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A run, and by node of Slurm its (scheduling node, GPUs) pairs there.

    It is `even` where just that follows from how many GPUs it has. `mixed` are those of its nodes
    that have several GPU types: a site may change them under it.
    """

    start_s: float | None
    mixed: frozenset[str]
    gpus_on: Mapping[str, ByType]
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
        mixed = frozenset(node.name for node in state.nodes if len(node.gpus) > 1)
        found = {}
        for job in state.jobs.values():
            runs = job.state in _RUNS and job.gpus > 0
            runs = runs and (len(job.nodes) > 1 or not mixed.isdisjoint(job.nodes))
            if not runs and job.state is not JobState.COMPLETING:
                continue
            known = before.get(job.id)
            here = mixed.intersection(job.nodes)
            same = known is not None and known.start_s == job.start_s
            if known is not None and same and (not runs or known.mixed == here):
                now = known
            elif runs:
                now = self._of(job, mixed)
            else:
                continue
            self._runs[job.id] = now
            if not now.even or len(job.nodes) < len(now.gpus_on):
                left = (each for name in job.nodes for each in now.gpus_on.get(name, ()))
                found[job.id] = replace(job, gpus_on=tuple(left))
        return replace(state, jobs={**state.jobs, **found}) if found else state

    def _of(self, job: SlurmJob, mixed: frozenset[str]) -> _Run:
        gpu_type = job.gpu_types[0] if len(job.gpu_types) == 1 else ""
        by_node = len(job.nodes) == 1 or (job.resources.per_node and not job.resources.per_job)
        told = by_node and (gpu_type or mixed.isdisjoint(job.nodes))
        each = ((gpu_type, job.gpus // len(job.nodes)),)
        split = None if told else self._ask(job)
        split = dict.fromkeys(job.nodes, each) if split is None else split
        named = {name: tuple(_named(name, split[name], mixed)) for name in job.nodes}
        even = {name: ((name, each[0][1]),) for name in job.nodes}
        return _Run(job.start_s, mixed.intersection(job.nodes), named, even=named == even)

    def _ask(self, job: SlurmJob) -> Mapping[str, ByType] | None:
        """Return the GPUs on each of a job's nodes; None where they are not told."""
        try:
            told = self.run(["scontrol", "show", "job", "--details", "--oneliner", job.id])
        except RefusedError:
            return None
        split = parse_split(told)
        split = {name: split.get(name, ()) for name in job.nodes}
        gpus = sum(count for each in split.values() for _, count in each)
        return split if gpus == job.gpus else None


def _named(node: str, gpus: ByType, mixed: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield GPUs of a node by scheduling node; by Slurm's name where the type is not told."""
    if node not in mixed:
        yield node, sum(count for _, count in gpus)
        return
    for gpu_type, count in gpus:
        yield part_name(node, gpu_type) if gpu_type else node, count


def parse_split(told: str) -> Mapping[str, ByType]:
    """Return node -> GPUs, of what `scontrol show job --details --oneliner` prints."""
    parts = re.findall(r"\bNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)", told)
    return {name: gpus_in_use(gres) for nodes, gres in parts for name in node_names(nodes)}
