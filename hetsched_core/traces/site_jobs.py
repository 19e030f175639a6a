"""What a site's tables mean for the jobs of a workload: tier, limits, shares.

Which limit counts where several of a kind are set is Slurm's rule ("Resource Limits" in its
documentation): the partition's goes before that of the QOS, and that before those of accounts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.site_file import (
    AccountTable,
    PartitionRules,
    QosTable,
    ShareSettings,
    SiteTables,
    UserTable,
)
from hetsched_core.traces.workload import RejectedJob, Workload
from hetsched_core.types import Job, RequirementSet
from hetsched_core.types.site import ROOT, Limit, SiteSettings


def under_site(workload: Workload, file: ClusterFile) -> tuple[Workload, SiteSettings | None]:
    """Return the workload with tier and limits of each job, and what the site has set.

    Tiers are numbered from 0 without gaps: partitions of a higher tier go first, then QOS of a
    higher priority, then what the job itself says. Jobs that ask for more than a limit of theirs
    ever leaves them are rejected.

    Returns:
        The workload as it is, and None, where nothing is said: no shares, no accounts, no limit
        and one tier for all.
    """
    if file.site == SiteTables() and not any(each.job.tier for each in workload.submissions):
        return workload, None
    rules = _SiteLookup(file.site)
    found_terms = [rules.terms_of(submission.job) for submission in workload.submissions]
    pairs = list(zip(workload.submissions, found_terms, strict=True))
    ranks = {
        rank: at for at, rank in enumerate(sorted({_rank(terms, s.job) for s, terms in pairs}))
    }
    tables = file.site
    if tables.shares is None and not tables.accounts and not rules.limits and len(ranks) < 2:
        return workload, None
    submissions, rejected = [], list(workload.rejected)
    for submission, terms in pairs:
        job = submission.job
        if scope := rules.never(job, terms):
            rejected.append(RejectedJob(job.id, f"{scope} has a limit below what it asks for"))
            continue
        job = replace(
            job,
            requirements=rules.allowed(job, terms),
            tier=ranks[_rank(terms, job)],
            limits=terms.limits,
            gives_way=job.gives_way or terms.gives_way,
        )
        submissions.append(replace(submission, job=job))
    found = replace(
        workload,
        submissions=tuple(submissions),
        assumptions=(*workload.assumptions, *rules.assumptions()),
        rejected=tuple(rejected),
    )
    shares = tables.shares or ShareSettings()
    limits = {name: bound.limit for name, bound in rules.limits.items()}
    # Limits and tiers alone give nobody shares.
    tree = tables.tree() if tables.shares or tables.accounts else None
    return found, SiteSettings(tree, limits, shares.half_life, shares.period)


def _rank(terms: _Terms, job: Job) -> tuple[int, int, int]:
    return (terms.tier, terms.priority, job.tier)


class _Terms(NamedTuple):
    """What a site says of jobs of one user, account, partition and QOS."""

    tier: int
    priority: int
    limits: tuple[str, ...]
    gives_way: bool


class _Bound(NamedTuple):
    """A limit, and whose it is."""

    limit: Limit
    scope: str


_KINDS = {
    "max_gpus": ("gpus", ""),
    "max_jobs": ("jobs", ""),
    "max_gpus_per_user": ("gpus", "user"),
    "max_jobs_per_user": ("jobs", "user"),
    "max_gpus_per_account": ("gpus", "account"),
    "max_jobs_per_account": ("jobs", "account"),
}
"""Key of a table -> what it limits, and for each what."""

_NO_PARTITION, _NO_QOS, _NO_USER = PartitionRules(), QosTable(name="none"), UserTable()


@dataclass(slots=True)
class _SiteLookup:
    """The tables by name, the answers so far, and the limits that these name."""

    tables: SiteTables
    limits: dict[str, _Bound] = field(default_factory=dict)
    accounts: Mapping[str, AccountTable] = field(init=False)
    qos: Mapping[str, QosTable] = field(init=False)
    _known: dict[tuple[str, str, str, str], _Terms] = field(default_factory=dict)
    _sets: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    _undescribed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Look the tables up by their names."""
        self.accounts = {each.name: each for each in self.tables.accounts}
        self.qos = {each.name: each for each in self.tables.qos}

    def terms_of(self, job: Job) -> _Terms:
        """Return what is said of a job."""
        if self.qos and job.qos not in self.qos:
            self._undescribed[job.qos] += 1
        key = (job.account, job.user, job.partition, job.qos)
        terms = self._known.get(key)
        if terms is None:
            terms = self._known[key] = self._look_up(job)
        return terms

    def never(self, job: Job, terms: _Terms) -> str:
        """Return who has a limit that the job alone passes; "" if nobody has."""
        for name in terms.limits:
            bound = self.limits[name]
            gpus, jobs = bound.limit.gpus, bound.limit.jobs
            if jobs == 0 or (gpus is not None and gpus < job.requirements.counts[0]):
                return bound.scope
        return ""

    def allowed(self, job: Job, terms: _Terms) -> RequirementSet:
        """Return the GPU counts of a job that no limit rules out for good."""
        bounds = (self.limits[name].limit.gpus for name in terms.limits)
        most = min((gpus for gpus in bounds if gpus is not None), default=None)
        counts = job.requirements.counts
        if most is None or counts[-1] <= most:
            return job.requirements
        return RequirementSet(tuple(count for count in counts if count <= most))

    def assumptions(self) -> Iterator[str]:
        """Say in a sentence which QOS have no table."""
        if self._undescribed:
            names = ", ".join(sorted(name or "none" for name in self._undescribed))
            yield (
                f"{self._undescribed.total()} jobs of QOS without a table in the cluster file "
                f"({names}) have priority 0 and no limits of a QOS."
            )

    def _look_up(self, job: Job) -> _Terms:
        partitions = [
            self.tables.partitions.get(name, _NO_PARTITION) for name in job.partition.split(",")
        ]
        qos = self.qos.get(job.qos, _NO_QOS)
        limits = tuple(sorted(set(self._limits(job, qos))))
        return _Terms(
            max(partition.tier for partition in partitions),
            qos.priority,
            self._sets.setdefault(limits, limits),
            qos.gives_way or all(partition.gives_way for partition in partitions),
        )

    def _limits(self, job: Job, qos: QosTable) -> Iterator[str]:
        """Yield the names of a job's limits; of several partitions the first counts."""
        partition = job.partition.partition(",")[0]
        rules = self.tables.partitions.get(partition, _NO_PARTITION)
        taken = set()
        for scope, table in ((f"partition {partition}", rules), (f"QOS {qos.name}", qos)):
            for key in _KINDS:
                most = getattr(table, key)
                if most is not None and key not in taken:
                    taken.add(key)
                    yield self._name(scope, key, most, job)
        path = list(self._path(job.account))
        scope = f"account {job.account}"
        own = path[0].users.get(job.user, _NO_USER) if path else _NO_USER
        for resource in ("gpus", "jobs"):
            group, per_user = f"max_{resource}", f"max_{resource}_per_user"
            # Slurm's GrpTRES of a user is a limit of the group, its MaxJobs one of the user.
            mine, of_kind = getattr(own, group), group if resource == "gpus" else per_user
            if group not in taken:
                for account in path:
                    if (most := getattr(account, group)) is not None:
                        yield self._name(f"account {account.name}", group, most, job)
            if mine is not None:
                if of_kind not in taken:
                    yield self._name(scope, per_user, mine, job)
            elif per_user not in taken:
                nearest = (getattr(account, per_user) for account in path)
                most = next((each for each in nearest if each is not None), None)
                if most is not None:
                    yield self._name(scope, per_user, most, job)

    def _path(self, account: str) -> Iterator[AccountTable]:
        """Yield the tables of an account and of those that it is in, the nearest first."""
        while True:
            table = self.accounts.get(account)
            if table is not None:
                yield table
            if account == ROOT:
                return
            account = table.parent if table is not None else ROOT

    def _name(self, scope: str, key: str, most: int, job: Job) -> str:
        """Return the name of a limit, which is known from now on."""
        resource, whom = _KINDS[key]
        name = f"{scope}: {'GPUs' if resource == 'gpus' else 'jobs'}"
        if whom:
            name += f" of {whom} {getattr(job, whom)}"
        limit = Limit(gpus=most) if resource == "gpus" else Limit(jobs=most)
        self.limits.setdefault(name, _Bound(limit, scope))
        return name
