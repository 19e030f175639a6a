"""What a site has set, beside what Slurm shows of its nodes and jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_plugin.backend.limits import GpuLimits
from slurm_plugin.backend.shares import SlurmShares


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """What the site has set.

    `kill_wait_s` is how long a job that is told to stop may take, `longest_s` the greatest time
    limit of each partition, None for none; `limits` are those of its accounting, None where they
    could not be read. With `private_jobs` (PrivateData=jobs) users are not to see others' jobs.
    `shares` is who is due what and goes first, None where that could not be read.
    `cpus_per_node` is what all jobs of a partition may have of each node, where there is a limit.
    `licenses` is how many of each kind jobs may have together, without what is reserved.
    `unbilled` are the partitions of which fair share counts no GPUs (TRESBillingWeights).
    `cluster` tells it from all others, whatever the configuration file is: its name, and where its
    first slurmctld listens.
    """

    kill_wait_s: float
    longest_s: Mapping[str, float | None]
    limits: GpuLimits | None = None
    private_jobs: bool = False
    cluster: str = ""
    shares: SlurmShares | None = None
    cpus_per_node: Mapping[str, int] = field(default_factory=dict)
    licenses: Mapping[str, int] = field(default_factory=dict)
    unbilled: frozenset[str] = frozenset()
