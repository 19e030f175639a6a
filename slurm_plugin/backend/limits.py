"""The site's limits: GPUs and time of one job, GPUs of several together, and running jobs.

Read with sacctmgr, since neither squeue nor slurmctld's own listing shows the limits per user. Only
limits on GPUs of any type (`gres/gpu`) count: those on one type show as Slurm's reason once a job
is placed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hetsched_core.traces.sacct.fields import parse_duration
from hetsched_core.types.site import Limit
from slurm_plugin.backend.errors import BackendError
from slurm_plugin.backend.running import run_command

if TYPE_CHECKING:
    from slurm_plugin.backend.state import SlurmJob

_TIMEOUT_S = 5.0

PER_JOB, PER_USER, PER_ACCOUNT, GROUP = (
    "MaxTRESPerJob",
    "MaxTRESPerUser",
    "MaxTRESPerAccount",
    "GrpTRES",
)
JOBS_PER_USER, JOBS_PER_ACCOUNT, GROUP_JOBS = "MaxJobsPerUser", "MaxJobsPerAccount", "GrpJobs"
LONGEST = "MaxWall"

_OF_GROUPS = (GROUP, GROUP_JOBS)
_ON_JOBS = (JOBS_PER_USER, JOBS_PER_ACCOUNT, GROUP_JOBS)
_OF_QOS = (PER_JOB, PER_USER, PER_ACCOUNT, GROUP, *_ON_JOBS, LONGEST)
_OF_USERS = (PER_JOB, GROUP, JOBS_PER_USER, GROUP_JOBS, LONGEST)


@dataclass(frozen=True, slots=True, order=True)
class GpuLimit:
    """The greatest number of GPUs of one job, and whose limit it is."""

    gpus: int
    where: str


@dataclass(frozen=True, slots=True)
class Association:
    """Limits of an account (`user` is "") or of a user in one; `parent` is the account above."""

    account: str
    user: str
    partition: str
    parent: str
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """All limits that may bind a job.

    Attributes:
        qos: QOS -> kind -> GPUs, jobs, or seconds, of those that limit them.
        over_partition: the QOS that go before their partition's.
        of_partition: partition -> its own QOS.
        associations: (account, user, partition) -> association; user and partition may be "".
    """

    qos: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    over_partition: frozenset[str] = frozenset()
    of_partition: Mapping[str, str] = field(default_factory=dict)
    associations: Mapping[tuple[str, str, str], Association] = field(default_factory=dict)

    def of(self, job: SlurmJob) -> GpuLimit | None:
        """Return the limit that binds a job, None without one.

        Of each kind the first that is set counts: the partition's QOS, the job's QOS, the
        association (https://slurm.schedmd.com/resource_limits.html).
        """
        kinds = (PER_JOB, PER_USER, PER_ACCOUNT, GROUP)
        found = (each for kind in kinds for each in self._of_kind(job, kind))
        return min((GpuLimit(most, where) for most, where in found), default=None)

    def longest_s(self, job: SlurmJob) -> float | None:
        """Return the greatest time limit that a job may have, None without one."""
        return min((float(most) for most, _ in self._of_kind(job, LONGEST)), default=None)

    def over_several(self, job: SlurmJob) -> dict[str, Limit]:
        """Return the limits that hold for a job and others together, each by its name."""
        found = {}
        whose = {
            PER_USER: f" of user {job.user}",
            JOBS_PER_USER: f" of user {job.user}",
            PER_ACCOUNT: f" of account {job.account}",
            JOBS_PER_ACCOUNT: f" of account {job.account}",
        }
        for kind in (PER_USER, PER_ACCOUNT, GROUP, *_ON_JOBS):
            for most, where in self._of_kind(job, kind):
                limit = Limit(jobs=most) if kind in _ON_JOBS else Limit(gpus=most)
                found[where + (whose.get(kind, "") if where.startswith("QOS") else "")] = limit
        return found

    def _of_kind(self, job: SlurmJob, kind: str) -> Iterator[tuple[int, str]]:
        """Yield what limits of a kind allow a job, and whose they are."""
        chain = [self.of_partition.get(job.partition, ""), job.qos]
        if job.qos in self.over_partition:
            chain.reverse()
        setting = next((name for name in chain if kind in self.qos.get(name, {})), None)
        if setting is not None:
            yield self.qos[setting][kind], f"QOS {setting}: {kind}"
        else:
            yield from self._of_association(job, kind)

    def _of_association(self, job: SlurmJob, kind: str) -> Iterator[tuple[int, str]]:
        whole = (job.account, job.user, "")
        own = self.associations.get((job.account, job.user, job.partition))
        own = own or self.associations.get(whole)
        if own is not None and kind in own.limits:
            yield own.limits[kind], f"user {own.user} in account {own.account}: {kind}"
        if kind not in _OF_GROUPS:
            # sacctmgr shows what is inherited with the one who inherits it.
            return
        account = self.associations.get((job.account, "", ""))
        while account is not None:
            if kind in account.limits:
                yield account.limits[kind], f"account {account.account}: {kind}"
            account = self.associations.get((account.parent, "", "")) if account.parent else None


def read_limits() -> GpuLimits | None:
    """Ask Slurm for the limits; None where it does not tell, for example with slurmdbd away."""
    try:
        configuration = told_by("scontrol", "show", "config")
        enforced = setting_of(configuration, "AccountingStorageEnforce").split(",")
        if not {"limits", "all"} & set(enforced):
            return GpuLimits()
        cluster = setting_of(configuration, "ClusterName")
        return parse_limits(
            told_by("scontrol", "show", "partitions", "--oneliner"),
            told_by(
                *("sacctmgr", "-nP", "show", "qos"),
                "format=Name,Flags,MaxTRES,MaxTRESPU,MaxTRESPA,GrpTRES,MaxJobsPU,MaxJobsPA,GrpJobs,MaxWall",
            ),
            told_by(
                *("sacctmgr", "-nP", "show", "associations", f"cluster={cluster}"),
                "format=Account,User,Partition,ParentName,MaxTRES,GrpTRES,MaxJobs,GrpJobs,MaxWall",
            ),
        )
    except (BackendError, ValueError):
        return None


def parse_limits(partitions: str, qos: str, associations: str) -> GpuLimits:
    """Read what the commands of `read_limits` print.

    Raises:
        ValueError: it has another form.
    """
    of_partition = {
        found[1]: found[2]
        for line in partitions.splitlines()
        if (found := re.search(r"PartitionName=(\S+).* QoS=(\S+)", line)) and found[2] != "N/A"
    }
    limits: dict[str, dict[str, int]] = {}
    over: set[str] = set()
    for line in qos.splitlines():
        name, flags, *told = line.split("|")
        limits[name] = _limits(dict(zip(_OF_QOS, told, strict=True)))
        if "OverPartQOS" in flags.split(","):
            over.add(name)
    found_associations: dict[tuple[str, str, str], Association] = {}
    for line in associations.splitlines():
        account, user, partition, parent, *told = line.split("|")
        found_associations[account, user, partition] = Association(
            account, user, partition, parent, _limits(dict(zip(_OF_USERS, told, strict=True)))
        )
    return GpuLimits(limits, frozenset(over), of_partition, found_associations)


def cpus_per_node(partitions: str) -> dict[str, int]:
    """Return MaxCPUsPerNode where it is set, of `scontrol show partitions --oneliner`."""
    found = re.findall(r"PartitionName=(\S+).* MaxCPUsPerNode=(\d+)", partitions)
    return {name: int(most) for name, most in found}


def jobs_are_private(configuration: str) -> bool:
    """Whether PrivateData in what `scontrol show config` prints keeps others' jobs from users."""
    return bool({"jobs", "all"} & set(setting_of(configuration, "PrivateData").split(",")))


def cluster_of(configuration: str) -> str:
    """Return what tells a cluster from all others, of what `scontrol show config` prints.

    Where its state lies, or its configuration, can change while it stays the same.
    """
    name, host, port = (
        setting_of(configuration, setting)
        for setting in ("ClusterName", r"SlurmctldHost\[0\]", "SlurmctldPort")
    )
    return f"{name} at {host}:{port}"


def _limits(told: Mapping[str, str]) -> dict[str, int]:
    longest_s = parse_duration(told.get(LONGEST, ""))
    longest = {} if longest_s is None else {LONGEST: round(longest_s)}
    found = {
        kind: re.fullmatch(r"(\d+)", text)
        if kind in _ON_JOBS
        else re.search(r"(?:^|,)gres/gpu=(\d+)", text)
        for kind, text in told.items()
        if kind != LONGEST
    }
    return longest | {kind: int(match[1]) for kind, match in found.items() if match}


def setting_of(configuration: str, name: str) -> str:
    """Return a setting, of what `scontrol show config` prints; "" where it is not there."""
    found = re.search(rf"^{name}\s*=\s*(\S+)", configuration, re.MULTILINE)
    return found[1] if found else ""


def told_by(*command: str) -> str:
    """Return what one of Slurm's commands prints, which does not take long.

    Raises:
        BackendError: it cannot be run, fails, or takes too long.
    """
    return run_command(list(command), timeout_s=_TIMEOUT_S)
