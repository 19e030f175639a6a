"""GPU time that accounts and users held and were due, their waits, and where they stand now.

What is due: at each instant the GPUs in use are shared out from the root of the share tree down,
among those that have demand. In each account they go to its members in proportion to their shares,
but to nobody more than it demands; what one leaves goes to the others in the same way (weighted
max-min fairness). Summed up over time, that is the GPU time that was due. What all had and what was
due to all is the same.

The demand of a job is the largest count that it accepts, from when it may first start until it
ends, and what it holds where that is more. A job that can never run demands nothing. GPUs count
alike, whatever their type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.kernels.due_gpus import integrate_due
from hetsched_core.records.runlog import JobRecord, RunLog
from hetsched_core.site.fair_tree import effective_usage
from hetsched_core.types import EndState, Snapshot
from hetsched_core.types.site import ROOT, Association, ShareTree, association_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BOUND_S = 10.0
"""Jobs that are expected to run for less count as if they ran for so long (Feitelson)."""

LEAST_DUE = 0.01
"""An account to which less than this part of all GPU time is due does not count as the worst."""

POINTS = 301
"""Number of evenly spaced instants at which the use so far is recorded."""


@dataclass(frozen=True, slots=True)
class AccountMeasures:
    """What became of the jobs of a user, or of those of an account and of all accounts in it.

    Means are over completed jobs; None where there is none.

    Attributes:
        account: the account, "" where none is known.
        user: the user of it; "" for the account itself.
        shares: among its siblings; None for what counts as its account.
        jobs: all its jobs.
        completed: those that ended with all their work done.
        had_gpu_s: GPU seconds that they held.
        due_gpu_s: GPU seconds that were due to them.
        avg_wait_s: mean wait in seconds.
        avg_slowdown: mean bounded slowdown, of the jobs whose speed is known.
    """

    account: str
    user: str
    shares: int | None
    jobs: int
    completed: int
    had_gpu_s: float
    due_gpu_s: float
    avg_wait_s: float | None
    avg_slowdown: float | None


@dataclass(frozen=True, slots=True, eq=False)
class AccountUse:
    """The measures of all accounts and users of a run, those that had most first.

    Attributes:
        accounts: a row for each account that has jobs, or holds one that has.
        users: a row for each user of an account.
        at_s: (K,) seconds UTC, ascending.
        had_gpu_s: of each of the `rivals`, (K,) GPU seconds that its jobs had held until then.
        due_gpu_s: of each of the `rivals`, (K,) GPU seconds that had been due to it.
    """

    accounts: tuple[AccountMeasures, ...]
    users: tuple[AccountMeasures, ...]
    at_s: Floats
    had_gpu_s: Mapping[Association, Floats]
    due_gpu_s: Mapping[Association, Floats]

    @property
    def rows(self) -> tuple[AccountMeasures, ...]:
        """All accounts, then all users."""
        return self.accounts + self.users

    @property
    def jain_slowdown(self) -> float | None:
        """Jain's index of the users' mean bounded slowdowns; None for fewer than two users."""
        slowdowns = [one.avg_slowdown for one in self.users if one.avg_slowdown is not None]
        return jain(np.array(slowdowns)) if len(slowdowns) > 1 else None

    @property
    def worst_share_error(self) -> float | None:
        """The greatest |had - due| / due of an account; None for fewer than two accounts."""
        if len(self.accounts) < 2:
            return None
        least = LEAST_DUE * sum(one.due_gpu_s for one in self.users)
        errors = (
            abs(one.had_gpu_s - one.due_gpu_s) / one.due_gpu_s
            for one in self.accounts
            if one.due_gpu_s > least
        )
        # What is left of sums that are equal is no error.
        return max((round(error, 9) for error in errors), default=None)


def rivals(rows: Sequence[AccountMeasures]) -> tuple[AccountMeasures, ...]:
    """Return the accounts among these rows; the users where all are of one account."""
    accounts = tuple(one for one in rows if not one.user)
    return accounts if len(accounts) > 1 else tuple(one for one in rows if one.user)


def jain(values: Floats) -> float:
    """Return Jain's fairness index of (N,) values: 1 if all are equal, 1 / N if one has all.

    Jain, Chiu, Hawe: "A Quantitative Measure of Fairness and Discrimination for Resource Allocation
    in Shared Computer Systems", DEC-TR-301, 1984: (sum x) ** 2 / (N * sum x ** 2).
    """
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def bounded_slowdown(response_s: float, run_s: float) -> float:
    """Return max(1, response / max(run, 10 s)), both in seconds.

    Feitelson: "Metrics for Parallel Job Scheduling and Their Convergence", JSSPP 2001. The run time
    is the expected one (Hops formula 9), which no policy can change: a job on slow GPUs is slowed
    down, and restarts do not make it a longer one.
    """
    return max(1.0, response_s / max(run_s, BOUND_S))


def account_use(log: RunLog, tree: ShareTree | None = None) -> AccountUse:
    """Return what accounts and users had, and what was due to them.

    Args:
        log: what happened.
        tree: who has how many shares; without it, and for who is not in it, one each.
    """
    tree = tree or ShareTree()
    users = sorted({association_of(record.job) for record in log.jobs})
    numbers = {user: at for at, user in enumerate(users)}
    user_of = np.array([numbers[association_of(record.job)] for record in log.jobs], np.int64)
    at_s, had_gpu_s, due_gpu_s = _had_and_due(log, tree, users, user_of)
    columns = _columns(log.jobs, user_of, len(users))
    columns["had_gpu_s"], columns["due_gpu_s"] = had_gpu_s[-1], due_gpu_s[-1]

    def row(each: Association, inside: Sequence[int]) -> AccountMeasures:
        total = {name: float(column[inside].sum()) for name, column in columns.items()}
        completed, known = int(total["completed"]), int(total["known"])
        return AccountMeasures(
            *each,
            shares=tree.shares.get(each, 1),
            jobs=int(total["jobs"]),
            completed=completed,
            had_gpu_s=total["had_gpu_s"],
            due_gpu_s=total["due_gpu_s"],
            avg_wait_s=total["wait_s"] / completed if completed else None,
            avg_slowdown=total["slowdown"] / known if known else None,
        )

    inside_of = accounts_of(tree, users)
    accounts = _largest_first(row(*item) for item in inside_of.items())
    inside_of |= {user: [at] for at, user in enumerate(users)}
    each_user = _largest_first(row(user, inside_of[user]) for user in users)
    drawn = [(one.account, one.user) for one in rivals((*accounts, *each_user))]
    return AccountUse(
        accounts,
        each_user,
        at_s,
        {each: had_gpu_s[:, inside_of[each]].sum(axis=1) for each in drawn},
        {each: due_gpu_s[:, inside_of[each]].sum(axis=1) for each in drawn},
    )


def _largest_first(rows: Iterable[AccountMeasures]) -> tuple[AccountMeasures, ...]:
    return tuple(sorted(rows, key=lambda one: (-one.had_gpu_s, one.account, one.user)))


def accounts_of(tree: ShareTree, users: Sequence[Association]) -> dict[Association, list[int]]:
    """Return the places of the users in each account, those that do not compete included."""
    inside: dict[Association, list[int]] = {}
    for at, (account, _) in enumerate(users):
        while account != ROOT:
            inside.setdefault((account, ""), []).append(at)
            account = tree.parents.get(account, ROOT)
    return inside


def repeated(rows: Floats) -> Floats:
    """A column for each repetition of rows that end in since_s, freed_s, times and every_s."""
    times = rows[:, -2].astype(np.int64)
    nth = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
    each = np.repeat(rows, times, axis=0)
    each[:, -4:-2] += (nth * each[:, -1])[:, None]
    return each.T


def _columns(records: Sequence[JobRecord], user_of: Ints, users: int) -> dict[str, Floats]:
    """Sums over the jobs of each user, (U,) each."""
    done = np.array([r.end_state is EndState.COMPLETED for r in records], np.bool_)
    slowdown = np.array(
        [
            bounded_slowdown(r.end_s - r.job.eligible_from_s, r.expected_run_s)
            if r.end_state is EndState.COMPLETED and r.end_s is not None and r.expected_run_s
            else np.nan
            for r in records
        ]
    )
    known = np.isfinite(slowdown)

    def summed(weights: Floats) -> Floats:
        return np.bincount(user_of, weights, users).astype(np.float64)

    return {
        "jobs": summed(np.ones(len(records))),
        "completed": summed(done.astype(np.float64)),
        "known": summed(known.astype(np.float64)),
        "wait_s": summed(np.where(done, [r.wait_s for r in records], 0.0)),
        "slowdown": summed(np.where(known, slowdown, 0.0)),
    }


def _had_and_due(
    log: RunLog, tree: ShareTree, users: Sequence[Association], user_of: Ints
) -> tuple[Floats, Floats, Floats]:
    """Return (K,) instants, and (K, U) what each user had held, and been due, until then."""
    first, parent, shares, leaf = numbered(tree, users)
    at_s, job, wanted, held = _changes(log)
    begin_s, end_s = (float(at_s[0]), float(at_s[-1])) if at_s.size else (0.0, 0.0)
    edges_s = np.linspace(begin_s, end_s, POINTS)
    had_gpu_s, due_gpu_s = np.zeros((2, POINTS, len(parent)))
    integrate_due(
        at_s, leaf[user_of[job]], wanted, held, first, parent, shares, edges_s, had_gpu_s, due_gpu_s
    )
    return edges_s, had_gpu_s[:, leaf], due_gpu_s[:, leaf]


def numbered(tree: ShareTree, users: Sequence[Association]) -> tuple[Ints, Ints, Floats, Ints]:
    """Number the root and all that users are in, siblings together; as `integrate_due` takes it.

    Returns:
        First child of each node, parent, shares, and the node of each user.
    """
    members: dict[Association, dict[Association, None]] = {}
    for user in users:
        above = (ROOT, "")
        for step in tree.path(user):
            members.setdefault(above, {})[step] = None
            above = step
    nodes, parent, first = [(ROOT, "")], [0], [1]
    for number, node in enumerate(nodes):
        # The list grows while it is gone through: level after level.
        inside = members.get(node, {})
        nodes += inside
        parent += [number] * len(inside)
        first.append(len(nodes))
    raw = [tree.shares.get(node, 1) for node in nodes]
    numbers = {node: number for number, node in enumerate(nodes)}
    return (
        np.array(first, np.int64),
        np.array(parent, np.int64),
        np.array([1.0 if shares is None else shares for shares in raw], np.float64),
        np.array([numbers[user] for user in users], np.int64),
    )


def _changes(log: RunLog) -> tuple[Floats, Ints, Ints, Ints]:
    """Return (E,) when the demand of a job or what it holds changes, which job, and by how much."""
    index = {record.job.id: at for at, record in enumerate(log.jobs)}
    runs = repeated(
        np.array(
            [
                (index[r.job], r.configuration.gpus, r.since_s, r.freed_s, r.times, r.every_s)
                for r in log.runs
                if r.job in index
            ],
            np.float64,
        ).reshape(-1, 6)
    )
    job, gpus = runs[:2].astype(np.int64)
    able = [at for at, r in enumerate(log.jobs) if r.end_state is not EndState.NEVER]
    come = np.array([log.jobs[at].job.eligible_from_s for at in able])
    ends = (log.jobs[at].end_s for at in able)
    gone = np.maximum(come, [log.closed_s if end_s is None else end_s for end_s in ends])
    one, none = np.ones(len(able), np.int64), np.zeros(len(able), np.int64)
    at_s = np.concatenate([come, runs[2], runs[3], gone])
    of_job = np.concatenate([able, job, job, able]).astype(np.int64)
    held = np.concatenate([none, gpus, -gpus, none])
    here = np.concatenate([one, 0 * gpus, 0 * gpus, -one])
    # In the order of the jobs what each holds begins and ends at nothing, so that the sums over
    # all of them are those of each. Of what changes at one instant the last sum counts.
    by_job = np.lexsort((at_s, of_job))
    at_s, of_job = at_s[by_job], of_job[by_job]
    last = np.append((np.diff(at_s) != 0) | (np.diff(of_job) != 0), True)[: at_s.size]
    held, here = held[by_job].cumsum()[last], here[by_job].cumsum()[last]
    at_s, of_job = at_s[last], of_job[last]
    most = np.array([record.job.requirements.counts[-1] for record in log.jobs], np.int64)
    wanted = np.maximum(held, np.where(here > 0, most[of_job], 0))
    more_wanted, more_held = np.diff(wanted, prepend=0), np.diff(held, prepend=0)
    changes = np.flatnonzero((more_wanted != 0) | (more_held != 0))
    order = changes[np.argsort(at_s[changes], kind="stable")]
    return at_s[order], of_job[order], more_wanted[order], more_held[order]


# Now ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AccountNow:
    """An account with all that is in it, or a user of one.

    Attributes:
        account: its name, "" where none is known.
        user: "" for the account itself.
        shares: among its siblings; None for what counts as its account.
        used: its part in what it and its siblings have used of late; None where nobody counts it.
        held_gpus: what its jobs hold.
        due_gpus: what is due to it of all that is held, by shares and by what it asks for.
        running: how many of its jobs hold GPUs.
        waiting: how many do not.
    """

    account: str
    user: str
    shares: int | None
    used: float | None
    held_gpus: int
    due_gpus: float
    running: int
    waiting: int


def accounts_now(snapshot: Snapshot) -> tuple[AccountNow, ...]:
    """Return all accounts that have jobs, or hold one that has, then all users; most GPUs first.

    A job that is kept back by something else than want of GPUs asks for none.
    """
    views = snapshot.by_submission()
    users = sorted({association_of(view.job) for view in views})
    site = snapshot.site
    tree = (ShareTree() if site is None or site.tree is None else site.tree).with_users(users)
    used = {} if site is None or site.tree is None else effective_usage(tree, site.used)
    columns = {user: at for at, user in enumerate(users)}
    user_of = np.array([columns[association_of(view.job)] for view in views], np.int64)
    held = np.array([0 if (has := view.holds) is None else has.gpus for view in views], np.int64)
    counts = (view.job.requirements.counts[-1] for view in views)
    asked = np.array([0 if v.blocked else n for v, n in zip(views, counts, strict=True)], np.int64)
    held_gpus = _summed(user_of, held, users)
    due_gpus = _due(tree, users, held_gpus, _summed(user_of, np.maximum(held, asked), users))
    running = _summed(user_of, (held > 0).astype(np.int64), users)
    waiting = _summed(user_of, (held == 0).astype(np.int64), users)

    def row(each: Association, inside: Sequence[int]) -> AccountNow:
        return AccountNow(
            *each,
            shares=tree.shares.get(each, 1),
            used=used.get(each),
            held_gpus=int(held_gpus[inside].sum()),
            due_gpus=float(due_gpus[inside].sum()),
            running=int(running[inside].sum()),
            waiting=int(waiting[inside].sum()),
        )

    inside_of = accounts_of(tree, users) | {user: [at] for at, user in enumerate(users)}
    rows = [row(*each) for each in inside_of.items()]
    return tuple(sorted(rows, key=lambda one: (one.user != "", -one.held_gpus, one.account)))


def _summed(user_of: Ints, values: Ints, users: Sequence[Association]) -> Ints:
    return np.bincount(user_of, values, len(users)).astype(np.int64)


def _due(
    tree: ShareTree, users: Sequence[Association], held: Ints, wanted: Ints
) -> NDArray[np.float64]:
    """Return (U,) the GPUs due to each user: those of a second in which nothing changes."""
    first, parent, shares, leaf = numbered(tree, users)
    had_gpu_s, due_gpu_s = np.zeros((2, 1, len(parent)))
    now, then = np.zeros(len(users)), np.ones(1)
    # The compiled function takes longer to load, and more memory, than this ever saves.
    integrate = integrate_due.py_func
    integrate(now, leaf, wanted, held, first, parent, shares, then, had_gpu_s, due_gpu_s)
    due: NDArray[np.float64] = due_gpu_s[0, leaf]
    return due
