"""Shares, QOS, limits, partitions and maintenance as sacctmgr, sshare and scontrol print them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, tzinfo
from typing import NamedTuple

from hetsched_core.errors import InputError
from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.sacct.clock import SacctClock
from hetsched_core.traces.sacct.fields import FieldError, expand_nodes, parse_number, quote
from hetsched_core.traces.site_file import (
    PARENT,
    AccountLimits,
    AccountTable,
    PartitionRules,
    QosTable,
    ShareSettings,
    SiteTables,
    UserTable,
)
from hetsched_core.traces.slurm_nodes import scontrol_records
from hetsched_core.types import Cluster, Window
from hetsched_core.types.site import ROOT

_FORMAT = "format=Cluster,Account,ParentName,User,Partition,Share,GrpTRES,GrpJobs,MaxJobs"

COMMANDS = (
    f"sacctmgr -P show assoc {_FORMAT}",
    "sacctmgr -P show qos",
    "sshare -a -P",
    "scontrol show partition",
    "scontrol show reservation",
    "sacctmgr -P show reservation format=Name,NodeName,Start,End,Flags start=TIME",
)
"""What prints the files that are read."""

_AS_PARENT = frozenset({PARENT, str(2**31 - 1)})
"""Shares of a user that counts as its account: the word, and the number that stands for it."""


class _SlurmPartition(NamedTuple):
    nodes: tuple[str, ...]
    rules: PartitionRules
    qos: str


@dataclass(frozen=True, slots=True)
class SlurmTables:
    """What some of these files say.

    Attributes:
        accounts: from associations, else from shares.
        qos: each name once.
        partitions: name -> its nodes, tier, and QOS.
        windows: reservations for maintenance.
        notes: in sentences, what is in the files and left out.
    """

    accounts: tuple[AccountTable, ...] = ()
    qos: tuple[QosTable, ...] = ()
    partitions: Mapping[str, _SlurmPartition] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    notes: tuple[str, ...] = ()

    def added_to(self, file: ClusterFile) -> ClusterFile:
        """Return a cluster with this word on it, which goes before what it has of its own.

        Partitions and windows without a node of the cluster are left out.
        """
        site, cluster = file.site, file.cluster
        partitions, rules = dict(file.partitions), dict(site.partitions)
        for name, partition in self.partitions.items():
            if mine := _of_cluster(partition.nodes, cluster):
                partitions[name] = mine
                rules.pop(name, None)
                if partition.rules != PartitionRules():
                    rules[name] = partition.rules
        shares = site.shares
        if self.accounts and shares is None:
            shares = ShareSettings()
        tables = SiteTables(shares, self.accounts or site.accounts, self.qos or site.qos, rules)
        closed = ((_of_cluster(each.nodes, cluster), each) for each in self.windows)
        windows = file.windows + tuple(replace(each, nodes=mine) for mine, each in closed if mine)
        return replace(file, partitions=partitions, windows=windows, site=tables)


def _of_cluster(names: Iterable[str], cluster: Cluster) -> frozenset[str]:
    """Return the nodes of these names or hosts; a site has others, without GPUs."""
    return frozenset(node for name in names for node in cluster.called(name))


def read_site(texts: Iterable[tuple[str, str]], zone: tzinfo | None = None) -> SlurmTables:
    """Read the output of some of `COMMANDS`.

    Args:
        texts: What messages call a file, and its text; what it is, is told by how it begins.
        zone: That of times; UTC if not given, which is noted.

    Raises:
        InputError: A file is none of these, or a value in it cannot be used.
    """
    notes: dict[str, None] = {}
    accounts: dict[str, tuple[AccountTable, ...]] = {}
    qos: tuple[QosTable, ...] = ()
    partitions: dict[str, _SlurmPartition] = {}
    reservations: list[_SlurmReservation] = []
    clock = SacctClock(zone or UTC)
    for source, text in texts:
        first = next((line for line in text.splitlines() if line.strip()), "")
        columns = {cell.strip().casefold() for cell in first.split("|")}
        if first.lstrip().startswith("PartitionName="):
            partitions |= _read_partitions(text, source)
        elif first.lstrip().startswith("ReservationName="):
            names = ("ReservationName", "Nodes", "StartTime", "EndTime", "Flags")
            for line, said in scontrol_records(text, names[0]):
                where = f"{source}: reservation of line {line}"
                told = (said.get(name, "") for name in names)
                reservations.append(_reservation(where, clock, *told))
        elif {"name", "nodename", "timestart", "timeend", "flags"} <= columns:
            for row in _rows(text, source):
                printed = map(row.text, ("name", "nodename", "timestart", "timeend", "flags"))
                reservations.append(_reservation(row.where, clock, *printed))
        elif first.startswith("No reservations"):
            continue
        elif {"account", "user", "rawshares"} <= columns:
            accounts["sshare"] = _read_tree(_rows(text, source), source, notes)
        elif {"account", "user"} <= columns and columns.intersection(_SHARE_COLUMNS):
            accounts["assoc"] = _read_tree(_rows(text, source), source, notes)
        elif {"name", "priority"} <= columns:
            qos = _read_qos(_rows(text, source), source, notes)
        else:
            raise InputError(
                f"{source} begins with {quote(first.strip())}; expected the output of one of: "
                f"{'; '.join(COMMANDS)}"
            )
    known = {each.name: each for each in qos}
    for name, partition in partitions.items():
        if partition.qos in known:
            limits = {f.name: getattr(known[partition.qos], f.name) for f in fields(AccountLimits)}
            rules = replace(partition.rules, **limits)
            partitions[name] = partition._replace(rules=rules)
        elif partition.qos:
            notes[
                f"Partition {name} has QOS {partition.qos}, which no file describes: its limits "
                "are not known. Give the output of: sacctmgr -P show qos."
            ] = None
    if clock.naive and zone is None:
        notes["Times of reservations are taken for UTC; name their zone with --tz."] = None
    if others := sorted({each.name for each in reservations if not each.maintenance}):
        notes[
            "Reservations without MAINT are left out, since no log tells which jobs ran in them: "
            f"{', '.join(others)}."
        ] = None
    windows = tuple(
        Window(frozenset(each.nodes), each.from_s, each.until_s, each.name, strict=True)
        for each in dict.fromkeys(reservations)
        if each.maintenance and each.nodes
    )
    found = accounts.get("assoc") or accounts.get("sshare", ())
    return SlurmTables(found, qos, partitions, windows, tuple(notes))


# Tables of columns --------------------------------------------------------------------------------


class _TableRow(NamedTuple):
    """A line: where it stands, and column in lower case -> value, blanks in front kept."""

    where: str
    cells: Mapping[str, str]

    def text(self, *columns: str) -> str:
        """Return the value of the first of these columns that there is."""
        return next((self.cells[c].strip() for c in columns if c in self.cells), "")

    def number(self, *columns: str) -> int | None:
        """Return a count; None where there is none."""
        column = next((name for name in columns if name in self.cells), columns[0])
        try:
            return parse_number(self.text(column))
        except FieldError as error:
            raise InputError(f"{self.where}: {column}: {error}") from None

    def gpus(self, column: str, of: str, notes: dict[str, None]) -> int | None:
        """Return the GPUs of a limit such as `cpu=64,gres/gpu=8`; what else it holds is noted."""
        found = None
        for item in filter(None, self.text(column).split(",")):
            name, equals, value = item.rpartition("=")
            if not equals:
                raise InputError(
                    f"{self.where}: {column}: {quote(item)} is not NAME=NUMBER, as in gres/gpu=8"
                )
            if name != "gres/gpu":
                note = f"{of}: a limit of {name} is left out: limits count GPUs of all types."
                notes[note] = None
                continue
            try:
                found = parse_number(value)
            except FieldError as error:
                raise InputError(f"{self.where}: {column}: {name}: {error}") from None
        return found


def _rows(text: str, source: str) -> Iterator[_TableRow]:
    """Yield the rows of a table with a header; -p ends each line with one delimiter more."""
    names: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        cells = line.split("|")
        if names is None:
            names = [cell.strip().casefold() for cell in cells]
            continue
        if len(cells) != len(names):
            raise InputError(
                f"{source}: line {number} has {len(cells)} fields for {len(names)} columns; print "
                "it with -P, to the end"
            )
        yield _TableRow(f"{source}: line {number}", dict(zip(names, cells, strict=True)))


# Beside RawShares stands FairShare, which is a factor there.
_SHARE_COLUMNS = ("rawshares", "share", "shares", "fairshare")
_PARENTS = ("par name", "parentname")


def _read_tree(
    rows: Iterable[_TableRow], source: str, notes: dict[str, None]
) -> tuple[AccountTable, ...]:
    """Read accounts and users from associations or shares.

    Which account another is in is told by a column, else by how far its name is moved in.
    """
    accounts: dict[str, AccountTable] = {}
    users: dict[str, dict[str, UserTable]] = {}
    above: list[tuple[int, str]] = []
    # Whether anything tells which account is in which.
    tree_told = False
    clusters: set[str] = set()
    for row in rows:
        account, user = row.text("account"), row.text("user")
        if not account:
            raise InputError(f"{row.where}: Account is empty; every association has one")
        clusters.add(row.text("cluster"))
        if len(clusters) > 1:
            raise InputError(
                f"{row.where}: associations of several clusters ({', '.join(sorted(clusters))}); "
                "print those of one: sacctmgr -P show assoc where cluster=NAME"
            )
        said = row.text(*_SHARE_COLUMNS)
        shares = None if said in _AS_PARENT else row.number(*_SHARE_COLUMNS)
        if said == "" or (account, user) == (ROOT, ""):
            shares = 1
        of = f"User {user} of account {account}" if user else f"Account {account}"
        gpus, group_jobs = row.gpus("grptres", of, notes), row.number("grpjobs")
        jobs = row.number("maxjobs")
        if user:
            mine = users.setdefault(account, {})
            if row.text("partition") and user in mine:
                notes["Associations of users with single partitions are left out."] = None
            elif (account, user) != (ROOT, ROOT):
                mine[user] = UserTable(shares, gpus, _least(group_jobs, jobs))
            continue
        indent = len(row.cells["account"]) - len(row.cells["account"].lstrip())
        while above and above[-1][0] >= indent:
            above.pop()
        tree_told |= indent > 0 or any(name in row.cells for name in _PARENTS)
        parent = row.text(*_PARENTS) or (above[-1][1] if above else ROOT)
        above.append((indent, account))
        accounts[account] = AccountTable(
            name=account,
            parent=ROOT if account == ROOT else parent,
            shares=shares,
            max_gpus=gpus,
            max_jobs=group_jobs,
            max_jobs_per_user=jobs,
        )

    if not accounts and not users:
        raise InputError(f"{source}: there is no account in it, only a header")
    for account in users:
        accounts.setdefault(account, AccountTable(name=account))
    if len(accounts.keys() - {ROOT}) > 1 and not tree_told:
        notes[f"{source} does not tell which account is in which: all are taken to be in root."] = (
            None
        )
    told = (
        replace(each, users=_worth_telling(users.get(name, {}), each))
        for name, each in accounts.items()
    )
    found = tuple(each for each in told if each != AccountTable(name=ROOT))
    SiteTables(accounts=found).check(source)
    return found


def _worth_telling(users: Mapping[str, UserTable], account: AccountTable) -> dict[str, UserTable]:
    """Return the users that are not as every user of the account is; Slurm repeats its MaxJobs."""
    found = {}
    for name, user in users.items():
        if user.max_jobs == account.max_jobs_per_user:
            user = replace(user, max_jobs=None)
        if user != UserTable():
            found[name] = user
    return found


def _least(*counts: int | None) -> int | None:
    return min((each for each in counts if each is not None), default=None)


def _read_qos(
    rows: Iterable[_TableRow], source: str, notes: dict[str, None]
) -> tuple[QosTable, ...]:
    found: dict[str, QosTable] = {}
    for row in rows:
        name = row.text("name")
        if not name:
            raise InputError(f"{row.where}: Name is empty; every QOS has one")
        of = f"QOS {name}"
        found[name] = QosTable(
            name=name,
            priority=row.number("priority") or 0,
            gives_way=row.text("preemptmode").casefold() == "requeue",
            max_gpus=row.gpus("grptres", of, notes),
            max_jobs=row.number("grpjobs"),
            max_gpus_per_user=row.gpus(_named(row, "maxtrespu", "maxtresperuser"), of, notes),
            max_jobs_per_user=row.number("maxjobspu", "maxjobsperuser"),
            max_gpus_per_account=row.gpus(_named(row, "maxtrespa", "maxtresperaccount"), of, notes),
            max_jobs_per_account=row.number("maxjobspa", "maxjobsperaccount"),
        )
    if not found:
        raise InputError(f"{source}: there is no QOS in it, only a header")
    return tuple(found.values())


def _named(row: _TableRow, *columns: str) -> str:
    return next((name for name in columns if name in row.cells), columns[0])


# Records of scontrol ------------------------------------------------------------------------------

_NONE = frozenset({"", "N/A", "(null)"})


def _read_partitions(text: str, source: str) -> dict[str, _SlurmPartition]:
    partitions = {}
    for line, said in scontrol_records(text, "PartitionName"):
        where = f"{source}: partition of line {line}"
        name, qos = said["PartitionName"], said.get("QoS", "")
        if not name:
            raise InputError(f"{where}: PartitionName is empty")
        try:
            nodes = expand_nodes(said.get("Nodes", ""))
            tier = parse_number(said.get("PriorityTier", ""))
        except FieldError as error:
            raise InputError(f"{where}: {error}") from None
        rules = PartitionRules(tier=PartitionRules().tier if tier is None else tier)
        partitions[name] = _SlurmPartition(nodes, rules, "" if qos in _NONE else qos)
    return partitions


# Reservations -------------------------------------------------------------------------------------


class _SlurmReservation(NamedTuple):
    name: str
    nodes: tuple[str, ...]
    from_s: float
    until_s: float
    maintenance: bool


def _reservation(
    where: str, clock: SacctClock, name: str, nodes: str, start: str, end: str, flags: str
) -> _SlurmReservation:
    try:
        names = () if nodes in _NONE else expand_nodes(nodes)
        from_s, until_s = clock.read(start), clock.read(end)
    except FieldError as error:
        raise InputError(f"{where}: {error}") from None
    if from_s is None or until_s is None or not from_s < until_s:
        raise InputError(
            f"{where}: it is from {quote(start)} to {quote(end)}; expected two times, the end "
            "after the start"
        )
    return _SlurmReservation(name, names, from_s, until_s, "MAINT" in flags.split(","))
