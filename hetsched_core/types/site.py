"""What a site has promised to accounts and users, and what they have used of late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from immutables import Map

from hetsched_core.errors import InputError
from hetsched_core.types.job import Job

Association = tuple[str, str]
"""An account and a user of it; ("physics", "") is the account itself."""

ROOT = "root"
"""The account that all others are in, as Slurm calls it."""

_NAMELESS = "(no user)"
"""Stands for the user of a job of which only the account is known."""


def association_of(job: Job) -> Association:
    """Return what a job is charged to: always a user of an account."""
    return (job.account, job.user or _NAMELESS)


@dataclass(frozen=True, slots=True, eq=False)
class ShareTree:
    """Accounts in accounts and users in them, each with shares. Compared by identity.

    Attributes:
        shares: of each account and user, relative to its siblings; 1 where it is not named. None
            for a user that counts as its account, and for an account whose members count as
            siblings of its own (`fairshare=parent` in Slurm).
        parents: account -> the account that it is in; those in `ROOT` may be missing.
        children: account -> what is in it and competes for what is due to it, by name.
    """

    shares: Mapping[Association, int | None] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    children: Mapping[str, tuple[Association, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse shares below 0 and accounts that are in themselves; work out who competes."""
        for (account, user), shares in self.shares.items():
            if shares is not None and shares < 0:
                named = f"user {user} of account {account}" if user else f"account {account}"
                raise InputError(f"{named} has {shares} shares; shares count from 0")
        accounts = {account for account, _ in self.shares} | {*self.parents, *self.parents.values()}
        members = [(account, "") for account in accounts if self._competes(account)]
        members += [each for each in self.shares if each[1]]
        children: dict[str, list[Association]] = {ROOT: []}
        for each in sorted(members):
            above = self.path(each)[:-1]
            children.setdefault(above[-1][0] if above else ROOT, []).append(each)
        object.__setattr__(
            self, "children", {account: tuple(inside) for account, inside in children.items()}
        )

    def with_users(self, users: Iterable[Association]) -> ShareTree:
        """Return the tree with these users, too: one share for each that is new."""
        new = {each: 1 for each in sorted(users) if each not in self.shares}
        return ShareTree({**new, **self.shares}, self.parents) if new else self

    def path(self, association: Association) -> tuple[Association, ...]:
        """Return what stands between the root and an association: itself last, the root left out.

        Raises:
            InputError: one of its accounts is in itself.
        """
        account, user = association
        steps, passed = ([association] if user else []), set()
        while account != ROOT:
            if account in passed:
                raise InputError(f"account {account} is in itself; parents have to lead to {ROOT}")
            passed.add(account)
            if self._competes(account):
                steps.append((account, ""))
            account = self.parents.get(account, ROOT)
        return tuple(reversed(steps))

    def _competes(self, account: str) -> bool:
        """Whether an account has a place of its own among its siblings."""
        return account != ROOT and self.shares.get((account, ""), 1) is not None


@dataclass(frozen=True, slots=True)
class Limit:
    """What all jobs under it may hold at a time together; None for any number.

    `Job.limits` says which ones a job comes under.
    """

    gpus: int | None = None
    jobs: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """What the site says of who comes first, and who may have how much. Compared by identity.

    Attributes:
        tree: who has how many shares, and one at the root who is not in it; None where nobody has
            shares, and only tiers and limits count.
        used: user -> its part in what the cluster could give of late (decayed); the parts of all
            come to 1 if it was always busy. Who is missing has used nothing.
        limits: name -> a limit.
    """

    tree: ShareTree | None = None
    used: Map[Association, float] = field(default_factory=Map)
    limits: Mapping[str, Limit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class SiteSettings:
    """What a site has set, and how fast it forgets use. Compared by identity.

    Attributes:
        tree: who has how many shares; None where nobody has any.
        limits: name -> a limit.
        half_life_s: after so many seconds use counts for half.
        period_s: seconds between two looks at what was used.
    """

    tree: ShareTree | None = None
    limits: Mapping[str, Limit] = field(default_factory=dict)
    half_life_s: float = 7 * 86_400.0
    period_s: float = 300.0

    def __post_init__(self) -> None:
        """Refuse times that are none."""
        if not (self.half_life_s > 0 and self.period_s > 0):
            raise InputError(
                f"shares with a half-life of {self.half_life_s:g} s, looked at every "
                f"{self.period_s:g} s; both have to be above 0"
            )
