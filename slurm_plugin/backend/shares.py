"""Who is due what, as slurmctld keeps it: shares, decayed use, and who goes strictly first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from immutables import Map

from hetsched_core.types.site import ROOT, Association, ShareTree
from slurm_plugin.backend.errors import BackendError
from slurm_plugin.backend.limits import setting_of, told_by


@dataclass(frozen=True, slots=True)
class SlurmShares:
    """What a site's Slurm says of shares and tiers.

    Attributes:
        tree: accounts and users with their shares; None where fair share has no weight.
        used: user -> its use, decayed, in what the site bills.
        partitions: partition -> its PriorityTier.
        qos: QOS -> its priority; empty where that has no weight.
        requeued_partitions: those whose jobs Slurm would requeue for others
            (`preempt/partition_prio`).
        requeued_qos: the QOS whose jobs it would requeue for those of each QOS of a higher priority
            (`preempt/qos`).
    """

    tree: ShareTree | None = None
    used: Map[Association, float] = field(default_factory=Map)
    partitions: Mapping[str, int] = field(default_factory=dict)
    qos: Mapping[str, int] = field(default_factory=dict)
    requeued_partitions: frozenset[str] = frozenset()
    requeued_qos: frozenset[str] = frozenset()

    @property
    def ranks(self) -> bool:
        """Whether any of it makes a difference between jobs."""
        return self.tree is not None or len({*self.partitions.values(), 1}) > 1 or bool(self.qos)

    def says(self, other: SlurmShares) -> bool:
        """Whether it is the same as another in all that it says."""
        trees = [each.tree and (each.tree.shares, each.tree.parents) for each in (self, other)]
        return trees[0] == trees[1] and self.used == other.used and self.ranks_as(other)

    def ranks_as(self, other: SlurmShares) -> bool:
        """Whether jobs are of the same tiers as by another."""
        return replace(self, tree=None, used=Map()) == replace(other, tree=None, used=Map())

    def gives_way(self, partition: str, qos: str) -> bool:
        """Whether the site's preemption requeues a job of theirs for every one of a higher tier.

        Where tiers are of partitions and of QOS, one of the two would be stopped against its word.
        """
        if self.qos:
            return qos in self.requeued_qos and len({*self.partitions.values(), 1}) == 1
        return partition in self.requeued_partitions

    def tier(self, partition: str, qos: str) -> int:
        """Return the tier of a job: from 0, a higher one goes first.

        As in Slurm its partition's PriorityTier counts before the priority of its QOS.
        """
        priorities = sorted({0, *self.qos.values()})
        tiers = sorted({1, *self.partitions.values()})
        high = tiers.index(self.partitions.get(partition, 1))
        return high * len(priorities) + priorities.index(self.qos.get(qos, 0))


def read_shares(configuration: str) -> SlurmShares | None:
    """Ask Slurm for shares and tiers; None where it does not tell.

    Args:
        configuration: what `scontrol show config` prints.
    """
    try:
        tree, used = None, SlurmShares().used
        if weighs(configuration, "FairShare"):
            asked = "--format=Account,User,RawShares,RawUsage"
            tree, used = parse_shares(told_by("sshare", "--all", "-P", "--noheader", asked))
        qos: dict[str, int] = {}
        requeued: frozenset[str] = frozenset()
        if weighs(configuration, "QOS"):
            asked = "format=Name,Priority,Preempt,PreemptMode,PreemptExemptTime"
            told = told_by("sacctmgr", "-nP", "show", "qos", asked)
            qos, requeued = parse_qos(told, configuration)
        partitions = told_by("scontrol", "show", "partitions", "--oneliner")
        return SlurmShares(
            tree,
            used,
            parse_tiers(partitions),
            qos,
            parse_requeued(partitions, configuration),
            requeued,
        )
    except (BackendError, ValueError):
        return None


def weighs(configuration: str, factor: str) -> bool:
    """Whether a factor has a weight, in what `scontrol show config` prints."""
    return int(setting_of(configuration, f"PriorityWeight{factor}") or 0) > 0


def parse_tiers(partitions: str) -> dict[str, int]:
    """Return the PriorityTier of each partition, from `scontrol show partitions --oneliner`."""
    found = re.findall(r"PartitionName=(\S+).* PriorityTier=(\d+)", partitions)
    return {name: int(tier) for name, tier in found}


def unbilled(partitions: str) -> frozenset[str]:
    """Return the partitions that bill no GPUs, from `scontrol show partitions --oneliner`.

    A job's use is what it is billed: its CPUs, unless TRESBillingWeights says otherwise.
    """
    lines = re.findall(r"PartitionName=(\S+)(.*)", partitions)
    billed = re.compile(r" TRESBillingWeights=\S*gres/gpu", re.IGNORECASE)
    return frozenset(name for name, rest in lines if not billed.search(rest))


def parse_requeued(partitions: str, configuration: str) -> frozenset[str]:
    """Return the partitions whose jobs are requeued for those of partitions of a higher tier.

    Args:
        partitions: what `scontrol show partitions --oneliner` prints.
        configuration: what `scontrol show config` prints.
    """
    kind = setting_of(configuration, "PreemptType")
    if kind != "preempt/partition_prio" or _is_exempt(configuration):
        return frozenset()
    found = re.findall(r"PartitionName=(\S+).* PreemptMode=(\S+)", partitions)
    return frozenset(name for name, mode in found if _requeues(mode))


def parse_qos(text: str, configuration: str) -> tuple[dict[str, int], frozenset[str]]:
    """Return the priorities of all QOS, and those whose jobs are requeued for all above them.

    Args:
        text: what `sacctmgr -nP show qos` prints of Name,Priority,Preempt,PreemptMode,
            PreemptExemptTime.
        configuration: what `scontrol show config` prints.

    Raises:
        ValueError: it has another form.
    """
    rows = [tuple(line.split("|")) for line in text.splitlines()]
    priorities = {name: int(first) for name, first, *_ in rows}
    if setting_of(configuration, "PreemptType") != "preempt/qos":
        return priorities, frozenset()
    mode_of_all = setting_of(configuration, "PreemptMode")
    stops = {name: preempts.split(",") for name, _, preempts, *_ in rows}
    exempt = _is_exempt(configuration)
    return priorities, frozenset(
        name
        for name, _, _, mode, own_s in rows
        if any(name in others for others in stops.values())
        and all(name in stops[up] for up in stops if priorities[up] > priorities[name])
        and not (_lasts(own_s) if own_s else exempt)
        and _requeues(mode_of_all if mode == "cluster" else mode)
    )


def _is_exempt(configuration: str) -> bool:
    """Whether the site leaves jobs alone for a while after their start: ours gives them longer."""
    return _lasts(setting_of(configuration, "PreemptExemptTime"))


def _lasts(time: str) -> bool:
    """Whether a time such as `01:00:00` is more than none."""
    return any(digit in time for digit in "123456789") and not time.startswith("-")


def _requeues(mode: str) -> bool:
    # It may stand beside others, as in GANG,REQUEUE.
    return "REQUEUE" in mode.upper().split(",")


def parse_shares(text: str) -> tuple[ShareTree, Map[Association, float]]:
    """Read what `sshare -a -P -n -o Account,User,RawShares,RawUsage` prints.

    An account is indented by one for each that it is in. A user with associations for several
    partitions has a line for each: its use is their sum.

    Raises:
        ValueError: it has another form.
    """
    shares: dict[Association, int | None] = {}
    parents: dict[str, str] = {}
    used: dict[Association, float] = {}
    above: list[str] = []
    for line in text.splitlines():
        indented, user, raw_shares, raw_usage = line.split("|")
        account = indented.lstrip(" ")
        level = len(indented) - len(account)
        if not user:
            above[level:] = [account]
            if account != ROOT:
                parents[account] = above[level - 1]
        if account == ROOT and not user:
            continue
        shares[account, user] = None if raw_shares == "parent" else int(raw_shares)
        if user:
            used[account, user] = used.get((account, user), 0.0) + float(raw_usage)
    return ShareTree(shares, parents), Map(used)
