"""What a `cluster.toml` says of shares, QOS and limits (docs/formats/cluster.md#shares-and-limits).

Its tables, and the tree of shares that they make.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from hetsched_core.errors import InputError, UnknownNameError, unknown
from hetsched_core.types.site import ROOT, Association, ShareTree, SiteSettings
from hetsched_core.values.records import Form, count, quoted, structure

PARENT = "parent"
"""In the place of shares: an account or user that has it competes as a part of its parent."""

# The form -----------------------------------------------------------------------------------------


def _filled(value: object) -> str:
    name = quoted(value)
    if not name:
        raise ValueError
    return name


def _shares(value: object) -> int | None:
    if value == PARENT:
        return None
    whole: int = count(0).read(value)
    return whole


_SLURM_TIME = re.compile(
    r"(?:(?P<d>[0-9]{1,6})-)?(?P<h>[0-9]{1,6})(?::(?P<m>[0-9]{1,6})(?::(?P<s>[0-9]{1,6}))?)?"
)


def _duration_s(value: object) -> float:
    if isinstance(value, str):
        match = _SLURM_TIME.fullmatch(value)
        # `5` alone would be minutes in slurm.conf, and seconds as a number here.
        if match is None or (match["d"] is None and match["s"] is None):
            raise ValueError
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        value = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e11:
        raise ValueError
    return float(value)


_Name = Annotated[str, Form('a name in quotes, such as "physics"', _filled)]
_Shares = Annotated[int | None, Form(f'a whole number of 0 or more, or "{PARENT}"', _shares)]
_Duration = Annotated[
    float, Form('seconds, more than 0, or text such as "7-0" (7 days) or "12:00:00"', _duration_s)
]
_Most = Annotated[int | None, count(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLimits:
    """What jobs may hold at a time: all together, and those of each user; None for any number."""

    max_gpus: _Most = None
    max_jobs: _Most = None
    max_gpus_per_user: _Most = None
    max_jobs_per_user: _Most = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLimits(UserLimits):
    """The same, and what those of each account may hold."""

    max_gpus_per_account: _Most = None
    max_jobs_per_account: _Most = None


@dataclass(frozen=True, slots=True)
class UserTable:
    """A user of an account."""

    shares: _Shares = 1
    max_gpus: _Most = None
    max_jobs: _Most = None


_A_USER = 'a whole number of shares, "parent", or a table such as {shares = 2, max_gpus = 8}'


def _users(value: object) -> Mapping[str, UserTable]:
    if not isinstance(value, dict):
        raise ValueError
    users = {}
    for name, said in value.items():
        if isinstance(said, dict):
            users[name] = structure(said, UserTable, name)
            continue
        try:
            users[name] = UserTable(_shares(said))
        except ValueError:
            raise InputError(f"{name} is {said!r:.60}; expected {_A_USER}") from None
    return users


_Users = Annotated[Mapping[str, UserTable], Form("a table of lines such as alice = 2", _users)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountTable(UserLimits):
    """An account: its limits hold for the jobs of accounts in it, too."""

    name: _Name
    parent: _Name = ROOT
    shares: _Shares = 1
    users: _Users = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QosTable(AccountLimits):
    """A QOS; of two jobs of partitions of one tier that of the higher priority goes first.

    With `gives_way` its jobs are stopped for what goes before them, even if they cannot save what
    they have done.
    """

    name: _Name
    priority: Annotated[int, count(0)] = 0
    gives_way: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRules(AccountLimits):
    """What a partition says of its jobs, beside its nodes; `gives_way` as in `QosTable`.

    Slurm's tier is 1 where none is set.
    """

    tier: Annotated[int, count(0)] = 1
    gives_way: bool = False


_DEFAULTS = SiteSettings()


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """How fast use is forgotten, and how often it is looked at; both in seconds."""

    half_life: _Duration = _DEFAULTS.half_life_s
    period: _Duration = _DEFAULTS.period_s


@dataclass(frozen=True, slots=True)
class SiteTables:
    """All that a cluster file says of who comes first and who may have how much.

    Attributes:
        shares: None where the file has no such table.
        accounts: each name once.
        qos: each name once.
        partitions: name -> tier and limits.
    """

    shares: ShareSettings | None = None
    accounts: tuple[AccountTable, ...] = ()
    qos: tuple[QosTable, ...] = ()
    partitions: Mapping[str, PartitionRules] = field(default_factory=dict)

    def check(self, source: str) -> None:
        """Refuse names that come twice or stand for nothing, and accounts that are in themselves.

        Raises:
            InputError: the message names `source`, the table and the value.
        """
        for key, names in (
            ("accounts", [account.name for account in self.accounts]),
            ("qos", [qos.name for qos in self.qos]),
        ):
            if len(set(names)) < len(names):
                name = next(name for at, name in enumerate(names) if name in names[:at])
                raise InputError(
                    f"{source}: {key}: name {name!r} comes twice; put all that is said of it into "
                    "one table"
                )
        known = {ROOT, *(account.name for account in self.accounts)}
        for at, account in enumerate(self.accounts, 1):
            where = f"{source}: accounts {at}"
            if account.parent not in known:
                error = unknown("account", account.parent, known)
                raise UnknownNameError(f"{where}: parent: {error}")
            if account.name == ROOT and (account.parent, account.shares) != (ROOT, 1):
                raise InputError(
                    f"{where}: account {ROOT} holds all others; it has no parent and no shares"
                )
        try:
            self.tree()
        except InputError as error:
            raise InputError(f"{source}: {error}") from None

    def tree(self) -> ShareTree:
        """Return the accounts in accounts, and the users in them that have a table."""
        shares: dict[Association, int | None] = {}
        for account in self.accounts:
            if account.name != ROOT:
                shares[account.name, ""] = account.shares
            for name, user in account.users.items():
                shares[account.name, name] = user.shares
        parents = {each.name: each.parent for each in self.accounts if each.name != ROOT}
        return ShareTree(shares, parents)


# Writing ------------------------------------------------------------------------------------------

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def site_blocks(tables: SiteTables, quote: Callable[[str], str]) -> Iterator[list[str]]:
    """Yield the lines of each table but those of partitions; `quote` writes text as TOML."""
    if tables.shares is not None:
        yield ["[shares]", *_lines(tables.shares, quote)]
    for account in tables.accounts:
        block = ["[[accounts]]", *_lines(account, quote, "users")]
        if account.users:
            block.append("[accounts.users]")
        for name, user in account.users.items():
            key = name if _BARE.fullmatch(name) else quote(name)
            if user == UserTable(user.shares):
                block.append(f"{key} = {_value(user.shares, quote)}")
            else:
                block.append(f"{key} = {{ {', '.join(_lines(user, quote))} }}")
        yield block
    for qos in tables.qos:
        yield ["[[qos]]", *_lines(qos, quote)]


def rule_lines(rules: PartitionRules, quote: Callable[[str], str]) -> list[str]:
    """Return the lines that a partition's table has beside its name and nodes."""
    return list(_lines(rules, quote))


def _lines(table: Any, quote: Callable[[str], str], *left_out: str) -> Iterator[str]:
    """Yield what is not as it is without saying so; the name first."""
    known = sorted((each for each in fields(table)), key=lambda each: each.name != "name")
    for each in known:
        value = getattr(table, each.name)
        if each.name not in left_out and (each.name == "name" or value != each.default):
            yield f"{each.name} = {_value(value, quote)}"


def _value(value: object, quote: Callable[[str], str]) -> str:
    # None is left out where it stands for no limit: here it is shares.
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else quote(str(value or PARENT))
