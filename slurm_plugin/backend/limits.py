"""How many GPUs the site's accounting lets one job have.

Read with sacctmgr, since neither squeue nor slurmctld's own listing shows the limits per user. Only
limits on GPUs of any type (`gres/gpu`) count: those on one type, and those on what several jobs
have together, show as Slurm's reason once a job is placed.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_plugin.backend.state import SlurmJob

_TIMEOUT_S = 5.0

PER_JOB, PER_USER, PER_ACCOUNT, GROUP = (
    "MaxTRESPerJob",
    "MaxTRESPerUser",
    "MaxTRESPerAccount",
    "GrpTRES",
)


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
        qos: QOS -> kind -> GPUs, of those that limit GPUs.
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
        chain = [self.of_partition.get(job.partition, ""), job.qos]
        if job.qos in self.over_partition:
            chain.reverse()
        found: list[GpuLimit] = []
        for kind in (PER_JOB, PER_USER, PER_ACCOUNT, GROUP):
            setting = next((name for name in chain if kind in self.qos.get(name, {})), None)
            if setting is not None:
                found.append(GpuLimit(self.qos[setting][kind], f"QOS {setting}: {kind}"))
            else:
                found += self._of_association(job, kind)
        return min(found, default=None)

    def _of_association(self, job: SlurmJob, kind: str) -> Iterator[GpuLimit]:
        whole = (job.account, job.user, "")
        own = self.associations.get((job.account, job.user, job.partition))
        own = own or self.associations.get(whole)
        if own is not None and kind in own.limits:
            yield GpuLimit(own.limits[kind], f"user {own.user} in account {own.account}: {kind}")
        if kind != GROUP:
            # sacctmgr shows what is inherited with the one who inherits it.
            return
        account = self.associations.get((job.account, "", ""))
        while account is not None:
            if kind in account.limits:
                yield GpuLimit(account.limits[kind], f"account {account.account}: {kind}")
            account = self.associations.get((account.parent, "", "")) if account.parent else None


def read_limits() -> GpuLimits | None:
    """Ask Slurm for the limits; None where it does not tell, for example with slurmdbd away."""
    try:
        configuration = _run("scontrol", "show", "config")
        enforced = _setting(configuration, "AccountingStorageEnforce").split(",")
        if not {"limits", "all"} & set(enforced):
            return GpuLimits()
        cluster = _setting(configuration, "ClusterName")
        return parse_limits(
            _run("scontrol", "show", "partitions", "--oneliner"),
            _run(
                *("sacctmgr", "-nP", "show", "qos"),
                "format=Name,Flags,MaxTRES,MaxTRESPU,MaxTRESPA,GrpTRES",
            ),
            _run(
                *("sacctmgr", "-nP", "show", "associations", f"cluster={cluster}"),
                "format=Account,User,Partition,ParentName,MaxTRES,GrpTRES",
            ),
        )
    except (OSError, ValueError, subprocess.SubprocessError):
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
        name, flags, *tres = line.split("|")
        per_job, per_user, per_account, group = tres
        limits[name] = _limits(
            {PER_JOB: per_job, PER_USER: per_user, PER_ACCOUNT: per_account, GROUP: group}
        )
        if "OverPartQOS" in flags.split(","):
            over.add(name)
    found_associations: dict[tuple[str, str, str], Association] = {}
    for line in associations.splitlines():
        account, user, partition, parent, per_job, group = line.split("|")
        found_associations[account, user, partition] = Association(
            account, user, partition, parent, _limits({PER_JOB: per_job, GROUP: group})
        )
    return GpuLimits(limits, frozenset(over), of_partition, found_associations)


def jobs_are_private(configuration: str) -> bool:
    """Whether PrivateData in what `scontrol show config` prints keeps others' jobs from users."""
    found = re.search(r"^PrivateData\s*=\s*(\S+)", configuration, re.MULTILINE)
    return found is not None and bool({"jobs", "all"} & set(found[1].split(",")))


def cluster_of(configuration: str) -> str:
    """Return what tells a cluster from all others, of what `scontrol show config` prints.

    Where its state lies, or its configuration, can change while it stays the same.
    """
    name, host, port = (
        _setting(configuration, setting)
        for setting in ("ClusterName", r"SlurmctldHost\[0\]", "SlurmctldPort")
    )
    return f"{name} at {host}:{port}"


def _limits(tres: Mapping[str, str]) -> dict[str, int]:
    found = {kind: re.search(r"(?:^|,)gres/gpu=(\d+)", text) for kind, text in tres.items()}
    return {kind: int(match[1]) for kind, match in found.items() if match}


def _setting(configuration: str, name: str) -> str:
    found = re.search(rf"^{name}\s*=\s*(\S+)", configuration, re.MULTILINE)
    return found[1] if found else ""


def _run(*command: str) -> str:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    ).stdout
