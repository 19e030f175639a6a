"""Which jobs gain and which lose when one policy takes the place of another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hetsched_core.report.history import History
from hetsched_core.throughput import SizeClass

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEAST_SHARE = 0.05
LEAST_S = 60.0
"""A job gains or loses if its completion time changes by more than this share and this long."""

MAX_USERS = 12
"""Of more users, those are shown whose jobs change most in total, and the rest as one."""

MAX_LOSERS = 3

SIZES: tuple[tuple[SizeClass, str], ...] = (
    (SizeClass.SMALL, "S: below 1 GPU hour"),
    (SizeClass.MEDIUM, "M: 1 to 10 GPU hours"),
    (SizeClass.LARGE, "L: 10 to 50 GPU hours"),
    (SizeClass.EXTRA_LARGE, "XL: above 50 GPU hours"),
)


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs that have something in common, under two policies.

    Attributes:
        label: what they have in common.
        jobs: how many of them completed under both policies.
        before_s: mean completion time under the first policy.
        after_s: mean completion time under the other.
        sooner: jobs that gain.
        later: jobs that lose.
    """

    label: str
    jobs: int
    before_s: float
    after_s: float
    sooner: int
    later: int

    @property
    def change(self) -> float:
        """Relative change of the mean completion time."""
        return self.after_s / self.before_s - 1.0 if self.before_s else 0.0


@dataclass(frozen=True, slots=True)
class JobGrouping:
    """All jobs, divided in one way, described in a few words."""

    title: str
    groups: tuple[JobGroup, ...]


@dataclass(frozen=True, slots=True)
class Loser:
    """A job that loses much."""

    job: str
    user: str
    before_s: float
    after_s: float


@dataclass(frozen=True, slots=True)
class Gains:
    """What changes for which jobs when `policy` takes the place of the first policy."""

    policy: str
    total: JobGroup
    groupings: tuple[JobGrouping, ...]
    losers: tuple[Loser, ...]


def gains(first: History, other: History) -> Gains | None:
    """Return which jobs gain and which lose; None if no job completed under both policies.

    Size and GPU type of a job are those under the first policy: what it took, and the type on which
    it held most GPU time.
    """
    before_s, after_s = first.jobs.jct_s, other.jobs.jct_s
    both = np.isfinite(before_s) & np.isfinite(after_s)
    if not np.any(both):
        return None
    compared = _Compared(before_s, after_s, both)
    sizes = size_classes(first)
    held = np.array(first.jobs.gpu_types)
    groupings = [
        JobGrouping(
            f"by GPU hours under {first.policy}",
            _present(compared.group(label, sizes == at) for at, (_, label) in enumerate(SIZES)),
        ),
        JobGrouping(
            f"by GPU type held under {first.policy}",
            _present(compared.group(name, held == name) for name in first.cluster.gpu_types),
        ),
    ]
    if any(first.jobs.users):
        groupings.append(_by_user(first.jobs.users, compared))
    (total,) = _present([compared.group("all jobs", both)])
    return Gains(other.policy, total, tuple(groupings), _losers(first, compared))


def together(gains: Iterable[Gains]) -> tuple[Gains, ...]:
    """Return the gains of policies that make the same of every job as those of one policy."""
    names: dict[Gains, list[str]] = {}
    for one in gains:
        names.setdefault(replace(one, policy=""), []).append(one.policy)
    return tuple(replace(one, policy=", ".join(same)) for one, same in names.items())


def size_classes(history: History) -> NDArray[np.int64]:
    """Return the place in `SIZES` of each job, by the GPU hours that it took."""
    places = {size: at for at, (size, _) in enumerate(SIZES)}
    return np.array([places[SizeClass.of(hours)] for hours in history.jobs.gpu_hours], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Compared:
    """(N,) completion times under two policies, and whether both exist."""

    before_s: Floats
    after_s: Floats
    both: Bools

    @property
    def changed_s(self) -> Floats:
        """Seconds by which each job ends later; NaN without both."""
        return self.after_s - self.before_s

    @property
    def counts(self) -> Bools:
        """Whether the change of each job is large enough to count."""
        by_s = np.abs(self.changed_s)
        return self.both & (by_s > LEAST_S) & (by_s > LEAST_SHARE * self.before_s)

    def group(self, label: str, members: Bools) -> JobGroup | None:
        """Sum up some jobs; None where none of them completed twice."""
        here = members & self.both
        if not np.any(here):
            return None
        counts = self.counts[here]
        changed_s = self.changed_s[here]
        return JobGroup(
            label,
            jobs=int(here.sum()),
            before_s=float(self.before_s[here].mean()),
            after_s=float(self.after_s[here].mean()),
            sooner=int((counts & (changed_s < 0)).sum()),
            later=int((counts & (changed_s > 0)).sum()),
        )


def _present(groups: Iterable[JobGroup | None]) -> tuple[JobGroup, ...]:
    return tuple(group for group in groups if group is not None)


def _by_user(users: Sequence[str], compared: _Compared) -> JobGrouping:
    """Group by user, from the one whose jobs gain most time in total to the one whose lose most."""
    names, index = np.unique(np.array(users, np.str_), return_inverse=True)
    total_s = np.bincount(
        index[compared.both], compared.changed_s[compared.both], minlength=len(names)
    )
    jobs = np.bincount(index[compared.both], minlength=len(names))
    with_jobs = np.flatnonzero(jobs)
    # Of those without a change, the ones with most jobs.
    by_change = with_jobs[np.lexsort((-jobs[with_jobs], -np.abs(total_s[with_jobs])))]
    shown = by_change[:MAX_USERS] if len(by_change) > MAX_USERS + 1 else by_change
    ordered = shown[np.lexsort((-jobs[shown], total_s[shown]))]

    def groups() -> Iterator[JobGroup | None]:
        for at in ordered:
            yield compared.group(str(names[at]) or "(no name)", index == at)
        rest = np.setdiff1d(with_jobs, shown)
        if rest.size:
            yield compared.group(f"{rest.size} other users", np.isin(index, rest))

    return JobGrouping("by user, from most time gained to most time lost", _present(groups()))


def _losers(first: History, compared: _Compared) -> tuple[Loser, ...]:
    """The jobs that lose most time."""
    lose = np.flatnonzero(compared.counts & (compared.after_s > compared.before_s))
    worst = lose[np.argsort(-compared.changed_s[lose], kind="stable")][:MAX_LOSERS]
    return tuple(
        Loser(
            first.jobs.ids[at],
            first.jobs.users[at],
            float(compared.before_s[at]),
            float(compared.after_s[at]),
        )
        for at in worst
    )
